//! The members of a compressed body: each takes thousands of times as long to begin as its bytes say.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncBufRead, AsyncRead, ReadBuf};

/// The most members of one body. Files that can be read from anywhere (BGZF) have one for each 64 KiB.
pub(crate) const MOST: u32 = 4096;

/// What is said of a body that has more.
pub(crate) fn too_many() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("it has more than {MOST} compressed members"))
}

/// Decompresses one member after the other: what follows the first is part of the body, or wrong, and never passed
/// over in silence.
pub(crate) struct Members<R, D> {
    now: Now<R, D>,
    left: u32,
    begin: fn(R) -> D,
    end: fn(D) -> R,
}

enum Now<R, D> {
    Member(D),
    Between(R),
    /// only while one becomes the other
    Neither,
}

impl<R, D> Members<R, D> {
    pub(crate) fn new(reader: R, begin: fn(R) -> D, end: fn(D) -> R) -> Self {
        Self { now: Now::Member(begin(reader)), left: MOST, begin, end }
    }
}

impl<R: AsyncBufRead + Unpin, D: AsyncRead + Unpin> AsyncRead for Members<R, D> {
    fn poll_read(mut self: Pin<&mut Self>, task: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        loop {
            match &mut this.now {
                Now::Member(decoder) => {
                    let before = out.filled().len();
                    ready!(Pin::new(decoder).poll_read(task, out))?;
                    if out.filled().len() > before || out.remaining() == 0 {
                        return Poll::Ready(Ok(()));
                    }
                }
                Now::Between(reader) => {
                    if ready!(Pin::new(reader).poll_fill_buf(task))?.is_empty() {
                        return Poll::Ready(Ok(()));
                    }
                    this.left = this.left.checked_sub(1).ok_or_else(too_many)?;
                }
                Now::Neither => return Poll::Ready(Ok(())),
            }
            this.now = match std::mem::replace(&mut this.now, Now::Neither) {
                Now::Member(decoder) => Now::Between((this.end)(decoder)),
                Now::Between(reader) => Now::Member((this.begin)(reader)),
                Now::Neither => Now::Neither,
            };
        }
    }
}
