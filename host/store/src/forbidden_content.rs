//! What never travels: code for a machine, and files that run code when they are read.

use std::io;

use crate::bundle_fault::BundleFault;
use crate::file_section::FileSection;

/// The bytes of a file's beginning that tell what it is.
const HEAD: u64 = 4096;

const COMPILE: &str = "it is made on each machine (`gpux build`)";
const SOURCE: &str = "components (.wasm) run on every machine";
const EXPORT: &str = "export the model to ONNX";

/// The first words of Mach-O files, in either order of bytes, and of those with several machines.
const MACH_O: [[u8; 4]; 5] = [
    [0xfe, 0xed, 0xfa, 0xce],
    [0xfe, 0xed, 0xfa, 0xcf],
    [0xce, 0xfa, 0xed, 0xfe],
    [0xcf, 0xfa, 0xed, 0xfe],
    [0xca, 0xfe, 0xba, 0xbe],
];

/// What tells whether a file may travel.
pub(crate) struct Sample {
    head: Vec<u8>,
    last: Option<u8>,
    size: u64,
}

impl Sample {
    pub(crate) fn of_file(section: &FileSection) -> io::Result<Self> {
        let last = section.bytes(section.size.saturating_sub(1), 1)?.first().copied();
        Ok(Self { head: section.bytes(0, HEAD)?, last, size: section.size })
    }

    pub(crate) fn of_bytes(bytes: &[u8]) -> Self {
        let head = bytes[..bytes.len().min(HEAD as usize)].to_owned();
        Self { head, last: bytes.last().copied(), size: bytes.len() as u64 }
    }

    /// Refuses a file by its name and its content.
    pub(crate) fn check(&self, path: &str) -> Result<(), BundleFault> {
        let found = by_content(&self.head, self.last, self.size).or_else(|| by_name(path));
        let fault = |(what, instead)| BundleFault::Forbidden { path: path.to_owned(), what, instead };
        found.map_or(Ok(()), |found| Err(fault(found)))
    }
}

type Finding = (&'static str, &'static str);

fn by_name(path: &str) -> Option<Finding> {
    let extension = path.rsplit_once('.').map_or("", |(_, extension)| extension).to_lowercase();
    match &*extension {
        "cwasm" => Some(("a compiled component", COMPILE)),
        "ort" => Some(("a model in ONNX Runtime's own format", EXPORT)),
        "pkl" | "pickle" | "joblib" => Some(("a Python pickle", EXPORT)),
        "so" | "dll" | "dylib" | "exe" => Some(("a program or a library", SOURCE)),
        _ => None,
    }
}

fn by_content(head: &[u8], last: Option<u8>, size: u64) -> Option<Finding> {
    if head.starts_with(b"\x7fELF") {
        // wasmtime's compiled components are ELF files, too.
        return Some(("machine code (ELF)", SOURCE));
    }
    if head.get(..4).is_some_and(|first| MACH_O.iter().any(|magic| magic == first)) {
        return Some(("machine code (Mach-O)", SOURCE));
    }
    if is_pe(head) {
        return Some(("machine code (PE)", SOURCE));
    }
    if head.get(4..8) == Some(b"ORTM") {
        return Some(("a model in ONNX Runtime's own format", EXPORT));
    }
    if is_pickle(head, last, size) || head.starts_with(OLD_TORCH) || is_zip_of_pickle(head) || is_array_of_objects(head)
    {
        return Some(("a Python pickle", EXPORT));
    }
    None
}

fn is_pe(head: &[u8]) -> bool {
    let Some(place) = head.get(60..64).filter(|_| head.starts_with(b"MZ")) else { return false };
    let place = u32::from_le_bytes([place[0], place[1], place[2], place[3]]) as usize;
    place.checked_add(4).and_then(|end| head.get(place..end)) == Some(b"PE\0\0")
}

/// Weights may begin like a pickle by chance: the opcode that must follow, and the one at the end, make it certain.
fn is_pickle(head: &[u8], last: Option<u8>, size: u64) -> bool {
    const PROTOCOL: u8 = 0x80;
    const FRAME: u8 = 0x95;
    const STOP: u8 = b'.';
    let [PROTOCOL, version, opcode, rest @ ..] = head else { return false };
    match version {
        2 | 3 => last == Some(STOP) && b"(]})}cXKMGNlt\x88\x89\x8a".contains(opcode),
        4 | 5 if *opcode == FRAME => {
            rest.get(..8).and_then(|frame| frame.try_into().ok()).is_some_and(|frame| u64::from_le_bytes(frame) < size)
        }
        _ => false,
    }
}

/// What PyTorch saved before 1.6: a pickle of this number comes first.
const OLD_TORCH: &[u8] = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.";

/// NumPy pickles the elements of such an array.
fn is_array_of_objects(head: &[u8]) -> bool {
    const DESCR: &[u8] = b"'descr': '|O'";
    head.starts_with(b"\x93NUMPY") && head.windows(DESCR.len()).any(|part| part == DESCR)
}

/// What PyTorch saves.
fn is_zip_of_pickle(head: &[u8]) -> bool {
    const NAME: &[u8] = b"/data.pkl";
    head.starts_with(b"PK\x03\x04") && head.windows(NAME.len()).any(|part| part == NAME)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn what(bytes: &[u8]) -> Option<&'static str> {
        by_content(bytes, bytes.last().copied(), bytes.len() as u64).map(|(what, _)| what)
    }

    #[test]
    fn tells_code_by_content() {
        let mut pe = b"MZ".to_vec();
        pe.resize(60, 0);
        pe.extend([64, 0, 0, 0]);
        pe.extend(b"PE\0\0");
        for (bytes, expected) in [
            (&b"\x7fELF\x02\x01\x01"[..], "machine code (ELF)"),
            (b"\xcf\xfa\xed\xfe\x07", "machine code (Mach-O)"),
            (&pe, "machine code (PE)"),
            (b"\x18\0\0\0ORTM\0\0", "a model in ONNX Runtime's own format"),
            // python3 -c 'import pickle; …dumps({"a": 1}, N)'
            (b"\x80\x02}q\x00X\x01\x00\x00\x00aq\x01K\x01s.", "a Python pickle"),
            (b"\x80\x04\x95\n\0\0\0\0\0\0\0}\x94\x8c\x01a\x94K\x01s.", "a Python pickle"),
            (b"PK\x03\x04\0\0\x08\x08\0\0archive/data.pklFB", "a Python pickle"),
            // torch.save({}, …, _use_new_zipfile_serialization=False)
            (b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.", "a Python pickle"),
            // numpy.save(…, numpy.array([None]))
            (b"\x93NUMPY\x01\0v\0{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", "a Python pickle"),
        ] {
            assert_eq!(what(bytes), Some(expected), "{bytes:?}");
        }
    }

    #[test]
    fn takes_what_only_looks_like_code() {
        for bytes in [
            &b""[..],
            b"MZ is how this text begins",
            b"\0asm\x0d\0\x01\0",
            b"\x80\x02\x13\x3fweights",
            b"\x80\x04\x13\x3fweights",
            b"PK\x03\x04\0\0\0\0array.npy",
            b"\x08\x08\x12\x07pytorch",
            b"\x93NUMPY\x01\0v\0{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }",
        ] {
            assert_eq!(what(bytes), None, "{bytes:?}");
        }
        assert_eq!(by_name("a/model.CWASM").map(|(what, _)| what), Some("a compiled component"));
        assert_eq!(by_name("model.onnx"), None);
        assert_eq!(by_name("LICENSE"), None);
    }
}
