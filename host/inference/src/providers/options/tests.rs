#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use serde_json::json;

use super::ExecutionProvider::{CoreMl, Cpu, Cuda, DirectMl, OpenVino, Rocm, TensorRt};
use super::*;

fn set(of: &[ExecutionProvider], options: Json, source: OptionSource) -> Result<ProviderOptions, OptionError> {
    let mut set = ProviderOptions::default();
    for (name, value) in options.as_object().unwrap() {
        set.set(of, name, value, source)?;
    }
    Ok(set)
}

fn values(options: &ProviderOptions, provider: ExecutionProvider) -> Vec<String> {
    options.values(provider).map(|(name, value)| format!("{name}={value}")).collect()
}

fn fault(of: &[ExecutionProvider], options: Json) -> String {
    set(of, options, OptionSource::File).unwrap_err().to_string()
}

#[test]
fn formats_values_for_libraries() {
    let cuda = json!({
        "device_id": 1, "gpu_mem_limit": "2GB", "cudnn_conv_algo_search": "heuristic", "use_tf32": false,
        "arena_extend_strategy": "same_as_requested", "do_copy_in_default_stream": "True", "enable_cuda_graph": false,
    });
    let expected = [
        "arena_extend_strategy=kSameAsRequested",
        "cudnn_conv_algo_search=HEURISTIC",
        "device_id=1",
        "do_copy_in_default_stream=1",
        "gpu_mem_limit=2000000000",
        "use_tf32=0",
    ];
    assert_eq!(values(&set(&[Cuda], cuda, OptionSource::File).unwrap(), Cuda), expected);
    let openvino =
        json!({ "device": "AUTO:GPU,CPU", "precision": "fp32", "num_threads": 2, "disable_dynamic_shapes": true });
    let expected = ["device_type=AUTO:GPU,CPU", "disable_dynamic_shapes=true", "num_of_threads=2", "precision=FP32"];
    assert_eq!(values(&set(&[OpenVino], openvino, OptionSource::File).unwrap(), OpenVino), expected);
    let shapes = json!({ "trt_profile_min_shapes": { "x": [1, 3], "y": [2] }, "trt_profile_max_shapes": "x:8x3, y:4" });
    let expected = ["trt_profile_max_shapes=x:8x3,y:4", "trt_profile_min_shapes=x:1x3,y:2"];
    assert_eq!(values(&set(&[TensorRt], shapes, OptionSource::File).unwrap(), TensorRt), expected);
    let flags = set(&[CoreMl], json!({ "coreml_flags": 9 }), OptionSource::File).unwrap();
    assert_eq!(values(&flags, CoreMl), ["MLComputeUnits=CPUOnly", "RequireStaticInputShapes=1"]);
}

#[test]
fn sets_options_on_every_provider_that_has_them() {
    let options = set(&[], json!({ "device_id": 1, "trt_fp16_enable": true }), OptionSource::File).unwrap();
    assert_eq!(values(&options, Cuda), ["device_id=1"]);
    assert_eq!(values(&options, DirectMl), ["device_id=1"]);
    assert_eq!(values(&options, TensorRt), ["device_id=1", "trt_fp16_enable=1"]);
    assert!(options.is_empty(OpenVino) && options.is_empty(Cpu));
}

#[test]
fn suggests_names_and_values() {
    for (of, options, expected) in [
        (&[Cuda][..], json!({ "device": 0 }), "`cuda` has no option `device`; did you mean `device_id`?"),
        (&[Cuda], json!({ "devise_id": 0 }), "`cuda` has no option `devise_id`; did you mean `device_id`?"),
        (
            &[DirectMl],
            json!({ "speed": 9 }),
            "`directml` has no option `speed`; `gpux engine options directml` lists what it has",
        ),
        (
            &[TensorRt, Cuda],
            json!({ "ModelFormat": "x" }),
            "`tensorrt` has no option `ModelFormat`; it is one of `coreml`",
        ),
        (&[Cpu], json!({ "speed": 9 }), "`cpu` has no option `speed`; it takes no options"),
        (&[], json!({ "speed": 9 }), "no execution provider has an option `speed`; `gpux engine options` lists them"),
        (
            &[Cuda],
            json!({ "device_id": "first" }),
            "`device_id` of `cuda` takes a whole number from 0 to 127, but this is \"first\"",
        ),
        (
            &[Cuda],
            json!({ "device_id": 1.5 }),
            "`device_id` of `cuda` takes a whole number from 0 to 127, but this is 1.5",
        ),
        (&[Cuda], json!({ "use_tf32": 2 }), "`use_tf32` of `cuda` takes true or false, but this is 2"),
        (&[Cuda], json!({ "gpu_mem_limit": 0 }), "`gpu_mem_limit` of `cuda` takes a size, such as 2GB, but this is 0"),
        (
            &[Cuda],
            json!({ "cudnn_conv_algo_search": "HEURISTICS" }),
            "but this is \"HEURISTICS\"; did you mean `HEURISTIC`?",
        ),
        (&[OpenVino], json!({ "device_type": "CPU\n" }), "but this is \"CPU\\n\""),
        (
            &[TensorRt],
            json!({ "trt_profile_min_shapes": "x:1y3" }),
            "takes shapes, such as { image: [1, 3, 224, 224] }",
        ),
        (&[TensorRt], json!({ "trt_profile_min_shapes": { "x": [0] } }), "takes shapes"),
    ] {
        let values = fault(of, options);
        assert!(values.contains(expected), "{values}");
    }
}

#[test]
fn rejects_paths_and_addresses_from_gpux_yml() {
    for (of, name, value) in [
        (OpenVino, "load_config", json!("config.json")),
        (OpenVino, "cache_dir", json!("/tmp")),
        (TensorRt, "trt_engine_cache_path", json!(".")),
        (TensorRt, "trt_engine_decryption_lib_path", json!("evil.so")),
        (TensorRt, "trt_extra_plugin_lib_paths", json!("evil.so")),
        (Rocm, "migraphx_int8_calibration_table_name", json!("table")),
        (CoreMl, "ModelCacheDirectory", json!("/tmp")),
    ] {
        let values = fault(&[of], json!({ name: value }));
        assert!(values.contains("which a gpux.yml may not") && values.contains("--provider-option"), "{values}");
        set(&[of], json!({ name: value }), OptionSource::Operator).unwrap();
    }
    for source in [OptionSource::File, OptionSource::Operator] {
        let error = set(&[Cuda], json!({ "user_compute_stream": "94371840" }), source).unwrap_err();
        assert!(error.message.contains("an address in the process"), "{error}");
    }
    for text in ["CPU/../../x", "../x", "a\"b", "a\0b"] {
        assert!(set(&[OpenVino], json!({ "device_type": text }), OptionSource::File).is_err(), "{text}");
    }
    set(&[OpenVino], json!({ "reshape_input": "image[1,3,1..640,640]" }), OptionSource::File).unwrap();
}

#[test]
fn places_provider_caches_in_the_cache() {
    let mut options = set(&[], json!({ "cache_dir": true }), OptionSource::File).unwrap();
    options.set_cache_folder(Some(Path::new("/cache/providers/d1")));
    assert_eq!(values(&options, OpenVino), ["cache_dir=/cache/providers/d1/openvino"]);
    let place = "/cache/providers/d1/tensorrt";
    let engines = format!("trt_engine_cache_path={place}");
    let expected =
        ["trt_engine_cache_enable=1", &engines, "trt_timing_cache_enable=1", &format!("trt_timing_cache_path={place}")];
    assert_eq!(values(&options, TensorRt), expected);
    assert_eq!(options.folders(TensorRt).collect::<Vec<_>>(), [Path::new(place), Path::new(place)]);
    let mut none = set(&[], json!({ "cache_dir": true }), OptionSource::File).unwrap();
    none.set_cache_folder(None);
    assert!(none.is_empty(OpenVino));
    assert_eq!(values(&none, TensorRt), ["trt_engine_cache_enable=0", "trt_timing_cache_enable=0"]);
    let mut off = set(&[TensorRt], json!({ "trt_engine_cache_enable": false }), OptionSource::File).unwrap();
    off.set_cache_folder(Some(Path::new("/c")));
    assert_eq!(off.values(TensorRt).next(), Some(("trt_engine_cache_enable", "0")));
    assert!(!values(&off, TensorRt).iter().any(|values| values.contains("engine_cache_path")));
}

#[test]
fn explicit_option_overrides_memory_limit() {
    let mut options = set(&[Cuda], json!({ "gpu_mem_limit": 100 }), OptionSource::File).unwrap();
    options.limit_memory(7);
    assert_eq!(
        (values(&options, Cuda), values(&options, Rocm)),
        (vec!["gpu_mem_limit=100".to_owned()], vec!["migraphx_mem_limit=7".to_owned()])
    );
}

#[test]
fn option_names_are_unique() {
    for provider in ExecutionProvider::ALL {
        let options = options_of(provider);
        let mut names: Vec<_> = options.iter().flat_map(|option| option.aliases.iter().chain([&option.name])).collect();
        let all = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all, "{provider}");
        assert!(options.iter().all(|option| !option.about.is_empty()), "{provider}");
    }
}
