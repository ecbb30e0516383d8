//! Resampling an image to another size, by the rules of each library that models
//! are trained with.

mod opencv;
mod pillow;
mod pillow_box;
mod taps;
mod torch;
mod weighted;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::dims::{ImageDims, check_limits, supports_channels};
use crate::deadline::{Deadline, DeadlineExceeded};
use gpux_core::{BuildError, ElementSet, ElementType, StepFailure, Tensor, TensorData, TensorElement};

/// Whose rules of sampling are followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(super) enum Library {
    #[default]
    Pillow,
    Opencv,
    Torch,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub(super) enum Filter {
    Nearest,
    NearestExact,
    #[default]
    Bilinear,
    Bicubic,
    Lanczos,
    Area,
}

impl Filter {
    /// Whether pixels are taken as they are.
    pub(super) const fn is_nearest(self) -> bool {
        matches!(self, Self::Nearest | Self::NearestExact)
    }
}

/// A library, its filter, and whether that averages over all that a smaller pixel covers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sampling {
    pub(super) library: Library,
    pub(super) filter: Filter,
    pub(super) antialias: bool,
}

impl Sampling {
    /// The sampling of these options; an error where the library has none like it.
    pub(super) fn new(library: Library, filter: Filter, antialias: Option<bool>) -> Result<Self, BuildError> {
        let lacks = |what: &str, hint: &str| Err(BuildError::option("filter", what).with_hint(hint));
        match (library, filter) {
            (Library::Pillow | Library::Opencv, Filter::NearestExact) => {
                return lacks("`nearest_exact` is torchvision's", "use `library: torch`, or `filter: nearest`");
            }
            (Library::Opencv, Filter::Lanczos) => {
                return lacks(
                    "`lanczos` with `library: opencv` is not supported",
                    "use `library: pillow`, or another filter: nearest, bilinear, bicubic, area",
                );
            }
            (Library::Torch, Filter::Lanczos | Filter::Area) => {
                return lacks(
                    "torchvision resizes tensors by `nearest`, `nearest_exact`, `bilinear` and `bicubic` only",
                    "use `library: pillow`, which has all filters",
                );
            }
            _ => {}
        }
        let usual = match library {
            Library::Pillow | Library::Torch => !filter.is_nearest(),
            Library::Opencv => false,
        };
        if library != Library::Torch && antialias.is_some_and(|wanted| wanted != usual) {
            let message = match library {
                Library::Opencv => "OpenCV has no antialiasing",
                _ => "Pillow always antialiases, but for `nearest`",
            };
            return Err(BuildError::option("antialias", message)
                .with_hint("`antialias` is a choice of `library: torch`; leave it out otherwise"));
        }
        Ok(Self { library, filter, antialias: antialias.unwrap_or(usual) })
    }

    /// The element types that can be resampled.
    pub(super) const fn elements() -> ElementSet {
        ElementSet::of(&[ElementType::Uint8, ElementType::Float32])
    }

    /// Bytes that lie between the passes.
    pub(super) fn buffers(self, tensor: &Tensor, dims: ImageDims, target: ImageDims) -> usize {
        if !supports_channels(dims.channels) {
            let plane = |dims: ImageDims| dims.height.saturating_mul(dims.width.saturating_mul(4));
            let (one, one_target) = (ImageDims { channels: 1, ..dims }, ImageDims { channels: 1, ..target });
            let planes = plane(dims).saturating_add(plane(target));
            return self.buffers(tensor, one, one_target).saturating_add(planes);
        }
        // Means are not rounded between the passes.
        let unrounded = self.library == Library::Opencv;
        let sample = if unrounded { 4 } else { tensor.element().size().unwrap_or(1) };
        let pillow = self.library == Library::Pillow;
        // Floats go across first, whatever becomes of the height.
        let in_order = pillow && (tensor.element() != ElementType::Float32 || self.filter == Filter::Area);
        let between = if in_order { pillow::between(dims, target) } else { ImageDims { width: target.width, ..dims } };
        let between = between.height.saturating_mul(between.width.saturating_mul(dims.channels * sample));
        // Pillow's passes turn some rows at a time; their weights are as many as the sides are long, times the
        // reach of a filter.
        let between = if pillow {
            let rows = weighted::ROWS.min(dims.height) * weighted::padded(dims.channels);
            let wide = dims.width.saturating_add(target.width);
            let sides = wide.saturating_add(dims.height).saturating_add(target.height);
            between.saturating_add(wide.saturating_mul(rows)).saturating_add(sides.saturating_mul(32))
        } else {
            between
        };
        // Colours weighed by their opacity are a copy.
        if dims.channels == 4 { between.saturating_add(tensor.byte_len()) } else { between }
    }

    /// The image at the size of `target`, which fits. The metadata is that of a new tensor.
    pub(super) fn resize(
        self,
        tensor: &Tensor,
        dims: ImageDims,
        target: ImageDims,
        deadline: &Deadline,
    ) -> Result<Tensor, StepFailure> {
        // Between two passes lies an image as wide as one and as high as the other.
        check_limits(dims.height, target.width).map_err(StepFailure::InvalidInput)?;
        if !supports_channels(dims.channels) {
            return self.resize_planes(tensor, dims, target, deadline);
        }
        match self.library {
            Library::Pillow => pillow::resize(tensor, dims, target, self.filter, deadline),
            Library::Opencv => opencv::resize(tensor, dims, target, self.filter, deadline),
            Library::Torch => torch::resize(tensor, dims, target, self, deadline),
        }
    }

    /// The same for other numbers of channels, one after the other.
    fn resize_planes(
        self,
        tensor: &Tensor,
        dims: ImageDims,
        target: ImageDims,
        deadline: &Deadline,
    ) -> Result<Tensor, StepFailure> {
        match tensor.data() {
            TensorData::Uint8(data) => self.planes(data, dims, target, deadline),
            TensorData::Float32(data) => self.planes(data, dims, target, deadline),
            other => Err(StepFailure::InvalidInput(format!("cannot resize {}; cast it first", other.element()))),
        }
    }

    fn planes<T: TensorElement + Copy + Default>(
        self,
        data: &[T],
        dims: ImageDims,
        target: ImageDims,
        deadline: &Deadline,
    ) -> Result<Tensor, StepFailure> {
        let (one, one_target) = (ImageDims { channels: 1, ..dims }, ImageDims { channels: 1, ..target });
        let mut result = vec![T::default(); target.height * target.width * target.channels];
        for channel in 0..dims.channels {
            deadline.check_after(dims.height * dims.width)?;
            let plane = data.iter().skip(channel).step_by(dims.channels).copied().collect();
            let resized = self.resize(&to_tensor::<T>(one, plane)?, one, one_target, deadline)?;
            let resized = resized.as_slice::<T>().unwrap_or_default();
            deadline.check_after(resized.len())?;
            for (to, sample) in result.iter_mut().skip(channel).step_by(dims.channels).zip(resized) {
                *to = *sample;
            }
        }
        to_tensor(target, result)
    }
}

fn to_tensor<T: TensorElement>(dims: ImageDims, samples: Vec<T>) -> Result<Tensor, StepFailure> {
    Ok(Tensor::new([dims.height, dims.width, dims.channels], samples)?)
}

/// The pixels at these rows and columns.
fn nearest<T: Copy>(
    from: &[T],
    dims: ImageDims,
    rows: &[usize],
    columns: &[usize],
    deadline: &Deadline,
) -> Result<Vec<T>, DeadlineExceeded> {
    let channels = dims.channels;
    let mut result = Vec::with_capacity(rows.len() * columns.len() * channels);
    for row in rows {
        deadline.check_after(columns.len() * channels)?;
        let from = &from[row * dims.width * channels..][..dims.width * channels];
        for column in columns {
            result.extend_from_slice(&from[column * channels..][..channels]);
        }
    }
    Ok(result)
}
