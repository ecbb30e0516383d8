//! The server's log: lines on stderr, as text or as JSON. A slow reader loses lines, but
//! does not delay requests.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clap::ValueEnum;
use tracing::Level;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer as _, fmt, registry};

use super::printer::LogLevel;
use super::progress_lines::without_lines;
use gpux_core::threads;

/// The format of log lines.
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
    /// Starts to write trace events. A process has one log. Fails if its thread cannot be started.
    pub(super) fn start(format: LogFormat, level: LogLevel) -> std::io::Result<Self> {
        static LOG: Mutex<Option<Log>> = Mutex::new(None);
        let mut started = LOG.lock().unwrap_or_else(PoisonError::into_inner);
        let log = match &*started {
            Some(log) => log.clone(),
            None => started.insert(Self::spawn()?).clone(),
        };
        let level = match level {
            LogLevel::Error => Level::ERROR,
            LogLevel::Warn => Level::WARN,
            LogLevel::Info => Level::INFO,
            LogLevel::Debug => Level::DEBUG,
        };
        // Only `--access-log` makes events of the access log.
        let targets = Targets::new().with_target("gpux", level).with_target("gpux::access", level.max(Level::INFO));
        let layer = fmt::layer().with_writer(log.clone()).with_target(false).with_ansi(false);
        let layer = match format {
            LogFormat::Text => layer.boxed(),
            LogFormat::Json => layer.json().flatten_event(true).boxed(),
        };
        // A second server of the process writes to the first one's log.
        let _ = registry().with(layer.with_filter(targets)).try_init();
        Ok(log)
    }

    fn spawn() -> std::io::Result<Self> {
        let (sender, lines) = sync_channel(WAITING);
        let lost = Arc::new(AtomicU64::new(0));
        let counted = lost.clone();
        threads::spawn("gpux-log", move || write(&lines, &counted))?;
        Ok(Self { sender, lost })
    }

    /// Writes a line that is ready.
    pub(super) fn line(&self, text: &str) {
        self.send(format!("{text}\n").into_bytes());
    }

    fn send(&self, line: Vec<u8>) {
        if self.sender.try_send(Message::Line(line)).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
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
    let mut sink = Sink { to: anstream::stderr(), torn: false };
    while let Ok(message) = lines.recv() {
        let line = match message {
            Message::Line(line) => line,
            Message::Flush(done) => {
                let _ = done.try_send(());
                continue;
            }
        };
        if without_lines(|| sink.write(&line)).is_err() {
            // With stderr closed, or its disk full, there is nowhere left to complain; not yet.
            lost.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        let lost = lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            tracing::warn!(target: "gpux", lost, "lines of this log were lost: it is read too slowly, or its disk was full");
        }
    }
}

/// A writer of whole lines, which may fail at times.
struct Sink<W> {
    to: W,
    /// whether the last line is incomplete
    torn: bool,
}

impl<W: std::io::Write> Sink<W> {
    fn write(&mut self, line: &[u8]) -> std::io::Result<()> {
        if self.torn {
            self.to.write_all(b"\n")?;
            self.torn = false;
        }
        let mut rest = line;
        while !rest.is_empty() {
            let written = match self.to.write(rest) {
                Ok(0) => Err(std::io::ErrorKind::WriteZero.into()),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                other => other,
            };
            let written = written.inspect_err(|_| self.torn = rest.len() < line.len())?;
            rest = rest.get(written..).unwrap_or_default();
        }
        Ok(())
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
        if !line.is_empty() {
            self.log.send(line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk with this many free bytes.
    struct Disk(Vec<u8>, usize);

    impl std::io::Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let room = self.1 - self.0.len();
            if room == 0 {
                return Err(std::io::ErrorKind::StorageFull.into());
            }
            let bytes = &bytes[..room.min(bytes.len())];
            self.0.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn separates_a_truncated_line_from_the_next() {
        let mut sink = Sink { to: Disk(Vec::new(), 12), torn: false };
        assert!(sink.write(b"first\n").is_ok());
        assert!(sink.write(b"second\n").is_err(), "there is room for six bytes of seven");
        assert!(sink.write(b"third\n").is_err());
        sink.to.1 = 100;
        assert!(sink.write(b"fourth\n").is_ok());
        assert_eq!(sink.to.0, b"first\nsecond\nfourth\n");
    }
}
