//! The messages of a build of `author`.

use super::printer::Printer;
use super::progress::ProgressLine;
use gpux_author::Progress;

/// The lines of a build, shown as they come with `--verbose`, else kept for an error; and what it is at.
pub(crate) struct BuildLog {
    printer: Printer,
    line: ProgressLine,
}

impl BuildLog {
    pub(crate) fn new(printer: Printer) -> Self {
        Self { printer, line: ProgressLine::start(printer, "building") }
    }
}

impl Progress for BuildLog {
    fn command(&mut self, command: &str) {
        self.printer.detail(&format!("$ {command}"));
    }

    fn line(&mut self, line: &str) {
        self.printer.detail(line);
    }

    fn shows_lines(&self) -> bool {
        self.printer.is_verbose() && !self.printer.json
    }

    fn note(&mut self, text: &str) {
        self.printer.note(text);
    }

    fn phase(&mut self, text: &str) {
        self.line.set(text);
    }
}
