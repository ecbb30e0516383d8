//! What ONNX Runtime says, without what only its authors can use: source files, C++ signatures,
//! the name of the machine.

/// A status, for people; with what to do where that is known.
pub(super) fn plain(status: &str) -> String {
    let told = cuda(status)
        .or_else(|| openvino(status))
        .or_else(|| webgpu(status))
        .unwrap_or_else(|| behind_the_code(status))
        .trim();
    let told = if told.is_empty() { status.trim() } else { told };
    // OpenVINO says what fails within what fails, a line each.
    let told = told.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
    match help(&told) {
        Some(help) => format!("{told}; {help}"),
        None => told,
    }
}

/// `CUDA failure 100: no CUDA-capable device is detected` out of what is around it.
fn cuda(status: &str) -> Option<&str> {
    let marks = ["CUDA failure ", "CUDNN failure ", "CUBLAS failure "];
    let start = marks.iter().filter_map(|mark| status.find(mark)).min()?;
    let told = &status[start..];
    Some(told.split(" ; ").next().unwrap_or(told))
}

/// What OpenVINO's provider says of itself, behind the places it says it from.
fn openvino(status: &str) -> Option<&str> {
    status.rsplit_once("[OpenVINO-EP] ").map(|(_, told)| told)
}

/// What WebGPU's provider says behind the condition that did not hold.
fn webgpu(status: &str) -> Option<&str> {
    let (place, told) = status.split_once(" was false. ")?;
    ["/webgpu/", r"\webgpu\"].iter().any(|folder| place.contains(folder)).then_some(told)
}

/// The text behind the last `[ONNXRuntimeError] : 1 : FAIL : `.
fn behind_the_code(status: &str) -> &str {
    const MARK: &str = "[ONNXRuntimeError] : ";
    let Some(start) = status.rfind(MARK) else { return status };
    let told = &status[start + MARK.len()..];
    // The code and its name.
    told.splitn(3, " : ").nth(2).unwrap_or(told)
}

/// What to do, where the cause shows in the words.
fn help(told: &str) -> Option<&'static str> {
    let says = |words: &str| told.contains(words);
    let missing = says("cannot open shared object file") || says("LoadLibrary failed") || says("Error loading");
    if says("driver version is insufficient") || says("CUDA failure 35:") {
        return Some("update the NVIDIA driver: it must be version 580 or newer");
    }
    if says("no CUDA-capable device") || says("CUDA failure 100:") {
        return Some("the driver offers no GPU to this process: in a container, pass it in");
    }
    if missing && (says("libnvinfer") || says("libnvonnxparser") || says("nvinfer_10")) {
        return Some("install TensorRT 10");
    }
    if missing && ["libcu", "libnvrtc", "cudart", "cublas", "cudnn"].iter().any(|library| says(library)) {
        return Some("`gpux engine install cuda` brings it, but for `libcuda.so.1`, which comes with NVIDIA's driver");
    }
    if says("Failed to get a WebGPU adapter") {
        return Some("install the driver of the GPU for Vulkan (Linux) or Direct3D 12 (Windows)");
    }
    if missing && (says("libmigraphx") || says("libamdhip64")) {
        return Some("install ROCm 7.2 with MIGraphX");
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_files_and_signatures_are_left_out() {
        let call = "/onnxruntime_src/onnxruntime/core/providers/cuda/cuda_call.cc:154 std::conditional_t<THRW, void> \
                    onnxruntime::CudaCall(int) [with ERRTYPE = cudaError] CUDA failure 35: CUDA driver version is \
                    insufficient for CUDA runtime version ; GPU=0 ; hostname=host ; file=/x.cc ; line=28 ; expr=f(); ";
        let told = plain(call);
        assert!(told.starts_with("CUDA failure 35: CUDA driver version is insufficient for CUDA runtime version; "));
        assert!(told.ends_with("580 or newer") && !told.contains("hostname"), "{told}");
        let library = "/src/provider_bridge_ort.cc:2043 onnxruntime::Provider& onnxruntime::ProviderLibrary::Get() \
                       [ONNXRuntimeError] : 1 : FAIL : Failed to load library /e/libonnxruntime_providers_cuda.so with \
                       error: libcublas.so.13: cannot open shared object file: No such file or directory";
        let told = plain(library);
        assert!(told.starts_with("Failed to load library /e/libonnxruntime_providers_cuda.so with error: libcublas"));
        assert!(told.contains("`gpux engine install cuda` brings it"), "{told}");
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
            assert_eq!(plain(status), expected);
        }
    }
}
