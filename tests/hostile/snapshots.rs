//! What large snapshots take of the process that runs them.

use gpux_core::CacheDir;
use gpux_core::{Context, Step as _};
use gpux_hostile_support::{memory, root};
use gpux_sandbox::{ComponentConfig, Sandbox, SandboxOptions};
use std::sync::Arc;

use crate::alone;

/// Bytes of each snapshot's memory.
const SIZE: usize = 40 << 20;

/// A component whose snapshot is that of no other seed, and does not compress.
fn component(seed: u64) -> Vec<u8> {
    const MARK: &[u8] = b"pages and a seed";
    let mut bytes = std::fs::read(root().join("guest-examples/hostile/wat/large-snapshot.wasm")).unwrap();
    let at = MARK.len() + bytes.windows(MARK.len()).position(|window| window == MARK).unwrap();
    bytes[at..at + 8].copy_from_slice(&(SIZE as u64 >> 16).to_le_bytes());
    bytes[at + 8..at + 16].copy_from_slice(&seed.to_le_bytes());
    bytes
}

/// The anonymous resident memory, in bytes.
fn anonymous() -> Option<usize> {
    memory::field("RssAnon:")
}

/// Whether a memory image lies in a file in memory, beside the one that the code came from.
fn is_image_in_memory() -> bool {
    let files = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let targets = files.filter_map(|file| std::fs::read_link(file.path()).ok());
    targets.into_iter().any(|target| target.to_string_lossy().contains("memory-image"))
}

#[test]
fn a_snapshot_takes_no_memory_that_the_system_cannot_take_back() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    // The second time, both come from the cache.
    for start in ["cold", "warm"] {
        let cache = Some(CacheDir::at(folder.path().join("cache")));
        let program = Some(env!("CARGO_BIN_EXE_gpux").into());
        let sandbox = Sandbox::new(SandboxOptions { cache, program, ..SandboxOptions::default() }).unwrap();
        let before = anonymous();
        let steps =
            [1, 2].map(|seed| sandbox.load(&component(seed), ComponentConfig::default(), &Arc::default()).unwrap());
        for step in &steps {
            assert_eq!(step.run(Vec::new(), &mut Context::default()), Ok(vec!["served".into()]));
        }
        if let (Some(before), Some(after)) = (before, anonymous()) {
            let taken = after.saturating_sub(before);
            println!("{start}: {} KiB of anonymous memory for two snapshots of {} KiB", taken >> 10, SIZE >> 10);
            assert!(taken < SIZE / 2, "{start}: {taken}");
            assert!(!is_image_in_memory(), "{start}");
        }
    }
}
