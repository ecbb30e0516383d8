//! The options of a session's provider, as its library takes them.

use ort::memory::DeviceType;
use serde_json::{Map, Value as Json, json};

use crate::engine::SessionOptions;
use crate::providers::ExecutionProvider;
use gpux_core::Precision;

/// The most bytes of a file of OpenVINO's properties.
const CONFIG_LIMIT: u64 = 1 << 20;

/// Names and values for the library of a provider.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct NativeOptions {
    pub(super) values: Vec<(String, String)>,
    /// the device among those that a plug-in has found; `None` for the first
    pub(super) device: Option<DeviceType>,
}

impl NativeOptions {
    /// The options of a session whose provider is built into the library, or comes from a plug-in.
    pub(super) fn new(provider: ExecutionProvider, options: &SessionOptions, is_plugin: bool) -> Result<Self, String> {
        let values = options.provider_options.values(provider);
        let mut values: Vec<_> = values.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        if provider == ExecutionProvider::OpenVino {
            return openvino(values, options, is_plugin);
        }
        for (name, value) in precision(provider, options.precision) {
            if !values.iter().any(|(given, _)| given == name) {
                values.push(((*name).to_owned(), (*value).to_owned()));
            }
        }
        Ok(Self { values, device: None })
    }

    /// Each name with its value.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.values.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

/// What a provider is told about a precision, unless options say otherwise.
const fn precision(provider: ExecutionProvider, precision: Precision) -> &'static [(&'static str, &'static str)] {
    match (provider, precision) {
        // By default, products of float32 matrices are rounded to 10 bits of mantissa.
        (ExecutionProvider::Cuda, Precision::Exact) => &[("use_tf32", "0")],
        (ExecutionProvider::TensorRt, Precision::Bf16) => &[("trt_bf16_enable", "1")],
        (ExecutionProvider::TensorRt, Precision::Fp16) => &[("trt_fp16_enable", "1")],
        (ExecutionProvider::Rocm, Precision::Fp16) => &[("migraphx_fp16_enable", "1")],
        _ => &[],
    }
}

/// OpenVINO's own properties go by a JSON object for each device, `load_config`. The plug-in takes all by it; the
/// provider of a whole build takes some under names of its own.
fn openvino(values: Vec<(String, String)>, options: &SessionOptions, is_plugin: bool) -> Result<NativeOptions, String> {
    let get = |name: &str| values.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str());
    let device = get("device_type").unwrap_or("CPU");
    let kind = device.split('.').next().unwrap_or_default().to_owned();
    let mut config = match get("load_config") {
        Some(path) => read_config(path)?,
        None => Map::new(),
    };
    let mut properties: Vec<(&str, Json)> = Vec::new();
    let threads =
        get("num_of_threads").map(str::to_owned).or_else(|| options.threads.map(|threads| threads.to_string()));
    if get("precision").is_none() {
        let hint = match options.precision {
            Precision::Bf16 => "bf16",
            Precision::Fp16 => "f16",
            Precision::Exact | Precision::Auto | Precision::Int8 => "f32",
        };
        properties.push(("INFERENCE_PRECISION_HINT", json!(hint)));
    }
    if kind == "CPU" {
        // Else every session pins its threads to the first cores, and sessions wait for each other there.
        properties.push(("ENABLE_CPU_PINNING", json!("NO")));
    }
    let mut native = Vec::new();
    if is_plugin {
        properties.extend(threads.map(|threads| ("INFERENCE_NUM_THREADS", json!(threads))));
        for (name, value) in &values {
            match (name.as_str(), value.as_str()) {
                ("device_type" | "num_of_threads" | "load_config", _) => {}
                ("num_streams", count) => properties.push(("NUM_STREAMS", json!(count))),
                ("cache_dir", folder) => properties.push(("CACHE_DIR", json!(folder))),
                ("model_priority", "DEFAULT") => {}
                ("model_priority", priority) => properties.push(("MODEL_PRIORITY", json!(priority))),
                ("precision", "ACCURACY") => properties.push(("EXECUTION_MODE_HINT", json!("ACCURACY"))),
                ("precision", "FP16") => properties.push(("INFERENCE_PRECISION_HINT", json!("f16"))),
                ("precision", _) => properties.push(("INFERENCE_PRECISION_HINT", json!("f32"))),
                ("reshape_input", shapes) => native.push(("reshape_input".to_owned(), shapes.to_owned())),
                (other, _) => return Err(format!("OpenVINO's plug-in has no option `{other}`; {WHOLE} has it")),
            }
        }
    } else {
        native.extend(values.iter().filter(|(name, _)| name != "load_config" && name != "num_of_threads").cloned());
        native.extend(threads.map(|threads| ("num_of_threads".to_owned(), threads)));
    }
    let of_device = config.entry(kind.clone()).or_insert_with(|| json!({}));
    let Json::Object(of_device) = of_device else { return Err(format!("`load_config`: `{kind}` must be an object")) };
    for (name, value) in properties {
        of_device.entry(name).or_insert(value);
    }
    native.push(("load_config".to_owned(), Json::Object(config).to_string()));
    let device = match kind.as_str() {
        _ if !is_plugin => None,
        "CPU" => Some(DeviceType::CPU),
        "GPU" => Some(DeviceType::GPU),
        "NPU" => Some(DeviceType::NPU),
        _ => return Err(format!("OpenVINO's plug-in has no device `{device}`; {WHOLE} has it")),
    };
    Ok(NativeOptions { values: native, device })
}

const WHOLE: &str = "the build of `gpux engine install openvino --whole`";

/// The properties in a file that the operator named.
fn read_config(path: &str) -> Result<Map<String, Json>, String> {
    let fault = |reason: String| format!("`load_config`: `{path}`: {reason}");
    let size = std::fs::metadata(path).map_err(|error| fault(error.to_string()))?.len();
    if size > CONFIG_LIMIT {
        return Err(fault(format!("it is larger than {} MiB", CONFIG_LIMIT >> 20)));
    }
    let text = std::fs::read_to_string(path).map_err(|error| fault(error.to_string()))?;
    serde_json::from_str(&text).map_err(|error| fault(error.to_string()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::providers::{OptionSource, ProviderOptions};

    fn session(options: &[(&str, Json)], precision: Precision) -> SessionOptions {
        let mut provider_options = ProviderOptions::default();
        for (name, value) in options {
            provider_options.set(&[ExecutionProvider::OpenVino], name, value, OptionSource::Operator).unwrap();
        }
        SessionOptions {
            provider: ExecutionProvider::OpenVino,
            threads: Some(2),
            provider_options,
            precision,
            ..SessionOptions::cpu()
        }
    }

    fn config(native: &NativeOptions) -> Json {
        let (_, text) = native.iter().find(|(name, _)| *name == "load_config").unwrap();
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn openvino_plugin_takes_options_as_properties() {
        let options = session(&[("num_streams", json!(3)), ("cache_dir", json!("/tmp/kept"))], Precision::Bf16);
        let native = NativeOptions::new(ExecutionProvider::OpenVino, &options, true).unwrap();
        let expected = json!({ "CPU": {
            "INFERENCE_PRECISION_HINT": "bf16", "ENABLE_CPU_PINNING": "NO", "INFERENCE_NUM_THREADS": "2",
            "NUM_STREAMS": "3", "CACHE_DIR": "/tmp/kept"
        } });
        assert_eq!((config(&native), native.device), (expected, Some(DeviceType::CPU)));
        assert_eq!(native.values.len(), 1);
        let gpu = session(&[("device_type", json!("GPU.1"))], Precision::Exact);
        let native = NativeOptions::new(ExecutionProvider::OpenVino, &gpu, true).unwrap();
        assert_eq!(
            (config(&native)["GPU"]["INFERENCE_PRECISION_HINT"].clone(), native.device),
            (json!("f32"), Some(DeviceType::GPU))
        );
        for (name, value) in [("layout", json!("image[NCHW]")), ("device_type", json!("AUTO:GPU,CPU"))] {
            let error =
                NativeOptions::new(ExecutionProvider::OpenVino, &session(&[(name, value)], Precision::Exact), true);
            assert!(error.unwrap_err().contains("--whole"));
        }
    }

    #[test]
    fn openvino_build_takes_a_file_of_properties() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.json");
        std::fs::write(&file, r#"{"CPU": {"ENABLE_CPU_PINNING": "YES", "INFERENCE_PRECISION_HINT": "f16"}}"#).unwrap();
        let options = session(&[("load_config", json!(file.to_str().unwrap()))], Precision::Exact);
        let native = NativeOptions::new(ExecutionProvider::OpenVino, &options, false).unwrap();
        let expected = json!({ "CPU": { "ENABLE_CPU_PINNING": "YES", "INFERENCE_PRECISION_HINT": "f16" } });
        assert_eq!(config(&native), expected, "what the operator says stays");
        assert!(native.iter().any(|option| option == ("num_of_threads", "2")));
        std::fs::write(&file, "[1]").unwrap();
        let error = NativeOptions::new(ExecutionProvider::OpenVino, &options, false).unwrap_err();
        assert!(error.contains("config.json") && error.contains("expected a map"), "{error}");
    }

    #[test]
    fn exact_turns_rounding_by_default_off() {
        let mut options = SessionOptions { provider: ExecutionProvider::Cuda, ..SessionOptions::cpu() };
        let values =
            |options: &SessionOptions| NativeOptions::new(ExecutionProvider::Cuda, options, false).unwrap().values;
        assert_eq!(values(&options), [("use_tf32".to_owned(), "0".to_owned())]);
        options.provider_options.set(&[], "use_tf32", &json!(true), OptionSource::Operator).unwrap();
        assert_eq!(values(&options), [("use_tf32".to_owned(), "1".to_owned())]);
    }
}
