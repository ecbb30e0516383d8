//! Signals to the process.

/// A request of the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// to end: ctrl-C, or a polite kill
    End,
    /// to read its files again: SIGHUP
    Reload,
}

/// Signals to the process, from its beginning on.
pub(crate) struct Signals {
    #[cfg(unix)]
    streams: Option<[tokio::signal::unix::Signal; 3]>,
}

impl Signals {
    #[cfg(unix)]
    pub(crate) fn new() -> Self {
        use tokio::signal::unix::{SignalKind, signal};
        let streams = signal(SignalKind::interrupt())
            .and_then(|interrupt| Ok([interrupt, signal(SignalKind::terminate())?, signal(SignalKind::hangup())?]));
        Self { streams: streams.ok() }
    }

    #[cfg(not(unix))]
    pub(crate) fn new() -> Self {
        Self {}
    }

    /// The next one.
    pub(crate) async fn next(&mut self) -> Signal {
        #[cfg(unix)]
        if let Some([interrupt, terminate, hangup]) = &mut self.streams {
            return tokio::select! {
                _ = interrupt.recv() => Signal::End,
                _ = terminate.recv() => Signal::End,
                _ = hangup.recv() => Signal::Reload,
            };
        }
        // Without signals, it ends when it is killed.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
        Signal::End
    }
}
