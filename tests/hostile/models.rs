//! Damaged models, with both engines. `cargo bench --bench corrupted` makes a thousand.

use std::path::Path;

use gpux::EngineChoice;
use gpux_hostile_support::corrupted::{Corrupted, Outcome};
use gpux_hostile_support::damage::ALL;
use gpux_hostile_support::dice::Runs;
use gpux_hostile_support::memory;

use crate::alone;

/// What this process may have grown by, in bytes: sessions of the largest models, and what engines
/// load once.
const GROWTH: usize = 256 << 20;

#[test]
fn survives_damaged_models() {
    let _alone = alone();
    for engine in [EngineChoice::Embedded, EngineChoice::OnnxRuntime] {
        let Some(corrupted) = Corrupted::new(engine, Path::new(env!("CARGO_BIN_EXE_gpux"))) else {
            let required = std::env::var_os("GPUX_REQUIRE_ORT").is_some_and(|value| value == "1");
            assert!(!required, "there is no ONNX Runtime library; run `gpux engine install`");
            eprintln!("skipped: no ONNX Runtime library; run `gpux engine install`");
            continue;
        };
        let begin = memory::begin();
        let mut outcomes = Vec::new();
        let mut turn = 0;
        Runs::of(4 * ALL.len() as u64).each(|dice| {
            outcomes.push(corrupted.one(dice, turn % ALL.len()));
            turn += 1;
        });
        if let (Some(begin), Some(now)) = (begin, memory::now()) {
            assert!(now < begin + GROWTH, "{} MiB, and {} MiB before", now >> 20, begin >> 20);
        }
        let refused = outcomes.iter().filter(|outcome| !matches!(outcome, Outcome::Ran | Outcome::RunFailed)).count();
        assert!(refused > outcomes.len() / 4, "most damage is noticed: {outcomes:?}");
        let count = |wanted: Outcome| outcomes.iter().filter(|outcome| **outcome == wanted).count();
        println!("{engine:?}: {:?}", Outcome::ALL.map(|outcome| (outcome.name(), count(outcome))));
    }
}
