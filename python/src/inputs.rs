//! Python objects as the values of a request.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use gpux::{ElementType, Kind, Plan, Tensor, Value, from_json};
use numpy::{PyUntypedArray, PyUntypedArrayMethods as _};
use pyo3::exceptions::{PyOSError, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyMemoryView, PyString};

use crate::errors::invalid_input;
use crate::json::{self, SpecialFloats};
use crate::{array, images};

/// The named values of a request.
///
/// # Errors
///
/// A `ValidationError` that names the input. Whether there are such inputs, and all of them, is the plan's to say.
pub(crate) fn values(py: Python<'_>, plan: &Plan, inputs: &Bound<'_, PyDict>) -> PyResult<Vec<(String, Value)>> {
    let mut values = Vec::with_capacity(inputs.len());
    for (name, object) in inputs {
        let name: String = name.extract()?;
        let input = plan.inputs().iter().find(|input| input.port.name == name);
        let kind = input.map_or(&Kind::Any, |input| &input.port.kind);
        let value = value(&object, kind).map_err(|error| {
            // Others, of reading a file say, stay what they are.
            let is_about_value = error.is_instance_of::<PyValueError>(py) || error.is_instance_of::<PyTypeError>(py);
            if is_about_value { invalid_input(py, &name, error.value(py)) } else { error }
        })?;
        values.push((name, value));
    }
    Ok(values)
}

fn value(object: &Bound<'_, PyAny>, kind: &Kind) -> PyResult<Value> {
    let py = object.py();
    if let Ok(text) = object.cast::<PyString>() {
        return text_value(text, kind);
    }
    if let Ok(bytes) = object.cast::<PyBytes>() {
        return Ok(Value::Bytes(bytes.as_bytes().into()));
    }
    if is_numpy_loaded(py)?
        && let Ok(array) = object.cast::<PyUntypedArray>()
    {
        return of_array(array, kind);
    }
    if object.is_instance_of::<PyByteArray>() || object.is_instance_of::<PyMemoryView>() {
        let bytes = py.get_type::<PyBytes>().call1((object,))?;
        return Ok(Value::Bytes(bytes.cast::<PyBytes>()?.as_bytes().into()));
    }
    let floats = if matches!(kind, Kind::Tensor(_)) { SpecialFloats::Words } else { SpecialFloats::Refused };
    if let Some(json) = json::from_python(object, floats)? {
        return from_json(json, kind).map_err(|error| PyValueError::new_err(error.to_string()));
    }
    if object.hasattr(intern!(py, "__fspath__"))? {
        return file(object, kind);
    }
    if *kind == Kind::Bytes && images::is_pillow_image(object)? {
        return images::of_pillow(object);
    }
    if let Some(array) = as_array(object)? {
        return of_array(&array, kind);
    }
    let name = object.get_type().fully_qualified_name()?;
    Err(PyTypeError::new_err(format!("takes {kind}, but this is a `{name}`")))
}

fn text_value(text: &Bound<'_, PyString>, kind: &Kind) -> PyResult<Value> {
    let text = text.to_cow()?;
    match kind {
        Kind::Text | Kind::Any => Ok(Value::from(&*text)),
        // Base64, or a path? A program that passes on what strangers send must not open their paths.
        Kind::Bytes => Err(PyTypeError::new_err(
            "takes bytes, but this is a str; give bytes, or pathlib.Path(…) for the contents of a file",
        )),
        Kind::Tensor(_) | Kind::Json => {
            from_json(text.into_owned().into(), kind).map_err(|error| PyValueError::new_err(error.to_string()))
        }
    }
}

/// Arrays exist only if NumPy was imported; asking first leaves it unimported for who does without.
fn is_numpy_loaded(py: Python<'_>) -> PyResult<bool> {
    static LOADED: AtomicBool = AtomicBool::new(false);
    if !LOADED.load(Ordering::Relaxed) {
        let is_loaded = py.import("sys")?.getattr("modules")?.contains("numpy")?;
        LOADED.store(is_loaded, Ordering::Relaxed);
    }
    Ok(LOADED.load(Ordering::Relaxed))
}

/// An array as what the input takes: a tensor, JSON, or a file.
fn of_array(array: &Bound<'_, PyUntypedArray>, kind: &Kind) -> PyResult<Value> {
    if !array.is_exact_instance_of::<PyUntypedArray>() && array.hasattr(intern!(array.py(), "mask"))? {
        return Err(PyTypeError::new_err("a masked array has elements that are no values; fill them first"));
    }
    if *kind == Kind::Json {
        let json = json::from_python(&array.call_method0("tolist")?, SpecialFloats::Refused)?;
        return Ok(Value::from(json.unwrap_or_default()));
    }
    let value = tensor(array)?;
    if *kind == Kind::Bytes {
        return images::of_array(array, value);
    }
    if let (Value::Tensor(tensor), Kind::Tensor(wanted)) = (&value, kind)
        && let Some(element) = wanted.element().filter(|element| *element != tensor.element())
    {
        let (given, name) = (tensor.element(), element.name());
        let message = format!("takes {kind}, and this is an array of {given}: `array.astype(\"{name}\")`");
        return Err(PyTypeError::new_err(message));
    }
    Ok(value)
}

/// An array as a tensor, in place where NumPy's memory is as a tensor's.
fn tensor(array: &Bound<'_, PyUntypedArray>) -> PyResult<Value> {
    let py = array.py();
    if let Some(tensor) = array::borrow(array)? {
        return Ok(tensor.into());
    }
    let dtype = array.dtype();
    match array::element(array)? {
        Some(ElementType::String) => strings(array),
        Some(_) => {
            let native = dtype.call_method1("newbyteorder", ("=",))?;
            let copy = py.import("numpy")?.call_method1("ascontiguousarray", (array, native))?;
            // NumPy gives an array without axes one axis.
            let copy = copy.call_method1("reshape", (array.shape().to_vec(),))?;
            let tensor = array::borrow(copy.cast()?)?;
            let refused = || PyValueError::new_err(format!("an array of `{dtype}` cannot be read"));
            Ok(tensor.ok_or_else(refused)?.into())
        }
        None => Err(PyTypeError::new_err(format!("arrays of `{dtype}` are not supported"))),
    }
}

fn strings(array: &Bound<'_, PyUntypedArray>) -> PyResult<Value> {
    let shape = array.shape().to_vec();
    let items = array.call_method0("ravel")?.call_method0("tolist")?;
    let strings: Vec<String> = items
        .extract()
        .map_err(|_| PyTypeError::new_err(format!("an array of `{}` must hold nothing but str", array.dtype())))?;
    let tensor = Tensor::new(shape, strings).map_err(|error| PyValueError::new_err(error.to_string()))?;
    Ok(tensor.into())
}

/// The contents of a file, for inputs that take bytes.
fn file(path: &Bound<'_, PyAny>, kind: &Kind) -> PyResult<Value> {
    if !matches!(kind, Kind::Bytes | Kind::Any) {
        return Err(PyTypeError::new_err(format!("takes {kind}, and no file")));
    }
    let py = path.py();
    let path: PathBuf = path.extract()?;
    let contents = py.detach(|| std::fs::read(&path));
    contents.map(Value::from).map_err(|error| match error.raw_os_error() {
        // As `open` raises it: with the path.
        Some(number) => PyOSError::new_err((number, error.to_string(), path)),
        None => error.into(),
    })
}

/// What other libraries' arrays, tensors and images are in NumPy: by DLPack, else by `__array__`.
fn as_array<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyUntypedArray>>> {
    let py = object.py();
    let array = if object.hasattr(intern!(py, "__dlpack__"))? {
        py.import("numpy")?.call_method1("from_dlpack", (object,))?
    } else if object.hasattr(intern!(py, "__array__"))? {
        py.import("numpy")?.call_method1("asarray", (object,))?
    } else {
        return Ok(None);
    };
    Ok(Some(array.cast_into()?))
}
