//! Components that were valid before a few of their bytes changed.

use gpux_core::threads::processor_time;
use gpux_core::{Context, Step as _};
use gpux_hostile_support::attack::limits;
use gpux_hostile_support::dice::{Dice, Runs};
use gpux_hostile_support::{leb128, root};
use gpux_sandbox::{ComponentConfig, Sandbox, SandboxOptions, componentize};
use serde_json::json;

use crate::{LATE, REGISTRY, alone};

fn guest(path: &str) -> Vec<u8> {
    std::fs::read(root().join("guest-examples").join(path)).unwrap()
}

/// Loads a damaged component and, if that works, runs it; both must end, with or without an error.
fn survive(sandbox: &Sandbox, bytes: &[u8]) -> bool {
    let config = ComponentConfig { limits: limits(), ..ComponentConfig::default() };
    let info = sandbox.inspect(bytes, Some(&json!({})));
    let Ok(step) = sandbox.load(bytes, config, &REGISTRY) else { return false };
    assert!(info.is_ok_and(|info| info.problem.is_none()), "what loads can be inspected");
    let begin = processor_time();
    let given = step.run(vec![Some("x".into())], &mut Context::default());
    let taken = processor_time().saturating_sub(begin);
    assert!(taken < limits().time + LATE, "it took {taken:?}");
    if let Ok(values) = given {
        assert_eq!(values.len(), step.signature().outputs.len());
    }
    true
}

#[test]
fn damaged_components_are_rejected_or_bounded() {
    let _alone = alone();
    // Without a cache: these are loaded once.
    let sandbox = Sandbox::new(SandboxOptions { slots: 4, ..SandboxOptions::default() }).unwrap();
    let small = ["grow-table", "not-for-snapshots", "forged-handle", "drop-twice"];
    let mut valid: Vec<_> = small.iter().map(|name| guest(&format!("hostile/wat/{name}.wasm"))).collect();
    valid.extend(
        small.iter().map(|name| componentize(&guest(&format!("hostile/wat/{name}.wasm"))).unwrap().into_owned()),
    );
    valid.extend([guest("rust/center-ink.wasm"), guest("hostile/hostile.wasm")]);
    for bytes in &valid {
        assert!(survive(&sandbox, bytes), "they work as they are");
    }
    let (mut tried, mut loaded) = (0, 0);
    Runs::of(300).each(|dice| {
        let mut bytes = dice.pick(&valid).clone();
        for _ in 0..=dice.below(3) {
            mutate(dice, &mut bytes, &valid);
        }
        tried += 1;
        loaded += u32::from(survive(&sandbox, &bytes));
    });
    println!("{loaded} of {tried} mutants still load");
}

/// Changes some bytes, or a whole section.
fn mutate(dice: &mut Dice, bytes: &mut Vec<u8>, others: &[Vec<u8>]) {
    let at = dice.below(bytes.len());
    match dice.below(8) {
        0 | 1 => bytes[at] ^= 1 << dice.below(8),
        2 => bytes[at] = *dice.pick(&[0, 1, 0x7f, 0x80, 0xff]),
        3 => bytes.truncate(at),
        4 => {
            let len = dice.below(16).min(bytes.len() - at);
            drop(bytes.drain(at..at + len));
        }
        5 => {
            let other = dice.pick(others);
            let from = dice.below(other.len());
            let len = dice.below(64).min(other.len() - from);
            drop(bytes.splice(at..at, other[from..from + len].iter().copied()));
        }
        _ => mutate_section(dice, bytes),
    }
}

/// Doubles, drops, moves or changes a section, with its size kept true: damage that only shows
/// when its content is read.
fn mutate_section(dice: &mut Dice, bytes: &mut Vec<u8>) {
    let (Some(header), Some(mut sections)) = (bytes.get(..8).map(<[u8]>::to_vec), sections(bytes)) else { return };
    let at = dice.below(sections.len());
    match dice.below(5) {
        0 => sections.push(sections[at].clone()),
        1 => drop(sections.remove(at)),
        2 => {
            let to = dice.below(sections.len());
            sections.swap(at, to);
        }
        // The core module in a component.
        3 if sections[at].1.starts_with(b"\0asm") => mutate_section(dice, &mut sections[at].1),
        _ => {
            let inside = &mut sections[at].1;
            let place = dice.below(inside.len());
            match dice.below(3) {
                0 => inside.truncate(place),
                1 => inside.insert(place, dice.next() as u8),
                _ => inside.iter_mut().skip(place).take(1).for_each(|byte| *byte = dice.next() as u8),
            }
        }
    }
    *bytes = header;
    for (id, inside) in sections {
        bytes.push(id);
        bytes.extend(leb128::write(inside.len() as u64));
        bytes.extend(inside);
    }
}

/// Number and content of each section; none if they do not fill the file or there are none.
fn sections(bytes: &[u8]) -> Option<Vec<(u8, Vec<u8>)>> {
    let mut rest = bytes.get(8..)?;
    let mut sections = Vec::new();
    while let [id, after @ ..] = rest {
        let mut after = after;
        let size = leb128::read(&mut after)?;
        let (inside, next) = after.split_at_checked(usize::try_from(size).ok()?)?;
        sections.push((*id, inside.to_vec()));
        rest = next;
    }
    if sections.is_empty() { None } else { Some(sections) }
}
