//! Reads the labels of a pipeline's outputs.

use std::collections::BTreeMap;

use gpux_config::{Diagnostic, Labels, OutputSpec, Spec};
use gpux_core::{ModelMetadata, ProjectFiles, class_names, read_labels};

/// The labels of each output that has some, or every file of labels that cannot be used.
pub(super) fn read(
    spec: &Spec,
    files: &ProjectFiles,
    models: &ModelMetadata,
) -> Result<BTreeMap<String, Vec<String>>, Vec<Diagnostic>> {
    let mut labels = BTreeMap::new();
    let mut faults = Vec::new();
    for output in &spec.outputs {
        match output_labels(output, files, models) {
            Ok(Some(read)) => drop(labels.insert(output.name.value.clone(), read)),
            Ok(None) => {}
            Err(fault) => faults.push(fault),
        }
    }
    if faults.is_empty() { Ok(labels) } else { Err(faults) }
}

fn output_labels(
    output: &OutputSpec,
    files: &ProjectFiles,
    models: &ModelMetadata,
) -> Result<Option<Vec<String>>, Diagnostic> {
    match &output.labels {
        None => Ok(None),
        Some(Labels::List(labels)) => Ok(Some(labels.clone())),
        Some(Labels::File(path)) => read_labels(&path.value, |path, limit| files.read(path, limit))
            .map(Some)
            .map_err(|why| Diagnostic::new("file", path.span.clone(), format!("the labels: {why}"))),
        Some(Labels::Metadata { model, key }) => {
            let text = models.get(model.as_deref(), &key.value).map_err(|why| why.to_string());
            let names = text.and_then(|text| {
                class_names(text).map_err(|why| format!("`{}` in the model's metadata has no names: {why}", key.value))
            });
            match names {
                Ok(names) => Ok(Some(names.into_iter().map(|name| name.trim().to_owned()).collect())),
                Err(why) => Err(Diagnostic::new("option", key.span.clone(), format!("the labels: {why}"))),
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use crate::GpuxError;
    use crate::internal::Definition;
    use crate::{LoadOptions, Pipeline};
    use gpux_config::Variables;
    use gpux_core::{RunOptions, Tensor, to_json};

    const TEXT: &str = "name: t\nversion: 1.0.0\ninputs: { x: { type: float32, shape: [3] } }\n\
        pipeline: [softmax]\noutputs: { scores: { type: float32, labels: ./labels.txt } }\n";

    /// The pipeline of this text around `reader.onnx`, or its diagnostics.
    fn open(text: &str) -> Result<Pipeline, String> {
        let path = std::path::PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/models/gpux.yml"));
        let text = format!("name: t\nversion: 1.0.0\n{text}");
        let (document, spec) = gpux_config::parse("gpux.yml", text, &Variables::empty(), &crate::source::check_step)
            .map_err(|error| GpuxError::from(error).to_json().to_string())?;
        Pipeline::load(Definition::new(path, document, spec), &LoadOptions::default())
            .map_err(|error| error.to_json()["details"]["diagnostics"].to_string())
    }

    #[test]
    fn reads_labels_from_metadata_of_the_model() {
        let run = |pipeline: &Pipeline| {
            let scores = Tensor::new([1, 1, 5], vec![0.0, 0.1, 0.7, 0.1, 0.1_f32]).unwrap();
            let outputs = pipeline.plan().run(vec![("x".to_owned(), scores.into())], RunOptions::default()).unwrap();
            to_json(&outputs.into_iter().next().unwrap().1).to_string()
        };
        let one = "model: { source: ./reader.onnx }\npipeline:\n  - model\n  - ";
        let pipeline = open(&format!("{one}top-k: {{ k: 1, labels: {{ key: names }} }}\n")).unwrap();
        assert!(run(&pipeline).contains("\"label\":\"b's\""), "{}", run(&pipeline));
        let declared = "outputs: { scores: { type: float32, labels: { model: model, key: names } } }\n";
        let pipeline = open(&format!("{one}softmax\n{declared}")).unwrap();
        assert_eq!(pipeline.labels("scores"), ["none", "a", "b's", "c", "space"]);

        for (rest, message) in [
            ("top-k: { labels: { key: name } }", "no `name`, but `character`, `names` and `producer_name`"),
            ("top-k: { labels: { model: reader, key: names } }", "there is no model `reader`, but `model`"),
            ("top-k: { labels: { kye: names } }", "did you mean `key`?"),
            ("softmax\noutputs: { scores: { type: float32, labels: { key: name } } }", "has no `name`, but"),
            ("softmax\noutputs: { scores: { type: float32, labels: { model: model } } }", "key"),
        ] {
            let error = open(&format!("{one}{rest}\n")).err().unwrap();
            assert!(error.contains(message), "{rest}: {error}");
        }
        let none =
            open("inputs: { x: { type: float32, shape: [3] } }\npipeline: [{ top-k: { labels: { key: names } } }]\n");
        assert!(none.err().unwrap().contains("the pipeline has no model"));
        let missing = open("model: { source: ./no.onnx }\npipeline: [model, { top-k: { labels: { key: names } } }]\n");
        assert!(!missing.err().unwrap().contains("metadata"), "without the model, its metadata is no mistake");
    }

    #[test]
    fn reads_labels_when_the_pipeline_is_loaded() {
        let folder = tempfile::tempdir().unwrap();
        let (path, labels) = (folder.path().join("gpux.yml"), folder.path().join("labels.txt"));
        std::fs::write(&path, TEXT).unwrap();
        let open = || Pipeline::open(&path, &LoadOptions::default());
        let fault = || match open() {
            Err(error @ GpuxError::Configuration(_)) => error.to_json()["details"]["diagnostics"].to_string(),
            _ => String::new(),
        };
        assert!(fault().contains("the labels: no file at `./labels.txt`"), "{}", fault());
        std::fs::write(&labels, [b'a', b'\n', 0xff]).unwrap();
        assert!(fault().contains("not UTF-8 text"), "{}", fault());
        std::fs::write(&labels, "\n").unwrap();
        assert!(fault().contains("there are no labels"), "{}", fault());
        std::fs::write(&labels, "\u{feff}cat\r\n dog\n").unwrap();
        let pipeline = open().unwrap();
        assert_eq!(pipeline.labels("scores"), ["cat", "dog"]);
        assert!(pipeline.labels("other").is_empty());
        assert!(pipeline.files().keys().any(|file| file.ends_with("labels.txt")), "a change of it is seen");
    }
}
