//! A step that attacks its sandbox. The option `attack` says how; without one it behaves.

use std::cell::RefCell;
use std::hint::black_box;

use serde::Deserialize;

use self::exports::gpux::pipeline::step::{Description, Dimension, Guest, Kind, Port, Signature, TensorKind};
use self::gpux::pipeline::types::{ElementType, Error, LentValue, NamedLentValue, NamedValue, Tensor, Value};
use self::gpux::pipeline::{builtins, log};

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
        let value = attack(&ATTACK.take(), inputs)?;
        let value = value.unwrap_or_else(|| Value::Text(format!("visit {visits}")));
        Ok(vec![NamedValue { name: "out".into(), value }])
    }
}

/// `None` where the attack comes back and the step goes on as if nothing had been.
fn attack(attack: &str, inputs: Vec<NamedValue>) -> Result<Option<Value>, Error> {
    match attack {
        "" | "wrong-kind" => {}
        "echo" => return Ok(inputs.into_iter().next().map(|input| input.value)),
        "spin" => spin(),
        "recurse" => {
            black_box(recurse(1));
        }
        "panic" => {
            log::log(log::Level::Error, "panicked: this guest means it");
            panic!();
        }
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
        "huge-result" => return Ok(Some(Value::Bytes(vec![1; 3 << 20]))),
        "deep-json" => return Ok(Some(Value::Json(format!("{}{}", "[".repeat(10_000), "]".repeat(10_000))))),
        "wide-json" => return Ok(Some(Value::Json(format!("[{}0]", "0,".repeat(500_000))))),
        "bad-utf8" => {
            // SAFETY: none; the broken text only travels to the host, which must refuse it.
            return Ok(Some(Value::Text(unsafe { String::from_utf8_unchecked(vec![b'a', 0xff, 0xc0]) })));
        }
        "bad-json" => return Ok(Some(Value::Json("{".into()))),
        "lying-length" => return Err(refused(Tensor::create(ElementType::Float32, &[3, 4], &[0; 47]))),
        "overflowing-shape" => return Err(refused(Tensor::zeros(ElementType::Float64, &[u32::MAX; 8]))),
        "many-axes" => return Err(refused(Tensor::zeros(ElementType::Uint8, &[1; 1000]))),
        "bad-bool" => return Err(refused(Tensor::create(ElementType::Boolean, &[1], &[7]))),
        "read-outside" => {
            let tensor = Tensor::zeros(ElementType::Uint8, &[4]).map_err(Error::Failed)?;
            return Err(refused(tensor.read(u32::MAX, u32::MAX)));
        }
        "big-tensor" => return Err(refused(Tensor::zeros(ElementType::Uint8, &[1 << 30]))),
        "flood-tensors" => hoard(&[]),
        "hoard-tensors" => hoard(&[1 << 20]),
        "flood-log" => (0..100_000).for_each(|line| log::log(log::Level::Info, &format!("line {line}"))),
        "long-log" => log::log(log::Level::Warn, &"x".repeat(1 << 20)),
        "flood-builtins" => loop {
            black_box(builtins::run("no-such-step", "", &[]).is_err());
        },
        "slow-builtin" => {
            let tensor = Tensor::zeros(ElementType::Uint8, &[1 << 20]).map_err(Error::Failed)?;
            loop {
                let input = NamedLentValue { name: String::new(), value: LentValue::Tensor(&tensor) };
                black_box(builtins::run("copy", "", &[input]).is_err());
            }
        }
        "builtin" => {
            let tensor = Tensor::create(ElementType::Uint8, &[3], &[1, 2, 3]).map_err(Error::Failed)?;
            let input = NamedLentValue { name: "value".into(), value: LentValue::Tensor(&tensor) };
            let mut outputs = builtins::run("copy", r#"{"times": 2}"#, &[input])?;
            // The input was lent, so it is still ours.
            assert_eq!(tensor.data(), [1, 2, 3]);
            return Ok(outputs.pop().map(|output| output.value));
        }
        "builtin-wrong-options" => {
            return Err(builtins::run("copy", r#"{"times": "x"}"#, &[])
                .err()
                .unwrap_or(Error::Failed("accepted".into())));
        }
        "builtin-too-large" => {
            let tensor = Tensor::zeros(ElementType::Uint8, &[1 << 20]).map_err(Error::Failed)?;
            let input = NamedLentValue { name: String::new(), value: LentValue::Tensor(&tensor) };
            return Err(builtins::run("copy", r#"{"times": 1000000}"#, &[input])
                .err()
                .unwrap_or(Error::Failed("run".into())));
        }
        "write-input" => {
            let Some(Value::Tensor(tensor)) = inputs.into_iter().next().map(|input| input.value) else {
                return Ok(None);
            };
            tensor.write(0, &[9]).map_err(Error::Failed)?;
            return Ok(Some(Value::Tensor(tensor)));
        }
        #[cfg(feature = "drive-model")]
        "model" | "model-not-granted" => {
            let model = if attack == "model" { "rec" } else { "other" };
            let input = NamedLentValue { name: String::new(), value: LentValue::Text("seen".into()) };
            return Ok(self::gpux::pipeline::models::run(model, &[input])?.pop().map(|output| output.value));
        }
        other => return Err(Error::InvalidInput(format!("no attack `{other}`"))),
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

/// Makes tensors and keeps them all.
fn hoard(shape: &[u32]) -> ! {
    let mut hoard = Vec::new();
    loop {
        hoard.push(black_box(Tensor::zeros(ElementType::Uint8, shape)));
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
