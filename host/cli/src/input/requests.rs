//! Requests from `--input` and `--file`, read one at a time.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader, Read as _};
use std::path::{Path, PathBuf};

use serde_json::Value as Json;

use super::sources::{UsageError, expand, extension, read_error, read_file, read_stdin};
use crate::printer::Printer;
use gpux_core::shorten;
use gpux_core::{Kind, Plan, Port, Reader, Request, Table, TableOptions, Tensor, ValidationError, Value, from_json};
use gpux_inference::{TensorFileError, from_pb};

/// Longest line of a stream, in bytes.
pub(super) const MAX_LINE: u64 = 256 << 20;

/// The byte order mark that Windows programs write before UTF-8 text.
pub(super) const BOM: &[u8] = b"\xef\xbb\xbf";

/// One request with the place it came from.
pub(crate) struct RequestItem {
    /// a path, `--input`, or a path with the number of a line or list entry
    pub(crate) source: String,
    /// the request, or why it is none
    pub(crate) request: Result<Request, ValidationError>,
}

/// Requests, read as they are needed.
pub(crate) struct Requests<'a> {
    plan: &'a Plan,
    shared: Request,
    files: VecDeque<PathBuf>,
    /// files that `--input` named
    named: Vec<PathBuf>,
    ready: VecDeque<RequestItem>,
    stream: Option<Stream>,
    table: TableOptions,
    printer: Printer,
    /// whether there may be several: a list, a stream, a pattern, several files
    batch: bool,
    /// how many there will be, where that is known before reading
    pub(crate) total: Option<u64>,
}

/// A file with a request in each line or row.
enum Stream {
    Lines(Lines),
    /// with its file, and the number of the next row
    Table(Box<Table>, String, usize),
}

/// A stream of JSON requests, one a line.
struct Lines {
    source: String,
    reader: Box<dyn BufRead + Send>,
    number: usize,
}

impl<'a> Requests<'a> {
    pub(super) fn new(
        plan: &'a Plan,
        inputs: &[String],
        files: &[String],
        table: TableOptions,
        printer: Printer,
    ) -> Result<Self, UsageError> {
        let (files, pattern) = expand(files)?;
        let mut requests = Self {
            plan,
            shared: Vec::new(),
            total: None,
            files: VecDeque::new(),
            named: inputs.iter().filter_map(|input| input.split_once('@')).map(|(_, path)| path.into()).collect(),
            ready: VecDeque::new(),
            stream: None,
            table,
            printer,
            batch: false,
        };

        let mut batch = Vec::new();
        let mut fault = None;
        for input in inputs {
            if let Err(error) = requests.read_input(input, &mut batch)? {
                fault.get_or_insert(error);
            }
        }

        if let Some(error) = fault {
            requests.ready.push_back(RequestItem { source: "--input".to_owned(), request: Err(error) });
            requests.total = Some(1);
            return Ok(requests);
        }

        if !batch.is_empty() {
            if inputs.len() > 1 || !files.is_empty() {
                return Err(UsageError::Combined);
            }
            requests.queue_batch("--input", batch);
        } else if files.is_empty() {
            if inputs.is_empty() && plan.inputs().iter().any(|input| !input.port.optional) {
                return Err(UsageError::Nothing(plan.signature().describe_inputs()));
            }
            let request = Ok(std::mem::take(&mut requests.shared));
            requests.ready.push_back(RequestItem { source: "--input".to_owned(), request });
        }

        let uncounted = |path: &PathBuf| {
            path.as_os_str() == "-" || matches!(&*extension(path), "json" | "jsonl" | "ndjson" | "csv" | "tsv")
        };
        requests.total = (!files.iter().any(uncounted)).then_some((files.len() + requests.ready.len()) as u64);
        requests.batch |= files.len() > 1 || pattern;
        requests.files = files.into();
        Ok(requests)
    }

    /// Whether results are those of a batch, each with its source: decided by the arguments,
    /// not by the number of items.
    pub(crate) fn is_batch(&mut self) -> bool {
        if self.ready.is_empty()
            && self.stream.is_none()
            && let Some(path) = self.files.pop_front()
        {
            self.open(&path);
        }
        self.batch || self.stream.is_some()
    }

    /// The files that are read; a redirected standard input is among them.
    pub(crate) fn source_paths(&self) -> impl Iterator<Item = &Path> {
        let read = self.files.iter().chain(&self.named).map(|path| match path.to_str() {
            Some("-") => Path::new("/dev/stdin"),
            _ => path,
        });
        read.filter(|path| path.is_file())
    }

    /// Reads one `--input`: a value for every request, or a batch of requests.
    fn read_input(&mut self, input: &str, batch: &mut Vec<Json>) -> Result<Result<(), ValidationError>, UsageError> {
        // The name of an input may hold a `=`, too.
        let ports = self.plan.inputs().iter().map(|input| input.port.name.as_str());
        let known = ports.filter_map(|name| Some((name, input.strip_prefix(name)?.strip_prefix('=')?)));
        let known = known.max_by_key(|(name, _)| name.len());
        let named = known.or_else(|| input.split_once('=').filter(|(name, _)| is_name(name)));
        // A text may hold a `=` of its own.
        let named = named.filter(|(name, _)| self.plan.signature().port(name).is_some() || !self.reader().takes_text());
        if let Some((name, value)) = named {
            let Some(port) = self.plan.signature().port(name) else {
                let known = self.plan.signature().describe_inputs();
                return Err(UsageError::UnknownInput { name: name.to_owned(), known });
            };
            return Ok(named_value(port, value)?.map(|value| self.shared.push((name.to_owned(), value))));
        }
        let text = match input.strip_prefix('@') {
            Some("-") => String::from_utf8_lossy(&read_stdin()?).into_owned(),
            Some(path) => String::from_utf8_lossy(&read_file(Path::new(path))?).into_owned(),
            None => input.to_owned(),
        };
        let json = match serde_json::from_str(text.trim_start_matches('\u{feff}')) {
            Ok(json) => json,
            // A pipeline of one text takes the text itself.
            Err(_) if self.reader().takes_text() && !text.starts_with(['{', '[']) => Json::String(text),
            Err(error) => return Err(UsageError::Json(shorten(input), error)),
        };
        match json {
            Json::Array(items) if !items.is_empty() && self.reader().is_batch(&items) => batch.extend(items),
            json => return Ok(self.reader().json(json).map(|request| self.shared.extend(request))),
        }
        Ok(Ok(()))
    }

    /// Whether an empty list is a batch without requests: it is no value of the one input.
    fn is_empty_batch(&self) -> bool {
        self.reader().single().is_none_or(|port| matches!(port.kind, Kind::Text | Kind::Bytes))
    }

    fn reader(&self) -> Reader<'_> {
        self.plan.signature().reader(&self.shared)
    }

    fn queue_batch(&mut self, source: &str, items: Vec<Json>) {
        self.batch = true;
        for (index, json) in items.into_iter().enumerate() {
            let request = self.reader().json(json).map(|request| self.with_shared(request));
            self.ready.push_back(RequestItem { source: format!("{source}[{index}]"), request });
        }
    }

    fn with_shared(&self, mut request: Request) -> Request {
        let missing = self.shared.iter().filter(|(name, _)| !request.iter().any(|(given, _)| given == name));
        let missing: Vec<_> = missing.cloned().collect();
        request.extend(missing);
        request
    }

    /// Reads one file of `--file` into requests.
    fn open(&mut self, path: &Path) {
        let source = path.display().to_string();
        let fail =
            |message: String| RequestItem { source: source.clone(), request: Err(ValidationError::request(message)) };
        if path.as_os_str() == "-" {
            return match read_stdin() {
                Ok(bytes) => self.open_bytes("stdin", bytes),
                Err(error) => self.ready.push_back(fail(error.to_string())),
            };
        }
        match extension(path).as_str() {
            "jsonl" | "ndjson" => match File::open(path) {
                Ok(file) => {
                    self.stream =
                        Some(Stream::Lines(Lines { source, reader: Box::new(BufReader::new(file)), number: 0 }));
                }
                Err(error) => self.ready.push_back(fail(read_error(path, error).to_string())),
            },
            // Bytes are the file itself.
            ending @ ("csv" | "tsv") if !self.takes(|kind| *kind == Kind::Bytes) => match File::open(path) {
                Ok(file) => {
                    let delimiter = (ending == "tsv").then_some(b'\t');
                    match Table::open(file, TableOptions { delimiter, ..self.table }, self.reader()) {
                        Ok(table) => {
                            self.note_unchecked(&table, &source);
                            self.stream = Some(Stream::Table(Box::new(table), source, 0));
                        }
                        Err(error) => {
                            let message = format!("`{source}`: {}", error.message);
                            let request = Err(ValidationError { message, ..error });
                            self.ready.push_back(RequestItem { source, request });
                        }
                    }
                }
                Err(error) => self.ready.push_back(fail(read_error(path, error).to_string())),
            },
            _ => match read_file(path) {
                Ok(bytes) if extension(path) == "json" => self.open_json(&source, &bytes),
                Ok(bytes) => {
                    let request = match &*extension(path) {
                        "npy" if self.takes(|kind| matches!(kind, Kind::Tensor(_))) => self.reader().npy(&bytes),
                        "pb" => self.pb(&bytes),
                        _ => self.reader().payload(bytes),
                    };
                    let request = request.map(|request| self.with_shared(request));
                    self.ready.push_back(RequestItem { source, request });
                }
                Err(error) => self.ready.push_back(fail(error.to_string())),
            },
        }
    }

    /// Says that names in a header were not read.
    fn note_unchecked(&self, table: &Table, source: &str) {
        let (Some(header), Some(port)) = (table.unchecked_header(), self.reader().single()) else { return };
        self.printer.warning(&format!(
            "the columns of `{source}` are taken in their order as the elements of `{}`, whatever their names; to have \
             them checked, write into gpux.yml, in the model's order: inputs: {{ {}: {{ columns: [{}] }} }}",
            port.name,
            port.name,
            header.join(", ")
        ));
    }

    /// Whether there is one input to give, of such a kind.
    fn takes(&self, is: impl FnOnce(&Kind) -> bool) -> bool {
        self.reader().single().is_some_and(|port| is(&port.kind))
    }

    /// A `.pb` file: the value of the input that the tensor is named after, else of the one input.
    /// An input of bytes takes the file unread.
    fn pb(&self, bytes: &[u8]) -> Result<Request, ValidationError> {
        let read = from_pb(bytes);
        let named = read.as_ref().ok().and_then(|(name, _)| self.plan.signature().port(name));
        let Some(port) = named.or_else(|| self.reader().single()) else {
            return Err(ValidationError::request("say which input takes the .pb file: `--input NAME=@FILE`"));
        };
        if matches!(port.kind, Kind::Bytes) {
            return Ok(vec![(port.name.clone(), Value::from(bytes.to_vec()))]);
        }
        Ok(vec![(port.name.clone(), pb_value(port, read)?)])
    }

    /// Standard input: JSON, lines of JSON, or the bytes of the one input.
    fn open_bytes(&mut self, source: &str, bytes: Vec<u8>) {
        let looks_like_json = matches!(bytes.trim_ascii_start().first(), Some(b'{' | b'['));
        if !looks_like_json {
            let request = self.reader().payload(bytes).map(|request| self.with_shared(request));
            self.ready.push_back(RequestItem { source: source.to_owned(), request });
        } else if serde_json::from_slice::<serde::de::IgnoredAny>(&bytes).is_ok() {
            self.open_json(source, &bytes);
        } else {
            let reader = Box::new(std::io::Cursor::new(bytes));
            self.stream = Some(Stream::Lines(Lines { source: source.to_owned(), reader, number: 0 }));
        }
    }

    fn open_json(&mut self, source: &str, bytes: &[u8]) {
        match serde_json::from_slice::<Json>(bytes.strip_prefix(BOM).unwrap_or(bytes)) {
            Ok(Json::Array(items)) if !items.is_empty() && self.reader().is_batch(&items) => {
                self.queue_batch(source, items);
            }
            Ok(Json::Array(items)) if items.is_empty() && self.is_empty_batch() => self.batch = true,
            Ok(json) if self.reader().may_be_request(&json) => {
                let request = self.reader().json(json).map(|request| self.with_shared(request));
                self.ready.push_back(RequestItem { source: source.to_owned(), request });
            }
            Ok(_) => {
                let request = self.reader().payload(bytes.to_vec()).map(|request| self.with_shared(request));
                self.ready.push_back(RequestItem { source: source.to_owned(), request });
            }
            Err(error) => {
                let what =
                    if bytes.is_empty() { "there is nothing in it".to_owned() } else { format!("not JSON: {error}") };
                // Each result of a batch has its source beside it.
                let message = if self.batch { what } else { format!("`{source}`: {what}") };
                self.ready.push_back(RequestItem {
                    source: source.to_owned(),
                    request: Err(ValidationError::request(message)),
                });
            }
        }
    }

    fn next_of_stream(&mut self) -> Option<RequestItem> {
        let (table, file, number) = match self.stream.as_mut()? {
            Stream::Lines(_) => return self.next_line(),
            Stream::Table(table, file, number) => (table, file, number),
        };
        let Some(request) = table.next(self.plan.signature().reader(&self.shared)) else {
            self.stream = None;
            return None;
        };
        let source = format!("{file}[{number}]");
        *number += 1;
        Some(RequestItem { source, request: request.map(|request| self.with_shared(request)) })
    }

    fn next_line(&mut self) -> Option<RequestItem> {
        let Some(Stream::Lines(lines)) = &mut self.stream else { return None };
        let mut bytes = Vec::new();
        loop {
            bytes.clear();
            lines.number += 1;
            let source = format!("{}:{}", lines.source, lines.number);
            let fail = |message: String| RequestItem {
                source: source.clone(),
                request: Err(ValidationError::request(message)),
            };
            let read = lines.reader.by_ref().take(MAX_LINE + 1).read_until(b'\n', &mut bytes);
            let fault = match read {
                Ok(0) => {
                    self.stream = None;
                    return None;
                }
                Ok(read) if read as u64 > MAX_LINE => "the line is longer than 256 MiB".to_owned(),
                Ok(_) => {
                    let line = bytes.strip_prefix(BOM).unwrap_or(&bytes).trim_ascii();
                    if line.is_empty() {
                        continue;
                    }
                    return Some(match serde_json::from_slice(line) {
                        Ok(json) => {
                            let request = self.reader().json(json).map(|request| self.with_shared(request));
                            RequestItem { source, request }
                        }
                        Err(error) => fail(format!("not JSON: {error}")),
                    });
                }
                Err(error) => format!("cannot read on: {error}"),
            };
            // Where the next line begins is not known.
            let item = fail(fault);
            self.stream = None;
            return Some(item);
        }
    }
}

impl Iterator for Requests<'_> {
    type Item = RequestItem;

    fn next(&mut self) -> Option<RequestItem> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Some(item);
            }
            if let Some(item) = self.next_of_stream() {
                return Some(item);
            }
            let path = self.files.pop_front()?;
            self.open(&path);
        }
    }
}

/// `name=value`, where the value is `@path`, or JSON, or plain text for an input of text.
fn named_value(port: &Port, value: &str) -> Result<Result<Value, ValidationError>, UsageError> {
    if let Some(path) = value.strip_prefix('@') {
        let path = Path::new(path);
        let bytes = if path.as_os_str() == "-" { read_stdin()? } else { read_file(path)? };
        if matches!(port.kind, Kind::Bytes | Kind::Text | Kind::Any) {
            return Ok(port.file(bytes));
        }
        match &*extension(path) {
            "npy" => return Ok(port.npy(&bytes)),
            "pb" => return Ok(pb_value(port, from_pb(&bytes))),
            _ => {}
        }
        let input = || format!("{}=@{}", port.name, path.display());
        let json = match serde_json::from_slice(&bytes) {
            Ok(json) => json,
            Err(_) if std::str::from_utf8(&bytes).is_err() => {
                return Err(UsageError::NoTensor { input: input(), kind: port.kind.to_string() });
            }
            Err(error) => return Err(UsageError::Json(input(), error)),
        };
        return Ok(from_json(json, &port.kind).map_err(|error| ValidationError::input(&port.name, error)));
    }
    if matches!(port.kind, Kind::Text | Kind::Any) {
        return Ok(Ok(Value::from(value)));
    }
    let json = serde_json::from_str(value).unwrap_or_else(|_| Json::String(value.to_owned()));
    Ok(from_json(json, &port.kind).map_err(|error| {
        let advice = match port.kind {
            Kind::Bytes => format!("; for a file write `{}=@PATH`", port.name),
            _ => String::new(),
        };
        ValidationError::input(&port.name, format_args!("{error}{advice}"))
    }))
}

fn pb_value(port: &Port, read: Result<(String, Tensor), TensorFileError>) -> Result<Value, ValidationError> {
    read.map(|(_, tensor)| Value::Tensor(tensor)).map_err(|error| ValidationError::input(&port.name, error))
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && !text.starts_with(['{', '[', '"', '@']) && text.chars().all(|c| !c.is_whitespace())
}
