//! Rectangles and text on an RGB picture.

use font8x8::UnicodeFonts;

use super::dims::ImageDims;

/// Rows and columns of a letter, before it is enlarged.
pub(super) const LETTER: usize = 8;

/// An RGB picture that is drawn on. What lies outside of it is left out.
pub(super) struct Canvas<'a> {
    pixels: &'a mut [u8],
    dims: ImageDims,
}

/// A rectangle in pixels: left, top, right and bottom, the last two outside of it.
pub(super) type Rectangle = [i64; 4];

impl<'a> Canvas<'a> {
    /// `pixels` are those of an RGB image of size `dims`.
    pub(super) const fn new(pixels: &'a mut [u8], dims: ImageDims) -> Self {
        Self { pixels, dims }
    }

    pub(super) fn fill(&mut self, [left, top, right, bottom]: Rectangle, color: [u8; 3]) {
        let [left, right] = [left, right].map(|x| x.clamp(0, self.dims.width as i64) as usize);
        let [top, bottom] = [top, bottom].map(|y| y.clamp(0, self.dims.height as i64) as usize);
        for row in top..bottom.max(top) {
            let row = &mut self.pixels[row * self.dims.width * 3..][left * 3..right.max(left) * 3];
            row.as_chunks_mut::<3>().0.fill(color);
        }
    }

    /// The outline of `area`, `thickness` pixels wide, inside of it.
    pub(super) fn outline(&mut self, [left, top, right, bottom]: Rectangle, thickness: i64, color: [u8; 3]) {
        self.fill([left, top, right, bottom.min(top + thickness)], color);
        self.fill([left, top.max(bottom - thickness), right, bottom], color);
        self.fill([left, top, right.min(left + thickness), bottom], color);
        self.fill([left.max(right - thickness), top, right, bottom], color);
    }

    /// Text from its top left corner on, each dot of a letter `scale` pixels wide. A letter that the
    /// font lacks is a question mark.
    pub(super) fn text(&mut self, text: &str, left: i64, top: i64, scale: i64, color: [u8; 3]) {
        for (index, letter) in text.chars().enumerate() {
            let left = left + (index * LETTER) as i64 * scale;
            for (y, dots) in (0..).zip(glyph(letter)) {
                for x in (0..8).filter(|x| dots >> x & 1 == 1) {
                    let (left, top) = (left + x * scale, top + y * scale);
                    self.fill([left, top, left + scale, top + scale], color);
                }
            }
        }
    }
}

fn glyph(letter: char) -> [u8; 8] {
    let fonts: [&dyn Fn(char) -> Option<[u8; 8]>; 5] = [
        &|letter| font8x8::BASIC_FONTS.get(letter),
        &|letter| font8x8::LATIN_FONTS.get(letter),
        &|letter| font8x8::GREEK_FONTS.get(letter),
        &|letter| font8x8::HIRAGANA_FONTS.get(letter),
        &|letter| font8x8::BOX_FONTS.get(letter),
    ];
    let known = fonts.iter().find_map(|font| font(letter));
    known.or_else(|| font8x8::BASIC_FONTS.get('?')).unwrap_or_default()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn clips_to_the_image() {
        let dims = ImageDims { height: 4, width: 5, channels: 3 };
        for area in [[-9, -9, 99, 99], [3, 3, 1, 1], [9, 9, 10, 10], [i64::MIN / 4, 0, i64::MAX / 4, 1]] {
            let mut pixels = vec![0; 4 * 5 * 3];
            let mut canvas = Canvas::new(&mut pixels, dims);
            canvas.fill(area, [1, 2, 3]);
            canvas.outline(area, 2, [1, 2, 3]);
            canvas.text("a\u{1f600}é", area[0], area[1], 3, [1, 2, 3]);
        }
    }

    #[test]
    fn outlines_keep_the_inside() {
        let mut pixels = vec![0; 5 * 5 * 3];
        Canvas::new(&mut pixels, ImageDims { height: 5, width: 5, channels: 3 }).outline([0, 0, 5, 5], 1, [9; 3]);
        let drawn = pixels.chunks(3).filter(|pixel| *pixel == [9; 3]).count();
        assert_eq!(drawn, 16);
        assert_eq!(pixels[(2 * 5 + 2) * 3], 0);
    }
}
