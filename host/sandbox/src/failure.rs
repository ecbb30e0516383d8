//! What stopped a guest, in plain words.

use wasmtime::{PoolConcurrencyLimitError, Trap};

use super::limits::Limits;
use super::log::LogTail;
use gpux_core::{LimitExceeded, StepFailure};

/// The host stops the guest. It travels through wasmtime as an error, so the guest cannot catch
/// it, and the reason arrives whole.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct StopReason(pub(super) StepFailure);

impl StopReason {
    pub(super) fn limit(limit: LimitExceeded) -> Self {
        Self(StepFailure::Limit(limit))
    }
}

/// The failure of a call into the guest that returned `error`.
pub(super) fn failure_from_error(error: &wasmtime::Error, limits: &Limits, log: &LogTail) -> StepFailure {
    if let Some(StopReason(failure)) = error.downcast_ref::<StopReason>() {
        return failure.clone();
    }
    if let Some(trap) = error.downcast_ref::<Trap>() {
        let last = log.newest().map(|line| format!("; the last line it logged: {line}")).unwrap_or_default();
        return StepFailure::Failed(format!("{}{last}", trap_message(*trap)));
    }
    if error.is::<PoolConcurrencyLimitError>() {
        return StepFailure::Failed("the pool has no room for another sandbox".to_owned());
    }
    let reason = error.root_cause().to_string();
    // wasmtime keeps the type of this one to itself; a test holds its text.
    if reason.contains("fuel allocated for hostcalls") {
        return StepFailure::Limit(limits.copy_exceeded());
    }
    StepFailure::Failed(format!("it broke the contract with its host: {reason}"))
}

fn trap_message(trap: Trap) -> String {
    match trap {
        Trap::UnreachableCodeReached => "it gave up (it reached unreachable code: a panic or an abort)".to_owned(),
        Trap::StackOverflow => "its stack overflowed (a recursion without end?)".to_owned(),
        Trap::MemoryOutOfBounds => "it accessed memory out of bounds".to_owned(),
        Trap::TableOutOfBounds | Trap::IndirectCallToNull | Trap::BadSignature => {
            "it called a function through a wrong pointer".to_owned()
        }
        Trap::IntegerDivisionByZero => "it divided by zero".to_owned(),
        Trap::IntegerOverflow => "an integer overflowed".to_owned(),
        Trap::BadConversionToInteger => "it converted a number that no integer can hold".to_owned(),
        other => format!("it trapped: {other}"),
    }
}
