//! What a client accepts, of what can be given (RFC 9110, 12.5.1).

use http::HeaderMap;
use http::header::ACCEPT;

/// How a result can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// all outputs, as an object
    Json,
    /// a picture that is an output
    Image,
    /// a text that is an output
    Text,
    /// the bytes of an output: those of a tensor are little-endian, in row-major order
    Bytes,
    /// a tensor that is an output, as NumPy's file format
    Npy,
}

impl Format {
    const ALL: [(Self, &'static str); 7] = [
        (Self::Json, "application/json"),
        (Self::Image, "image/png"),
        (Self::Image, "image/jpeg"),
        (Self::Image, "image/*"),
        (Self::Text, "text/plain"),
        (Self::Bytes, "application/octet-stream"),
        (Self::Npy, "application/x-npy"),
    ];

    /// All of them, for people.
    pub(super) const NAMES: &'static str =
        "application/json, image/*, text/plain, application/octet-stream or application/x-npy";

    /// Its media type, for people.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Image => "image/*",
            other => Self::ALL.iter().find(|(format, _)| *format == other).map_or("", |(_, name)| name),
        }
    }

    /// The one that the client likes best; JSON where it does not care. `None` if it accepts none.
    pub(super) fn accepted(headers: &HeaderMap) -> Option<Self> {
        let mut ranges = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()).peekable();
        if ranges.peek().is_none() {
            return Some(Self::Json);
        }
        let mut best: Option<(f32, Self)> = None;
        for range in ranges.flat_map(|value| value.split(',')) {
            let mut parts = range.split(';').map(str::trim);
            let name = parts.next().unwrap_or_default();
            let quality = parts.find_map(|part| part.strip_prefix("q=")).map_or(Some(1.0), |q| q.parse().ok());
            let quality = quality.filter(|quality: &f32| (0.0..=1.0).contains(quality)).unwrap_or(0.0);
            let any = matches!(name, "*/*" | "application/*" | "");
            let known = Self::ALL.iter().find(|(_, known)| known.eq_ignore_ascii_case(name)).map(|(format, _)| *format);
            let Some(format) = known.or(any.then_some(Self::Json)) else { continue };
            // Of equals, the first.
            if quality > 0.0 && best.is_none_or(|(least, _)| quality > least) {
                best = Some((quality, format));
            }
        }
        best.map(|(_, format)| format)
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn accepted(value: &'static str) -> Option<Format> {
        Format::accepted(&HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(value))]))
    }

    #[test]
    fn the_best_liked_is_given() {
        assert_eq!(Format::accepted(&HeaderMap::new()), Some(Format::Json));
        assert_eq!(accepted("*/*"), Some(Format::Json));
        assert_eq!(accepted("text/html, application/json;q=0.9, */*;q=0.8"), Some(Format::Json));
        assert_eq!(accepted("application/json;q=0.1, image/png"), Some(Format::Image));
        assert_eq!(accepted("application/x-npy"), Some(Format::Npy));
        assert_eq!(accepted("text/html"), None);
        assert_eq!(accepted("application/json;q=0"), None);
        assert_eq!(accepted("application/json;q=nonsense, text/plain;q=0.5"), Some(Format::Text));
    }
}
