//! The orientation in Exif data or XMP, and how it is applied.

use image::metadata::Orientation;

use super::directory::Directory;
use crate::deadline::{Deadline, DeadlineExceeded};

/// The tag of Exif data.
const ORIENTATION: u16 = 0x0112;

/// The orientation of a picture, by the rules of Pillow's `exif_transpose`: the Exif tag, of any type of numbers; XMP
/// where there is no such tag.
pub(super) fn orientation(exif: Option<&[u8]>, xmp: Option<&[u8]>) -> Orientation {
    const PREFIX: &[u8] = b"Exif\0\0";
    let exif = exif.map(|exif| exif.strip_prefix(PREFIX).unwrap_or(exif));
    let exif = exif.map(|exif| exif.strip_prefix(PREFIX).unwrap_or(exif));
    let number = match exif.and_then(Directory::first).and_then(|directory| directory.field(ORIENTATION)) {
        Some(field) if field.is_bytes() => None,
        Some(field) => field.numbers().next(),
        None => xmp.and_then(orientation_of_xmp),
    };
    // Of what lies between two orientations, none.
    let number = number.filter(|number| number.fract() == 0.0);
    number.and_then(|number| Orientation::from_exif(number as u8)).unwrap_or(Orientation::NoTransforms)
}

/// The number in the first attribute or element `tiff:Orientation`.
fn orientation_of_xmp(xmp: &[u8]) -> Option<f64> {
    (0..xmp.len()).find_map(|at| {
        let value = xmp[at..].strip_prefix(b"tiff:Orientation")?;
        let value = value.strip_prefix(b"=\"").or_else(|| value.strip_prefix(b">"))?;
        value.first().filter(|digit| digit.is_ascii_digit()).map(|digit| f64::from(digit - b'0'))
    })
}

/// Rows and columns of a tile, so that reading along columns stays in the processor's cache.
const TILE: usize = 32;

/// Height, width and pixels of C samples, turned.
pub(in crate::image) fn apply_orientation<T: Copy + Default, const C: usize>(
    samples: Vec<T>,
    [height, width]: [usize; 2],
    turn: Orientation,
    deadline: &Deadline,
) -> Result<(Vec<T>, [usize; 2]), DeadlineExceeded> {
    let Some((lies, back, up)) = moves(turn) else { return Ok((samples, [height, width])) };
    let sides = if lies { [width, height] } else { [height, width] };
    let (from, _) = samples.as_chunks::<C>();
    let mut pixels = vec![[T::default(); C]; from.len()];
    for (band, rows) in pixels.chunks_mut((TILE * sides[1]).max(1)).enumerate() {
        deadline.check()?;
        for left in (0..sides[1]).step_by(TILE) {
            for (y, row) in (band * TILE..).zip(rows.chunks_exact_mut(sides[1])) {
                for (x, pixel) in row.iter_mut().enumerate().skip(left).take(TILE) {
                    let (row, column) = if lies { (x, y) } else { (y, x) };
                    let row = if up { height - 1 - row } else { row };
                    let column = if back { width - 1 - column } else { column };
                    *pixel = from[row * width + column];
                }
            }
        }
    }
    Ok((pixels.into_flattened(), sides))
}

/// Whether rows become columns, and whether columns and rows of the file are read backwards. Nothing
/// where all stays as it is.
const fn moves(turn: Orientation) -> Option<(bool, bool, bool)> {
    match turn {
        Orientation::NoTransforms => None,
        Orientation::FlipHorizontal => Some((false, true, false)),
        Orientation::Rotate180 => Some((false, true, true)),
        Orientation::FlipVertical => Some((false, false, true)),
        Orientation::Rotate90FlipH => Some((true, false, false)),
        Orientation::Rotate90 => Some((true, false, true)),
        Orientation::Rotate270FlipH => Some((true, true, true)),
        Orientation::Rotate270 => Some((true, true, false)),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use image::DynamicImage;

    use super::*;

    #[test]
    fn orientations_equal_those_of_image() {
        for (height, width) in [(1, 1), (2, 3), (40, 70), (33, 1)] {
            let samples: Vec<u8> = (0..height * width * 3).map(|at| (at * 7 % 251) as u8).collect();
            for number in 1..=8 {
                let turn = Orientation::from_exif(number).unwrap();
                let picture = image::RgbImage::from_raw(width as u32, height as u32, samples.clone()).unwrap();
                let mut theirs = DynamicImage::from(picture);
                theirs.apply_orientation(turn);
                let (ours, sides) =
                    apply_orientation::<_, 3>(samples.clone(), [height, width], turn, &Deadline::default()).unwrap();
                assert_eq!(sides, [theirs.height() as usize, theirs.width() as usize], "{turn:?}");
                assert_eq!(ours, theirs.into_bytes(), "{turn:?} of {height} × {width}");
            }
        }
    }
}
