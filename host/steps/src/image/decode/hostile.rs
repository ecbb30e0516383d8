//! Files whose headers claim more than they hold, for each format, and files with changed bytes.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use serde_json::json;

use super::Format;
use crate::deadline::Deadline;
use crate::reference::{random, read, step};
use gpux_core::{Context, StepFailure, Tensor};

fn decode(bytes: &[u8], max_pixels: u64) -> Result<Tensor, StepFailure> {
    let decode = step("decode-image", json!({ "max_pixels": max_pixels }));
    let mut values = decode.run(vec![Some(bytes.to_vec().into())], &mut Context::default())?;
    Ok(values.remove(0).as_tensor().unwrap().clone())
}

fn refusal(bytes: &[u8]) -> String {
    match decode(bytes, 64 << 20) {
        Err(StepFailure::InvalidInput(message)) => message,
        other => panic!("{other:?}"),
    }
}

fn file(name: &str) -> Vec<u8> {
    read(&format!("image/decode/{name}"))
}

fn patched(mut bytes: Vec<u8>, at: usize, with: &[u8]) -> Vec<u8> {
    bytes[at..at + with.len()].copy_from_slice(with);
    bytes
}

/// Where the value of a tag lies in a little-endian TIFF.
fn tag(tiff: &[u8], number: u16) -> usize {
    let directory = u32::from_le_bytes(tiff[4..8].try_into().unwrap()) as usize;
    let count = usize::from(u16::from_le_bytes([tiff[directory], tiff[directory + 1]]));
    let entries = (0..count).map(|index| directory + 2 + index * 12);
    entries.clone().find(|at| tiff[*at..*at + 2] == number.to_le_bytes()).unwrap() + 8
}

/// The file with width and height set to these.
fn claiming(name: &str, width: u32, height: u32) -> Vec<u8> {
    let bytes = file(name);
    let short = |number: u32| u16::try_from(number).unwrap().to_le_bytes();
    let sides = [short(width.min(65535)), short(height.min(65535))].concat();
    match name.split('.').next_back().unwrap() {
        "gif" => patched(bytes, 6, &sides),
        "bmp" => patched(bytes, 18, &[width.to_le_bytes(), height.to_le_bytes()].concat()),
        "tiff" => {
            // Width, height and the rows of a strip, as longs, whatever they were.
            [(256, width), (257, height), (278, height)].into_iter().fold(bytes, |bytes, (number, value)| {
                let at = tag(&bytes, number);
                patched(patched(bytes, at - 6, &[4, 0]), at, &value.to_le_bytes())
            })
        }
        other => panic!("{other}"),
    }
}

#[test]
fn rejects_extreme_sizes_in_every_format() {
    for name in ["rgb.gif", "rgb.bmp", "rle8.bmp", "raw.tiff", "lzw.tiff", "deflate.tiff"] {
        let message = refusal(&claiming(name, 60_000, 60_000));
        assert!(message.contains("60000 × 60000 pixels; at most"), "{name}: {message}");
    }
    for (name, at, sides) in [
        // The canvas, one less, and the frame of a file without one.
        ("exif-3.webp", 24, [0x5f, 0xea, 0, 0x5f, 0xea, 0].as_slice()),
        ("lossy.webp", 26, &[0xff, 0x3f, 0xff, 0x3f]),
        ("lossless.webp", 21, &[0xfe, 0xbf, 0xff, 0x0f]),
    ] {
        let message = refusal(&patched(file(name), at, sides));
        assert!(message.contains("at most 67108864"), "{name}: {message}");
    }
    let jpeg = read("decode/photo.jpg");
    let frame = jpeg.windows(2).position(|pair| pair == [0xff, 0xc0]).unwrap() + 5;
    let message = refusal(&patched(jpeg, frame, &[0xff; 4]));
    assert!(message.contains("65535 × 65535 pixels; at most"), "{message}");
}

#[test]
fn rejects_files_too_short_for_their_size_before_allocating() {
    for name in ["rgb.bmp", "gray.bmp", "16bit.bmp", "raw.tiff", "lzw.tiff", "deflate.tiff"] {
        let message = refusal(&claiming(name, 8000, 8000));
        assert!(message.contains("too short for its 8000 × 8000 pixels"), "{name}: {message}");
    }
}

#[test]
fn rejects_frames_larger_than_their_canvas() {
    let gif = file("rgb.gif");
    let frame = gif.windows(9).position(|block| block[0] == 0x2c && block[1..5] == [0; 4]).unwrap();
    refusal(&patched(gif, frame + 5, &[0xff; 4]));
    for (name, chunk, at, sides) in [
        ("lossy-alpha.webp", *b"VP8 ", 14, [0xff, 0x3f, 0xff, 0x3f].as_slice()),
        ("exif-3.webp", *b"VP8L", 9, &[0xff, 0xff, 0xff, 0x0f]),
        ("animated.webp", *b"VP8L", 9, &[0xff, 0xff, 0xff, 0x0f]),
    ] {
        let bytes = file(name);
        let start = bytes.windows(4).position(|name| *name == chunk).unwrap();
        let message = refusal(&patched(bytes, start + at, sides));
        assert!(message.contains("a frame is 16383 ×") || message.contains("a frame is 16384 ×"), "{name}: {message}");
    }
}

#[test]
fn rejects_huge_strips_tiles_and_counts() {
    let tiff = file("lzw.tiff");
    for (number, value) in [(278, u32::MAX), (279, u32::MAX), (273, u32::MAX), (258, 60_000), (277, 60_000)] {
        let at = tag(&tiff, number);
        let _ = decode(&patched(tiff.clone(), at, &value.to_le_bytes()), 1 << 20);
        // As many values as the tag can claim.
        let _ = decode(&patched(tiff.clone(), at - 4, &u32::MAX.to_le_bytes()), 1 << 20);
    }
    // A directory of 65535 entries, and one that lies in itself.
    let directory = u32::from_le_bytes(tiff[4..8].try_into().unwrap()) as usize;
    refusal(&patched(tiff.clone(), directory, &[0xff; 2]));
    let end = directory + 2 + 12 * usize::from(tiff[directory]);
    let _ = decode(&patched(tiff.clone(), end, &(directory as u32).to_le_bytes()), 1 << 20);
}

#[test]
fn rejects_truncated_files() {
    for name in ["lossless.webp", "lossy.webp", "rgb.gif", "rgb.bmp", "raw.tiff", "lzw.tiff"] {
        let whole = file(name);
        for length in (0..whole.len() - 40).step_by(13) {
            let refused = matches!(decode(&whole[..length], 1 << 20), Err(StepFailure::InvalidInput(_)));
            assert!(refused, "{name}: {length} of {}", whole.len());
        }
    }
}

#[test]
fn mutated_files_never_panic() {
    let mut random = random();
    let names = [
        "420-33x17.jpg",
        "420-33x17-progressive.jpg",
        "411-33x17.jpg",
        "cmyk.jpg",
        "lossless.webp",
        "lossy-alpha.webp",
        "animated-lossy.webp",
        "exif-6.webp",
        "interlaced.gif",
        "animated.gif",
        "palette.bmp",
        "565.bmp",
        "rle8.bmp",
        "rle4-skips.bmp",
        "os2-rle8.bmp",
        "exif-profile.png",
        "exif-xmp-packed.png",
        "exif-xmp-attribute.jpg",
        "unfinished-16x40-4.jpg",
        "predictor.tiff",
        "strips.tiff",
        "bits.tiff",
        "cmyk.tiff",
        "exif-6.tiff",
        "reversed-lzw.tiff",
        "big-lzw.tiff",
        "jpeg-strips.tiff",
        "jpeg-tiles-ycbcr.tiff",
    ];
    for name in names {
        let whole = file(name);
        for _ in 0..150 {
            let mut bytes = whole.clone();
            for _ in 0..=random(6) {
                let near = if random(2) == 0 { 80 } else { usize::MAX };
                let from_end = random(3) == 0;
                let at = random(bytes.len().min(near));
                let at = if from_end { bytes.len() - 1 - at } else { at };
                bytes[at] = [0, 0xff, random(256) as u8, bytes[at] ^ (1 << random(8))][random(4)];
            }
            match decode(&bytes, 1 << 20) {
                Ok(tensor) => assert_eq!(tensor.shape()[2], 3),
                Err(error) => assert!(matches!(error, StepFailure::InvalidInput(_)), "{name}: {error}"),
            }
        }
    }
}

/// Errors name the kinds of samples that Pillow reads and gpux does not.
#[test]
fn names_unsupported_samples() {
    let raw = file("raw.tiff");
    for (photometric, name) in [(3_u32, "colours are those of a palette"), (6, "colours are YCbCr"), (8, "CIE L*a*b*")]
    {
        let message = refusal(&patched(raw.clone(), tag(&raw, 262), &photometric.to_le_bytes()));
        assert!(message.contains(name) && !message.contains("damaged"), "{message}");
    }
    for (method, name) in [(3_u32, "CCITT Group 3"), (50_000, "Zstandard"), (12_345, "the method 12345")] {
        let message = refusal(&patched(raw.clone(), tag(&raw, 259), &method.to_le_bytes()));
        assert!(message.contains(name) && !message.contains("damaged"), "{message}");
    }
}

/// Tiles of separate colours, of which `tiff` finds the last row only for the first colour.
#[test]
fn rejects_tiles_of_separate_colors_below_the_picture() {
    let mut tiled = file("jpeg-tiles-rgb.tiff");
    let (planar, method) = (tag(&tiled, 284), tag(&tiled, 259));
    (tiled[planar], tiled[method]) = (2, 1);
    assert!(refusal(&tiled).contains("tiles of their own that reach below the picture"));
}

#[test]
fn names_bitmaps_of_os2() {
    let os2 = file("os2.bmp");
    assert!(refusal(&patched(os2.clone(), 30, &[3])).contains("packed by a method of OS/2 (3)"));
    assert!(refusal(&patched(os2.clone(), 14, &[16])).contains("its header has 16 bytes"));
    let runs = file("rle8-skips.bmp");
    assert!(refusal(&runs[..runs.len() - 16]).contains("its runs end after"));
}

/// Black, as small as the format can make it.
fn bomb(format: image::ImageFormat) -> Vec<u8> {
    let mut bytes = std::io::Cursor::new(Vec::new());
    image::RgbImage::new(1500, 1500).write_to(&mut bytes, format).unwrap();
    bytes.into_inner()
}

#[test]
fn decompression_bombs_stop_at_the_deadline() {
    use image::ImageFormat::{Bmp, Gif, Jpeg, Png, Tiff};
    for format in [Png, Gif, Bmp, Jpeg, Tiff] {
        let bomb = bomb(format);
        let decode = |deadline: &Deadline| Format::detect(&bomb).unwrap().open(&bomb, deadline)?.decode();
        let whole = decode(&Deadline::default()).unwrap();
        assert_eq!((whole.width(), whole.height()), (1500, 1500), "{format:?}");
        // Each check comes before more of the image, so a deadline after a few checks stops it.
        for times in [0, 1, 3, 6] {
            let deadline = Deadline::exceeded_after(times);
            let error = decode(&deadline).unwrap_err();
            assert!(
                deadline.check_cached().is_err() && error.contains("the request's timeout passed"),
                "{format:?}: {error}"
            );
        }
    }
}

#[test]
fn many_tables_stop_at_the_deadline() {
    let mut file = std::io::Cursor::new(Vec::new());
    image::RgbImage::new(8, 8).write_to(&mut file, image::ImageFormat::Jpeg).unwrap();
    let mut file = file.into_inner();
    let at = file.windows(2).position(|two| two == [0xff, 0xc4]).unwrap();
    let length = 2 + usize::from(u16::from_be_bytes([file[at + 2], file[at + 3]]));
    let tables = file[at..at + length].repeat(50);
    file.splice(at..at, tables);
    let decode = |deadline: &Deadline| Format::Jpeg.open(&file, deadline)?.decode();
    assert!(decode(&Deadline::default()).is_ok());
    let deadline = Deadline::exceeded_after(20);
    assert!(decode(&deadline).is_err() && deadline.check_cached().is_err());
}

/// The decoder of WebP cannot be stopped, so what cannot end in time is not begun.
#[test]
fn webp_is_not_started_without_enough_time() {
    let mut webp = std::io::Cursor::new(Vec::new());
    image::RgbImage::new(2000, 2000).write_to(&mut webp, image::ImageFormat::WebP).unwrap();
    let decode = step("decode-image", json!({}));
    let run = |left: std::time::Duration| {
        let deadline = Some(std::time::Instant::now() + left);
        decode.run(vec![Some(webp.get_ref().clone().into())], &mut Context { deadline, ..Context::default() })
    };
    assert_eq!(run(std::time::Duration::from_millis(10)), Err(StepFailure::Timeout));
    assert!(run(std::time::Duration::from_mins(10)).is_ok());
}
