//! `auto_map`: classes that a repository brings as Python code, none of which is fetched or run.
//!
//! Code of the model itself computes what the ONNX file computes, so it is not needed. Code that prepares its inputs is
//! described by no other file.

use serde_json::Value as Json;

use super::MakeError;
use super::fault::HubModelFault;
use super::source::ModelSource;

/// Said of a model whose class is code of its repository.
pub(super) const NOTE: &str =
    "config.json has `auto_map`: the model's class is code of its repository, which is not run; the ONNX file is all";

/// Whether the model's class is code of the repository. Fails if other classes are.
pub(super) fn check(source: &mut ModelSource<'_>, config: &Json) -> Result<bool, MakeError> {
    for file in ["tokenizer_config.json", "preprocessor_config.json", "processor_config.json"] {
        let json = source.json(file)?.unwrap_or_default();
        if let Some(class) = classes(&json).next() {
            return Err(HubModelFault::CustomCode { file: file.to_owned(), class }.into());
        }
    }
    // `AutoModelForMaskedLM`, `TFAutoModel` and so on.
    match classes(config).find(|class| !["AutoConfig", "AutoModel"].iter().any(|known| class.contains(known))) {
        Some(class) => Err(HubModelFault::CustomCode { file: "config.json".to_owned(), class }.into()),
        None => Ok(classes(config).next().is_some()),
    }
}

/// The classes that `auto_map` takes the place of. An older form names the tokenizer's alone, as a list.
fn classes(json: &Json) -> impl Iterator<Item = String> {
    let (named, listed) = match json.get("auto_map") {
        Some(Json::Object(map)) => (map.keys().cloned().collect(), None),
        Some(Json::Null) | None => (Vec::new(), None),
        Some(_) => (Vec::new(), Some("AutoTokenizer".to_owned())),
    };
    named.into_iter().chain(listed)
}
