//! Results of `gpux run`, in the format that was asked for.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use serde_json::{Map, Value as Json, json};

use super::item_result::{ItemResult, WriteError};
use super::output_folder;
use super::trace::to_json as trace_json;
use crate::input::{UsageError, extension};
use crate::printer::{self, Printer};
use gpux::Pipeline;
use gpux_core::{Kind, PlanOutput, Value, to_json, write_json, write_json_text};

/// The format of results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// one JSON document
    Json,
    /// one JSON object a line
    Jsonl,
    /// a table with a heading line
    Csv,
    /// for people
    Text,
    /// a folder with a file for each output: .npy for tensors of numbers, else .json, .txt or .bin;
    /// for a batch, a folder in it for each item, by number
    Npy,
}

/// The destination of results.
enum Sink {
    Stdout,
    /// an output a file
    Folder(PathBuf),
    /// the file is made, or emptied, when the first result is there
    File {
        file: Option<BufWriter<File>>,
        path: PathBuf,
    },
}

/// Writes results as they come.
pub(super) struct ResultWriter {
    printer: Printer,
    sink: Sink,
    /// with its providers, for traces
    engine: String,
    format: Format,
    batch: bool,
    /// outputs whose scores are shown in percent
    probabilities: Vec<String>,
    /// whether a single output of bytes is written raw: no other format was requested
    raw: bool,
    columns: Option<Vec<String>>,
    /// the names of the outputs
    outputs: Vec<String>,
    waiting: Vec<(String, Vec<(String, String)>)>,
    written: usize,
}

impl ResultWriter {
    /// Opens the output. Without a format: by the file's ending; else text on a terminal, JSON
    /// for one result and JSON lines for several elsewhere.
    pub(super) fn new(
        printer: Printer,
        output: Option<&Path>,
        format: Option<Format>,
        batch: bool,
        pipeline: &Pipeline,
        outputs: &[PlanOutput],
    ) -> Result<Self, WriteError> {
        let by_ending = || match output?.extension()?.to_str()? {
            "json" => Some(Format::Json),
            "jsonl" | "ndjson" => Some(Format::Jsonl),
            "csv" => Some(Format::Csv),
            "txt" => Some(Format::Text),
            _ => None,
        };
        let usual = match (output, batch) {
            (None, _) if printer.is_terminal() && !printer.json => Format::Text,
            (_, true) => Format::Jsonl,
            (_, false) => Format::Json,
        };

        let sink = match output {
            None => Sink::Stdout,
            Some(path) if format == Some(Format::Npy) => Sink::Folder(path.to_owned()),
            Some(path) => {
                can_be_written(path).map_err(|source| WriteError::File { path: path.to_owned(), source })?;
                Sink::File { file: None, path: path.to_owned() }
            }
        };

        let raw = format.is_none() && by_ending().is_none();
        let format = format.or_else(by_ending).unwrap_or(usual);

        let outputs: Vec<_> = outputs.iter().map(|output| output.name.clone()).collect();
        let probabilities = outputs.iter().filter(|name| pipeline.is_probability(name)).cloned().collect();
        let engine = pipeline.engine().to_owned();
        Ok(Self {
            printer,
            sink,
            engine,
            format,
            batch,
            probabilities,
            raw,
            columns: None,
            outputs,
            waiting: Vec::new(),
            written: 0,
        })
    }

    /// Writes one result; an error of a batch's item stands in its place.
    pub(super) fn write(&mut self, item: &ItemResult) -> Result<(), WriteError> {
        if let Sink::Folder(folder) = &self.sink {
            let number = if self.batch { folder.join(format!("{:06}", self.written)) } else { folder.clone() };
            self.written += 1;
            return output_folder::write(&number, item);
        }
        if let (Ok(outputs), false, Sink::File { .. }) = (&item.result, self.batch, &self.sink)
            && let ([(_, Value::Bytes(bytes))], false) = (outputs.as_slice(), !self.raw)
        {
            return self.raw(bytes);
        }
        let text = match self.format {
            Format::Json if self.batch => {
                let open = if self.written == 0 { "[\n" } else { ",\n" };
                format!("{open}{}", self.object(item, true))
            }
            Format::Json => self.object(item, true),
            Format::Jsonl => self.object(item, false),
            Format::Csv => self.csv(item),
            Format::Text | Format::Npy => self.text(item),
        };
        self.written += 1;
        if self.format == Format::Csv && text.is_empty() {
            return Ok(());
        }
        match (&self.sink, self.format == Format::Json && self.batch) {
            (_, false) => self.line(&text),
            (Sink::Stdout, true) => Ok(self.printer.write_text(&text)?),
            (_, true) => self.raw(text.as_bytes()),
        }
    }

    /// Whether there was no result.
    pub(super) const fn is_empty(&self) -> bool {
        self.written == 0
    }

    /// Ends the document. Without a result, it is an empty one of its format, in the place of an earlier file.
    pub(super) fn finish(&mut self) -> Result<(), WriteError> {
        if let Sink::Folder(folder) = &self.sink {
            return if self.batch { self.finish_folder(folder) } else { Ok(()) };
        }
        if self.written == 0 && self.batch && self.format != Format::Json {
            let empty = if self.format == Format::Csv {
                format!("{}\n", self.csv_heading(self.outputs.clone()).join("\n"))
            } else {
                String::new()
            };
            return self.raw(empty.as_bytes());
        }
        if self.format == Format::Json && self.batch {
            self.line(if self.written == 0 { "[]" } else { "\n]" })?;
        }
        if !self.waiting.is_empty() {
            let lines = self.csv_heading(Vec::new());
            self.line(&lines.join("\n"))?;
        }
        Ok(())
    }

    /// Says which items of an earlier, longer batch are still there.
    fn finish_folder(&self, folder: &Path) -> Result<(), WriteError> {
        std::fs::create_dir_all(folder).map_err(|source| WriteError::File { path: folder.to_owned(), source })?;
        let next = folder.join(format!("{:06}", self.written));
        if next.exists() {
            self.printer.note(&format!("`{}` and those after it are of an earlier run", next.display()));
        }
        Ok(())
    }

    fn line(&mut self, text: &str) -> Result<(), WriteError> {
        match &mut self.sink {
            Sink::Stdout => Ok(self.printer.result(text)?),
            Sink::Folder(_) => Ok(()),
            Sink::File { .. } => self.raw(format!("{text}\n").as_bytes()),
        }
    }

    /// Every result reaches the file before the next one is begun, so that a stop loses none.
    fn raw(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        match &mut self.sink {
            Sink::Stdout => Ok(self.printer.bytes(bytes)?),
            Sink::Folder(_) => Ok(()),
            Sink::File { file, path } => {
                let fail = |source| WriteError::File { path: path.clone(), source };
                let file = match file {
                    Some(file) => file,
                    None => file.insert(BufWriter::new(File::create(&path).map_err(fail)?)),
                };
                let written = file.write_all(bytes).and_then(|()| file.flush());
                if written.is_err() && file.get_ref().metadata().is_ok_and(|file| file.is_file() && file.len() == 0) {
                    // An empty file would pass for a result.
                    let _ = std::fs::remove_file(&path);
                }
                written.map_err(fail)
            }
        }
    }

    /// One result is the outputs themselves; in a batch it carries its source. It is indented where that is asked
    /// for and its tensors are small: a tree of a large one takes some forty times its memory.
    fn object(&self, item: &ItemResult, indented: bool) -> String {
        let outputs = match &item.result {
            Ok(outputs) if outputs.iter().any(|(_, value)| is_large(value)) => return self.line_of(outputs, item),
            Ok(outputs) => {
                let outputs: Map<_, _> = outputs.iter().map(|(name, value)| (name.clone(), to_json(value))).collect();
                Json::Object(outputs)
            }
            Err(error) => error.to_json(),
        };
        let bare = item.result.is_err() || (!self.batch && item.trace.is_none());
        let mut object = if bare { outputs } else { json!({ "outputs": outputs }) };
        if let Some(fields) = object.as_object_mut() {
            if self.batch {
                fields.shift_insert(0, "source".to_owned(), json!(item.source));
            }
            if let Some(trace) = &item.trace {
                fields.insert("trace".to_owned(), trace_json(trace, &self.engine));
            }
        }
        if indented { printer::pretty(&object) } else { object.to_string() }
    }

    /// The value as JSON on one line, written while it is read.
    fn line_of(&self, outputs: &[(String, Value)], item: &ItemResult) -> String {
        let bare = !self.batch && item.trace.is_none();
        let mut text = Vec::from(&b"{"[..]);
        if self.batch {
            text.extend_from_slice(b"\"source\":");
            write_json_text(&item.source, &mut text);
            text.push(b',');
        }
        text.extend_from_slice(if bare { b"" } else { b"\"outputs\":{" });
        for (index, (name, value)) in outputs.iter().enumerate() {
            text.extend_from_slice(if index == 0 { b"" } else { b"," });
            write_json_text(name, &mut text);
            text.push(b':');
            write_json(value, &mut text);
        }
        if let Some(trace) = &item.trace {
            text.extend_from_slice(b"},\"trace\":");
            text.extend_from_slice(trace_json(trace, &self.engine).to_string().as_bytes());
        } else if !bare {
            text.push(b'}');
        }
        text.push(b'}');
        utf8(text)
    }

    /// A heading with the first result's columns, then a row a result. Structured cells are JSON;
    /// the best entry of a top-k list is spread over columns of its own. Items that fail before
    /// there is a result wait for the heading.
    fn csv(&mut self, item: &ItemResult) -> String {
        let cells = match &item.result {
            Ok(outputs) => outputs.iter().flat_map(|(name, value)| csv_cells(name, value)).collect(),
            Err(error) => vec![("error".to_owned(), error.to_string())],
        };
        if self.columns.is_none() && item.result.is_err() {
            self.waiting.push((item.source.clone(), cells));
            return String::new();
        }
        let mut lines = self.csv_heading(cells.iter().map(|(name, _)| name.clone()).collect());
        lines.push(self.csv_row(&item.source, &cells));
        lines.join("\n")
    }

    /// The heading and the items that waited for it; nothing when it is written already.
    fn csv_heading(&mut self, columns: Vec<String>) -> Vec<String> {
        if self.columns.is_some() {
            return Vec::new();
        }
        let all: Vec<_> = std::iter::once("source".to_owned()).chain(columns).chain(["error".to_owned()]).collect();
        let mut lines = vec![csv_line(&all)];
        self.columns = Some(all);
        let waiting = std::mem::take(&mut self.waiting);
        lines.extend(waiting.iter().map(|(source, cells)| self.csv_row(source, cells)));
        lines
    }

    fn csv_row(&self, source: &str, cells: &[(String, String)]) -> String {
        let cell = |column: &String| match column.as_str() {
            "source" => source.to_owned(),
            name => cells.iter().find(|(known, _)| known == name).map(|(_, cell)| cell.clone()).unwrap_or_default(),
        };
        csv_line(&self.columns.iter().flatten().map(cell).collect::<Vec<_>>())
    }

    fn text(&self, item: &ItemResult) -> String {
        let body = match &item.result {
            Ok(outputs) => {
                let alone = outputs.len() == 1;
                let shown = |(name, value): &(String, Value)| {
                    let text = describe(value, self.batch, self.probabilities.contains(name));
                    let is_long = !alone && !self.batch && text.lines().count() > LONG;
                    let text = if is_long { shorten(name, value).unwrap_or(text) } else { text };
                    if alone { text } else { format!("{name}: {text}") }
                };
                outputs.iter().map(shown).collect::<Vec<_>>().join(if self.batch { "; " } else { "\n" })
            }
            Err(error) => format!("error: {error}"),
        };
        if self.batch { format!("{}: {}", item.source, body.replace('\n', ", ")) } else { body }
    }
}

/// JSON of more lines than this would hide the outputs around it.
const LONG: usize = 30;

/// What JSON is, in place of its text.
fn shorten(name: &str, value: &Value) -> Option<String> {
    let Value::Json(json) = value else { return None };
    let what = match &**json {
        Json::Array(items) => format!("a list of {}", items.len()),
        Json::Object(fields) => format!("an object of {} fields", fields.len()),
        _ => return None,
    };
    Some(format!("{what} (`--only {name}` shows it)"))
}

/// Endings of files that hold one thing, as bytes.
const BYTES: [&str; 13] =
    ["png", "jpg", "jpeg", "webp", "gif", "bmp", "tif", "tiff", "wav", "mp3", "flac", "npy", "npz"];

/// Refuses to write JSON into a file that says it is a picture: only one output of bytes may become one.
pub(super) fn check_extension(path: &Path, outputs: &[PlanOutput]) -> Result<(), UsageError> {
    let ending = extension(path);
    let one = matches!(outputs, [only] if matches!(only.kind, Kind::Bytes | Kind::Any));
    if one || !BYTES.contains(&ending.as_str()) {
        return Ok(());
    }
    let outputs: Vec<_> = outputs.iter().map(|output| format!("`{}`: {}", output.name, output.kind)).collect();
    Err(UsageError::Ending {
        path: path.display().to_string(),
        ending: format!(".{ending}"),
        outputs: outputs.join(", "),
    })
}

/// Finds out before anything runs, without touching what is there.
fn can_be_written(path: &Path) -> std::io::Result<()> {
    if path.exists() {
        return File::options().append(true).open(path).map(drop);
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if folder.metadata()?.permissions().readonly() {
        return Err(std::io::ErrorKind::PermissionDenied.into());
    }
    Ok(())
}

/// Whether a value is a tensor too large to be read number by number.
fn is_large(value: &Value) -> bool {
    matches!(value, Value::Tensor(tensor) if tensor.len() > 4096)
}

/// JSON that was written as bytes.
fn utf8(json: Vec<u8>) -> String {
    String::from_utf8(json).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

fn csv_cells(name: &str, value: &Value) -> Vec<(String, String)> {
    if is_large(value) {
        let mut text = Vec::new();
        write_json(value, &mut text);
        return vec![(name.to_owned(), utf8(text))];
    }
    match to_json(value) {
        Json::Array(items) if matches!(items.first(), Some(Json::Object(best)) if best.contains_key("score")) => {
            let best = items.first().and_then(Json::as_object).cloned().unwrap_or_default();
            best.into_iter().map(|(key, cell)| (format!("{name}.{key}"), scalar_text(&cell))).collect()
        }
        json => vec![(name.to_owned(), scalar_text(&json))],
    }
}

fn scalar_text(json: &Json) -> String {
    if let Json::String(text) = json { text.clone() } else { json.to_string() }
}

fn csv_line(cells: &[String]) -> String {
    let mut writer = csv::WriterBuilder::new().terminator(csv::Terminator::Any(b'\n')).from_writer(Vec::new());
    // Writing to memory cannot fail.
    let _ = writer.write_record(cells);
    let bytes = writer.into_inner().unwrap_or_default();
    String::from_utf8_lossy(&bytes).trim_end_matches('\n').to_owned()
}

/// A value for people: labelled scores as lines, text unchanged, tensors shortened.
fn describe(value: &Value, one_line: bool, in_percent: bool) -> String {
    match value {
        Value::Text(text) => text.to_string(),
        Value::Bytes(bytes) => format!("{} bytes (use --output FILE to keep them)", bytes.len()),
        Value::Json(json) => {
            let plain = || if one_line { json.to_string() } else { printer::pretty(json) };
            ranking(json, in_percent).unwrap_or_else(plain)
        }
        Value::Tensor(tensor) if tensor.len() <= 64 => format!("{} ({})", to_json(value), value.kind()),
        Value::Tensor(_) => value.kind().to_string(),
    }
}

/// The list that `top-k` gives: one line an entry, the best first. Only probabilities are shown in percent.
fn ranking(json: &Json, in_percent: bool) -> Option<String> {
    let entries = json.as_array().filter(|entries| !entries.is_empty())?;
    let line = |entry: &Json| {
        let score = entry.get("score")?.as_f64()?;
        let label = match entry.get("label") {
            Some(label) => scalar_text(label),
            None => entry.get("index")?.to_string(),
        };
        let shown = if in_percent { format!("{:6.2} %", score * 100.0) } else { score.to_string() };
        Some((label, shown))
    };
    let lines: Vec<_> = entries.iter().map(line).collect::<Option<_>>()?;
    let width = lines.iter().map(|(label, _)| label.chars().count()).max()?;
    let lines: Vec<_> = lines.into_iter().map(|(label, score)| format!("{label:width$}  {score}")).collect();
    Some(lines.join("\n"))
}
