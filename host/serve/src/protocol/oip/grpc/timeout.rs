//! The caller's deadline: `grpc-timeout`.

use std::time::Duration;

use http::HeaderMap;

/// The timeout of a call; `None` if absent or malformed.
pub(super) fn from_headers(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    // The protocol permits at most eight digits.
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let count: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(count * 3600),
        "M" => Duration::from_secs(count * 60),
        "S" => Duration::from_secs(count),
        "m" => Duration::from_millis(count),
        "u" => Duration::from_micros(count),
        "n" => Duration::from_nanos(count),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_every_timeout_unit() {
        let read = |text: &'static str| {
            from_headers(&HeaderMap::from_iter([(
                http::HeaderName::from_static("grpc-timeout"),
                http::HeaderValue::from_static(text),
            )]))
        };
        assert_eq!(read("2H"), Some(Duration::from_hours(2)));
        assert_eq!(read("99999999M"), Some(Duration::from_mins(99_999_999)));
        assert_eq!(read("250m"), Some(Duration::from_millis(250)));
        assert_eq!(read("7u"), Some(Duration::from_micros(7)));
        for wrong in ["", "m", "1", "-1S", "123456789S", "1x", "1 S"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
