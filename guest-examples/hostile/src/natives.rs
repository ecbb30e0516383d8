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
        #[cfg(feature = "drive-model")]
        "model" | "model-not-granted" => {
            let model = if attack == "model" { "rec" } else { "other" };
            let input = NamedLentValue { name: String::new(), value: LentValue::Text("seen".into()) };
            super::gpux::pipeline::models::run(model, &[input])?.pop().map(|output| output.value)
        }
        other => return Err(Error::InvalidInput(format!("no attack `{other}`"))),
    };
    Ok(value)
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
