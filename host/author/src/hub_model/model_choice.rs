//! Which ONNX file of a repository.

use super::fault::HubModelFault;

/// Precisions, and how exporters end the name of a file with one: transformers.js' `dtypes`, and Optimum's.
const SUFFIXES: [(&str, &str); 10] = [
    ("fp32", ""),
    ("fp16", "_fp16"),
    ("int8", "_int8"),
    ("uint8", "_uint8"),
    ("q8", "_quantized"),
    ("q4", "_q4"),
    ("q4f16", "_q4f16"),
    ("bnb4", "_bnb4"),
    ("q2", "_q2"),
    ("q1", "_q1"),
];

/// The names of all precisions.
pub const PRECISIONS: [&str; 10] = ["fp32", "fp16", "int8", "uint8", "q8", "q4", "q4f16", "bnb4", "q2", "q1"];

/// The file: the one that is named, else `onnx/model.onnx`, else `model.onnx`, else the only one.
pub(super) fn choose(
    names: &[String],
    file: Option<&str>,
    precision: Option<&str>,
    repository: &str,
) -> Result<String, HubModelFault> {
    let models: Vec<_> = names.iter().filter(|name| name.to_lowercase().ends_with(".onnx")).cloned().collect();
    let has = |name: &str| models.iter().any(|other| other == name);
    if models.is_empty() {
        let model = repository.strip_prefix("hf:").unwrap_or(repository);
        return Err(HubModelFault::NoOnnx { model: model.split('@').next().unwrap_or(model).to_owned() });
    }
    let named = |file: String| {
        if has(&file) { Ok(file) } else { Err(HubModelFault::NoSuchModel { file, others: models.clone() }) }
    };
    if let Some(file) = file {
        return named(file.to_owned());
    }
    let suffix = SUFFIXES.iter().find(|(name, _)| Some(*name) == precision).map_or("", |(_, suffix)| suffix);
    let usual = [format!("onnx/model{suffix}.onnx"), format!("model{suffix}.onnx")];
    if let Some(found) = usual.iter().find(|name| has(name)) {
        return Ok(found.clone());
    }
    match models.as_slice() {
        _ if precision.is_some() => named(usual[0].clone()),
        [only] => Ok(only.clone()),
        _ => Err(HubModelFault::SeveralModels(models.clone())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(names: &[&str], file: Option<&str>, precision: Option<&str>) -> Result<String, HubModelFault> {
        choose(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>(), file, precision, "hf:a/b@main")
    }

    #[test]
    fn prefers_the_usual_name() {
        let both = ["model.onnx", "onnx/model.onnx", "onnx/model_O4.onnx", "onnx/model_fp16.onnx"];
        assert_eq!(chosen(&both, None, None).unwrap(), "onnx/model.onnx");
        assert_eq!(chosen(&both, None, Some("fp16")).unwrap(), "onnx/model_fp16.onnx");
        assert_eq!(chosen(&both, Some("onnx/model_O4.onnx"), None).unwrap(), "onnx/model_O4.onnx");
        assert_eq!(chosen(&["net.onnx"], None, None).unwrap(), "net.onnx");
        assert!(SUFFIXES.iter().map(|(name, _)| *name).eq(PRECISIONS));
    }

    #[test]
    fn never_guesses() {
        let none = chosen(&["model.safetensors"], None, None).unwrap_err().to_string();
        assert!(none.contains("optimum-cli export onnx --model a/b exported"), "{none}");
        assert!(matches!(chosen(&["a.onnx", "b.onnx"], None, None), Err(HubModelFault::SeveralModels(_))));
        assert!(matches!(chosen(&["model.onnx"], None, Some("q4")), Err(HubModelFault::NoSuchModel { .. })));
        assert!(matches!(chosen(&["model.onnx"], Some("x.onnx"), None), Err(HubModelFault::NoSuchModel { .. })));
    }
}
