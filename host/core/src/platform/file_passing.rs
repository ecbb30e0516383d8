//! Hands open files to another process, over a Unix socket (`SCM_RIGHTS`).

use std::io::{Error, ErrorKind, IoSlice, IoSliceMut, Result};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};

/// The most files of one message.
const MOST: usize = 2;

/// Sends files, at most two, with one byte.
pub fn send_files(to: &UnixStream, files: &[BorrowedFd<'_>]) -> Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(ErrorKind::InvalidInput.into());
    }
    sendmsg(to, &[IoSlice::new(&[0])], &mut control, SendFlags::empty())?;
    Ok(())
}

/// Receives what [`send_files`] sent: at least one file.
pub fn receive_files(from: &UnixStream) -> Result<Vec<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    recvmsg(from, &mut [IoSliceMut::new(&mut [0])], &mut control, RecvFlags::empty())?;
    let mut received = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(files) = message {
            received.extend(files);
        }
    }
    // Programs that this process starts do not get them. Not every system can say so while receiving.
    received.iter().try_for_each(|file| fcntl_setfd(file, FdFlags::CLOEXEC))?;
    if received.is_empty() { Err(Error::new(ErrorKind::UnexpectedEof, "no file was sent")) } else { Ok(received) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn receives_the_same_files_in_order() {
        let (from, to) = UnixStream::pair().unwrap();
        let pipes = [std::io::pipe().unwrap(), std::io::pipe().unwrap()];
        send_files(&from, &pipes.each_ref().map(|(_, writer)| writer.as_fd())).unwrap();
        let received = receive_files(&to).unwrap();
        for ((mut reader, writer), (file, text)) in pipes.into_iter().zip(received.into_iter().zip(["one", "two"])) {
            drop(writer);
            std::fs::File::from(file).write_all(text.as_bytes()).unwrap();
            let mut read = String::new();
            reader.read_to_string(&mut read).unwrap();
            assert_eq!(read, text);
        }
        drop(from);
        assert_eq!(receive_files(&to).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    }
}
