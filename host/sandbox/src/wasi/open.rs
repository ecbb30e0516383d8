//! Opening a file so that it never waits: what lies at a path may have become a pipe since it was
//! looked at.

use std::path::Path;

use cap_primitives::fs::{OpenOptions, OpenOptionsExt as _, open};
use rustix::fs::{FileType, OFlags, fcntl_getfl, fcntl_setfl, fstat};
use wasmtime_wasi::filesystem::{Descriptor, Dir, File, OpenMode};
use wasmtime_wasi::p2::FsResult;
use wasmtime_wasi::p2::bindings::filesystem::types::ErrorCode;
use wasmtime_wasi::p2::bindings::sync::filesystem::types::{DescriptorFlags, OpenFlags, PathFlags};

/// The flags with which a guest opens a file.
pub(super) struct OpenRequest {
    pub(super) follow: PathFlags,
    pub(super) open: OpenFlags,
    pub(super) flags: DescriptorFlags,
}

/// Opens the file or folder at `path` beneath `folder`. The call does not block on other types,
/// and the type is checked through the opened descriptor.
pub(super) fn open_beneath(folder: &Dir, path: &str, request: &OpenRequest) -> FsResult<Descriptor> {
    let (options, mode) = options(request)?;
    if folder.perms.write_not_permitted() && mode.contains(OpenMode::WRITE) {
        return Err(ErrorCode::NotPermitted.into());
    }
    let opened = open(&folder.dir, Path::new(path), &options)?;
    let system = |error: rustix::io::Errno| std::io::Error::from(error);
    let kind = FileType::from_raw_mode(fstat(&opened).map_err(system)?.st_mode);
    if !matches!(kind, FileType::RegularFile | FileType::Directory) {
        return Err(ErrorCode::NotPermitted.into());
    }
    let flags = fcntl_getfl(&opened).map_err(system)?;
    fcntl_setfl(&opened, flags - OFlags::NONBLOCK).map_err(system)?;
    match kind {
        FileType::Directory => Ok(Descriptor::Dir(Dir::new(opened, folder.perms, mode, true))),
        _ if request.open.contains(OpenFlags::DIRECTORY) => Err(ErrorCode::NotDirectory.into()),
        _ => Ok(Descriptor::File(File::new(opened, folder.perms, mode, true))),
    }
}

/// As wasmtime-wasi reads them, and never waiting.
fn options(request: &OpenRequest) -> FsResult<(OpenOptions, OpenMode)> {
    let (creates, truncates) = (request.open.contains(OpenFlags::CREATE), request.open.contains(OpenFlags::TRUNCATE));
    let exclusive = request.open.contains(OpenFlags::EXCLUSIVE);
    let synced = DescriptorFlags::FILE_INTEGRITY_SYNC
        | DescriptorFlags::DATA_INTEGRITY_SYNC
        | DescriptorFlags::REQUESTED_WRITE_SYNC;
    if request.flags.intersects(synced) {
        return Err(ErrorCode::Unsupported.into());
    }
    if request.open.contains(OpenFlags::DIRECTORY) && (creates || truncates || exclusive) {
        return Err(ErrorCode::Invalid.into());
    }
    let writes = request.flags.contains(DescriptorFlags::WRITE);
    // Without write access, it is opened for reading, whatever flags the guest gave.
    let reads = request.flags.contains(DescriptorFlags::READ) || !writes;
    let mut mode = OpenMode::empty();
    mode.set(OpenMode::READ, reads);
    mode.set(OpenMode::WRITE, writes || creates || truncates);
    let mut system = OFlags::NONBLOCK | OFlags::NOCTTY;
    system.set(OFlags::NOFOLLOW, !request.follow.contains(PathFlags::SYMLINK_FOLLOW));
    let mut options = OpenOptions::new();
    options
        .read(reads)
        .write(mode.contains(OpenMode::WRITE))
        .create(creates)
        .create_new(creates && exclusive)
        .truncate(truncates)
        .custom_flags(system.bits().cast_signed());
    Ok((options, mode))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use wasmtime_wasi::FsPerms;

    use super::*;

    fn opened(folder: &Path, path: &'static str, open: OpenFlags, flags: DescriptorFlags) -> Result<bool, ErrorCode> {
        let file = std::fs::File::open(folder).unwrap();
        let folder = Dir::new(file, FsPerms::ReadWrite, OpenMode::READ, true);
        let request = OpenRequest { follow: PathFlags::SYMLINK_FOLLOW, open, flags };
        let opened = open_beneath(&folder, path, &request).map_err(|error| error.downcast().unwrap())?;
        Ok(matches!(opened, Descriptor::Dir(_)))
    }

    #[test]
    fn rejects_pipes_without_blocking() {
        let folder = tempfile::tempdir().unwrap();
        let made = std::process::Command::new("mkfifo").arg(folder.path().join("pipe")).status();
        assert!(made.is_ok_and(|status| status.success()), "mkfifo makes a pipe");
        let (sender, receiver) = mpsc::channel();
        let path = folder.path().to_owned();
        std::thread::spawn(move || {
            for flags in [DescriptorFlags::READ, DescriptorFlags::WRITE, DescriptorFlags::READ | DescriptorFlags::WRITE]
            {
                let _ = sender.send(opened(&path, "pipe", OpenFlags::empty(), flags));
            }
        });
        for _ in 0..3 {
            let outcome = receiver.recv_timeout(Duration::from_secs(20)).expect("opening a pipe waits");
            // No process reads it, so opening it for writing fails.
            assert!(matches!(outcome, Err(ErrorCode::NotPermitted | ErrorCode::Io)), "{outcome:?}");
        }
    }

    #[test]
    fn files_and_folders_are_opened_as_asked() {
        let folder = tempfile::tempdir().unwrap();
        let opened = |path, open, flags| opened(folder.path(), path, open, flags).map_err(|code| code.name());
        let (read, write) = (DescriptorFlags::READ, DescriptorFlags::WRITE);
        assert_eq!(opened("file", OpenFlags::empty(), read), Err("no-entry"));
        assert_eq!(opened("file", OpenFlags::CREATE, write), Ok(false));
        let anew = OpenFlags::CREATE | OpenFlags::EXCLUSIVE;
        assert_eq!(opened("file", anew, write), Err("exist"));
        assert_eq!(opened("file", OpenFlags::DIRECTORY, read), Err("not-directory"));
        assert_eq!(opened("../file", OpenFlags::empty(), read), Err("not-permitted"));
        std::os::unix::fs::symlink("file", folder.path().join("link")).unwrap();
        assert_eq!(opened("link", OpenFlags::empty(), read), Ok(false));
        assert_eq!(opened(".", OpenFlags::DIRECTORY, read), Ok(true));
    }
}
