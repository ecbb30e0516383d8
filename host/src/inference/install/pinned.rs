//! The packages that hold ONNX Runtime's library: which version, which file, which digest.

/// The package of Python's index.
pub(super) const PIP: Source = Source { package: "onnxruntime", version: "1.31.1" };
/// The package of npm's registry; its newest version trails Python's.
pub(super) const NPM: Source = Source { package: "onnxruntime-node", version: "1.30.0" };

/// A package in one version.
pub(super) struct Source {
    pub(super) package: &'static str,
    pub(super) version: &'static str,
}

/// The library for one platform.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pinned {
    /// `std::env::consts::OS` and `ARCH`
    pub(super) os: &'static str,
    pub(super) arch: &'static str,
    /// pip's name for the platform
    pub(super) pip_platform: &'static str,
    /// size of the wheel, in bytes, for the progress shown
    pub(super) wheel_size: u64,
    /// the library inside the wheel, and its digest
    pub(super) in_wheel: Entry,
    /// the library inside npm's package, and its digest
    pub(super) in_npm: Entry,
}

/// One file of a package.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    /// its path in the archive
    pub(super) path: &'static str,
    /// the name under which it is kept
    pub(super) name: &'static str,
    /// SHA-256, in hexadecimal
    pub(super) sha256: &'static str,
}

/// Size of npm's package, in bytes: it holds every platform.
pub(super) const NPM_SIZE: u64 = 113_507_888;

/// Every platform that both packages serve.
pub(super) const PINNED: [Pinned; 5] = [
    Pinned {
        os: "linux",
        arch: "x86_64",
        pip_platform: "manylinux_2_28_x86_64",
        wheel_size: 23_760_988,
        in_wheel: Entry {
            path: "onnxruntime/capi/libonnxruntime.so.1.31.1",
            name: "libonnxruntime.so.1.31.1",
            sha256: "fc44112fbe06d7d689c57e11d3862031f64711007e4ee020f8eed5185fd2c1d3",
        },
        in_npm: Entry {
            path: "package/bin/napi-v6/linux/x64/libonnxruntime.so.1",
            name: "libonnxruntime.so.1.30.0",
            sha256: "ffb75a925ba05e47b235bb66e3e3911714a80b328a9c9425539feb204aa32a23",
        },
    },
    Pinned {
        os: "linux",
        arch: "aarch64",
        pip_platform: "manylinux_2_28_aarch64",
        wheel_size: 21_420_803,
        in_wheel: Entry {
            path: "onnxruntime/capi/libonnxruntime.so.1.31.1",
            name: "libonnxruntime.so.1.31.1",
            sha256: "8aa3b76b28c778a2b1dd660d34161adb1d508c9ccd04ff9dc80e26eca5df8467",
        },
        in_npm: Entry {
            path: "package/bin/napi-v6/linux/arm64/libonnxruntime.so.1",
            name: "libonnxruntime.so.1.30.0",
            sha256: "1f549d46250b005580b597f4164984aaf75b3bcb9f3aeb07c7f8a8fe60b23c76",
        },
    },
    Pinned {
        os: "macos",
        arch: "aarch64",
        pip_platform: "macosx_14_0_arm64",
        wheel_size: 20_882_125,
        in_wheel: Entry {
            path: "onnxruntime/capi/libonnxruntime.1.31.1.dylib",
            name: "libonnxruntime.1.31.1.dylib",
            sha256: "d586cbe89effc085a09d3341b3cfbd5c322517f9d397aeb20814af21433f2b36",
        },
        in_npm: Entry {
            path: "package/bin/napi-v6/darwin/arm64/libonnxruntime.1.30.0.dylib",
            name: "libonnxruntime.1.30.0.dylib",
            sha256: "685d2be5dba1309c89d3a5324b7fd06a5c42f1a61bfea32d14c4cc28d072121d",
        },
    },
    Pinned {
        os: "windows",
        arch: "x86_64",
        pip_platform: "win_amd64",
        wheel_size: 14_888_466,
        in_wheel: Entry {
            path: "onnxruntime/capi/onnxruntime.dll",
            name: "onnxruntime.dll",
            sha256: "e45f61e50d8650885452be538a00bb14a715e46a1bc3691000ce947e89ed0306",
        },
        in_npm: Entry {
            path: "package/bin/napi-v6/win32/x64/onnxruntime.dll",
            name: "onnxruntime.dll",
            sha256: "508c362f5673483dd3a086379c392795b2e42d10d5e6f3f90ebd7ac21c97af67",
        },
    },
    Pinned {
        os: "windows",
        arch: "aarch64",
        pip_platform: "win_arm64",
        wheel_size: 14_740_724,
        in_wheel: Entry {
            path: "onnxruntime/capi/onnxruntime.dll",
            name: "onnxruntime.dll",
            sha256: "dc9e2fe646a72829386a24ac9185a7a4e26d7dbe5dc433d41df063603c00bbc7",
        },
        in_npm: Entry {
            path: "package/bin/napi-v6/win32/arm64/onnxruntime.dll",
            name: "onnxruntime.dll",
            sha256: "6c3a2abf5c6aca11c48a0d338a91af309f2266f25ce2e4084e6a87bbcb0fbfd0",
        },
    },
];

/// What is pinned for this machine.
pub(super) fn here() -> Option<&'static Pinned> {
    PINNED.iter().find(|pinned| pinned.os == std::env::consts::OS && pinned.arch == std::env::consts::ARCH)
}
