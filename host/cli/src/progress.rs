//! What a command is at. On a terminal: a line on standard error with the seconds that it has taken, shown only once it
//! takes more than a second, and erased at the end. Elsewhere: a line that stays, once it takes longer.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressState, ProgressStyle};

use super::printer::Printer;
use super::progress_lines::LINES;
use gpux_core::sanitize::sanitize_for_terminal;
use gpux_core::threads;

/// Work that is done sooner shows nothing.
const DELAY: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_millis(250);
/// Where standard error is no terminal, work that is done sooner says nothing.
const PLAIN_DELAY: Duration = Duration::from_secs(5);

/// A line that says what goes on, until it is dropped. Shows nothing with `--json`.
pub(crate) struct ProgressLine {
    bar: ProgressBar,
    /// ends the thread that draws
    end: Option<Sender<()>>,
}

impl ProgressLine {
    /// Begins with `text`, such as `building slug`; for what may take minutes.
    pub(crate) fn start(printer: Printer, text: impl Into<String>) -> Self {
        if printer.json || !LINES.is_hidden() {
            return Self::on_terminal(printer, text);
        }
        Self::spawn(text, move |bar, end| announce(bar, end, PLAIN_DELAY, |text| printer.note(text)))
    }

    /// The same, silent where standard error is no terminal: a log, or a script that reads what a run says.
    pub(crate) fn on_terminal(printer: Printer, text: impl Into<String>) -> Self {
        if printer.json || LINES.is_hidden() {
            return Self { bar: ProgressBar::hidden(), end: None };
        }
        Self::start_in(&LINES, text)
    }

    fn start_in(lines: &MultiProgress, text: impl Into<String>) -> Self {
        let lines = lines.clone();
        Self::spawn(text, move |bar, end| draw(&lines, bar, end))
    }

    /// A line that a thread of its own shows, until the sender is gone.
    fn spawn(text: impl Into<String>, show: impl FnOnce(&ProgressBar, &Receiver<()>) + Send + 'static) -> Self {
        let bar = ProgressBar::hidden().with_style(style()).with_message(sanitize_for_terminal(&text.into()));
        let (end, ended) = mpsc::channel();
        let shown = bar.clone();
        // Without a thread there is no line.
        let started = threads::spawn("gpux-progress", move || show(&shown, &ended));
        Self { bar, end: started.is_ok().then_some(end) }
    }

    /// Goes on with another text; its seconds are counted from here.
    pub(crate) fn set(&self, text: impl Into<String>) {
        self.bar.reset_elapsed();
        self.bar.set_message(sanitize_for_terminal(&text.into()));
    }

    /// Erases the line without waiting for the terminal, which may be paused. The receiver is disconnected once the line
    /// is gone.
    pub(crate) fn erase_in_background(self) -> Receiver<()> {
        let (erasing, erased) = mpsc::channel();
        let erase = move || {
            drop(self);
            drop(erasing);
        };
        // A thread that cannot be started drops what it was to do.
        let _ = threads::spawn("gpux-progress", erase);
        erased
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        self.end = None;
        self.bar.finish_and_clear();
    }
}

fn style() -> ProgressStyle {
    let seconds = |state: &ProgressState, text: &mut dyn std::fmt::Write| {
        let _ = write!(text, "{} s", state.elapsed().as_secs());
    };
    let style = ProgressStyle::with_template("{msg} … {seconds}");
    style.unwrap_or_else(|_| ProgressStyle::default_spinner()).with_key("seconds", seconds)
}

/// Writes each text that has been there for `delay`, once, until the sender is gone.
fn announce(bar: &ProgressBar, end: &Receiver<()>, delay: Duration, write: impl Fn(&str)) {
    let mut written = None;
    while end.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
        let text = bar.message();
        if bar.elapsed() >= delay && written.as_ref() != Some(&text) {
            write(&format!("{text} …"));
            written = Some(text);
        }
    }
}

/// Draws until the sender is gone.
fn draw(lines: &MultiProgress, bar: &ProgressBar, end: &Receiver<()>) {
    if end.recv_timeout(DELAY) != Err(RecvTimeoutError::Timeout) {
        return;
    }
    lines.add(bar.clone());
    loop {
        bar.tick();
        if end.recv_timeout(TICK) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::time::Instant;

    use indicatif::{ProgressDrawTarget, TermLike};

    use super::*;

    /// A terminal of 80 columns; writing takes its lock.
    #[derive(Clone, Debug, Default)]
    struct Terminal(Arc<Mutex<String>>);

    impl TermLike for Terminal {
        fn width(&self) -> u16 {
            80
        }
        fn move_cursor_up(&self, _: usize) -> std::io::Result<()> {
            Ok(())
        }
        fn move_cursor_down(&self, _: usize) -> std::io::Result<()> {
            Ok(())
        }
        fn move_cursor_right(&self, _: usize) -> std::io::Result<()> {
            Ok(())
        }
        fn move_cursor_left(&self, _: usize) -> std::io::Result<()> {
            Ok(())
        }
        fn write_line(&self, text: &str) -> std::io::Result<()> {
            self.write_str(text)
        }
        fn write_str(&self, text: &str) -> std::io::Result<()> {
            self.0.lock().unwrap().push_str(text);
            Ok(())
        }
        fn clear_line(&self) -> std::io::Result<()> {
            self.write_str("<erased>")
        }
        fn flush(&self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl Terminal {
        fn lines(&self) -> MultiProgress {
            MultiProgress::with_draw_target(ProgressDrawTarget::term_like(Box::new(self.clone())))
        }

        fn text(&self) -> String {
            self.0.lock().unwrap().clone()
        }

        fn wait_for(&self, text: &str) {
            let start = Instant::now();
            while !self.text().contains(text) {
                assert!(start.elapsed() < Duration::from_mins(1), "{:?}", self.text());
                std::thread::sleep(Duration::from_millis(10));
            }
        }

        /// Waits for this text with its seconds; how many they are at first.
        fn seconds_of(&self, text: &str) -> u64 {
            self.wait_for(text);
            let all = self.text();
            let (seconds, _) = all.split_once(text).unwrap().1.split_once(" s").unwrap();
            seconds.parse().unwrap()
        }
    }

    #[test]
    fn appears_late_and_is_erased() {
        let (quick, start) = (Terminal::default(), Instant::now());
        drop(ProgressLine::start_in(&quick.lines(), "quick"));
        assert!(quick.text().is_empty() || start.elapsed() >= DELAY, "{:?}", quick.text());

        let terminal = Terminal::default();
        let lines = terminal.lines();
        let line = ProgressLine::start_in(&lines, "compiling\u{1b}[2J");
        assert!(terminal.seconds_of("compiling [2J … ") >= 1);
        let set = Instant::now();
        line.set("testing\u{1b}[2J");
        // Counted from here.
        assert!(terminal.seconds_of("testing [2J … ") <= set.elapsed().as_secs());
        lines.suspend(|| terminal.0.lock().unwrap().push_str("<a note>"));
        terminal.wait_for("<erased><a note>testing");
        drop(line);
        let text = terminal.text();
        assert!(text.ends_with("<erased>"), "{text:?}");
        assert!(!text.contains('\u{1b}'), "{text:?}");
    }

    #[test]
    fn says_what_takes_long_where_there_is_no_terminal() {
        let (written, lines) = mpsc::channel();
        let write = move |text: &str| written.send(text.to_owned()).unwrap();
        let line = ProgressLine::spawn("building", move |bar, end| announce(bar, end, Duration::ZERO, write));
        assert_eq!(lines.recv().unwrap(), "building …");
        line.set("compiling");
        assert_eq!(lines.recv().unwrap(), "compiling …");
        drop(line);
        assert!(lines.recv().is_err(), "each text is written once");
    }

    /// Ctrl-S stops a terminal: whoever writes to it waits.
    #[test]
    fn erases_without_waiting_for_a_paused_terminal() {
        let terminal = Terminal::default();
        let line = ProgressLine::start_in(&terminal.lines(), "loading");
        terminal.wait_for("loading … ");
        let paused = terminal.0.lock().unwrap();
        let erased = line.erase_in_background();
        assert_eq!(erased.try_recv(), Err(mpsc::TryRecvError::Empty));
        drop(paused);
        assert_eq!(erased.recv(), Err(mpsc::RecvError));
        assert!(terminal.text().ends_with("<erased>"), "{:?}", terminal.text());
    }
}
