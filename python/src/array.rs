//! Tensors in NumPy's memory, and NumPy arrays in a tensor's.

#![allow(unsafe_code, reason = "NumPy's memory is reached by pointers; each block says why it may be")]

use std::ffi::{c_int, c_void};
use std::ptr;

use gpux::{ElementType, Elements, Tensor, TensorData};
use gpux_core::{ElementsOwner, with_elements};
use numpy::npyffi::{self, NPY_TYPES, NpyTypes, PY_ARRAY_API, npy_intp};
use numpy::{PyArrayDescrMethods as _, PyUntypedArray, PyUntypedArrayMethods as _};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

/// Tensors up to this size are copied to NumPy: an owner beside the array costs more.
const COPIED_BYTES: usize = 4096;

/// The elements of a NumPy array, which lives as long as this does.
struct ArrayElements<T> {
    data: *const T,
    len: usize,
    _array: Py<PyUntypedArray>,
}

// SAFETY: the memory belongs to the array, which any thread may read; the reference to the array is counted by PyO3.
unsafe impl<T: Send> Send for ArrayElements<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for ArrayElements<T> {}

impl<T: Send + Sync> ElementsOwner<T> for ArrayElements<T> {
    fn elements(&self) -> &[T] {
        if self.len == 0 {
            return &[];
        }
        // SAFETY: `borrow` has checked that the array is aligned, contiguous and of this type and length; NumPy does
        // not move the data of an array that others refer to. That nobody writes to it meanwhile is the caller's
        // part, as with every library that reads arrays without the interpreter's lock.
        unsafe { std::slice::from_raw_parts(self.data, self.len) }
    }
}

/// A tensor in the memory of `array`, which must be contiguous and aligned, of numbers in the native byte order;
/// `None` if it is not. Bools are copied, because other bytes than 0 and 1 must not become `bool`.
pub(crate) fn borrow(array: &Bound<'_, PyUntypedArray>) -> PyResult<Option<Tensor>> {
    let dtype = array.dtype();
    let fits = array.is_c_contiguous() && array.is_aligned() && dtype.is_native_byteorder() != Some(false);
    let Some(element) = element(array)?.filter(|_| fits) else { return Ok(None) };
    if array.len() * element.size().unwrap_or(1) != array.len() * dtype.itemsize() {
        return Ok(None);
    }
    let shape = array.shape().to_vec();
    let tensor = match element {
        ElementType::Bool => Tensor::from_bytes(element, shape, elements::<u8>(array).as_slice()),
        ElementType::Uint8 => Tensor::from_elements(shape, elements::<u8>(array)),
        ElementType::Int8 => Tensor::from_elements(shape, elements::<i8>(array)),
        ElementType::Uint16 => Tensor::from_elements(shape, elements::<u16>(array)),
        ElementType::Int16 => Tensor::from_elements(shape, elements::<i16>(array)),
        ElementType::Uint32 => Tensor::from_elements(shape, elements::<u32>(array)),
        ElementType::Int32 => Tensor::from_elements(shape, elements::<i32>(array)),
        ElementType::Uint64 => Tensor::from_elements(shape, elements::<u64>(array)),
        ElementType::Int64 => Tensor::from_elements(shape, elements::<i64>(array)),
        ElementType::Float16 => Tensor::from_elements(shape, elements::<half::f16>(array)),
        ElementType::Bfloat16 => Tensor::from_elements(shape, elements::<half::bf16>(array)),
        ElementType::Float32 => Tensor::from_elements(shape, elements::<f32>(array)),
        ElementType::Float64 => Tensor::from_elements(shape, elements::<f64>(array)),
        ElementType::String => return Ok(None),
    };
    tensor.map(Some).map_err(|error| PyValueError::new_err(error.to_string()))
}

/// `T` is as wide as the elements of the array, and takes any bytes.
fn elements<T: Clone + Send + Sync + 'static>(array: &Bound<'_, PyUntypedArray>) -> Elements<T> {
    // SAFETY: the pointer to a live array is valid.
    let data = unsafe { (*array.as_array_ptr()).fields.data };
    Elements::from_owner(ArrayElements {
        data: data.cast::<T>().cast_const(),
        len: array.len(),
        _array: array.clone().unbind(),
    })
}

/// The type of the elements; `None` if gpux has none like it. Strings come out as `String`.
pub(crate) fn element(array: &Bound<'_, PyUntypedArray>) -> PyResult<Option<ElementType>> {
    let dtype = array.dtype();
    Ok(match (dtype.kind(), dtype.itemsize()) {
        (b'b', 1) => Some(ElementType::Bool),
        (b'u', 1) => Some(ElementType::Uint8),
        (b'i', 1) => Some(ElementType::Int8),
        (b'u', 2) => Some(ElementType::Uint16),
        (b'i', 2) => Some(ElementType::Int16),
        (b'u', 4) => Some(ElementType::Uint32),
        (b'i', 4) => Some(ElementType::Int32),
        (b'u', 8) => Some(ElementType::Uint64),
        (b'i', 8) => Some(ElementType::Int64),
        (b'f', 2) => Some(ElementType::Float16),
        (b'f', 4) => Some(ElementType::Float32),
        (b'f', 8) => Some(ElementType::Float64),
        (b'U' | b'O' | b'T', _) => Some(ElementType::String),
        // NumPy has no bfloat16; the package ml_dtypes adds one.
        (_, 2) if dtype.getattr("name")?.eq("bfloat16")? => Some(ElementType::Bfloat16),
        _ => None,
    })
}

/// Keeps elements alive for an array in their memory.
#[pyclass(frozen)]
struct ArrayOwner {
    _elements: TensorData,
}

/// The tensor as a NumPy array. A large tensor's memory becomes the array's, read-only where others share it.
/// bfloat16 has no type in NumPy: the array is of `uint16` with its bits.
///
/// # Errors
///
/// A `TypeError` for strings.
pub(crate) fn to_numpy(py: Python<'_>, tensor: Tensor) -> PyResult<Bound<'_, PyAny>> {
    let number = numpy_type(tensor.element()).ok_or_else(|| PyTypeError::new_err("NumPy has no such type"))?;
    let bytes = tensor.bytes().map_or(0, <[u8]>::len);
    let mut dims: Vec<npy_intp> = tensor.shape().iter().map(|size| *size as npy_intp).collect();
    let new = |dims: &mut [npy_intp], data: *mut c_void, flags: c_int| {
        // SAFETY: `dims` has as many sizes as it says, `number` is a type of NumPy's own without further
        // parameters, and `data` is null or has room for that many elements.
        let array = unsafe {
            let class = npyffi::get_type_object(py, NpyTypes::PyArray_Type);
            let rank = dims.len() as c_int;
            let (none, null) = (ptr::null_mut(), ptr::null_mut());
            PY_ARRAY_API.PyArray_New(py, class, rank, dims.as_mut_ptr(), number as c_int, none, data, 0, flags, null)
        };
        // SAFETY: a new reference, or null with an exception set.
        unsafe { Bound::from_owned_ptr_or_err(py, array) }
    };
    if bytes <= COPIED_BYTES {
        let array = new(&mut dims, ptr::null_mut(), 0)?;
        let from = tensor.bytes().unwrap_or_default();
        // SAFETY: the array is new, contiguous, and of as many bytes as the tensor.
        unsafe {
            let data = (*array.as_ptr().cast::<npyffi::PyArrayObject>()).fields.data;
            ptr::copy_nonoverlapping(from.as_ptr(), data.cast(), from.len());
        }
        return Ok(array);
    }
    let mut elements = tensor.into_data();
    let is_writable = !with_elements!(&elements, data => data.is_shared());
    let data: *mut c_void = with_elements!(&mut elements, data => if is_writable {
        data.make_mut().as_mut_ptr().cast()
    } else {
        data.as_ptr().cast_mut().cast()
    });
    let owner = Bound::new(py, ArrayOwner { _elements: elements })?;
    let flags = npyffi::NPY_ARRAY_CARRAY_RO | if is_writable { npyffi::NPY_ARRAY_WRITEABLE } else { 0 };
    let array = new(&mut dims, data, flags)?;
    // SAFETY: the array is new; the call takes over the reference to the owner, also if it fails.
    let failed = unsafe { PY_ARRAY_API.PyArray_SetBaseObject(py, array.as_ptr().cast(), owner.into_ptr()) };
    if failed != 0 {
        return Err(PyErr::fetch(py));
    }
    Ok(array)
}

fn numpy_type(element: ElementType) -> Option<NPY_TYPES> {
    Some(match element {
        ElementType::Bool => NPY_TYPES::NPY_BOOL,
        ElementType::Uint8 => NPY_TYPES::NPY_UBYTE,
        ElementType::Int8 => NPY_TYPES::NPY_BYTE,
        ElementType::Uint16 | ElementType::Bfloat16 => NPY_TYPES::NPY_USHORT,
        ElementType::Int16 => NPY_TYPES::NPY_SHORT,
        ElementType::Uint32 => NPY_TYPES::NPY_UINT,
        ElementType::Int32 => NPY_TYPES::NPY_INT,
        // `long` has 64 bits on some systems and 32 on others; Python means the one that NumPy calls int64.
        ElementType::Uint64 if size_of::<std::ffi::c_ulong>() == 8 => NPY_TYPES::NPY_ULONG,
        ElementType::Uint64 => NPY_TYPES::NPY_ULONGLONG,
        ElementType::Int64 if size_of::<std::ffi::c_long>() == 8 => NPY_TYPES::NPY_LONG,
        ElementType::Int64 => NPY_TYPES::NPY_LONGLONG,
        ElementType::Float16 => NPY_TYPES::NPY_HALF,
        ElementType::Float32 => NPY_TYPES::NPY_FLOAT,
        ElementType::Float64 => NPY_TYPES::NPY_DOUBLE,
        ElementType::String => return None,
    })
}
