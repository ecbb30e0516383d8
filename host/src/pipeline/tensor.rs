//! Tensors: typed, row-major, shared until written to.

use std::sync::Arc;

use half::{bf16, f16};

use super::element::{Element, ElementType};
use super::goes_on::GoesOn;
use super::metadata::Metadata;
use super::strided;

/// Why a tensor could not be made or changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TensorError {
    /// the data does not fill the shape
    #[error("shape {shape:?} holds {expected} elements, but {given} were given")]
    Length {
        /// the shape asked for
        shape: Vec<usize>,
        /// its number of elements
        expected: usize,
        /// how many there were
        given: usize,
    },
    /// the bytes do not fill the shape
    #[error("a {element} tensor of shape {shape:?} takes {expected} bytes, but {given} were given")]
    ByteLength {
        /// the element type asked for
        element: ElementType,
        /// the shape asked for
        shape: Vec<usize>,
        /// its size in bytes
        expected: usize,
        /// how many bytes there were
        given: usize,
    },
    /// more axes than any model has: code that walks a shape may trust in few
    #[error("a tensor has at most {MAX_AXES} axes, not {0}")]
    TooManyAxes(usize),
    /// the product of the dimensions does not fit the address space
    #[error("a {element} tensor of shape {shape:?} does not fit in memory")]
    TooLarge {
        /// the element type asked for
        element: ElementType,
        /// the shape asked for
        shape: Vec<usize>,
    },
    /// a bool that is neither 0 nor 1
    #[error("byte {0} is not a bool: only 0 and 1 are")]
    NotABool(u8),
    /// bytes were asked of, or given for, a tensor of strings
    #[error("a tensor of strings has no fixed-size bytes")]
    Strings,
    /// a range outside the tensor
    #[error("bytes {offset}..{end} lie outside a tensor of {len} bytes")]
    Range {
        /// first byte
        offset: usize,
        /// one past the last byte
        end: usize,
        /// the tensor's size
        len: usize,
    },
    /// a permutation that does not name each axis once
    #[error("{axes:?} does not name each of the {rank} axes once")]
    Axes {
        /// the axes given
        axes: Vec<usize>,
        /// the tensor's rank
        rank: usize,
    },
    /// elements were asked for that are not there
    #[error("a tensor of shape {shape:?} would reach outside of {len} elements")]
    Outside {
        /// the shape asked for
        shape: Vec<usize>,
        /// how many elements there are
        len: usize,
    },
    /// strings cannot be cast
    #[error("cannot cast {from} to {to}")]
    Cast {
        /// element type before
        from: ElementType,
        /// element type asked for
        to: ElementType,
    },
    /// who asked for it no longer wants it
    #[error("it was stopped")]
    Stopped,
}

/// The elements of a tensor, typed, row-major. Cloning shares them.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "each variant is the element type of its name")]
pub enum TensorData {
    Bool(Arc<Vec<bool>>),
    Uint8(Arc<Vec<u8>>),
    Int8(Arc<Vec<i8>>),
    Uint16(Arc<Vec<u16>>),
    Int16(Arc<Vec<i16>>),
    Uint32(Arc<Vec<u32>>),
    Int32(Arc<Vec<i32>>),
    Uint64(Arc<Vec<u64>>),
    Int64(Arc<Vec<i64>>),
    Float16(Arc<Vec<f16>>),
    Bfloat16(Arc<Vec<bf16>>),
    Float32(Arc<Vec<f32>>),
    Float64(Arc<Vec<f64>>),
    String(Arc<Vec<String>>),
}

/// Runs `$body` with `$data` bound to the shared elements of the variant, whichever it is.
#[macro_export]
#[doc(hidden)]
macro_rules! with_elements {
    ($value:expr, $data:ident => $body:expr) => {
        match $value {
            $crate::pipeline::TensorData::Bool($data) => $body,
            $crate::pipeline::TensorData::Uint8($data) => $body,
            $crate::pipeline::TensorData::Int8($data) => $body,
            $crate::pipeline::TensorData::Uint16($data) => $body,
            $crate::pipeline::TensorData::Int16($data) => $body,
            $crate::pipeline::TensorData::Uint32($data) => $body,
            $crate::pipeline::TensorData::Int32($data) => $body,
            $crate::pipeline::TensorData::Uint64($data) => $body,
            $crate::pipeline::TensorData::Int64($data) => $body,
            $crate::pipeline::TensorData::Float16($data) => $body,
            $crate::pipeline::TensorData::Bfloat16($data) => $body,
            $crate::pipeline::TensorData::Float32($data) => $body,
            $crate::pipeline::TensorData::Float64($data) => $body,
            $crate::pipeline::TensorData::String($data) => $body,
        }
    };
}

/// A Rust type with its place in [`TensorData`].
pub trait TensorElement: Element {
    /// Wraps elements of this type.
    fn wrap(data: Vec<Self>) -> TensorData;
    /// The elements, if they are of this type.
    fn slice(data: &TensorData) -> Option<&[Self]>;
    /// The elements for writing, if they are of this type; shared ones are copied first.
    fn slice_mut(data: &mut TensorData) -> Option<&mut Vec<Self>>;
}

macro_rules! tensor_elements {
    ($($type:ty => $variant:ident),+ $(,)?) => {
        $(impl TensorElement for $type {
            fn wrap(data: Vec<Self>) -> TensorData {
                TensorData::$variant(Arc::new(data))
            }
            fn slice(data: &TensorData) -> Option<&[Self]> {
                if let TensorData::$variant(data) = data { Some(data) } else { None }
            }
            fn slice_mut(data: &mut TensorData) -> Option<&mut Vec<Self>> {
                if let TensorData::$variant(data) = data { Some(Arc::make_mut(data)) } else { None }
            }
        })+

        impl TensorData {
            /// The type of the elements.
            pub fn element(&self) -> ElementType {
                match self { $(Self::$variant(_) => ElementType::$variant,)+ }
            }

            fn zeros(element: ElementType, len: usize) -> Self {
                match element {
                    $(ElementType::$variant => <$type as TensorElement>::wrap(vec![<$type>::default(); len]),)+
                }
            }
        }
    };
}

tensor_elements! {
    bool => Bool, u8 => Uint8, i8 => Int8, u16 => Uint16, i16 => Int16, u32 => Uint32,
    i32 => Int32, u64 => Uint64, i64 => Int64, f16 => Float16, bf16 => Bfloat16,
    f32 => Float32, f64 => Float64, String => String,
}

macro_rules! numeric {
    ($value:expr, $data:ident => $body:expr, bool($bools:ident) => $on_bool:expr, strings => $on_strings:expr) => {
        match $value {
            TensorData::Bool($bools) => $on_bool,
            TensorData::String(_) => $on_strings,
            TensorData::Uint8($data) => $body,
            TensorData::Int8($data) => $body,
            TensorData::Uint16($data) => $body,
            TensorData::Int16($data) => $body,
            TensorData::Uint32($data) => $body,
            TensorData::Int32($data) => $body,
            TensorData::Uint64($data) => $body,
            TensorData::Int64($data) => $body,
            TensorData::Float16($data) => $body,
            TensorData::Bfloat16($data) => $body,
            TensorData::Float32($data) => $body,
            TensorData::Float64($data) => $body,
        }
    };
}

/// A dense tensor, row-major. Cloning is cheap: the elements are shared until one side writes.
///
/// ```
/// use gpux::pipeline::Tensor;
///
/// let tensor = Tensor::new([2, 3], vec![1_f32, 2.0, 3.0, 4.0, 5.0, 6.0])?;
/// assert_eq!(tensor.shape(), [2, 3]);
/// assert_eq!(tensor.as_slice::<f32>().unwrap()[4], 5.0);
/// # Ok::<(), gpux::pipeline::TensorError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    shape: Vec<usize>,
    data: TensorData,
    /// Facts about the numbers: layout, colour, sample rate, geometry.
    pub metadata: Metadata,
}

/// The most that the other dimensions of an empty tensor may multiply to: code that walks a shape
/// may trust that its parts are of a size that memory could hold.
const MAX_EMPTY: usize = 1 << 20;

/// The most axes that a tensor has, as in NumPy.
pub(super) const MAX_AXES: usize = 64;

/// Elements that [`Tensor::change`] copies at a time: they stay in the processor's nearest cache.
const STRETCH: usize = 1024;

/// Elements in a tensor of this shape; `None` when the product overflows, when an empty tensor has
/// absurd other dimensions, or when there are too many axes.
pub fn element_count(shape: &[usize]) -> Option<usize> {
    few_axes(shape).ok()?;
    let others = shape.iter().try_fold(1_usize, |product, dim| product.checked_mul((*dim).max(1)))?;
    if shape.contains(&0) { (others <= MAX_EMPTY).then_some(0) } else { Some(others) }
}

/// Refuses a shape of more axes than a tensor has.
pub fn few_axes(shape: &[usize]) -> Result<(), TensorError> {
    if shape.len() > MAX_AXES { Err(TensorError::TooManyAxes(shape.len())) } else { Ok(()) }
}

/// Elements and bytes of a tensor, refused where they exceed what Rust can allocate.
fn sizes(element: ElementType, shape: &[usize]) -> Result<(usize, usize), TensorError> {
    few_axes(shape)?;
    element_count(shape)
        .and_then(|count| {
            let size = element.size().unwrap_or(size_of::<String>());
            let bytes = count.checked_mul(size)?;
            isize::try_from(bytes).is_ok().then_some((count, bytes))
        })
        .ok_or_else(|| TensorError::TooLarge { element, shape: shape.to_vec() })
}

impl Tensor {
    /// A tensor of `data` in `shape`, row-major.
    pub fn new<T: TensorElement>(shape: impl Into<Vec<usize>>, data: Vec<T>) -> Result<Self, TensorError> {
        let shape = shape.into();
        let (expected, _) = sizes(T::TYPE, &shape)?;
        if data.len() != expected {
            return Err(TensorError::Length { shape, expected, given: data.len() });
        }
        Ok(Self { shape, data: T::wrap(data), metadata: Metadata::default() })
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

    /// The elements, if they are of type `T`.
    pub fn as_slice<T: TensorElement>(&self) -> Option<&[T]> {
        T::slice(&self.data)
    }

    /// The elements for writing, if they are of type `T`. Copies them first if they are shared.
    pub fn as_mut_slice<T: TensorElement>(&mut self) -> Option<&mut [T]> {
        T::slice_mut(&mut self.data).map(Vec::as_mut_slice)
    }

    /// Changes the elements, if they are of type `T`, stretch after stretch. Shared ones are copied a stretch at a
    /// time, so that memory is gone through once.
    pub fn change<T: TensorElement + Copy>(&mut self, mut change: impl FnMut(&mut [T])) {
        if with_elements!(&self.data, data => Arc::strong_count(data) == 1) {
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
            data => bytemuck::cast_slice_mut(Arc::make_mut(data).as_mut_slice())[offset..end].copy_from_slice(bytes),
            bool(data) => {
                let checked = bytes.iter().map(|byte| to_bool(*byte)).collect::<Result<Vec<_>, _>>()?;
                Arc::make_mut(data)[offset..end].copy_from_slice(&checked);
            },
            strings => return Err(TensorError::Strings));
        Ok(())
    }

    /// The same elements in another shape.
    pub fn reshape(mut self, shape: impl Into<Vec<usize>>) -> Result<Self, TensorError> {
        let shape = shape.into();
        let given = self.len();
        few_axes(&shape)?;
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
        self.permute_while(axes, &())
    }

    /// As [`permute`](Self::permute), unless it is stopped.
    pub fn permute_while(&self, axes: &[usize], who: &dyn GoesOn) -> Result<Self, TensorError> {
        let rank = self.rank();
        let mut seen = vec![false; rank];
        let valid = axes.len() == rank
            && axes.iter().all(|axis| seen.get_mut(*axis).is_some_and(|seen| !std::mem::replace(seen, true)));
        if !valid {
            return Err(TensorError::Axes { axes: axes.to_vec(), rank });
        }
        let strides = self.strides();
        let axes: Vec<_> = axes.iter().map(|axis| (self.shape[*axis], strides[*axis])).collect();
        self.pick_while(0, &axes, who)
    }

    /// How far apart the elements of each axis lie.
    pub fn strides(&self) -> Vec<isize> {
        strides(&self.shape)
    }

    /// A tensor of elements of this one: `axes` are its (size, step through this one's elements), and
    /// its first element is number `start`. A step of 0 repeats, a negative one goes backwards.
    ///
    /// ```
    /// use gpux::pipeline::Tensor;
    ///
    /// let tensor = Tensor::new([2, 3], vec![1, 2, 3, 4, 5, 6])?;
    /// let last_column_twice = tensor.pick(2, &[(2, 3), (2, 0)])?;
    /// assert_eq!(last_column_twice, Tensor::new([2, 2], vec![3, 3, 6, 6])?);
    /// # Ok::<(), gpux::pipeline::TensorError>(())
    /// ```
    pub fn pick(&self, start: usize, axes: &[(usize, isize)]) -> Result<Self, TensorError> {
        self.pick_while(start, axes, &())
    }

    /// As [`pick`](Self::pick), unless it is stopped.
    pub fn pick_while(&self, start: usize, axes: &[(usize, isize)], who: &dyn GoesOn) -> Result<Self, TensorError> {
        let shape: Vec<_> = axes.iter().map(|(size, _)| *size).collect();
        sizes(self.element(), &shape)?;
        if !strided::lies_within(start, axes, self.len()) {
            return Err(TensorError::Outside { shape, len: self.len() });
        }
        let data = with_elements!(&self.data, data => {
            strided::gather(data, start, axes, who).map(TensorElement::wrap)
        });
        Ok(Self { shape, data: data.ok_or(TensorError::Stopped)?, metadata: self.metadata })
    }

    /// The elements converted to another type, as NumPy's `astype` and ONNX's `Cast` do: floats to
    /// integers truncate toward zero (saturating outside the range, where those leave it open),
    /// integers to narrower ones keep their lowest bits, numbers to bool are `x != 0`.
    pub fn cast(&self, to: ElementType) -> Result<Self, TensorError> {
        self.cast_while(to, &())
    }

    /// As [`cast`](Self::cast), unless it is stopped.
    pub fn cast_while(&self, to: ElementType, who: &dyn GoesOn) -> Result<Self, TensorError> {
        let from = self.element();
        if from == to {
            return Ok(self.clone());
        }
        if from == ElementType::String || to == ElementType::String {
            return Err(TensorError::Cast { from, to });
        }
        let data = super::cast::cast(&self.data, to, who).ok_or(TensorError::Stopped)?;
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

/// How far apart the elements of each axis lie in a row-major tensor.
fn strides(shape: &[usize]) -> Vec<isize> {
    let mut strides = vec![1; shape.len()];
    for axis in (0..shape.len().saturating_sub(1)).rev() {
        strides[axis] = strides[axis + 1] * shape[axis + 1] as isize;
    }
    strides
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_overflow_are_refused() {
        let error = Tensor::zeros(ElementType::Float32, [usize::MAX, 2]).unwrap_err();
        assert!(matches!(error, TensorError::TooLarge { .. }));
        assert!(Tensor::from_bytes(ElementType::Int64, [1 << 40, 1 << 40], &[]).is_err());
        assert!(Tensor::zeros(ElementType::String, [usize::MAX / 8]).is_err());
        assert!(Tensor::new([4_000_000_000, 0], Vec::<f32>::new()).is_err());
        assert!(Tensor::zeros(ElementType::Uint8, [0, 1 << 40, 1 << 40]).is_err());
        assert!(Tensor::zeros(ElementType::Uint8, [0]).unwrap().reshape([1 << 30, 0]).is_err());
        assert!(Tensor::zeros(ElementType::Uint8, [0, 1000]).is_ok());
    }

    #[test]
    fn there_are_as_many_axes_as_in_numpy() {
        let ones = |axes: usize| vec![1; axes];
        assert!(Tensor::new(ones(64), vec![1_u8]).is_ok());
        let error = Tensor::new(ones(65), vec![1_u8]).unwrap_err();
        assert_eq!(error, TensorError::TooManyAxes(65));
        assert_eq!(error.to_string(), "a tensor has at most 64 axes, not 65");
        assert_eq!(Tensor::zeros(ElementType::String, ones(1000)), Err(TensorError::TooManyAxes(1000)));
        assert_eq!(Tensor::from_bytes(ElementType::Uint8, ones(65), &[1]), Err(TensorError::TooManyAxes(65)));
        assert_eq!(Tensor::scalar(1_u8).reshape(ones(65)), Err(TensorError::TooManyAxes(65)));
        assert_eq!(Tensor::scalar(1_u8).pick(0, &[(1, 0); 65]), Err(TensorError::TooManyAxes(65)));
    }

    #[test]
    fn bytes_cross_unchanged() {
        let bytes: Vec<u8> = (0..24).collect();
        for element in ElementType::ALL {
            let Some(size) = element.size() else { continue };
            if element == ElementType::Bool {
                continue;
            }
            let tensor = Tensor::from_bytes(element, [24 / size], &bytes).unwrap();
            assert_eq!(tensor.bytes().unwrap(), bytes, "{element}");
        }
        assert_eq!(Tensor::from_bytes(ElementType::Bool, [1], &[2]), Err(TensorError::NotABool(2)));
    }

    #[test]
    fn writing_leaves_the_shared_copy_alone() {
        let first = Tensor::new([2], vec![1_u16, 2]).unwrap();
        let mut second = first.clone();
        second.write_bytes(2, &[7, 0]).unwrap();
        assert_eq!(first.as_slice::<u16>().unwrap(), [1, 2]);
        assert_eq!(second.as_slice::<u16>().unwrap(), [1, 7]);
        assert!(second.write_bytes(3, &[0, 0]).is_err());
        assert!(second.write_bytes(usize::MAX, &[0, 0]).is_err());
    }

    #[test]
    fn a_change_leaves_shared_elements_alone() {
        let numbers: Vec<u32> = (0..3 * STRETCH as u32 + 5).collect();
        let more: Vec<u32> = numbers.iter().map(|number| number + 1).collect();
        let add = |tensor: &mut Tensor| {
            tensor.change(|stretch: &mut [u32]| stretch.iter_mut().for_each(|number| *number += 1));
        };
        let mut tensor = Tensor::new([numbers.len()], numbers.clone()).unwrap();
        let other = tensor.clone();
        add(&mut tensor);
        assert_eq!(tensor.as_slice::<u32>().unwrap(), more);
        assert_eq!(other.as_slice::<u32>().unwrap(), numbers);
        drop(other);
        let place = tensor.as_slice::<u32>().unwrap().as_ptr();
        add(&mut tensor);
        assert_eq!(tensor.as_slice::<u32>().unwrap()[7], 9);
        assert_eq!(tensor.as_slice::<u32>().unwrap().as_ptr(), place, "nobody else holds them");
        tensor.change(|stretch: &mut [f32]| stretch.fill(0.0));
        assert_eq!(tensor.as_slice::<u32>().unwrap()[7], 9, "they are of another type");
    }

    #[test]
    fn permute_follows_numpy() {
        let tensor = Tensor::new([2, 1, 3], vec![1, 2, 3, 4, 5, 6_i32]).unwrap();
        let moved = tensor.permute(&[2, 0, 1]).unwrap();
        assert_eq!(moved.shape(), [3, 2, 1]);
        assert_eq!(moved.as_slice::<i32>().unwrap(), [1, 4, 2, 5, 3, 6]);
        assert!(tensor.permute(&[0, 0, 1]).is_err());
        assert!(tensor.permute(&[0, 1, 9]).is_err());
    }

    #[test]
    fn casts_follow_numpy() {
        let tensor = Tensor::new([4], vec![-1.9_f32, 0.0, 1.9, 300.0]).unwrap();
        let cast = |to| tensor.cast(to).unwrap();
        assert_eq!(cast(ElementType::Int32).as_slice::<i32>().unwrap(), [-1, 0, 1, 300]);
        assert_eq!(cast(ElementType::Bool).as_slice::<bool>().unwrap(), [true, false, true, true]);
        assert_eq!(cast(ElementType::Float16).as_slice::<f16>().unwrap()[2], f16::from_f32(1.9));
        assert!(tensor.cast(ElementType::String).is_err());
        assert_eq!(cast(ElementType::Uint8).as_slice::<u8>().unwrap(), [0, 0, 1, 255]);
        let wide = Tensor::new([3], vec![300_i64, -1, i64::MIN]).unwrap();
        assert_eq!(wide.cast(ElementType::Uint8).unwrap().as_slice::<u8>().unwrap(), [44, 255, 0]);
    }

    /// Nobody wants anything.
    struct Nobody;

    impl GoesOn for Nobody {
        fn goes_on(&self, _: usize) -> bool {
            false
        }
    }

    #[test]
    fn long_work_can_be_stopped() {
        let tensor = Tensor::zeros(ElementType::Uint8, [100, 200]).unwrap();
        assert_eq!(tensor.cast_while(ElementType::Float16, &Nobody), Err(TensorError::Stopped));
        assert_eq!(tensor.permute_while(&[1, 0], &Nobody), Err(TensorError::Stopped));
        assert_eq!(tensor.pick_while(0, &[(20_000, 1)], &Nobody), Err(TensorError::Stopped));
    }
}
