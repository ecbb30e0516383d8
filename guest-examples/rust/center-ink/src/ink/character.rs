//! The character among what stands out from the paper.

use super::grid::Grid;
use super::paper::Paper;

/// Gray levels that the ink must differ from the paper.
const MIN_CONTRAST: f32 = 10.0;

/// Where the ink is, and how strongly it differs from the paper.
pub(super) struct Ink {
    /// The ink is darker than the paper.
    pub(super) dark: bool,
    /// Gray levels between the paper and typical ink.
    pub(super) contrast: f32,
    /// The paper's level at each cell, or `None` away from the ink.
    pub(super) paper: Vec<Option<f32>>,
    pub(super) area: Area,
}

/// A rectangle of cells, both ends included.
#[derive(Clone, Copy)]
pub(super) struct Area {
    pub(super) left: usize,
    pub(super) top: usize,
    pub(super) right: usize,
    pub(super) bottom: usize,
}

impl Ink {
    /// Cells with this share of the contrast hold ink.
    const CELL_SHARE: f32 = 0.4;

    pub(super) fn find(grid: &Grid, paper: &Paper) -> Option<Self> {
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
