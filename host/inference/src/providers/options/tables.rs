//! The options that each provider has in ONNX Runtime 1.24 to 1.31, under its own names.

use super::{OptionKind, ProviderOption};

const fn option(name: &'static str, kind: OptionKind, default: &'static str, about: &'static str) -> ProviderOption {
    ProviderOption { name, aliases: &[], kind, default, about }
}

const fn switch(name: &'static str, default: &'static str, about: &'static str) -> ProviderOption {
    option(name, OptionKind::Switch, default, about)
}

const fn whole(
    name: &'static str,
    least: i64,
    most: i64,
    default: &'static str,
    about: &'static str,
) -> ProviderOption {
    option(name, OptionKind::Whole { least, most }, default, about)
}

const fn file(name: &'static str, about: &'static str) -> ProviderOption {
    option(name, OptionKind::File, "", about)
}

const fn refused(name: &'static str, reason: &'static str) -> ProviderOption {
    option(name, OptionKind::Refused(reason), "false", reason)
}

const fn with_aliases(mut option: ProviderOption, aliases: &'static [&'static str]) -> ProviderOption {
    option.aliases = aliases;
    option
}

const DEVICE: ProviderOption = whole("device_id", 0, 127, "0", "which of the machine's devices, counted from 0");
const ARENA: &[&str] = &["kNextPowerOfTwo", "kSameAsRequested"];
const ADDRESS: &str = "it is an address in the process";
const GRAPH: &str = "a captured graph needs inputs and outputs that stay in one place on the GPU";
const WRITES: &str = "it writes files beside the program";

pub(super) const CUDA: &[ProviderOption] = &[
    DEVICE,
    option(
        "gpu_mem_limit",
        OptionKind::Size,
        "none",
        "the most that a session's arena takes of the GPU's memory; as runtime.gpu.memory",
    ),
    option("arena_extend_strategy", OptionKind::Choice(ARENA), "kNextPowerOfTwo", "how the arena grows"),
    option(
        "cudnn_conv_algo_search",
        OptionKind::Choice(&["EXHAUSTIVE", "HEURISTIC", "DEFAULT"]),
        "EXHAUSTIVE",
        "how cuDNN's algorithm for a convolution is found; EXHAUSTIVE makes the first run slow",
    ),
    switch("cudnn_conv_use_max_workspace", "true", "let cuDNN's search use as much memory as it likes"),
    switch("cudnn_conv1d_pad_to_nc1d", "false", "pad 1-D convolutions to [N, C, 1, D], which is faster on some GPUs"),
    switch("do_copy_in_default_stream", "true", "copy in the stream that computes; false may overlap both, unsafely"),
    switch("use_tf32", "true", "TensorFloat-32 in float32 products: faster, 10 bits of mantissa"),
    switch("prefer_nhwc", "false", "channels last where there is a kernel for it"),
    switch("fuse_conv_bias", "false", "one kernel for a convolution and its bias"),
    switch("enable_skip_layer_norm_strict_mode", "false", "sums of SkipLayerNormalization in float32"),
    switch("use_ep_level_unified_stream", "false", "one stream for all of a session's threads"),
    whole("sdpa_kernel", 0, 511, "0", "bits of the attention kernels that may be used; 0 leaves the choice"),
    switch("tunable_op_enable", "false", "use tuned kernels"),
    switch("tunable_op_tuning_enable", "false", "tune kernels while running"),
    whole("tunable_op_max_tuning_duration_ms", 0, 600_000, "0", "milliseconds for tuning one kernel; 0 is no bound"),
    refused("enable_cuda_graph", GRAPH),
    refused("user_compute_stream", ADDRESS),
    refused("gpu_external_alloc", ADDRESS),
    refused("gpu_external_free", ADDRESS),
    refused("gpu_external_empty_cache", ADDRESS),
];

/// TensorRT's caches: the switch and the folder of each.
pub(super) const TENSORRT_CACHES: &[(&str, &str)] =
    &[("trt_engine_cache_enable", "trt_engine_cache_path"), ("trt_timing_cache_enable", "trt_timing_cache_path")];

pub(super) const TENSORRT: &[ProviderOption] = &[
    DEVICE,
    option("trt_max_workspace_size", OptionKind::Size, "all", "memory that TensorRT may use while it builds and runs"),
    switch("trt_fp16_enable", "false", "compute in float16 where it is faster"),
    switch("trt_bf16_enable", "false", "compute in bfloat16 where it is faster"),
    switch("trt_int8_enable", "false", "compute in int8; the model must hold its scales (QDQ)"),
    file("trt_int8_calibration_table_name", "the table of scales for a model that holds none"),
    switch("trt_int8_use_native_calibration_table", "false", "the table is one of TensorRT's own"),
    switch("trt_engine_cache_enable", "true", "keep built engines: building one takes minutes"),
    option("trt_engine_cache_path", OptionKind::Folder, "true", "where built engines are kept"),
    option("trt_engine_cache_prefix", OptionKind::Text("a few letters"), "", "the beginning of a kept engine's name"),
    switch("trt_timing_cache_enable", "true", "keep what was measured while building"),
    option("trt_timing_cache_path", OptionKind::Folder, "true", "where measurements are kept"),
    switch("trt_force_timing_cache", "false", "use measurements of a GPU of the same model"),
    option(
        "trt_profile_min_shapes",
        OptionKind::Shapes,
        "",
        "the smallest shapes of the inputs; goes with opt and max",
    ),
    option("trt_profile_opt_shapes", OptionKind::Shapes, "", "the shapes to be fastest for"),
    option("trt_profile_max_shapes", OptionKind::Shapes, "", "the largest shapes of the inputs"),
    whole("trt_builder_optimization_level", 0, 5, "3", "how long the builder searches"),
    switch("trt_build_heuristics_enable", "false", "build faster by guessing"),
    switch("trt_sparsity_enable", "false", "use that half of the weights are zero, if they are"),
    whole("trt_max_partition_iterations", 1, 100_000, "1000", "tries to cut the graph into parts"),
    whole("trt_min_subgraph_size", 1, 100_000, "1", "operators of the smallest part that TensorRT gets"),
    option(
        "trt_op_types_to_exclude",
        OptionKind::Text("names of operators, with commas"),
        "",
        "operators that TensorRT does not get",
    ),
    whole("trt_auxiliary_streams", -1, 32, "-1", "further streams; -1 leaves the choice, 0 takes least memory"),
    option(
        "trt_tactic_sources",
        OptionKind::Text("names with + or -, with commas"),
        "",
        "which libraries tactics may come from",
    ),
    option("trt_preview_features", OptionKind::Text("names, with commas"), "", "features that TensorRT calls previews"),
    switch("trt_force_sequential_engine_build", "false", "build engines for several GPUs one after the other"),
    switch("trt_context_memory_sharing_enable", "false", "the parts of a model share their memory"),
    switch("trt_layer_norm_fp32_fallback", "false", "layer normalization in float32 under float16"),
    switch("trt_dla_enable", "false", "use a deep learning accelerator"),
    whole("trt_dla_core", 0, 15, "0", "which of them"),
    switch("trt_engine_hw_compatible", "false", "engines that run on newer GPUs too"),
    switch("trt_weight_stripped_engine_enable", "false", "kept engines hold no weights"),
    file("trt_onnx_model_folder_path", "the folder of the model, for engines without weights"),
    file("trt_ep_context_file_path", "where a model with its engine inside is written"),
    file("trt_extra_plugin_lib_paths", "libraries of further TensorRT plug-ins"),
    file("trt_engine_decryption_lib_path", "a library that reads encrypted engines"),
    refused("trt_cuda_graph_enable", GRAPH),
    refused("trt_dump_subgraphs", WRITES),
    refused("trt_dump_ep_context_model", WRITES),
    refused("user_compute_stream", ADDRESS),
];

pub(super) const MIGRAPHX: &[ProviderOption] = &[
    DEVICE,
    with_aliases(switch("migraphx_fp16_enable", "false", "compute in float16"), &["fp16"]),
    with_aliases(switch("migraphx_fp8_enable", "false", "compute in float8"), &["fp8"]),
    with_aliases(switch("migraphx_int8_enable", "false", "compute in int8"), &["int8"]),
    file("migraphx_int8_calibration_table_name", "the table of scales for int8"),
    switch("migraphx_int8_use_native_calibration_table", "false", "the table is one of MIGraphX's own"),
    with_aliases(switch("migraphx_exhaustive_tune", "false", "search longer for fast kernels"), &["exhaustive_tune"]),
    option(
        "migraphx_mem_limit",
        OptionKind::Size,
        "none",
        "the most that a session's arena takes of the GPU's memory; as runtime.gpu.memory",
    ),
    option("migraphx_arena_extend_strategy", OptionKind::Choice(ARENA), "kNextPowerOfTwo", "how the arena grows"),
];

pub(super) const COREML: &[ProviderOption] = &[
    with_aliases(
        option(
            "MLComputeUnits",
            OptionKind::Choice(&["ALL", "CPUAndNeuralEngine", "CPUAndGPU", "CPUOnly"]),
            "ALL",
            "what of the chip may compute",
        ),
        &["compute_units"],
    ),
    with_aliases(
        option(
            "ModelFormat",
            OptionKind::Choice(&["NeuralNetwork", "MLProgram"]),
            "NeuralNetwork",
            "what the model becomes; MLProgram has more operators, from macOS 12",
        ),
        &["model_format"],
    ),
    with_aliases(
        switch("RequireStaticInputShapes", "false", "take only parts whose shapes are fixed"),
        &["static_shapes"],
    ),
    with_aliases(switch("EnableOnSubgraphs", "false", "also inside loops and branches"), &["subgraphs"]),
    with_aliases(
        option(
            "SpecializationStrategy",
            OptionKind::Choice(&["Default", "FastPrediction"]),
            "Default",
            "load faster, or run faster",
        ),
        &["specialization"],
    ),
    with_aliases(
        switch("AllowLowPrecisionAccumulationOnGPU", "false", "sums in float16 on the GPU"),
        &["low_precision"],
    ),
    with_aliases(
        option("ModelCacheDirectory", OptionKind::Folder, "false", "where compiled models are kept"),
        &["cache_dir"],
    ),
    option(
        "coreml_flags",
        OptionKind::Flags,
        "0",
        "the bits of older versions: 1 CPU only, 2 subgraphs, 4 only with a Neural Engine, 8 static shapes, 16 MLProgram, 32 CPU and GPU",
    ),
];

pub(super) const DIRECTML: &[ProviderOption] = &[
    DEVICE,
    option(
        "performance_preference",
        OptionKind::Choice(&["default", "high_performance", "minimum_power"]),
        "default",
        "which GPU, where device_id names none",
    ),
    option(
        "device_filter",
        OptionKind::Choice(&["gpu", "npu", "any"]),
        "gpu",
        "what kind of device, where device_id names none",
    ),
];

const CACHES: &[&str] = &["disabled", "lazyRelease", "simple", "bucket"];

pub(super) const WEBGPU: &[ProviderOption] = &[
    option(
        "powerPreference",
        OptionKind::Choice(&["high-performance", "low-power"]),
        "high-performance",
        "which of several GPUs",
    ),
    option(
        "dawnBackendType",
        OptionKind::Choice(&["Vulkan", "D3D12"]),
        "D3D12 under Windows",
        "what the GPU is reached through; macOS has Metal alone",
    ),
    option("preferredLayout", OptionKind::Choice(&["NHWC", "NCHW"]), "NHWC", "where the channels of pictures lie"),
    option(
        "validationMode",
        OptionKind::Choice(&["disabled", "wgpuOnly", "basic", "full"]),
        "basic",
        "what is checked before the GPU gets it",
    ),
    option("storageBufferCacheMode", OptionKind::Choice(CACHES), "bucket", "how memory for tensors is kept for reuse"),
    option("uniformBufferCacheMode", OptionKind::Choice(CACHES), "simple", "how memory for parameters is kept"),
    option("queryResolveBufferCacheMode", OptionKind::Choice(CACHES), "disabled", "how memory for timings is kept"),
    option("defaultBufferCacheMode", OptionKind::Choice(CACHES), "disabled", "how all other memory is kept"),
    whole(
        "maxStorageBufferBindingSize",
        0,
        1 << 40,
        "0",
        "bytes of a tensor that a kernel may be given at a time; 0 is as many as the GPU has",
    ),
    switch("enableInt64", "false", "compute int64 on the GPU too, within the range of int32"),
    option("forceCpuNodeNames", OptionKind::Text("names of nodes, a line each"), "", "nodes that stay on the CPU"),
    refused("enableGraphCapture", GRAPH),
    refused("enablePIXCapture", WRITES),
    refused("deviceId", "it names a device that a program made itself"),
    refused("webgpuInstance", ADDRESS),
    refused("webgpuDevice", ADDRESS),
    refused("dawnProcTable", ADDRESS),
];

pub(super) const OPENVINO: &[ProviderOption] = &[
    with_aliases(
        option(
            "device_type",
            OptionKind::Text("a device, such as CPU, GPU, GPU.1, NPU, AUTO:GPU,CPU"),
            "CPU",
            "what computes",
        ),
        &["device"],
    ),
    option(
        "precision",
        OptionKind::Choice(&["FP32", "FP16", "ACCURACY"]),
        "FP32 on a CPU, FP16 on a GPU",
        "what is computed in",
    ),
    with_aliases(whole("num_of_threads", 1, 256, "the cores", "threads of the CPU"), &["num_threads"]),
    whole("num_streams", 1, 256, "1", "runs that share the device at a time"),
    option("cache_dir", OptionKind::Folder, "false", "where compiled models are kept"),
    switch("disable_dynamic_shapes", "false", "compile again for each new shape"),
    switch("enable_qdq_optimizer", "false", "optimize quantized models for an NPU"),
    switch("enable_opencl_throttling", "false", "spare the CPU while the GPU computes"),
    option(
        "model_priority",
        OptionKind::Choice(&["LOW", "MEDIUM", "HIGH", "DEFAULT"]),
        "DEFAULT",
        "among the models of the device",
    ),
    option(
        "reshape_input",
        OptionKind::Text("bounds of dimensions, such as image[1,3,1..640,640]"),
        "",
        "bounds of open dimensions, for an NPU",
    ),
    option("layout", OptionKind::Text("layouts, such as image[NCHW]"), "", "layouts of inputs and outputs"),
    file("load_config", "a JSON file of OpenVINO's own properties"),
];

/// The names of the bits of `coreml_flags` since ONNX Runtime 1.20.
pub(super) fn coreml_flags(flags: i64) -> Vec<(&'static str, &'static str)> {
    const BITS: [(i64, &str, &str); 6] = [
        (1, "MLComputeUnits", "CPUOnly"),
        (2, "EnableOnSubgraphs", "1"),
        (4, "MLComputeUnits", "CPUAndNeuralEngine"),
        (8, "RequireStaticInputShapes", "1"),
        (16, "ModelFormat", "MLProgram"),
        (32, "MLComputeUnits", "CPUAndGPU"),
    ];
    BITS.into_iter().filter(|(bit, ..)| flags & bit != 0).map(|(_, name, value)| (name, value)).collect()
}
