//! Whole files: Pillow's pixels, damaged files, cancellation, memory.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::cell::Cell;

use super::{Decoder, Error, PixelFormat};

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/reference/builtin/");

fn fixture(path: &str) -> Vec<u8> {
    std::fs::read(format!("{FIXTURES}{path}")).unwrap()
}

/// Numbers below a bound, the same in every run.
pub(crate) fn random() -> impl FnMut(usize) -> usize {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    }
}

#[test]
fn decodes_to_pixels_of_pillow() {
    let mut files = 0;
    for folder in ["decode/", "image/decode/"] {
        let index: serde_json::Value = serde_json::from_slice(&fixture(&format!("{folder}index.json"))).unwrap();
        // Those with Exif data were rotated.
        let jpeg = |name: &&String| name.contains(".jpg") && (!name.starts_with("exif") || *name == "exif-1.jpg");
        for name in index.as_object().unwrap().keys().filter(jpeg) {
            let bytes = fixture(&format!("{folder}{name}"));
            let decoder = Decoder::new(&bytes).unwrap();
            let info = decoder.info();
            assert_eq!(
                [info.width, info.height],
                ["width", "height"].map(|side| index[name][side].as_u64().unwrap() as u16)
            );
            let mut pixels = decoder.decode().unwrap();
            if info.format == PixelFormat::Gray {
                pixels = pixels.into_iter().flat_map(|gray| [gray; 3]).collect();
            }
            // Bytes stored as a gray PNG; RGB comes first.
            let packed = image::load_from_memory(&fixture(&format!("{folder}{name}.pixels.png"))).unwrap();
            assert!(pixels == packed.into_luma8().as_raw()[..pixels.len()], "{name}");
            files += 1;
        }
    }
    assert!(files > 40, "{files}");
}

#[test]
fn returns_exif_data_and_xmp() {
    let oriented = fixture("decode/exif-6.jpg");
    assert!(Decoder::new(&oriented).unwrap().exif().unwrap().starts_with(b"MM\0*"));
    let plain = fixture("decode/photo.jpg");
    let plain = Decoder::new(&plain).unwrap();
    assert_eq!((plain.exif(), plain.xmp()), (None, None));
    let described = fixture("image/decode/exif-xmp-attribute.jpg");
    assert!(Decoder::new(&described).unwrap().xmp().unwrap().starts_with(b"<x:xmpmeta"));
}

#[test]
fn rejects_truncated_files() {
    for name in ["decode/photo.jpg", "decode/progressive.jpg"] {
        let bytes = fixture(name);
        for length in 0..bytes.len() - 1 {
            let decoded = Decoder::new(&bytes[..length]).and_then(|decoder| decoder.decode());
            assert!(matches!(decoded, Err(Error::Damaged(_))), "{name}: {length} of {}", bytes.len());
        }
    }
}

#[test]
fn rejects_unsupported_coding() {
    let bytes = fixture("decode/photo.jpg");
    let frame = bytes.windows(2).position(|pair| pair == [0xff, 0xc0]).unwrap();
    for (at, byte, reason) in [(1, 0xc3, "lossless"), (1, 0xc9, "arithmetic"), (4, 12, "12 bits")] {
        let mut bytes = bytes.clone();
        bytes[frame + at] = byte;
        let error = Decoder::new(&bytes).err().unwrap();
        assert!(matches!(&error, Error::Unsupported(message) if message.contains(reason)), "{error}");
    }
}

#[test]
fn mutated_files_never_panic() {
    let mut random = random();
    for name in ["420-33x17.jpg", "420-33x17-progressive.jpg", "411-33x17.jpg", "cmyk.jpg", "unfinished-16x40-4.jpg"] {
        let whole = fixture(&format!("image/decode/{name}"));
        for _ in 0..300 {
            let mut bytes = whole.clone();
            for _ in 0..=random(6) {
                let at = random(bytes.len());
                bytes[at] = [0, 0xff, random(256) as u8, bytes[at] ^ (1 << random(8))][random(4)];
            }
            let Ok(decoder) = Decoder::new(&bytes) else { continue };
            if decoder.info().byte_len() < 1 << 20 {
                let _ = decoder.decode();
            }
        }
    }
}

#[test]
fn ends_at_every_cancellation_check() {
    for name in ["decode/photo.jpg", "decode/progressive.jpg"] {
        let bytes = fixture(name);
        let decoder = Decoder::new(&bytes).unwrap();
        let mut pixels = vec![0; decoder.info().byte_len()];
        let mut decode = |limit: usize| {
            let checks = Cell::new(0);
            let result = decoder.decode_into(&mut pixels, &|| checks.replace(checks.get() + 1) >= limit);
            (result, checks.get())
        };
        let (result, checks) = decode(usize::MAX);
        assert_eq!(result, Ok(()));
        assert!(checks > 10, "{name}: {checks}");
        for limit in 0..checks {
            assert_eq!(decode(limit), (Err(Error::Cancelled), limit + 1));
        }
    }
}

#[test]
fn rejects_buffers_of_wrong_length() {
    let bytes = fixture("decode/one.jpg");
    let decoder = Decoder::new(&bytes).unwrap();
    let expected = decoder.info().byte_len();
    let error = decoder.decode_into(&mut vec![0; expected + 1], &|| false);
    assert_eq!(error, Err(Error::BufferLength { expected, found: expected + 1 }));
}

#[test]
fn memory_covers_planes_and_coefficients() {
    let (sequential, progressive) = (fixture("decode/photo.jpg"), fixture("decode/progressive.jpg"));
    let planes = |bytes: &[u8]| Decoder::new(bytes).unwrap().memory() - 2 * bytes.len() as u64;
    // 51 × 45 pixels, 4:2:0: 4 × 3 MCUs of six blocks.
    assert_eq!(planes(&sequential), 4 * 3 * 6 * 64);
    assert_eq!(planes(&progressive), 3 * planes(&sequential));
}
