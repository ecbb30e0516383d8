//! The endpoints of other servers' clients.

use std::path::Path;

use serde_json::{Value as Json, json};

use crate::digits::{gpux, root};
use crate::test_server::Server;

/// Where pipelines run.
pub(crate) const ISOLATIONS: &[&str] = if cfg!(target_os = "linux") { &["none", "pipeline"] } else { &["none"] };

/// A folder with the pipelines `embeds` and `ranks`. A score of the second is how many tokens a pair has.
pub(crate) fn pipelines() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let folder = folder.path().join(name);
        std::fs::create_dir(&folder).unwrap();
        for file in ["tokenizer.json", "model.onnx"] {
            std::fs::copy(root().join("examples/sentence-embedding").join(file), folder.join(file)).unwrap();
        }
        std::fs::write(folder.join("gpux.yml"), text).unwrap();
    };
    write(
        "embeds",
        "
name: embeds
version: 1.0.0
model: ./model.onnx
inputs: { text: text }
pipeline:
  - tokenize: { tokenizer: ./tokenizer.json, max_length: 64 }
  - model
  - mean-pool: { in: [last_hidden_state, attention_mask] }
  - l2-normalize
serving: { aliases: [text-embedding-3-small, org/model], timeout: 2min }
runtime: { timeout: 2min }
",
    );
    write(
        "ranks",
        "
name: ranks
version: 1.0.0
inputs: { query: text, documents: json }
pipeline:
  - tokenize: { in: { text: query, pair: documents }, tokenizer: ./tokenizer.json }
  - cast: { in: attention_mask, to: float32 }
  - sum: { axis: 1 }
serving: { timeout: 2min }
runtime: { timeout: 2min }
",
    );
    folder
}

fn start(folder: &Path, more: &[&str]) -> Server {
    let paths = ["embeds", "ranks"].map(|name| folder.join(name).to_str().unwrap().to_owned());
    Server::start(&[&[&*paths[0], &*paths[1]], more].concat())
}

#[test]
fn answers_embeddings_as_openai_does() {
    let folder = pipelines();
    for isolation in ISOLATIONS {
        let server = start(folder.path(), &["--isolation", isolation]);
        let ask = |body: Json| server.json("/v1/embeddings", &body);
        let predicted = |text: &str| {
            let answer = server.json("/pipelines/embeds/predict", &json!({ "text": text })).with_status(200);
            answer.as_object().unwrap().values().next().unwrap()[0].clone()
        };

        let one = ask(json!({ "model": "embeds", "input": "a web server", "user": "ignored" })).with_status(200);
        assert_eq!(one["data"][0]["embedding"], predicted("a web server"), "{isolation}");
        assert_eq!((&one["object"], &one["model"]), (&json!("list"), &json!("embeds")));
        let tokens = one["usage"]["prompt_tokens"].as_u64().unwrap();
        assert!(tokens > 3 && one["usage"]["total_tokens"] == tokens, "{one}");

        let texts: Vec<_> = (0..40).map(|count| "text ".repeat(count + 1)).collect();
        let many =
            server.json("/openai/v1/embeddings", &json!({ "model": "org/model", "input": texts })).with_status(200);
        let data = many["data"].as_array().unwrap();
        assert_eq!(data.len(), 40);
        for (index, (text, item)) in texts.iter().zip(data).enumerate().step_by(13) {
            assert_eq!((&item["index"], &item["embedding"]), (&json!(index), &predicted(text)));
        }

        let encoded = ask(json!({ "model": "embeds", "input": ["a"], "encoding_format": "base64", "dimensions": 3 }));
        let encoded = encoded.with_status(200);
        let text = encoded["data"][0]["embedding"].as_str().unwrap();
        // Three floats are twelve bytes.
        assert_eq!(text.len(), 16, "{text}");

        assert!(server.metric("gpux_requests_total{pipeline=\"embeds\",protocol=\"openai\",status=\"200\"}") >= 3.0);
    }
}

/// The texts of a list wait for each other, not in the queue.
#[test]
fn a_list_is_no_load_for_itself() {
    let folder = pipelines();
    let path = folder.path().join("embeds").display().to_string();
    let texts: Vec<_> = (0..300).map(|count| format!("text {count}")).collect();
    for isolation in ISOLATIONS {
        let server = Server::start(&[&path, "--max-queue", "2", "--workers", "1", "--isolation", isolation]);
        // The path without a version is that of Text Embeddings Inference.
        for path in ["/v1/embeddings", "/embeddings"] {
            let answer = server.json(path, &json!({ "model": "embeds", "input": texts })).with_status(200);
            assert_eq!(answer["data"].as_array().unwrap().len(), texts.len(), "{isolation}");
        }
    }
}

#[test]
fn ranks_documents_at_the_path_that_has_texts() {
    let folder = pipelines();
    let server = start(folder.path(), &[]);
    let body = json!({ "query": "a", "documents": ["b", "b c d"], "return_documents": null, "top_n": null });
    let jina = server.json("/v1/rerank", &body).with_status(200);
    assert_eq!(server.json("/rerank", &body).with_status(200), jina);
    assert_eq!(jina["results"][0]["document"], json!({ "text": "b c d" }));
    let body = json!({ "query": "a", "texts": ["b", "b c d"], "raw_scores": null, "return_text": null });
    let ranked = server.json("/rerank", &body).with_status(200);
    assert_eq!(server.json("/", &body).with_status(200), ranked);
    assert_eq!(ranked[0]["index"], 1);
}

#[test]
fn names_what_is_wrong_in_the_form_of_each_client() {
    let folder = pipelines();
    let server = start(folder.path(), &[]);
    let openai = |body: Json, status: u16| {
        let answer = server.json("/v1/embeddings", &body).with_status(status);
        (answer["error"]["message"].as_str().unwrap().to_owned(), answer["error"]["type"].clone())
    };
    for (body, status, part) in [
        (json!({ "model": "none", "input": "a" }), 404, "no pipeline is called `none`"),
        (json!({ "model": "ranks", "input": "a" }), 400, "`ranks` gives no embeddings"),
        (json!({ "input": "a" }), 400, "missing field `model`"),
        (json!({ "model": "embeds", "input": [] }), 400, "`input` has no text"),
        (json!({ "model": "embeds", "input": ["a", ""] }), 400, "`input` has an empty text, at index 1"),
        (json!({ "model": "embeds", "input": [1, 2] }), 400, "numbers of tokens"),
        (json!({ "model": "embeds", "input": [[1], [2, 3]] }), 400, "numbers of tokens"),
        (json!({ "model": "embeds", "input": { "a": 1 } }), 400, "or numbers of tokens"),
        (json!({ "model": "embeds", "input": vec!["a".repeat(40); 2049] }), 400, "2048 are allowed"),
        (json!({ "model": "embeds", "input": "a", "dimensions": 100_000 }), 400, "`dimensions` is 1 to "),
        (json!({ "model": "embeds", "input": "a", "encoding_format": "int8" }), 400, "unknown variant `int8`"),
    ] {
        let (message, kind) = openai(body.clone(), status);
        assert!(message.contains(part) && kind == "invalid_request_error", "{body}: {message} ({kind})");
    }
    let unknown = server.get("/v1/chat/completions").with_status(404)["error"].clone();
    assert!(unknown["message"].is_string() && unknown["code"].is_null(), "{unknown}");
    assert!(server.get("/v1/embeddings").with_status(405)["error"]["message"].is_string());

    let models = server.get("/v1/models").with_status(200);
    let names: Vec<_> = models["data"].as_array().unwrap().iter().map(|model| model["id"].as_str().unwrap()).collect();
    assert_eq!(names, ["embeds", "text-embedding-3-small", "org/model", "ranks"]);
    assert_eq!(server.get("/v1/models/org/model").with_status(200)["id"], "org/model");
    assert_eq!(server.get("/v1/models/none").with_status(404)["error"]["code"], "model_not_found");

    let refused = |path: &str, field: &str, body: Json| {
        server.json(path, &body).with_status(400)[field].as_str().unwrap().to_owned()
    };
    let none: [&str; 0] = [];
    let empty = refused("/v1/rerank", "detail", json!({ "query": "a", "documents": none }));
    assert!(empty.contains("must not be empty"), "{empty}");
    let other = refused("/v2/rerank", "message", json!({ "model": "embeds", "query": "a", "documents": ["b"] }));
    assert!(other.contains("no rerank"), "{other}");
    let number = refused("/rerank", "error", json!({ "query": "a", "texts": [5] }));
    assert!(number.contains("invalid type: integer"), "{number}");
    let prompt = refused("/embed", "error", json!({ "inputs": "a", "prompt_name": "query" }));
    assert!(prompt.contains("has no prompt `query`; it has none"), "{prompt}");
    let long = json!({ "inputs": "word ".repeat(100), "truncate": false });
    assert!(refused("/embed", "error", long).contains("more tokens than the pipeline takes"));
    assert!(refused("/", "error", json!({ "inputs": 5 })).contains("(`inputs`) is a text"));
    assert_eq!(server.get("/embed").with_status(405)["error_type"], "Validation");
    assert!(server.get("/v2/rerank").with_status(405)["message"].is_string());
}

#[test]
fn answers_the_paths_of_text_embeddings_inference() {
    let folder = pipelines();
    let server = start(folder.path(), &[]);
    let answer = server.json("/pipelines/embeds/predict", &json!({ "text": "a web server" })).with_status(200);
    let vector = answer.as_object().unwrap().values().next().unwrap()[0].clone();
    for path in ["/embed", "/"] {
        assert_eq!(server.json(path, &json!({ "inputs": "a web server" })).with_status(200), json!([vector]), "{path}");
    }
    let both = server.json("/embed", &json!({ "inputs": ["plays music", "a web server"], "truncate": true }));
    assert_eq!(both.with_status(200)[1], vector);
    let sentences = json!({ "source_sentence": "a web server", "sentences": ["a web server", "plays music"] });
    for path in ["/similarity", "/"] {
        let cosines = server.json(path, &json!({ "inputs": sentences })).with_status(200);
        let cosine = |index: usize| cosines[index].as_f64().unwrap();
        assert!((cosine(0) - 1.0).abs() < 1e-6 && cosine(1) < 0.9, "{cosines}");
    }
}

#[test]
fn ranks_documents_as_several_services_do() {
    let folder = pipelines();
    let server = start(folder.path(), &[]);
    // The longest has the best score.
    let documents: Vec<_> = (0..100).map(|index| "word ".repeat(1 + index * 37 % 100)).collect();
    let order: Vec<_> =
        (1..=100).rev().map(|length| documents.iter().position(|text| text.len() == 5 * length)).collect();

    let body = json!({ "query": "a", "documents": documents, "top_n": 3 });
    let jina = server.json("/v1/rerank", &body).with_status(200);
    let results = jina["results"].as_array().unwrap();
    assert_eq!(results.len(), 3);
    for (result, index) in results.iter().zip(&order) {
        assert_eq!(result["index"].as_u64().map(|index| index as usize), *index);
        assert_eq!(result["document"]["text"], documents[index.unwrap()]);
    }

    let body = json!({ "model": "ranks", "query": "a", "documents": documents });
    let cohere = server.json("/v2/rerank", &body).with_status(200);
    let given: Vec<_> = cohere["results"].as_array().unwrap().iter().map(|result| result["index"].as_u64()).collect();
    assert_eq!(given, order.iter().map(|index| index.map(|index| index as u64)).collect::<Vec<_>>());
    assert!(cohere["meta"]["tokens"]["input_tokens"].as_u64().unwrap() > 5000);

    let tei = server.json("/rerank", &json!({ "query": "a", "texts": ["b", "b c d"], "return_text": true }));
    let tei = tei.with_status(200);
    assert_eq!((&tei[0]["index"], &tei[0]["text"]), (&json!(1), &json!("b c d")));
    // Three special tokens: of a score x, the sigmoid.
    let length = |score: &Json| (score.as_f64().unwrap() / (1.0 - score.as_f64().unwrap())).ln().round();
    assert_eq!((length(&tei[0]["score"]), length(&tei[1]["score"])), (7.0, 5.0));
}

#[test]
fn builds_only_endpoints_that_fit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gpux.yml");
    let text = "name: x\nversion: 1.0.0\ninputs: { text: text }\npipeline:\n  - normalize-text: { case: lower }\n\
                serving: { endpoints: [embeddings, rerank] }\n";
    std::fs::write(&path, text).unwrap();
    let output = gpux(&["build", path.to_str().unwrap()]);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("a vector as the only output") && told.contains("scores as the only output"), "{told}");
}
