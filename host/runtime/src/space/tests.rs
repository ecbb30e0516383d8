use std::path::Path;

use super::*;
use crate::{LoadOptions, Pipeline};

const YML: &str = "name: embeds
version: 1.0.0
model: ./model.onnx
inputs: { text: text }
pipeline:
  - tokenize: { tokenizer: ./tokenizer.json, max_length: 64 }
  - model
  - mean-pool: { in: [last_hidden_state, attention_mask] }
  - l2-normalize
";

fn write(folder: &Path, text: &str) {
    let example = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/sentence-embedding"));
    for file in ["tokenizer.json", "model.onnx"] {
        std::fs::copy(example.join(file), folder.join(file)).unwrap();
    }
    std::fs::write(folder.join("gpux.yml"), text).unwrap();
}

fn open(folder: &Path) -> Pipeline {
    Pipeline::open(folder, &LoadOptions::default()).unwrap()
}

/// The space of this file's pipeline, in a folder of its own.
fn space(text: &str) -> Space {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), text);
    open(folder.path()).space().unwrap().clone()
}

/// With one part of the file replaced.
fn changed(part: &str, by: &str) -> Space {
    assert!(YML.contains(part), "{part}");
    space(&YML.replace(part, by))
}

#[test]
fn names_paths_comments_batching_and_limits_do_not_matter() {
    let original = space(YML);
    for (part, by) in [
        ("name: embeds", "# a comment\nname: other\ndescription: another"),
        ("1.0.0", "2.0.0"),
        ("inputs: { text: text }", "inputs: { words: { type: text, description: some } }"),
        ("max_length: 64 }", "padding: longest, max_length: 64, add_special_tokens: true }"),
        ("./tokenizer.json", "tokenizer.json"),
        ("  - l2-normalize", "  - l2-normalize: { out: vector }"),
        ("  - l2-normalize", "  - l2-normalize: { axis: -1 }"),
        ("model: ./model.onnx", "model: { source: ./model.onnx, instances: 2, threads: 1, version: 5 }"),
        ("model: ./model.onnx", "model: { source: ./model.onnx, batching: { max_size: 8, max_delay: 5ms } }"),
        ("model: ./model.onnx", "models: { encoder: ./model.onnx }"),
        ("model: ./model.onnx", "model: ./model.onnx\nserving: { timeout: 3s, aliases: [x] }"),
        ("  - l2-normalize", "  - l2-normalize: { out: unit }\noutputs: { unit: { type: float32, description: it } }"),
        (
            "  - model\n",
            "  - argmax: { in: input_ids, out: unused }\n  - model: { in: [input_ids, attention_mask, token_type_ids] }\n",
        ),
    ] {
        assert_eq!(changed(part, by), original, "{by}");
    }
    let named = YML.replace("mean-pool: {", "mean-pool: { out: pooled,");
    assert_eq!(space(&named.replace("- l2-normalize", "- l2-normalize: { in: pooled }")), original);
}

#[test]
fn every_option_that_changes_numbers_matters() {
    let mut spaces = vec![space(YML).digest];
    for (part, by) in [
        ("max_length: 64", "max_length: 32"),
        ("max_length: 64", "max_length: 64, truncation_side: left"),
        ("max_length: 64", "max_length: 64, add_special_tokens: false"),
        ("max_length: 64", "max_length: 64, padding: max_length"),
        ("  - l2-normalize\n", ""),
        ("  - l2-normalize", "  - l2-normalize: { axis: 0 }"),
        ("mean-pool: { in: [last_hidden_state, attention_mask] }", "cls-pool: { in: last_hidden_state }"),
        ("  - tokenize:", "  - normalize-text: { case: lower }\n  - tokenize:"),
        ("  - model\n", "  - model: { when: attention_mask >= 2 }\n"),
    ] {
        let other = changed(part, by).digest;
        assert!(!spaces.contains(&other), "{by}");
        spaces.push(other);
    }
}

#[test]
fn contents_of_files_matter() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), YML);
    let digest = || open(folder.path()).space().unwrap().digest.clone();
    let mut spaces = vec![digest()];

    let tokenizer = folder.path().join("tokenizer.json");
    let text = std::fs::read_to_string(&tokenizer).unwrap();
    std::fs::write(folder.path().join("tokenizer_config.json"), r#"{"model_max_length": 64}"#).unwrap();
    assert_eq!(digest(), spaces[0], "a fact that is not used");
    std::fs::write(folder.path().join("tokenizer_config.json"), r#"{"padding_side": "left"}"#).unwrap();
    spaces.push(digest());
    std::fs::write(&tokenizer, text + "\n").unwrap();
    spaces.push(digest());
    let model = folder.path().join("model.onnx");
    let mut bytes = std::fs::read(&model).unwrap();
    // A field of its own: the producer's version once more.
    bytes.extend([0x1a, 1, b'9']);
    std::fs::write(&model, bytes).unwrap();
    spaces.push(digest());
    spaces.dedup();
    assert_eq!(spaces.len(), 4);
}

#[test]
fn follows_items_defaults_and_conditions() {
    const EACH: &str = "name: t
version: 1.0.0
inputs: { numbers: { type: float32, shape: [2, 3] }, flag: { type: json, default: true } }
pipeline:
  - for-each:
      in: { row: numbers }
      over: row
      steps: [{ softmax: { in: row, out: row2 } }]
      out: rows
  - scale: { in: rows, out: more, factor: 2, when: flag }
  - l2-normalize: { in: more }
";
    let digest = |text: &str| {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("gpux.yml"), text).unwrap();
        open(folder.path()).space().unwrap().digest.clone()
    };
    let original = digest(EACH);
    for (part, by) in
        [("over: row", "over: row\n      batch: 2\n      max_items: 5"), ("row2", "other"), ("numbers", "table")]
    {
        assert_eq!(digest(&EACH.replace(part, by)), original, "{by}");
    }
    let mut spaces = vec![original];
    for (part, by) in [
        ("softmax", "sigmoid"),
        ("over: row", "over: row\n      overflow: truncate\n      max_items: 5"),
        ("default: true", "default: false"),
        ("factor: 2", "factor: 3"),
        (", when: flag", ""),
        ("in: rows, out", "in: numbers, out"),
    ] {
        let other = digest(&EACH.replace(part, by));
        assert!(!spaces.contains(&other), "{by}");
        spaces.push(other);
    }
}

#[test]
fn only_pipelines_with_vectors_have_a_space() {
    let folder = tempfile::tempdir().unwrap();
    let text = "name: t\nversion: 1.0.0\ninputs: { x: { type: float32, shape: [3] } }\npipeline: [softmax]\n";
    std::fs::write(folder.path().join("gpux.yml"), text).unwrap();
    assert_eq!(open(folder.path()).space(), None);
}

#[test]
fn answers_that_are_cut_or_scaled_have_another_space() {
    let space =
        |has_unit_length| Space { digest: "d".to_owned(), numerics: String::new(), width: Some(8), has_unit_length };
    for (unit, dimensions, normalize, right) in [
        (true, None, true, "d"),
        (true, Some(8), false, "d"),
        (true, Some(4), true, "d-4"),
        (false, None, false, "d"),
        (false, None, true, "d-unit"),
        (false, Some(8), false, "d-unit"),
        (false, Some(4), false, "d-4"),
    ] {
        assert_eq!(space(unit).for_answer(dimensions, normalize), right, "{unit} {dimensions:?} {normalize}");
    }
}

/// A change here gives every pipeline another id: vectors in stores no longer match. It needs a line in CHANGELOG.md.
#[test]
fn the_form_of_the_digest_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let text = "name: t\nversion: 1.0.0\ninputs: { x: { type: float32, shape: [1, 3] } }\npipeline: [l2-normalize]\n";
    std::fs::write(folder.path().join("gpux.yml"), text).unwrap();
    let space = open(folder.path()).space().unwrap().clone();
    assert_eq!(space.digest, "23570189848192ef854e855a0deee0df588d4cb1293a4a72a780197007b9157b");
    assert!(space.numerics.contains(std::env::consts::ARCH) && space.numerics.contains("gpux "), "{space:?}");
}
