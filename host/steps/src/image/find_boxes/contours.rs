//! The borders of the areas of a bitmap, as `cv2.findContours` follows them (Suzuki and Abe, 1985).

use std::collections::VecDeque;

use crate::deadline::{Deadline, DeadlineExceeded};

/// How much longer than an addition a step along a border takes.
const STEP: usize = 8;

/// Cells of a bitmap: outside, inside, followed once, and followed where the cell to the right is outside.
const OUTSIDE: u8 = 0;
const INSIDE: u8 = 1;
const FOLLOWED: u8 = 2;
const FOLLOWED_AT_THE_RIGHT: u8 = 3;

/// A bitmap with a frame of cells outside, one wide.
pub(super) struct Bitmap {
    cells: Vec<u8>,
    /// cells of a row, with the frame
    stride: usize,
}

/// The place where a border begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Border {
    start: usize,
    is_hole: bool,
}

impl Bitmap {
    /// Cells where `map` is above `threshold`; with `dilate`, also those right of them, below them and both.
    pub(super) fn new(
        map: &[f32],
        [height, width]: [usize; 2],
        threshold: f32,
        dilate: bool,
        deadline: &Deadline,
    ) -> Result<Self, DeadlineExceeded> {
        let stride = width + 2;
        let mut cells = vec![OUTSIDE; stride * (height + 2)];
        for (y, row) in map.chunks_exact(width).enumerate() {
            deadline.check_after(width)?;
            for (x, number) in row.iter().enumerate() {
                if *number > threshold {
                    let place = (y + 1) * stride + x + 1;
                    cells[place] = INSIDE;
                    if dilate {
                        // What lies beyond the last column or row is the frame.
                        let (right, below) = (x + 1 < width, y + 1 < height);
                        cells[place + 1] |= u8::from(right);
                        cells[place + stride] |= u8::from(below);
                        cells[place + stride + 1] |= u8::from(right && below);
                    }
                }
            }
        }
        Ok(Self { cells, stride })
    }

    /// The last `most` borders, the last first: OpenCV's order.
    pub(super) fn borders(&mut self, most: usize, deadline: &Deadline) -> Result<VecDeque<Border>, DeadlineExceeded> {
        let mut borders = VecDeque::new();
        for row in 1..(self.cells.len() / self.stride).saturating_sub(1) {
            deadline.check_after(self.stride)?;
            let mut before = OUTSIDE;
            for place in row * self.stride + 1..(row + 1) * self.stride {
                let here = self.cells[place];
                if here != before {
                    let is_outer = before == OUTSIDE && here == INSIDE;
                    let is_hole = here == OUTSIDE && before != FOLLOWED_AT_THE_RIGHT;
                    if is_outer || is_hole {
                        let border = Border { start: if is_hole { place - 1 } else { place }, is_hole };
                        self.follow(border, deadline, |_| ())?;
                        borders.truncate(most.saturating_sub(1));
                        borders.push_front(border);
                    }
                }
                before = self.cells[place];
            }
        }
        Ok(borders)
    }

    /// Calls `visit` with the column and row of each cell of a border, in order.
    pub(super) fn follow(
        &mut self,
        border: Border,
        deadline: &Deadline,
        mut visit: impl FnMut([usize; 2]),
    ) -> Result<(), DeadlineExceeded> {
        let stride = self.stride as isize;
        // From the right, counter-clockwise.
        let around = [1, 1 - stride, -stride, -stride - 1, -1, stride - 1, stride, stride + 1];
        let neighbour = |place: usize, direction: usize| place.wrapping_add_signed(around[direction % 8]);
        let point = |place: usize| [place % self.stride - 1, place / self.stride - 1];

        let start = border.start;
        let first = if border.is_hole { 0 } else { 4 };
        // The last cell of the border is the first one clockwise.
        let clockwise = (1..8).map(|turn| (first + 8 - turn) % 8);
        let Some(back) = clockwise.into_iter().find(|direction| self.cells[neighbour(start, *direction)] != OUTSIDE)
        else {
            self.cells[start] = FOLLOWED_AT_THE_RIGHT;
            visit(point(start));
            return Ok(());
        };
        let last = neighbour(start, back);

        let (mut place, mut from) = (start, back);
        loop {
            deadline.check_after(STEP)?;
            let mut direction = from + 1;
            while self.cells[neighbour(place, direction)] == OUTSIDE {
                direction += 1;
            }
            let direction = direction % 8;
            // Whether the cell to the right was looked at on the way, and is outside.
            if direction.wrapping_sub(1) < from {
                self.cells[place] = FOLLOWED_AT_THE_RIGHT;
            } else if self.cells[place] == INSIDE {
                self.cells[place] = FOLLOWED;
            }
            visit(point(place));
            let next = neighbour(place, direction);
            if next == start && place == last {
                return Ok(());
            }
            (place, from) = (next, (direction + 4) % 8);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    /// The borders of a picture of lines, each from its own start.
    fn borders(lines: &[&str], most: usize) -> Vec<Vec<[usize; 2]>> {
        let map: Vec<f32> = lines.iter().flat_map(|line| line.bytes().map(|cell| f32::from(cell == b'#'))).collect();
        let deadline = Deadline::default();
        let mut bitmap = Bitmap::new(&map, [lines.len(), lines[0].len()], 0.5, false, &deadline).unwrap();
        let found = bitmap.borders(most, &deadline).unwrap();
        found
            .into_iter()
            .map(|border| {
                let mut points = Vec::new();
                bitmap.follow(border, &deadline, |point| points.push(point)).unwrap();
                points
            })
            .collect()
    }

    #[test]
    fn follows_outer_borders_and_holes() {
        let found = borders(&["###.", "#.#.", "####"], 9);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0], [[0, 1], [1, 0], [2, 1], [1, 2]]);
        let outer = [[0, 0], [0, 1], [0, 2], [1, 2], [2, 2], [3, 2], [2, 1], [2, 0], [1, 0]];
        assert_eq!(found[1], outer);
        assert_eq!(borders(&["#..#", "...."], 9), [[[3, 0]], [[0, 0]]]);
        assert_eq!(borders(&["#..#", "...."], 1), [[[3, 0]]]);
        assert_eq!(borders(&["...."], 9).len(), 0);
    }

    #[test]
    fn dilates_to_the_right_and_below() {
        let deadline = Deadline::default();
        let mut map = vec![0.0; 9];
        (map[4], map[8]) = (1.0, 1.0);
        let bitmap = Bitmap::new(&map, [3, 3], 0.5, true, &deadline).unwrap();
        let inside: Vec<_> = bitmap.cells.chunks(5).skip(1).take(3).map(|row| row[1..4].to_vec()).collect();
        assert_eq!(inside, [[0, 0, 0], [0, 1, 1], [0, 1, 1]]);
        assert_eq!(bitmap.cells.iter().filter(|cell| **cell != OUTSIDE).count(), 4);
    }
}
