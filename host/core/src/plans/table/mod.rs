//! Requests from the rows of a table: CSV (RFC 4180), or with semicolons or tabs between the cells.

mod cell;
mod columns;
mod text;

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use csv::{Reader as CsvReader, ReaderBuilder, StringRecord};

use self::columns::Columns;
use super::request::{Reader, Request};
use super::run::ValidationError;

/// The longest row, in bytes.
const MAX_ROW: u64 = 256 << 20;

/// What is known about a table before it is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableOptions {
    /// what separates cells; `None`: by the first line
    pub delimiter: Option<u8>,
    /// whether the first row names the columns; `None`: by its cells, where they leave no doubt
    pub has_header: Option<bool>,
    /// whether columns that no input takes are ignored, also where no input says so
    pub ignores_extra: bool,
}

/// A table, read one row at a time.
pub struct Table {
    rows: CsvReader<BoundedRow>,
    /// bytes that the next row may have
    room: Arc<AtomicU64>,
    columns: Columns,
    /// rows that were read already, the next one last
    ahead: Vec<StringRecord>,
    /// lines before the first row of the table
    skipped_lines: u64,
    /// whether the rest cannot be read
    failed: bool,
}

/// Text of which so many bytes may be read. A quote that is not closed would take in all that follows it.
struct BoundedRow {
    text: Box<dyn Read + Send>,
    room: Arc<AtomicU64>,
}

impl Read for BoundedRow {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.text.read(buffer)?;
        let left = self.room.load(Ordering::Relaxed).checked_sub(read as u64);
        let left = left.ok_or_else(|| std::io::Error::other("the row is longer than 256 MiB"))?;
        self.room.store(left, Ordering::Relaxed);
        Ok(read)
    }
}

impl Table {
    /// Reads the first rows, and finds the column of each input. Fails if there are none, if it is not certain whether
    /// the first row is a header, or if columns are missing or too many.
    pub fn open(
        file: impl Read + Send + 'static,
        options: TableOptions,
        reader: Reader<'_>,
    ) -> Result<Self, ValidationError> {
        let unread = |error: std::io::Error| ValidationError::request(format!("cannot read on: {error}"));
        let text::Text { delimiter, skipped_lines, reader: text } =
            text::open(Box::new(file), options.delimiter).map_err(unread)?;
        let room = Arc::new(AtomicU64::new(MAX_ROW));
        let mut builder = ReaderBuilder::new();
        builder.delimiter(delimiter).has_headers(false).flexible(true);
        let mut rows = builder.from_reader(BoundedRow { text, room: room.clone() });
        let mut read = || {
            room.store(MAX_ROW, Ordering::Relaxed);
            let mut record = StringRecord::new();
            let is_there = rows.read_record(&mut record).map_err(|error| csv_error(&error))?;
            Ok(is_there.then_some(record))
        };
        let first = read()?.ok_or_else(|| ValidationError::request("there is nothing in it"))?;
        let mut ahead = vec![first];
        let second = if options.has_header.is_none() { read() } else { Ok(None) };
        // What is wrong in the second row is its own error.
        let second = second.unwrap_or_default();
        let decimal_comma = delimiter == b';';
        let columns = Columns::new(&ahead[0], second.as_ref(), options, decimal_comma, reader)?;
        if columns.has_header() {
            ahead.clear();
        }
        ahead.splice(0..0, second);
        Ok(Self { rows, room, columns, ahead, skipped_lines, failed: false })
    }

    /// The names in the header, where the cells are the elements of the one input in their order, whatever the names.
    pub fn unchecked_header(&self) -> Option<&[String]> {
        self.columns.unchecked_header()
    }

    /// The request that the next row is; `None` after the last.
    pub fn next(&mut self, reader: Reader<'_>) -> Option<Result<Request, ValidationError>> {
        if self.failed {
            return None;
        }
        self.room.store(MAX_ROW, Ordering::Relaxed);
        let mut record = StringRecord::new();
        let read = match self.ahead.pop() {
            Some(row) => {
                record = row;
                Ok(true)
            }
            None => self.rows.read_record(&mut record),
        };
        Some(match read {
            Ok(true) => {
                let line = record.position().map_or(0, csv::Position::line) + self.skipped_lines;
                self.columns.request(&record, line, reader)
            }
            Ok(false) => return None,
            Err(error) => {
                self.failed = error.is_io_error();
                Err(csv_error(&error))
            }
        })
    }
}

/// The names in the first row of a table.
pub fn table_header(file: impl Read + Send + 'static) -> Result<Vec<String>, ValidationError> {
    let unread = |error: std::io::Error| ValidationError::request(format!("cannot read on: {error}"));
    let text::Text { delimiter, reader: text, .. } = text::open(Box::new(file), None).map_err(unread)?;
    let mut builder = ReaderBuilder::new();
    builder.delimiter(delimiter).has_headers(false).flexible(true);
    let mut first = StringRecord::new();
    let is_there =
        builder.from_reader(text.take(MAX_ROW)).read_record(&mut first).map_err(|error| csv_error(&error))?;
    if !is_there {
        return Err(ValidationError::request("there is nothing in it"));
    }
    Ok(first.iter().map(|name| name.trim().to_owned()).collect())
}

fn csv_error(error: &csv::Error) -> ValidationError {
    let advice = if matches!(error.kind(), csv::ErrorKind::Utf8 { .. }) { "; save the table as UTF-8" } else { "" };
    ValidationError::request(format!("{error}{advice}"))
}

#[cfg(test)]
mod tests;
