//! JSON to and from Python's own types.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use serde_json::{Map, Number, Value};

/// Levels of lists and dicts in a value: as many as JSON in a request may have.
const MAX_DEPTH: usize = 128;

/// What becomes of numbers that JSON cannot write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SpecialFloats {
    /// `"NaN"`, `"Infinity"`, `"-Infinity"`, as tensors are read from JSON
    Words,
    /// an error
    Refused,
}

/// JSON as `None`, `bool`, `int`, `float`, `str`, `list` and `dict`.
pub(crate) fn to_python<'py>(py: Python<'py>, json: &Value) -> PyResult<Bound<'py, PyAny>> {
    Ok(match json {
        Value::Null => py.None().into_bound(py),
        Value::Bool(value) => PyBool::new(py, *value).to_owned().into_any(),
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(integer), _) => integer.into_pyobject(py)?.into_any(),
            (None, Some(integer)) => integer.into_pyobject(py)?.into_any(),
            (None, None) => PyFloat::new(py, number.as_f64().unwrap_or(f64::NAN)).into_any(),
        },
        Value::String(text) => PyString::new(py, text).into_any(),
        Value::Array(items) => {
            let items = items.iter().map(|item| to_python(py, item)).collect::<PyResult<Vec<_>>>()?;
            PyList::new(py, items)?.into_any()
        }
        Value::Object(fields) => {
            let dict = PyDict::new(py);
            for (name, value) in fields {
                dict.set_item(name, to_python(py, value)?)?;
            }
            dict.into_any()
        }
    })
}

/// JSON of Python's own types; numbers and arrays of NumPy count as what they hold. `None` where the object is
/// of another type.
///
/// # Errors
///
/// A `ValueError` if something inside is of a type that JSON has not, is nested too deep, or cannot be written.
pub(crate) fn from_python(object: &Bound<'_, PyAny>, floats: SpecialFloats) -> PyResult<Option<Value>> {
    convert(object, floats, 0)
}

fn convert(object: &Bound<'_, PyAny>, floats: SpecialFloats, depth: usize) -> PyResult<Option<Value>> {
    if depth > MAX_DEPTH {
        return Err(PyValueError::new_err(format!("it is nested more than {MAX_DEPTH} levels deep")));
    }
    let inner = |item: &Bound<'_, PyAny>| {
        convert(item, floats, depth + 1)?.ok_or_else(|| {
            let name = item.get_type().name().map_or_else(|_| "?".to_owned(), |name| name.to_string());
            PyValueError::new_err(format!("JSON has no `{name}`"))
        })
    };
    if object.is_none() {
        return Ok(Some(Value::Null));
    }
    if let Ok(value) = object.cast::<PyBool>() {
        return Ok(Some(Value::Bool(value.is_true())));
    }
    if let Ok(text) = object.cast::<PyString>() {
        return Ok(Some(Value::String(text.to_cow()?.into_owned())));
    }
    if object.is_instance_of::<PyInt>() {
        let number = object.extract::<i64>().map(Number::from).or_else(|_| object.extract::<u64>().map(Number::from));
        return match number {
            Ok(number) => Ok(Some(Value::Number(number))),
            Err(_) => Err(PyValueError::new_err("an integer of more than 64 bits")),
        };
    }
    if let Ok(number) = object.cast::<PyFloat>() {
        return float(number.value(), floats).map(Some);
    }
    if let Ok(list) = object.cast::<PyList>() {
        return list.iter().map(|item| inner(&item)).collect::<PyResult<_>>().map(Value::Array).map(Some);
    }
    if let Ok(tuple) = object.cast::<PyTuple>() {
        return tuple.iter().map(|item| inner(&item)).collect::<PyResult<_>>().map(Value::Array).map(Some);
    }
    if let Ok(dict) = object.cast::<PyDict>() {
        let mut fields = Map::new();
        for (name, value) in dict {
            let Ok(name) = name.cast::<PyString>() else {
                return Err(PyValueError::new_err("the keys of an object must be str"));
            };
            fields.insert(name.to_cow()?.into_owned(), inner(&value)?);
        }
        return Ok(Some(Value::Object(fields)));
    }
    // Arrays and scalars of NumPy, below the top level.
    if depth > 0 && object.hasattr("dtype")? && object.hasattr("tolist")? {
        return convert(&object.call_method0("tolist")?, floats, depth + 1);
    }
    Ok(None)
}

fn float(number: f64, floats: SpecialFloats) -> PyResult<Value> {
    if let Some(number) = Number::from_f64(number) {
        return Ok(Value::Number(number));
    }
    if floats == SpecialFloats::Refused {
        return Err(PyValueError::new_err(format!("JSON has no {number}")));
    }
    let word = if number.is_nan() {
        "NaN"
    } else if number > 0.0 {
        "Infinity"
    } else {
        "-Infinity"
    };
    Ok(Value::String(word.to_owned()))
}
