//! The packages that hold ONNX Runtime's builds: which versions, which files, which digests.

mod cpu;
mod cuda;
mod other_providers;

use super::package::Bundle;
use crate::library::LibraryBuild;

/// The bundles of `build` for this machine, in the order of trying.
pub(super) fn bundles(build: LibraryBuild) -> Vec<&'static Bundle> {
    let all = cpu::BUNDLES.iter().chain(cuda::BUNDLES).chain(other_providers::BUNDLES);
    let fits = |bundle: &&Bundle| {
        bundle.build == build && bundle.os == std::env::consts::OS && bundle.arch == std::env::consts::ARCH
    };
    all.filter(fits).collect()
}

#[cfg(test)]
mod tests {
    use super::super::package::PackageClient;
    use super::*;

    #[test]
    fn tables_are_consistent() {
        for bundle in cpu::BUNDLES.iter().chain(cuda::BUNDLES).chain(other_providers::BUNDLES) {
            let (folder, archives) = (bundle.folder(), bundle.packages.iter().map(|package| package.archive));
            assert!(archives.clone().all(|archive| archives.clone().filter(|other| *other == archive).count() == 1));
            assert!(bundle.packages.iter().any(|package| package.files.contains(&bundle.library)), "{folder}");
            for package in bundle.packages {
                let hexadecimal = package.sha256.len() == 64 && package.sha256.chars().all(|c| c.is_ascii_hexdigit());
                assert!(
                    hexadecimal && package.folder.ends_with('/') && !package.files.is_empty(),
                    "{}",
                    package.archive
                );
                assert!(package.archive.contains(package.version), "{}", package.archive);
                assert!((bundle.client == PackageClient::Pip) != package.platform.is_empty(), "{}", package.archive);
                assert!(package.files.iter().all(|file| !file.contains(['/', '\\'])), "{}", package.archive);
            }
        }
    }

    #[test]
    fn parses_builds_by_name_and_provider() {
        assert_eq!("OpenVINO".parse(), Ok(LibraryBuild::OpenVino));
        assert_eq!("tensorrt".parse(), Ok(LibraryBuild::Cuda));
        assert_eq!("rocm".parse(), Ok(LibraryBuild::MiGraphX));
        assert!("warp".parse::<LibraryBuild>().unwrap_err().contains("cpu, cuda, migraphx"));
    }
}
