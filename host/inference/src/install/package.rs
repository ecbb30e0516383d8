//! How packages are described that hold builds of ONNX Runtime and plug-ins for it.

use std::sync::LazyLock;

use serde::Deserialize;

use crate::library::LibraryBuild;

/// The pinned versions, files and digests.
static PINNED: LazyLock<Vec<Bundle>> =
    LazyLock::new(|| serde_json::from_str(include_str!("pinned.json")).unwrap_or_default());

/// A package client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum PackageClient {
    Pip,
    Npm,
}

/// A library for one platform, from packages that one client fetches.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Bundle {
    pub(super) build: LibraryBuild,
    /// whether it is a plug-in of a provider, rather than an ONNX Runtime with the provider built in
    #[serde(default)]
    pub(super) plugin: bool,
    /// `std::env::consts::OS` and `ARCH`
    pub(super) os: String,
    pub(super) arch: String,
    pub(super) client: PackageClient,
    /// the version of ONNX Runtime, or of the plug-in
    pub(super) version: String,
    /// the file that is loaded
    pub(super) library: String,
    pub(super) packages: Vec<Package>,
}

impl Bundle {
    /// The bundles for this machine of a build, or of its plug-in, in the order of trying.
    pub(super) fn for_this_machine(build: LibraryBuild, plugin: bool) -> Vec<&'static Self> {
        let fits = |bundle: &&Self| {
            (bundle.build, bundle.plugin) == (build, plugin)
                && bundle.os == std::env::consts::OS
                && bundle.arch == std::env::consts::ARCH
        };
        PINNED.iter().filter(fits).collect()
    }

    /// The folder that it is kept in.
    pub(super) fn folder(&self) -> String {
        self.build.folder(self.plugin, &self.version)
    }
}

/// One package of a bundle.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Package {
    pub(super) name: String,
    pub(super) version: String,
    /// pip's name for the platform; empty for npm
    pub(super) platform: String,
    /// the name of its archive
    pub(super) archive: String,
    /// SHA-256 of the archive, in hexadecimal
    pub(super) sha256: String,
    /// size of the archive, in bytes, for the progress shown
    pub(super) size: u64,
    /// the folder in the archive
    pub(super) folder: String,
    /// the files to extract from that folder
    pub(super) files: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pinned_packages_are_consistent() {
        assert!(PINNED.len() > 20, "the table is read");
        for bundle in PINNED.iter() {
            let (folder, archives) = (bundle.folder(), bundle.packages.iter().map(|package| &package.archive));
            assert!(archives.clone().all(|archive| archives.clone().filter(|other| *other == archive).count() == 1));
            assert!(bundle.packages.iter().any(|package| package.files.contains(&bundle.library)), "{folder}");
            let is_here = bundle.plugin && bundle.os == std::env::consts::OS;
            assert!(!is_here || bundle.library == bundle.build.plugin_file(), "{folder}");
            for package in &bundle.packages {
                let hexadecimal = package.sha256.len() == 64 && package.sha256.chars().all(|c| c.is_ascii_hexdigit());
                assert!(
                    hexadecimal && package.folder.ends_with('/') && !package.files.is_empty(),
                    "{}",
                    package.archive
                );
                assert!(package.archive.contains(&package.version), "{}", package.archive);
                assert!((bundle.client == PackageClient::Pip) != package.platform.is_empty(), "{}", package.archive);
                assert!(package.files.iter().all(|file| !file.contains(['/', '\\'])), "{}", package.archive);
            }
        }
    }
}
