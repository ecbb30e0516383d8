//! A window on an image, which may reach over its edges.

use std::ops::Range;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::dims::ImageDims;
use crate::deadline::{Deadline, DeadlineExceeded};
use gpux_core::with_elements;
use gpux_core::{StepFailure, Tensor, TensorElement};

/// The values outside of the image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(super) enum BorderMode {
    #[default]
    Constant,
    #[serde(rename = "edge")]
    Nearest,
    Reflect,
    Symmetric,
}

impl BorderMode {
    /// The place of `at` inside `0..size`, or the one that stands for it; none for a constant.
    pub(super) fn index(self, at: i64, size: usize) -> Option<usize> {
        if (0..size as i64).contains(&at) { Some(at as usize) } else { self.place(at, size) }
    }

    /// The place inside `0..size` that stands for `at`, which is outside; none for a constant.
    fn place(self, at: i64, size: usize) -> Option<usize> {
        let last = size as i64 - 1;
        let place = match self {
            Self::Constant => return None,
            Self::Nearest => at.clamp(0, last),
            Self::Reflect if last == 0 => 0,
            Self::Reflect => {
                let at = at.rem_euclid(2 * last);
                at.min(2 * last - at)
            }
            Self::Symmetric => {
                let at = at.rem_euclid(2 * size as i64);
                at.min(2 * size as i64 - 1 - at)
            }
        };
        Some(place as usize)
    }
}

/// The channels of a pixel outside: one number, or one for each channel.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub(super) enum FillValue {
    All(f64),
    Each(Vec<f64>),
}

impl Default for FillValue {
    fn default() -> Self {
        Self::All(0.0)
    }
}

impl FillValue {
    /// Whether it fits an image with this many channels.
    pub(super) fn check(&self, channels: usize) -> Result<(), String> {
        match self {
            Self::Each(values) if values.len() != channels => {
                Err(format!("`fill` lists {} numbers, but the image has {channels} channels", values.len()))
            }
            _ => Ok(()),
        }
    }

    /// A pixel of it.
    pub(super) fn pixel<T: TensorElement>(&self, channels: usize) -> Result<Vec<T>, StepFailure> {
        let values = match self {
            Self::All(value) => vec![*value; channels],
            Self::Each(values) => values.clone(),
        };
        let pixel = Tensor::new([values.len()], values)?.cast(T::TYPE)?;
        Ok(pixel.as_slice::<T>().unwrap_or_default().to_vec())
    }
}

/// The position of the window: its first row and column, and its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) top: i64,
    pub(super) left: i64,
    pub(super) height: usize,
    pub(super) width: usize,
}

/// The view along one axis: indices outside, a range inside, indices outside.
struct AxisView {
    before: Vec<Option<usize>>,
    inside: Range<usize>,
    after: Vec<Option<usize>>,
}

impl AxisView {
    fn new(start: i64, length: usize, size: usize, outside: BorderMode) -> Self {
        let end = start.saturating_add(length as i64);
        let first = start.clamp(0, size as i64).min(end.max(0));
        let last = end.clamp(first, size as i64);
        let places = |range: Range<i64>| range.map(|at| outside.place(at, size)).collect();
        Self {
            before: places(start..first.max(start).min(end)),
            inside: first as usize..last as usize,
            after: places(last.max(start).min(end)..end),
        }
    }

    fn rows(&self) -> impl Iterator<Item = Option<usize>> {
        let inside = self.inside.clone().map(Some);
        self.before.iter().copied().chain(inside).chain(self.after.iter().copied())
    }
}

/// The part of an image within the window.
pub(super) fn cut(
    tensor: Tensor,
    dims: ImageDims,
    window: Window,
    outside: BorderMode,
    fill: &FillValue,
    deadline: &Deadline,
) -> Result<Tensor, StepFailure> {
    let whole = Window { top: 0, left: 0, height: dims.height, width: dims.width };
    if window == whole {
        return Ok(tensor);
    }
    let shape = [window.height, window.width, dims.channels];
    let cut = with_elements!(tensor.data(), data => {
        Tensor::new(shape, view(data, dims, window, outside, &fill.pixel(dims.channels)?, deadline)?)
    })?;
    Ok(cut.with_metadata(tensor.metadata))
}

fn view<T: Clone>(
    data: &[T],
    dims: ImageDims,
    window: Window,
    outside: BorderMode,
    fill: &[T],
    deadline: &Deadline,
) -> Result<Vec<T>, DeadlineExceeded> {
    let channels = dims.channels;
    let rows = AxisView::new(window.top, window.height, dims.height, outside);
    let columns = AxisView::new(window.left, window.width, dims.width, outside);
    let inside = columns.inside.start * channels..columns.inside.end * channels;
    let mut result = Vec::with_capacity(window.height * window.width * channels);
    for row in rows.rows() {
        deadline.check_after(window.width * channels)?;
        let Some(row) = row else {
            (0..window.width).for_each(|_| result.extend_from_slice(fill));
            continue;
        };
        let row = &data[row * dims.width * channels..][..dims.width * channels];
        let pixel = |place: &Option<usize>| place.map_or(fill, |place| &row[place * channels..][..channels]);
        columns.before.iter().for_each(|place| result.extend_from_slice(pixel(place)));
        result.extend_from_slice(&row[inside.clone()]);
        columns.after.iter().for_each(|place| result.extend_from_slice(pixel(place)));
    }
    Ok(result)
}
