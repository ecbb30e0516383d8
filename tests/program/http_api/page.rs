//! The page comes from the binary and loads nothing from other hosts.

use super::{Server, pipeline};
use crate::digits::root;

/// What stands in quotes after `before` in `text`.
fn quoted<'t>(text: &'t str, before: &str) -> Vec<&'t str> {
    text.split(before).skip(1).filter_map(|rest| rest.split('"').next()).collect()
}

/// Behind a proxy that leaves the path as it is, and behind one that removes its part of it.
#[test]
fn shows_itself_below_a_root_path() {
    let server = Server::start(&[&pipeline("scores"), "--root-path", "/models/"]);
    for root in ["", "/models"] {
        let document = server.get(&format!("{root}/openapi.json")).with_status(200);
        assert_eq!(document["servers"], serde_json::json!([{ "url": "/models" }]));
        assert!(document["paths"]["/predict"].is_object());
        assert_eq!(server.get(&format!("{root}/health/ready")).status, 200);
        assert_eq!(server.post(&format!("{root}/predict?timeout=5"), "", "{\"x\": [1, 2, 3, 4]}").status, 200);
        for page in ["/", "/docs"] {
            let html = server.get(&format!("{root}{page}"));
            assert_eq!(html.status, 200);
            for attribute in ["src=\"/", "href=\"/"] {
                assert!(!html.text().contains(attribute), "{page} has {attribute}");
            }
        }
        assert_eq!(server.get(&format!("{root}/page/element.js")).status, 200);
    }
    assert_eq!(server.get("/models2/health").status, 404);
    assert!(server.get("/page/start.js").text().contains("`${root}/pipelines`"));
}

#[test]
fn gives_the_first_golden_case_as_a_sample() {
    let folder = tempfile::tempdir().unwrap();
    let (path, case) = (folder.path().join("gpux.yml"), folder.path().join("tests/first"));
    let inputs = "inputs: { photo: image, note: { type: text, default: none } }";
    let steps = "pipeline: [decode-image: { in: photo }]";
    std::fs::write(&path, format!("name: reader\nversion: 1.0.0\n{inputs}\n{steps}\n")).unwrap();
    let server = Server::start(&[folder.path().to_str().unwrap(), &pipeline("scores")]);
    assert_eq!(server.get("/pipelines/reader/info").with_status(200)["sample"], false);
    assert!(server.get("/pipelines/reader/sample").error(404).contains("no golden case"));
    drop(server);

    std::fs::create_dir_all(&case).unwrap();
    std::fs::copy(root().join("models/samples/seven.png"), case.join("seven.png")).unwrap();
    std::fs::write(case.join("case.yml"), "inputs: { photo: { file: seven.png }, note: hello }\noutputs: {}\n")
        .unwrap();
    let server = Server::start(&[folder.path().to_str().unwrap()]);
    assert_eq!(server.get("/info").with_status(200)["sample"], true);
    let sample = server.get("/sample").with_status(200);
    assert_eq!(sample["note"], "hello");
    assert!(sample["photo"]["base64"].as_str().unwrap().starts_with("iVBORw"));
    assert_eq!(server.get("/pipelines/reader/sample").with_status(200), sample);
    server.json("/predict", &sample).with_status(200);
}

#[test]
fn serves_every_resource_of_the_pages() {
    let server = Server::start(&[&pipeline("scores")]);
    for page in ["/", "/docs"] {
        let html = server.get(page);
        assert_eq!((html.status, html.header("content-type")), (200, Some("text/html; charset=utf-8")), "{page}");
        let policy = html.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
        let mut wanted: Vec<_> = [quoted(html.text(), "src=\""), quoted(html.text(), "href=\"page")]
            .concat()
            .iter()
            .map(|path| if path.starts_with("page") { format!("/{path}") } else { format!("/page{path}") })
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
