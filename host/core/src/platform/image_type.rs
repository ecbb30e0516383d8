//! Images and sounds, by their first bytes.

/// The media type of an image, by its first bytes.
pub fn image_type(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x89, b'P', b'N', b'G', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        [b'B', b'M', ..] => Some("image/bmp"),
        _ => None,
    }
}

/// "a PNG image", "a WAV file" …: what a file with these first bytes is, if it is an image or a sound.
pub fn media_file(head: &[u8]) -> Option<&'static str> {
    match image_type(head) {
        Some("image/png") => return Some("a PNG image"),
        Some("image/jpeg") => return Some("a JPEG image"),
        Some("image/gif") => return Some("a GIF image"),
        Some("image/webp") => return Some("a WebP image"),
        // `BM` begins many a text.
        _ => {}
    }
    match head {
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'A', b'V', b'E', ..] => Some("a WAV file"),
        [b'f', b'L', b'a', b'C', ..] => Some("a FLAC file"),
        [b'O', b'g', b'g', b'S', ..] => Some("an Ogg file"),
        [b'I', b'D', b'3', ..] | [0xff, 0xfb, ..] => Some("an MP3 file"),
        [b'%', b'P', b'D', b'F', ..] => Some("a PDF document"),
        _ => None,
    }
}
