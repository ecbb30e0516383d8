//! Options of execution providers, from gpux.yml and the operator.

use serde_json::{Value as Json, json};

use super::load_options::LoadOptions;
use gpux_config::{Backend, DEFAULT_MODEL_NAME, Diagnostic, ModelSpec, Node, Spec};
use gpux_core::CacheFolder;
use gpux_inference::{ExecutionProvider, OptionError, OptionKind, OptionSource, ProviderOptions, options_of};

/// The wrong options in the file whose root is `root`.
pub(super) fn check(root: &Node, spec: &Spec) -> Vec<Diagnostic> {
    let gpu = root.get("runtime").and_then(|runtime| runtime.get("gpu"));
    let shared = gpu.and_then(|gpu| gpu.get("options"));
    let mut faults = shared.map(|options| faults(options, spec.runtime.gpu.backend.value)).unwrap_or_default();
    for model in &spec.models {
        let name = model.name.value.as_str();
        let only = root.get("model").filter(|_| name == DEFAULT_MODEL_NAME);
        let written = only.or_else(|| root.get("models").and_then(|models| models.get(name)));
        let own = written.and_then(|written| written.get("options"));
        faults.extend(own.map(|options| self::faults(options, model.provider.value)).unwrap_or_default());
    }
    faults
}

fn faults(options: &Node, backend: Backend) -> Vec<Diagnostic> {
    let providers = providers_of(backend);
    let fault = |(name, value): &gpux_config::Entry| {
        let mut set = ProviderOptions::default();
        let fault = set.set(providers, &name.value, &value.to_json(), OptionSource::File).err()?;
        let (code, span) =
            if fault.in_name { ("provider-option", &name.span) } else { ("provider-option-value", &value.span) };
        let diagnostic = Diagnostic::new(code, span.clone(), fault.message);
        Some(match fault.hint {
            Some(hint) => diagnostic.hint(hint),
            None => diagnostic,
        })
    };
    options.entries().unwrap_or_default().iter().filter_map(fault).collect()
}

/// The providers that options beside `backend` may be for: any, where none is named, and beside the
/// CPU, which has none, so that another can be tried with `--provider`.
const fn providers_of(backend: Backend) -> &'static [ExecutionProvider] {
    match backend {
        Backend::Auto | Backend::Fastest | Backend::Cpu => &[],
        Backend::Cuda => &[ExecutionProvider::Cuda],
        // CUDA runs what TensorRT does not take.
        Backend::Tensorrt => &[ExecutionProvider::TensorRt, ExecutionProvider::Cuda],
        Backend::Rocm | Backend::Migraphx => &[ExecutionProvider::Rocm],
        Backend::Coreml => &[ExecutionProvider::CoreMl],
        Backend::Directml => &[ExecutionProvider::DirectMl],
        Backend::Webgpu => &[ExecutionProvider::WebGpu],
        Backend::Openvino => &[ExecutionProvider::OpenVino],
    }
}

/// The options of `model`, whose digest is `digest`. The operator's replace those of gpux.yml.
pub(super) fn for_model(
    model: &ModelSpec,
    spec: &Spec,
    digest: &str,
    load_options: &LoadOptions,
) -> Result<ProviderOptions, OptionError> {
    let mut options = ProviderOptions::default();
    for (name, value) in &model.options {
        options.set(&[], name, value, OptionSource::File)?;
    }
    for (name, value) in &load_options.providers.options {
        options.set(&[], name, value, OptionSource::Operator)?;
    }
    if let Some(memory) = spec.runtime.gpu.memory {
        options.limit_memory(memory.0);
    }
    let folder = load_options.cache.as_ref().map(|cache| cache.path(CacheFolder::Providers).join(folder_name(digest)));
    options.set_cache_folder(folder.as_deref());
    Ok(options)
}

/// Marks the provider's files of this model as used, and evicts the least recently used beyond the limit.
pub(super) fn mark_used(digest: &str, load_options: &LoadOptions) {
    if let Some(cache) = &load_options.cache {
        cache.touch_and_evict(CacheFolder::Providers, folder_name(digest));
    }
}

/// The name of the folder of one model.
fn folder_name(digest: &str) -> &str {
    &digest[..16.min(digest.len())]
}

/// The schema of gpux.yml with every option of every provider, for editors.
pub(super) fn add_to_schema(schema: schemars::Schema) -> schemars::Schema {
    let mut schema = schema.to_value();
    let mut properties = serde_json::Map::new();
    for provider in ExecutionProvider::ALL {
        for option in options_of(provider) {
            let text = format!("{provider}: {} (default: {})", option.about, option.default);
            let property = properties.entry(option.name).or_insert_with(|| property(option.kind));
            let before = property["description"].as_str().map(|before| format!("{before}; ")).unwrap_or_default();
            property["description"] = json!(before + &text);
        }
    }
    for place in ["/$defs/GpuSpec/properties/options", "/$defs/Model/properties/options"] {
        if let Some(options) = schema.pointer_mut(place) {
            options["properties"] = Json::Object(properties.clone());
        }
    }
    schemars::Schema::try_from(schema).unwrap_or_default()
}

fn property(kind: OptionKind) -> Json {
    match kind {
        OptionKind::Switch => json!({ "type": "boolean" }),
        OptionKind::Whole { least, most } => json!({ "type": "integer", "minimum": least, "maximum": most }),
        OptionKind::Flags => json!({ "type": "integer", "minimum": 0, "maximum": 63 }),
        OptionKind::Size => json!({ "type": ["string", "integer"] }),
        OptionKind::Choice(names) => json!({ "type": "string", "examples": names }),
        OptionKind::Text(_) => json!({ "type": "string" }),
        OptionKind::Shapes => json!({ "type": ["string", "object"] }),
        OptionKind::Folder => json!({ "type": "boolean" }),
        OptionKind::File | OptionKind::Refused(_) => json!({ "not": {} }),
    }
}
