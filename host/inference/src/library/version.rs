//! The version of a library, without loading it.

use std::io::Read as _;
use std::path::Path;

use gpux_core::files::open_file;

/// The version that the file's name tells, or the name behind its links, or the Python package
/// around it, or a mark inside it; `None` when nothing does.
pub(super) fn detect(path: &Path) -> Option<String> {
    let named = |path: &Path| in_name(&path.file_name()?.to_string_lossy());
    named(path)
        .or_else(|| named(&path.canonicalize().ok()?))
        .or_else(|| in_package(path))
        .or_else(|| in_name(&path.parent()?.file_name()?.to_string_lossy()))
        .or_else(|| in_file(path))
}

/// The first `1.2.3` in `name`.
pub(super) fn in_name(name: &str) -> Option<String> {
    let mut rest = name;
    loop {
        let start = rest.find(|c: char| c.is_ascii_digit())?;
        rest = &rest[start..];
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let version = rest[..end].trim_end_matches('.');
        if version.split('.').filter(|part| !part.is_empty()).count() >= 3 {
            return Some(version.to_owned());
        }
        rest = &rest[end.max(1)..];
    }
}

/// `…/site-packages/onnxruntime_ep_webgpu-0.4.0.dist-info` beside `…/site-packages/onnxruntime_ep_webgpu/`.
pub(super) fn in_package_of(plugin: &Path) -> Option<String> {
    let package = plugin.parent()?;
    let prefix = format!("{}-", package.file_name()?.to_string_lossy());
    let mut names = std::fs::read_dir(package.parent()?).ok()?.filter_map(|entry| Some(entry.ok()?.file_name()));
    names.find_map(|name| in_name(name.to_str()?.strip_prefix(&prefix)?.strip_suffix(".dist-info")?))
}

/// `…/site-packages/onnxruntime_gpu-1.24.1.dist-info` beside `…/site-packages/onnxruntime/capi/`.
fn in_package(library: &Path) -> Option<String> {
    let site = library.parent()?.parent()?.parent()?;
    let entries = std::fs::read_dir(site).ok()?;
    let names = entries.filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()));
    let mut packages: Vec<_> = names
        .filter(|name| {
            name.starts_with("onnxruntime") && !name.starts_with("onnxruntime_ep_") && name.ends_with(".dist-info")
        })
        .collect();
    packages.sort();
    packages.iter().find_map(|name| in_name(name))
}

/// The symbol version that ONNX Runtime's builds for Linux carry: `VERS_1.32.0`.
fn in_file(path: &Path) -> Option<String> {
    const MARK: &[u8] = b"VERS_1.";
    const PIECE: u64 = 1 << 20;
    let mut file = open_file(path, "it").ok()?;
    let mut kept: Vec<u8> = Vec::new();
    loop {
        let read = file.by_ref().take(PIECE).read_to_end(&mut kept).ok()?;
        if let Some(at) = kept.windows(MARK.len()).position(|window| window == MARK)
            && (at + 32 < kept.len() || read == 0)
        {
            let end = kept.len().min(at + 32);
            return in_name(&String::from_utf8_lossy(&kept[at + b"VERS_".len()..end]));
        }
        if read == 0 {
            return None;
        }
        kept.drain(..kept.len().saturating_sub(64));
    }
}

/// The numbers in a text, for sorting names by version.
pub(super) fn numbers(text: &str) -> Vec<u32> {
    text.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok()).collect()
}

/// Whether a version is below what gpux is built against.
pub(super) fn is_too_old(version: &str) -> bool {
    let mut parts = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    let (major, minor) = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    major == 0 || (major == 1 && minor < super::OLDEST)
}
