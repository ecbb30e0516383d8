//! A step that attacks its sandbox. The option `attack` says how; without one it behaves.

use std::cell::RefCell;
use std::hint::black_box;

use serde::Deserialize;

mod handles;
mod natives;
mod program;
mod values;

use self::exports::gpux::pipeline::step::{Description, Dimension, Guest, Kind, Port, Signature, TensorKind};
use self::gpux::pipeline::log;
use self::gpux::pipeline::types::{Error, NamedValue, Value};
use self::values::{BOMBS, CLAIMS};

wit_bindgen::generate!({ path: "../../wit", world: "pipeline-step" });

#[derive(Deserialize)]
struct Options<'a> {
    attack: Option<&'a str>,
}

thread_local! {
    static ATTACK: RefCell<String> = const { RefCell::new(String::new()) };
    /// What the last request left behind; every request must find 0.
    static VISITS: RefCell<u32> = const { RefCell::new(0) };
}

struct Hostile;

impl Guest for Hostile {
    fn describe() -> Description {
        if cfg!(feature = "spin-in-describe") {
            spin();
        }
        Description {
            summary: "attacks its sandbox".into(),
            options_schema:
                r#"{"type":"object","additionalProperties":false,"properties":{"attack":{"type":"string"}}}"#.into(),
        }
    }

    fn configure(options: String) -> Result<Signature, Error> {
        let (options, _): (Options<'_>, usize) =
            serde_json_core::from_str(&options).map_err(|_| Error::InvalidInput("bad options".into()))?;
        let attack = options.attack.unwrap_or_default();
        let mut outputs = vec![port("out")];
        match attack {
            "configure-spin" => spin(),
            "configure-refuse" => return Err(Error::Failed("I do not want to\x1b[2J".into())),
            "configure-twins" => outputs.push(port("out")),
            "configure-ports" => outputs.extend((0..1000).map(|index| port(&index.to_string()))),
            "configure-long-name" => outputs = vec![port(&"x".repeat(1000))],
            "configure-optional" => outputs[0].optional = true,
            "configure-axes" => {
                let shape = Some(vec![Dimension::Fixed(u32::MAX); 1000]);
                outputs[0].kind = Kind::Tensor(TensorKind { elements: vec![], shape, layout: None });
            }
            "wrong-kind" => outputs[0].kind = Kind::Json,
            "keep-handle" | "kept-handle" => handles::keep(),
            "json-bombs" => outputs = (0..BOMBS).map(|index| port(&index.to_string())).collect(),
            "returned-twice" => outputs.push(port("again")),
            "prepared" | "unknown-prepared" => natives::prepare()?,
            "prepared-with-handle" => {
                handles::keep();
                natives::prepare()?;
            }
            "prepare-many" => natives::prepare_many()?,
            "prepare-much" => natives::prepare_much()?,
            "prepare-wrong-options" => natives::prepare_wrong_options()?,
            "run-prepared-in-configure" => natives::run_in_configure()?,
            #[cfg(feature = "drive-model")]
            "require" => self::gpux::pipeline::models::require("rec")?,
            #[cfg(feature = "drive-model")]
            "require-not-granted" => self::gpux::pipeline::models::require("other")?,
            "claimed-texts" => outputs = (0..CLAIMS).map(|index| port(&index.to_string())).collect(),
            _ => {}
        }
        ATTACK.set(attack.to_owned());
        let mut input = port("in");
        input.optional = true;
        Ok(Signature { inputs: vec![input], outputs })
    }

    fn process(inputs: Vec<NamedValue>) -> Result<Vec<NamedValue>, Error> {
        let visits = VISITS.with_borrow_mut(|visits| {
            *visits += 1;
            *visits
        });
        let value = match ATTACK.take().as_str() {
            "many-results" => return Ok(values::many()),
            "claimed-texts" => return Ok(values::claimed()),
            "json-bombs" => return Ok(values::json_bombs()),
            "returned-twice" => return handles::returned_twice(),
            attack => run(attack, inputs)?,
        };
        let value = value.unwrap_or_else(|| Value::Text(format!("visit {visits}")));
        Ok(vec![NamedValue { name: "out".into(), value }])
    }
}

/// `None` where the attack comes back and the step goes on as if nothing had been.
fn run(attack: &str, inputs: Vec<NamedValue>) -> Result<Option<Value>, Error> {
    match attack {
        "" | "wrong-kind" | "keep-handle" => {}
        "echo" => return Ok(inputs.into_iter().next().map(|input| input.value)),
        "spin" => spin(),
        "recurse" => {
            black_box(recurse(1));
        }
        "panic" => {
            log::log(log::Level::Error, "panicked: this guest means it");
            panic!();
        }
        "trap" => std::process::abort(),
        "out-of-bounds" => {
            // SAFETY: none; reading far outside of the memory is the attack.
            black_box(unsafe { std::ptr::read_volatile(usize::MAX as *const u8) });
        }
        "allocate" => {
            let mut hoard: Vec<Vec<u8>> = Vec::new();
            loop {
                hoard.push(black_box(vec![1; 1 << 20]));
            }
        }
        "flood-log" => (0..100_000).for_each(|line| log::log(log::Level::Info, &format!("line {line}"))),
        "million-lines" => (0..1_000_000).for_each(|_| log::log(log::Level::Info, "again")),
        "long-log" => log::log(log::Level::Warn, &"x".repeat(1 << 20)),
        "long-logs" => {
            let line = " ".repeat(2 << 20);
            loop {
                log::log(log::Level::Warn, &line);
            }
        }
        "kept-handle" => return handles::kept(),
        "program" => return program::run(inputs),
        other => {
            let known = values::attack(other).or_else(|| handles::attack(other, &inputs));
            return known.unwrap_or_else(|| natives::attack(other, inputs));
        }
    }
    Ok(None)
}

fn port(name: &str) -> Port {
    Port { name: name.into(), kind: Kind::Any, optional: false, description: String::new() }
}

fn spin() -> ! {
    loop {
        black_box(());
    }
}

fn recurse(depth: u64) -> u64 {
    if depth == 0 { 0 } else { black_box(recurse(black_box(depth + 1))) + 1 }
}

/// What the host said to something it must not accept.
fn refused<T>(answer: Result<T, String>) -> Error {
    match answer {
        Ok(_) => Error::Failed("the host accepted it".into()),
        Err(why) => Error::InvalidInput(why),
    }
}

export!(Hostile);
