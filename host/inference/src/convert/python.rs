//! Which Python to ask.

use std::ffi::OsString;
use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};

/// The programs to try: the named one alone; without a name, the Python of the active
/// environment, then those of the search path.
pub(super) fn candidates(named: Option<&Path>) -> Vec<PathBuf> {
    named.map_or_else(|| of_environment(|name| std::env::var_os(name)), |named| vec![named.to_owned()])
}

fn of_environment(variable: impl Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let set = |name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let (environment, conda) =
        if cfg!(windows) { ("Scripts/python.exe", "python.exe") } else { ("bin/python", "bin/python") };
    let active = set("VIRTUAL_ENV").map(|folder| folder.join(environment));
    let conda = set("CONDA_PREFIX").map(|folder| folder.join(conda));
    active.into_iter().chain(conda).chain(["python3".into(), "python".into()]).collect()
}

/// Whether the program is not there: the next may be.
pub(super) fn is_not_there(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefers_the_active_environment() {
        assert_eq!(candidates(Some(Path::new("/opt/python"))), [Path::new("/opt/python")]);
        let variable = |name: &str| (name == "VIRTUAL_ENV").then(|| OsString::from("/venv"));
        let found = of_environment(variable);
        assert!(found[0].starts_with("/venv") && found.len() == 3, "{found:?}");
        assert_eq!(of_environment(|_| Some(OsString::new())), [Path::new("python3"), Path::new("python")]);
    }
}
