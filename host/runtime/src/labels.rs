//! Reads the labels of a pipeline's outputs.

use std::collections::BTreeMap;

use gpux_config::{Diagnostic, Labels, OutputSpec, Spec};
use gpux_core::{ProjectFiles, read_labels};

/// The labels of each output that has some, or every file of labels that cannot be used.
pub(super) fn read(spec: &Spec, files: &ProjectFiles) -> Result<BTreeMap<String, Vec<String>>, Vec<Diagnostic>> {
    let mut labels = BTreeMap::new();
    let mut faults = Vec::new();
    for output in &spec.outputs {
        match output_labels(output, files) {
            Ok(Some(read)) => drop(labels.insert(output.name.value.clone(), read)),
            Ok(None) => {}
            Err(fault) => faults.push(fault),
        }
    }
    if faults.is_empty() { Ok(labels) } else { Err(faults) }
}

fn output_labels(output: &OutputSpec, files: &ProjectFiles) -> Result<Option<Vec<String>>, Diagnostic> {
    match &output.labels {
        None => Ok(None),
        Some(Labels::List(labels)) => Ok(Some(labels.clone())),
        Some(Labels::File(path)) => read_labels(&path.value, |path, limit| files.read(path, limit))
            .map(Some)
            .map_err(|why| Diagnostic::new("file", path.span.clone(), format!("the labels: {why}"))),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use crate::GpuxError;
    use crate::{LoadOptions, Pipeline};

    const TEXT: &str = "name: t\nversion: 1.0.0\ninputs: { x: { type: float32, shape: [3] } }\n\
        pipeline: [softmax]\noutputs: { scores: { type: float32, labels: ./labels.txt } }\n";

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
