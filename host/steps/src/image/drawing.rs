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

    /// A line, `thickness` pixels wide.
    pub(super) fn line(&mut self, from: [f64; 2], to: [f64; 2], thickness: i64, color: [u8; 3]) {
        let sides = [self.dims.width, self.dims.height].map(|side| side as f64 + thickness as f64);
        let Some([start, end]) = visible_part(from, to, -thickness as f64, sides) else { return };
        let length = (end[0] - start[0]).abs().max((end[1] - start[1]).abs()).ceil().max(1.0);
        for step in 0..=length as usize {
            let at = |axis: usize| start[axis] + (end[axis] - start[axis]) * step as f64 / length;
            let [left, top] = [at(0), at(1)].map(|number| number.round() as i64 - thickness / 2);
            self.fill([left, top, left + thickness, top + thickness], color);
        }
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

/// The part of a line with coordinates from `least` to `most`, if there is one (Liang and Barsky).
fn visible_part(from: [f64; 2], to: [f64; 2], least: f64, most: [f64; 2]) -> Option<[[f64; 2]; 2]> {
    let (mut first, mut last) = (0.0_f64, 1.0_f64);
    for axis in 0..2 {
        let run = to[axis] - from[axis];
        let ends = [(least - from[axis]) / run, (most[axis] - from[axis]) / run];
        if run == 0.0 {
            if !(least..=most[axis]).contains(&from[axis]) {
                return None;
            }
        } else {
            first = first.max(ends[0].min(ends[1]));
            last = last.min(ends[0].max(ends[1]));
        }
    }
    let at = |share: f64| [0, 1].map(|axis| from[axis] + (to[axis] - from[axis]) * share);
    (first <= last).then(|| [at(first), at(last)])
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
            let [left, top, right, bottom] = area.map(|number| number as f64);
            canvas.line([left, top], [right, bottom], 3, [1, 2, 3]);
            canvas.line([right, top], [right, bottom], 50, [1, 2, 3]);
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
