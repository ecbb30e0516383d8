//! The Hugging Face caches of this user.

use std::path::{Component, Path, PathBuf};

/// The caches, as `huggingface_hub` finds them: `HF_HUB_CACHE`, `HF_HOME`, the home folder's.
pub fn hub_folders() -> Vec<PathBuf> {
    folders(&|name| std::env::var_os(name).map(PathBuf::from))
}

fn folders(variable: &dyn Fn(&str) -> Option<PathBuf>) -> Vec<PathBuf> {
    let set = |name: &str| variable(name).filter(|value| !value.as_os_str().is_empty());
    let home = || Some(etcetera::home_dir().ok()?.join(".cache/huggingface/hub"));
    [set("HF_HUB_CACHE"), set("HF_HOME").map(|home| home.join("hub")), home()].into_iter().flatten().collect()
}

/// Where the blobs of the repository lie that `folder` is in: the files of its snapshots are links to them. `None` for
/// a folder outside the caches. `folder` and the result are canonical.
pub fn hub_blobs(folder: &Path) -> Option<PathBuf> {
    blobs_in(folder, hub_folders())
}

fn blobs_in(folder: &Path, hubs: Vec<PathBuf>) -> Option<PathBuf> {
    hubs.into_iter().find_map(|hub| {
        let hub = hub.canonicalize().ok()?;
        let Component::Normal(repository) = folder.strip_prefix(&hub).ok()?.components().next()? else { return None };
        hub.join(repository).join("blobs").canonicalize().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_hub_by_its_variables() {
        let of = |name: &str, set: &str, value: &str| (name == set).then(|| PathBuf::from(value));
        assert_eq!(folders(&|name| of(name, "HF_HUB_CACHE", "/c"))[0], Path::new("/c"));
        assert_eq!(folders(&|name| of(name, "HF_HOME", "/h"))[0], Path::new("/h/hub"));
        assert!(!folders(&|name| of(name, "HF_HOME", ""))[0].starts_with("/h"));
    }

    #[test]
    fn finds_the_blobs_of_the_same_repository() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let (repository, blobs) = (root.join("hub/models--org--m"), root.join("hub/models--org--m/blobs"));
        std::fs::create_dir_all(&blobs).unwrap();
        let blobs_of = |folder: PathBuf| blobs_in(&folder, vec![root.join("none"), root.join("hub")]);
        assert_eq!(blobs_of(repository.join("snapshots/abc/onnx")), Some(blobs));
        assert_eq!(blobs_of(root.join("hub")), None);
        assert_eq!(blobs_of(root.join("hub/models--org--other/snapshots/abc")), None);
        assert_eq!(blobs_of(root.join("project")), None);
    }
}
