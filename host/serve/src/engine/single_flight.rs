//! Runs work other than inference that takes milliseconds (documents, metrics) on a blocking thread, one job at a time.

use std::sync::Arc;

use tokio::sync::Semaphore;

use super::error::ServeError;
use super::request_context::RequestContext;

/// Runs one job at a time on a blocking thread.
#[derive(Debug)]
pub(crate) struct SingleFlight(Arc<Semaphore>);

impl SingleFlight {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Semaphore::new(1)))
    }

    /// Runs a job for the request that the calling task executes.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ServeError> {
        let broken_off = |error: &dyn std::fmt::Display| ServeError::NotReady(format!("it was broken off: {error}"));
        let permit = self.0.clone().acquire_owned().await.map_err(|error| broken_off(&error))?;
        let context = RequestContext::current();
        let job = move || {
            let _turn = permit;
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
    async fn runs_one_job_at_a_time() {
        let (aside, inside, here) = (SingleFlight::new(), Arc::new(AtomicUsize::new(0)), std::thread::current().id());
        let run = || {
            let inside = inside.clone();
            aside.run(move || {
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                std::thread::yield_now();
                inside.fetch_sub(1, Ordering::SeqCst);
                std::thread::current().id()
            })
        };
        let made = join_all((0..50).map(|_| run())).await;
        assert!(made.into_iter().all(|thread| thread.unwrap() != here));
    }
}
