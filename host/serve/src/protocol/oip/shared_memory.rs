//! The extensions for system and CUDA shared memory, which are not supported. There are no regions: `status` fails for
//! a named one, `register` always fails, `unregister` does nothing.

use crate::ServeError;

/// The status of a region, or of all if the name is empty: there are none.
pub(super) fn status(region: &str) -> Result<(), ServeError> {
    if region.is_empty() {
        return Ok(());
    }
    Err(ServeError::NotFound(format!("no shared memory region is called `{region}`: this server takes none")))
}

/// The error of every `register`.
pub(super) fn register(region: &str) -> ServeError {
    ServeError::invalid(format!(
        "the shared memory region `{region}` is not taken: shared memory is not supported; send the data itself"
    ))
}
