//! Errors as gRPC statuses.

use tonic::{Code, Status};

use crate::ServeError;
use crate::protocol::http::status::grpc_code;
use crate::protocol::oip::error::retry_after;

/// The status with which a call ends.
pub(super) fn status(error: &ServeError) -> Status {
    let code = Code::from(i32::from(grpc_code(error.status())));
    let mut status = Status::new(code, error.public_message());
    if let Some(after) = retry_after(error).filter(|_| code == Code::Unavailable) {
        // gRPC's retry policies use this.
        let milliseconds = u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
        status.metadata_mut().insert("grpc-retry-pushback-ms", milliseconds.into());
    }
    status
}
