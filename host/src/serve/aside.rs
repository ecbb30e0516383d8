//! What is no inference and takes milliseconds all the same: documents, what is counted. It is made on a thread of
//! its own, one at a time, so that who asks for much of it waits for it alone.

use std::sync::Arc;

use tokio::sync::Semaphore;

use super::context::Context;
use super::error::ServeError;

/// The turns of one kind of work.
#[derive(Debug)]
pub(super) struct Aside(Arc<Semaphore>);

impl Aside {
    pub(super) fn new() -> Self {
        Self(Arc::new(Semaphore::new(1)))
    }

    /// Makes something for the request that the calling task works for.
    pub(super) async fn make<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ServeError> {
        let broken_off = |error: &dyn std::fmt::Display| ServeError::NotReady(format!("it was broken off: {error}"));
        let turn = self.0.clone().acquire_owned().await.map_err(|error| broken_off(&error))?;
        let context = Context::current();
        let job = move || {
            let _turn = turn;
            match context {
                Some(context) => context.within(work),
                None => work(),
            }
        };
        tokio::task::spawn_blocking(job).await.map_err(|error| broken_off(&error))
    }
}
