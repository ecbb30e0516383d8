//! `GET /` and `GET /docs`: pages for people, embedded in the binary. They load nothing from other servers.

use axum::response::Response;
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderName, HeaderValue};

use super::http::path_name::PathName;
use super::http::response;
use crate::ServeError;

/// A file of the pages: its name, its media type, its text.
type File = (&'static str, &'static str, &'static str);

const HTML: &str = "text/html; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

const START: File = ("index.html", HTML, include_str!("index.html"));
const DOCS: File = ("docs.html", HTML, include_str!("docs.html"));

const FILES: [File; 10] = [
    ("style.css", STYLE, include_str!("style.css")),
    ("start.js", SCRIPT, include_str!("start.js")),
    ("docs.js", SCRIPT, include_str!("docs.js")),
    ("element.js", SCRIPT, include_str!("element.js")),
    ("exact.js", SCRIPT, include_str!("exact.js")),
    ("form.js", SCRIPT, include_str!("form.js")),
    ("request.js", SCRIPT, include_str!("request.js")),
    ("code.js", SCRIPT, include_str!("code.js")),
    ("result.js", SCRIPT, include_str!("result.js")),
    ("steps.js", SCRIPT, include_str!("steps.js")),
];

/// Headers of every file. The page runs and loads only these files, and no other site can frame it.
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

/// The page to try pipelines.
pub(crate) async fn start() -> Response {
    answer_of(&START)
}

/// The page that explains the API.
pub(crate) async fn docs() -> Response {
    answer_of(&DOCS)
}

/// The files of the pages.
pub(crate) async fn file(PathName(name): PathName) -> Response {
    match FILES.iter().find(|(known, ..)| *known == name) {
        Some(file) => answer_of(file),
        None => response::error(&ServeError::NotFound(format!("there is nothing at `/page/{name}`"))),
    }
}

fn answer_of((_, media_type, text): &File) -> Response {
    let mut response = response::bytes(HeaderValue::from_static(media_type), *text);
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}
