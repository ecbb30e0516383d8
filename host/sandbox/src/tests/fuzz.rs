//! Random descriptions of components: schemas, options, JSON, signatures.

use std::time::Duration;

use super::super::bindings::step;
use super::super::{guest_output, options_schema};
use super::*;
use gpux_core::BoundedJsonTree;
use gpux_core::threads::processor_time;

// Its crate depends on this one.
#[allow(unreachable_pub, reason = "public in its crate")]
#[path = "../../../../tests/hostile/support/dice.rs"]
mod dice;

use dice::{Dice, Runs};

/// Far more than any schema here takes, and far less than for ever.
const LONG: Duration = Duration::from_secs(20);

fn in_time<T>(what: impl FnOnce() -> T) -> T {
    let begin = processor_time();
    let done = what();
    let taken = processor_time().saturating_sub(begin);
    assert!(taken < LONG, "it took {taken:?}");
    done
}

#[test]
fn fuzzed_schemas_never_panic() {
    let (mut refused, mut fitting, mut unfitting) = (0, 0, 0);
    Runs::of(1500).each(|dice| {
        let text = schema_of(dice, 4).to_string();
        let parsed = in_time(|| options_schema::parse(&text));
        let Ok(parsed) = parsed else {
            refused += 1;
            return;
        };
        for _ in 0..3 {
            let options = value(dice, 3);
            match in_time(|| options_schema::check(&parsed, &options)) {
                Ok(()) => fitting += 1,
                Err(SandboxError::Options { faults, .. }) => {
                    assert!(!faults.is_empty() && faults.len() <= 20);
                    unfitting += 1;
                }
                Err(_) => refused += 1,
            }
        }
    });
    assert!(refused > 0 && fitting > 0 && unfitting > 0, "{refused} {fitting} {unfitting}");
}

#[test]
fn rejects_excessive_patterns() {
    let many: serde_json::Map<_, _> = (0..2000).map(|number| (format!("\\w{{9}}{number}"), json!({}))).collect();
    let text = json!({ "patternProperties": many }).to_string();
    let error = options_schema::parse(&text).unwrap_err().to_string();
    assert!(error.contains("more than 100 patterns"), "{error}");
}

#[test]
fn fuzzed_json_stays_within_limits() {
    const PIECES: [&str; 16] =
        ["[", "]", "{", "}", ",", ":", "\"", "\\", "\\u", "d800", "0", "-", "1e9", "null", "\"a\":", "é"];
    Runs::of(20_000).each(|dice| {
        let text: String = (0..dice.below(60)).map(|_| *dice.pick(&PIECES)).collect();
        let read = BoundedJsonTree::parse(&text, 5, 4096).map(|(tree, _)| tree);
        let honest: Result<serde_json::Value, _> = serde_json::from_str(&text);
        match (read, honest) {
            (Ok(read), Ok(honest)) => assert_eq!(read, honest, "{text}"),
            (Ok(_), Err(error)) => panic!("{text}: {error}"),
            (Err(_), _) => {}
        }
    });
}

#[test]
fn fuzzed_signatures_stay_within_limits() {
    let limits = Limits::default();
    let mut accepted = 0;
    Runs::of(3000).each(|dice| {
        let ports = |dice: &mut Dice| (0..dice.below(4)).map(|_| port(dice)).collect();
        let given = step::Signature { inputs: ports(dice), outputs: ports(dice) };
        if let Ok(signature) = guest_output::signature(given, &limits) {
            accepted += 1;
            assert!(!signature.outputs.is_empty());
            for port in signature.inputs.iter().chain(&signature.outputs) {
                assert!(!port.name.is_empty() && port.name.len() <= limits.name_length);
                assert!(!port.description.chars().any(char::is_control), "{:?}", port.description);
            }
        }
    });
    assert!(accepted > 0);
}

/// A schema that uses what there is to use, mostly rightly.
fn schema_of(dice: &mut Dice, depth: usize) -> serde_json::Value {
    const KINDS: [&str; 8] = ["object", "array", "string", "number", "integer", "boolean", "null", "nothing"];
    const PATTERNS: [&str; 10] = [
        "(a+)+$",
        "^(a|a|aa)*b$",
        "\\w{500}\\w{500}",
        "(((((x{20}){20}){20}){20}){20})",
        "[",
        "(?=a)",
        "\\1",
        "^[a-z]{1,100}$",
        "\u{0}",
        ".*.*.*.*=.*",
    ];
    const REFERENCES: [&str; 8] =
        ["#", "#/$defs/a", "#/$defs/a/b~1c", "#/nowhere", "https://example.com/x", "file:///etc/passwd", "#a", ""];
    let mut schema = serde_json::Map::new();
    for _ in 0..=dice.below(3) {
        let (key, rule) = match dice.below(16) {
            0 | 1 => ("type", json!(dice.pick(&KINDS))),
            2 => ("pattern", json!(dice.pick(&PATTERNS))),
            3 => ("$ref", json!(dice.pick(&REFERENCES))),
            4 => ("maximum", number(dice)),
            5 => ("multipleOf", number(dice)),
            6 => ("minLength", number(dice)),
            7 => ("enum", json!([value(dice, 2), value(dice, 2)])),
            8 => ("const", value(dice, 3)),
            9 => ("uniqueItems", json!(true)),
            10 => ("required", json!(["a", "b"])),
            11 => ("format", json!(dice.pick(&["email", "uri", "regex", "date-time", "ipv6", "hostname"]))),
            12 => ("patternProperties", json!({ *dice.pick(&PATTERNS): leaf(dice, depth) })),
            13 => ("$defs", json!({"a": leaf(dice, depth)})),
            14 => ("properties", json!({"a": leaf(dice, depth), "b": leaf(dice, depth)})),
            _ => {
                let key = *dice.pick(&["allOf", "anyOf", "oneOf", "prefixItems"]);
                (key, json!([leaf(dice, depth), leaf(dice, depth)]))
            }
        };
        schema.insert(key.to_owned(), rule);
    }
    if dice.once_in(6) {
        let key = *dice.pick(&["not", "if", "then", "items", "contains", "additionalProperties", "propertyNames"]);
        schema.insert(key.to_owned(), leaf(dice, depth));
    }
    schema.into()
}

fn leaf(dice: &mut Dice, depth: usize) -> serde_json::Value {
    if depth == 0 { json!(dice.once_in(2)) } else { schema_of(dice, depth - 1) }
}

fn number(dice: &mut Dice) -> serde_json::Value {
    dice.pick(&[
        json!(0),
        json!(-1),
        json!(1),
        json!(2.5),
        json!(1e-300),
        json!(1e300),
        json!(u64::MAX),
        json!(i64::MIN),
    ])
    .clone()
}

fn value(dice: &mut Dice, depth: usize) -> serde_json::Value {
    match dice.below(if depth == 0 { 4 } else { 6 }) {
        0 => number(dice),
        1 => json!("a".repeat(dice.below(60))),
        2 => json!(dice.once_in(2)),
        3 => json!(null),
        4 => (0..dice.below(4)).map(|_| value(dice, depth - 1)).collect(),
        _ => json!({"a": value(dice, depth - 1), "b": value(dice, depth - 1)}),
    }
}

fn port(dice: &mut Dice) -> step::Port {
    let names = ["a", "b", "out", "", "\u{1b}[2J", "é", "\u{202e}"];
    let kind = match dice.below(4) {
        0 => step::Kind::Any,
        1 => step::Kind::Json,
        2 => step::Kind::Text,
        _ => {
            let dimension = |dice: &mut Dice| match dice.below(3) {
                0 => step::Dimension::Fixed(dice.next() as u32),
                1 => step::Dimension::Dynamic,
                _ => step::Dimension::Named(names[dice.below(names.len())].repeat(1 + dice.below(60))),
            };
            let axes = *dice.pick(&[0, 1, 4, 33]);
            let shape = dice.once_in(2).then(|| (0..axes).map(|_| dimension(dice)).collect());
            step::Kind::Tensor(step::TensorKind { elements: Vec::new(), shape, layout: None })
        }
    };
    let name = if dice.once_in(9) { "x".repeat(dice.below(300)) } else { (*dice.pick(&names)).to_owned() };
    step::Port { name, kind, optional: dice.once_in(4), description: names[dice.below(names.len())].repeat(3000) }
}
