//! A directory of tags: the first one of a TIFF or BigTIFF file, or of Exif data, which is such a file.

/// The tags of the first picture of a file.
#[derive(Clone, Copy)]
pub(super) struct Directory<'a> {
    bytes: &'a [u8],
    is_little_endian: bool,
    /// whether offsets have 64 bits
    is_big: bool,
    entries: &'a [u8],
}

/// The values of a tag.
#[derive(Clone, Copy)]
pub(super) struct Field<'a> {
    kind: u16,
    pub(super) bytes: &'a [u8],
    is_little_endian: bool,
}

impl<'a> Directory<'a> {
    /// The first directory, as far as there are bytes; nothing for other files.
    pub(super) fn first(bytes: &'a [u8]) -> Option<Self> {
        let is_little_endian = match bytes.get(..2)? {
            b"II" => true,
            b"MM" => false,
            _ => return None,
        };
        let number = |from: usize, length: usize| {
            let bytes = bytes.get(from..from.checked_add(length)?)?;
            usize::try_from(unsigned(bytes, is_little_endian)).ok()
        };
        let (is_big, start, counted, entry) = match number(2, 2)? {
            42 => (false, number(4, 4)?, 2, 12),
            43 => (true, number(8, 8)?, 8, 20),
            _ => return None,
        };
        let count = number(start, counted)?;
        let entries = &bytes[start + counted..];
        let entries = &entries[..entries.len().min(count.saturating_mul(entry))];
        Some(Self { bytes, is_little_endian, is_big, entries })
    }

    /// The values of a tag. As for Pillow, the first tag of a number counts, of those whose values lie within the file.
    pub(super) fn field(&self, tag: u16) -> Option<Field<'a>> {
        let (entry, word) = if self.is_big { (20, 8) } else { (12, 4) };
        self.entries.chunks_exact(entry).find_map(|entry| {
            let number = |bytes: &[u8]| unsigned(bytes, self.is_little_endian);
            if number(&entry[..2]) != u64::from(tag) {
                return None;
            }
            let kind = number(&entry[2..4]) as u16;
            let (count, inline) = entry[4..].split_at(word);
            let length = usize::try_from(number(count)).ok()?.checked_mul(size(kind)?)?;
            let bytes = if length <= word {
                &inline[..length]
            } else {
                let start = usize::try_from(number(inline)).ok()?;
                self.bytes.get(start..start.checked_add(length)?)?
            };
            let field = Field { kind, bytes, is_little_endian: self.is_little_endian };
            (!bytes.is_empty()).then_some(field)
        })
    }

    /// The first value of a tag, as a whole number.
    pub(super) fn number(&self, tag: u16) -> Option<usize> {
        self.field(tag)?.numbers().next().map(|number| number as usize)
    }
}

impl<'a> Field<'a> {
    /// Whether the values are plain bytes, which are no numbers for Pillow.
    pub(super) fn is_bytes(&self) -> bool {
        self.kind == 1
    }

    /// The values, if they are numbers.
    pub(super) fn numbers(self) -> impl Iterator<Item = f64> + 'a {
        let size = size(self.kind).unwrap_or(1);
        self.bytes.chunks_exact(size).map_while(move |bytes| self.decode(bytes))
    }

    fn decode(&self, bytes: &[u8]) -> Option<f64> {
        let unsigned = |bytes: &[u8]| unsigned(bytes, self.is_little_endian);
        let signed = |bytes: &[u8]| {
            let unused = 64 - 8 * bytes.len();
            ((unsigned(bytes) << unused).cast_signed() >> unused) as f64
        };
        match self.kind {
            1 | 3 | 4 | 13 | 16 => Some(unsigned(bytes) as f64),
            6 | 8 | 9 => Some(signed(bytes)),
            5 => Some(unsigned(&bytes[..4]) as f64 / unsigned(&bytes[4..]) as f64),
            10 => Some(signed(&bytes[..4]) / signed(&bytes[4..])),
            11 => Some(f32::from_bits(unsigned(bytes) as u32).into()),
            12 => Some(f64::from_bits(unsigned(bytes))),
            _ => None,
        }
    }
}

/// Bytes of a value.
const fn size(kind: u16) -> Option<usize> {
    match kind {
        1 | 2 | 6 | 7 => Some(1),
        3 | 8 => Some(2),
        4 | 9 | 11 | 13 => Some(4),
        5 | 10 | 12 | 16 => Some(8),
        _ => None,
    }
}

/// A number of at most eight bytes.
fn unsigned(bytes: &[u8], is_little_endian: bool) -> u64 {
    let add = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
    if is_little_endian { bytes.iter().rev().fold(0, add) } else { bytes.iter().fold(0, add) }
}
