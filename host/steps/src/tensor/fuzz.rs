//! Random options on random tensors: no step panics, and outputs match the inferred kinds.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use serde_json::{Value as Json, json};

use crate::reference::random;
use gpux_core::{Context, ElementSet, ElementType, Kind, StepFailure, Tensor, TensorKind, Value};

const SIZES: [usize; 6] = [0, 1, 1, 2, 3, 5];
const NUMBERS: [i64; 12] = [0, 1, -1, 2, -2, 3, 5, 7, 64, -100, i64::MAX, i64::MIN];

struct RandomOptions<R>(R);

impl<R: FnMut(usize) -> usize> RandomOptions<R> {
    fn choose<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[(self.0)(choices.len())]
    }

    fn tensor(&mut self) -> Tensor {
        let rank = (self.0)(5);
        let shape: Vec<usize> = (0..rank).map(|_| self.choose(&SIZES)).collect();
        let count: usize = shape.iter().product();
        let numbers: Vec<f64> = (0..count).map(|_| self.choose(&[0.0, 1.0, -3.5, 300.0, f64::NAN, 1e300])).collect();
        let element = self.choose(&ElementType::ALL);
        let numbers = Tensor::new(shape.clone(), numbers).unwrap();
        match element {
            ElementType::String => Tensor::new(shape, vec!["1.5".to_owned(); count]).unwrap(),
            element => numbers.cast(element).unwrap(),
        }
    }

    fn list(&mut self) -> Vec<i64> {
        let length = (self.0)(5);
        (0..length).map(|_| self.choose(&NUMBERS)).collect()
    }

    fn options(&mut self, step: &str) -> Json {
        let number = self.choose(&NUMBERS);
        match step {
            "cast" => json!({"to": self.choose(&ElementType::ALL).name()}),
            "scale" => json!({"factor": number, "offset": 0.5}),
            "clip" => json!({"min": number, "max": self.choose(&NUMBERS)}),
            "reshape" => json!({"shape": self.list()}),
            "transpose" if (self.0)(4) == 0 => json!({}),
            "transpose" => json!({"axes": self.list()}),
            "squeeze" if (self.0)(3) == 0 => json!({}),
            "squeeze" => json!({"axes": self.list()}),
            "expand" if (self.0)(2) == 0 => json!({"axes": self.list()}),
            "expand" => json!({"broadcast": self.list(), "axes": number}),
            "slice" => {
                let length = 1 + (self.0)(4);
                let pieces =
                    ["...", ":", "1:", ":-1", "::2", "::-1", "0", "-1", "2:1", "9223372036854775807:", "-7::3"];
                let parts: Vec<_> = (0..length).map(|_| self.choose(&pieces)).collect();
                json!({"index": parts.join(",")})
            }
            "split" if (self.0)(2) == 0 => json!({"axis": number, "parts": self.choose(&[1, 2, 3])}),
            "split" => json!({"axis": self.choose(&[0, 1, -1]), "sizes": self.list()}),
            "pad-tensor" => {
                let length = (self.0)(4);
                let pads: Vec<_> =
                    (0..length).map(|_| [self.choose(&[0, 1, 7, u32::MAX]), self.choose(&[0, 2])]).collect();
                json!({"pads": pads, "mode": self.choose(&["constant", "edge", "reflect"])})
            }
            "one-hot" => json!({"classes": self.choose(&[1, 7, 400, 1 << 30]), "axis": number}),
            _ => json!({"axis": self.choose(&[0, 1, -1, number])}),
        }
    }
}

#[test]
fn random_options_and_tensors_never_panic() {
    let mut dice = RandomOptions(random());
    let (mut ran, mut refused) = (0, 0);
    for _ in 0..400 {
        for builtin in super::all() {
            let Ok(step) = crate::reference::build(builtin, dice.options(builtin.name)) else { continue };
            let first = dice.tensor();
            let mut inputs = vec![Some(Value::from(first.clone()))];
            if matches!(builtin.name, "concat" | "stack") {
                let second = if dice.choose(&[true, false]) { first } else { dice.tensor() };
                inputs.push(Some(second.into()));
            }
            let kinds: Vec<_> = inputs.iter().map(|input| input.as_ref().map(Value::kind)).collect();
            let open: Vec<_> =
                kinds.iter().map(|_| Some(Kind::Tensor(TensorKind::of_elements(ElementSet::ANY)))).collect();
            let _ = step.infer(&open);
            step.buffers(&inputs);
            let promised = step.infer(&kinds);
            match step.run(inputs, &mut Context::default()) {
                Ok(values) => {
                    let promised = promised.unwrap_or_else(|why| panic!("{}: {why}", builtin.name));
                    for (promised, value) in promised.iter().zip(&values) {
                        promised.accepts(&value.kind()).unwrap_or_else(|why| panic!("{}: {why}", builtin.name));
                    }
                    ran += 1;
                }
                Err(StepFailure::InvalidInput(_)) => refused += 1,
                Err(other) => panic!("{}: {other}", builtin.name),
            }
        }
    }
    assert!(ran > 500 && refused > 500, "{ran} ran, {refused} were refused");
}
