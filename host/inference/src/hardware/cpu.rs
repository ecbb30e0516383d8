//! The processor.

use std::collections::BTreeSet;
use std::path::Path;

use serde::Serialize;

/// Instructions that the kernels of engines use, under the names that Linux has for them.
const FEATURES: [&str; 22] = [
    "sse4_2",
    "avx",
    "f16c",
    "fma",
    "avx2",
    "avx512f",
    "avx512bw",
    "avx512_vnni",
    "avx_vnni",
    "avx512_bf16",
    "avx512_fp16",
    "amx_tile",
    "amx_int8",
    "amx_bf16",
    "asimd",
    "asimdhp",
    "asimddp",
    "i8mm",
    "bf16",
    "sve",
    "sve2",
    "sme",
];

/// Those of them that multiply integers of 8 bits.
const INTEGER_PRODUCTS: [&str; 6] = ["avx512_vnni", "avx_vnni", "amx_int8", "asimddp", "i8mm", "sme"];

/// The processor.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Cpu {
    /// model name; empty where the system does not report it
    pub model: String,
    /// vendor; empty where the system does not report it
    pub vendor: String,
    /// `x86_64`, `aarch64`
    pub arch: &'static str,
    /// cores that this process may use, as far as whole ones go
    pub cores: usize,
    /// cores of the machine, counting those once that run several threads; where the system says
    pub physical: Option<usize>,
    /// how many cores' worth of time the container may take
    pub quota: Option<f64>,
    /// instructions that speed up models
    pub features: Vec<&'static str>,
}

impl Cpu {
    /// Threads that one operator of a model can make use of: two that share a core's arithmetic do
    /// no more than one, and those beyond the container's share only wait for each other.
    pub fn kernel_threads(&self) -> usize {
        self.physical.unwrap_or(self.cores).min(self.cores).max(1)
    }

    /// Whether it has instructions for products of 8-bit integers, which do not overflow either.
    pub fn multiplies_bytes(&self) -> bool {
        self.features.iter().any(|known| INTEGER_PRODUCTS.contains(known))
    }

    /// This machine's, read anew.
    pub(crate) fn detect() -> Self {
        Self::read(Path::new("/"))
    }

    pub(super) fn read(root: &Path) -> Self {
        let info = super::read_text(root.join("proc/cpuinfo")).unwrap_or_default();
        let field = |name: &str| {
            let fields = info.lines().filter_map(|line| line.split_once(':'));
            fields.clone().find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim().to_owned())
        };
        let flags = field("flags").or_else(|| field("Features")).unwrap_or_default();
        let flags: Vec<_> = flags.split_whitespace().collect();
        let vendor = field("vendor_id").unwrap_or_default();
        Self {
            model: field("model name")
                .or_else(|| super::read_text(root.join("proc/device-tree/model")))
                .unwrap_or_default(),
            vendor: match vendor.as_str() {
                "GenuineIntel" => "Intel".to_owned(),
                "AuthenticAMD" => "AMD".to_owned(),
                _ => vendor,
            },
            arch: std::env::consts::ARCH,
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            physical: physical(&info),
            quota: quota(root),
            features: FEATURES.into_iter().filter(|feature| flags.contains(feature)).collect(),
        }
    }
}

/// Different pairs of `physical id` and `core id`, each on its lines of `/proc/cpuinfo`.
fn physical(info: &str) -> Option<usize> {
    let mut cores = BTreeSet::new();
    let mut socket = "";
    for (key, value) in info.lines().filter_map(|line| line.split_once(':')) {
        match key.trim() {
            "physical id" => socket = value.trim(),
            "core id" => {
                cores.insert((socket, value.trim()));
            }
            _ => {}
        }
    }
    (!cores.is_empty()).then_some(cores.len())
}

/// `cpu.max` of the process's group and those around it: `200000 100000` is two cores.
fn quota(root: &Path) -> Option<f64> {
    let limits =
        super::memory::groups(root).filter_map(|group| super::read_text(group.join("cpu.max"))).filter_map(|text| {
            let (most, period) = text.split_once(' ')?;
            Some(most.parse::<f64>().ok()? / period.parse::<f64>().ok().filter(|period| *period > 0.0)?)
        });
    limits.min_by(f64::total_cmp)
}
