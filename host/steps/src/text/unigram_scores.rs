//! The scores of a Unigram tokenizer, read with the roundings that the Python package reads them with.
//!
//! Two ways to cut a word can score the same but for the last bit of a sum; which of them wins then
//! depends on how the file's decimals were converted to binary. The package uses `serde_json` without its feature
//! `float_roundtrip`, which is off by a bit for about one number in four. gpux has that feature (its JSON
//! must survive a round trip), and so writes what the package would have read into the file first.

use std::borrow::Cow;

/// The file with its decimals as the package reads them; unchanged for other models.
pub(super) fn with_python_rounding(file: &[u8]) -> Cow<'_, [u8]> {
    let Ok(text) = std::str::from_utf8(file) else { return file.into() };
    if !text.contains("\"Unigram\"") {
        return file.into();
    }
    let mut written = String::with_capacity(text.len() + text.len() / 16);
    let mut rest = text;
    while let Some(at) = rest.find(|char: char| char == '"' || char == '-' || char.is_ascii_digit()) {
        let (before, from) = rest.split_at(at);
        written.push_str(before);
        let length = if from.starts_with('"') { string(from) } else { number(from) };
        let (token, after) = from.split_at(length);
        match read(token) {
            Some(number) => written.push_str(&format!("{number:?}")),
            None => written.push_str(token),
        }
        rest = after;
    }
    written.push_str(rest);
    written.into_bytes().into()
}

/// Bytes of the string at the beginning of the text, or of its rest.
fn string(text: &str) -> usize {
    let mut escaped = false;
    let end = text.bytes().skip(1).position(|byte| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    });
    end.map_or(text.len(), |end| end + 2)
}

/// Bytes of the number that the text begins with.
fn number(text: &str) -> usize {
    text.bytes().take_while(|byte| byte.is_ascii_digit() || b"+-.eE".contains(byte)).count()
}

/// A decimal as `serde_json` reads it without `float_roundtrip`; `None` if it is none.
fn read(token: &str) -> Option<f64> {
    let (negative, digits) = token.strip_prefix('-').map_or((false, token), |digits| (true, digits));
    let (decimal, exponent) = match digits.split_once(['e', 'E']) {
        Some((decimal, exponent)) => (decimal, exponent.parse::<i32>().ok()?),
        None => (digits, 0),
    };
    let (whole, fraction) = decimal.split_once('.').unwrap_or((decimal, ""));
    if decimal.len() == token.len() - usize::from(negative) && fraction.is_empty() {
        return None;
    }
    let (mut significand, mut exponent) = (0_u64, exponent);
    let mut full = false;
    for (digit, step) in whole.bytes().map(|digit| (digit, 0)).chain(fraction.bytes().map(|digit| (digit, -1))) {
        let value = u64::from(digit.checked_sub(b'0').filter(|value| *value < 10)?);
        let next = significand.checked_mul(10).and_then(|tens| tens.checked_add(value)).filter(|_| !full);
        // Further digits only count before the point.
        full = next.is_none();
        significand = next.unwrap_or(significand);
        exponent = exponent.saturating_add(step + i32::from(full));
    }
    let number = scaled(significand as f64, exponent)?;
    Some(if negative { -number } else { number })
}

/// `number` × 10^`exponent`, rounded as often as it is there.
fn scaled(mut number: f64, mut exponent: i32) -> Option<f64> {
    let power = |exponent: u32| format!("1e{exponent}").parse::<f64>().ok();
    while number != 0.0 && exponent < -308 {
        number /= 1e308;
        exponent = exponent.saturating_add(308);
    }
    if number == 0.0 {
        return Some(number);
    }
    if exponent > 308 {
        return None;
    }
    let number =
        if exponent < 0 { number / power(exponent.unsigned_abs())? } else { number * power(exponent.unsigned_abs())? };
    number.is_finite().then_some(number)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::reference;

    #[test]
    fn rounds_decimals_as_the_package_does() {
        assert_eq!(read("-9.948112415925431"), Some(-9_948_112_415_925_431_f64 / 1e15));
        assert_eq!(read("1.5e-400"), Some(0.0));
        assert_eq!(read("123456789012345678901234.5"), Some(12_345_678_901_234_567_890_f64 * 1e4));
        for (token, number) in [("0.5", 0.5), ("-2.25E+1", -22.5), ("-0.0", 0.0), ("1e3", 1000.0)] {
            assert_eq!(read(token), Some(number), "{token}");
        }
        for token in ["7", "-7", "", "-", "1e999", "1.2.3", "\"0.5\"", "1e", "--1.0"] {
            assert_eq!(read(token), None, "{token}");
        }
    }

    #[test]
    fn changes_only_numbers() {
        let file = |score: &str| {
            format!("{{\"type\": \"Unigram\", \"vocab\": [[\"0.1e\\\"5 \\\\\", {score}], [\"é1.5\", -3]]}}")
        };
        let given = file("-10.295003480270454");
        let written = String::from_utf8(with_python_rounding(given.as_bytes()).into_owned()).unwrap();
        assert_eq!(written, file(&format!("{:?}", read("-10.295003480270454").unwrap())));
        let other = given.replace("Unigram", "BPE");
        assert_eq!(with_python_rounding(other.as_bytes()), other.as_bytes());
        let mut random = reference::random();
        for _ in 0..300 {
            let mut bytes = given.clone().into_bytes();
            for _ in 0..3 {
                let at = random(bytes.len());
                bytes[at] = b"\"\\-+.eE09,[]"[random(12)];
            }
            let _ = with_python_rounding(&bytes);
        }
    }
}
