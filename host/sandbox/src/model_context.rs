//! The part of a request's context that a guest hands on to its models.

use std::sync::Arc;

use gpux_core::{Context, WaitObserver};

/// Priority and wait callbacks of the request that a guest works for.
#[derive(Clone, Default)]
pub(super) struct ModelContext {
    pub(super) priority: i32,
    pub(super) waits: Option<Arc<dyn WaitObserver>>,
}

impl ModelContext {
    /// The context of one model run.
    pub(super) fn context(&self) -> Context {
        Context { priority: self.priority, waits: self.waits.clone(), ..Context::default() }
    }
}
