//! GPUs, NPUs, and the drivers through which programs use them.

use std::path::{Path, PathBuf};

use serde::Serialize;

/// A GPU or NPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Gpu {
    /// vendor
    pub vendor: String,
    /// its name, else the number of its model
    pub name: String,
    /// where it is plugged in: `0000:01:00.0`
    pub place: String,
    /// the kernel's driver for it; `None` if nothing drives it
    pub driver: Option<String>,
}

/// GPU drivers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Drivers {
    /// the version of NVIDIA's driver
    pub nvidia: Option<String>,
    /// NVIDIA's library for programs
    pub cuda_library: Option<PathBuf>,
    /// Vulkan's loader, through which programs find its drivers
    pub vulkan_loader: Option<PathBuf>,
    /// whether the kernel offers AMD's GPUs for computing (`/dev/kfd`)
    pub amd: bool,
    /// the version of ROCm
    pub rocm: Option<String>,
    /// GPUs and NPUs that the kernel offers: `/dev/dri/renderD128`, `/dev/accel/accel0`
    pub devices: Vec<PathBuf>,
}

impl Drivers {
    pub(super) fn read(root: &Path, libraries: &[PathBuf]) -> Self {
        let exists = |path: &str| root.join(path).exists();
        let [cuda, vulkan] =
            if cfg!(windows) { ["nvcuda.dll", "vulkan-1.dll"] } else { ["libcuda.so.1", "libvulkan.so.1"] };
        let library = |name| libraries.iter().map(|folder| folder.join(name)).find(|path| path.exists());
        let rendering = entries(&root.join("dev/dri")).filter(|path| name(path).starts_with("renderD"));
        let accelerators = entries(&root.join("dev/accel")).filter(|path| name(path).starts_with("accel"));
        // WSL and Jetson have no /dev/nvidiactl.
        let nvidia =
            ["dev/nvidiactl", "dev/dxg", "dev/nvhost-gpu", "dev/nvmap"].into_iter().filter(|path| exists(path));
        Self {
            nvidia: super::read_text(root.join("proc/driver/nvidia/version")).as_deref().and_then(nvidia_version),
            cuda_library: library(cuda),
            vulkan_loader: library(vulkan),
            amd: exists("dev/kfd"),
            rocm: super::read_text(root.join("opt/rocm/.info/version")),
            devices: nvidia.map(|path| root.join(path)).chain(rendering).chain(accelerators).collect(),
        }
    }

    /// Whether anything shows that NVIDIA's driver is there.
    pub fn has_nvidia(&self) -> bool {
        let shows = |path: &PathBuf| name(path).starts_with("nv") || name(path) == "dxg";
        self.nvidia.is_some() || self.cuda_library.is_some() || self.devices.iter().any(shows)
    }
}

/// The first version in `NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.82.07  Tue …`.
fn nvidia_version(text: &str) -> Option<String> {
    let is_version = |word: &&str| word.contains('.') && word.split('.').all(|part| part.parse::<u32>().is_ok());
    text.lines().next()?.split_whitespace().find(is_version).map(str::to_owned)
}

/// Where shared libraries of drivers lie.
pub(super) fn library_folders() -> Vec<PathBuf> {
    if cfg!(windows) {
        let system = std::env::var_os("SystemRoot").map(|root| PathBuf::from(root).join("System32"));
        let named = std::env::var_os("PATH").unwrap_or_default();
        return system.into_iter().chain(std::env::split_paths(&named)).collect();
    }
    let named = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let usual = [
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/usr/lib64",
        "/usr/lib",
        "/usr/local/lib",
        "/usr/lib/wsl/lib",
        "/usr/local/nvidia/lib64",
        "/usr/local/cuda/compat",
        "/run/opengl-driver/lib",
    ];
    let named: Vec<_> = std::env::split_paths(&named).filter(|path| path.is_absolute()).collect();
    named.into_iter().chain(usual.iter().map(PathBuf::from)).collect()
}

/// The displays and accelerators among the PCI devices.
pub(super) fn read(root: &Path) -> Vec<Gpu> {
    let devices = entries(&root.join("sys/bus/pci/devices"));
    devices.filter_map(|device| gpu(root, &device)).collect()
}

fn gpu(root: &Path, device: &Path) -> Option<Gpu> {
    let field = |name: &str| super::read_text(device.join(name));
    let class = field("class")?;
    // 03: displays; 12: accelerators.
    if !class.starts_with("0x03") && !class.starts_with("0x12") {
        return None;
    }
    let (vendor, model) = (field("vendor")?, field("device")?);
    let vendor = match vendor.as_str() {
        "0x10de" => "NVIDIA",
        "0x1002" => "AMD",
        "0x8086" => "Intel",
        // The pictures of a virtual machine or a server's console: nothing computes on them.
        "0x1234" | "0x1af4" | "0x15ad" | "0x1a03" | "0x102b" | "0x1414" => return None,
        other => other,
    };
    let place = name(device);
    let told = root.join("proc/driver/nvidia/gpus").join(&place).join("information");
    let told = super::read_text(told)
        .and_then(|text| text.lines().find_map(|line| line.strip_prefix("Model:").map(|rest| rest.trim().to_owned())));
    let model = told.unwrap_or(model);
    let model = model.strip_prefix(vendor).map(|rest| rest.trim_start().to_owned()).unwrap_or(model);
    let driver = std::fs::read_link(device.join("driver")).ok().map(|link| name(&link));
    Some(Gpu { vendor: vendor.to_owned(), name: model, place, driver })
}

fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let mut paths: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    paths.into_iter()
}

fn name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}
