//! Numbers in tensors of strings, read and written as Python does.

use super::parse_number::{float, integer};
use crate::deadline::{Deadline, DeadlineExceeded};
use gpux_core::with_integer_type;
use gpux_core::{ElementType, Tensor, TensorData, TensorElement, bf16_from_f64, f16_from_f64};

/// Why texts do not become bools.
pub(super) const NO_BOOL: &str = "which texts are true is not said: strings cannot be cast to bool";

/// Most bytes that a number takes as a string, its place in the tensor included.
pub(super) const LONGEST: usize = 64;

/// How many times as long as a copy it takes to read or write a number, about.
const TIMES: usize = 64;

/// Most bytes of a text that is read as a number.
const MAX_NUMBER: usize = 1024;

/// The strings of `given` as numbers of type `to`.
pub(super) fn read(given: &Tensor, to: ElementType, deadline: &Deadline) -> Result<Tensor, String> {
    with_integer_type!(to, T => each::<T>(given, deadline, integer),
        ElementType::Bool => Err(NO_BOOL.into()),
        ElementType::String => Ok(given.clone()),
        ElementType::Float16 => each(given, deadline, |text| float(text).map(f16_from_f64)),
        ElementType::Bfloat16 => each(given, deadline, |text| float(text).map(bf16_from_f64)),
        // As NumPy: a float64 first.
        ElementType::Float32 => each(given, deadline, |text| float(text).map(|number| number as f32)),
        ElementType::Float64 => each(given, deadline, float),
    )
}

fn each<T: TensorElement>(
    given: &Tensor,
    deadline: &Deadline,
    read: impl Fn(&str) -> Option<T>,
) -> Result<Tensor, String> {
    let texts = given.as_slice::<String>().unwrap_or_default();
    let number = |(index, text): (usize, &String)| {
        deadline.check_after(TIMES)?;
        Some(text.as_str()).filter(|text| text.len() <= MAX_NUMBER).and_then(&read).ok_or_else(|| {
            let shown: String = text.chars().take(40).collect();
            format!("`{shown}` (element {index}) is not a number that {} holds", T::TYPE)
        })
    };
    let numbers = texts.iter().enumerate().map(number).collect::<Result<Vec<_>, _>>()?;
    Tensor::new(given.shape(), numbers)
        .map(|tensor| tensor.with_metadata(given.metadata))
        .map_err(|error| error.to_string())
}

/// Writes numbers, in the request's time.
struct Writer<'w>(&'w Deadline);

impl Writer<'_> {
    fn format_all<T>(&self, data: &[T], write: impl Fn(&T) -> String) -> Result<Vec<String>, DeadlineExceeded> {
        data.iter().map(|number| self.0.check_after(TIMES).map(|()| write(number))).collect()
    }
}

/// The numbers of `given` as strings.
pub(super) fn write(given: &Tensor, deadline: &Deadline) -> Result<Tensor, String> {
    let all = Writer(deadline);
    let texts = match given.data() {
        TensorData::Bool(data) => all.format_all(data, |value| if *value { "True".into() } else { "False".into() }),
        TensorData::Uint8(data) => all.format_all(data, ToString::to_string),
        TensorData::Int8(data) => all.format_all(data, ToString::to_string),
        TensorData::Uint16(data) => all.format_all(data, ToString::to_string),
        TensorData::Int16(data) => all.format_all(data, ToString::to_string),
        TensorData::Uint32(data) => all.format_all(data, ToString::to_string),
        TensorData::Int32(data) => all.format_all(data, ToString::to_string),
        TensorData::Uint64(data) => all.format_all(data, ToString::to_string),
        TensorData::Int64(data) => all.format_all(data, ToString::to_string),
        TensorData::Float16(data) => all.format_all(data, |value| {
            let digits = shortest(value.to_f64(), |text| text.parse().ok().map(f16_from_f64) == Some(*value));
            python(&digits, value.to_f64())
        }),
        TensorData::Bfloat16(data) => all.format_all(data, |value| {
            let digits = shortest(value.to_f64(), |text| text.parse().ok().map(bf16_from_f64) == Some(*value));
            python(&digits, value.to_f64())
        }),
        TensorData::Float32(data) => all.format_all(data, |value| python(&format!("{value:e}"), f64::from(*value))),
        TensorData::Float64(data) => all.format_all(data, |value| python(&format!("{value:e}"), *value)),
        TensorData::String(data) => Ok(data.to_vec()),
    }?;
    Tensor::new(given.shape(), texts)
        .map(|tensor| tensor.with_metadata(given.metadata))
        .map_err(|error| error.to_string())
}

/// The fewest digits that read back as the same number of a narrow type.
fn shortest(number: f64, same: impl Fn(&str) -> bool) -> String {
    (0..8).map(|digits| format!("{number:.digits$e}")).find(|text| same(text)).unwrap_or_else(|| format!("{number:e}"))
}

/// From Rust's scientific notation of `number` to what Python's `str` writes: plain from 1e-4 to 1e16.
fn python(scientific: &str, number: f64) -> String {
    let Some((mantissa, exponent)) = scientific.split_once('e') else {
        // `NaN`, `inf`, `-inf`
        return scientific.to_lowercase();
    };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let (sign, digits) = mantissa.strip_prefix('-').map_or(("", mantissa), |digits| ("-", digits));
    // By the number and not its digits, as NumPy: the float32 next to 0.0001 is a little less.
    if number != 0.0 && !(1e-4..1e16).contains(&number.abs()) {
        let direction = if exponent < 0 { '-' } else { '+' };
        return format!("{sign}{digits}e{direction}{:02}", exponent.abs());
    }
    let digits: String = digits.chars().filter(char::is_ascii_digit).collect();
    if exponent < 0 {
        return format!("{sign}0.{}{digits}", "0".repeat(exponent.unsigned_abs() as usize - 1));
    }
    let whole = exponent as usize + 1;
    let padded = format!("{digits:0<whole$}");
    let (whole, fraction) = padded.split_at(whole);
    format!("{sign}{whole}.{}", if fraction.is_empty() { "0" } else { fraction })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn stops_at_the_deadline() {
        let numbers = Tensor::zeros(ElementType::Int8, [1 << 15]).unwrap();
        assert!(write(&numbers, &Deadline::exceeded_after(0)).is_err());
        let texts = write(&numbers, &Deadline::default()).unwrap();
        assert!(read(&texts, ElementType::Int8, &Deadline::exceeded_after(0)).unwrap_err().contains("timeout"));
        assert!(read(&texts, ElementType::Float32, &Deadline::default()).is_ok());
    }

    #[test]
    fn writes_numbers_as_python_does() {
        for (scientific, expected) in [
            ("1e0", "1.0"),
            ("-1.5e0", "-1.5"),
            ("1e-5", "1e-05"),
            ("1.25e-4", "0.000125"),
            ("1e15", "1000000000000000.0"),
            ("1e16", "1e+16"),
            ("1.2345e2", "123.45"),
            ("3.4e38", "3.4e+38"),
            ("0e0", "0.0"),
            ("NaN", "nan"),
            ("-inf", "-inf"),
        ] {
            assert_eq!(python(scientific, scientific.parse().unwrap()), expected);
        }
    }
}
