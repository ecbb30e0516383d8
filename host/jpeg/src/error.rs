//! Errors and cancellation.

use std::fmt;

/// Why a file was not decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The file is damaged, cut off or contradicts itself.
    Damaged(String),
    /// The file may be whole, but is of a kind that this crate does not decode.
    Unsupported(String),
    /// The caller cancelled the decoding.
    Cancelled,
    /// The buffer for the pixels has another length than [`Info::byte_len`](crate::Info::byte_len).
    BufferLength {
        /// Bytes that the pixels take.
        expected: usize,
        /// Bytes of the buffer.
        found: usize,
    },
}

impl Error {
    pub(crate) fn damaged(reason: impl Into<String>) -> Self {
        Self::Damaged(reason.into())
    }

    pub(crate) fn unsupported(reason: impl Into<String>) -> Self {
        Self::Unsupported(reason.into())
    }

    pub(crate) fn truncated() -> Self {
        Self::damaged("the file ends before the image does")
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Damaged(reason) | Self::Unsupported(reason) => f.write_str(reason),
            Self::Cancelled => f.write_str("decoding was cancelled"),
            Self::BufferLength { expected, found } => {
                write!(f, "the pixels take {expected} bytes, the buffer has {found}")
            }
        }
    }
}

impl std::error::Error for Error {}

/// The caller's cancellation check.
#[derive(Clone, Copy)]
pub(crate) struct CancelCheck<'a>(pub(crate) &'a dyn Fn() -> bool);

impl CancelCheck<'_> {
    pub(crate) fn check(self) -> Result<(), Error> {
        if (self.0)() { Err(Error::Cancelled) } else { Ok(()) }
    }
}
