//! Finds the ink in a gray photo and gives it back upright in contrast: bright on black, centred in a square.
//!
//! The photo is first read once into a coarse grid of cell means. Everything that decides (the lighting of the
//! paper, which side of it the ink lies on, where the ink is) happens on that grid; the pixels are read a second
//! time only inside the rectangle that holds the ink.

use std::fmt;

/// The photo's longer side is at most this many cells long (for photos up to 8192 pixels).
const GRID: usize = 64;
/// The largest cell: its column sums still fit `u16`.
const MAX_CELL: usize = 128;
/// Rows are handled in straight-line pieces of this many pixels: in a sandbox every loop back-edge costs.
const LANES: usize = 32;
/// Gray levels a cell may always differ from the paper without being taken for ink.
const MIN_NOISE: f32 = 3.0;
/// Gray levels that the ink must differ from the paper.
const MIN_CONTRAST: f32 = 10.0;
/// The largest margin that is honoured.
const MAX_MARGIN: f32 = 4.0;

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

/// The means of square cells; pixels right of and below the last whole cell are left out.
struct Grid {
    /// Length of a cell's side in pixels: a power of two.
    cell: usize,
    cols: usize,
    rows: usize,
    means: Vec<f32>,
}

impl Grid {
    fn read(gray: &[u8], width: usize, height: usize) -> Self {
        let (long, short) = (width.max(height), width.min(height));
        let mut cell = 1;
        while cell * GRID < long && cell * 2 <= short && cell < MAX_CELL {
            cell *= 2;
        }
        let (cols, rows) = (width / cell, height / cell);
        let share = 1.0 / (cell * cell) as f32;
        let mut means = Vec::with_capacity(cols * rows);
        let mut sums = vec![0_u16; width];
        for band in gray.chunks_exact(width * cell) {
            sums.fill(0);
            for row in band.chunks_exact(width) {
                add_row(&mut sums, row);
            }
            means.extend(sums.chunks_exact(cell).map(|columns| {
                let sum: u32 = columns.iter().copied().map(u32::from).sum();
                sum as f32 * share
            }));
        }
        Self { cell, cols, rows, means }
    }
}

fn add_row(sums: &mut [u16], row: &[u8]) {
    let (sum_chunks, sum_rest) = sums.as_chunks_mut::<LANES>();
    let (row_chunks, row_rest) = row.as_chunks::<LANES>();
    for (sums, row) in sum_chunks.iter_mut().zip(row_chunks) {
        for lane in 0..LANES {
            sums[lane] += u16::from(row[lane]);
        }
    }
    for (sum, &pixel) in sum_rest.iter_mut().zip(row_rest) {
        *sum += u16::from(pixel);
    }
}

/// The brightness of the bare paper: a quadratic surface over the grid, fitted to a sample of its cells.
struct Paper {
    xs: Axis,
    ys: Axis,
    /// Coefficients of `1, x, x², y, xy, y²`, in the axes' terms.
    surface: [f32; 6],
    /// Gray levels that most cells of bare paper stay within.
    noise: f32,
}

impl Paper {
    const ROUNDS: usize = 6;
    /// The first rounds pull outliers towards the surface, so that a wrong start is left behind; the later ones
    /// ignore them, so that the ink has no say.
    const PULLING_ROUNDS: usize = 3;

    fn fit(grid: &Grid) -> Self {
        let (xs, ys) = (Axis::sample(grid.cols), Axis::sample(grid.rows));
        let mut residuals: Vec<f32> = Vec::with_capacity(xs.points.len() * ys.points.len());
        for y in &ys.points {
            let row = &grid.means[y.cell * grid.cols..][..grid.cols];
            residuals.extend(xs.points.iter().map(|x| row[x.cell]));
        }
        let middle = median(&residuals);
        for residual in &mut residuals {
            *residual -= middle;
        }
        let mut paper = Self { xs, ys, surface: [middle, 0.0, 0.0, 0.0, 0.0, 0.0], noise: spread(&residuals) };
        for round in 0..Self::ROUNDS {
            paper.refine(&mut residuals, round < Self::PULLING_ROUNDS);
        }
        paper
    }

    /// Moves the surface by the least-squares fit of its residuals. The six terms are orthogonal on the sampled
    /// points, so each coefficient is one weighted sum.
    fn refine(&mut self, residuals: &mut [f32], pull: bool) {
        let bound = self.noise;
        let mut sums = [0.0; 6];
        for (row, y) in residuals.chunks_exact(self.xs.points.len()).zip(&self.ys.points) {
            let (mut constant, mut linear, mut square) = (0.0, 0.0, 0.0);
            for (&residual, x) in row.iter().zip(&self.xs.points) {
                let near = residual.max(-bound).min(bound); // `clamp` panics with its values, which brings in their formatting
                let residual = if pull || residual.abs() <= bound { near } else { 0.0 };
                constant += residual;
                linear += residual * x.linear;
                square += residual * x.square;
            }
            sums[0] += constant;
            sums[1] += linear;
            sums[2] += square;
            sums[3] += constant * y.linear;
            sums[4] += linear * y.linear;
            sums[5] += constant * y.square;
        }
        let (xs, ys) = (&self.xs, &self.ys);
        let norms =
            [1.0, xs.linear_norm, xs.square_norm, ys.linear_norm, xs.linear_norm * ys.linear_norm, ys.square_norm];
        let count = residuals.len() as f32;
        let mut step = [0.0; 6];
        for term in 0..6 {
            // An axis of one or two points cannot bear a slope or a bend.
            if norms[term] > 1e-6 {
                step[term] = sums[term] / (norms[term] * count);
                self.surface[term] += step[term];
            }
        }
        for (row, y) in residuals.chunks_exact_mut(xs.points.len()).zip(&ys.points) {
            let along = along_row(&step, y);
            for (residual, x) in row.iter_mut().zip(&xs.points) {
                *residual -= along.at(x);
            }
        }
        self.noise = spread(residuals);
    }

    /// How far each cell lies above the paper, in gray levels.
    fn heights(&self, grid: &Grid) -> Vec<f32> {
        let xs: Vec<Point> = (0..grid.cols).map(|cell| self.xs.point(cell)).collect();
        let mut heights = Vec::with_capacity(grid.means.len());
        for (cell, row) in grid.means.chunks_exact(grid.cols).enumerate() {
            let along = along_row(&self.surface, &self.ys.point(cell));
            heights.extend(row.iter().zip(&xs).map(|(mean, x)| mean - along.at(x)));
        }
        heights
    }
}

/// One side of the grid, with the cells sampled along it.
struct Axis {
    points: Vec<Point>,
    middle: f32,
    scale: f32,
    mean_square: f32,
    linear_norm: f32,
    square_norm: f32,
}

/// A cell's place on an axis: about -1 to 1, and its square less the axis' mean square.
struct Point {
    cell: usize,
    linear: f32,
    square: f32,
}

impl Axis {
    /// Samples along the grid's longest side, at least.
    const SAMPLES: usize = 20;

    fn sample(cells: usize) -> Self {
        let stride = (cells / Self::SAMPLES).max(1);
        let count = cells.div_ceil(stride);
        let middle = ((count - 1) * stride) as f32 / 2.0;
        let mut axis = Self {
            points: Vec::new(),
            middle,
            scale: 1.0 / middle.max(1.0),
            mean_square: 0.0,
            linear_norm: 0.0,
            square_norm: 0.0,
        };
        let sampled = || (0..cells).step_by(stride);
        axis.mean_square = sampled().map(|cell| axis.point(cell).square).sum::<f32>() / count as f32;
        axis.points = sampled().map(|cell| axis.point(cell)).collect();
        axis.linear_norm = axis.mean_square;
        axis.square_norm = axis.points.iter().map(|point| point.square * point.square).sum::<f32>() / count as f32;
        axis
    }

    fn point(&self, cell: usize) -> Point {
        let linear = (cell as f32 - self.middle) * self.scale;
        Point { cell, linear, square: linear * linear - self.mean_square }
    }
}

/// The surface along one row of cells.
struct AlongRow {
    constant: f32,
    linear: f32,
    square: f32,
}

fn along_row(surface: &[f32; 6], y: &Point) -> AlongRow {
    AlongRow {
        constant: surface[0] + surface[3] * y.linear + surface[5] * y.square,
        linear: surface[1] + surface[4] * y.linear,
        square: surface[2],
    }
}

impl AlongRow {
    fn at(&self, x: &Point) -> f32 {
        self.constant + self.linear * x.linear + self.square * x.square
    }
}

/// The median of values from 0 to 255, to half a gray level.
fn median(values: &[f32]) -> f32 {
    let mut counts = [0_u32; 256];
    for &value in values {
        counts[usize::from(value as u8)] += 1;
    }
    let half = values.len() as u32 / 2;
    let mut below = 0;
    let level = counts.iter().position(|count| {
        below += count;
        below > half
    });
    level.unwrap_or(0) as f32 + 0.5
}

/// Gray levels that about nine in ten residuals of bare paper stay within.
fn spread(residuals: &[f32]) -> f32 {
    let sizes: Vec<f32> = residuals.iter().map(|residual| residual.abs()).collect();
    (2.5 * median(&sizes)).max(MIN_NOISE)
}

/// Where the ink is, and how strongly it differs from the paper.
struct Ink {
    /// The ink is darker than the paper.
    dark: bool,
    /// Gray levels between the paper and typical ink.
    contrast: f32,
    /// The paper's level at each cell, or `None` away from the ink.
    paper: Vec<Option<f32>>,
    area: Area,
}

/// A rectangle of cells, both ends included.
#[derive(Clone, Copy)]
struct Area {
    left: usize,
    top: usize,
    right: usize,
    bottom: usize,
}

impl Ink {
    /// Cells with this share of the contrast hold ink.
    const CELL_SHARE: f32 = 0.4;

    fn find(grid: &Grid, paper: &Paper) -> Option<Self> {
        let mut strengths = paper.heights(grid);
        // Squares, because a stroke stands out far and noise does not.
        let (mut above, mut above_squared, mut below, mut below_squared) = (0.0, 0.0, 0.0, 0.0);
        for &height in &strengths {
            let (up, down) = (beyond(height, paper.noise), beyond(-height, paper.noise));
            above += up;
            above_squared += up * up;
            below += down;
            below_squared += down * down;
        }
        let dark = below_squared > above_squared;
        let (sum, squared) = if dark { (below, below_squared) } else { (above, above_squared) };
        let contrast = if sum > 0.0 { squared / sum } else { 0.0 };
        if contrast < MIN_CONTRAST.max(2.0 * paper.noise) {
            return None;
        }
        if dark {
            for strength in &mut strengths {
                *strength = -*strength;
            }
        }
        let threshold = (Self::CELL_SHARE * contrast).max(paper.noise);
        let mut patches = patches(&strengths, grid.cols, threshold);
        keep_one_character(&mut patches);

        let mut levels = vec![None; strengths.len()];
        let mut area = patches.first()?.area;
        for patch in &patches {
            area = area.union(patch.area);
            for &cell in &patch.cells {
                for near in neighbours(cell, grid.cols, grid.rows) {
                    levels[near] = Some(if dark {
                        grid.means[near] + strengths[near]
                    } else {
                        grid.means[near] - strengths[near]
                    });
                }
            }
        }
        Some(Self { dark, contrast, paper: levels, area: area.grow(grid) })
    }
}

fn beyond(height: f32, noise: f32) -> f32 {
    if height > noise { height } else { 0.0 }
}

impl Area {
    fn union(self, other: Self) -> Self {
        Self {
            left: self.left.min(other.left),
            top: self.top.min(other.top),
            right: self.right.max(other.right),
            bottom: self.bottom.max(other.bottom),
        }
    }

    /// One cell more on each side, within the grid.
    fn grow(self, grid: &Grid) -> Self {
        Self {
            left: self.left.saturating_sub(1),
            top: self.top.saturating_sub(1),
            right: (self.right + 1).min(grid.cols - 1),
            bottom: (self.bottom + 1).min(grid.rows - 1),
        }
    }

    fn longer_side(self) -> usize {
        (self.right - self.left).max(self.bottom - self.top) + 1
    }

    /// Free cells between two areas, along the axis that parts them most.
    fn gap(self, other: Self) -> usize {
        let across = self.left.max(other.left).saturating_sub(self.right.min(other.right));
        let along = self.top.max(other.top).saturating_sub(self.bottom.min(other.bottom));
        across.max(along)
    }
}

/// Cells of ink that touch each other.
struct Patch {
    cells: Vec<usize>,
    /// The sum of the cells' strengths.
    weight: f32,
    area: Area,
}

/// The connected patches of cells stronger than `threshold`.
fn patches(strengths: &[f32], cols: usize, threshold: f32) -> Vec<Patch> {
    let rows = strengths.len() / cols;
    let mut seen: Vec<bool> = strengths.iter().map(|&strength| strength <= threshold).collect();
    let mut patches = Vec::new();
    for start in 0..strengths.len() {
        if seen[start] {
            continue;
        }
        seen[start] = true;
        let (x, y) = (start % cols, start / cols);
        let mut patch = Patch { cells: vec![start], weight: 0.0, area: Area { left: x, top: y, right: x, bottom: y } };
        let mut next = 0;
        while let Some(&cell) = patch.cells.get(next) {
            next += 1;
            patch.weight += strengths[cell];
            let (x, y) = (cell % cols, cell / cols);
            patch.area = patch.area.union(Area { left: x, top: y, right: x, bottom: y });
            for near in neighbours(cell, cols, rows) {
                if !seen[near] {
                    seen[near] = true;
                    patch.cells.push(near);
                }
            }
        }
        patches.push(patch);
    }
    patches
}

/// The cell and the up to eight around it.
fn neighbours(cell: usize, cols: usize, rows: usize) -> impl Iterator<Item = usize> {
    let (x, y) = (cell % cols, cell / cols);
    let (left, right) = (x.saturating_sub(1), (x + 1).min(cols - 1));
    let (top, bottom) = (y.saturating_sub(1), (y + 1).min(rows - 1));
    (top..=bottom).flat_map(move |row| (left..=right).map(move |col| row * cols + col))
}

/// Keeps the heaviest patch and what is close to it and not tiny, such as the bar of a 5.
fn keep_one_character(patches: &mut Vec<Patch>) {
    let Some(main) = patches.iter().max_by(|a, b| a.weight.total_cmp(&b.weight)) else {
        return;
    };
    let (weight, area) = (main.weight / 10.0, main.area);
    let reach = area.longer_side() / 4 + 1;
    patches.retain(|patch| patch.weight >= weight && patch.area.gap(area) <= reach);
}

/// The pixels of the ink's area as ink: 0 is paper, 255 is ink.
struct Crop {
    width: usize,
    pixels: Vec<u8>,
}

impl Crop {
    /// Shares of the contrast below which a pixel is paper and above which it is ink.
    const PAPER_SHARE: f32 = 0.3;
    const INK_SHARE: f32 = 0.9;
    /// Fixed-point one of the contrast's gain: 64 * 255 fits `i16`.
    const ONE_BITS: u32 = 6;

    fn read(gray: &[u8], stride: usize, grid: &Grid, ink: &Ink) -> Self {
        let (area, cell) = (ink.area, grid.cell);
        let width = (area.right - area.left + 1) * cell;
        let height = (area.bottom - area.top + 1) * cell;
        let low = (Self::PAPER_SHARE * ink.contrast) as i16;
        let range = ((Self::INK_SHARE * ink.contrast) as i16 - low).max(1);
        let curve =
            Curve { sign: if ink.dark { -1 } else { 1 }, range, gain: ((255 << Self::ONE_BITS) + range - 1) / range };

        let mut pixels = vec![0_u8; width * height];
        let mut offsets = vec![0_i16; width];
        let bands = pixels.chunks_exact_mut(width * cell).enumerate();
        for (band, pixels) in bands {
            let row = area.top + band;
            let levels = &ink.paper[row * grid.cols..][area.left..=area.right];
            for (offsets, level) in offsets.chunks_exact_mut(cell).zip(levels) {
                let offset = level.map_or(-1024, |level| -low - curve.sign * level.round() as i16);
                offsets.fill(offset);
            }
            for (y, pixels) in pixels.chunks_exact_mut(width).enumerate() {
                let start = (row * cell + y) * stride + area.left * cell;
                curve.apply(&gray[start..start + width], &offsets, pixels);
            }
        }
        Self { width, pixels }
    }

    /// The crop without empty rows and columns, in the middle of a square.
    fn center(&self, margin: f32) -> Option<Centered> {
        let mut row_sums = Vec::with_capacity(self.pixels.len() / self.width);
        let mut column_sums = vec![0_u32; self.width];
        for row in self.pixels.chunks_exact(self.width) {
            let mut sum = 0;
            for (column, &pixel) in column_sums.iter_mut().zip(row) {
                *column += u32::from(pixel);
                sum += u32::from(pixel);
            }
            row_sums.push(sum);
        }
        let (left, right) = inked(&column_sums)?;
        let (top, bottom) = inked(&row_sums)?;
        let (width, height) = (right - left, bottom - top);
        let long = width.max(height);
        // Not-a-number casts to 0.
        let free = (long as f32 * margin.clamp(0.0, MAX_MARGIN)).round() as usize;
        let side = long + 2 * free;

        let mut pixels = vec![0; side * side];
        let (x, y) = ((side - width) / 2, (side - height) / 2);
        let source = self.pixels.chunks_exact(self.width).skip(top).take(height);
        for (target, source) in pixels.chunks_exact_mut(side).skip(y).zip(source) {
            target[x..x + width].copy_from_slice(&source[left..right]);
        }
        Some(Centered { side, pixels })
    }
}

/// Where the sums first and last reach a twelfth of the largest: start and end, the end not included.
fn inked(sums: &[u32]) -> Option<(usize, usize)> {
    let enough = sums.iter().max()? / 12;
    let first = sums.iter().position(|&sum| sum > enough)?;
    let last = sums.iter().rposition(|&sum| sum > enough)?;
    Some((first, last + 1))
}

/// The contrast curve from gray levels to ink, in fixed point.
struct Curve {
    sign: i16,
    range: i16,
    gain: i16,
}

impl Curve {
    fn apply(&self, gray: &[u8], offsets: &[i16], ink: &mut [u8]) {
        let (gray_chunks, gray_rest) = gray.as_chunks::<LANES>();
        let (offset_chunks, offset_rest) = offsets.as_chunks::<LANES>();
        let (ink_chunks, ink_rest) = ink.as_chunks_mut::<LANES>();
        for ((gray, offsets), ink) in gray_chunks.iter().zip(offset_chunks).zip(ink_chunks) {
            for lane in 0..LANES {
                ink[lane] = self.at(gray[lane], offsets[lane]);
            }
        }
        for ((&gray, &offset), ink) in gray_rest.iter().zip(offset_rest).zip(ink_rest) {
            *ink = self.at(gray, offset);
        }
    }

    fn at(&self, gray: u8, offset: i16) -> u8 {
        let strength = (self.sign * i16::from(gray) + offset).clamp(0, self.range);
        ((strength * self.gain) >> Crop::ONE_BITS).min(255) as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disc of ink on a slope of light, with noise and one speck.
    fn photo(width: usize, height: usize, middle: (f32, f32), radius: f32, dark: bool) -> Vec<u8> {
        let mut seed = 1_u32;
        let mut gray = Vec::with_capacity(width * height);
        for y in 0..height {
            for x in 0..width {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let noise = (seed >> 28) as f32 - 8.0;
                let light = 60.0 * (x as f32 / width as f32) + 20.0 * (y as f32 / height as f32);
                let inside = (x as f32 - middle.0).hypot(y as f32 - middle.1) <= radius;
                let speck = x.abs_diff(3) < 2 && y.abs_diff(3) < 2;
                let level = match (inside || speck, dark) {
                    (true, true) | (false, false) => 40.0,
                    _ => 160.0,
                };
                gray.push((level + light + noise) as u8);
            }
        }
        gray
    }

    fn default_crop(gray: &[u8], width: usize, height: usize) -> Result<Centered, NoInk> {
        center(gray, width, height, &Options::default())
    }

    #[test]
    fn ink_is_cropped_and_bright_whatever_its_polarity_and_place() {
        for (width, height) in [(160, 160), (640, 480), (480, 641), (100, 90)] {
            for dark in [true, false] {
                let radius = width.min(height) as f32 / 6.0;
                for middle in [(radius * 2.0, radius * 2.5), (radius * 3.5, radius * 4.0)] {
                    let gray = photo(width, height, middle, radius, dark);
                    let crop = center(&gray, width, height, &Options { margin: 0.25 }).unwrap();
                    let expected = radius * 2.0 * 1.5;
                    let side = crop.side as f32;
                    assert!((side - expected).abs() <= expected * 0.1 + 3.0, "{side} for {expected}");
                    assert_eq!(crop.pixels.len(), crop.side * crop.side);
                    let at = |x: f32, y: f32| crop.pixels[(y * side) as usize * crop.side + (x * side) as usize];
                    assert!(at(0.5, 0.5) > 200);
                    for (x, y) in [(0.05, 0.05), (0.95, 0.05), (0.05, 0.95), (0.95, 0.95)] {
                        assert_eq!(at(x, y), 0);
                    }
                    for (x, y) in [(0.25, 0.5), (0.75, 0.5), (0.5, 0.25), (0.5, 0.75)] {
                        assert!(at(x, y) > 200);
                    }
                }
            }
        }
    }

    #[test]
    fn the_margin_is_free_space_on_each_side() {
        let gray = photo(160, 160, (60.0, 90.0), 25.0, true);
        let side = |margin| center(&gray, 160, 160, &Options { margin }).unwrap().side;
        let tight = side(0.0);
        assert_eq!(side(0.5), tight + 2 * (tight as f32 * 0.5).round() as usize);
        assert_eq!(side(f32::NAN), tight);
        assert_eq!(side(-1.0), tight);
        assert_eq!(side(f32::INFINITY), tight * 9);
    }

    #[test]
    fn only_the_character_and_what_is_close_to_it_stays() {
        let mut gray = vec![200_u8; 160 * 160];
        let mut draw = |left: usize, top: usize, right: usize, bottom: usize| {
            for y in top..bottom {
                gray[y * 160 + left..y * 160 + right].fill(30);
            }
        };
        // A stroke, and its bar apart from it.
        draw(60, 60, 72, 120);
        draw(80, 60, 100, 72);
        // A heavy blot far away, a speck close by, and a hair on the bar.
        draw(140, 4, 156, 20);
        draw(84, 104, 88, 108);
        draw(100, 66, 103, 67);
        let crop = center(&gray, 160, 160, &Options { margin: 0.0 }).unwrap();
        assert_eq!(crop.side, 60);
        let at = |x: usize, y: usize| crop.pixels[x + y * crop.side];
        assert_eq!([9, 10, 21, 25, 30, 49, 50].map(|x| at(x, 3)), [0, 255, 255, 0, 255, 255, 0]);
        assert_eq!([9, 10, 21, 22, 36].map(|x| at(x, 46)), [0, 255, 255, 0, 0]);
    }

    #[test]
    fn light_may_vary_more_than_the_ink_stands_out() {
        for ink in [40_usize, 50] {
            let gray: Vec<u8> = (0..160 * 160)
                .map(|i| {
                    let (x, y) = (i % 160, i / 160);
                    let inside = (100..120).contains(&x) && (40..80).contains(&y);
                    (60 + x - if inside { ink } else { 0 }) as u8
                })
                .collect();
            let crop = center(&gray, 160, 160, &Options { margin: 0.0 }).unwrap();
            assert_eq!(crop.side, 40);
            assert_eq!(crop.pixels.iter().filter(|&&pixel| pixel > 128).count(), 20 * 40);
        }
    }

    #[test]
    fn a_plain_image_has_no_ink() {
        for level in [0, 1, 128, 255] {
            for (width, height) in [(1, 1), (2, 1), (8, 8), (160, 160), (33, 257)] {
                assert_eq!(default_crop(&vec![level; width * height], width, height), Err(NoInk));
            }
        }
        let slope: Vec<u8> = (0..160 * 160).map(|i| (i % 160) as u8).collect();
        assert_eq!(default_crop(&slope, 160, 160), Err(NoInk));
        let noise = photo(160, 160, (-500.0, -500.0), 1.0, true);
        let paper: Vec<u8> = noise.chunks_exact(160).skip(8).flatten().copied().collect();
        assert_eq!(default_crop(&paper, 160, 152), Err(NoInk));
    }

    #[test]
    fn impossible_sizes_are_refused() {
        assert_eq!(default_crop(&[], 0, 0), Err(NoInk));
        assert_eq!(default_crop(&[], 0, 7), Err(NoInk));
        assert_eq!(default_crop(&[], 7, 0), Err(NoInk));
        assert_eq!(default_crop(&[1, 2, 3], 2, 2), Err(NoInk));
        assert_eq!(default_crop(&[1, 2, 3], usize::MAX, 2), Err(NoInk));
    }

    #[test]
    fn no_image_panics() {
        let mut seed = 7_u32;
        let mut random = || {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            seed >> 8
        };
        for _ in 0..3000 {
            let (width, height) = (random() as usize % 90 + 1, random() as usize % 90 + 1);
            let scatter = random() % 255 + 1;
            let gray: Vec<u8> =
                (0..width * height).map(|_| if random() % scatter == 0 { random() as u8 } else { 200 }).collect();
            let margin = random() as f32 / 1e7;
            if let Ok(crop) = center(&gray, width, height, &Options { margin }) {
                assert_eq!(crop.pixels.len(), crop.side * crop.side);
                assert!(crop.pixels.iter().any(|&pixel| pixel > 0));
            }
        }
        for (width, height) in [(9000, 3), (3, 9000), (20000, 1), (1, 20000)] {
            let gray: Vec<u8> = (0..width * height).map(|_| random() as u8).collect();
            let _ = default_crop(&gray, width, height);
        }
    }
}
