//! Steps for each item of a list, as clients of a server see them.

use serde_json::json;

use crate::digits::root;
use crate::test_server::Server;

/// A pipeline that runs a component, in a fresh sandbox, and a built-in step for each text.
fn texts() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(root().join("guest-examples/rust/pass-through.wasm"), folder.path().join("same.wasm")).unwrap();
    let text = "name: texts\nversion: 1.0.0\ninputs: { texts: json }\npipeline:
  - for-each:
      in: { text: texts }
      over: text
      max_items: 10000
      batch: 7
      steps: [wasm: ./same.wasm, { normalize-text: { case: lower, in: value } }]
      keep: text\n";
    std::fs::write(folder.path().join("gpux.yml"), text).unwrap();
    folder
}

#[test]
fn server_runs_steps_for_each_item() {
    let folder = texts();
    let isolations: &[&str] = if cfg!(target_os = "linux") { &["none", "pipeline"] } else { &["none"] };
    for isolation in isolations {
        let server = Server::start(&[folder.path().to_str().unwrap(), "--isolation", isolation]);
        let ask = |path: &str, texts: serde_json::Value| server.json(path, &json!({ "texts": texts }));

        let given = ask("/predict?trace=true", json!(["A", "", "É"])).with_status(200);
        assert_eq!(given["outputs"]["text"], json!(["a", "é"]), "{isolation}");
        let calls = &given["trace"]["steps"][0]["calls"];
        let named = |index: usize| (calls[index]["name"].clone(), calls[index]["count"].clone());
        assert_eq!((named(0), named(1)), ((json!("1 same.wasm"), json!(3)), (json!("2 normalize-text"), json!(3))));
        assert_eq!(ask("/predict", json!([])).with_status(200)["text"], json!([]));

        // The first item that fails ends the request, and the caller learns which.
        let failed = ask("/predict", json!(["A", "B", 5, 6])).read();
        assert_eq!(failed["details"]["items"], json!([2]), "{failed}");
        assert!(failed["message"].as_str().unwrap().contains("step 1.2 (normalize-text), item 2: "), "{failed}");
        let many = ask("/predict", json!(vec!["a"; 10_001])).read();
        assert!(
            many["message"].as_str().unwrap().contains("`text` has 10001 items; at most 10000 are allowed"),
            "{many}"
        );

        // A deadline ends the request between two items: 10,000 sandboxes take longer.
        let late = server.json("/predict?timeout=0.02", &json!({ "texts": vec!["a"; 10_000] }));
        assert!([503, 504].contains(&late.status), "{}", late.text());
        assert_eq!(ask("/predict", json!(vec!["A"; 100])).with_status(200)["text"], json!(vec!["a"; 100]));

        let labels = "{pipeline=\"texts\",step=\"for-each\",number=\"1\",called=\"1 same.wasm\"}";
        assert!(server.metric(&format!("gpux_step_calls_total{labels}")) >= 3.0 + 3.0 + 100.0, "{isolation}");
    }
}
