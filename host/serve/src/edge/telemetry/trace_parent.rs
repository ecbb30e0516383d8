//! The caller's span: `traceparent` and `tracestate` (W3C Trace Context, level 1).

use http::HeaderMap;
use opentelemetry::propagation::Extractor;

/// The longest `tracestate` that is propagated, in bytes: the minimum that the standard requires. Each span carries it.
const STATE: usize = 512;

/// The two headers, each `None` if it violates the standard.
pub(crate) struct TraceParent {
    parent: Option<String>,
    state: Option<String>,
}

impl TraceParent {
    pub(crate) fn from_headers(headers: &HeaderMap) -> Self {
        let mut parents = headers.get_all("traceparent").iter();
        // Two `traceparent` headers are ambiguous: both are ignored.
        let parent = parents.next().filter(|_| parents.next().is_none());
        let parent = parent.and_then(|parent| parent.to_str().ok()).filter(|parent| is_parent(parent));
        let states = headers.get_all("tracestate").iter().map(|state| state.to_str().ok());
        let state = states.collect::<Option<Vec<_>>>().map(|states| states.join(","));
        let state = state.filter(|state| !state.is_empty() && state.len() <= STATE);
        Self { parent: parent.map(str::to_owned), state }
    }
}

/// `VERSION-TRACE-SPAN-FLAGS` in lower-case hexadecimal; later versions may append more fields after a dash.
fn is_parent(text: &str) -> bool {
    let mut parts = text.splitn(5, '-');
    let mut is_hex = |digits: usize| {
        let digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        parts.next().is_some_and(|part| part.len() == digits && part.bytes().all(digit))
    };
    let is_whole = [2, 32, 16, 2].into_iter().all(&mut is_hex);
    is_whole && !text.starts_with("ff") && (parts.next().is_none() || !text.starts_with("00"))
}

impl Extractor for TraceParent {
    fn get(&self, key: &str) -> Option<&str> {
        match key {
            "traceparent" => self.parent.as_deref(),
            "tracestate" => self.state.as_deref(),
            _ => None,
        }
    }

    fn keys(&self) -> Vec<&str> {
        vec!["traceparent", "tracestate"]
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    fn of(headers: &[(&'static str, String)]) -> TraceParent {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(
                HeaderName::from_static(name),
                HeaderValue::try_from(value).unwrap_or(HeaderValue::from_static("")),
            );
        }
        TraceParent::from_headers(&map)
    }

    #[test]
    fn accepts_valid_traceparents_only() {
        let (trace, span) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");
        let good = format!("00-{trace}-{span}-01");
        for (text, expected) in [
            (good.clone(), true),
            (format!("01-{trace}-{span}-01-later"), true),
            (format!("00-{trace}-{span}-01-"), false),
            (format!("ff-{trace}-{span}-01"), false),
            (format!("0-{trace}-{span}-01"), false),
            (format!("00-{}-{span}-01", trace.to_uppercase()), false),
            (format!("00-+{}-{span}-01", &trace[1..]), false),
            (format!("00-{trace}-{span}-001"), false),
            ("00-1-2-01".to_owned(), false),
            (String::new(), false),
        ] {
            assert_eq!(of(&[("traceparent", text.clone())]).get("traceparent").is_some(), expected, "{text}");
        }
        assert_eq!(of(&[("traceparent", good.clone()), ("traceparent", good)]).get("traceparent"), None);
    }

    #[test]
    fn joins_and_bounds_tracestate() {
        let state = |length: usize| ("tracestate", format!("a={}", "x".repeat(length)));
        assert_eq!(of(&[state(1), state(2)]).get("tracestate"), Some("a=x,a=xx"));
        assert_eq!(of(&[state(300), state(300)]).get("tracestate"), None);
        assert_eq!(of(&[]).get("tracestate"), None);
    }
}
