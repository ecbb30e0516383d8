//! Landlock: files, TCP and signals.

use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, LandlockStatus, PathBeneath, PathFd, RestrictSelfAttr as _,
    Ruleset, RulesetAttr as _, RulesetCreatedAttr as _, RulesetError, RulesetStatus, Scope,
};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

use crate::paths::{ACCELERATORS, ALWAYS, EXECUTE, LOADERS, READ, Row, WRITE};
use crate::{Confinement, Protection};

/// What Landlock has in force.
pub(crate) struct Landlock {
    pub(crate) files: Protection,
    pub(crate) tcp: Protection,
    pub(crate) signals: Protection,
}

/// Restricts this thread, and from Linux 7.0 on the others.
pub(crate) fn restrict(confinement: &Confinement) -> Landlock {
    let threads = std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count);
    let abi = match enforce(confinement) {
        Ok(abi) if threads > 1 && abi < ABI::V8 => {
            Err("other threads were running already, which Landlock cannot restrict before Linux 7.0".to_owned())
        }
        result => result,
    };
    let since = |least: ABI, lack: &str| match &abi {
        Ok(abi) if *abi >= least => Protection::Full,
        Ok(_) => Protection::Missing(lack.to_owned()),
        Err(lack) => Protection::Missing(lack.clone()),
    };
    let files = match since(ABI::V1, "") {
        // Renames between folders are denied before Linux 5.19, so they are no gap.
        Protection::Full if abi.as_ref().is_ok_and(|abi| *abi < ABI::V3) => {
            Protection::Partial("before Linux 6.2, Landlock does not keep files from being truncated".to_owned())
        }
        files => files,
    };
    Landlock {
        files,
        tcp: since(ABI::V4, "Landlock restricts TCP from Linux 6.7 on"),
        signals: since(ABI::V6, "Landlock restricts signals from Linux 6.12 on"),
    }
}

/// The version of Landlock that is in force, or a sentence on why none is.
fn enforce(confinement: &Confinement) -> Result<ABI, String> {
    let status = build(confinement).map_err(|error| format!("Landlock failed: {error}"))?;
    match status.landlock {
        LandlockStatus::NotImplemented => {
            Err("this kernel has no Landlock (Linux 5.13 with CONFIG_SECURITY_LANDLOCK)".to_owned())
        }
        LandlockStatus::NotEnabled => {
            Err("Landlock is not enabled in this kernel (`lsm=landlock,…` on its command line)".to_owned())
        }
        LandlockStatus::Available { .. } if status.ruleset == RulesetStatus::NotEnforced => {
            Err("Landlock enforces nothing".to_owned())
        }
        LandlockStatus::Available { effective_abi, .. } => Ok(effective_abi),
    }
}

fn build(confinement: &Confinement) -> Result<landlock::RestrictionStatus, RulesetError> {
    // The newest that is known to this crate; older kernels ignore what they lack.
    let mut ruleset = Ruleset::default()
        .handle_access(AccessFs::from_all(ABI::V10))?
        .handle_access(AccessNet::from_all(ABI::V10))?
        .scope(Scope::from_all(ABI::V10))?
        .create()?;
    for (path, access) in permitted(confinement) {
        let Ok(file) = PathFd::new(&path) else { continue };
        ruleset = ruleset.add_rule(PathBeneath::new(&file, access))?;
        if path.starts_with("/proc") {
            // A rule belongs to an inode, and /proc makes new ones when it runs out of memory for names. It keeps
            // those that are open.
            std::mem::forget(file);
        }
    }
    ruleset.all_threads(true)?.restrict_self()
}

/// Every path that may be reached, and how.
pub(crate) fn permitted(confinement: &Confinement) -> Vec<(PathBuf, BitFlags<AccessFs>)> {
    let tables = [
        Some(ALWAYS),
        confinement.accelerators.then_some(ACCELERATORS),
        (!confinement.execute.is_empty()).then_some(LOADERS),
    ];
    let mut all: Vec<_> = tables.into_iter().flatten().flatten().flat_map(expand).collect();
    // Memory that every process of this user shares: only for drivers that need it.
    if confinement.accelerators && ["/dev/nvidiactl", "/dev/kfd"].iter().any(|node| Path::new(node).exists()) {
        all.push(("/dev/shm".into(), WRITE));
    }
    for (paths, access) in [(&confinement.read, READ), (&confinement.write, WRITE), (&confinement.execute, EXECUTE)] {
        all.extend(paths.iter().map(|path| (path.clone(), access)));
    }
    all
}

/// The paths that a row stands for.
fn expand(&(pattern, access): &Row) -> Vec<(PathBuf, BitFlags<AccessFs>)> {
    let Some(start) = pattern.strip_suffix('*') else { return vec![(pattern.into(), access)] };
    let (folder, start) = start.rsplit_once('/').unwrap_or(("", start));
    let entries = std::fs::read_dir(Path::new(folder)).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_name().as_encoded_bytes().starts_with(start.as_bytes()))
        .map(|entry| (entry.path(), access))
        .collect()
}

/// Takes root's rights from this thread and what it starts, except that permitted files may belong to others.
/// `no_new_privs` keeps programs from getting them back.
pub(crate) fn drop_capabilities() -> rustix::io::Result<()> {
    let kept = CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH;
    let CapabilitySets { effective, permitted, .. } = capabilities(None)?;
    let (effective, permitted) = (effective & kept, permitted & kept);
    set_capabilities(None, CapabilitySets { effective, permitted, inheritable: CapabilitySet::empty() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expands_patterns_at_their_end_only() {
        let paths = |pattern| {
            let mut paths: Vec<_> = expand(&(pattern, READ)).into_iter().map(|(path, _)| path).collect();
            paths.sort();
            paths
        };
        assert_eq!(paths("/proc/meminf*"), [Path::new("/proc/meminfo")]);
        assert_eq!(
            paths("/proc/sys/kernel/os*"),
            ["/proc/sys/kernel/osrelease", "/proc/sys/kernel/ostype"].map(Path::new)
        );
        assert_eq!(paths("/no/such/folder/a*"), Vec::<PathBuf>::new());
        assert_eq!(paths("/no/such"), [Path::new("/no/such")]);
    }

    #[test]
    fn permits_accelerators_and_loaders_only_on_demand() {
        let has = |confinement: &Confinement, text: &str| {
            permitted(confinement).iter().any(|(path, _)| path.to_string_lossy().contains(text))
        };
        let mut confinement = Confinement::default();
        assert!(has(&confinement, "/proc/cpuinfo") && !has(&confinement, "/dev/dri"));
        assert!(!has(&confinement, "/ld-"));
        confinement.accelerators = true;
        confinement.execute.push("/bin/true".into());
        assert!(has(&confinement, "/dev/dri") && has(&confinement, "/ld-"));
    }

    #[test]
    fn keeps_secrets_and_folders_of_others_out_of_the_tables() {
        let forbidden = ["/", "/etc", "/home", "/root", "/run", "/tmp", "/var", "/proc", "/dev", "/sys", "/etc/passwd"];
        for (path, _) in ALWAYS.iter().chain(ACCELERATORS).chain(LOADERS) {
            assert!(!forbidden.contains(path), "{path}");
        }
    }
}
