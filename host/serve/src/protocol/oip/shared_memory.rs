//! The extensions for shared memory, of the system and of CUDA. There is none: what asks about regions is
//! told so, and what takes one away has nothing to do.

use crate::ServeError;

/// The status of a region, or of all where none is named: there are none.
pub(super) fn status(region: &str) -> Result<(), ServeError> {
    if region.is_empty() {
        return Ok(());
    }
    Err(ServeError::NotFound(format!("no shared memory region is called `{region}`: this server takes none")))
}

/// Nothing can be put there.
pub(super) fn register(region: &str) -> ServeError {
    ServeError::invalid(format!(
        "the shared memory region `{region}` is not taken: shared memory is not supported; send the data itself"
    ))
}
