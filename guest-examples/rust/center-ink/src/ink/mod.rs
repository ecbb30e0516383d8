//! Finds the ink in a gray photo and gives it back upright in contrast: bright on black, centred in a square.
//!
//! The photo is first read once into a coarse grid of cell means. Everything that decides (the lighting of the
//! paper, which side of it the ink lies on, where the ink is) happens on that grid; the pixels are read a second
//! time only inside the rectangle that holds the ink.

mod character;
mod crop;
mod grid;
mod paper;

use std::fmt;

use self::character::Ink;
use self::crop::Crop;
use self::grid::Grid;
use self::paper::Paper;

/// Rows are handled in straight-line pieces of this many pixels: in a sandbox every loop back-edge costs.
const LANES: usize = 32;

/// How the ink is cropped.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// Free space on each side, as a fraction of the ink's longer side: `0.15` makes the square 1.3 times as
    /// long as the ink. From 0 to 4; what lies outside is clamped, and not-a-number counts as 0.
    pub margin: f32,
}

impl Default for Options {
    fn default() -> Self {
        Self { margin: 0.15 }
    }
}

/// A square gray image with the ink in its middle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Centered {
    /// Width and height in pixels, at the photo's own scale; at least 1.
    pub side: usize,
    /// `side * side` pixels, row-major: 0 is paper, 255 is ink.
    pub pixels: Vec<u8>,
}

/// The image holds nothing that stands out from its background.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoInk;

impl fmt::Display for NoInk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no ink found: nothing in the image stands out from its background")
    }
}

impl std::error::Error for NoInk {}

/// Crops the ink of a photo: dark on light or light on dark, anywhere in the frame, under uneven light.
///
/// `gray` is `width * height` pixels, row-major, 0 to 255. Specks apart from the ink are dropped; pieces close
/// to it (the bar of a 5) stay.
///
/// # Errors
///
/// [`NoInk`] when nothing stands out from the paper, and when `gray.len()` is not `width * height`.
pub fn center(gray: &[u8], width: usize, height: usize, options: &Options) -> Result<Centered, NoInk> {
    if gray.is_empty() || width.checked_mul(height) != Some(gray.len()) {
        return Err(NoInk);
    }
    let grid = Grid::read(gray, width, height);
    let paper = Paper::fit(&grid);
    let ink = Ink::find(&grid, &paper).ok_or(NoInk)?;
    let crop = Crop::read(gray, width, &grid, &ink);
    crop.center(options.margin).ok_or(NoInk)
}

#[cfg(test)]
mod tests;
