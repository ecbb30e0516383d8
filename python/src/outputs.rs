//! The values of a result as Python objects.

use gpux::{ElementType, Outputs, Tensor, Value};
use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString};

use crate::{array, json};

/// The results by name, in the pipeline's order.
pub(crate) fn to_dict(py: Python<'_>, outputs: Outputs) -> PyResult<Bound<'_, PyDict>> {
    let dict = PyDict::new(py);
    for (name, value) in outputs {
        dict.set_item(name, to_python(py, value)?)?;
    }
    Ok(dict)
}

fn to_python(py: Python<'_>, value: Value) -> PyResult<Bound<'_, PyAny>> {
    Ok(match value {
        Value::Text(text) => PyString::new(py, &text).into_any(),
        Value::Bytes(bytes) => PyBytes::new(py, &bytes).into_any(),
        Value::Json(json) => json::to_python(py, &json)?,
        Value::Tensor(tensor) if tensor.element() == ElementType::Bfloat16 => bfloat16(py, tensor)?,
        Value::Tensor(tensor) => match tensor.as_slice::<String>() {
            Some(strings) => string_array(py, strings, tensor.shape())?,
            None => array::to_numpy(py, tensor)?,
        },
    })
}

/// An array of `ml_dtypes.bfloat16` where that package is installed, else of float32, which holds every bfloat16.
fn bfloat16(py: Python<'_>, tensor: Tensor) -> PyResult<Bound<'_, PyAny>> {
    match py.import("ml_dtypes") {
        Ok(types) => array::to_numpy(py, tensor)?.call_method1("view", (types.getattr("bfloat16")?,)),
        Err(error) if error.is_instance_of::<PyImportError>(py) => {
            let wide = tensor.cast(ElementType::Float32);
            array::to_numpy(py, wide.map_err(|error| PyImportError::new_err(error.to_string()))?)
        }
        Err(error) => Err(error),
    }
}

/// An array of `str` objects.
fn string_array<'py>(py: Python<'py>, strings: &[String], shape: &[usize]) -> PyResult<Bound<'py, PyAny>> {
    let options = PyDict::new(py);
    options.set_item("dtype", "object")?;
    let array = py.import("numpy")?.call_method("array", (PyList::new(py, strings)?,), Some(&options))?;
    array.call_method1("reshape", (shape.to_vec(),))
}
