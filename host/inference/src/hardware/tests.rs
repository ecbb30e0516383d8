#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use super::ExecutionProvider::{Cpu as OnCpu, Cuda, OpenVino, Rocm, TensorRt, WebGpu};
use super::*;

/// A machine made of these files.
fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, Hardware) {
    let root = tempfile::tempdir().unwrap();
    for (path, content) in files {
        let path = root.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
    let hardware = Hardware::read(root.path(), &[root.path().join("lib")]);
    (root, hardware)
}

const INTEL: &str = "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Intel(R) Xeon(R) Gold\n\
                     flags\t\t: fpu sse4_2 avx avx2 fma amx_int8 avx512_vnni\n\nprocessor\t: 1\n";

#[test]
fn accepts_machines_without_files() {
    let (_root, hardware) = machine(&[]);
    assert_eq!(hardware.gpus, []);
    assert_eq!(hardware.memory, Memory::default());
    assert!(hardware.cpu.cores > 0 && hardware.cpu.features.is_empty());
    assert!(hardware.unavailable_reason(Cuda).unwrap().contains("no NVIDIA driver"));
    assert!(hardware.unavailable_reason(Rocm).unwrap().contains("/dev/kfd"));
    assert_eq!((hardware.unavailable_reason(OnCpu), hardware.unavailable_reason(OpenVino)), (None, None));
    assert!(!hardware.is_suited_to(OpenVino), "not what it was made for");
}

#[cfg(target_os = "linux")]
#[test]
fn webgpu_needs_vulkan_and_a_gpu() {
    assert!(machine(&[]).1.unavailable_reason(WebGpu).unwrap().contains("libvulkan.so.1"));
    let (_root, software) = machine(&[("lib/libvulkan.so.1", "")]);
    assert!(software.unavailable_reason(WebGpu).is_none() && !software.is_suited_to(WebGpu));
    let gpu = ["class", "vendor", "device"].map(|name| format!("sys/bus/pci/devices/0000:01:00.0/{name}"));
    let files = [(gpu[0].as_str(), "0x030000\n"), (&gpu[1], "0x1002\n"), (&gpu[2], "0x744c\n")];
    let (root, idle) = machine(&[&files[..], &[("lib/libvulkan.so.1", "")]].concat());
    assert!(!idle.is_suited_to(WebGpu), "nothing drives it");
    std::os::unix::fs::symlink("../amdgpu", root.path().join("sys/bus/pci/devices/0000:01:00.0/driver")).unwrap();
    assert!(Hardware::read(root.path(), &[root.path().join("lib")]).is_suited_to(WebGpu));
}

#[test]
fn detects_processor_memory_and_container_limits() {
    let (_root, hardware) = machine(&[
        ("proc/cpuinfo", INTEL),
        ("proc/meminfo", "MemTotal:       24592520 kB\nMemFree: 1 kB\nMemAvailable:   20000000 kB\n"),
        ("proc/self/cgroup", "0::/a/b\n"),
        ("sys/fs/cgroup/memory.max", "max\n"),
        ("sys/fs/cgroup/a/memory.max", "2147483648\n"),
        ("sys/fs/cgroup/a/b/memory.max", "4294967296\n"),
        ("sys/fs/cgroup/a/cpu.max", "150000 100000\n"),
        ("sys/fs/cgroup/a/b/cpu.max", "max 100000\n"),
    ]);
    assert_eq!(hardware.cpu.model, "Intel(R) Xeon(R) Gold");
    assert_eq!(hardware.cpu.features, ["sse4_2", "avx", "fma", "avx2", "avx512_vnni", "amx_int8"]);
    assert_eq!((hardware.cpu.quota, hardware.cpu.physical), (Some(1.5), None));
    let memory = Memory { total: Some(24_592_520 << 10), available: Some(20_000_000 << 10), limit: Some(2 << 30) };
    assert_eq!(hardware.memory, memory);
    assert!(hardware.is_suited_to(OpenVino));
}

#[test]
fn counts_hyperthreads_once() {
    let thread = |socket: u8, core: u8| format!("processor\t: 0\nphysical id\t: {socket}\ncore id\t\t: {core}\n\n");
    let info: String = [(0, 0), (0, 1), (1, 0), (0, 0), (0, 1), (1, 0)].map(|(a, b)| thread(a, b)).concat();
    let mut cpu = machine(&[("proc/cpuinfo", &info)]).1.cpu;
    assert_eq!(cpu.physical, Some(3));
    for (cores, physical, expected) in [(6, Some(3), 3), (2, Some(3), 2), (4, None, 4), (0, Some(0), 1)] {
        (cpu.cores, cpu.physical) = (cores, physical);
        assert_eq!(cpu.kernel_threads(), expected);
    }
}

#[test]
fn ignores_control_groups_outside_the_mount() {
    let files = [("proc/self/cgroup", "0::/../../etc\n"), ("sys/fs/cgroup/memory.max", "1048576\n")];
    assert_eq!(machine(&files).1.memory.limit, Some(1 << 20));
    let files = [("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n")];
    assert_eq!(machine(&files).1.memory.limit, None);
}

#[test]
fn detects_gpus_with_name_and_driver() {
    let (_root, hardware) = machine(&[
        ("sys/bus/pci/devices/0000:00:02.0/class", "0x030000\n"),
        ("sys/bus/pci/devices/0000:00:02.0/vendor", "0x1234\n"),
        ("sys/bus/pci/devices/0000:00:02.0/device", "0x1111\n"),
        ("sys/bus/pci/devices/0000:01:00.0/class", "0x030200\n"),
        ("sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de\n"),
        ("sys/bus/pci/devices/0000:01:00.0/device", "0x2335\n"),
        ("sys/bus/pci/devices/0000:02:00.0/class", "0x020000\n"),
        ("sys/bus/pci/devices/0000:03:00.0/class", "0x030000\n"),
        ("sys/bus/pci/devices/0000:03:00.0/vendor", "0x1002\n"),
        ("sys/bus/pci/devices/0000:03:00.0/device", "0x744c\n"),
        ("proc/driver/nvidia/gpus/0000:01:00.0/information", "Model: \t\t NVIDIA H200\nIRQ: 1\n"),
        ("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.82.07  Tue Aug\nGCC\n"),
        ("dev/dri/renderD128", ""),
        ("dev/dri/card0", ""),
    ]);
    let shown: Vec<_> = hardware.gpus.iter().map(|gpu| format!("{} {} {}", gpu.vendor, gpu.name, gpu.place)).collect();
    assert_eq!(shown, ["NVIDIA H200 0000:01:00.0", "AMD 0x744c 0000:03:00.0"]);
    assert_eq!(hardware.drivers.nvidia.as_deref(), Some("580.82.07"));
    assert_eq!(hardware.drivers.devices.len(), 1);
    assert_eq!((hardware.unavailable_reason(TensorRt), hardware.unavailable_reason(Cuda)), (None, None));
    assert!(hardware.unavailable_reason(Rocm).is_some());
}

#[test]
fn reports_gpus_without_driver() {
    let gpu = [
        ("sys/bus/pci/devices/0000:01:00.0/class", "0x030200\n"),
        ("sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de\n"),
        ("sys/bus/pci/devices/0000:01:00.0/device", "0x2335\n"),
    ];
    let (_root, hardware) = machine(&gpu);
    assert!(hardware.unavailable_reason(Cuda).unwrap().contains("has an NVIDIA GPU, but no driver"));
    // Each of these is enough: containers, WSL and Jetson show the driver in different places.
    for shown in ["lib/libcuda.so.1", "dev/nvidiactl", "dev/dxg", "dev/nvhost-gpu"] {
        if cfg!(windows) && shown.starts_with("lib/") {
            continue;
        }
        let (_root, hardware) = machine(&[gpu[0], gpu[1], gpu[2], (shown, "")]);
        assert_eq!(hardware.unavailable_reason(Cuda), None, "{shown}");
    }
    assert!(machine(&[("dev/kfd", "")]).1.is_suited_to(Rocm));
}
