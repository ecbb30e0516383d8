//! What Text Embeddings Inference's clients ask for beside vectors: classes, tokens, the vectors of tokens, prompts.

use std::path::Path;

use serde_json::{Value as Json, json};

use super::texts::ISOLATIONS;
use crate::digits::root;
use crate::test_server::Server;

/// A folder with pipelines around the models of two examples.
fn pipelines() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    write(
        folder.path(),
        "embeds",
        "sentence-embedding",
        "
model: ./model.onnx
inputs: { text: text }
pipeline:
  - tokenize:
      tokenizer: ./tokenizer.json
      max_length: 16
      prompts: { query: 'find ', passage: { prefix: 'about ', suffix: ' only' } }
  - model
  - mean-pool: { in: [last_hidden_state, attention_mask] }
  - l2-normalize
serving: { token_ids: true, timeout: 2min }
",
    );
    write(
        folder.path(),
        "classes",
        "text-classification",
        "
model: ./model.onnx
inputs: { text: text }
pipeline:
  - tokenize: { tokenizer: ./tokenizer.json, max_length: 64 }
  - model
  - softmax
  - top-k: { k: 3, labels: ./labels.txt }
serving: { timeout: 2min }
",
    );
    write(
        folder.path(),
        "ranks",
        "sentence-embedding",
        "
inputs: { query: text, documents: json }
pipeline:
  - tokenize: { in: { text: query, pair: documents }, tokenizer: ./tokenizer.json }
  - cast: { in: attention_mask, to: float32 }
  - sum: { axis: 1 }
  - sigmoid
serving: { timeout: 2min }
",
    );
    folder
}

fn write(folder: &Path, name: &str, example: &str, text: &str) {
    let folder = folder.join(name);
    std::fs::create_dir(&folder).unwrap();
    for file in ["tokenizer.json", "model.onnx", "labels.txt"] {
        let from = root().join("examples").join(example).join(file);
        if from.exists() {
            std::fs::copy(from, folder.join(file)).unwrap();
        }
    }
    // No test depends on how busy the machine is.
    let text = format!("name: {name}\nversion: 1.0.0\nruntime: {{ timeout: 2min }}\n{text}");
    std::fs::write(folder.join("gpux.yml"), text).unwrap();
}

fn start(folder: &Path, names: &[&str], more: &[&str]) -> Server {
    let paths: Vec<_> = names.iter().map(|name| folder.join(name).to_str().unwrap().to_owned()).collect();
    Server::start(&[&paths.iter().map(String::as_str).collect::<Vec<_>>(), more].concat())
}

fn refused(server: &Server, path: &str, body: &Json) -> String {
    server.json(path, body).with_status(400)["error"].as_str().unwrap().to_owned()
}

fn numbers(json: &Json) -> Vec<f64> {
    json.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
}

fn ids(tokens: &Json) -> Vec<u64> {
    tokens.as_array().unwrap().iter().map(|token| token["id"].as_u64().unwrap()).collect()
}

#[test]
fn takes_tokens_of_the_pipelines_own_tokenizer_alone() {
    let folder = pipelines();
    for isolation in ISOLATIONS {
        let server = start(folder.path(), &["embeds"], &["--isolation", isolation]);
        let text = "a web server that plays music";
        let tokens = server.json("/tokenize", &json!({ "inputs": text })).with_status(200);
        let first = &tokens[0][1];
        assert_eq!((&first["text"], &first["start"], &first["stop"]), (&json!("a"), &json!(0), &json!(1)));
        assert_eq!((&tokens[0][0]["special"], &tokens[0][0]["text"]), (&json!(true), &json!("[CLS]")));
        let marked = ids(&tokens[0]);
        let tokens = json!({ "inputs": [text], "add_special_tokens": false, "model": "embeds" });
        let bare = ids(&server.json("/tokenize", &tokens).with_status(200)[0]);
        assert_eq!(marked[1..marked.len() - 1], bare);

        let decode = |body: Json| server.json("/decode", &body).with_status(200);
        assert_eq!(decode(json!({ "ids": marked })), json!([text]));
        let marks = decode(json!({ "ids": [marked], "skip_special_tokens": false }));
        assert!(marks[0].as_str().unwrap().starts_with("[CLS] a web"), "{marks}");

        let embed = |input: Json| server.json("/v1/embeddings", &json!({ "model": "embeds", "input": input }));
        let vectors = |input: Json| embed(input).with_status(200)["data"].clone();
        let expected = vectors(json!(text))[0]["embedding"].clone();
        assert_eq!(vectors(json!(bare))[0]["embedding"], expected, "{isolation}");
        let both = vectors(json!([marked, bare]));
        assert_eq!((&both[0]["embedding"], &both[1]["embedding"]), (&expected, &expected));

        // OpenAI's cl100k_base for "a web server that plays music", of which some are beyond this vocabulary.
        let error = |input: Json| embed(input).with_status(400)["error"]["message"].as_str().unwrap().to_owned();
        let message = error(json!([64, 3566, 3622, 430, 11335, 4731]));
        assert!(message.contains("11335 is not the number of a token: the vocabulary has 6000"), "{message}");
        let message = error(json!([64, 3566, 3622, 430]));
        assert!(message.contains("does not make these numbers of any text"), "{message}");
        assert!(error(json!([[]])).contains("an empty text"));
        assert!(error(json!([-1])).contains("or numbers of tokens"));
    }
}

#[test]
fn classifies_texts_as_text_embeddings_inference_does() {
    let folder = pipelines();
    for isolation in ISOLATIONS {
        let server = start(folder.path(), &["classes"], &["--isolation", isolation]);
        let text = "an editor for PNG icons";
        let predicted = server.json("/predict", &json!({ "text": text })).with_status(200);
        let classes = server.json("/classify", &json!({ "inputs": text })).with_status(200);
        let count = std::fs::read_to_string(folder.path().join("classes/labels.txt")).unwrap().lines().count();
        assert_eq!(classes.as_array().unwrap().len(), count, "all of them: {classes}");
        for index in 0..3 {
            for field in ["label", "score"] {
                assert_eq!(classes[index][field], predicted["top"][index][field], "{isolation}");
            }
        }
        let several = server.json("/classify", &json!({ "inputs": [["plays music"], [text]] })).with_status(200);
        assert_eq!(several[1], classes);

        // Of the raw scores a softmax is what the pipeline gives.
        let raw = server.json("/classify", &json!({ "inputs": text, "raw_scores": true })).with_status(200);
        let score = |classes: &Json, index: usize| classes[index]["score"].as_f64().unwrap();
        let ratio = (score(&raw, 0) - score(&raw, 1)).exp();
        assert!((ratio / (score(&classes, 0) / score(&classes, 1)) - 1.0).abs() < 1e-3, "{raw}");

        // As huggingface_hub asks.
        let body = json!({ "inputs": text, "parameters": { "top_k": 2 } });
        let nested = server.json("/", &body).with_status(200);
        assert_eq!((nested[0].as_array().unwrap().len(), &nested[0][0]), (2, &classes[0]));

        let wrong = |inputs: Json| refused(&server, "/classify", &json!({ "inputs": inputs }));
        assert!(wrong(json!(["one", "other"])).contains("classifies single texts"));
        assert!(wrong(json!([["a", "b", "c"]])).contains("each of several is a list of its own"));
        assert!(wrong(json!([])).contains("each of several is a list of its own"));
        assert!(wrong(json!(5)).contains("is a text, a pair of texts"));
        let body = json!({ "inputs": "word ".repeat(100), "truncate": false });
        assert!(refused(&server, "/classify", &body).contains("more tokens than the pipeline takes"));
        assert!(server.metric("gpux_requests_total{pipeline=\"classes\",protocol=\"tei\",status=\"200\"}") >= 3.0);
    }
}

#[test]
fn gives_predict_to_these_clients_by_flag_alone() {
    let folder = pipelines();
    let server = start(folder.path(), &["classes"], &[]);
    let body = json!({ "inputs": "plays music" });
    let error = server.json("/predict", &body).with_status(400);
    assert!(error["message"].as_str().unwrap().contains("inputs"), "{error}");

    let server = start(folder.path(), &["classes"], &["--tei-predict"]);
    let classes = server.json("/predict", &body).with_status(200);
    assert_eq!(classes, server.json("/classify", &body).with_status(200));
    let own = server.json("/pipelines/classes/predict", &json!({ "text": "plays music" })).with_status(200);
    assert_eq!(own["top"][0]["label"], classes[0]["label"]);
}

#[test]
fn gives_the_vectors_of_tokens() {
    let folder = pipelines();
    for isolation in ISOLATIONS {
        let server = start(folder.path(), &["embeds"], &["--isolation", isolation]);
        let body = json!({ "inputs": ["a web server", "plays music"] });
        let answer = server.json("/embed_all", &body);
        let tokens = server.json("/tokenize", &json!({ "inputs": "a web server" })).with_status(200);
        assert_eq!(answer.header("x-compute-characters"), Some("23"));
        let both = ids(&tokens[0]).len() + 4;
        assert_eq!(answer.header("x-compute-tokens"), Some(both.to_string().as_str()));
        for time in ["x-compute-time", "x-total-time", "x-tokenization-time", "x-queue-time", "x-inference-time"] {
            assert!(answer.header(time).is_some_and(|time| time.parse::<u64>().is_ok()), "{time}");
        }
        assert_eq!((answer.header("x-compute-type"), answer.header("x-model")), (Some("cpu"), Some("embeds")));
        let vectors = answer.with_status(200);
        let rows = vectors[0].as_array().unwrap();
        assert_eq!(rows.len(), ids(&tokens[0]).len());

        // Their mean, of length 1, is the text's vector.
        let mut sum = numbers(&rows[0]);
        for row in &rows[1..] {
            sum.iter_mut().zip(numbers(row)).for_each(|(sum, number)| *sum += number);
        }
        let length = sum.iter().map(|number| number * number).sum::<f64>().sqrt();
        let vector = numbers(&server.json("/embed", &json!({ "inputs": "a web server" })).with_status(200)[0]);
        for (sum, number) in sum.iter().zip(&vector) {
            assert!((sum / length - number).abs() < 1e-5, "{isolation}: {sum} {number}");
        }
    }
}

#[test]
fn follows_what_a_request_wants_of_its_texts() {
    let folder = pipelines();
    for isolation in ISOLATIONS {
        let server = start(folder.path(), &["embeds"], &["--isolation", isolation]);
        let embed = |body: Json| server.json("/embed", &body).with_status(200)[0].clone();
        let plain = |text: &str| embed(json!({ "inputs": text }));
        assert_eq!(embed(json!({ "inputs": "music", "prompt_name": "query" })), plain("find music"));
        assert_eq!(embed(json!({ "inputs": "music", "prompt_name": "passage" })), plain("about music only"));
        let body = json!({ "model": "embeds", "input": "music", "prompt_name": "query" });
        let answer = server.json("/v1/embeddings", &body).with_status(200);
        assert_eq!(answer["data"][0]["embedding"], plain("find music"));

        let text = "a b c d e f g h i j k l m n o p q r s t";
        assert_eq!(plain(text), plain("a b c d e f g h i j k l m n"), "16 tokens, two of which mark");
        let left = json!({ "inputs": text, "truncation_direction": "Left" });
        assert_eq!(embed(left), plain("g h i j k l m n o p q r s t"));
        let left = json!({ "inputs": text, "truncation_direction": "left", "truncate": false });
        assert!(refused(&server, "/embed", &left).contains("more tokens than the pipeline takes"));

        let sentences = json!({ "source_sentence": "music", "sentences": ["music"] });
        let body = json!({ "inputs": sentences, "parameters": { "prompt_name": "query" } });
        let cosines = numbers(&server.json("/similarity", &body).with_status(200));
        assert!((cosines[0] - 1.0).abs() < 1e-6);
        for path in ["/embed", "/embed_all", "/tokenize"] {
            let error = refused(&server, path, &json!({ "inputs": "music", "prompt_name": "other" }));
            assert!(error.contains("has no prompt `other`; it has `passage`, `query`"), "{error}");
        }
    }
}

#[test]
fn ranks_with_raw_scores_and_short_documents() {
    let folder = pipelines();
    for isolation in ISOLATIONS {
        let server = start(folder.path(), &["ranks"], &["--isolation", isolation]);
        let rank = |body: Json| server.json("/rerank", &body).with_status(200);
        let texts = json!(["b", "b c d"]);
        let raw = rank(json!({ "query": "a", "texts": texts, "raw_scores": true }));
        assert_eq!((&raw[0]["score"], &raw[1]["score"]), (&json!(7.0), &json!(5.0)));
        let scores = rank(json!({ "query": "a", "texts": texts }));
        let sigmoid = |number: f64| 1.0 / (1.0 + (-number).exp());
        assert!((scores[1]["score"].as_f64().unwrap() - sigmoid(5.0)).abs() < 1e-6, "{scores}");

        let cohere = |most: Json| {
            let body = json!({ "model": "ranks", "query": "a", "documents": texts, "max_tokens_per_doc": most });
            server.json("/v2/rerank", &body)
        };
        let results = cohere(json!(2)).with_status(200)["results"].clone();
        assert!((results[0]["relevance_score"].as_f64().unwrap() - sigmoid(6.0)).abs() < 1e-6, "{results}");
        assert!(cohere(json!(0)).with_status(400)["message"].as_str().unwrap().contains("at least 1"));
    }
}

#[test]
fn describes_pipelines_to_these_clients() {
    let folder = pipelines();
    let info = |name| start(folder.path(), &[name], &[]).get("/info").with_status(200);
    let embeds = info("embeds");
    for (field, value) in [
        ("model_id", json!("embeds")),
        ("model_type", json!({ "embedding": { "pooling": "mean" } })),
        ("max_input_length", json!(16)),
        ("auto_truncate", json!(true)),
        ("max_client_batch_size", json!(2048)),
        ("prompts", json!(["passage", "query"])),
        ("version", json!("1.0.0")),
        ("docker_label", Json::Null),
    ] {
        assert_eq!(embeds[field], value, "{field}");
    }
    let classes = info("classes");
    let labels = &classes["model_type"]["classifier"];
    let first = labels["id2label"]["0"].as_str().unwrap();
    assert_eq!(labels["label2id"][first], 0);
    assert_eq!(info("ranks")["model_type"], json!({ "reranker": {} }));
    assert!(Server::start(&[]).get("/info").with_status(200).get("model_id").is_none());
}
