//! The path under which a reverse proxy shows the server (`--root-path`).

use http::Uri;
use http::uri::PathAndQuery;

/// The root path in a text: the path of a URL, without a slash at its end; `None` if it is none.
pub fn parse(text: &str) -> Option<&str> {
    let path = text.trim_end_matches('/');
    let is_path = path.bytes().all(|byte| byte.is_ascii_graphic() && !b"?#\"<>\\".contains(&byte));
    (text.starts_with('/') && !path.starts_with("//") && is_path).then_some(path)
}

/// Removes the root path from a request whose proxy has left it.
pub(crate) fn remove(uri: &mut Uri, root: &str) {
    let Some(path) = uri.path_and_query().map(PathAndQuery::as_str).filter(|_| !root.is_empty()) else { return };
    let Some(rest) = path.strip_prefix(root) else { return };
    let rest = match rest.as_bytes().first() {
        Some(b'/') => rest.to_owned(),
        None | Some(b'?') => format!("/{rest}"),
        Some(_) => return,
    };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = rest.parse().ok();
    if let Ok(without) = Uri::from_parts(parts) {
        *uri = without;
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn removes_the_root_path_once() {
        for (root, given, expected) in [
            ("", "/models/predict", "/models/predict"),
            ("/models", "/models/predict?timeout=1", "/predict?timeout=1"),
            ("/models", "http://host/models/predict", "http://host/predict"),
            ("/models", "/models/models/predict", "/models/predict"),
            ("/models", "/models", "/"),
            ("/models", "/models?a", "/?a"),
            ("/models", "/models2/predict", "/models2/predict"),
            ("/models", "/predict", "/predict"),
            ("/models", "/", "/"),
        ] {
            let mut uri: Uri = given.parse().unwrap();
            remove(&mut uri, root);
            assert_eq!(uri.to_string(), expected, "{root} {given}");
        }
    }
}
