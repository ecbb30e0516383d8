//! gpux's execution providers as ONNX Runtime knows them.

use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
use std::path::Path;

use ort::ep::directml::{DeviceFilter, PerformancePreference};
use ort::ep::{
    self, ArbitrarilyConfigurableExecutionProvider, ArenaExtendStrategy, ExecutionProvider as _,
    ExecutionProviderDispatch,
};

use super::native_options::NativeOptions;
use super::preload;
use crate::engine::SessionOptions;
use crate::hardware::Hardware;
use crate::providers::ExecutionProvider;

/// A provider as this library and this machine have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Availability {
    /// it can be tried
    Available,
    /// the library was built without it
    NotBuilt,
    /// the library was built with it, but this file is not beside it
    Incomplete(String),
    /// the machine lacks what it needs
    Unsupported(String),
}

/// Whether the loaded library and this machine offer `provider`. Creating a session shows whether
/// the hardware works.
pub(super) fn availability_of(library: &Path, provider: ExecutionProvider) -> Availability {
    let built = match provider {
        ExecutionProvider::TensorRt => ep::TensorRT::is_available(),
        ExecutionProvider::Cuda => ep::CUDA::is_available(),
        ExecutionProvider::Rocm => ep::MIGraphX::is_available(),
        ExecutionProvider::CoreMl => ep::CoreML::is_available(),
        ExecutionProvider::DirectMl => ep::DirectML::is_available(),
        ExecutionProvider::WebGpu => ep::WebGPU::is_available(),
        ExecutionProvider::OpenVino => ep::OpenVINO::is_available(),
        ExecutionProvider::Cpu => Ok(true),
        // Not part of any build: `plugins` knows them.
        ExecutionProvider::Plugin(_) => Ok(false),
    };
    if !built.unwrap_or(false) {
        return Availability::NotBuilt;
    }
    let folder = library.parent().unwrap_or(Path::new("."));
    if let Some(missing) = missing(folder, provider) {
        return Availability::Incomplete(missing);
    }
    if let Some(lacking) = Hardware::detect().unavailable_reason(provider) {
        return Availability::Unsupported(lacking);
    }
    if provider == ExecutionProvider::TensorRt && !preload::has_tensorrt(library) {
        return Availability::Unsupported(
            "TensorRT's own libraries (version 10) were not found on this machine".to_owned(),
        );
    }
    Availability::Available
}

/// The first library of those that ONNX Runtime would load for `provider` that is not in `folder`:
/// it looks for them beside its own, and packages exist that leave them out.
fn missing(folder: &Path, provider: ExecutionProvider) -> Option<String> {
    let separate: &[&str] = match provider {
        // Registered together with CUDA.
        ExecutionProvider::TensorRt => &["shared", "tensorrt", "cuda"],
        ExecutionProvider::Cuda => &["shared", "cuda"],
        ExecutionProvider::Rocm => &["shared", "migraphx"],
        ExecutionProvider::OpenVino => &["shared", "openvino"],
        ExecutionProvider::CoreMl
        | ExecutionProvider::DirectMl
        | ExecutionProvider::WebGpu
        | ExecutionProvider::Cpu
        | ExecutionProvider::Plugin(_) => &[],
    };
    separate.iter().map(|name| file_name(name)).find(|name| !folder.join(name).is_file())
}

fn file_name(name: &str) -> String {
    format!("{DLL_PREFIX}onnxruntime_providers_{name}{DLL_SUFFIX}")
}

/// The built-in providers that a session registers, in order; the CPU is always last. A failure to
/// register is an error: falling back is decided, and reported, elsewhere.
pub(super) fn registrations(options: &SessionOptions) -> Result<Vec<ExecutionProviderDispatch>, String> {
    let native = |provider| NativeOptions::new(provider, options, false);
    let cuda = || Ok::<_, String>(with_options(ep::CUDA::default(), &native(ExecutionProvider::Cuda)?).build());
    let own = native(options.provider)?;
    let dispatches = match options.provider {
        // CUDA runs what TensorRT does not take.
        ExecutionProvider::TensorRt => vec![with_options(ep::TensorRT::default(), &own).build(), cuda()?],
        ExecutionProvider::Cuda => vec![cuda()?],
        ExecutionProvider::Rocm => vec![migraphx(&own).build()],
        ExecutionProvider::CoreMl => vec![with_options(ep::CoreML::default(), &own).build()],
        ExecutionProvider::DirectMl => vec![directml(&own).build()],
        ExecutionProvider::WebGpu => vec![with_options(ep::WebGPU::default(), &own).build()],
        ExecutionProvider::OpenVino => vec![with_options(ep::OpenVINO::default(), &own).build()],
        ExecutionProvider::Cpu | ExecutionProvider::Plugin(_) => Vec::new(),
    };
    Ok(dispatches.into_iter().map(ExecutionProviderDispatch::error_on_failure).collect())
}

fn with_options<P: ArbitrarilyConfigurableExecutionProvider>(native: P, options: &NativeOptions) -> P {
    options.iter().fold(native, |native, (name, value)| native.with_arbitrary_config(name, value))
}

/// MIGraphX takes a structure instead of names. The values have been checked.
fn migraphx(options: &NativeOptions) -> ep::MIGraphX {
    let native = options.iter().any(|option| option == ("migraphx_int8_use_native_calibration_table", "1"));
    options.iter().fold(ep::MIGraphX::default(), |provider, (name, value)| match name {
        "device_id" => provider.with_device_id(value.parse().unwrap_or_default()),
        "migraphx_fp16_enable" => provider.with_fp16(value == "1"),
        "migraphx_fp8_enable" => provider.with_fp8(value == "1"),
        "migraphx_int8_enable" => provider.with_int8(value == "1"),
        "migraphx_int8_calibration_table_name" => provider.with_int8_calibration_table(value, native),
        "migraphx_exhaustive_tune" => provider.with_exhaustive_tune(value == "1"),
        "migraphx_mem_limit" => provider.with_mem_limit(value.parse().unwrap_or(usize::MAX)),
        "migraphx_arena_extend_strategy" if value == "kSameAsRequested" => {
            provider.with_arena_extend_strategy(ArenaExtendStrategy::SameAsRequested)
        }
        _ => provider,
    })
}

/// DirectML takes a structure instead of names. The values have been checked.
fn directml(options: &NativeOptions) -> ep::DirectML {
    options.iter().fold(ep::DirectML::default(), |provider, (name, value)| match (name, value) {
        ("device_id", number) => provider.with_device_id(number.parse().unwrap_or_default()),
        ("performance_preference", "high_performance") => {
            provider.with_performance_preference(PerformancePreference::HighPerformance)
        }
        ("performance_preference", "minimum_power") => {
            provider.with_performance_preference(PerformancePreference::MinimumPower)
        }
        ("device_filter", "npu") => provider.with_device_filter(DeviceFilter::Npu),
        ("device_filter", "any") => provider.with_device_filter(DeviceFilter::Any),
        _ => provider,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::ExecutionProvider::{CoreMl, Cpu, Cuda, DirectMl, OpenVino, Rocm, TensorRt, WebGpu};
    use super::*;
    use crate::providers::OptionKind;
    use crate::providers::{OptionSource, ProviderOptions, options_of};

    #[test]
    fn providers_need_their_libraries() {
        let folder = tempfile::tempdir().unwrap();
        let complete = || -> Vec<_> {
            ExecutionProvider::ALL.into_iter().filter(|provider| missing(folder.path(), *provider).is_none()).collect()
        };
        let place = |name| std::fs::write(folder.path().join(file_name(name)), "").unwrap();
        assert_eq!(complete(), [CoreMl, DirectMl, WebGpu, Cpu]);
        place("cuda");
        place("tensorrt");
        assert_eq!(missing(folder.path(), TensorRt), Some(file_name("shared")));
        place("shared");
        assert_eq!(complete(), [TensorRt, Cuda, CoreMl, DirectMl, WebGpu, Cpu]);
        std::fs::remove_file(folder.path().join(file_name("cuda"))).unwrap();
        assert_eq!(missing(folder.path(), TensorRt), Some(file_name("cuda")));
        place("migraphx");
        place("openvino");
        assert_eq!(complete(), [Rocm, CoreMl, DirectMl, WebGpu, OpenVino, Cpu]);
        if cfg!(target_os = "linux") {
            assert!(folder.path().join("libonnxruntime_providers_shared.so").is_file());
        }
    }

    /// A new option in a table must not be forgotten where names become a structure.
    #[test]
    fn passes_every_option_of_structured_providers() {
        let shown = |options: &ProviderOptions| {
            let native = |provider| {
                let options = SessionOptions { provider, provider_options: options.clone(), ..SessionOptions::cpu() };
                NativeOptions::new(provider, &options, false).unwrap()
            };
            format!("{:?} {:?}", migraphx(&native(Rocm)), directml(&native(DirectMl)))
        };
        let plain = shown(&ProviderOptions::default());
        for provider in [Rocm, DirectMl] {
            for option in options_of(provider) {
                let values = match option.kind {
                    OptionKind::Switch => vec![serde_json::json!(true)],
                    OptionKind::Whole { .. } => vec![serde_json::json!(7)],
                    OptionKind::Size => vec![serde_json::json!(4096)],
                    OptionKind::Choice(names) => names[1..].iter().map(|name| serde_json::json!(name)).collect(),
                    _ => vec![serde_json::json!("table")],
                };
                for value in values {
                    let mut options = ProviderOptions::default();
                    if option.name == "migraphx_int8_use_native_calibration_table" {
                        let table = serde_json::json!("table");
                        options
                            .set(&[Rocm], "migraphx_int8_calibration_table_name", &table, OptionSource::Operator)
                            .unwrap();
                    }
                    options.set(&[provider], option.name, &value, OptionSource::Operator).unwrap();
                    assert_ne!(shown(&options), plain, "{} {value}", option.name);
                }
            }
        }
    }
}
