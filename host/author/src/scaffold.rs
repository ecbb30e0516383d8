//! New folders, whole or not at all.

use std::fs::File;
use std::path::{Path, PathBuf};

use super::language::Language;
use super::project_name::{name_fault, suggested_name};
use super::template::{Placeholders, TemplateFile, embedded};
use gpux_core::process_exit::Scratch;

/// The kind of folder to create.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScaffoldKind {
    /// a pipeline of built-in steps, ready for a model
    Pipeline,
    /// a component step in this language
    Step(Language),
}

impl ScaffoldKind {
    const fn files(self) -> &'static [TemplateFile] {
        match self {
            Self::Pipeline => embedded::PIPELINE,
            Self::Step(language) => language.template(),
        }
    }
}

/// A folder that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScaffoldReport {
    /// the name in it
    pub name: String,
    /// the folder
    pub folder: PathBuf,
    /// its files, relative to it
    pub files: Vec<String>,
}

/// A folder cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum ScaffoldError {
    /// a name that cannot be one
    #[error("`{name}` cannot be the name: {why}; use small letters, digits and single hyphens, such as `{}`", suggested_name(.name))]
    Name {
        /// the name
        name: String,
        /// the reason
        why: &'static str,
    },
    /// there is something already
    #[error("`{}` is there already and {what}; choose another name, or move it away", path.display())]
    Occupied {
        /// the folder
        path: PathBuf,
        /// its type
        what: &'static str,
    },
    /// the folder around it is missing
    #[error("there is no folder `{}` to make it in; make that first", .0.display())]
    NoParent(PathBuf),
    /// the system refuses
    #[error("cannot make `{}`: {source}", path.display())]
    Io {
        /// the folder
        path: PathBuf,
        /// the system's reason
        source: std::io::Error,
    },
}

/// Makes the folder at `path`, whose last part is the name.
pub fn scaffold(kind: ScaffoldKind, path: &Path) -> Result<ScaffoldReport, ScaffoldError> {
    let made = in_draft(path, |draft, name| {
        for file in kind.files() {
            write(draft, file, name).map_err(|source| ScaffoldError::Io { path: path.to_owned(), source })?;
        }
        Ok::<_, ScaffoldError>((kind.files().iter().map(|file| file.path().to_owned()).collect(), ()))
    });
    made.map(|(report, ())| report)
}

/// Makes the folder at `path`, whose last part is the name. `fill` writes into a folder beside it, which is moved there
/// as a whole, so a failure leaves nothing; it is given that folder and the name, and gives the files.
pub(crate) fn in_draft<T, E: From<ScaffoldError>>(
    path: &Path,
    fill: impl FnOnce(&Path, &str) -> Result<(Vec<String>, T), E>,
) -> Result<(ScaffoldReport, T), E> {
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    if let Some(why) = name_fault(&name) {
        return Err(ScaffoldError::Name { name, why }.into());
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !parent.is_dir() {
        return Err(ScaffoldError::NoParent(parent.to_owned()).into());
    }
    free(path)?;
    let io = |source| ScaffoldError::Io { path: path.to_owned(), source };
    let (draft, _held) = new_draft(parent).map_err(io)?;
    let (files, made) = fill(draft.path(), &name)?;
    share(draft.path()).map_err(io)?;
    if path.exists() {
        // Empty, as `free` has seen; where it no longer is, this fails.
        std::fs::remove_dir(path).map_err(io)?;
    }
    std::fs::rename(draft.path(), path).map_err(io)?;
    Ok((ScaffoldReport { name, folder: path.to_owned(), files }, made))
}

/// What drafts are named.
const DRAFT: &str = ".gpux-new-";

/// A draft that this process holds as long as the file is open. Those that killed processes left are removed: nobody
/// holds them. The folder around them is held meanwhile, so that none is taken that another process has just made.
#[cfg(unix)]
fn new_draft(parent: &Path) -> std::io::Result<(Scratch, Option<File>)> {
    let hold = |folder: &Path| File::open(folder).and_then(|file| file.lock().map(|()| file)).ok();
    // Not every file system can: then what is left stays.
    let around = hold(parent);
    let entries = around.iter().flat_map(|_| parent.read_dir()).flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(DRAFT)) {
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_folder && File::open(entry.path()).is_ok_and(|file| file.try_lock().is_ok()) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
    let draft = Scratch::with_prefix(DRAFT, parent)?;
    let held = hold(draft.path());
    Ok((draft, held))
}

#[cfg(not(unix))]
fn new_draft(parent: &Path) -> std::io::Result<(Scratch, Option<File>)> {
    Ok((Scratch::with_prefix(DRAFT, parent)?, None))
}

fn free(path: &Path) -> Result<(), ScaffoldError> {
    let occupied = |what| Err(ScaffoldError::Occupied { path: path.to_owned(), what });
    match path.symlink_metadata() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(source) => Err(ScaffoldError::Io { path: path.to_owned(), source }),
        Ok(found) if found.is_symlink() => occupied("is a link"),
        Ok(found) if !found.is_dir() => occupied("is a file"),
        Ok(_) => {
            let mut entries = path.read_dir().map_err(|source| ScaffoldError::Io { path: path.to_owned(), source })?;
            if entries.next().is_some() { occupied("is not empty") } else { Ok(()) }
        }
    }
}

fn write(folder: &Path, file: &TemplateFile, name: &str) -> std::io::Result<()> {
    let path = folder.join(file.path());
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    std::fs::write(path, file.render(&Placeholders { name }))
}

/// A temporary folder is its owner's alone; a new project is what any new folder would be.
#[cfg(unix)]
fn share(folder: &Path) -> std::io::Result<()> {
    let ordinary = folder.join(".mode");
    std::fs::create_dir(&ordinary)?;
    let mode = ordinary.metadata()?.permissions();
    std::fs::remove_dir(&ordinary)?;
    std::fs::set_permissions(folder, mode)
}

#[cfg(not(unix))]
fn share(_: &Path) -> std::io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_nothing_after_a_failure() {
        let parent = tempfile::tempdir().unwrap();
        let at = |name: &str| parent.path().join(name);
        std::fs::create_dir(at("taken")).unwrap();
        std::fs::write(at("taken").join("precious"), "x").unwrap();
        assert!(matches!(scaffold(ScaffoldKind::Pipeline, &at("taken")), Err(ScaffoldError::Occupied { .. })));
        std::fs::write(at("file"), "x").unwrap();
        assert!(matches!(scaffold(ScaffoldKind::Pipeline, &at("file")), Err(ScaffoldError::Occupied { .. })));
        assert!(matches!(scaffold(ScaffoldKind::Pipeline, &at("none/new")), Err(ScaffoldError::NoParent(_))));
        let left: Vec<_> = parent.path().read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left.len(), 2, "{left:?}");
    }

    #[cfg(unix)]
    #[test]
    fn removes_what_killed_processes_left() {
        let parent = tempfile::tempdir().unwrap();
        for name in [".gpux-new-left", ".gpux-new-held"] {
            std::fs::create_dir(parent.path().join(name)).unwrap();
        }
        let held = File::open(parent.path().join(".gpux-new-held")).unwrap();
        held.lock().unwrap();
        scaffold(ScaffoldKind::Pipeline, &parent.path().join("fresh")).unwrap();
        let there = |name: &str| parent.path().join(name).exists();
        assert_eq!((there(".gpux-new-left"), there(".gpux-new-held"), there("fresh")), (false, true, true));
    }

    #[test]
    fn fills_an_empty_folder() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("fresh");
        std::fs::create_dir(&folder).unwrap();
        let made = scaffold(ScaffoldKind::Pipeline, &folder).unwrap();
        assert!(made.files.iter().all(|file| folder.join(file).is_file()));
        let text = std::fs::read_to_string(folder.join("gpux.yml")).unwrap();
        assert!(text.contains("name: fresh") && !text.contains("{{"), "{text}");
        assert_eq!(parent.path().read_dir().unwrap().count(), 1);
    }
}
