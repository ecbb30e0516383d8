//! Confines a process that runs native code on untrusted input, and the processes that it starts.
//!
//! The worker, at the start of its `main`:
//!
//! 1. [`limit_resources`] bounds open files and turns core dumps off;
//! 2. [`Confinement::enter_namespaces`] gives it a view of the system that holds only what it needs, where the kernel
//!    gives namespaces;
//! 3. [`Confinement::apply`] bounds files, network, signals and system calls, and returns what is in force;
//! 4. after it has loaded its libraries, [`forbid_new_processes`] takes `execve` and `fork` away.
//!
//! Its parent asks for the [`process_usage`] of its [`ProcessGroups`] from time to time, and kills it.
//!
//! Nothing can be undone, and children inherit everything. Linux alone has the means (Landlock, seccomp); on other
//! systems the same functions exist and report what is missing.
//!
//! # What stays open
//!
//! - The environment variables, open files and memory that the worker begins with. The parent clears the environment
//!   and passes no other descriptors than those that the worker needs.
//! - An inherited `memfd`, which `/proc/self/fd` opens again for writing unless it is sealed.
//! - Whether a path exists, and its size, owner and times: Landlock does not restrict `stat`.
//! - The drivers behind device nodes, with [`Confinement::accelerators`].
//! - Processor time. System calls that are not in the table of `system_calls.rs`.

mod limits;
mod memory;

#[cfg(target_os = "linux")]
mod files;
#[cfg(target_os = "linux")]
mod fork;
#[cfg(target_os = "linux")]
mod kernel;
#[cfg(target_os = "linux")]
mod namespaces;
#[cfg(target_os = "linux")]
mod paths;
#[cfg(target_os = "linux")]
mod root;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod system_calls;
#[cfg(all(target_os = "linux", not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
#[path = "system_calls_unsupported.rs"]
mod system_calls;

use std::fmt;
use std::io;
use std::path::PathBuf;

#[cfg(target_os = "linux")]
pub use fork::{fork, replace_environment, require_single_thread};
pub use limits::limit_resources;
pub use memory::{ProcessGroups, ProcessUsage, process_usage};

/// What a process and its children may reach, besides what every program needs (the tables in `paths.rs`).
///
/// A path is a file, or a folder with everything beneath it. Symbolic links are followed once, when the confinement is
/// applied; paths that do not exist then are skipped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Confinement {
    /// May be read: models, libraries outside `/usr/lib`.
    pub read: Vec<PathBuf>,
    /// May be read and written. Regular files and folders can be created, renamed and removed beneath it; symbolic
    /// links, sockets and devices cannot, because they could mislead whoever reads the folder later.
    pub write: Vec<PathBuf>,
    /// Programs that may be started, and read. Their dynamic loader is permitted with them; the interpreter of a script
    /// must be listed. If the list is empty, no program can be started.
    ///
    /// A library is mapped, not started: it must only be readable.
    pub execute: Vec<PathBuf>,
    /// Whether device nodes and drivers of accelerators (CUDA, ROCm, OpenCL, Vulkan) and `/dev/shm`, which they share
    /// memory through, may be used. Nodes must exist when the confinement is applied.
    ///
    /// A model for the CPU needs none of them, and a driver is a large part of the kernel to attack.
    pub accelerators: bool,
}

/// Whether a protection is in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Protection {
    /// In force.
    Full,
    /// In force with a gap: a sentence about the gap.
    Partial(String),
    /// Not in force: a sentence about what the system lacks.
    Missing(String),
}

/// What is in force after [`Confinement::apply`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct Enforcement {
    /// Only the permitted files can be opened, created, removed, renamed and started (Landlock).
    pub files: Protection,
    /// No network: only sockets that are connected from the beginning, and no `connect` (seccomp; without
    /// it Landlock from Linux 6.7 on, for TCP alone).
    pub network: Protection,
    /// No signals to processes other than itself and its children (Landlock).
    pub signals: Protection,
    /// Calls that reach other processes, the kernel's settings or namespaces fail (seccomp); capabilities of root are
    /// dropped.
    pub system_calls: Protection,
}

impl Confinement {
    /// Goes on in a process of namespaces of its own, of which it is the first: it sees no other processes and no network,
    /// and of the files only those that it may reach, at the same paths, read-only where it may not write. To be called
    /// before [`Self::apply`], by a process with one thread, which returns in a copy of itself: the process becomes the
    /// monitor, which waits for the copy and ends as that does. The copy belongs to the same group of processes.
    ///
    /// Returns what is in force; where it is [`Protection::Missing`], this is the same process as before.
    ///
    /// The first process of a namespace gets no signal that it sends itself, unless it handles it: [`std::process::abort`]
    /// works, `kill` does not.
    ///
    /// # Errors
    ///
    /// The process is half in new namespaces, and must end.
    #[cfg(target_os = "linux")]
    pub fn enter_namespaces(&self) -> io::Result<Protection> {
        let permitted = || files::permitted(self).into_iter().map(|(path, access)| (path, paths::writes(access)));
        namespaces::enter(|| root::Root::of(permitted()))
    }

    /// Nothing on this system, and says so.
    #[cfg(not(target_os = "linux"))]
    pub fn enter_namespaces(&self) -> io::Result<Protection> {
        Ok(Protection::Missing("only Linux has namespaces".to_owned()))
    }

    /// Confines this process for the rest of its life. To be called before other threads exist: on kernels before
    /// Linux 7.0, other threads keep their access to files, and [`Enforcement::files`] is then `Missing`; they keep
    /// root's capabilities on any kernel.
    ///
    /// What the system lacks is left out and reported. Where `connect` is needed, the connection must exist already:
    /// afterwards it fails with `ECONNREFUSED`. Forbidden files give `EACCES`, forbidden system calls `EPERM`.
    /// Code for other instruction sets (32-bit programs on x86-64) is killed.
    #[cfg(target_os = "linux")]
    pub fn apply(self) -> Enforcement {
        // Landlock and seccomp ask for it; set here so that it does not depend on them.
        let _ = rustix::thread::set_no_new_privs(true);
        let landlock = files::restrict(&self);
        let kept_capabilities = files::drop_capabilities().err();
        let seccomp = system_calls::restrict(self.execute.is_empty(), self.accelerators);
        let network = match (&seccomp, &landlock.tcp) {
            (Ok(()), _) => Protection::Full,
            (Err(lack), Protection::Full) => Protection::Partial(format!("only TCP is denied: {lack}")),
            (Err(lack), _) => Protection::Missing(lack.clone()),
        };
        let system_calls = match (seccomp, kept_capabilities) {
            (Err(lack), _) => Protection::Missing(lack),
            (Ok(()), Some(error)) => Protection::Partial(format!("capabilities cannot be dropped: {error}")),
            (Ok(()), None) => Protection::Full,
        };
        Enforcement { files: landlock.files, network, signals: landlock.signals, system_calls }
    }

    /// Nothing on this system, and says so.
    #[cfg(not(target_os = "linux"))]
    pub fn apply(self) -> Enforcement {
        let missing = || Protection::Missing("only Linux has Landlock and seccomp".to_owned());
        Enforcement { files: missing(), network: missing(), signals: missing(), system_calls: missing() }
    }
}

impl Enforcement {
    /// Each protection with its name.
    pub fn protections(&self) -> [(&'static str, &Protection); 4] {
        [
            ("files", &self.files),
            ("network", &self.network),
            ("signals", &self.signals),
            ("system calls", &self.system_calls),
        ]
    }

    /// Whether every protection is in force without a gap.
    pub fn is_complete(&self) -> bool {
        self.protections().iter().all(|(_, protection)| **protection == Protection::Full)
    }
}

impl fmt::Display for Protection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("in force"),
            Self::Partial(gap) => write!(f, "in force in part: {gap}"),
            Self::Missing(lack) => write!(f, "not in force: {lack}"),
        }
    }
}

/// Forbids every thread of this process to start a process or a program, and to make memory that no process is seen to
/// have: `fork`, `execve`, `memfd_create` and shared anonymous mappings fail with `EPERM`. Threads still work. To be called after native libraries are loaded, as some
/// start a compiler then.
///
/// # Errors
///
/// `Unsupported` if the system has no seccomp; otherwise nothing has changed either.
pub fn forbid_new_processes() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    return system_calls::forbid_new_processes();
    #[cfg(not(target_os = "linux"))]
    return Err(io::Error::new(io::ErrorKind::Unsupported, "only Linux has seccomp"));
}
