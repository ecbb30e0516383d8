//! Bytes to normalized floats, as fast as a sandbox allows: plain Rust that knows nothing of gpux.

/// Pixels that are worked on in one straight line.
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
        let multiply: [f32; BYTES] = std::array::from_fn(|place| self.multiply[place % 3]);
        let add: [f32; BYTES] = std::array::from_fn(|place| self.add[place % 3]);
        let (chunks, rest) = bytes.as_chunks::<BYTES>();
        let (into, into_rest) = floats.as_chunks_mut::<BYTES>();
        for (bytes, floats) in chunks.iter().zip(into) {
            for place in 0..BYTES {
                floats[place] = f32::from(bytes[place]) * multiply[place] + add[place];
            }
        }
        for (place, (byte, float)) in rest.iter().zip(into_rest).enumerate() {
            *float = f32::from(*byte) * multiply[place] + add[place];
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
