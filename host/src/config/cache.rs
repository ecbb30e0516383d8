//! Where gpux keeps what it can make again: compiled components, verified models, engines.

use std::path::{Path, PathBuf};

use etcetera::BaseStrategy as _;

/// The operator's cache folder. Only its owner may enter it: what lies there is trusted as code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheDir {
    root: PathBuf,
}

impl CacheDir {
    /// The variable that moves the cache.
    pub const VARIABLE: &str = "GPUX_CACHE_DIR";

    /// `$GPUX_CACHE_DIR`, else `gpux` in the platform's cache folder (`~/.cache` on Linux).
    /// `None` on a machine without a home.
    pub fn from_environment() -> Option<Self> {
        let named = std::env::var_os(Self::VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from);
        let platform = || Some(etcetera::choose_base_strategy().ok()?.cache_dir().join("gpux"));
        named.or_else(platform).map(Self::at)
    }

    /// A cache at this path, which need not exist.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The folder itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Whether files can be made in it; makes the folder if it is not there.
    pub fn check(&self) -> std::io::Result<()> {
        tempfile::tempfile_in(self.folder("")?).map(drop)
    }

    /// The folder `name` of the cache, made (with its parents, mode 0700) if it is not there.
    pub fn folder(&self, name: &str) -> std::io::Result<PathBuf> {
        let path = self.root.join(name);
        let mut builder = std::fs::DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(&path)?;
        #[cfg(unix)]
        for folder in [&self.root, &path] {
            use std::os::unix::fs::PermissionsExt as _;
            if folder.metadata()?.permissions().mode() & 0o022 != 0 {
                let message = format!("others may write to `{}`, and what lies there is run as code", folder.display());
                return Err(std::io::Error::new(std::io::ErrorKind::PermissionDenied, message));
            }
        }
        Ok(path)
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_folder_that_others_may_write_to_is_refused() {
        let parent = tempfile::tempdir().unwrap();
        let cache = CacheDir::at(parent.path().join("cache"));
        let folder = cache.folder("wasmtime").unwrap();
        assert_eq!(folder.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        cache.check().unwrap();
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o777)).unwrap();
        assert!(cache.folder("wasmtime").unwrap_err().to_string().contains("others may write"));
    }
}
