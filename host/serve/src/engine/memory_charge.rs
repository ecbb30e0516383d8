//! What requests and responses charge to the memory budgets ([`body_budget`](super::body_budget)), and from which size.
//!
//! | [`Charge`] | budget | bytes | held until |
//! | --- | --- | --- | --- |
//! | `RequestHead` | requests | names, values and path, and 128 for each header | the response has begun |
//! | `RequestBody` | requests | received or inflated bytes, as they come, beyond those that are free | its last slice is dropped |
//! | `DecodedBody` | requests | an upper bound of the parsed values, by the text | the request was executed |
//! | `EncodedResponse` | responses | the peak while it is encoded, including the values | it shrinks to the response |
//! | `Response` | responses | its bytes before compression; of unknown length, each part | the client has read it |
//! | `ListResults` | responses | the results of a list so far, in steps of the free bytes | it becomes that of the response |
//!
//! Charged from the first byte: the decoded gRPC message, the copy of a JSON text of the Open Inference Protocol whose
//! literals are quoted, and the response of an isolated pipeline while it is read from its process: its bytes, and then
//! what its values take in memory beyond them.

use bytes::Bytes;

use super::error::ServeError;
use gpux_core::MemoryPermit;

/// Memory that is charged to a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Charge {
    RequestHead,
    RequestBody,
    DecodedBody,
    EncodedResponse,
    Response,
    ListResults,
}

impl Charge {
    /// The most bytes that are not charged.
    pub(crate) const fn free_bytes(self) -> usize {
        match self {
            // One packet.
            Self::RequestBody => 1 << 10,
            // A connection itself may use more.
            Self::RequestHead | Self::Response => 4 << 10,
            // Only executing requests hold it.
            Self::EncodedResponse => 32 << 10,
            Self::DecodedBody | Self::ListResults => 64 << 10,
        }
    }

    /// Whether this many bytes are charged.
    pub(crate) const fn applies_to(self, bytes: usize) -> bool {
        bytes > self.free_bytes()
    }

    /// The permit from `reserve` for these bytes if they are charged.
    pub(crate) fn reserve(
        self,
        bytes: usize,
        reserve: impl FnOnce(usize) -> Result<MemoryPermit, ServeError>,
    ) -> Result<Option<MemoryPermit>, ServeError> {
        self.applies_to(bytes).then(|| reserve(bytes)).transpose()
    }
}

/// Bytes with their permit.
struct BudgetedBytes<P> {
    bytes: Bytes,
    _permit: P,
}

impl<P> AsRef<[u8]> for BudgetedBytes<P> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The bytes, which hold the permit until the last slice of them is dropped.
pub(crate) fn attach_permit<P: Send + 'static>(bytes: Bytes, permit: P) -> Bytes {
    Bytes::from_owner(BudgetedBytes { bytes, _permit: permit })
}
