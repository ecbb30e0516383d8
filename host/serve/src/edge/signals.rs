//! Signals to the process.

use std::time::{Duration, Instant};

/// Requests to end that follow each other so fast are one: a terminal and service managers signal a process and the
/// parent that hands it signals.
const TWICE: Duration = Duration::from_millis(400);

/// A request of the operator, sent by a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// shut down: SIGINT (ctrl-C) or SIGTERM
    End,
    /// reload files: SIGHUP
    #[cfg_attr(not(unix), expect(dead_code, reason = "there is no such signal"))]
    Reload,
}

/// The process's signal streams.
pub(crate) struct Signals {
    /// when a request to end last counted
    last_end: Option<Instant>,
    #[cfg(unix)]
    streams: Option<[tokio::signal::unix::Signal; 3]>,
}

impl Signals {
    #[cfg(unix)]
    pub(crate) fn new() -> Self {
        use tokio::signal::unix::{SignalKind, signal};
        let streams = signal(SignalKind::interrupt())
            .and_then(|interrupt| Ok([interrupt, signal(SignalKind::terminate())?, signal(SignalKind::hangup())?]));
        Self { last_end: None, streams: streams.ok() }
    }

    #[cfg(not(unix))]
    pub(crate) fn new() -> Self {
        Self { last_end: None }
    }

    /// Waits for the next signal.
    pub(crate) async fn next(&mut self) -> Signal {
        loop {
            let signal = self.receive().await;
            if signal != Signal::End {
                return signal;
            }
            let now = Instant::now();
            if self.last_end.is_none_or(|last| now.duration_since(last) >= TWICE) {
                self.last_end = Some(now);
                return signal;
            }
        }
    }

    async fn receive(&mut self) -> Signal {
        #[cfg(unix)]
        if let Some([interrupt, terminate, hangup]) = &mut self.streams {
            return tokio::select! {
                _ = interrupt.recv() => Signal::End,
                _ = terminate.recv() => Signal::End,
                _ = hangup.recv() => Signal::Reload,
            };
        }
        // Without signal handlers, only a kill ends the process.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
        Signal::End
    }
}
