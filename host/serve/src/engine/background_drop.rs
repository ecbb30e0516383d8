//! Drops a value on a background thread.

use std::ops::Deref;
use std::sync::Arc;

use gpux_core::threads;
use gpux_inference::PendingDrop;

/// A value that is dropped on a background thread. Closing a model may wait for sessions that are being created, which
/// must not block threads with requests or connections. Any of these may drop the last reference.
pub(crate) struct BackgroundDrop<T: Send + Sync + 'static> {
    value: Arc<T>,
    _last: LastReference<T>,
}

impl<T: Send + Sync + 'static> BackgroundDrop<T> {
    pub(crate) fn new(value: T) -> Self {
        let value = Arc::new(value);
        Self { _last: LastReference(Some(value.clone())), value }
    }
}

impl<T: Send + Sync + 'static> Deref for BackgroundDrop<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

/// The last reference to the value: fields are dropped in order, and this one follows the value.
struct LastReference<T: Send + Sync + 'static>(Option<Arc<T>>);

impl<T: Send + Sync + 'static> Drop for LastReference<T> {
    fn drop(&mut self) {
        let Some(value) = self.0.take() else { return };
        let closing = PendingDrop::begin();
        let drop_value = move || {
            drop(value);
            drop(closing);
        };
        // If no thread can be started, the value is dropped here.
        let _ = threads::spawn("gpux-let-go", drop_value);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::thread::{ThreadId, current};
    use std::time::Duration;

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(20);

    /// Waits for permission to drop, then sends the ID of its thread.
    struct Slow {
        may_go: Mutex<Receiver<()>>,
        went: Sender<ThreadId>,
    }

    impl Drop for Slow {
        fn drop(&mut self) {
            self.may_go.lock().unwrap().recv_timeout(TIMEOUT).unwrap();
            self.went.send(current().id()).unwrap();
        }
    }

    #[test]
    fn drop_does_not_block() {
        let ((go, may_go), (went, gone)) = (channel(), channel());
        let detached = BackgroundDrop::new(Slow { may_go: Mutex::new(may_go), went });
        drop(detached);
        assert!(gone.try_recv().is_err());
        go.send(()).unwrap();
        assert_ne!(gone.recv_timeout(TIMEOUT).unwrap(), current().id());
        PendingDrop::wait();
    }
}
