//! Bytes to normalized floats, as fast as a sandbox allows: plain Rust that knows nothing of gpux.

/// Elements that are worked on in one straight line.
pub const PIXELS: usize = 32;
/// Their bytes.
pub const BYTES: usize = 3 * PIXELS;

/// What each channel's bytes are multiplied by, and what is added then.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Factors {
    /// for red, green and blue
    pub multiply: [f32; 3],
    /// for red, green and blue
    pub add: [f32; 3],
}

impl Factors {
    /// `(byte / 255 - mean) / std`.
    pub fn new(mean: [f64; 3], std: [f64; 3]) -> Self {
        let each = |f: fn(f64, f64) -> f64| std::array::from_fn(|channel| f(mean[channel], std[channel]) as f32);
        Self { multiply: each(|_, std| 1.0 / (255.0 * std)), add: each(|mean, std| -mean / std) }
    }

    /// Interleaved pixels, in the same order. `bytes` and `floats` begin with a pixel's red.
    pub fn interleaved(&self, bytes: &[u8], floats: &mut [f32]) {
        // Three lines of 32 begin with red, blue and green again.
        let lines: [Line; 3] = std::array::from_fn(|line| Line {
            multiply: std::array::from_fn(|place| self.multiply[(line * PIXELS + place) % 3]),
            add: std::array::from_fn(|place| self.add[(line * PIXELS + place) % 3]),
        });
        let (chunks, rest) = bytes.as_chunks::<PIXELS>();
        let (into, into_rest) = floats.as_chunks_mut::<PIXELS>();
        for ((bytes, floats), line) in chunks.iter().zip(into).zip(lines.iter().cycle()) {
            for place in 0..PIXELS {
                floats[place] = f32::from(bytes[place]) * line.multiply[place] + line.add[place];
            }
        }
        let line = &lines[chunks.len() % 3];
        for (place, (byte, float)) in rest.iter().zip(into_rest).enumerate() {
            *float = f32::from(*byte) * line.multiply[place] + line.add[place];
        }
    }

    /// One channel of interleaved pixels.
    pub fn plane(&self, channel: usize, bytes: &[u8], floats: &mut [f32]) {
        let (multiply, add) = (self.multiply[channel], self.add[channel]);
        let (chunks, rest) = bytes.as_chunks::<BYTES>();
        let (into, into_rest) = floats.as_chunks_mut::<PIXELS>();
        for (bytes, floats) in chunks.iter().zip(into) {
            for pixel in 0..PIXELS {
                floats[pixel] = f32::from(bytes[pixel * 3 + channel]) * multiply + add;
            }
        }
        for (pixel, float) in rest.chunks_exact(3).zip(into_rest) {
            *float = f32::from(pixel[channel]) * multiply + add;
        }
    }
}

/// The factors of 32 elements in a row.
struct Line {
    multiply: [f32; PIXELS],
    add: [f32; PIXELS],
}
