//! Rejects cross-site requests that change the server (CSRF).
//!
//! A browser sends requests for forms and scripts of any page. It names their origin in `Sec-Fetch-Site`; over plain
//! HTTP to another machine, in `Origin` alone. Other programs send neither.

use http::header::ORIGIN;
use http::request::Parts;
use http::{HeaderValue, Method};

use super::host_check;
use crate::engine::error::ServeError;
use crate::protocol::route::{self, Purpose};

/// Fails with 403 if a page asks for a change and its origin is neither the server's own nor in `trusted`.
pub(crate) fn check(head: &Parts, trusted: &[String]) -> Result<(), ServeError> {
    let site = head.headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
    let origin = head.headers.get(ORIGIN).map(HeaderValue::as_bytes);
    let is_own = match (site, origin) {
        (None, None) => true,
        (Some(site), _) => matches!(site, b"same-origin" | b"none"),
        (None, Some(origin)) => is_same_origin(head, origin),
    };
    // `*` lets any page read responses; it does not permit changes.
    let is_trusted = || trusted.iter().any(|known| known != "*" && origin == Some(known.as_bytes()));
    if is_own || !changes(head) || is_trusted() {
        return Ok(());
    }
    let message = "a page of another site asks for this; its operator permits that by `--cors ORIGIN`";
    Err(ServeError::Forbidden(message.to_owned()))
}

/// Whether the request changes the server.
fn changes(head: &Parts) -> bool {
    let is_read = matches!(head.method, Method::GET | Method::HEAD | Method::OPTIONS);
    !is_read && route::find(head.uri.path()).is_some_and(|route| route.purpose == Purpose::Change)
}

/// Whether the origin is the host that the request names.
fn is_same_origin(head: &Parts, origin: &[u8]) -> bool {
    let own = host_check::authorities(head).ok().and_then(|[target, line]| target.or(line));
    let of = |scheme: &[u8]| origin.strip_prefix(scheme).zip(own);
    of(b"http://").or_else(|| of(b"https://")).is_some_and(|(origin, own)| origin.eq_ignore_ascii_case(own.as_bytes()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use http::Request;

    use super::*;

    fn is_refused(method: Method, path: &str, headers: &[(&str, &str)]) -> bool {
        let request = Request::builder().method(method).uri(path).header("host", "localhost:8080");
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let trusted = ["https://app.example.com".to_owned(), "*".to_owned()];
        match check(&request.body(()).unwrap().into_parts().0, &trusted) {
            Ok(()) => false,
            Err(error) => error.status() == http::StatusCode::FORBIDDEN,
        }
    }

    #[test]
    fn rejects_cross_site_changes() {
        let (site, origin) = ("sec-fetch-site", "origin");
        let post = |headers: &[(&str, &str)]| is_refused(Method::POST, "/v2/repository/models/m/unload", headers);
        for (headers, refused) in [
            (&[][..], false),
            (&[(site, "same-origin")], false),
            (&[(site, "none")], false),
            (&[(site, "cross-site")], true),
            // Another port of this machine is another program.
            (&[(site, "same-site")], true),
            (&[(site, "same-site"), (origin, "https://app.example.com")], false),
            (&[(site, "cross-site"), (origin, "https://evil.example")], true),
            (&[(site, "same-origin"), (origin, "http://behind.a.proxy")], false),
            (&[(origin, "http://localhost:8080")], false),
            (&[(origin, "HTTP://localhost:8080")], true),
            (&[(origin, "http://LOCALHOST:8080")], false),
            (&[(origin, "http://localhost:3000")], true),
            (&[(origin, "http://localhost:8080.evil.example")], true),
            (&[(origin, "https://app.example.com")], false),
            (&[(origin, "null")], true),
            (&[(origin, "*")], true),
            (&[(origin, "")], true),
        ] {
            assert_eq!(post(headers), refused, "{headers:?}");
        }
    }

    #[test]
    fn allows_cross_site_reads() {
        let foreign = [("sec-fetch-site", "cross-site"), ("origin", "https://evil.example")];
        let refused = |method: Method, path: &str| is_refused(method, path, &foreign);
        for path in
            ["/v2/repository/models/m/load", "/v2/logging", "/v2/trace/setting", "/v2/systemsharedmemory/unregister"]
        {
            assert!(refused(Method::POST, path), "{path}");
            assert!(!refused(Method::OPTIONS, path) && !refused(Method::GET, path), "{path}");
        }
        for call in ["RepositoryModelLoad", "RepositoryModelUnload", "LogSettings"] {
            assert!(refused(Method::POST, &format!("/inference.GRPCInferenceService/{call}")), "{call}");
        }
        for path in
            ["/predict", "/v2/models/load/infer", "/v2/repository/index", "/pipelines/unload/predict", "/none/load"]
        {
            assert!(!refused(Method::POST, path), "{path}");
        }
    }
}
