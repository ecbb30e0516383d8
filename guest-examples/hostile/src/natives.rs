//! Attacks through the native steps and models that a component may call.

use std::hint::black_box;

use super::gpux::pipeline::builtins;
use super::gpux::pipeline::types::{ElementType, Error, LentValue, NamedLentValue, NamedValue, Tensor, Value};

pub(super) fn attack(attack: &str, inputs: Vec<NamedValue>) -> Result<Option<Value>, Error> {
    let value = match attack {
        "flood-builtins" => loop {
            black_box(builtins::run("no-such-step", "", &[]).is_err());
        },
        "vary-options" => {
            for number in 0_u32.. {
                let options = format!(r#"{{"size": [{}, {}]}}"#, 1 + number % 1000, 1 + number / 1000);
                black_box(builtins::run("resize", &options, &[]).is_err());
            }
            None
        }
        "slow-builtin" => {
            let tensor = zeros(&[1 << 20])?;
            loop {
                black_box(builtins::run("copy", "", &[lent(&tensor)]).is_err());
            }
        }
        "builtin" => {
            let tensor = Tensor::create(ElementType::Uint8, &[3], &[1, 2, 3]).map_err(Error::Failed)?;
            let input = NamedLentValue { name: "value".into(), ..lent(&tensor) };
            let mut outputs = builtins::run("copy", r#"{"times": 2}"#, &[input])?;
            // The input was lent, so it is still ours.
            assert_eq!(tensor.data(), [1, 2, 3]);
            outputs.pop().map(|output| output.value)
        }
        "builtin-wrong-options" => {
            return Err(refused(builtins::run("copy", r#"{"times": "x"}"#, &[])));
        }
        "builtin-too-large" => {
            let tensor = zeros(&[1 << 20])?;
            return Err(refused(builtins::run("copy", r#"{"times": 1000000}"#, &[lent(&tensor)])));
        }
        // Enlarging costs most for each byte that is given: the longest call that is admitted.
        "resize-for-ever" => {
            let tensor = zeros(&[512, 512, 1])?;
            loop {
                let options = r#"{"size": [1448, 1448], "filter": "lanczos"}"#;
                black_box(builtins::run("resize", options, &[lent(&tensor)])?);
            }
        }
        "nested-builtins" => {
            let mut tensor = zeros(&[256, 256, 1])?;
            for round in 0_u32.. {
                let side = 255 + round % 2;
                let options = format!(r#"{{"size": [{side}, {side}]}}"#);
                let output = builtins::run("resize", &options, &[lent(&tensor)])?.pop();
                let Some(NamedValue { value: Value::Tensor(next), .. }) = output else { break };
                tensor = next;
            }
            None
        }
        "builtin-for-itself" => return Err(refused(builtins::run("wasm", r#"{"component": "x.wasm"}"#, &[]))),
        "builtin-reads-files" => {
            return Err(refused(builtins::run("top-k", r#"{"labels": "/etc/passwd"}"#, &[])));
        }
        "nan-option" => return Err(refused(builtins::run("normalize", r#"{"scale": 1e999}"#, &[]))),
        "huge-size" => {
            let tensor = zeros(&[4, 4, 1])?;
            return Err(refused(builtins::run("resize", r#"{"size": [4294967295, 4294967295]}"#, &[lent(&tensor)])));
        }
        // Between its two passes the picture is as high as before and as wide as after.
        "tall-picture" => {
            let tensor = zeros(&[65_536, 1, 1])?;
            return Err(refused(builtins::run(
                "resize",
                r#"{"size": [1, 1000], "library": "torch"}"#,
                &[lent(&tensor)],
            )));
        }
        // One label of half a megabyte, for each of 16 384 rows.
        "long-label" => {
            let scores = zeros(&[16_384, 1])?;
            let options = format!(r#"{{"k": 1, "labels": ["{}"]}}"#, "x".repeat(1 << 19));
            return Err(refused(builtins::run("top-k", &options, &[lent(&scores)])));
        }
        // A megabyte of scores, which as JSON takes a hundred.
        "every-score" => {
            let scores = Tensor::zeros(ElementType::Uint8, &[1 << 20]).map_err(Error::Failed)?;
            return Err(refused(builtins::run("top-k", r#"{"k": 1048576}"#, &[lent(&scores)])));
        }
        // The same text of JSON lent again and again.
        "lent-json-bombs" => {
            let text = format!("[{}0]", "0,".repeat(16_000));
            let value = || NamedLentValue { name: String::new(), value: LentValue::Json(text.clone()) };
            let lent: Vec<_> = (0..60).map(|_| value()).collect();
            return Err(refused(builtins::run("softmax", "", &lent)));
        }
        "write-input" => {
            let Some(Value::Tensor(tensor)) = inputs.into_iter().next().map(|input| input.value) else {
                return Ok(None);
            };
            tensor.write(0, &[9]).map_err(Error::Failed)?;
            Some(Value::Tensor(tensor))
        }
        "prepared" | "prepared-with-handle" => {
            let tensor = Tensor::create(ElementType::Uint8, &[3], &[1, 2, 3]).map_err(Error::Failed)?;
            let mut outputs = builtins::run_prepared(1, &[lent(&tensor)])?;
            outputs.pop().map(|output| output.value)
        }
        "unknown-prepared" => return Err(refused(builtins::run_prepared(u32::MAX, &[]))),
        "prepare-in-process" => {
            return Err(match builtins::prepare("copy", "") {
                Ok(_) => Error::Failed("the host did it".into()),
                Err(error) => error,
            });
        }
        "transform" => {
            let Some(Value::Tensor(tensor)) = inputs.into_iter().next().map(|input| input.value) else {
                return Ok(None);
            };
            let (a, b, c, d, e, f, g, h, i) = tensor.transform().unwrap_or((1., 0., 0., 0., 1., 0., 0., 0., 1.));
            tensor.set_transform(Some((a, b, c + 1., d, e, f * 2., g, h, i)));
            Some(Value::Tensor(tensor))
        }
        #[cfg(feature = "drive-model")]
        "require" | "model" | "model-not-granted" => {
            let model = if attack == "model-not-granted" { "other" } else { "rec" };
            let input = NamedLentValue { name: String::new(), value: LentValue::Text("seen".into()) };
            super::gpux::pipeline::models::run(model, &[input])?.pop().map(|output| output.value)
        }
        other => return Err(Error::InvalidInput(format!("no attack `{other}`"))),
    };
    Ok(value)
}

/// Prepares two steps, of which the second repeats twice.
pub(super) fn prepare() -> Result<(), Error> {
    let numbers = [builtins::prepare("copy", "")?, builtins::prepare("copy", r#"{"times": 2}"#)?];
    if numbers == [0, 1] { Ok(()) } else { Err(Error::Failed(format!("{numbers:?}"))) }
}

/// Prepares steps without end.
pub(super) fn prepare_many() -> Result<(), Error> {
    loop {
        builtins::prepare("copy", "")?;
    }
}

/// Prepares steps whose options are large.
pub(super) fn prepare_much() -> Result<(), Error> {
    let options = format!(r#"{{"times": 2{}}}"#, " ".repeat(1 << 20));
    loop {
        builtins::prepare("copy", &options)?;
    }
}

pub(super) fn prepare_wrong_options() -> Result<(), Error> {
    builtins::prepare("copy", r#"{"times": 0}"#).map(drop)
}

/// A prepared step runs in `configure`, too.
pub(super) fn run_in_configure() -> Result<(), Error> {
    prepare()?;
    let tensor = zeros(&[4])?;
    builtins::run_prepared(0, &[lent(&tensor)]).map(drop)
}

fn lent(tensor: &Tensor) -> NamedLentValue<'_> {
    NamedLentValue { name: String::new(), value: LentValue::Tensor(tensor) }
}

fn zeros(shape: &[u32]) -> Result<Tensor, Error> {
    Tensor::zeros(ElementType::Uint8, shape).map_err(Error::Failed)
}

/// What the host said to a call that it must not make.
fn refused(answer: Result<Vec<NamedValue>, Error>) -> Error {
    answer.err().unwrap_or(Error::Failed("the host did it".into()))
}
