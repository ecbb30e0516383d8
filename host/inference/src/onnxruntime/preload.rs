//! The libraries of CUDA, cuDNN and TensorRT, loaded before the providers that need them: the
//! system then finds them by name, wherever they lie.

use std::path::{Path, PathBuf};
use std::sync::Once;

use crate::hardware::Hardware;
use crate::library::folders_of_needed;
use crate::providers::ExecutionProvider;

/// Each follows its own dependencies.
#[cfg(not(windows))]
const CUDA: &[&str] = &[
    "libcudart.so.13",
    "libcublasLt.so.13",
    "libcublas.so.13",
    "libnvrtc.so.13",
    "libnvJitLink.so.13",
    "libcurand.so.10",
    "libcufft.so.12",
    "libcudnn.so.9",
];
#[cfg(windows)]
const CUDA: &[&str] = &[
    "cudart64_13.dll",
    "cublasLt64_13.dll",
    "cublas64_13.dll",
    "nvrtc64_130_0.dll",
    "nvJitLink_130_0.dll",
    "curand64_10.dll",
    "cufft64_12.dll",
    "cudnn64_9.dll",
];
#[cfg(not(windows))]
const TENSORRT: &[&str] = &["libnvinfer.so.10", "libnvinfer_plugin.so.10", "libnvonnxparser.so.10"];
#[cfg(windows)]
const TENSORRT: &[&str] = &["nvinfer_10.dll", "nvinfer_plugin_10.dll", "nvonnxparser_10.dll"];

static FOR_CUDA: Once = Once::new();
static FOR_TENSORRT: Once = Once::new();

/// Loads the libraries of `provider` that lie beside `library`, or where Python's packages put them.
/// Missing libraries are left to the system's loader; the provider's error names them.
pub(super) fn preload(library: &Path, provider: ExecutionProvider) {
    if matches!(provider, ExecutionProvider::TensorRt | ExecutionProvider::Cuda) {
        FOR_CUDA.call_once(|| load(&find_libraries(&folders_of_needed(library), CUDA)));
    }
    if provider == ExecutionProvider::TensorRt {
        FOR_TENSORRT.call_once(|| load(&find_libraries(&folders_of_needed(library), TENSORRT)));
    }
}

/// Whether TensorRT's library is where [`preload`] or the system would find it.
pub(super) fn has_tensorrt(library: &Path) -> bool {
    let wanted = &TENSORRT[..1];
    let system = Hardware::library_folders();
    !find_libraries(&folders_of_needed(library), wanted).is_empty()
        || !find_libraries(&system, wanted).is_empty()
        || is_in_cache(wanted[0])
}

/// Whether the dynamic linker's cache, which names the libraries of all its folders, has this one.
fn is_in_cache(name: &str) -> bool {
    let cache = std::fs::read("/etc/ld.so.cache").unwrap_or_default();
    cache.windows(name.len()).any(|window| window == name.as_bytes())
}

fn load(files: &[PathBuf]) {
    for file in files {
        let _ = ort::util::preload_dylib(file);
    }
}

fn find_libraries(folders: &[PathBuf], names: &[&str]) -> Vec<PathBuf> {
    let place = |name: &&str| folders.iter().map(|folder| folder.join(name)).find(|file| file.is_file());
    names.iter().filter_map(place).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn finds_libraries_beside_the_engine_and_in_site_packages() {
        let root = tempfile::tempdir().unwrap();
        let place = |path: &str| {
            let file = root.path().join(path);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, "").unwrap();
            file
        };
        let library = place("site-packages/onnxruntime/capi/libonnxruntime.so");
        let (runtime, cudnn) = (
            place(&format!("site-packages/nvidia/cu13/lib/{}", CUDA[0])),
            place(&format!("site-packages/nvidia/cudnn/lib/{}", CUDA[7])),
        );
        assert_eq!(find_libraries(&folders_of_needed(&library), CUDA), [runtime.clone(), cudnn]);
        let with_external_weights = place(&format!("engines/cuda/{}", CUDA[1]));
        assert_eq!(
            find_libraries(&folders_of_needed(&with_external_weights), CUDA),
            std::slice::from_ref(&with_external_weights)
        );
        let nearer = place(&format!("site-packages/onnxruntime/capi/{}", CUDA[0]));
        assert_eq!(find_libraries(&folders_of_needed(&library), CUDA)[0], nearer);
    }
}
