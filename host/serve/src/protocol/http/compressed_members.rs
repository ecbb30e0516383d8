//! Members of a compressed body. Their number is limited: beginning a member costs far more than its bytes.
//!
//! Test: `bounds_the_members_of_a_body`.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncBufRead, AsyncRead, ReadBuf};

/// The most members of one body. BGZF files, which permit random access, have one per 64 KiB.
pub(crate) const MOST: u32 = 4096;

/// The error for a body with more members.
pub(crate) fn too_many() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("it has more than {MOST} compressed members"))
}

/// Decompresses all members in sequence. Data after the first member is part of the body or an error; it is never
/// ignored.
pub(crate) struct CompressedMembers<R, D> {
    now: MemberState<R, D>,
    left: u32,
    begin: fn(R) -> D,
    end: fn(D) -> R,
}

enum MemberState<R, D> {
    Member(D),
    Between(R),
    /// a placeholder during the transition from one to the other
    Neither,
}

impl<R, D> CompressedMembers<R, D> {
    pub(crate) fn new(reader: R, begin: fn(R) -> D, end: fn(D) -> R) -> Self {
        Self { now: MemberState::Member(begin(reader)), left: MOST, begin, end }
    }
}

impl<R: AsyncBufRead + Unpin, D: AsyncRead + Unpin> AsyncRead for CompressedMembers<R, D> {
    fn poll_read(mut self: Pin<&mut Self>, task: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        loop {
            match &mut this.now {
                MemberState::Member(decoder) => {
                    let before = out.filled().len();
                    ready!(Pin::new(decoder).poll_read(task, out))?;
                    if out.filled().len() > before || out.remaining() == 0 {
                        return Poll::Ready(Ok(()));
                    }
                }
                MemberState::Between(reader) => {
                    if ready!(Pin::new(reader).poll_fill_buf(task))?.is_empty() {
                        return Poll::Ready(Ok(()));
                    }
                    this.left = this.left.checked_sub(1).ok_or_else(too_many)?;
                }
                MemberState::Neither => return Poll::Ready(Ok(())),
            }
            this.now = match std::mem::replace(&mut this.now, MemberState::Neither) {
                MemberState::Member(decoder) => MemberState::Between((this.end)(decoder)),
                MemberState::Between(reader) => MemberState::Member((this.begin)(reader)),
                MemberState::Neither => MemberState::Neither,
            };
        }
    }
}
