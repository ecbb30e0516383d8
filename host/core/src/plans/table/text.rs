//! The text of a table: its encoding, by the byte order mark, and what separates its cells.

use std::collections::VecDeque;
use std::io::{self, Cursor, Read};

/// Bytes of the first line that are looked at.
const LONGEST_LINE: usize = 1 << 16;

/// The text, after what is not part of the table.
pub(super) struct Text {
    pub(super) delimiter: u8,
    pub(super) skipped_lines: u64,
    pub(super) reader: Box<dyn Read + Send>,
}

/// Opens a table in UTF-8 or, with a byte order mark, UTF-16.
pub(super) fn open(mut file: Box<dyn Read + Send>, delimiter: Option<u8>) -> io::Result<Text> {
    let mut mark = Vec::new();
    file.by_ref().take(3).read_to_end(&mut mark)?;
    let mut text: Box<dyn Read + Send> = match mark.as_slice() {
        [0xef, 0xbb, 0xbf] => file,
        [0xff, 0xfe, rest @ ..] => Box::new(Utf16::new(Cursor::new(rest.to_vec()).chain(file), u16::from_le_bytes)),
        [0xfe, 0xff, rest @ ..] => Box::new(Utf16::new(Cursor::new(rest.to_vec()).chain(file), u16::from_be_bytes)),
        _ => Box::new(Cursor::new(mark).chain(file)),
    };
    let mut line = first_line(&mut text)?;
    // Excel's way to say it.
    let stated = match line.trim_ascii_end() {
        [b's', b'e', b'p', b'=', separator] => Some(*separator),
        _ => None,
    };
    if stated.is_some() {
        line.clear();
    }
    let delimiter = stated.or(delimiter).unwrap_or_else(|| likely_delimiter(&line));
    Ok(Text { delimiter, skipped_lines: u64::from(stated.is_some()), reader: Box::new(Cursor::new(line).chain(text)) })
}

fn first_line(text: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    let mut byte = [0];
    // Byte by byte, so that nothing after it is taken; what is left is read in large pieces.
    while line.len() < LONGEST_LINE && text.read(&mut byte)? == 1 {
        line.push(byte[0]);
        if byte[0] == b'\n' {
            break;
        }
    }
    Ok(line)
}

/// A semicolon if there is one outside of quotes (where commas are decimal, or in texts), a tab where there is no comma,
/// else a comma.
fn likely_delimiter(line: &[u8]) -> u8 {
    let mut is_quoted = false;
    let mut outside = line.iter().copied().filter(|byte| {
        is_quoted ^= *byte == b'"';
        !is_quoted
    });
    let found: Vec<u8> = outside.by_ref().filter(|byte| b",;\t".contains(byte)).collect();
    let has = |byte: u8| found.contains(&byte);
    match () {
        () if has(b';') => b';',
        () if has(b'\t') && !has(b',') => b'\t',
        () => b',',
    }
}

/// UTF-16 as UTF-8.
struct Utf16<R> {
    units: R,
    unit: fn([u8; 2]) -> u16,
    /// the first of a surrogate pair, if its second is yet to come
    high: Option<u16>,
    ready: VecDeque<u8>,
}

impl<R: Read> Utf16<R> {
    fn new(units: R, unit: fn([u8; 2]) -> u16) -> Self {
        Self { units, unit, high: None, ready: VecDeque::new() }
    }

    /// Decodes some more.
    fn fill(&mut self) -> io::Result<()> {
        let mut bytes = Vec::new();
        self.units.by_ref().take(1 << 14).read_to_end(&mut bytes)?;
        let (pairs, odd) = bytes.as_chunks::<2>();
        let is_last = pairs.is_empty();
        let units = self.high.take().into_iter().chain(pairs.iter().map(|pair| (self.unit)(*pair)));
        let mut units: Vec<u16> = units.collect();
        if !is_last && units.last().is_some_and(|unit| (0xd800..0xdc00).contains(unit)) {
            self.high = units.pop();
        }
        let text = String::from_utf16(&units).ok().filter(|_| odd.is_empty());
        let text = text.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the text is not UTF-16"))?;
        self.ready.extend(text.into_bytes());
        Ok(())
    }
}

impl<R: Read> Read for Utf16<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.ready.is_empty() {
            self.fill()?;
        }
        self.ready.read(buffer)
    }
}
