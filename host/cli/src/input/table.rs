//! Requests from the rows of a CSV or TSV file.

use std::io::{BufReader, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use csv::{Reader as CsvReader, ReaderBuilder, StringRecord};
use serde_json::Value as Json;

use super::requests::{BOM, MAX_LINE};
use gpux_core::{ElementType, Kind, Port, Reader, Request, ValidationError, from_json, shorten};

/// A table, read one row at a time.
pub(super) struct Table {
    source: String,
    rows: CsvReader<Bounded>,
    /// bytes that the next row may have
    room: Arc<AtomicU64>,
    columns: Columns,
    /// the next row, where it was read already
    record: StringRecord,
    /// the number of the next row, from 0
    number: usize,
    /// whether the rest cannot be read
    failed: bool,
}

/// What the columns are to the pipeline.
enum Columns {
    /// an input each, in this order
    Inputs(Vec<String>),
    /// the elements of the one input
    Elements {
        /// whether they are strings
        strings: bool,
    },
}

/// A file of which so many bytes may be read. A quote that is not closed would take in all that follows it.
struct Bounded {
    file: Box<dyn Read + Send>,
    room: Arc<AtomicU64>,
}

impl Read for Bounded {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.file.read(buffer)?;
        let left = self.room.load(Ordering::Relaxed).checked_sub(read as u64);
        let left = left.ok_or_else(|| std::io::Error::other("the row is longer than 256 MiB"))?;
        self.room.store(left, Ordering::Relaxed);
        Ok(read)
    }
}

impl Table {
    /// Reads the head of a file; `tabs` says whether tabs separate its cells.
    pub(super) fn open(
        source: String,
        file: impl Read + Send + 'static,
        tabs: bool,
        reader: Reader<'_>,
    ) -> Result<Self, ValidationError> {
        let mut file = BufReader::new(file);
        skip_byte_order_mark(&mut file).map_err(|error| ValidationError::request(format!("`{source}`: {error}")))?;
        let delimiter = if tabs { b'\t' } else { b',' };
        let mut builder = ReaderBuilder::new();
        builder.delimiter(delimiter).has_headers(false).flexible(true);
        let room = Arc::new(AtomicU64::new(MAX_LINE));
        let mut rows = builder.from_reader(Bounded { file: Box::new(file), room: room.clone() });
        let mut record = StringRecord::new();
        let unread = |error: csv::Error| ValidationError::request(format!("`{source}` is no table: {error}"));
        if !rows.read_record(&mut record).map_err(unread)? {
            return Err(ValidationError::request(format!("`{source}`: there is nothing in it")));
        }
        let names: Vec<_> = record.iter().map(|name| name.trim().to_owned()).collect();
        let are_inputs = names.iter().all(|name| reader.signature().port(name).is_some());
        let tensor = reader.single().and_then(|port| match &port.kind {
            Kind::Tensor(kind) => Some(kind.element()),
            _ => None,
        });
        let (columns, is_head) = match tensor {
            _ if are_inputs => (Columns::Inputs(names), true),
            Some(Some(ElementType::String)) => (Columns::Elements { strings: true }, false),
            Some(_) => {
                // A head has no number in it; `NA` stands among numbers.
                let is_head = names.iter().all(|cell| !cell.is_empty() && is_text(&number(cell)));
                (Columns::Elements { strings: false }, is_head)
            }
            None => {
                return Err(ValidationError::request(format!(
                    "`{source}`: its columns ({}) are not inputs of the pipeline, which takes {}",
                    shorten(&names.join(", ")),
                    reader.signature().describe_inputs(),
                )));
            }
        };
        if is_head {
            record.clear();
        }
        Ok(Self { source, rows, room, columns, record, number: 0, failed: false })
    }

    /// The file with the number of the next row, and the request that the row is.
    pub(super) fn next(&mut self, reader: Reader<'_>) -> Option<(String, Result<Request, ValidationError>)> {
        if self.failed {
            return None;
        }
        self.room.store(MAX_LINE, Ordering::Relaxed);
        let read = if self.record.is_empty() { self.rows.read_record(&mut self.record) } else { Ok(true) };
        let request = match read {
            Ok(true) => self.columns.request(&self.record, reader),
            Ok(false) => return None,
            Err(error) => {
                self.failed = error.is_io_error();
                Err(ValidationError::request(error.to_string()))
            }
        };
        self.record.clear();
        let source = format!("{}[{}]", self.source, self.number);
        self.number += 1;
        Some((source, request))
    }
}

impl Columns {
    fn request(&self, row: &StringRecord, reader: Reader<'_>) -> Result<Request, ValidationError> {
        match self {
            Self::Elements { strings: true } => reader.json(row.iter().collect()),
            Self::Elements { strings: false } => reader.json(row.iter().map(number).collect()),
            Self::Inputs(names) if names.len() != row.len() => {
                let (cells, columns) = (row.len(), names.len());
                Err(ValidationError::request(format!(
                    "the row has another number of cells ({cells}) than the head ({columns})"
                )))
            }
            Self::Inputs(names) => {
                let given = names.iter().zip(row).filter(|(_, cell)| !cell.is_empty());
                let value = |(name, cell): (&String, &str)| {
                    let port =
                        reader.signature().port(name).ok_or_else(|| ValidationError::input(name, "there is none"))?;
                    let value = from_json(cell_json(port, cell), &port.kind);
                    Ok((name.clone(), value.map_err(|error| ValidationError::input(name, error))?))
                };
                given.map(value).collect()
            }
        }
    }
}

/// A cell as the JSON that its input takes.
fn cell_json(port: &Port, cell: &str) -> Json {
    match &port.kind {
        Kind::Tensor(kind) if kind.element() == Some(ElementType::String) => Json::from(vec![cell]),
        Kind::Tensor(_) => match number(cell) {
            list @ Json::Array(_) => list,
            one => Json::Array(vec![one]),
        },
        Kind::Json | Kind::Any => serde_json::from_str(cell).unwrap_or_else(|_| cell.into()),
        Kind::Text | Kind::Bytes => cell.into(),
    }
}

/// The number, truth value or list in a cell; else its text. Python writes `True` and `nan`.
fn number(cell: &str) -> Json {
    let cell = cell.trim();
    match cell.to_ascii_lowercase().as_str() {
        "true" => true.into(),
        "false" => false.into(),
        "nan" => "NaN".into(),
        "inf" | "infinity" => "Infinity".into(),
        "-inf" | "-infinity" => "-Infinity".into(),
        _ => serde_json::from_str(cell).unwrap_or_else(|_| cell.into()),
    }
}

/// Whether a cell is neither a number nor a truth value.
fn is_text(cell: &Json) -> bool {
    cell.as_str().is_some_and(|text| !matches!(text, "NaN" | "Infinity" | "-Infinity"))
}

fn skip_byte_order_mark(file: &mut BufReader<impl Read>) -> std::io::Result<()> {
    use std::io::BufRead as _;
    if file.fill_buf()?.starts_with(BOM) {
        file.consume(BOM.len());
    }
    Ok(())
}
