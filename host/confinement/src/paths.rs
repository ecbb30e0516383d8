//! Paths that every confined process may reach, with the reasons.
//!
//! Not among them: `/etc/passwd` and other settings of the system, home folders, `/tmp`, `/run`, other processes.

use landlock::{AccessFs, BitFlags, make_bitflags};

pub(crate) const READ: BitFlags<AccessFs> = make_bitflags!(AccessFs::{ReadFile | ReadDir});
/// Without `MakeSym`, `MakeSock`, `MakeFifo`, `MakeChar` and `MakeBlock`.
pub(crate) const WRITE: BitFlags<AccessFs> = make_bitflags!(AccessFs::{
    ReadFile | ReadDir | WriteFile | Truncate | MakeReg | MakeDir | RemoveFile | RemoveDir | Refer
});
pub(crate) const EXECUTE: BitFlags<AccessFs> = make_bitflags!(AccessFs::{ReadFile | Execute});
const DEVICE: BitFlags<AccessFs> = make_bitflags!(AccessFs::{ReadFile | ReadDir | WriteFile | IoctlDev});
const OVERWRITE: BitFlags<AccessFs> = make_bitflags!(AccessFs::{ReadFile | WriteFile});

/// Whether this lets something be written.
pub(crate) fn writes(access: BitFlags<AccessFs>) -> bool {
    access.contains(AccessFs::WriteFile)
}

/// A path, and what may be done beneath it. A `*` at its end stands for any ending.
pub(crate) type Row = (&'static str, BitFlags<AccessFs>);

pub(crate) const ALWAYS: &[Row] = &[
    // The dynamic loader: libraries of the system and where to find them.
    ("/lib", READ),
    ("/lib64", READ),
    ("/usr/lib", READ),
    ("/usr/lib64", READ),
    ("/usr/local/lib", READ),
    ("/etc/ld.so.*", READ),
    // The C library: time zones, /dev/null, random numbers. Not /dev/zero: memory that is mapped from it can be shared.
    ("/etc/localtime", READ),
    ("/usr/share/zoneinfo", READ),
    ("/dev/null", OVERWRITE),
    ("/dev/random", READ),
    ("/dev/urandom", READ),
    // Own threads, maps, control groups. It is the folder of this process: its children cannot read their own.
    ("/proc/self", READ),
    // Thread pools and allocators (ONNX Runtime, oneTBB, OpenVINO, OpenMP) size themselves by processors, caches,
    // memory, page sizes and limits.
    ("/proc/cpuinfo", READ),
    ("/proc/meminfo", READ),
    ("/proc/stat", READ),
    ("/proc/sys/kernel", READ),
    ("/proc/sys/vm", READ),
    ("/sys/devices", READ),
    ("/sys/fs/cgroup", READ),
    ("/sys/kernel/mm", READ),
    // ONNX Runtime lists devices as it starts: links into /sys/devices.
    ("/sys/bus/pci", READ),
    ("/sys/class/accel", READ),
    ("/sys/class/drm", READ),
];

pub(crate) const ACCELERATORS: &[Row] = &[
    // NVIDIA, also Tegra: control, memory, each GPU, MIG capabilities.
    ("/dev/nvidia*", DEVICE),
    ("/dev/nvgpu", DEVICE),
    ("/dev/nvhost*", DEVICE),
    ("/dev/nvmap", DEVICE),
    // AMD's compute node, render nodes of all vendors, neural processors, GPUs under WSL.
    ("/dev/kfd", DEVICE),
    ("/dev/dri", DEVICE),
    ("/dev/accel", DEVICE),
    ("/dev/dxg", DEVICE),
    // `cuInit` names its threads; without it, it fails with error 304 (NVIDIA/OpenShell#710).
    ("/proc/self/task", OVERWRITE),
    // Which drivers are loaded, and their settings.
    ("/proc/devices", READ),
    ("/proc/driver/nvidia*", READ),
    ("/proc/modules", READ),
    ("/sys/module/nvidia*", READ),
    ("/sys/module/amdgpu", READ),
    // Which devices there are, for ROCm and libdrm: links into /sys/devices.
    ("/sys/class/kfd", READ),
    ("/sys/dev/char", READ),
    // Libraries and drivers outside /usr/lib, and what names them.
    ("/usr/local/cuda*", READ),
    ("/usr/local/nvidia*", READ),
    ("/opt/rocm*", READ),
    ("/etc/OpenCL", READ),
    ("/etc/glvnd", READ),
    ("/etc/vulkan", READ),
    ("/etc/nvidia", READ),
    ("/usr/share/drirc.d", READ),
    ("/usr/share/glvnd", READ),
    ("/usr/share/libdrm", READ),
    ("/usr/share/nvidia", READ),
    ("/usr/share/vulkan", READ),
];

/// Permitted as soon as any program is: the kernel starts a program's dynamic loader like a program.
pub(crate) const LOADERS: &[Row] =
    &[("/lib/ld-*", EXECUTE), ("/lib64/ld-*", EXECUTE), ("/usr/lib/ld-*", EXECUTE), ("/usr/lib64/ld-*", EXECUTE)];
