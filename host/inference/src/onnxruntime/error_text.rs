//! Shortens ONNX Runtime's error messages: removes source files, C++ signatures and the machine's
//! name.

/// A status, for people; with what to do where that is known.
pub(super) fn simplify(status: &str) -> String {
    let message = cuda(status)
        .or_else(|| openvino(status))
        .or_else(|| webgpu(status))
        .unwrap_or_else(|| after_error_code(status))
        .trim();
    let message = if message.is_empty() { status.trim() } else { message };
    // OpenVINO says what fails within what fails, a line each.
    let message = message.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
    match help(&message) {
        Some(help) => format!("{message}; {help}"),
        None => message,
    }
}

/// Extracts `CUDA failure 100: no CUDA-capable device is detected` from a longer message.
fn cuda(status: &str) -> Option<&str> {
    let marks = ["CUDA failure ", "CUDNN failure ", "CUBLAS failure "];
    let start = marks.iter().filter_map(|mark| status.find(mark)).min()?;
    let message = &status[start..];
    Some(message.split(" ; ").next().unwrap_or(message))
}

/// The message of OpenVINO's provider, without source locations.
fn openvino(status: &str) -> Option<&str> {
    status.rsplit_once("[OpenVINO-EP] ").map(|(_, message)| message)
}

/// The message of WebGPU's provider, without the failed condition.
fn webgpu(status: &str) -> Option<&str> {
    let (place, message) = status.split_once(" was false. ")?;
    ["/webgpu/", r"\webgpu\"].iter().any(|folder| place.contains(folder)).then_some(message)
}

/// The text behind the last `[ONNXRuntimeError] : 1 : FAIL : `.
fn after_error_code(status: &str) -> &str {
    const MARK: &str = "[ONNXRuntimeError] : ";
    let Some(start) = status.rfind(MARK) else { return status };
    let message = &status[start + MARK.len()..];
    // The code and its name.
    message.splitn(3, " : ").nth(2).unwrap_or(message)
}

/// What the machine or the provider lacks, and the remedy; `None` for other messages.
pub(super) fn lacking(status: &str) -> Option<String> {
    let behind = |mark: &str, end: char| status.split_once(mark)?.1.split_once(end).map(|(found, _)| found.trim());
    if let Some(locale) = behind("Failed to construct locale with name:", ':') {
        return Some(format!(
            "its operator StringNormalizer needs the locale `{locale}`, which this machine does not have; on Debian and \
             Ubuntu, `apt-get install locales && localedef -i en_US -f UTF-8 en_US.UTF-8` brings the usual one"
        ));
    }
    let operator = behind("Could not find an implementation for ", '(')?;
    Some(format!(
        "it has no kernel of `{operator}` for the element types of the model, as for bfloat16 on the CPU; export the \
         model in float32, or choose a provider that has one"
    ))
}

/// A remedy for known messages.
fn help(message: &str) -> Option<&'static str> {
    let contains = |words: &str| message.contains(words);
    let missing =
        contains("cannot open shared object file") || contains("LoadLibrary failed") || contains("Error loading");
    if contains("driver version is insufficient") || contains("CUDA failure 35:") {
        return Some("update the NVIDIA driver: it must be version 580 or newer");
    }
    if contains("no CUDA-capable device") || contains("CUDA failure 100:") {
        return Some("the driver offers no GPU to this process: in a container, pass it in");
    }
    if missing && (contains("libnvinfer") || contains("libnvonnxparser") || contains("nvinfer_10")) {
        return Some("install TensorRT 10");
    }
    if missing && ["libcu", "libnvrtc", "cudart", "cublas", "cudnn"].iter().any(|library| contains(library)) {
        return Some("`gpux engine install cuda` brings it, but for `libcuda.so.1`, which comes with NVIDIA's driver");
    }
    if contains("Failed to get a WebGPU adapter") {
        return Some("install the driver of the GPU for Vulkan (Linux) or Direct3D 12 (Windows)");
    }
    if missing && (contains("libmigraphx") || contains("libamdhip64")) {
        return Some("install ROCm 7.2 with MIGraphX");
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_what_the_machine_lacks() {
        let locale = "Exception during initialization: /x/string_normalizer.cc:235 Locale(const std::string&)::<lambda()> \
                      Failed to construct locale with name:en_US.UTF-8:locale::facet name not valid:Please, install";
        let told = lacking(locale).unwrap();
        assert!(told.contains("the locale `en_US.UTF-8`, which") && told.contains("localedef"), "{told}");
        let kernel = "[ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : Could not find an implementation for MatMul(13) node \
                      with name ''";
        assert!(lacking(kernel).unwrap().starts_with("it has no kernel of `MatMul` for the element types"));
        assert_eq!(lacking("Node (n) has no input"), None);
    }

    #[test]
    fn removes_source_files_and_signatures() {
        let call = "/onnxruntime_src/onnxruntime/core/providers/cuda/cuda_call.cc:154 std::conditional_t<THRW, void> \
                    onnxruntime::CudaCall(int) [with ERRTYPE = cudaError] CUDA failure 35: CUDA driver version is \
                    insufficient for CUDA runtime version ; GPU=0 ; hostname=host ; file=/x.cc ; line=28 ; expr=f(); ";
        let message = simplify(call);
        assert!(message.starts_with("CUDA failure 35: CUDA driver version is insufficient for CUDA runtime version; "));
        assert!(message.ends_with("580 or newer") && !message.contains("hostname"), "{message}");
        let library = "/src/provider_bridge_ort.cc:2043 onnxruntime::Provider& onnxruntime::ProviderLibrary::Get() \
                       [ONNXRuntimeError] : 1 : FAIL : Failed to load library /e/libonnxruntime_providers_cuda.so with \
                       error: libcublas.so.13: cannot open shared object file: No such file or directory";
        let message = simplify(library);
        assert!(
            message.starts_with("Failed to load library /e/libonnxruntime_providers_cuda.so with error: libcublas")
        );
        assert!(message.contains("`gpux engine install cuda` brings it"), "{message}");
        for (status, expected) in [
            ("plain words", "plain words"),
            (
                "/x/ov_interface.cc:28 auto f(G&&) [with G = H] [OpenVINO-EP] Exception while loading: no",
                "Exception while loading: no",
            ),
            ("[ONNXRuntimeError] : 10 : INVALID_GRAPH : Node (n) : has no input", "Node (n) : has no input"),
            (
                "[OpenVINO-EP] Exception from src/a.cpp:15:\n\n  Check 'x' failed at b.cpp:2:\r\nno such op\n",
                "Exception from src/a.cpp:15: Check 'x' failed at b.cpp:2: no such op",
            ),
            (
                "/x/core/providers/webgpu/webgpu_context.cc:65 f(T)::<lambda(S)> status == S::Success was false. \
                 Out of memory",
                "Out of memory",
            ),
            (
                r"D:\a\onnxruntime\core\providers\webgpu\webgpu_context.cc:65 status == S::Success was false. Lost",
                "Lost",
            ),
            ("[ONNXRuntimeError] : ", "[ONNXRuntimeError] :"),
            ("", ""),
        ] {
            assert_eq!(simplify(status), expected);
        }
    }
}
