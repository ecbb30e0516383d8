//! The light on the bare paper.

use super::grid::Grid;

/// Gray levels a cell may always differ from the paper without being taken for ink.
const MIN_NOISE: f32 = 3.0;

/// The brightness of the bare paper: a quadratic surface over the grid, fitted to a sample of its cells.
pub(super) struct Paper {
    xs: Axis,
    ys: Axis,
    /// Coefficients of `1, x, x², y, xy, y²`, in the axes' terms.
    surface: [f32; 6],
    /// Gray levels that most cells of bare paper stay within.
    pub(super) noise: f32,
}

impl Paper {
    const ROUNDS: usize = 6;
    /// The first rounds pull outliers towards the surface, so that a wrong start is left behind; the later ones
    /// ignore them, so that the ink has no say.
    const PULLING_ROUNDS: usize = 3;

    pub(super) fn fit(grid: &Grid) -> Self {
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
    pub(super) fn heights(&self, grid: &Grid) -> Vec<f32> {
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
