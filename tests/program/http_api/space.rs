//! Which vectors can lie in one index, and how servers say so.

use std::path::Path;

use serde_json::{Value as Json, json};

use super::texts;
use crate::child::{StartWithLimit as _, program};
use crate::digits::{gpux, stdout};
use crate::test_server::Server;

/// The pipeline `embeds` with another option, in a folder of its own.
fn changed(part: &str, by: &str) -> tempfile::TempDir {
    let folder = texts::pipelines();
    let path = folder.path().join("embeds/gpux.yml");
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains(part));
    std::fs::write(&path, text.replace(part, by)).unwrap();
    folder
}

fn serve(folder: &Path, more: &[&str]) -> Server {
    Server::start(&[&[folder.join("embeds").to_str().unwrap()], more].concat())
}

fn url(server: &Server) -> String {
    format!("http://{}", server.address)
}

#[test]
fn every_answer_with_vectors_names_its_space() {
    let folder = texts::pipelines();
    let isolations: &[&str] = if cfg!(target_os = "linux") { &["none", "pipeline"] } else { &["none"] };
    let mut spaces = Vec::new();
    for isolation in isolations {
        let server = serve(folder.path(), &["--isolation", isolation]);
        let info = server.get("/info").with_status(200);
        let (space, numerics) = (info["space"].as_str().unwrap(), info["numerics"].as_str().unwrap());
        assert!(space.len() == 64 && numerics.contains("gpux "), "{info}");

        let ask = |path: &str, body: Json| {
            let answer = server.json(path, &body);
            let headers = ["x-gpux-space", "x-gpux-numerics"].map(|name| answer.header(name).unwrap().to_owned());
            assert_eq!(headers[1], numerics, "{path}");
            (answer.with_status(200), headers[0].clone())
        };
        let (answer, header) = ask("/v1/embeddings", json!({ "model": "embeds", "input": ["a", "b"] }));
        assert_eq!((answer["space"].as_str(), &*header), (Some(space), space));
        assert_eq!(answer["numerics"], numerics);
        assert_eq!(ask("/embed", json!({ "inputs": "a" })).1, space);
        assert_eq!(ask("/predict", json!({ "text": "a" })).1, space);
        assert_eq!(ask("/predict", json!([{ "text": "a" }, { "text": "b" }])).1, space);

        // In the Open Inference Protocol it is a parameter.
        let tensor = json!({ "name": "text", "datatype": "BYTES", "shape": [1], "data": ["a"] });
        let answer = server.json("/v2/models/embeds/infer", &json!({ "inputs": [tensor] })).with_status(200);
        let metadata = server.get("/v2/models/embeds").with_status(200);
        for described in [answer, metadata] {
            assert_eq!(described["parameters"], json!({ "space": space, "numerics": numerics }), "{described}");
        }

        // Fewer numbers lie elsewhere; all of them do not.
        let (answer, header) = ask("/v1/embeddings", json!({ "model": "embeds", "input": "a", "dimensions": 3 }));
        assert_eq!((answer["space"].as_str(), &*header), (Some(&*format!("{space}-3")), &*format!("{space}-3")));
        assert_eq!(ask("/embed", json!({ "inputs": "a", "dimensions": 128 })).1, space);
        spaces.push(space.to_owned());
    }
    spaces.dedup();
    assert_eq!(spaces.len(), 1);

    let (same, other) = (texts::pipelines(), changed("max_length: 64", "max_length: 63"));
    for (folder, is_same) in [(same, true), (other, false)] {
        let output = gpux(&["inspect", folder.path().join("embeds").to_str().unwrap(), "--json"]);
        let described: Json = serde_json::from_str(&stdout(&output)).unwrap();
        assert_eq!(described["space"] == spaces[0], is_same, "{described}");
    }
    let ranks = gpux(&["inspect", folder.path().join("ranks").to_str().unwrap(), "--json"]);
    assert!(stdout(&ranks).contains("\"space\": null"));
}

#[test]
fn components_count_by_their_bytes_and_may_not_look_outside() {
    let folder = tempfile::tempdir().unwrap();
    let component = crate::digits::root().join("guest-examples/rust/pass-through.wasm");
    std::fs::copy(component, folder.path().join("pass.wasm")).unwrap();
    let inspect = |step: &str| {
        let text = format!(
            "name: t\nversion: 1\ninputs: {{ x: {{ type: float32, shape: [1, 3] }} }}\npipeline: [{step} l2-normalize]\n"
        );
        std::fs::write(folder.path().join("gpux.yml"), text).unwrap();
        let output = gpux(&["inspect", folder.path().to_str().unwrap(), "--json", "--allow", "env=LANG"]);
        serde_json::from_str::<Json>(&stdout(&output)).unwrap()
    };
    let space = |step: &str| inspect(step)["space"].as_str().unwrap().to_owned();
    let with = space("wasm: ./pass.wasm,");
    assert_eq!(space("wasm: { component: pass.wasm, limits: { time: 9s }, instances: reuse },"), with);
    assert_ne!(space(""), with);

    let described = inspect("wasm: { component: pass.wasm, grant: { env: [LANG] } },");
    assert_eq!(described["space"], Json::Null);
    let warnings = described["warnings"].to_string();
    assert!(warnings.contains("no space id: the component `pass.wasm` reads environment variables"), "{warnings}");
}

#[test]
fn verify_measures_how_far_two_servers_lie_apart() {
    // A text is cut where the other server reads on.
    let (folder, short) = (texts::pipelines(), changed("max_length: 64", "max_length: 4"));
    let key = "0123456789abcdefghijklmnopqrstuvwxyz";
    let keys = folder.path().join("keys.yml");
    std::fs::write(&keys, format!("keys:\n  - {{ name: one, key: {key} }}\n")).unwrap();
    #[cfg(unix)]
    std::fs::set_permissions(&keys, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let first = Server::start(
        &["embeds", "ranks"].map(|name| folder.path().join(name).display().to_string()).each_ref().map(String::as_str),
    );
    let second = serve(short.path(), &["--keys", keys.to_str().unwrap()]);

    let verify = |arguments: &[&str]| {
        let arguments = [&["verify", "--json"], arguments].concat();
        let output = program().args(&arguments).env("FIRST", "unused").env("SECOND", key).run();
        let text = if output.status.code() == Some(2) { &output.stderr } else { &output.stdout };
        (output.status.code(), serde_json::from_slice::<Json>(text).unwrap_or_default(), output)
    };
    let (first_url, second_url) = (url(&first), url(&second));
    let by_name = format!("{first_url}/v1?model=embeds");

    let pipeline = folder.path().join("embeds");
    let (code, report, _) = verify(&[pipeline.to_str().unwrap(), "--space", &by_name, &by_name]);
    assert_eq!((code, &report["same"], &report["equal_space"]), (Some(0), &json!(true), &json!(true)), "{report}");
    assert_eq!((&report["overlap"], &report["absolute"]), (&json!(1.0), &json!(0.0)));

    let named = format!("{first_url}?model=text-embedding-3-small");
    let both = ["--space", &*named, &*second_url, "--key-variable", "FIRST", "--key-variable", "SECOND"];
    let (code, report, _) = verify(&both);
    assert_eq!((code, &report["same"], &report["equal_space"]), (Some(1), &json!(false), &json!(false)), "{report}");
    let cosine = report["cosine"].as_f64().unwrap();
    assert!(cosine < 0.99 && report["overlap"].as_f64().unwrap() < 1.0, "{report}");
    let (code, report, _) = verify(&[&both[..], &["--cosine=-1"]].concat());
    assert_eq!((code, &report["same"]), (Some(0), &json!(true)), "{report}");

    let told = |arguments: &[&str]| {
        let (code, _, output) = verify(arguments);
        (code.unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    for (arguments, status, part) in [
        (
            vec!["--space", &*first_url, &*by_name],
            1,
            "add `?model=NAME` to its address with one of embeds, text-embedding",
        ),
        (vec!["--space", &*by_name, &*second_url], 1, "it answered 401 Unauthorized"),
        (vec!["--space", &*by_name, "localhost:8080"], 1, "begins with http:// or https://"),
        (vec!["--space", &*by_name, &*format!("{first_url}?model=none")], 1, "no pipeline is called `none`"),
        (vec!["--space", &*by_name, &*format!("{first_url}/embed?model=x")], 1, "it answered 404"),
        (
            vec!["--space", &*first_url, &*first_url, "--key-variable", "NONE_SUCH"],
            2,
            "there is no variable `NONE_SUCH`",
        ),
        (vec!["--space", &*first_url], 2, "2 values required"),
        (vec!["--space", &*first_url, &*first_url, "--on", "cpu"], 2, "cannot be used with"),
    ] {
        let (code, message) = told(&arguments);
        assert!(code == status && message.contains(part), "{arguments:?}: {code} {message}");
    }
}
