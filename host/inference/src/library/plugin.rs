//! Libraries of providers that can be registered with any build of ONNX Runtime.

use std::path::{Path, PathBuf};

use super::build::LibraryBuild;
use super::{LibraryOrigin, candidates, version};
use crate::providers::ProviderLibrary;
use gpux_core::CacheDir;

/// A plug-in that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginFile {
    /// its library and provider
    pub library: ProviderLibrary,
    /// where it was found
    pub origin: LibraryOrigin,
    /// its version, if names tell it
    pub version: Option<String>,
}

/// What `gpux engine install` brought, the newest first.
pub(super) fn installed(cache: &CacheDir) -> Vec<PluginFile> {
    let mut folders = candidates::engine_folders(cache);
    folders.sort_by_key(|folder| std::cmp::Reverse(version::numbers(&candidates::file_name(folder))));
    let plugin = |folder: &PathBuf| match LibraryBuild::of_folder(folder)? {
        (build, true) => in_folder(build, folder, LibraryOrigin::Installed),
        (_, false) => None,
    };
    folders.iter().filter_map(plugin).collect()
}

/// The packages `onnxruntime_ep_NAME` in a folder of Python packages.
pub(super) fn in_site(site: &Path) -> Vec<PluginFile> {
    let plugin =
        |build: LibraryBuild| in_folder(build, &site.join(format!("onnxruntime_ep_{build}")), LibraryOrigin::Python);
    LibraryBuild::ALL.into_iter().filter_map(plugin).collect()
}

fn in_folder(build: LibraryBuild, folder: &Path, origin: LibraryOrigin) -> Option<PluginFile> {
    let (provider, path) = (build.plugin_provider()?, folder.join(build.plugin_file()));
    path.is_file().then(|| PluginFile {
        version: version::in_package_of(&path).or_else(|| version::in_name(&candidates::file_name(folder))),
        library: ProviderLibrary { provider, path, is_required: false },
        origin,
    })
}
