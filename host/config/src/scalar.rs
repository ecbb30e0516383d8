//! Resolves plain (unquoted) YAML scalars by the core schema of YAML 1.2.

use super::node::{Content, Number};

/// The value of a plain scalar; `None` for `.inf` and `.nan`, which no field takes.
pub(super) fn plain(text: &str) -> Option<Content> {
    Some(match text {
        "" | "~" | "null" | "Null" | "NULL" => Content::Null,
        "true" | "True" | "TRUE" => Content::Bool(true),
        "false" | "False" | "FALSE" => Content::Bool(false),
        _ if is_not_finite(text) => return None,
        _ => match number(text) {
            Some(value) => Content::Number(Number { value, text: text.into() }),
            None => Content::String(text.into()),
        },
    })
}

fn is_not_finite(text: &str) -> bool {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    matches!(unsigned, ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN")
}

fn number(text: &str) -> Option<serde_json::Number> {
    if let Some(digits) = text.strip_prefix("0x") {
        return u64::from_str_radix(digits, 16).ok().filter(|_| !digits.starts_with('+')).map(Into::into);
    }
    if let Some(digits) = text.strip_prefix("0o") {
        return u64::from_str_radix(digits, 8).ok().filter(|_| !digits.starts_with('+')).map(Into::into);
    }
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (mantissa, exponent) = unsigned.split_once(['e', 'E']).map_or((unsigned, None), |(m, e)| (m, Some(e)));
    let (whole, fraction) = mantissa.split_once('.').map_or((mantissa, None), |(w, f)| (w, Some(f)));
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !fraction.is_none_or(digits) || (whole.is_empty() && fraction.unwrap_or_default().is_empty()) {
        return None;
    }
    let power = exponent.map(|power| power.strip_prefix(['-', '+']).unwrap_or(power));
    if power.is_some_and(|power| power.is_empty() || !digits(power)) {
        return None;
    }
    if fraction.is_none() && exponent.is_none() {
        let integer = text.parse::<i64>().map(Into::into).or_else(|_| text.parse::<u64>().map(Into::into));
        if let Ok(integer) = integer {
            return Some(integer);
        }
    }
    // A number too large for a float stays text, which fails where a number is expected.
    serde_json::Number::from_f64(text.parse().ok()?)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn parses_scalars_by_the_yaml_core_schema() {
        let json = |text| super::super::node::Node::new(plain(text).unwrap(), 0..0).to_json();
        for (text, expected) in [
            ("8080", serde_json::json!(8080)),
            ("-1", serde_json::json!(-1)),
            ("0x1F", serde_json::json!(31)),
            ("18446744073709551615", serde_json::json!(u64::MAX)),
            ("1.50", serde_json::json!(1.5)),
            (".5", serde_json::json!(0.5)),
            ("1e3", serde_json::json!(1000.0)),
            ("True", serde_json::json!(true)),
            ("~", serde_json::json!(null)),
        ] {
            assert_eq!(json(text), expected, "{text}");
        }
        for text in ["yes", "no", "1.0.0", "1_000", "0x", "0x+1", ".", "-", "e5", "1e", "+", "1e999", "2GB", "12:30"] {
            assert_eq!(json(text), serde_json::json!(text), "{text}");
        }
        assert_eq!(plain("-.inf"), None);
    }
}
