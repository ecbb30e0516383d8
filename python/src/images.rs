//! Images from NumPy and Pillow, as files for inputs that take bytes.

use gpux::Value;
use image::codecs::png::{CompressionType, FilterType, PngEncoder};
use image::{ExtendedColorType, ImageEncoder as _};
use numpy::PyUntypedArray;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

/// An array of uint8: with one axis the bytes of a file; as (height, width) or (height, width, channels) an image,
/// gray, gray with alpha, RGB or RGBA, which becomes an uncompressed PNG file.
pub(crate) fn of_array(array: &Bound<'_, PyUntypedArray>, value: Value) -> PyResult<Value> {
    let Value::Tensor(tensor) = &value else { return Ok(value) };
    let shape = tensor.shape();
    let refused = |why: &str| {
        let message =
            format!("takes bytes: a file, or an image as an array of uint8, (height, width, channels); {why}");
        Err(PyTypeError::new_err(message))
    };
    let Some(bytes) = tensor.as_slice::<u8>() else {
        return refused(&format!("this is an array of {}", tensor.element()));
    };
    let (height, width, color) = match *shape {
        [_] => return Ok(Value::from(bytes.to_vec())),
        [height, width] | [height, width, 1] => (height, width, ExtendedColorType::L8),
        [height, width, 2] => (height, width, ExtendedColorType::La8),
        [height, width, 3] => (height, width, ExtendedColorType::Rgb8),
        [height, width, 4] => (height, width, ExtendedColorType::Rgba8),
        [1 | 3 | 4, _, _] => return refused(&format!("this is {shape:?}: `array.transpose(1, 2, 0)`")),
        _ => return refused(&format!("this is {shape:?}")),
    };
    let sizes = u32::try_from(width).ok().zip(u32::try_from(height).ok()).filter(|(width, height)| width * height > 0);
    let Some((width, height)) = sizes else { return refused(&format!("this is {shape:?}")) };
    let encode = || {
        let mut file = Vec::new();
        let encoder = PngEncoder::new_with_quality(&mut file, CompressionType::Uncompressed, FilterType::NoFilter);
        encoder.write_image(bytes, width, height, color).map(|()| file)
    };
    let file = array.py().detach(encode).map_err(|error| PyValueError::new_err(error.to_string()))?;
    Ok(Value::from(file))
}

pub(crate) fn is_pillow_image(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = object.py();
    let modules = py.import("sys")?.getattr("modules")?;
    let Ok(module) = modules.get_item("PIL.Image") else { return Ok(false) };
    object.is_instance(&module.getattr("Image")?)
}

/// A Pillow image as an uncompressed PNG file. Modes that PNG files cannot have are converted as Pillow does it.
pub(crate) fn of_pillow(image: &Bound<'_, PyAny>) -> PyResult<Value> {
    let py = image.py();
    let mode: String = image.getattr("mode")?.extract()?;
    let in_png = match mode.as_str() {
        "1" | "L" | "LA" | "P" | "RGB" | "RGBA" => None,
        "La" => Some("LA"),
        "PA" | "RGBa" => Some("RGBA"),
        "CMYK" | "HSV" | "LAB" | "RGBX" | "YCbCr" => Some("RGB"),
        mode if mode.starts_with("I;16") => None,
        _ => {
            let message = format!(
                "takes bytes, and a Pillow image of mode {mode} has no 8 bits a channel; say how its values become \
                 bytes: give `image.convert(\"L\")`, or an array of uint8"
            );
            return Err(PyTypeError::new_err(message));
        }
    };
    let converted = in_png.map(|mode| image.call_method1("convert", (mode,))).transpose()?;
    let file = py.import("io")?.call_method0("BytesIO")?;
    let options = PyDict::new(py);
    options.set_item("format", "PNG")?;
    options.set_item("compress_level", 0)?;
    converted.as_ref().unwrap_or(image).call_method("save", (&file,), Some(&options))?;
    Ok(Value::from(file.call_method0("getvalue")?.cast::<PyBytes>()?.as_bytes().to_vec()))
}
