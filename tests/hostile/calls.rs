//! Calls into the host with any arguments, made by a guest that does what its input says.

use std::time::{Duration, Instant};

use gpux_core::threads::processor_time;
use gpux_core::{Context, Step as _, Value};
use gpux_hostile_support::attack::limits;
use gpux_hostile_support::dice::{Dice, Runs};
use gpux_hostile_support::{memory, root};
use gpux_sandbox::ComponentConfig;
use serde_json::json;

use crate::{LATE, REGISTRY, SANDBOX, alone};

/// Memory that a thousand programs may leave behind: only the allocator's reserve.
const LEFT: usize = 96 << 20;

#[test]
fn random_calls_do_not_break_the_host() {
    let _alone = alone();
    let component = std::fs::read(root().join("guest-examples/hostile/hostile.wasm")).unwrap();
    let options = json!({"attack": "program"});
    let config = ComponentConfig { options, limits: limits(), ..ComponentConfig::default() };
    let step = SANDBOX.load(&component, config, &REGISTRY).unwrap();
    let run = |code: Vec<u8>| {
        let begin = processor_time();
        let given = step.run(vec![Some(Value::from(code))], &mut Context::default());
        let taken = processor_time().saturating_sub(begin);
        assert!(taken < limits().time + LATE, "it took {taken:?}");
        given
    };
    assert_eq!(run(vec![15, 0, 2, 0, b'h', b'i']), Ok(vec!["hi".into()]), "programs do something");
    let before = memory::begin();
    let (mut given, mut refused, mut longest) = (0, 0, Duration::ZERO);
    Runs::of(400).each(|dice| {
        let begin = Instant::now();
        match run(program(dice)) {
            Ok(values) => {
                assert_eq!(values.len(), 1);
                given += 1;
            }
            Err(failure) => {
                assert!(!failure.to_string().is_empty());
                refused += 1;
            }
        }
        longest = longest.max(begin.elapsed());
    });
    println!("{given} programs gave a value, {refused} an error; the longest took {longest:?}");
    if let (Some(before), Some(after)) = (before, memory::now()) {
        assert!(after < before + LEFT, "{} MiB are left behind", (after - before) >> 20);
    }
}

const NAMES: [&str; 8] = ["decode-image", "normalize", "resize", "softmax", "tokenize", "top-k", "", "\u{0}"];
const OPTIONS: [&str; 16] = [
    "",
    "{}",
    "null",
    "[",
    r#"{"size": [3, 5]}"#,
    r#"{"size": [1, 5000], "filter": "nearest"}"#,
    r#"{"size": [7, 1], "filter": "lanczos", "mode": "shortest"}"#,
    r#"{"size": 9, "filter": "area", "mode": "longest"}"#,
    r#"{"method": "imagenet"}"#,
    r#"{"scale": 1e308, "offset": -1e308, "std": [1e-308, 1, 1]}"#,
    r#"{"mean": [0.5, 0.5, 0.5, 0.5]}"#,
    r#"{"axis": -9}"#,
    r#"{"axis": 0}"#,
    r#"{"k": 3}"#,
    r#"{"k": 18446744073709551615, "labels": ["a", "b"]}"#,
    r#"{"channels": "rgba", "max_pixels": 100}"#,
];

/// Calls with arguments that are right often enough to get somewhere.
fn program(dice: &mut Dice) -> Vec<u8> {
    let mut code = Vec::new();
    for _ in 0..=dice.below(40) {
        let call = if dice.once_in(3) { *dice.pick(&[0_u8, 1, 17, 16]) } else { dice.below(20) as u8 };
        code.extend([call, dice.below(8) as u8]);
        match call {
            0 => {
                let (element, shape) = tensor(dice, &mut code);
                let size: usize = shape.iter().map(|size| *size as usize).fold(WIDTHS[element], usize::saturating_mul);
                let len = if dice.once_in(4) { dice.below(70) } else { size.min(4000) };
                let byte = *dice.pick(&[0, 1, 0x7f, 0xff]);
                text(&mut code, &vec![byte; len]);
            }
            1 => drop(tensor(dice, &mut code)),
            3 => code.extend([number(dice), number(dice)].into_iter().flat_map(u32::to_le_bytes)),
            4 => {
                code.extend(number(dice).to_le_bytes());
                let len = dice.below(20);
                text(&mut code, &bytes(dice, len));
            }
            17 => {
                text(&mut code, dice.pick(&NAMES).as_bytes());
                text(&mut code, dice.pick(&OPTIONS).as_bytes());
                let lent = *dice.pick(&[1_u8, 1, 1, 0, 2, 3]);
                code.push(lent);
                for _ in 0..lent {
                    let kind = *dice.pick(&[0_u8, 0, 0, 1, 2, 3]);
                    code.push(kind);
                    if kind == 0 {
                        code.push(dice.below(8) as u8);
                    } else {
                        let value = random_text(dice);
                        text(&mut code, &value);
                    }
                }
            }
            18 => code.extend((0..18).flat_map(|_| number(dice).to_le_bytes())),
            19 => {
                code.extend(number(dice).to_le_bytes());
                text(&mut code, dice.pick(&NAMES).as_bytes());
                text(&mut code, dice.pick(&OPTIONS).as_bytes());
            }
            _ => {
                let value = random_text(dice);
                text(&mut code, &value);
            }
        }
    }
    if dice.once_in(10) {
        let place = dice.below(code.len());
        code[place] ^= 1 << dice.below(8);
    }
    code
}

/// Bytes of an element, in the order of the guest's list; text last.
const WIDTHS: [usize; 14] = [1, 1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8, 1];

fn tensor(dice: &mut Dice, code: &mut Vec<u8>) -> (usize, Vec<u32>) {
    let element = dice.below(WIDTHS.len());
    let axes = dice.below(5);
    code.extend([element as u8, axes as u8]);
    let shape: Vec<u32> =
        (0..axes).map(|_| if dice.once_in(8) { number(dice) } else { *dice.pick(&[0, 1, 2, 3, 4, 17]) }).collect();
    code.extend(shape.iter().flat_map(|size| size.to_le_bytes()));
    (element, shape)
}

fn number(dice: &mut Dice) -> u32 {
    *dice.pick(&[0, 1, 2, 3, 7, 255, 256, 65_535, 1 << 20, 1 << 31, u32::MAX, u32::MAX - 1])
}

fn random_text(dice: &mut Dice) -> Vec<u8> {
    match dice.below(4) {
        0 => {
            let len = dice.below(64);
            bytes(dice, len)
        }
        1 => OPTIONS[dice.below(OPTIONS.len())].as_bytes().to_vec(),
        2 => b"[".repeat(dice.below(200)),
        _ => "é\u{0}\u{1b}[2J".repeat(dice.below(9)).into_bytes(),
    }
}

fn text(code: &mut Vec<u8>, text: &[u8]) {
    code.extend((text.len() as u16).to_le_bytes());
    code.extend(text);
}

fn bytes(dice: &mut Dice, len: usize) -> Vec<u8> {
    (0..len).map(|_| dice.next() as u8).collect()
}
