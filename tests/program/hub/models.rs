//! Folders in the hub's layout: what transformers gives, and what is refused.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value as Json, json};

use crate::author::{json as printed, run, stderr};
use crate::digits::root;

pub(crate) fn repositories() -> PathBuf {
    root().join("tests/hub/repositories")
}

fn expected() -> Json {
    serde_json::from_slice(&fs::read(root().join("tests/hub/expected.json")).unwrap()).unwrap()
}

/// The numbers in a value, in order.
fn numbers(value: &Json, found: &mut Vec<f64>) {
    match value {
        Json::Array(items) => items.iter().for_each(|item| numbers(item, found)),
        Json::Object(fields) => fields.values().for_each(|item| numbers(item, found)),
        other => found.extend(other.as_f64()),
    }
}

/// Whether what gpux gives is what the reference gives: labels and texts equal, scores to 1e-4, vectors to a cosine of
/// 0.99999.
fn compare(name: &str, given: &Json, expected: &Json) {
    let flat = |value: &Json| {
        let mut found = Vec::new();
        numbers(value, &mut found);
        found
    };
    let first = || given.as_object().unwrap().values().next().unwrap();
    if let Some(vector) = expected.get("embedding") {
        let (a, b) = (flat(first()), flat(vector));
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        assert_eq!(a.len(), b.len(), "{name}");
        assert!(dot(&a, &b) / (dot(&a, &a) * dot(&b, &b)).sqrt() >= 0.99999, "{name}: {given}");
        assert!((dot(&a, &a) / dot(&b, &b) - 1.0).abs() < 1e-4, "{name}: {given}");
    } else if let Some(scores) = expected.get("scores") {
        let (a, b) = (flat(first()), flat(scores));
        assert!(a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| (a - b).abs() <= 1e-4), "{name}: {given}");
    } else {
        let (key, wanted) = expected.as_object().unwrap().iter().find(|(key, _)| *key != "inputs").unwrap();
        same(name, &given[key], wanted);
    }
}

/// Whether `given` has all that `wanted` has.
fn same(name: &str, given: &Json, wanted: &Json) {
    match (given, wanted) {
        (Json::Array(a), Json::Array(b)) => {
            assert_eq!(a.len(), b.len(), "{name}: {given}");
            a.iter().zip(b).for_each(|(a, b)| same(name, a, b));
        }
        (_, Json::Object(fields)) => fields.iter().for_each(|(key, value)| same(name, &given[key], value)),
        (_, Json::Number(number)) => {
            let difference = given.as_f64().unwrap() - number.as_f64().unwrap();
            assert!(difference.abs() <= 1e-4, "{name}: {given}, not {wanted}");
        }
        _ => assert_eq!(given, wanted, "{name}"),
    }
}

#[test]
fn pulled_models_give_what_transformers_gives() {
    let folder = tempfile::tempdir().unwrap();
    for (name, cases) in expected().as_object().unwrap() {
        let repository = repositories().join(name);
        let mut arguments = vec!["pull", repository.to_str().unwrap()];
        if name == "one-label" {
            arguments.extend(["--task", "text-classification"]);
        }
        let pulled = run(folder.path(), &arguments);
        assert!(pulled.status.success(), "{name}: {}", stderr(&pulled));
        for case in cases.as_array().unwrap() {
            let mut arguments = vec!["run".to_owned(), name.clone(), "--json".to_owned()];
            for (input, value) in case["inputs"].as_object().unwrap() {
                if matches!(input.as_str(), "image" | "audio") {
                    let file = root().join("tests/hub").join(value.as_str().unwrap());
                    arguments.extend(["--file".to_owned(), file.display().to_string()]);
                } else {
                    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                    arguments.extend(["--input".to_owned(), format!("{input}={text}")]);
                }
            }
            let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
            compare(name, &printed(&run(folder.path(), &arguments)), case);
        }
        let tested = run(folder.path(), &["test", name]);
        assert!(tested.status.success(), "{name}: {}", stderr(&tested));
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in from.read_dir().unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Sets keys of a JSON file.
fn set(file: &Path, values: &Json) {
    let mut json: Json = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    for (key, value) in values.as_object().unwrap() {
        json[key] = value.clone();
    }
    fs::write(file, json.to_string()).unwrap();
}

/// What is wrong with a repository: the row that it is a copy of, the change, and a part of the message.
type Fault = (&'static str, &'static [&'static str], fn(&Path), &'static str);

const FAULTS: [Fault; 36] = [
    ("classifier", &[], |f| auto_map(f, "tokenizer_config.json", "AutoTokenizer"), "`auto_map` with `AutoTokenizer`"),
    ("classifier", &[], |f| auto_map(f, "config.json", "AutoFeatureExtractor"), "with `AutoFeatureExtractor`"),
    ("image-vit", &[], |f| auto_map(f, "preprocessor_config.json", "AutoImageProcessor"), "prepares what goes into"),
    ("classifier", &[], |f| fs::remove_dir_all(f.join("onnx")).unwrap(), "optimum-cli export onnx --model"),
    ("classifier", &[], two_models, "choose one with --file: first.onnx, second.onnx"),
    ("classifier", &["--file", "x.onnx"], |_| (), "it holds no `x.onnx`; its ONNX files are: onnx/model.onnx"),
    ("classifier", &["--precision", "q4"], |_| (), "it holds no `onnx/model_q4.onnx`"),
    ("classifier", &[], |f| fs::rename(f.join("tokenizer.json"), f.join("vocab.txt")).unwrap(), "AutoTokenizer"),
    ("classifier", &[], |f| fs::remove_file(f.join("config.json")).unwrap(), "there is no `config.json`"),
    ("classifier", &[], |f| fs::write(f.join("config.json"), "{").unwrap(), "`config.json` cannot be read"),
    ("classifier", &[], |f| set(&f.join("config.json"), &json!({"id2label": {"1": "a"}})), "not numbered from 0"),
    ("classifier", &[], |f| set(&f.join("config.json"), &json!({"id2label": {"0": "a\nb"}})), "one line of text"),
    ("classifier", &[], |f| set(&f.join("config.json"), &json!({"id2label": {"0": "a", "1": "b"}})), "2 labels, but"),
    ("classifier", &[], |f| architecture(f, json!(["DetrForObjectDetection"])), "boxes of object detection"),
    ("classifier", &[], |f| architecture(f, json!(["Strange"])), "gpux knows no pipeline for it"),
    ("classifier", &[], |f| architecture(f, Json::Null), "with --task"),
    ("classifier", &["--task", "question-answering"], |_| (), "gives no `start_logits` and `end_logits`, but `logits`"),
    ("classifier", &["--task", "text-ranking"], |_| (), "`id2label` is 3 labels"),
    ("ranker", &[], |f| sentences(f, json!({"activation_fn": "torch.nn.Tanh"})), "gpux has Sigmoid and Identity"),
    ("sentence-mean", &[], dense, "modules.json has `sentence_transformers.models.Dense`"),
    ("sentence-mean", &[], |f| fs::remove_file(f.join("modules.json")).unwrap(), "--pooling mean, cls or lasttoken"),
    ("sentence-mean", &[], |f| set(&f.join("1_Pooling/config.json"), &json!({"pooling_mode": "median"})), "is median"),
    ("sentence-mean", &[], |f| sentences(f, json!({"default_prompt_name": "q"})), "`prompts` has no such one"),
    (
        "sentence-max",
        &[],
        |f| set(&f.join("1_Pooling/config.json"), &json!({"include_prompt": false})),
        "`include_prompt`",
    ),
    ("ranker", &[], nli, "no pipeline is made for pairs of texts with several labels"),
    ("ranker", &["--task", "text-classification"], nli, "`text-classification` is for one text"),
    ("sentence-first", &[], |f| sentences(f, json!({"truncate_dim": "half"})), "how many numbers a vector has"),
    (
        "sentence-left",
        &[],
        |f| called(f, json!({"text": {"padding": "max_length"}})),
        "`processing_kwargs.text.padding`",
    ),
    ("sentence-left", &[], |f| called(f, json!({"text": {"add_special_tokens": false}})), "text.add_special_tokens`"),
    ("sentence-left", &[], |f| called(f, json!({"common": {"a": 1}})), "`processing_kwargs.common` is {\"a\":1}"),
    ("classifier", &[], |f| tokenizing(f, json!({"do_lower_case": false})), "tokenizer.json has `lowercase: true`"),
    ("classifier", &[], |f| tokenizing(f, added()), "tokenizer.json has no added token 64 with this text"),
    ("speech", &[], |f| tokenizing(f, json!({"replace_word_delimiter_char": "_"})), "`replace_word_delimiter_char` is"),
    ("answers", &[], |f| tokenizing(f, json!({"truncation_side": "left"})), "`chunk` cuts windows from the beginning"),
    ("image-vit", &[], processor, "does not know how this class prepares pictures"),
    ("image-vit", &["--task", "text-classification"], tokenizer, "takes `pixel_values`, which `tokenize`"),
];

fn auto_map(folder: &Path, file: &str, class: &str) {
    set(&folder.join(file), &json!({ "auto_map": { class: "code.Class" } }));
}

#[test]
fn takes_onnx_files_of_models_with_code_of_their_own() {
    // As the repositories of nomic-embed-text, gte and jina-embeddings-v2 have it.
    let folder = tempfile::tempdir().unwrap();
    let repository = folder.path().join("repository");
    copy(&repositories().join("sentence-mean"), &repository);
    let map =
        json!({ "AutoConfig": "a/b--c.Config", "AutoModel": "a/b--c.Model", "AutoModelForMaskedLM": "a/b--c.Masked" });
    set(
        &repository.join("config.json"),
        &json!({ "auto_map": map, "architectures": ["NewModel"], "model_type": "new" }),
    );
    let pulled = run(folder.path(), &["pull", "./repository", "--output", "made"]);
    assert!(pulled.status.success(), "{}", stderr(&pulled));
    assert!(stderr(&pulled).contains("code of its repository, which is not run"), "{}", stderr(&pulled));
    let case = &expected()["sentence-mean"][0];
    let text = format!("text={}", case["inputs"]["text"].as_str().unwrap());
    compare("auto_map", &printed(&run(folder.path(), &["run", "made", "--json", "--input", &text])), case);
    assert!(fs::read_to_string(folder.path().join("made/gpux.yml")).unwrap().contains("`auto_map`"));
}

fn two_models(folder: &Path) {
    for name in ["first.onnx", "second.onnx"] {
        fs::copy(folder.join("onnx/model.onnx"), folder.join(name)).unwrap();
    }
    fs::remove_dir_all(folder.join("onnx")).unwrap();
}

fn architecture(folder: &Path, value: Json) {
    set(&folder.join("config.json"), &json!({ "architectures": value }));
}

fn sentences(folder: &Path, values: Json) {
    set(&folder.join("config_sentence_transformers.json"), &values);
}

/// A `CrossEncoder` with the labels of natural language inference.
fn nli(folder: &Path) {
    let labels = json!({"0": "contradiction", "1": "entailment", "2": "neutral"});
    set(&folder.join("config.json"), &json!({ "id2label": labels }));
    fs::copy(repositories().join("classifier/onnx/model.onnx"), folder.join("onnx/model.onnx")).unwrap();
}

fn called(folder: &Path, values: Json) {
    set(&folder.join("sentence_bert_config.json"), &json!({ "processing_kwargs": values }));
}

/// What BERT's tokenizer takes from its configuration.
fn tokenizing(folder: &Path, values: Json) {
    let file = folder.join("tokenizer_config.json");
    if folder.join("tokenizer.json").exists() {
        set(&file, &json!({"tokenizer_class": "BertTokenizer"}));
    }
    set(&file, &values);
}

fn added() -> Json {
    json!({"added_tokens_decoder": {"64": {"content": "<new>", "special": false}}})
}

fn dense(folder: &Path) {
    let file = folder.join("modules.json");
    let mut modules: Json = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let module = json!({"idx": 3, "name": "3", "path": "3_Dense", "type": "sentence_transformers.models.Dense"});
    modules.as_array_mut().unwrap().push(module);
    fs::write(file, modules.to_string()).unwrap();
}

fn processor(folder: &Path) {
    set(&folder.join("preprocessor_config.json"), &json!({"image_processor_type": "BeitImageProcessor"}));
}

fn tokenizer(folder: &Path) {
    fs::copy(repositories().join("classifier/tokenizer.json"), folder.join("tokenizer.json")).unwrap();
}

#[test]
fn refuses_what_it_would_have_to_guess() {
    let folder = tempfile::tempdir().unwrap();
    for (row, arguments, change, message) in FAULTS {
        let repository = folder.path().join("repository");
        let _ = fs::remove_dir_all(&repository);
        copy(&repositories().join(row), &repository);
        change(&repository);
        let arguments: Vec<_> = ["pull", "./repository", "--output", "made"].iter().chain(arguments).copied().collect();
        let pulled = run(folder.path(), &arguments);
        assert_eq!(pulled.status.code(), Some(2), "{message}: {}", stderr(&pulled));
        assert!(stderr(&pulled).contains(message), "{message}: {}", stderr(&pulled));
        assert_eq!(folder.path().read_dir().unwrap().count(), 1, "{message}: something is left");
    }
}

#[test]
fn options_say_what_files_do_not() {
    let folder = tempfile::tempdir().unwrap();
    let repository = folder.path().join("repository");
    copy(&repositories().join("sentence-mean"), &repository);
    sentences(&repository, json!({"default_prompt_name": "q", "prompts": {"q": "query: "}}));
    let pulled = run(folder.path(), &["pull", "repository", "--output", "made", "--prompt", "none"]);
    assert!(pulled.status.success(), "{}", stderr(&pulled));
    let text = fs::read_to_string(folder.path().join("made/gpux.yml")).unwrap();
    assert!(text.contains(r#"prompts: {"q":"query: "}"#) && !text.contains("prompt: "), "{text}");
    fs::remove_file(repository.join("modules.json")).unwrap();
    let pulled = run(folder.path(), &["pull", "repository", "--output", "m2", "--prompt", "none", "--pooling", "cls"]);
    assert!(pulled.status.success(), "{}", stderr(&pulled));
    let text = fs::read_to_string(folder.path().join("m2/gpux.yml")).unwrap();
    assert!(text.contains("cls-pool: { in: [last_hidden_state, attention_mask] }  # --pooling\n"), "{text}");

    // What Optimum leaves out is told; so is what a model wants that its pipeline does not give.
    fs::remove_file(repository.join("config_sentence_transformers.json")).unwrap();
    let pulled = run(folder.path(), &["pull", "repository", "--output", "m5", "--pooling", "cls"]);
    assert!(stderr(&pulled).contains("there is no `config_sentence_transformers.json`"), "{}", stderr(&pulled));
    let inference = folder.path().join("inference");
    copy(&repositories().join("classifier"), &inference);
    nli(&inference);
    let pulled = run(folder.path(), &["pull", "inference", "--output", "m6"]);
    assert!(pulled.status.success() && stderr(&pulled).contains("has the label `entailment`"), "{}", stderr(&pulled));

    // transformers 5 writes what it knows about sounds elsewhere.
    let speech = folder.path().join("speech");
    copy(&repositories().join("speech"), &speech);
    let features: Json = serde_json::from_slice(&fs::read(speech.join("preprocessor_config.json")).unwrap()).unwrap();
    fs::remove_file(speech.join("preprocessor_config.json")).unwrap();
    fs::write(speech.join("processor_config.json"), json!({ "feature_extractor": features }).to_string()).unwrap();
    set(&speech.join("tokenizer_config.json"), &json!({"do_lower_case": true}));
    let pulled = run(folder.path(), &["pull", "speech", "--output", "m4"]);
    assert!(pulled.status.success(), "{}", stderr(&pulled));
    let text = fs::read_to_string(folder.path().join("m4/gpux.yml")).unwrap();
    assert!(text.contains("- standardize  # processor_config.json: do_normalize\n"), "{text}");
    assert!(text.contains("lowercase: true  # tokenizer_config.json: do_lower_case\n"), "{text}");

    // Weights outside of the model's file are taken as the graph names them.
    let external = folder.path().join("external");
    copy(&repositories().join("classifier"), &external);
    fs::copy(root().join("tests/models/external.onnx"), external.join("onnx/model.onnx")).unwrap();
    let missing = run(folder.path(), &["pull", "external", "--output", "m3"]);
    assert!(stderr(&missing).contains("there is no `onnx/weights.bin`"), "{}", stderr(&missing));
}
