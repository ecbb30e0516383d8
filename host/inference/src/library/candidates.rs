//! The files that may be ONNX Runtime's library.

use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
use std::path::{Path, PathBuf};

use crate::providers::ExecutionProvider;
use gpux_core::{CacheDir, CacheFolder};

/// The libraries directly in `folder`, the newest name first.
pub(super) fn in_folder(folder: &Path) -> Vec<PathBuf> {
    let mut found: Vec<_> = files(folder).into_iter().filter(|path| is_library(path)).collect();
    found.sort_by_key(|path| std::cmp::Reverse(super::version::numbers(&path.to_string_lossy())));
    found
}

/// Libraries of `gpux engine install`, the newest first.
pub(super) fn installed(cache: &CacheDir) -> Vec<PathBuf> {
    let mut folders = engine_folders(cache);
    folders.sort_by_key(|path| std::cmp::Reverse(super::version::numbers(&file_name(path))));
    folders.iter().flat_map(|folder| in_folder(folder)).collect()
}

/// The folders of what is installed, whole.
pub(crate) fn engine_folders(cache: &CacheDir) -> Vec<PathBuf> {
    let mut folders = files(&cache.path(CacheFolder::Engines));
    // A name that begins with a dot is an installation under way.
    folders.retain(|path| !file_name(path).starts_with('.'));
    folders
}

/// Whether the library of `provider` that belongs to a build lies in `folder`.
pub(super) fn has_provider_library(folder: &Path, provider: ExecutionProvider) -> bool {
    let name = match provider {
        ExecutionProvider::TensorRt => "tensorrt",
        ExecutionProvider::Cuda => "cuda",
        ExecutionProvider::Rocm => "migraphx",
        ExecutionProvider::OpenVino => "openvino",
        // Part of the library itself, which does not tell.
        ExecutionProvider::CoreMl
        | ExecutionProvider::DirectMl
        | ExecutionProvider::WebGpu
        | ExecutionProvider::Cpu
        | ExecutionProvider::Plugin(_) => return false,
    };
    folder.join(format!("{DLL_PREFIX}onnxruntime_providers_{name}{DLL_SUFFIX}")).is_file()
}

pub(super) fn file_name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// The library of the `onnxruntime` package in this folder of Python packages.
pub(super) fn in_site(site: &Path) -> Vec<PathBuf> {
    in_folder(&site.join("onnxruntime/capi"))
}

/// Where the library at `library` finds those that it needs: its own folder, then those of NVIDIA's packages beside the
/// package that it is in.
pub(crate) fn folders_of_needed(library: &Path) -> Vec<PathBuf> {
    let own = library.parent().map(Path::to_owned);
    let site = library.ancestors().nth(3).filter(|site| site.ends_with("site-packages"));
    let within = ["nvidia/cu13/lib", "nvidia/cudnn/lib", "nvidia/cu13/bin/x86_64", "nvidia/cudnn/bin", "tensorrt_libs"];
    own.into_iter().chain(site.into_iter().flat_map(|site| within.map(|folder| site.join(folder)))).collect()
}

/// Where the platform keeps libraries.
pub(super) fn system_folders() -> Vec<PathBuf> {
    let variable = if cfg!(target_os = "macos") {
        "DYLD_LIBRARY_PATH"
    } else if cfg!(windows) {
        // `System32` holds an old onnxruntime.dll of Windows itself; only what PATH names counts.
        "PATH"
    } else {
        "LD_LIBRARY_PATH"
    };
    let named = std::env::var_os(variable).unwrap_or_default();
    let usual: &[&str] = if cfg!(target_os = "macos") {
        &["/opt/homebrew/lib", "/usr/local/lib"]
    } else if cfg!(windows) {
        &[]
    } else {
        &["/usr/local/lib", "/usr/lib", "/usr/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu"]
    };
    // An empty entry would mean the working folder, which strangers may fill.
    let named = std::env::split_paths(&named).filter(|path| path.is_absolute()).collect::<Vec<_>>();
    named.into_iter().chain(usual.iter().map(PathBuf::from)).collect()
}

pub(super) fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    paths
}

fn is_library(path: &Path) -> bool {
    let Some(name) = path.file_name().map(|name| name.to_string_lossy()) else { return false };
    let matches = if cfg!(windows) {
        name.eq_ignore_ascii_case("onnxruntime.dll")
    } else if cfg!(target_os = "macos") {
        name.strip_prefix("libonnxruntime.").is_some_and(|rest| rest.ends_with("dylib"))
    } else {
        name.strip_prefix("libonnxruntime.so").is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    matches && path.is_file()
}
