//! How packages are described that hold builds of ONNX Runtime.

use crate::library::LibraryBuild;

/// A package client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PackageClient {
    Pip,
    Npm,
}

/// A build for one platform, from packages that one client fetches.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bundle {
    pub(super) build: LibraryBuild,
    /// `std::env::consts::OS` and `ARCH`
    pub(super) os: &'static str,
    pub(super) arch: &'static str,
    pub(super) client: PackageClient,
    /// the version of ONNX Runtime
    pub(super) version: &'static str,
    /// the file that is loaded
    pub(super) library: &'static str,
    pub(super) packages: &'static [Package],
}

impl Bundle {
    /// The folder that it is kept in.
    pub(super) fn folder(&self) -> String {
        format!("onnxruntime-{}-{}", self.version, self.build)
    }
}

/// One package of a bundle.
#[derive(Clone, Copy, Debug)]
pub(super) struct Package {
    pub(super) name: &'static str,
    pub(super) version: &'static str,
    /// pip's name for the platform; empty for npm
    pub(super) platform: &'static str,
    /// the name of its archive
    pub(super) archive: &'static str,
    /// SHA-256 of the archive, in hexadecimal
    pub(super) sha256: &'static str,
    /// size of the archive, in bytes, for the progress shown
    pub(super) size: u64,
    /// the folder in the archive
    pub(super) folder: &'static str,
    /// the files to extract from that folder
    pub(super) files: &'static [&'static str],
}
