//! Numbers in text, by the rules of Python's `int` and `float`, which NumPy reads strings with.

use std::borrow::Cow;

/// The zeros of the scripts that have decimal digits (Unicode 14, category Nd, as Python 3.11 knows them), ASCII aside;
/// the nine other digits follow each.
#[rustfmt::skip]
const ZEROS: [u32; 65] = [
    0x660, 0x6F0, 0x7C0, 0x966, 0x9E6, 0xA66, 0xAE6, 0xB66, 0xBE6, 0xC66, 0xCE6, 0xD66, 0xDE6, 0xE50, 0xED0, 0xF20,
    0x1040, 0x1090, 0x17E0, 0x1810, 0x1946, 0x19D0, 0x1A80, 0x1A90, 0x1B50, 0x1BB0, 0x1C40, 0x1C50, 0xA620, 0xA8D0,
    0xA900, 0xA9D0, 0xA9F0, 0xAA50, 0xABF0, 0xFF10, 0x104A0, 0x10D30, 0x11066, 0x110F0, 0x11136, 0x111D0, 0x112F0,
    0x11450, 0x114D0, 0x11650, 0x116C0, 0x11730, 0x118E0, 0x11950, 0x11C50, 0x11D50, 0x11DA0, 0x16A60, 0x16AC0,
    0x16B50, 0x1D7CE, 0x1D7D8, 0x1D7E2, 0x1D7EC, 0x1D7F6, 0x1E140, 0x1E2F0, 0x1E950, 0x1FBF0,
];

/// The whole number that a text is, where `T` holds it.
pub(super) fn integer<T: TryFrom<i128>>(text: &str) -> Option<T> {
    T::try_from(plain(text)?.parse::<i128>().ok()?).ok()
}

/// The number that a text is. `inf`, `infinity` and `nan` are numbers, too, in any case.
pub(super) fn float(text: &str) -> Option<f64> {
    plain(text)?.parse().ok()
}

/// A number in ASCII digits, without the spaces around it and the underscores in it; `None` where an underscore does
/// not stand between two digits.
fn plain(text: &str) -> Option<Cow<'_, str>> {
    let text = if text.is_ascii() { text.into() } else { Cow::Owned(text.chars().map(to_ascii).collect()) };
    let is_space = |letter: char| matches!(letter, '\t'..='\r' | ' ');
    if !text.contains('_') {
        return Some(match text {
            Cow::Borrowed(text) => text.trim_matches(is_space).into(),
            Cow::Owned(text) => text.trim_matches(is_space).to_owned().into(),
        });
    }
    let mut parts = text.trim_matches(is_space).split('_').peekable();
    let mut joined = String::with_capacity(text.len());
    while let Some(part) = parts.next() {
        let ends = part.ends_with(|letter: char| letter.is_ascii_digit());
        if parts.peek().is_some_and(|next| !ends || !next.starts_with(|letter: char| letter.is_ascii_digit())) {
            return None;
        }
        joined.push_str(part);
    }
    Some(joined.into())
}

/// Converts digits and spaces of any script to ASCII; keeps other characters.
fn to_ascii(letter: char) -> char {
    if letter.is_ascii() {
        return letter;
    }
    if letter.is_whitespace() {
        return ' ';
    }
    let code = u32::from(letter);
    let zero = ZEROS[..ZEROS.partition_point(|zero| *zero <= code)].last();
    zero.and_then(|zero| char::from_digit(code - zero, 10)).unwrap_or(letter)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use serde_json::{Value as Json, json};

    use crate::reference;
    use gpux_core::{ElementType, Tensor, bf16_from_f64, f16_from_f64};

    /// `tests/reference/builtin/make_cast.py` wrote what Python and NumPy make of these texts.
    #[test]
    fn parses_numbers_as_python_and_numpy_do() {
        let reference = reference::read_json("cast.json");
        let step = |to: &str| reference::step("cast", json!({ "to": to }));
        let texts = reference["texts"].as_array().unwrap();
        assert!(texts.len() >= 600);
        for (to, expected) in reference["read"].as_object().unwrap() {
            let step = step(to);
            let element: ElementType = to.parse().unwrap();
            let mut numbers = 0;
            for (text, expected) in texts.iter().zip(expected.as_array().unwrap()) {
                let given = Tensor::new([1], vec![text.as_str().unwrap().to_owned()]).unwrap();
                let ours = step.run(vec![Some(given.into())], &mut gpux_core::Context::default()).ok();
                let ours = ours.map(|mut values| values.remove(0));
                let ours = ours.as_ref().and_then(|value| value.as_tensor()).map(|tensor| {
                    // NaN is NaN, whatever its bits.
                    let wide = tensor.cast(ElementType::Float64).unwrap();
                    let is_nan = element.is_float() && wide.as_slice::<f64>().unwrap()[0].is_nan();
                    if is_nan { json!("nan") } else { json!(hex(tensor.bytes().unwrap())) }
                });
                numbers += usize::from(ours.is_some());
                assert_eq!(ours.unwrap_or_default(), *expected, "{text} to {to}");
            }
            assert!(numbers >= 40, "{to}: {numbers}");
        }
    }

    #[test]
    fn narrowing_float64_rounds_once() {
        let reference = reference::read_json("cast.json");
        let cases = reference["narrow"].as_array().unwrap();
        for case in cases {
            let wide = f64::from_bits(u64::from_str_radix(case[0].as_str().unwrap(), 16).unwrap());
            assert_eq!(f16_from_f64(wide).to_bits(), bits(&case[1]), "{wide:e}");
            assert_eq!(bf16_from_f64(wide).to_bits(), bits(&case[2]), "{wide:e}");
        }
        assert!(cases.len() >= 400);
        assert!(f16_from_f64(f64::NAN).is_nan() && bf16_from_f64(f64::NAN).is_nan());
    }

    fn bits(hex: &Json) -> u16 {
        u16::from_str_radix(hex.as_str().unwrap(), 16).unwrap()
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"))
    }
}
