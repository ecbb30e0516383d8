//! The one place that writes to the terminal: results to stdout, everything else to stderr.

use std::io::{IsTerminal as _, Write as _};

use clap::ValueEnum;
use comfy_table::{Cell, CellAlignment, ContentArrangement, Table, presets};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::Value as Json;

use super::exit::Exit;
use super::progress_lines::without_lines;
use gpux::GpuxError;
use gpux_core::sanitize::sanitize_for_terminal;

/// Verbosity and output format. All output is written by its methods, even where
/// the flags do not matter: code without a printer prints nothing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Printer {
    /// everything as JSON, errors too
    pub(super) json: bool,
    /// what is written beside results and errors
    pub(super) level: LogLevel,
}

/// The least important messages that are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(super) enum LogLevel {
    Error,
    Warn,
    #[default]
    Info,
    Debug,
}

impl LogLevel {
    /// The level in `GPUX_LOG`, or what stands there instead.
    pub(super) fn from_environment() -> Result<Self, String> {
        match std::env::var("GPUX_LOG") {
            Ok(name) if !name.is_empty() => Self::from_str(&name, true).map_err(|_| name),
            _ => Ok(Self::default()),
        }
    }
}

/// A result that did not get to standard output.
#[derive(Debug, thiserror::Error)]
pub(super) enum OutputError {
    /// the reader has closed the pipe
    #[error("the output was closed")]
    Closed,
    /// it is lost
    #[error("cannot write to standard output: {0}")]
    Failed(std::io::Error),
}

impl From<std::io::Error> for OutputError {
    fn from(error: std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::BrokenPipe { Self::Closed } else { Self::Failed(error) }
    }
}

/// The texts of a command's result, printed one after the other. Once one is lost, the others are not written, and the command
/// has failed.
#[derive(Debug, Default)]
pub(super) struct TextOutput {
    lost: Option<OutputError>,
}

impl TextOutput {
    /// Writes one.
    pub(super) fn write(&mut self, printer: Printer, text: &str) {
        if self.lost.is_none() {
            self.lost = printer.result(text).err();
        }
    }

    /// Says how the command ends.
    pub(super) fn end(self, printer: Printer) -> Exit {
        printer.exit_status(self.lost.map_or(Ok(()), Err))
    }
}

#[allow(clippy::unused_self, reason = "see the type")]
impl Printer {
    /// Whether stdout is a terminal that a person looks at.
    pub(super) fn is_terminal(self) -> bool {
        std::io::stdout().is_terminal()
    }

    /// Writes a result and a line end to stdout; for a terminal, control characters are escaped, as models and labels are
    /// strangers'.
    pub(super) fn result(self, text: &str) -> Result<(), OutputError> {
        let shown = self.is_terminal().then(|| sanitize_for_terminal(text));
        let mut out = std::io::stdout().lock();
        let text = shown.as_deref().unwrap_or(text);
        Ok(without_lines(|| writeln!(out, "{text}").and_then(|()| out.flush()))?)
    }

    /// Writes all that a command gives, and says how the command ends.
    pub(super) fn print_result(self, text: &str) -> Exit {
        self.exit_status(self.result(text))
    }

    /// The exit status of a command whose output failed this way.
    fn exit_status(self, written: Result<(), OutputError>) -> Exit {
        match written {
            // A reader that has gone needs no more.
            Ok(()) | Err(OutputError::Closed) => Exit::Done,
            Err(error) => self.output_error(&error),
        }
    }

    /// A result that cannot be written where it was asked for.
    pub(super) fn output_error(self, error: &dyn std::error::Error) -> Exit {
        self.fail("OutputError", &error.to_string(), Exit::Failed)
    }

    /// Writes a part of a text to stdout.
    pub(super) fn write_text(self, text: &str) -> Result<(), OutputError> {
        if self.is_terminal() {
            self.bytes(sanitize_for_terminal(text).as_bytes())
        } else {
            self.bytes(text.as_bytes())
        }
    }

    /// Writes raw bytes to stdout.
    pub(super) fn bytes(self, bytes: &[u8]) -> Result<(), OutputError> {
        let mut out = std::io::stdout().lock();
        Ok(out.write_all(bytes).and_then(|()| out.flush())?)
    }

    /// A line for people, on stderr; never in the way of a result.
    pub(super) fn note(self, text: &str) {
        if !self.json && self.level >= LogLevel::Info {
            self.stderr(&sanitize_for_terminal(text));
        }
    }

    /// Whether `--verbose` or `GPUX_LOG=debug` asks for more than the essential.
    pub(super) fn is_verbose(self) -> bool {
        self.level >= LogLevel::Debug
    }

    /// A line that only `--verbose` shows.
    pub(super) fn detail(self, text: &str) {
        if self.is_verbose() {
            self.note(text);
        }
    }

    /// Prints a warning.
    pub(super) fn warning(self, text: &str) {
        if self.level >= LogLevel::Warn {
            self.stderr(&self.warning_line(text));
        }
    }

    /// The line that [`warning`](Self::warning) writes, for other outputs.
    pub(super) fn warning_line(self, text: &str) -> String {
        if self.json {
            serde_json::json!({ "warning": text }).to_string()
        } else {
            format!("{YELLOW}warning{RESET}: {}", sanitize_for_terminal(text))
        }
    }

    /// An error of the library, and the exit code it means.
    pub(super) fn error(self, error: &GpuxError) -> Exit {
        if self.json {
            self.stderr(&pretty(&error.to_json()));
        } else {
            self.stderr(&colour_errors(&format!("error: {}", error.render())));
            if let GpuxError::Step(error) = error {
                for line in &error.log {
                    self.stderr(&format!("  log: {}", sanitize_for_terminal(line)));
                }
            }
        }
        error.category().into()
    }

    /// An error of the command line.
    pub(super) fn usage(self, error: &dyn std::error::Error) -> Exit {
        self.fail("UsageError", &error.to_string(), Exit::Usage)
    }

    /// Any other error, with the exit code it means.
    pub(super) fn fail(self, kind: &str, message: &str, exit: Exit) -> Exit {
        self.stderr(&self.failure(kind, message));
        exit
    }

    /// The machine's fault.
    pub(super) fn environment(self, error: &impl ToString) -> Exit {
        self.fail("EnvironmentError", &error.to_string(), Exit::Environment)
    }

    /// The text that [`fail`](Self::fail) prints.
    pub(super) fn failure(self, kind: &str, message: &str) -> String {
        if self.json {
            pretty(&serde_json::json!({ "error": kind, "message": message, "details": {} }))
        } else {
            let message = message.strip_prefix("error: ").unwrap_or(message);
            format!("{RED}error{RESET}: {}", sanitize_for_terminal(message))
        }
    }

    fn stderr(self, text: &str) {
        // JSON has no colours, and leaves some control characters unescaped.
        let shown = (self.json && std::io::stderr().is_terminal()).then(|| sanitize_for_terminal(text));
        // With stderr closed there is nowhere left to complain.
        without_lines(|| {
            let _ = writeln!(anstream::stderr().lock(), "{}", shown.as_deref().unwrap_or(text));
        });
    }

    /// A bar for bytes on their way; hidden unless stderr is a terminal.
    pub(super) fn download(self) -> ProgressBar {
        let bar = self.progress(Some(0), "bytes");
        if let Ok(style) = ProgressStyle::with_template("{msg} {bar:30} {bytes}/{total_bytes} {bytes_per_sec}") {
            bar.set_style(style);
        }
        bar
    }

    /// A bar that counts to `total` (or just counts); hidden unless stderr is a terminal.
    pub(super) fn progress(self, total: Option<u64>, unit: &str) -> ProgressBar {
        if self.json || !std::io::stderr().is_terminal() {
            return ProgressBar::hidden();
        }
        let bar = match total {
            Some(total) => ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr()),
            None => ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr()),
        };
        let template = match total {
            Some(_) => format!("{{bar:30}} {{pos}}/{{len}} {unit}, {{per_sec}}, {{eta}} left"),
            None => format!("{{spinner}} {{pos}} {unit}, {{per_sec}}"),
        };
        if let Ok(style) = ProgressStyle::with_template(&template) {
            bar.set_style(style);
        }
        bar
    }
}

/// A rendered configuration error, with colour in the lines that begin with `error`.
fn colour_errors(rendered: &str) -> String {
    let rendered = sanitize_for_terminal(rendered);
    let lines = rendered.lines().map(|line| match line.strip_prefix("error: ") {
        Some(message) => format!("{RED}error{RESET}: {message}\n"),
        None => format!("{line}\n"),
    });
    lines.collect::<String>().trim_end().to_owned()
}

const RED: &str = "\x1b[1;31m";
const YELLOW: &str = "\x1b[1;33m";
const RESET: &str = "\x1b[0m";

/// JSON for reading: indented, lists of scalars on one line.
pub(super) fn pretty(json: &Json) -> String {
    let mut text = String::new();
    write_pretty(json, 0, &mut text);
    text
}

fn write_pretty(json: &Json, indent: usize, text: &mut String) {
    let is_flat = |item: &Json| !item.is_array() && !item.is_object();
    let newline = |text: &mut String, indent: usize| {
        text.push('\n');
        text.extend(std::iter::repeat_n("  ", indent));
    };
    match json {
        Json::Array(items) if !items.iter().all(is_flat) => {
            text.push('[');
            for (index, item) in items.iter().enumerate() {
                text.push_str(if index == 0 { "" } else { "," });
                newline(text, indent + 1);
                write_pretty(item, indent + 1, text);
            }
            newline(text, indent);
            text.push(']');
        }
        Json::Array(items) => {
            let items: Vec<_> = items.iter().map(ToString::to_string).collect();
            text.push_str(&format!("[{}]", items.join(", ")));
        }
        Json::Object(fields) if fields.is_empty() => text.push_str("{}"),
        Json::Object(fields) => {
            text.push('{');
            for (index, (name, value)) in fields.iter().enumerate() {
                text.push_str(if index == 0 { "" } else { "," });
                newline(text, indent + 1);
                text.push_str(&format!("{}: ", Json::from(name.as_str())));
                write_pretty(value, indent + 1, text);
            }
            newline(text, indent);
            text.push('}');
        }
        scalar => text.push_str(&scalar.to_string()),
    }
}

/// A text of a stranger's in a cell: what stands beside it is as wide for every row.
pub(super) fn cell(text: &str) -> String {
    const WIDEST: usize = 1000;
    match text.char_indices().nth(WIDEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// A table with a heading; columns in `right` are aligned to the right.
pub(super) fn table(heading: &[&str], right: &[usize], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(heading.iter().map(Cell::new));
    for row in rows {
        table.add_row(row.iter().map(|text| cell(text)));
    }
    for index in right {
        if let Some(column) = table.column_mut(*index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let text = table.to_string();
    let lines: Vec<_> = text.lines().map(str::trim_end).collect();
    lines.join("\n")
}

/// A number of bytes for people: `512 B`, `3.2 kB`, `1.4 MB` (powers of 1000).
pub(super) fn size(bytes: u64) -> String {
    let units = [(1_000_000_000, "GB"), (1_000_000, "MB"), (1_000, "kB")];
    units
        .into_iter()
        .find(|(unit, _)| bytes >= *unit)
        .map_or_else(|| format!("{bytes} B"), |(unit, name)| format!("{:.1} {name}", bytes as f64 / unit as f64))
}

/// A count with its noun: `1 step`, `7 steps`.
pub(super) fn pluralize(count: usize, one: &str) -> String {
    format!("{count} {one}{}", if count == 1 { "" } else { "s" })
}

/// A duration for people: `3.2 µs`, `14.1 ms`, `2.50 s`.
pub(super) fn duration(time: std::time::Duration) -> String {
    let nanos = time.as_nanos() as f64;
    match nanos {
        n if n < 1e6 => format!("{:.1} µs", n / 1e3),
        n if n < 1e9 => format!("{:.2} ms", n / 1e6),
        n => format!("{:.2} s", n / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pretty_prints_number_lists_on_one_line() {
        let json = serde_json::json!({ "a": [1, 2], "b": [[1], [2]], "c": {}, "d": [] });
        let expected = "{\n  \"a\": [1, 2],\n  \"b\": [\n    [1],\n    [2]\n  ],\n  \"c\": {},\n  \"d\": []\n}";
        assert_eq!(pretty(&json), expected);
        assert_eq!(serde_json::from_str::<Json>(&pretty(&json)).unwrap(), json);
    }

    #[test]
    fn stops_writing_after_a_lost_text() {
        let printer = crate::printer(true, false);
        let ended = |lost| {
            let mut texts = TextOutput { lost };
            texts.write(printer, "");
            texts.end(printer)
        };
        assert_eq!(ended(None), Exit::Done);
        assert_eq!(ended(Some(OutputError::Closed)), Exit::Done);
        assert_eq!(ended(Some(std::io::Error::from(std::io::ErrorKind::StorageFull).into())), Exit::Failed);
    }

    #[test]
    fn heads_each_error_once() {
        let printer = crate::printer(false, false);
        assert_eq!(printer.failure("x", "error: no"), printer.failure("x", "no"));
        let text = "name: t\nversion: 1\npipeline:\n  - softmx\n";
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gpux.yml");
        std::fs::write(&path, text).unwrap();
        let error = gpux::Pipeline::open(&path, &gpux::LoadOptions::default()).err().unwrap();
        let shown = |error: &GpuxError| colour_errors(&format!("error: {}", error.render()));
        let reported = GpuxError::Reported(Box::new(error.to_reported()));
        assert_eq!(shown(&reported), shown(&error));
        assert_eq!(shown(&error).matches("error").count(), 1, "{}", shown(&error));
    }

    #[test]
    fn sanitizes_untrusted_text() {
        let printer = crate::printer(false, false);
        for line in [printer.failure("x", "a\x1b[2J\u{202e}b"), printer.warning_line("a\x1b[2J\u{202e}b")] {
            let (_, message) = line.split_once(": ").unwrap();
            assert_eq!(message, "a [2J b");
        }
    }

    #[test]
    fn long_cells_do_not_widen_other_rows() {
        let long = "ü".repeat(10_000);
        let text = table(&["name", "type"], &[], [vec![long.clone(), "a".into()], vec!["b".into(), "c".into()]]);
        assert!(text.contains('…') && text.lines().all(|line| line.chars().count() < 1020), "{text}");
        assert_eq!(cell("short"), "short");
    }

    #[test]
    fn formats_quantities_with_units() {
        assert_eq!([size(12), size(1_500), size(2_000_000)], ["12 B", "1.5 kB", "2.0 MB"]);
        let time = |nanos| duration(std::time::Duration::from_nanos(nanos));
        assert_eq!([time(1_500), time(2_500_000), time(3_000_000_000)], ["1.5 µs", "2.50 ms", "3.00 s"]);
    }
}
