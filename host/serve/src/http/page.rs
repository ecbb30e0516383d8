//! `GET /` and `GET /docs`: pages for people, from the binary. They load nothing from elsewhere.

use axum::response::Response;
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderName, HeaderValue};

use super::answer;
use super::name::Name;
use crate::ServeError;

/// A file of the pages: its name, its media type, its text.
type File = (&'static str, &'static str, &'static str);

const HTML: &str = "text/html; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

const START: File = ("index.html", HTML, include_str!("../page/index.html"));
const DOCS: File = ("docs.html", HTML, include_str!("../page/docs.html"));

const FILES: [File; 9] = [
    ("style.css", STYLE, include_str!("../page/style.css")),
    ("start.js", SCRIPT, include_str!("../page/start.js")),
    ("docs.js", SCRIPT, include_str!("../page/docs.js")),
    ("element.js", SCRIPT, include_str!("../page/element.js")),
    ("exact.js", SCRIPT, include_str!("../page/exact.js")),
    ("request.js", SCRIPT, include_str!("../page/request.js")),
    ("code.js", SCRIPT, include_str!("../page/code.js")),
    ("result.js", SCRIPT, include_str!("../page/result.js")),
    ("steps.js", SCRIPT, include_str!("../page/steps.js")),
];

/// What every file says beside its text. Nothing runs or loads but these very files, and nobody
/// shows the page inside of theirs.
const HEADERS: [(HeaderName, &str); 4] = [
    (
        CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data: blob:; \
         media-src blob:; form-action 'none'; base-uri 'none'; frame-ancestors 'none'",
    ),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (REFERRER_POLICY, "no-referrer"),
    (CACHE_CONTROL, "no-cache"),
];

/// The page to try pipelines on.
pub(super) async fn start() -> Response {
    answer_of(&START)
}

/// The page that explains the API.
pub(super) async fn docs() -> Response {
    answer_of(&DOCS)
}

/// What the pages consist of.
pub(super) async fn file(Name(name): Name) -> Response {
    match FILES.iter().find(|(known, ..)| *known == name) {
        Some(file) => answer_of(file),
        None => answer::error(&ServeError::NotFound(format!("there is nothing at `/page/{name}`"))),
    }
}

fn answer_of((_, media_type, text): &File) -> Response {
    let mut response = answer::bytes(HeaderValue::from_static(media_type), *text);
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}
