//! The page comes from the binary and loads nothing from other hosts.

use super::{Server, pipeline};

/// What stands in quotes after `before` in `text`.
fn quoted<'t>(text: &'t str, before: &str) -> Vec<&'t str> {
    text.split(before).skip(1).filter_map(|rest| rest.split('"').next()).collect()
}

#[test]
fn serves_every_resource_of_the_pages() {
    let server = Server::start(&[&pipeline("scores")]);
    for page in ["/", "/docs"] {
        let html = server.get(page);
        assert_eq!((html.status, html.header("content-type")), (200, Some("text/html; charset=utf-8")), "{page}");
        let policy = html.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
        let mut wanted: Vec<_> = [quoted(html.text(), "src=\""), quoted(html.text(), "href=\"/page")]
            .concat()
            .iter()
            .map(|path| if path.starts_with("/page") { (*path).to_owned() } else { format!("/page{path}") })
            .collect();
        assert!(wanted.len() >= 2, "{wanted:?}");
        let mut seen = Vec::new();
        while let Some(path) = wanted.pop() {
            let file = server.get(&path);
            assert_eq!(file.status, 200, "{path}");
            assert!(!file.text().contains("https://"), "{path}");
            wanted.extend(quoted(file.text(), " from \"./").iter().map(|name| format!("/page/{name}")));
            wanted.retain(|path| !seen.contains(path));
            seen.push(path);
        }
        assert!(seen.iter().any(|path| path == "/page/element.js"), "{seen:?}");
        assert!(!html.text().contains("<script>") && !html.text().contains("style="), "nothing stands inline");
    }
    assert_eq!(server.get("/page/nothing.js").status, 404);
    assert_eq!(server.get("/page/..%2F..%2Fmain.rs").status, 404);
}
