//! Unix sockets: the file of one is bound with its mode, and removed once nobody listens on it.

use std::fs;
use std::io::{Error, ErrorKind};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixListener;
use std::path::Path;

use rustix::fs::Mode;
use socket2::{Domain, SockAddr, SockRef, Socket, Type};

/// Listens at this path; the file gets this mode. Replaces the socket of a server that has ended. Fails with a reason,
/// in words.
pub(super) fn bind(path: &Path, mode: u32) -> Result<UnixListener, String> {
    remove_stale(path)?;
    // The mode holds from the first moment: `bind` applies the mask, as `open` does. The mask belongs to the whole
    // process, which at this time creates no other file.
    let before = rustix::process::umask(Mode::from_raw_mode((0o777 & !mode) as _));
    let bound = UnixListener::bind(path);
    rustix::process::umask(before);
    let listener = bound.map_err(|error| reason(&error))?;
    let prepare = || {
        SockRef::from(&listener).listen(i32::MAX)?;
        listener.set_nonblocking(true)
    };
    prepare().map_err(|error: Error| error.to_string())?;
    Ok(listener)
}

/// Removes the socket at this path if nobody listens on it. Fails if something else is there.
pub(super) fn remove_stale(path: &Path) -> Result<(), String> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(reason(&error)),
        Ok(file) if !file.file_type().is_socket() => {
            return Err("there is a file that is no socket: remove it, or choose another path".to_owned());
        }
        Ok(_) => {}
    }
    match connect(path) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(|error| format!("the socket of a server that has ended stays: {error}"))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            Err("there is a socket that this user may not use: remove it, or choose another path".to_owned())
        }
        // A queue that is full is a listener's.
        Ok(()) | Err(_) => Err("another program listens there: stop it, or choose another path".to_owned()),
    }
}

/// Connects, without waiting for a place in a full queue.
fn connect(path: &Path) -> Result<(), Error> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.connect(&SockAddr::unix(path)?)
}

fn reason(error: &Error) -> String {
    match error.kind() {
        ErrorKind::NotFound => "its folder does not exist".to_owned(),
        ErrorKind::PermissionDenied => "this user may not write in its folder".to_owned(),
        ErrorKind::InvalidInput => {
            "the path of a socket has at most 107 bytes (Linux): choose a shorter one".to_owned()
        }
        _ => error.to_string(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn replaces_stale_sockets_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gpux.sock");
        for mode in [0o600, 0o660, 0o666] {
            let first = bind(&path, mode).unwrap();
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, mode);
            UnixStream::connect(&path).unwrap();
            let refusal = bind(&path, mode).unwrap_err();
            assert!(refusal.contains("another program listens there"), "{refusal}");
            assert!(remove_stale(&path).is_err() && path.exists(), "it is in use");
            drop(first);
            assert!(path.exists(), "a server that is killed leaves it");
        }
        remove_stale(&path).unwrap();
        assert!(!path.exists());
        remove_stale(&path).unwrap();
    }

    #[test]
    fn keeps_files_that_are_no_sockets() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        fs::write(&file, "text").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        for path in [&file, &link, &folder.path().to_owned()] {
            let refusal = bind(path, 0o600).unwrap_err();
            assert!(refusal.contains("no socket"), "{refusal}");
        }
        assert_eq!(fs::read_to_string(&file).unwrap(), "text");
        for (path, wanted) in [
            (folder.path().join("none/gpux.sock"), "folder does not exist"),
            (folder.path().join("x".repeat(120)), "107 bytes"),
        ] {
            let refusal = bind(&path, 0o600).unwrap_err();
            assert!(refusal.contains(wanted), "{refusal}");
        }
    }
}
