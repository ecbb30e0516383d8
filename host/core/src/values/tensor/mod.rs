//! Tensors: typed, row-major, shared until written to.

mod cast;
mod data;
mod elements;
mod error;
mod metadata;
mod shape;

use half::{bf16, f16};

pub use cast::{bf16_from_f64, f16_from_f64};
pub use data::{TensorData, TensorElement};
pub use elements::{Elements, ElementsOwner};
pub use error::{MAX_AXES, TensorError};
pub use metadata::{Color, Geometry, Layout, Metadata, Transform};
pub use shape::{check_axis_count, element_count};

use super::element::ElementType;
use super::strided_copy;
use crate::cancellation::CancelCheck;
use crate::with_elements;
use data::numeric;
use shape::{sizes, strides};

/// A dense tensor, row-major. Cloning is cheap: the elements are shared until one side writes.
///
/// ```
/// use gpux_core::Tensor;
///
/// let tensor = Tensor::new([2, 3], vec![1_f32, 2.0, 3.0, 4.0, 5.0, 6.0])?;
/// assert_eq!(tensor.shape(), [2, 3]);
/// assert_eq!(tensor.as_slice::<f32>().unwrap()[4], 5.0);
/// # Ok::<(), gpux_core::TensorError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    shape: Vec<usize>,
    data: TensorData,
    /// Facts about the numbers: layout, colour, sample rate, geometry.
    pub metadata: Metadata,
}

/// Elements that [`Tensor::change`] copies at a time: they stay in the processor's nearest cache.
const STRETCH: usize = 1024;

impl Tensor {
    /// A tensor of `data` in `shape`, row-major.
    pub fn new<T: TensorElement>(shape: impl Into<Vec<usize>>, data: Vec<T>) -> Result<Self, TensorError> {
        Self::from_elements(shape, data.into())
    }

    /// A tensor of elements that may be shared, in `shape`, row-major.
    pub fn from_elements<T: TensorElement>(
        shape: impl Into<Vec<usize>>,
        data: Elements<T>,
    ) -> Result<Self, TensorError> {
        let shape = shape.into();
        let (expected, _) = sizes(T::TYPE, &shape)?;
        if data.len() != expected {
            return Err(TensorError::Length { shape, expected, given: data.len() });
        }
        Ok(Self { shape, data: T::wrap_elements(data), metadata: Metadata::default() })
    }

    /// A tensor without axes: one element.
    pub fn scalar<T: TensorElement>(value: T) -> Self {
        Self { shape: Vec::new(), data: T::wrap(vec![value]), metadata: Metadata::default() }
    }

    /// A tensor of zeros, `false` or empty strings.
    pub fn zeros(element: ElementType, shape: impl Into<Vec<usize>>) -> Result<Self, TensorError> {
        let shape = shape.into();
        let (count, _) = sizes(element, &shape)?;
        Ok(Self { data: TensorData::zeros(element, count), shape, metadata: Metadata::default() })
    }

    /// A tensor from little-endian, row-major bytes.
    pub fn from_bytes(element: ElementType, shape: impl Into<Vec<usize>>, bytes: &[u8]) -> Result<Self, TensorError> {
        let shape = shape.into();
        if element == ElementType::String {
            return Err(TensorError::Strings);
        }
        let (_, expected) = sizes(element, &shape)?;
        if bytes.len() != expected {
            return Err(TensorError::ByteLength { element, shape, expected, given: bytes.len() });
        }
        let data = match element {
            ElementType::Bool => bool::wrap(bytes.iter().map(|byte| to_bool(*byte)).collect::<Result<_, _>>()?),
            ElementType::Uint8 => u8::wrap(bytes.to_vec()),
            ElementType::Int8 => collect::<i8>(bytes),
            ElementType::Uint16 => collect::<u16>(bytes),
            ElementType::Int16 => collect::<i16>(bytes),
            ElementType::Uint32 => collect::<u32>(bytes),
            ElementType::Int32 => collect::<i32>(bytes),
            ElementType::Uint64 => collect::<u64>(bytes),
            ElementType::Int64 => collect::<i64>(bytes),
            ElementType::Float16 => collect::<f16>(bytes),
            ElementType::Bfloat16 => collect::<bf16>(bytes),
            ElementType::Float32 => collect::<f32>(bytes),
            ElementType::Float64 => collect::<f64>(bytes),
            ElementType::String => return Err(TensorError::Strings),
        };
        Ok(Self { shape, data, metadata: Metadata::default() })
    }

    /// The same tensor with other metadata.
    #[must_use]
    pub fn with_metadata(mut self, metadata: Metadata) -> Self {
        self.metadata = metadata;
        self
    }

    /// Type of the elements.
    pub fn element(&self) -> ElementType {
        self.data.element()
    }

    /// Dimensions, outermost first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Number of axes.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        with_elements!(&self.data, data => data.len())
    }

    /// Whether a dimension is zero.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Size in bytes; for strings, the bytes of the text.
    pub fn byte_len(&self) -> usize {
        match &self.data {
            TensorData::String(data) => data.iter().map(String::len).sum(),
            other => self.element().size().unwrap_or(0) * with_elements!(other, data => data.len()),
        }
    }

    /// The typed elements.
    pub fn data(&self) -> &TensorData {
        &self.data
    }

    /// The typed elements alone.
    pub fn into_data(self) -> TensorData {
        self.data
    }

    /// The elements, if they are of type `T`.
    pub fn as_slice<T: TensorElement>(&self) -> Option<&[T]> {
        T::slice(&self.data)
    }

    /// The elements for writing, if they are of type `T`. Copies them first if they are shared.
    pub fn as_mut_slice<T: TensorElement>(&mut self) -> Option<&mut [T]> {
        T::slice_mut(&mut self.data)
    }

    /// Changes the elements, if they are of type `T`, stretch after stretch. Shared ones are copied a stretch at a
    /// time, so that memory is gone through once.
    pub fn change<T: TensorElement + Copy>(&mut self, mut change: impl FnMut(&mut [T])) {
        if !with_elements!(&self.data, data => data.is_shared()) {
            return change(self.as_mut_slice().unwrap_or_default());
        }
        let Some(shared) = self.as_slice::<T>() else { return };
        let mut own = Vec::with_capacity(shared.len());
        for stretch in shared.chunks(STRETCH) {
            own.extend_from_slice(stretch);
            let start = own.len() - stretch.len();
            change(&mut own[start..]);
        }
        self.data = T::wrap(own);
    }

    /// The elements as little-endian bytes; `None` for strings.
    pub fn bytes(&self) -> Option<&[u8]> {
        numeric!(&self.data,
            data => Some(bytemuck::cast_slice(data.as_slice())),
            bool(data) => Some(bytemuck::cast_slice(data.as_slice())),
            strings => None)
    }

    /// Overwrites elements from little-endian `bytes`, starting `offset` bytes into the tensor.
    pub fn write_bytes(&mut self, offset: usize, bytes: &[u8]) -> Result<(), TensorError> {
        let len = if self.element() == ElementType::String { 0 } else { self.byte_len() };
        let end = offset.saturating_add(bytes.len());
        if end > len {
            return Err(TensorError::Range { offset, end, len });
        }
        numeric!(&mut self.data,
            data => bytemuck::cast_slice_mut(data.make_mut())[offset..end].copy_from_slice(bytes),
            bool(data) => {
                let checked = bytes.iter().map(|byte| to_bool(*byte)).collect::<Result<Vec<_>, _>>()?;
                data.make_mut()[offset..end].copy_from_slice(&checked);
            },
            strings => return Err(TensorError::Strings));
        Ok(())
    }

    /// The same elements in another shape.
    pub fn reshape(mut self, shape: impl Into<Vec<usize>>) -> Result<Self, TensorError> {
        let shape = shape.into();
        let given = self.len();
        check_axis_count(&shape)?;
        match element_count(&shape) {
            Some(expected) if expected == given => {
                self.shape = shape;
                Ok(self)
            }
            expected => Err(TensorError::Length { shape, expected: expected.unwrap_or(usize::MAX), given }),
        }
    }

    /// The tensor with its axes reordered: axis `i` of the result is axis `axes[i]` of this one.
    pub fn permute(&self, axes: &[usize]) -> Result<Self, TensorError> {
        self.permute_cancellable(axes, &())
    }

    /// As [`permute`](Self::permute), unless it is stopped.
    pub fn permute_cancellable(&self, axes: &[usize], cancel: &dyn CancelCheck) -> Result<Self, TensorError> {
        let rank = self.rank();
        let mut seen = vec![false; rank];
        let valid = axes.len() == rank
            && axes.iter().all(|axis| seen.get_mut(*axis).is_some_and(|seen| !std::mem::replace(seen, true)));
        if !valid {
            return Err(TensorError::Axes { axes: axes.to_vec(), rank });
        }
        let strides = self.strides();
        let axes: Vec<_> = axes.iter().map(|axis| (self.shape[*axis], strides[*axis])).collect();
        self.pick_cancellable(0, &axes, cancel)
    }

    /// How far apart the elements of each axis lie.
    pub fn strides(&self) -> Vec<isize> {
        strides(&self.shape)
    }

    /// A tensor of elements of this one: `axes` are its (size, step through this one's elements), and
    /// its first element is number `start`. A step of 0 repeats, a negative one goes backwards.
    ///
    /// ```
    /// use gpux_core::Tensor;
    ///
    /// let tensor = Tensor::new([2, 3], vec![1, 2, 3, 4, 5, 6])?;
    /// let last_column_twice = tensor.pick(2, &[(2, 3), (2, 0)])?;
    /// assert_eq!(last_column_twice, Tensor::new([2, 2], vec![3, 3, 6, 6])?);
    /// # Ok::<(), gpux_core::TensorError>(())
    /// ```
    pub fn pick(&self, start: usize, axes: &[(usize, isize)]) -> Result<Self, TensorError> {
        self.pick_cancellable(start, axes, &())
    }

    /// As [`pick`](Self::pick), unless it is stopped.
    pub fn pick_cancellable(
        &self,
        start: usize,
        axes: &[(usize, isize)],
        cancel: &dyn CancelCheck,
    ) -> Result<Self, TensorError> {
        let shape: Vec<_> = axes.iter().map(|(size, _)| *size).collect();
        sizes(self.element(), &shape)?;
        if !strided_copy::lies_within(start, axes, self.len()) {
            return Err(TensorError::Outside { shape, len: self.len() });
        }
        let data = with_elements!(&self.data, data => {
            strided_copy::gather(data, start, axes, cancel).map(TensorElement::wrap)
        });
        Ok(Self { shape, data: data.ok_or(TensorError::Stopped)?, metadata: self.metadata })
    }

    /// The elements converted to another type, as NumPy's `astype` and ONNX's `Cast` do: floats to
    /// integers truncate toward zero (saturating outside the range, where those leave it open),
    /// integers to narrower ones keep their lowest bits, numbers to bool are `x != 0`.
    pub fn cast(&self, to: ElementType) -> Result<Self, TensorError> {
        self.cast_cancellable(to, &())
    }

    /// As [`cast`](Self::cast), unless it is stopped.
    pub fn cast_cancellable(&self, to: ElementType, cancel: &dyn CancelCheck) -> Result<Self, TensorError> {
        let from = self.element();
        if from == to {
            return Ok(self.clone());
        }
        if from == ElementType::String || to == ElementType::String {
            return Err(TensorError::Cast { from, to });
        }
        let data = cast::cast(&self.data, to, cancel).ok_or(TensorError::Stopped)?;
        Ok(Self { shape: self.shape.clone(), data, metadata: self.metadata })
    }
}

fn collect<T: TensorElement + bytemuck::Pod>(bytes: &[u8]) -> TensorData {
    T::wrap(bytemuck::pod_collect_to_vec(bytes))
}

fn to_bool(byte: u8) -> Result<bool, TensorError> {
    match byte {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(TensorError::NotABool(other)),
    }
}

#[cfg(test)]
mod tests;
