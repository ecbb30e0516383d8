//! The user's own package clients.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::Progress;
use super::package::{Package, PackageClient};
use gpux_core::catch_panic::shorten;

impl PackageClient {
    /// Whether the package's archive is in `downloads`, from an earlier try or fetched now; not,
    /// when the client is not on this machine.
    pub(super) fn fetch(
        self,
        package: &Package,
        downloads: &Path,
        progress: &mut dyn Progress,
    ) -> Result<bool, String> {
        let downloads =
            &std::path::absolute(downloads).map_err(|error| format!("`{}`: {error}", downloads.display()))?;
        let archive = downloads.join(&package.archive);
        if archive.is_file() {
            return Ok(true);
        }
        for (program, arguments) in self.commands(package, downloads) {
            progress.stage(&format!("fetching {} {} with {program}", package.name, package.version));
            let mut command = Command::new(program);
            // The working folder is not trusted: Python would import modules from it, npm read its
            // settings.
            command.args(arguments).current_dir(downloads);
            // pip writes here while it downloads, which is what the progress is read from.
            command.env("TMPDIR", downloads).env("PIP_DISABLE_PIP_VERSION_CHECK", "1");
            match run(command, downloads, package.size, progress) {
                Ok(()) if archive.is_file() => return Ok(true),
                Ok(()) => return Err(format!("{program} fetched something else than `{}`", package.archive)),
                Err(RunFault::NotThere) => {}
                Err(RunFault::Failed(reason)) => return Err(format!("{program} failed: {reason}")),
            }
        }
        Ok(false)
    }

    fn commands(self, package: &Package, downloads: &Path) -> Vec<(&'static str, Vec<String>)> {
        let folder = downloads.display().to_string();
        match self {
            Self::Pip => {
                // Platform and Python are named so that the wheel is the same whatever Python
                // the user has; the library in it needs none.
                let wanted = [
                    "download",
                    "--quiet",
                    "--no-deps",
                    "--only-binary=:all:",
                    "--python-version=3.12",
                    "--platform",
                    &package.platform,
                    "--dest",
                    &folder,
                ];
                let mut arguments: Vec<_> = wanted.into_iter().map(str::to_owned).collect();
                arguments.push(format!("{}=={}", package.name, package.version));
                let as_module = ["-m".to_owned(), "pip".to_owned()].into_iter().chain(arguments.iter().cloned());
                vec![("pip3", arguments.clone()), ("pip", arguments.clone()), ("python3", as_module.collect())]
            }
            Self::Npm => {
                let npm = if cfg!(windows) { "npm.cmd" } else { "npm" };
                let arguments = [
                    "pack",
                    "--loglevel=error",
                    "--fetch-retries=1",
                    "--ignore-scripts",
                    "--pack-destination",
                    &folder,
                ];
                let mut arguments: Vec<_> = arguments.into_iter().map(str::to_owned).collect();
                arguments.push(format!("{}@{}", package.name, package.version));
                vec![(npm, arguments)]
            }
        }
    }
}

enum RunFault {
    NotThere,
    Failed(String),
}

fn run(mut command: Command, downloads: &Path, total: u64, progress: &mut dyn Progress) -> Result<(), RunFault> {
    let failed = |error: std::io::Error| RunFault::Failed(error.to_string());
    let mut stderr = tempfile::tempfile().map_err(failed)?;
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr.try_clone().map_err(failed)?);
    let mut child = command.spawn().map_err(|error| match error.kind() {
        ErrorKind::NotFound => RunFault::NotThere,
        _ => failed(error),
    })?;
    let before = size_of(downloads, 0);
    let status = loop {
        if let Some(status) = child.try_wait().map_err(failed)? {
            break status;
        }
        progress.bytes(size_of(downloads, 0).saturating_sub(before).min(total), total);
        std::thread::sleep(Duration::from_millis(50));
    };
    if status.success() {
        progress.bytes(total, total);
        return Ok(());
    }
    let mut text = String::new();
    let _ = std::io::Seek::rewind(&mut stderr);
    let _ = std::io::Read::read_to_string(&mut std::io::Read::take(stderr, 1 << 16), &mut text);
    // A launcher whose Python is gone, or a Python without pip, is as good as no client.
    if text.contains("No module named pip") || text.contains("command not found") {
        return Err(RunFault::NotThere);
    }
    Err(RunFault::Failed(shorten(reason(&text))))
}

/// The line that says why: warnings, of tries that are made again, come before it and speak of errors, too.
fn reason(text: &str) -> &str {
    let first = |wanted: fn(&str) -> bool| text.lines().find(|line| wanted(&line.to_ascii_lowercase()));
    first(|line| line.starts_with("error") || line.starts_with("npm err"))
        .or_else(|| first(|line| line.contains("error")))
        .or_else(|| text.lines().last())
        .unwrap_or("it gave no reason")
}

/// Bytes in a folder and the temporary folders below it.
fn size_of(folder: &Path, depth: u8) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let size = |entry: std::io::Result<fs::DirEntry>| {
        let entry = entry.ok()?;
        let meta = entry.metadata().ok()?;
        Some(if meta.is_dir() && depth < 4 { size_of(&entry.path(), depth + 1) } else { meta.len() })
    };
    entries.filter_map(size).sum()
}

#[cfg(test)]
mod tests {
    use super::reason;

    #[test]
    fn extracts_the_error_from_output() {
        let pip = "WARNING: Retrying (Retry(total=4)) after connection broken by 'NewConnectionError'\n\
                   ERROR: No matching distribution found for onnxruntime==1.31.1\n";
        assert_eq!(reason(pip), "ERROR: No matching distribution found for onnxruntime==1.31.1");
        assert_eq!(reason("npm error code ENOTFOUND\nmore"), "npm error code ENOTFOUND");
        assert_eq!(reason("one\nan error of some kind\nlast"), "an error of some kind");
        assert_eq!(reason("one\nlast"), "last");
        assert_eq!(reason(""), "it gave no reason");
    }
}
