//! From a path to a [`Spec`].

use std::fs::File;
use std::path::{Component, Path, PathBuf};

use super::diagnostic::{ConfigurationError, Diagnostic};
use super::document::{self, Document, FileKind};
use super::file_text::{LoadError, decode_text, read_bytes};
use super::interpolate::{Variables, interpolate};
use super::node::Node;
use super::source_file::SourceFile;
use super::spec::{MAX_NAME, Spec, StepCheck};
use gpux_core::closest;
use gpux_core::files::{explain_proc_link, lies_in, resolve_path, similar_file};
use gpux_core::hub_blobs;
use gpux_core::sanitize::is_unsafe_for_terminal;

/// The names under which the file of a folder is found, in this order.
pub const FILE_NAMES: [&str; 3] = ["gpux.yml", "gpux.yaml", "GPUXfile"];

/// Folders that are looked into for a pipeline of a given name.
const MAX_FOLDERS: usize = 500;

/// Reads the text of a gpux.yml. `name` is what diagnostics call the file; `steps` knows the built-in
/// steps.
pub fn parse(
    name: impl Into<String>,
    text: impl Into<std::sync::Arc<str>>,
    variables: &Variables<'_>,
    steps: StepCheck<'_>,
) -> Result<(Document, Spec), Box<ConfigurationError>> {
    let source = SourceFile::new(name, text);
    let (root, mut diagnostics) = document::parse(&source, FileKind::PIPELINE);
    let Some(mut root) = root else { return Err(Box::new(ConfigurationError::new(source, diagnostics))) };
    diagnostics.extend(interpolate(&mut root, &source, variables));
    match Spec::from_node(&root, steps) {
        Ok(spec) if diagnostics.is_empty() => Ok((Document { source, root }, spec)),
        Ok(_) => Err(Box::new(ConfigurationError::new(source, diagnostics))),
        Err(more) => {
            // A value whose variable could not be read is not wrong a second time.
            let unread: Vec<_> =
                diagnostics.iter().filter(|found| found.code == "variable").map(|found| found.span.clone()).collect();
            let inside = |found: &Diagnostic| {
                unread.iter().any(|span| found.span.start <= span.start && span.end <= found.span.end)
            };
            diagnostics.extend(more.into_iter().filter(|found| !inside(found)));
            Err(Box::new(ConfigurationError::new(source, diagnostics)))
        }
    }
}

/// Reads the gpux.yml at `path`, which must be a file; see [`find`]. A link may lead out of the file's folder only
/// with `allow_outside` (the operator's word): what stands in a file is quoted where it is wrong.
pub fn load(
    path: &Path,
    allow_outside: bool,
    variables: &Variables<'_>,
    steps: StepCheck<'_>,
) -> Result<(Document, Spec), LoadError> {
    Ok(parse(path.display().to_string(), checked_text(path, allow_outside)?, variables, steps)?)
}

/// The name in the gpux.yml at `path`, also where the rest of it is wrong. If it has none that can be read, the error
/// is that of [`load`].
pub fn read_name(
    path: &Path,
    allow_outside: bool,
    variables: &Variables<'_>,
    steps: StepCheck<'_>,
) -> Result<String, LoadError> {
    let source = SourceFile::new(path.display().to_string(), checked_text(path, allow_outside)?);
    if let Some(name) = name_in(&source, variables) {
        return Ok(name);
    }
    Ok(parse(source.name, source.text, variables, steps)?.1.name.value)
}

/// The name in a gpux.yml, if it is one that a pipeline may have.
fn name_in(source: &SourceFile, variables: &Variables<'_>) -> Option<String> {
    let mut root = document::parse(source, FileKind::PIPELINE).0?;
    interpolate(&mut root, source, variables);
    let name: String = super::deserialize::read(root.get("name")?).ok()?;
    (!name.is_empty() && name.chars().count() <= MAX_NAME && !name.chars().any(is_unsafe_for_terminal)).then_some(name)
}

/// The text of the file at `path`, if it lies where [`load`] permits.
fn checked_text(path: &Path, allow_outside: bool) -> Result<String, LoadError> {
    let io = |source| LoadError::Io { path: path.to_owned(), source };
    let file = File::open(path).map_err(io)?;
    if !allow_outside && !lies_in_its_folder(&file, path).map_err(io)? {
        return Err(LoadError::Outside(path.to_owned()));
    }
    decode_text(read_bytes(file).map_err(io)?, path, FileKind::PIPELINE)
}

/// Whether the file opened by this path lies in the path's folder after following links. The opened file
/// counts: another may have replaced it since.
fn lies_in_its_folder(file: &File, path: &Path) -> std::io::Result<bool> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let found = resolve_path(path)?;
    #[cfg(unix)]
    let is_found = {
        use std::os::unix::fs::MetadataExt as _;
        let (opened, found) = (file.metadata()?, found.symlink_metadata()?);
        (opened.dev(), opened.ino()) == (found.dev(), found.ino())
    };
    #[cfg(not(unix))]
    let is_found = file.metadata()?.is_file();
    let folder = resolve_path(folder)?;
    Ok(is_found && (lies_in(&found, &folder) || hub_blobs(&folder).is_some_and(|blobs| lies_in(&found, &blobs))))
}

/// Resolves `wanted`: a file, a folder that has one of [`FILE_NAMES`], or the name of a
/// pipeline in `folder` or in a folder directly below it.
pub fn find(wanted: impl AsRef<Path>, folder: &Path) -> Result<PathBuf, LoadError> {
    let wanted = wanted.as_ref();
    let path = plain(folder.join(wanted));
    let not_found = |tried, similar| LoadError::NotFound { wanted: wanted.display().to_string(), tried, similar };
    if path.is_file() {
        return Ok(path);
    }
    let mut tried = Vec::new();
    if path.is_dir() {
        for name in FILE_NAMES {
            let file = plain(path.join(name));
            if file.is_file() {
                return Ok(file);
            }
            tried.push(format!("`{}`", file.display()));
        }
        return Err(not_found(tried, None));
    }
    if let Some(reason) = explain_proc_link(&path) {
        return Err(LoadError::Io { path, source: std::io::Error::other(reason) });
    }
    tried.push(format!("a file or folder `{}`", path.display()));
    // A text with a separator is a path, never the name of a pipeline.
    let Some(wanted) = wanted.to_str().filter(|_| wanted.components().count() <= 1) else {
        return Err(not_found(tried, similar_file(&path)));
    };
    tried.push(format!("`name: {wanted}` in `{0}/{1}` and `{0}/*/{1}`", folder.display(), FILE_NAMES[0]));
    let mut folders: Vec<_> = std::fs::read_dir(folder)
        .map(|entries| {
            entries.take(MAX_FOLDERS).flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
        })
        .unwrap_or_default();
    folders.sort();
    folders.insert(0, folder.to_owned());
    let (mut names, mut found) = (Vec::new(), Vec::new());
    for (number, folder) in folders.iter().enumerate() {
        for file in FILE_NAMES.map(|name| plain(folder.join(name))).into_iter().filter(|file| file.is_file()) {
            match name_at(&file) {
                // One here goes before those below.
                Some(name) if name == wanted && number == 0 => return Ok(file),
                Some(name) if name == wanted => {
                    found.push(file);
                    break;
                }
                name => names.extend(name),
            }
        }
    }
    match found.as_slice() {
        [] => {}
        [_] => return Ok(found.remove(0)),
        _ => {
            let files = found.iter().map(|file| file.display().to_string()).collect();
            return Err(LoadError::Ambiguous { name: wanted.to_owned(), files });
        }
    }
    let similar = closest(wanted, names.iter().map(String::as_str)).map(str::to_owned);
    let similar = similar.or_else(|| similar_file(&path));
    Err(not_found(tried, similar))
}

/// The same path without `.` in it, as people write it.
fn plain(path: PathBuf) -> PathBuf {
    let plain: PathBuf = path.components().filter(|part| *part != Component::CurDir).collect();
    if plain.as_os_str().is_empty() { path } else { plain }
}

/// The `name:` of a file, if it can be read at all.
fn name_at(file: &Path) -> Option<String> {
    let text = String::from_utf8(File::open(file).and_then(read_bytes).ok()?).ok()?;
    let root = document::parse(&SourceFile::new("", text), FileKind::PIPELINE).0?;
    super::deserialize::read(root.get("name")?).ok()
}

/// The pipeline that `root` describes, as gpux.yml would. For pipelines that are made of parts of
/// another file: `root` holds nodes of `source`, so mistakes point there.
pub fn spec_of(
    source: &SourceFile,
    root: Node,
    steps: StepCheck<'_>,
) -> Result<(Document, Spec), Box<ConfigurationError>> {
    match Spec::from_node(&root, steps) {
        Ok(spec) => Ok((Document { source: source.clone(), root }, spec)),
        Err(diagnostics) => Err(Box::new(ConfigurationError::new(source.clone(), diagnostics))),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use super::super::spec::accept_any_step;
    use super::*;

    #[test]
    fn finds_a_pipeline_by_file_folder_and_name() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("inner");
        std::fs::create_dir(&inner).unwrap();
        std::fs::create_dir(folder.path().join("empty")).unwrap();
        std::fs::write(inner.join("GPUXfile"), "name: sentiment\n").unwrap();
        let found = |wanted: &str| find(wanted, folder.path()).ok();
        assert_eq!(found("inner"), Some(inner.join("GPUXfile")));
        assert_eq!(found("inner/GPUXfile"), Some(inner.join("GPUXfile")));
        assert_eq!(found("sentiment"), Some(inner.join("GPUXfile")));
        std::fs::write(inner.join("gpux.yml"), "name: newer\n").unwrap();
        assert_eq!(found("inner"), Some(inner.join("gpux.yml")));
        let other = folder.path().join("other");
        std::fs::create_dir(&other).unwrap();
        std::fs::write(other.join("gpux.yml"), "name: newer\n").unwrap();
        let several = find("newer", folder.path()).unwrap_err().to_string();
        assert!(
            several.contains("several pipelines are called `newer`") && several.contains("other/gpux.yml"),
            "{several}"
        );
        std::fs::write(folder.path().join("gpux.yml"), "name: newer\n").unwrap();
        assert_eq!(found("newer"), Some(folder.path().join("gpux.yml")), "one here goes before those below");
        assert!(find("empty", folder.path()).unwrap_err().to_string().contains("gpux.yaml"));
        assert!(find("nothing", folder.path()).unwrap_err().to_string().contains("name: nothing"));
    }

    #[cfg(unix)]
    #[test]
    fn rejects_links_that_lead_out_of_the_folder() {
        use std::os::unix::fs::symlink;

        let folder = tempfile::tempdir().unwrap();
        let (project, secret) = (folder.path().join("project"), folder.path().join("secret"));
        std::fs::create_dir_all(project.join("..data")).unwrap();
        std::fs::write(&secret, "name: x\nroot:x:0:0\n").unwrap();
        let path = project.join("gpux.yml");
        let read = |outside| load(&path, outside, &Variables::empty(), &accept_any_step);
        for (target, inside) in [
            (Path::new("../secret"), false),
            (&secret, false),
            (Path::new("out"), false),
            (Path::new("..data/gpux.yml"), true),
        ] {
            let _ = std::fs::remove_file(&path);
            let _ = std::fs::remove_file(project.join("out"));
            symlink(&secret, project.join("out")).unwrap();
            std::fs::write(project.join("..data/gpux.yml"), "name: y\nversion: 1.0.0\npipeline: [softmax]\n").unwrap();
            symlink(target, &path).unwrap();
            match read(false) {
                Err(LoadError::Outside(at)) => assert!(!inside && at == path, "{target:?}"),
                other => assert!(inside && other.is_ok(), "{target:?}: {other:?}"),
            }
            assert!(!matches!(read(true), Err(LoadError::Outside(_))), "the operator may permit it");
        }
        // A folder that is a link is where its files are.
        let link = folder.path().join("link");
        symlink(&project, &link).unwrap();
        assert!(load(&link.join("gpux.yml"), false, &Variables::empty(), &accept_any_step).is_ok());
    }

    #[test]
    fn rejects_binary_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.onnx");
        std::fs::write(&path, b"name: x\nversion: \xff\xfe\n").unwrap();
        let LoadError::Invalid(error) = load(&path, false, &Variables::empty(), &accept_any_step).unwrap_err() else {
            panic!("another error")
        };
        let place = error.source_file().position(error.diagnostics()[0].span.start);
        assert_eq!((error.diagnostics()[0].code, place.line, place.column), ("not-text", 2, 10));
        let missing = load(&folder.path().join("none"), false, &Variables::empty(), &accept_any_step).unwrap_err();
        assert!(matches!(missing, LoadError::Io { .. }));
    }
}
