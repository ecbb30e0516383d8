//! One file out of a package.

use std::fs::File;
use std::io::{BufReader, Read, Write as _};
use std::path::Path;

use super::InstallError;

/// The most bytes that a library may unpack to.
const LIMIT: u64 = 512 << 20;

/// Writes the file `entry` of `archive` (a wheel, or npm's `.tgz`) to `target`.
pub(super) fn extract(archive: &Path, entry: &str, target: &Path) -> Result<(), InstallError> {
    let fault = |reason: String| InstallError::Archive { path: archive.to_owned(), reason };
    let file = BufReader::new(File::open(archive).map_err(|error| fault(error.to_string()))?);
    if archive.extension().is_some_and(|extension| extension == "whl") {
        let mut wheel = zip::ZipArchive::new(file).map_err(|error| fault(error.to_string()))?;
        let source = wheel.by_name(entry).map_err(|error| fault(format!("{entry}: {error}")))?;
        copy(source, target).map_err(fault)
    } else {
        let mut package = tar::Archive::new(flate2::read::GzDecoder::new(file).take(LIMIT * 4));
        for member in package.entries().map_err(|error| fault(error.to_string()))? {
            let member = member.map_err(|error| fault(error.to_string()))?;
            if member.path().is_ok_and(|path| path == Path::new(entry)) {
                return copy(member, target).map_err(fault);
            }
        }
        Err(fault(format!("it holds no `{entry}`")))
    }
}

fn copy(source: impl Read, target: &Path) -> Result<(), String> {
    let mut file = File::create(target).map_err(|error| format!("cannot write `{}`: {error}", target.display()))?;
    let copied = std::io::copy(&mut source.take(LIMIT + 1), &mut file)
        .and_then(|copied| file.flush().and_then(|()| file.sync_all()).map(|()| copied))
        .map_err(|error| error.to_string())?;
    if copied > LIMIT { Err(format!("it unpacks to more than {LIMIT} bytes")) } else { Ok(()) }
}
