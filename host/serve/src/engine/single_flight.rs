//! What is no inference and takes milliseconds all the same: documents, what is counted. It is made on a thread of
//! its own, one at a time, so that who asks for much of it waits for it alone.

use std::sync::Arc;

use tokio::sync::Semaphore;

use super::error::ServeError;
use super::request_context::Context;

/// The turns of one kind of work.
#[derive(Debug)]
pub(crate) struct Aside(Arc<Semaphore>);

impl Aside {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Semaphore::new(1)))
    }

    /// Makes something for the request that the calling task works for.
    pub(crate) async fn make<T: Send + 'static>(
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::future::join_all;

    use super::*;

    #[tokio::test]
    async fn one_is_made_at_a_time_whoever_asks() {
        let (aside, inside, here) = (Aside::new(), Arc::new(AtomicUsize::new(0)), std::thread::current().id());
        let make = || {
            let inside = inside.clone();
            aside.make(move || {
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                std::thread::yield_now();
                inside.fetch_sub(1, Ordering::SeqCst);
                std::thread::current().id()
            })
        };
        let made = join_all((0..50).map(|_| make())).await;
        assert!(made.into_iter().all(|thread| thread.unwrap() != here));
    }
}
