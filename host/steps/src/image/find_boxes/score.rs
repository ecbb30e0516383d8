//! The mean of a map within a rectangle or a border, whose pixels are those that `cv2.fillPoly` fills.

use crate::deadline::{Deadline, DeadlineExceeded};

/// A map of probabilities.
#[derive(Clone, Copy)]
pub(super) struct Map<'a> {
    pub(super) data: &'a [f32],
    pub(super) height: usize,
    pub(super) width: usize,
}

/// The sum of numbers, and how many they are.
#[derive(Clone, Copy, Default)]
struct Mean {
    sum: f64,
    count: usize,
}

impl Mean {
    fn add(&mut self, numbers: &[f32]) {
        self.sum += numbers.iter().copied().map(f64::from).sum::<f64>();
        self.count += numbers.len();
    }

    /// 0 of no number, as `cv2.mean` says.
    fn value(self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum / self.count as f64 }
    }
}

impl Map<'_> {
    /// Within four corners, whose fractions are cut off.
    pub(super) fn mean_within(&self, corners: [[f32; 2]; 4], deadline: &Deadline) -> Result<f64, DeadlineExceeded> {
        // The pixels that are looked at: fractions are cut off from the first of them, as RapidOCR does.
        let bounds = |axis: usize, side: usize| {
            let numbers = corners.map(|corner| corner[axis]);
            let (least, most) = numbers.iter().fold((f32::MAX, f32::MIN), |(a, b), x| (a.min(*x), b.max(*x)));
            [least.floor(), most.ceil()].map(|number| number.clamp(0.0, (side - 1) as f32) as usize)
        };
        let ([left, right], [top, bottom]) = (bounds(0, self.width), bounds(1, self.height));
        let corners = corners.map(|[x, y]| [(x - left as f32) as i64, (y - top as f32) as i64]);

        let mut mean = Mean::default();
        let rows = filled_rows(corners, [(right - left + 1) as i64, (bottom - top + 1) as i64]);
        for (y, [first, last]) in (top..).zip(rows) {
            if first <= last {
                let numbers = &self.data[y * self.width + left..][first as usize..=last as usize];
                deadline.check_after(numbers.len())?;
                mean.add(numbers);
            }
        }
        Ok(mean.value())
    }

    /// Within a border, of which all pixels were marked.
    pub(super) fn mean_within_border(&self, marked: BorderMask, deadline: &Deadline) -> Result<f64, DeadlineExceeded> {
        let BorderMask { left, top, width, mask, .. } = marked.closed();
        let mut mean = Mean::default();
        for (y, row) in (top..).zip(mask.chunks_exact(width)) {
            deadline.check_after(2 * width)?;
            let numbers = &self.data[y * self.width + left..][..width];
            let mut is_inside = false;
            for (number, cell) in numbers.iter().zip(row) {
                is_inside ^= cell & CROSSED != 0;
                if is_inside || cell & ON_BORDER != 0 {
                    mean.add(std::slice::from_ref(number));
                }
            }
        }
        Ok(mean.value())
    }
}

/// A pixel of a border.
const ON_BORDER: u8 = 2;
/// A pixel through which a border goes down, or up, an odd number of times.
const CROSSED: u8 = 1;

/// The pixels of a border, in the smallest upright rectangle around it.
pub(super) struct BorderMask {
    left: usize,
    top: usize,
    width: usize,
    mask: Vec<u8>,
    first: Option<[usize; 2]>,
    last: [usize; 2],
}

impl BorderMask {
    /// For a border in these columns and rows, the last ones included.
    pub(super) fn new([left, right]: [usize; 2], [top, bottom]: [usize; 2]) -> Self {
        let width = right - left + 1;
        Self { left, top, width, mask: vec![0; width * (bottom - top + 1)], first: None, last: [0; 2] }
    }

    /// Marks the next pixel of the border.
    pub(super) fn mark(&mut self, point: [usize; 2]) {
        match self.first {
            None => self.first = Some(point),
            Some(_) => self.cross(point),
        }
        *self.cell(point) |= ON_BORDER;
        self.last = point;
    }

    fn cell(&mut self, [x, y]: [usize; 2]) -> &mut u8 {
        &mut self.mask[(y - self.top) * self.width + x - self.left]
    }

    /// The border goes on to `point`.
    fn cross(&mut self, point: [usize; 2]) {
        let upper = if self.last[1] < point[1] { self.last } else { point };
        if self.last[1] != point[1] {
            *self.cell(upper) ^= CROSSED;
        }
    }

    fn closed(mut self) -> Self {
        if let Some(first) = self.first {
            self.cross(first);
        }
        self
    }
}

/// The first and the last pixel of each row of a mask, width first, that `cv2.fillPoly` fills of a convex polygon: the
/// lines between its corners, and what lies between the edges.
fn filled_rows(corners: [[i64; 2]; 4], [width, height]: [i64; 2]) -> Vec<[i64; 2]> {
    let mut rows = vec![[i64::MAX, i64::MIN]; height as usize];
    let mut edges = vec![[i64::MAX, i64::MIN]; height as usize];
    for at in 0..4 {
        let (from, to) = (corners[at], corners[(at + 1) % 4]);
        let (is_visible, ends) = clip_line([from, to], [width - 1, height - 1]);
        if is_visible {
            line(ends[0], ends[1], &mut |x, y| {
                let row = &mut rows[y as usize];
                *row = [row[0].min(x), row[1].max(x)];
            });
        }
        if from[1] == to[1] {
            continue;
        }
        // Of a line that was cut off, the edge goes through what is left of it. In 65536ths of a pixel.
        let [start, end] = if ends[0][1] == ends[1][1] { [from, to] } else { ends };
        let slope = ((end[0] - start[0]) << 16) / (end[1] - start[1]);
        let (upper, lower, origin) = if from[1] < to[1] { (from, to, start) } else { (to, from, end) };
        for y in upper[1].max(0)..lower[1].min(height) {
            let x = (origin[0] << 16) + slope * (y - origin[1]);
            let edge = &mut edges[y as usize];
            *edge = [edge[0].min(x), edge[1].max(x)];
        }
    }
    for (row, [left, right]) in rows.iter_mut().zip(edges) {
        if left <= right {
            let inner = [(left + 0xffff) >> 16, right >> 16];
            let inner = if inner[0] <= inner[1] { inner } else { [i64::MAX, i64::MIN] };
            *row = [row[0].min(inner[0]), row[1].max(inner[1])];
        }
        if row[0] <= row[1] {
            *row = [row[0].max(0), row[1].min(width - 1)];
        }
    }
    rows
}

/// The part of a line within `0..=most`, as `cv2.clipLine` finds it, and whether there is one.
fn clip_line([mut one, mut other]: [[i64; 2]; 2], most: [i64; 2]) -> (bool, [[i64; 2]; 2]) {
    // On which side of the columns, or of the rows, a number lies.
    let side = |point: [i64; 2], axis: usize| i64::from(point[axis] > most[axis]) - i64::from(point[axis] < 0);
    let is_beyond = |one: [i64; 2], other: [i64; 2]| {
        (0..2).any(|axis| side(one, axis) != 0 && side(one, axis) == side(other, axis))
    };
    if is_beyond(one, other) {
        return (false, [one, other]);
    }
    for axis in [1, 0] {
        let cut = |point: &mut [i64; 2], toward: [i64; 2], from: [i64; 2]| {
            if side(*point, axis) != 0 {
                let edge = if side(*point, axis) < 0 { 0 } else { most[axis] };
                let rise = (edge - point[axis]) as f64 * (toward[1 - axis] - from[1 - axis]) as f64;
                point[1 - axis] += (rise / (toward[axis] - from[axis]) as f64) as i64;
                point[axis] = edge;
            }
        };
        let (first, second) = (one, other);
        cut(&mut one, second, first);
        let first = one;
        cut(&mut other, second, first);
        if is_beyond(one, other) {
            return (false, [one, other]);
        }
    }
    (true, [one, other])
}

/// The pixels of a line, as OpenCV's `LineIterator` takes them from left to right.
fn line(from: [i64; 2], to: [i64; 2], cover: &mut impl FnMut(i64, i64)) {
    let ([mut x, mut y], to) = if to[0] < from[0] { (to, from) } else { (from, to) };
    let (dx, dy) = (to[0] - x, to[1] - y);
    let down = dy.signum();
    let is_steep = dy.abs() > dx;
    let (long, short) = if is_steep { (dy.abs(), dx) } else { (dx, dy.abs()) };
    let mut error = long - 2 * short;
    for _ in 0..=long {
        cover(x, y);
        let is_aside = error < 0;
        error += if is_aside { 2 * long - 2 * short } else { -2 * short };
        x += i64::from(!is_steep || is_aside);
        y += if is_steep || is_aside { down } else { 0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fills_with_edges() {
        let square = [[2, 1], [5, 1], [5, 4], [2, 4]];
        let empty = [i64::MAX, i64::MIN];
        assert_eq!(filled_rows(square, [9, 6]), [empty, [2, 5], [2, 5], [2, 5], [2, 5], empty]);
        assert_eq!(filled_rows([[0, 0]; 4], [1, 1]), [[0, 0]]);
        let tilted = [[2, 0], [4, 2], [2, 4], [0, 2]];
        assert_eq!(filled_rows(tilted, [5, 5]), [[2, 2], [1, 3], [0, 4], [1, 3], [2, 2]]);
        assert_eq!(filled_rows(tilted.map(|[x, y]| [x - 2, y]), [2, 5]), [[0, 0], [0, 1], [0, 1], [0, 1], [0, 0]]);
        // OpenCV 5.0.0: an edge that ends outside.
        let rows = filled_rows([[-1, 22], [3, 16], [22, 31], [17, 37]], [50, 50]);
        assert_eq!((rows[22], rows[34], rows[37]), ([0, 11], [14, 19], [17, 17]));
    }
}
