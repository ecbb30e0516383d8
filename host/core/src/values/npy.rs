//! Tensors from and to NumPy's `.npy` files, versions 1 to 3.
//!
//! `bfloat16`, which NumPy itself does not have, is `V2`, as `numpy.save` writes the arrays of
//! `ml_dtypes`. Strings and Python objects are refused.

use super::element::ElementType;
use super::tensor::{MAX_AXES, Tensor, TensorError};

const MAGIC: &[u8] = b"\x93NUMPY";

/// The longest header that is read, as in NumPy.
const MAX_HEADER: usize = 10_000;

/// A file that holds no tensor.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NpyError {
    /// it does not begin like one
    #[error("this is no .npy file: it does not begin with `\\x93NUMPY` and a version from 1 to 3")]
    NotNpy,
    /// its header is not what NumPy writes
    #[error("the header of the .npy file is damaged: {0}")]
    Header(&'static str),
    /// elements that no tensor has
    #[error("a tensor cannot hold elements of NumPy's type `{0}`; convert them with `astype`")]
    Elements(String),
    /// a tensor that NumPy has no type for
    #[error("a tensor of strings cannot be written as .npy")]
    Strings,
    /// the data does not fill the shape, or is no data of its type
    #[error(transparent)]
    Tensor(#[from] TensorError),
}

/// NumPy's codes, without the byte order.
const CODES: [(&str, ElementType); 13] = [
    ("b1", ElementType::Bool),
    ("u1", ElementType::Uint8),
    ("i1", ElementType::Int8),
    ("u2", ElementType::Uint16),
    ("i2", ElementType::Int16),
    ("u4", ElementType::Uint32),
    ("i4", ElementType::Int32),
    ("u8", ElementType::Uint64),
    ("i8", ElementType::Int64),
    ("f2", ElementType::Float16),
    ("V2", ElementType::Bfloat16),
    ("f4", ElementType::Float32),
    ("f8", ElementType::Float64),
];

/// The fields of the header.
#[derive(Debug, PartialEq, Eq)]
struct Header {
    element: ElementType,
    big_endian: bool,
    fortran_order: bool,
    shape: Vec<usize>,
}

/// The tensor of a `.npy` file.
pub fn from_npy(bytes: &[u8]) -> Result<Tensor, NpyError> {
    let rest = bytes.strip_prefix(MAGIC).ok_or(NpyError::NotNpy)?;
    let (length, rest) = match rest {
        [1, _, a, b, rest @ ..] => (usize::from(u16::from_le_bytes([*a, *b])), rest),
        [2 | 3, _, a, b, c, d, rest @ ..] => (u32::from_le_bytes([*a, *b, *c, *d]) as usize, rest),
        _ => return Err(NpyError::NotNpy),
    };
    if length > MAX_HEADER {
        return Err(NpyError::Header("it is longer than 10000 bytes"));
    }
    let (header, data) = rest.split_at_checked(length).ok_or(NpyError::Header("it is cut off"))?;
    let header = std::str::from_utf8(header).map_err(|_| NpyError::Header("it is no text"))?;
    let Header { element, big_endian, fortran_order, shape } = HeaderParser(header).header()?;
    let swapped: Vec<u8>;
    let data = match element.size() {
        Some(size) if big_endian && size > 1 && data.len().is_multiple_of(size) => {
            swapped = data.chunks_exact(size).flat_map(|number| number.iter().rev().copied()).collect();
            &swapped
        }
        _ => data,
    };
    if !fortran_order {
        return Ok(Tensor::from_bytes(element, shape, data)?);
    }
    let axes: Vec<_> = (0..shape.len()).rev().collect();
    let reversed: Vec<_> = shape.into_iter().rev().collect();
    Ok(Tensor::from_bytes(element, reversed, data)?.permute(&axes)?)
}

/// A tensor as a `.npy` file, as `numpy.save` writes it.
pub fn to_npy(tensor: &Tensor) -> Result<Vec<u8>, NpyError> {
    let data = tensor.bytes().ok_or(NpyError::Strings)?;
    let code = CODES.iter().find(|(_, element)| *element == tensor.element()).ok_or(NpyError::Strings)?.0;
    let order = if tensor.element().size() == Some(1) { '|' } else { '<' };
    let sizes: Vec<_> = tensor.shape().iter().map(ToString::to_string).collect();
    let comma = if sizes.len() == 1 { "," } else { "" };
    let shape = format!("({}{comma})", sizes.join(", "));
    let mut header = format!("{{'descr': '{order}{code}', 'fortran_order': False, 'shape': {shape}, }}");
    // The data begins at a multiple of 64 bytes, with a line end before it.
    let unpadded = MAGIC.len() + 4 + header.len() + 1;
    header.extend(std::iter::repeat_n(' ', unpadded.next_multiple_of(64) - unpadded));
    header.push('\n');
    let length = u16::try_from(header.len()).map_err(|_| NpyError::Header("the shape is too long"))?;
    Ok([MAGIC, &[1, 0], &length.to_le_bytes(), header.as_bytes(), data].concat())
}

/// Reads the header, which is a Python literal: `{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }`.
struct HeaderParser<'a>(&'a str);

impl<'a> HeaderParser<'a> {
    fn header(mut self) -> Result<Header, NpyError> {
        let (mut descr, mut fortran_order, mut shape) = (None, None, None);
        self.expect('{')?;
        while !self.take('}') {
            let key = self.quoted()?;
            self.expect(':')?;
            let known = match key {
                "descr" => descr.replace(self.quoted()?).is_none(),
                "fortran_order" => fortran_order.replace(self.boolean()?).is_none(),
                "shape" => shape.replace(self.tuple()?).is_none(),
                _ => return Err(NpyError::Header("it has an unknown key")),
            };
            if !known {
                return Err(NpyError::Header("it has a key twice"));
            }
            if !self.take(',') {
                self.expect('}')?;
                break;
            }
        }
        if !self.0.trim().is_empty() {
            return Err(NpyError::Header("something follows the `}`"));
        }
        let (Some(descr), Some(fortran_order), Some(shape)) = (descr, fortran_order, shape) else {
            return Err(NpyError::Header("it lacks one of `descr`, `fortran_order` and `shape`"));
        };
        let unknown = || NpyError::Elements(descr.chars().take(40).collect());
        let code = descr.strip_prefix(['<', '>', '|', '=']).ok_or_else(unknown)?;
        let (_, element) = CODES.iter().find(|(known, _)| *known == code).ok_or_else(unknown)?;
        Ok(Header { element: *element, big_endian: descr.starts_with('>'), fortran_order, shape })
    }

    fn take(&mut self, wanted: char) -> bool {
        match self.0.trim_start().strip_prefix(wanted) {
            Some(rest) => {
                self.0 = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, wanted: char) -> Result<(), NpyError> {
        if self.take(wanted) { Ok(()) } else { Err(NpyError::Header("it is not the literal that NumPy writes")) }
    }

    fn quoted(&mut self) -> Result<&'a str, NpyError> {
        let quote = if self.take('"') {
            '"'
        } else {
            self.expect('\'')?;
            '\''
        };
        let (text, rest) = self.0.split_once(quote).ok_or(NpyError::Header("a quote is not closed"))?;
        self.0 = rest;
        Ok(text)
    }

    fn boolean(&mut self) -> Result<bool, NpyError> {
        let text = self.0.trim_start();
        for (word, value) in [("False", false), ("True", true)] {
            if let Some(rest) = text.strip_prefix(word) {
                self.0 = rest;
                return Ok(value);
            }
        }
        Err(NpyError::Header("`fortran_order` is neither `True` nor `False`"))
    }

    fn tuple(&mut self) -> Result<Vec<usize>, NpyError> {
        self.expect('(')?;
        let mut sizes = Vec::new();
        while !self.take(')') {
            let text = self.0.trim_start();
            let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
            let size = text[..digits].parse().map_err(|_| NpyError::Header("`shape` is no tuple of sizes"))?;
            self.0 = &text[digits..];
            sizes.push(size);
            if sizes.len() > MAX_AXES {
                return Err(NpyError::Header("`shape` has more than 64 axes"));
            }
            if !self.take(',') {
                self.expect(')')?;
                break;
            }
        }
        Ok(sizes)
    }
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};
    use proptest::prelude::*;

    use super::*;

    fn file(header: &str, data: &[u8]) -> Vec<u8> {
        [MAGIC, &[1, 0], &(header.len() as u16).to_le_bytes(), header.as_bytes(), data].concat()
    }

    /// What `numpy.save` 2.3 wrote for `numpy.arange(6, dtype="<i2").reshape(2, 3)`.
    #[test]
    fn bytes_match_numpy() {
        let header = "{'descr': '<i2', 'fortran_order': False, 'shape': (2, 3), }";
        let padded = format!("{header:117}\n");
        let saved = file(&padded, &[0, 0, 1, 0, 2, 0, 3, 0, 4, 0, 5, 0]);
        let tensor = Tensor::new([2, 3], vec![0_i16, 1, 2, 3, 4, 5]).unwrap();
        assert_eq!(from_npy(&saved).unwrap(), tensor);
        assert_eq!(to_npy(&tensor).unwrap(), saved);
        assert_eq!(saved.len() - 12, 128);
    }

    #[test]
    fn every_element_type_round_trips() {
        let tensors = [
            Tensor::new([2], vec![true, false]).unwrap(),
            Tensor::scalar(200_u8),
            Tensor::scalar(-3_i8),
            Tensor::new([1, 2], vec![1_u16, 65_535]).unwrap(),
            Tensor::new([0, 3], Vec::<i16>::new()).unwrap(),
            Tensor::scalar(7_u32),
            Tensor::scalar(-7_i32),
            Tensor::scalar(u64::MAX),
            Tensor::scalar(i64::MIN),
            Tensor::scalar(f16::from_f32(1.5)),
            Tensor::scalar(bf16::from_f32(1.5)),
            Tensor::new([3], vec![f32::INFINITY, -0.0, 1e-40]).unwrap(),
            Tensor::scalar(1e300_f64),
        ];
        for tensor in tensors {
            assert_eq!(from_npy(&to_npy(&tensor).unwrap()).unwrap(), tensor);
        }
        assert_eq!(to_npy(&Tensor::scalar("text".to_owned())), Err(NpyError::Strings));
    }

    #[test]
    fn reads_other_byte_and_axis_orders() {
        let big = file("{'descr': '>u2', 'fortran_order': False, 'shape': (2,)}", &[0, 1, 2, 0]);
        assert_eq!(from_npy(&big).unwrap().as_slice::<u16>().unwrap(), [1, 512]);
        let columns = file("{\"shape\": (2, 3), 'fortran_order': True, 'descr': '|u1'}", &[0, 3, 1, 4, 2, 5]);
        let tensor = from_npy(&columns).unwrap();
        assert_eq!((tensor.shape(), tensor.as_slice::<u8>().unwrap()), (&[2, 3][..], &[0, 1, 2, 3, 4, 5][..]));
        let mut second = b"\x93NUMPY\x02\x00".to_vec();
        let header = "{'descr': '|b1', 'fortran_order': False, 'shape': (), }";
        second.extend((header.len() as u32).to_le_bytes());
        second.extend(header.as_bytes());
        second.push(1);
        assert_eq!(from_npy(&second).unwrap(), Tensor::scalar(true));
    }

    #[test]
    fn rejects_json_that_is_no_tensor() {
        let message = |bytes: &[u8]| from_npy(bytes).unwrap_err().to_string();
        let header =
            |descr: &str, shape: &str| format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}}}");
        for (bytes, part) in [
            (b"PK\x03\x04".to_vec(), "no .npy file"),
            (b"\x93NUMPY\x09\x00".to_vec(), "version from 1 to 3"),
            (b"\x93NUMPY\x01\x00\xff\x00{".to_vec(), "cut off"),
            (b"\x93NUMPY\x02\x00\xff\xff\xff\xff".to_vec(), "longer than"),
            (file(&header("|O", "(1,)"), &[0]), "type `|O`"),
            (file(&header("<U5", "(1,)"), &[0]), "type `<U5`"),
            (file(&header("<c8", "(1,)"), &[0]), "astype"),
            (file(&header("<f4", "(2,)"), &[0; 7]), "takes 8 bytes, but 7 were given"),
            (file(&header("<f4", "(2,)"), &[0; 9]), "takes 8 bytes, but 9 were given"),
            (file(&header("|b1", "(1,)"), &[2]), "byte 2 is not a bool"),
            (file(&header("<f8", "(4611686018427387904, 8)"), &[]), "does not fit in memory"),
            (file(&header("<f8", "(99999999999999999999)"), &[]), "no tuple of sizes"),
            (file(&header("<f8", "(-1,)"), &[]), "no tuple of sizes"),
            (file("{'descr': '<f4'}", &[]), "lacks one of"),
            (file("{'descr': '<f4', 'descr': '<f4'}", &[]), "twice"),
            (file("__import__('os')", &[]), "not the literal"),
            (file(&format!("{} + 1", header("|u1", "()")), &[0]), "follows the `}`"),
        ] {
            let found = message(&bytes);
            assert!(found.contains(part), "{found} does not say {part}");
        }
    }

    proptest! {
        #[test]
        fn numbers_round_trip(data in proptest::collection::vec(any::<f32>().prop_filter("equal to itself", |x| !x.is_nan()), 0..50)) {
            let tensor = Tensor::new([data.len()], data).unwrap();
            prop_assert_eq!(from_npy(&to_npy(&tensor).unwrap()).unwrap(), tensor);
        }

        /// Mangled files are read or refused; a tensor that is read has the size of its shape.
        #[test]
        fn mangled_files_never_panic(at in 0_usize..140, byte: u8, cut in 0_usize..150) {
            let tensor = Tensor::new([3, 2], vec![1.5_f32; 6]).unwrap();
            let mut bytes = to_npy(&tensor).unwrap();
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
            bytes.truncate(bytes.len().saturating_sub(cut.saturating_sub(100)));
            if let Ok(read) = from_npy(&bytes) {
                prop_assert_eq!(read.byte_len(), 24);
            }
        }

        #[test]
        fn random_headers_never_panic(header in "[{}()':,<>|a-zA-Z0-9 \"]{0,80}", data in proptest::collection::vec(any::<u8>(), 0..16)) {
            let _ = from_npy(&file(&header, &data));
        }
    }
}
