//! The server's log: lines on stderr, as text or as JSON. Whoever reads them slowly loses lines, but
//! does not hold up requests.

use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use clap::ValueEnum;
use tracing::Level;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer as _, fmt, registry};

/// How lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum LogFormat {
    /// for people
    #[default]
    Text,
    /// an object a line
    Json,
}

/// Lines that may wait to be written.
const WAITING: usize = 8192;

enum Message {
    Line(Vec<u8>),
    /// everything before has been written once this is dropped
    Flush(SyncSender<()>),
}

/// The way to stderr.
#[derive(Clone)]
pub(super) struct Log {
    sender: SyncSender<Message>,
    lost: Arc<AtomicU64>,
}

impl Log {
    /// Starts to write what is traced. There is one log in a process.
    pub(super) fn start(format: LogFormat, verbose: bool) -> Self {
        static LOG: LazyLock<Log> = LazyLock::new(|| {
            let (sender, lines) = sync_channel(WAITING);
            let lost = Arc::new(AtomicU64::new(0));
            let counted = lost.clone();
            // Without its thread, nothing is written and nothing waits.
            let _ = std::thread::Builder::new().name("gpux-log".to_owned()).spawn(move || write(&lines, &counted));
            Log { sender, lost }
        });
        let log = LOG.clone();
        let level = if verbose { Level::DEBUG } else { Level::INFO };
        let targets = Targets::new().with_target("gpux", level).with_target("opentelemetry", Level::WARN);
        let layer = fmt::layer().with_writer(log.clone()).with_target(false).with_ansi(false);
        let layer = match format {
            LogFormat::Text => layer.boxed(),
            LogFormat::Json => layer.json().flatten_event(true).boxed(),
        };
        // A second server of the process writes to the first one's log.
        let _ = registry().with(layer.with_filter(targets)).try_init();
        log
    }

    /// Waits until everything is written, for a moment at most.
    pub(super) fn flush(&self) {
        let (done, written) = sync_channel(1);
        if self.sender.try_send(Message::Flush(done)).is_ok() {
            let _ = written.recv_timeout(Duration::from_secs(1));
        }
    }
}

fn write(lines: &Receiver<Message>, lost: &AtomicU64) {
    let mut stderr = anstream::stderr();
    while let Ok(message) = lines.recv() {
        // With stderr closed there is nowhere left to complain.
        let _ = match message {
            Message::Line(line) => stderr.write_all(&line),
            Message::Flush(done) => {
                let _ = done.try_send(());
                Ok(())
            }
        };
        let lost = lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            tracing::warn!(target: "gpux", lost, "lines of this log were lost: it is read too slowly");
        }
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        Line { log: self, bytes: Vec::with_capacity(256) }
    }
}

/// A line that is being made.
pub(super) struct Line<'a> {
    log: &'a Log,
    bytes: Vec<u8>,
}

impl std::io::Write for Line<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Drop for Line<'_> {
    fn drop(&mut self) {
        let line = std::mem::take(&mut self.bytes);
        if !line.is_empty() && self.log.sender.try_send(Message::Line(line)).is_err() {
            self.log.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}
