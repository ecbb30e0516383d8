//! Content negotiation by `Accept` (RFC 9110, 12.5.1).

use std::cmp::Reverse;

use http::header::{ACCEPT, HeaderName};
use http::{HeaderMap, HeaderValue};

/// The `Accept` header of a request; `None` accepts everything.
#[derive(Clone, Debug, Default)]
pub(crate) struct Accept(Option<HeaderValue>);

/// A client's preference for a media type, the best last: by quality, then by position in the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Preference {
    /// in thousandths, above 0
    quality: u16,
    place: Reverse<usize>,
}

impl Accept {
    /// From the headers of a request.
    pub(crate) fn from_headers(headers: &HeaderMap) -> Self {
        // What most clients send.
        Self(joined(headers, &ACCEPT).filter(|value| value != "*/*"))
    }

    /// The preference for this media type; `None` if it is not accepted. The most specific range that matches it
    /// applies.
    pub(crate) fn preference(&self, media_type: &str) -> Option<Preference> {
        let text = self.0.as_ref().and_then(|value| value.to_str().ok()).unwrap_or_default();
        let mut ranges = text.split(',').map(str::trim).filter(|range| !range.is_empty()).peekable();
        if ranges.peek().is_none() {
            return Some(Preference { quality: 1000, place: Reverse(0) });
        }
        let said = ranges.enumerate().filter_map(|(place, range)| {
            let (name, parameters) = range.split_once(';').unwrap_or((range, ""));
            let preference = Preference { quality: quality(parameters), place: Reverse(place) };
            exactness(name.trim(), media_type).map(|exactness| (exactness, preference))
        });
        said.max().map(|(_, preference)| preference).filter(|preference| preference.quality > 0)
    }
}

/// How specific a media range is for this type; `None` if it does not match.
fn exactness(range: &str, media_type: &str) -> Option<u8> {
    if range.eq_ignore_ascii_case(media_type) {
        return Some(2);
    }
    let of_type = |kind: &str| media_type.split_once('/').is_some_and(|(own, _)| own.eq_ignore_ascii_case(kind));
    match range.strip_suffix("/*") {
        Some(kind) if of_type(kind) => Some(1),
        Some("*") => Some(0),
        // Java's own client writes `*`.
        _ => (range == "*").then_some(0),
    }
}

/// The `q` of a range in thousandths. An invalid one counts as 0.
fn quality(parameters: &str) -> u16 {
    let quality = parameters.split(';').find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.trim().eq_ignore_ascii_case("q").then(|| value.trim())
    });
    let number = quality.map_or(Some(1.0), |quality| quality.parse().ok());
    let number = number.filter(|number: &f32| (0.0..=1.0).contains(number));
    (number.unwrap_or(0.0) * 1000.0).round() as u16
}

/// All headers of this name as one (RFC 9110, 5.3).
pub(crate) fn joined(headers: &HeaderMap, name: &HeaderName) -> Option<HeaderValue> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?;
    let Some(second) = values.next() else { return Some(first.clone()) };
    let all: Vec<_> = [first, second].into_iter().chain(values).map(HeaderValue::as_bytes).collect();
    HeaderValue::from_bytes(&all.join(&b',')).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accept(value: &'static str) -> Accept {
        Accept::from_headers(&HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(value))]))
    }

    #[test]
    fn most_specific_media_range_wins() {
        for (value, media_type, expected) in [
            ("", "a/b", Some(1000)),
            (" , ", "a/b", Some(1000)),
            ("a/*;q=0.3, */*;q=0.2, A/B;q=0.1", "a/b", Some(100)),
            ("a/*;q=0.3, */*;q=0.2, a/b;q=0.1", "a/c", Some(300)),
            ("a/*;q=0.3, */*;q=0.2, a/b;q=0.1", "b/c", Some(200)),
            ("a/b;q=0, */*", "a/b", None),
            ("a/b;q=0, */*", "a/c", Some(1000)),
            ("a/b;v=1;q=0.5,a/b;v=2;q=0.4", "a/b", Some(500)),
            ("a/b;Q=0.1", "a/b", Some(100)),
            ("a/b;q=nonsense", "a/b", None),
            ("a/b;q=2", "a/b", None),
            ("text/html, image/gif, *; q=.2", "a/b", Some(200)),
            ("text/html", "a/b", None),
            ("/*", "a/b", None),
        ] {
            assert_eq!(
                accept(value).preference(media_type).map(|preference| preference.quality),
                expected,
                "{value}: {media_type}"
            );
        }
        assert!(Accept::from_headers(&HeaderMap::new()).preference("a/b").is_some());
    }

    #[test]
    fn prefers_the_first_of_equal_types() {
        let accept = accept("a/b, a/c, */*");
        assert!(accept.preference("a/b") > accept.preference("a/c"));
        assert!(accept.preference("a/c") > accept.preference("x/y"));
        assert!(accept.preference("x/y") > None);
    }

    #[test]
    fn joins_repeated_headers() {
        let mut headers = HeaderMap::new();
        assert_eq!(joined(&headers, &ACCEPT), None);
        for value in ["a/b", "a/c;q=0.5", "*/*;q=0.1"] {
            headers.append(ACCEPT, HeaderValue::from_static(value));
        }
        assert_eq!(joined(&headers, &ACCEPT), Some(HeaderValue::from_static("a/b,a/c;q=0.5,*/*;q=0.1")));
    }
}
