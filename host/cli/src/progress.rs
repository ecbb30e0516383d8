//! What a command is at, on a terminal: a line on standard error with the seconds that it has taken, shown only once it
//! takes more than a second, and erased at the end.

use std::io::{IsTerminal as _, Write};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::printer::Printer;
use gpux_core::sanitize::sanitize_for_terminal;
use gpux_core::threads;

/// Work that is done sooner shows nothing.
const DELAY: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_millis(250);
/// Columns of the text: the line must not wrap, or it could not be erased.
const WIDTH: usize = 64;
const ERASE: &str = "\r\x1b[2K";

/// Whether a line is shown. Whatever else is written to the terminal holds the lock, and erases it before.
static SHOWN: Mutex<bool> = Mutex::new(false);

/// A line that says what goes on, until it is dropped. Shows nothing with `--json`, or if standard error is no terminal.
pub(crate) struct ProgressLine {
    thread: Option<(Sender<String>, Receiver<()>)>,
}

impl ProgressLine {
    /// Begins with `text`, such as `compiling slug.wasm, once`.
    pub(crate) fn start(printer: Printer, text: impl Into<String>) -> Self {
        if printer.json || !std::io::stderr().is_terminal() {
            return Self { thread: None };
        }
        Self::start_on(std::io::stderr(), text.into())
    }

    fn start_on(terminal: impl Write + Send + 'static, text: String) -> Self {
        let (sender, texts) = mpsc::channel();
        let (ended, end) = mpsc::channel();
        let draw = move || {
            draw(terminal, text, &texts);
            let _ = ended.send(());
        };
        // Without a thread there is no line.
        let started = threads::spawn("gpux-progress", draw).is_ok();
        Self { thread: started.then_some((sender, end)) }
    }

    /// Goes on with another text; its seconds are counted from here.
    pub(crate) fn set(&self, text: impl Into<String>) {
        if let Some((sender, _)) = &self.thread {
            let _ = sender.send(text.into());
        }
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        if let Some((sender, end)) = self.thread.take() {
            drop(sender);
            // The line is erased before anything else is written.
            let _ = end.recv();
        }
    }
}

/// Writes to the terminal with the line out of the way; it comes back by itself.
pub(crate) fn without_line<T>(write: impl FnOnce() -> T) -> T {
    let mut shown = shown();
    if *shown {
        let _ = std::io::stderr().write_all(ERASE.as_bytes());
        *shown = false;
    }
    write()
}

fn shown() -> MutexGuard<'static, bool> {
    SHOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Draws until the sender of texts is gone.
fn draw(mut terminal: impl Write, mut text: String, texts: &Receiver<String>) {
    let mut start = Instant::now();
    let mut wait = DELAY;
    loop {
        match texts.recv_timeout(wait) {
            Ok(next) => {
                text = next;
                start = Instant::now();
                if *shown() {
                    write_line(&mut terminal, &text, start);
                }
            }
            Err(RecvTimeoutError::Timeout) => {
                write_line(&mut terminal, &text, start);
                wait = TICK;
            }
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    let mut shown = shown();
    if std::mem::take(&mut *shown) {
        let _ = terminal.write_all(ERASE.as_bytes()).and_then(|()| terminal.flush());
    }
}

fn write_line(terminal: &mut impl Write, text: &str, start: Instant) {
    let mut shown = shown();
    let text: String = sanitize_for_terminal(text).chars().take(WIDTH).collect();
    *shown = true;
    let _ = write!(terminal, "{ERASE}{text} … {} s", start.elapsed().as_secs()).and_then(|()| terminal.flush());
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[derive(Clone, Default)]
    struct Terminal(Arc<Mutex<Vec<u8>>>);

    impl Write for Terminal {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl Terminal {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }

        fn wait_for(&self, text: &str) {
            let start = Instant::now();
            while !self.text().contains(text) {
                assert!(start.elapsed() < Duration::from_mins(1), "{:?}", self.text());
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }

    #[test]
    fn appears_late_and_is_erased() {
        let quick = Terminal::default();
        drop(ProgressLine::start_on(quick.clone(), "quick".to_owned()));
        assert_eq!(quick.text(), "");

        let terminal = Terminal::default();
        let line = ProgressLine::start_on(terminal.clone(), format!("compiling\u{1b}[2J {}", "x".repeat(200)));
        terminal.wait_for(" … 1 s");
        line.set("testing");
        terminal.wait_for("testing … 0 s");
        drop(line);
        let text = terminal.text();
        assert!(text.ends_with(ERASE), "{text:?}");
        assert!(!text.contains("\u{1b}[2J"), "{text:?}");
        assert!(text.split(ERASE).all(|line| line.chars().count() < 80), "{text:?}");
    }
}
