//! Files of a picture and a sound where there are none.

/// A dark disc on a light gradient, 640 × 480 pixels, as BMP, uncompressed.
/// <https://learn.microsoft.com/windows/win32/gdi/bitmap-storage>
pub fn synthetic_image() -> Vec<u8> {
    const WIDTH: u32 = 640;
    const HEIGHT: u32 = 480;
    /// Bytes of both headers, and of the second.
    const HEADERS: u32 = 54;
    const INFO: u32 = 40;
    let pixels = WIDTH * HEIGHT * 3;
    let mut file = b"BM".to_vec();
    // Of the second header: its length, the size, one plane of 24 bits, and no compression, palette or resolution.
    let fields = [HEADERS + pixels, 0, HEADERS, INFO, WIDTH, HEIGHT, 1 | 24 << 16, 0, pixels, 0, 0, 0, 0];
    file.extend(fields.into_iter().flat_map(u32::to_le_bytes));
    let pixel = |at: u32| {
        let (x, y) = (at % WIDTH, at / WIDTH);
        let is_disc = x.abs_diff(WIDTH / 2).pow(2) + y.abs_diff(HEIGHT / 2).pow(2) < (HEIGHT / 4).pow(2);
        let light = [155 + x * 100 / WIDTH, 155 + y * 100 / HEIGHT, 205 + at % 51];
        light.map(|part| if is_disc { (255 - part) as u8 } else { part as u8 })
    };
    file.extend((0..WIDTH * HEIGHT).flat_map(pixel));
    file
}

/// A second of a tone of 440 Hz as WAV: 16 kHz, mono, 16 bits.
/// <https://www.mmsp.ece.mcgill.ca/Documents/AudioFormats/WAVE/WAVE.html>
pub fn synthetic_audio() -> Vec<u8> {
    const RATE: u32 = 16_000;
    /// Bytes of the headers after the first field, and of the description of the format.
    const HEADERS: u32 = 36;
    const FORMAT: u32 = 16;
    let words = |numbers: &[u32]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<_>>();
    let mut file = b"RIFF".to_vec();
    file.extend(words(&[HEADERS + 2 * RATE]));
    file.extend(b"WAVEfmt ");
    // PCM with one channel; its rate, bytes a second, and bytes and bits a sample.
    file.extend(words(&[FORMAT, 1 | 1 << 16, RATE, 2 * RATE, 2 | 16 << 16]));
    file.extend(b"data");
    file.extend(words(&[2 * RATE]));
    let sample = |at: u32| (f64::from(at) / f64::from(RATE) * 440.0 * std::f64::consts::TAU).sin();
    file.extend((0..RATE).flat_map(|at| ((sample(at) * 16_000.0) as i16).to_le_bytes()));
    file
}
