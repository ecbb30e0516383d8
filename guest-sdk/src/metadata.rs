/// The order of an image's axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layout {
    /// Height, width, channels: what image steps work on.
    Hwc,
    /// Channels, height, width: what most vision models take.
    Chw,
}

/// What an image's channels hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Color {
    /// One channel, luminance.
    Gray,
    /// Red, green, blue.
    Rgb,
    /// Red, green, blue, opacity.
    Rgba,
    /// Blue, green, red.
    Bgr,
}

/// How an image was placed into a tensor: `here = source × scale + offset`, in pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Geometry {
    /// Width of the source image, in pixels.
    pub source_width: u32,
    /// Height of the source image, in pixels.
    pub source_height: u32,
    /// Pixels here for each source pixel, horizontally.
    pub scale_x: f32,
    /// Pixels here for each source pixel, vertically.
    pub scale_y: f32,
    /// Where the source's left edge lies, in pixels of this tensor.
    pub offset_x: f32,
    /// Where the source's top edge lies, in pixels of this tensor.
    pub offset_y: f32,
}

impl Geometry {
    /// Where a point of this tensor lies in the source image, in pixels. May lie outside of it:
    /// in the border that a letterbox added.
    ///
    /// ```
    /// # use gpux_step::Geometry;
    /// let letterbox = Geometry {
    ///     source_width: 1280, source_height: 720, scale_x: 0.5, scale_y: 0.5, offset_x: 0.0, offset_y: 140.0,
    /// };
    /// assert_eq!(letterbox.to_source(320.0, 320.0), (640.0, 360.0));
    /// ```
    pub fn to_source(&self, x: f32, y: f32) -> (f32, f32) {
        ((x - self.offset_x) / self.scale_x, (y - self.offset_y) / self.scale_y)
    }
}

/// A 3×3 matrix, row by row, that maps pixels of an image to pixels of its source image: with
/// `[x, y, w] = matrix × [x_here, y_here, 1]`, the source's are `x / w` and `y / w`.
pub type Transform = [f64; 9];
