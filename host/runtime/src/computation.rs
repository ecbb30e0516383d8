//! What a built-in step computes, as far as it decides on values.

use serde_json::{Map, Value as Json, json};

use gpux_config::Node;
use gpux_core::{ProjectFiles, Registry};

/// Stands among the contents of a step that reads what a model says about itself.
pub(super) const METADATA: &str = "metadata";

/// What a built-in step computes: options with their defaults, and the contents of the files that they name.
pub(super) fn describe_builtin(registry: &Registry, files: &ProjectFiles, tag: &str, options: &Node) -> Json {
    let mut contents = files.take_contents();
    let schema = registry.builtin(tag).map(|builtin| (builtin.schema)().to_value()).unwrap_or_default();
    let properties = schema["properties"].as_object().into_iter().flatten();
    let mut all: Map<String, Json> =
        properties.filter_map(|(name, property)| Some((name.clone(), property.get("default")?.clone()))).collect();
    if let Json::Object(written) = options.to_json() {
        all.extend(written);
    }

    let named = files.named();
    let is_file = |option: &Json| option.as_str().is_some_and(|path| named.contains_key(&files.root().join(path)));
    let reads_files = !contents.is_empty();
    all.retain(|_, option| !(option.is_null() || reads_files && is_file(option)));
    // What a model says about itself: its name here does not matter.
    for option in all.values_mut().filter(|option| option.get("key").is_some()) {
        option["model"].take();
        contents.push(METADATA.to_owned());
    }
    json!({ "step": tag, "arithmetic": gpux_steps::arithmetic_version(tag), "options": all, "contents": contents })
}
