//! `json-template`: values → the JSON that a caller wants.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use self::template::{ELEMENTS_PER_VALUE, FillError, FillRule, Template};
use super::ranking::MAX_ANSWER;
use crate::deadline::{Deadline, DeadlineExceeded};
use crate::ports;
use gpux_core::{
    BuildError, Builtin, Context, Group, Kind, Port, Signature, Step, StepFailure, Value, json_value_count,
    to_json_cancellable,
};

mod template;

/// Bytes of one JSON value besides its content.
const NODE: usize = size_of::<Json>();

/// Options of `json-template`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Options {
    /// The JSON to give, with placeholders in its texts: `{{name}}` is the value of this name, `{{name.field[0]}}`
    /// a part of it. A text that is nothing but a placeholder becomes the value, whatever its type; within a text
    /// it is inserted. `{{{{` stands for the braces themselves. Required.
    template: Json,
    /// What stands for a part that a value does not have: `error` refuses the request, `null` is put there.
    /// Default: error.
    #[serde(default)]
    missing: Missing,
    /// What becomes of a list or an object within a text: `error` refuses the request, `json` inserts its JSON.
    /// Default: error.
    #[serde(default)]
    lists: Lists,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Lists {
    #[default]
    Error,
    Json,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Missing {
    #[default]
    Error,
    Null,
}

/// Puts values into a JSON of the shape that a caller wants. Its inputs are the names that the template mentions,
/// values of any kind, written as in the results of `gpux run`; a name that no step before gives is refused when
/// the pipeline is built.
struct JsonTemplate {
    options: Options,
    template: Template,
    signature: Signature,
}

pub(super) fn builtin() -> Builtin {
    Builtin {
        name: "json-template",
        summary: "Puts values into the JSON that a caller wants",
        group: Group::Output,
        follows: "",
        example: "json-template: { template: { answer: \"{{top[0].label}}\", all: \"{{top}}\" } }",
        schema: || schemars::schema_for!(Options),
        build: |options, _| Ok(Box::new(JsonTemplate::new(ports::options(options)?)?)),
    }
}

impl JsonTemplate {
    fn new(options: Options) -> Result<Self, BuildError> {
        let mut names = Vec::new();
        let template =
            template::read(options.template.clone(), &mut names).map_err(|why| BuildError::option("template", why))?;
        if names.is_empty() {
            return Err(BuildError::option("template", "the template has no placeholder")
                .with_hint("`\"{{name}}\"` is the value of this name"));
        }
        let inputs = names.into_iter().map(|name| Port::new(name, Kind::Any)).collect();
        let output = Port { description: "the filled template".into(), ..Port::new("json", Kind::Json) };
        Ok(Self { options, template, signature: Signature { inputs, outputs: vec![output] } })
    }

    /// Bytes that the answer takes beside the template itself, or more than it may take.
    fn weight(&self, inputs: &[Arc<Json>], deadline: &Deadline) -> Result<usize, DeadlineExceeded> {
        let mut weights: Vec<Option<[usize; 2]>> = vec![None; inputs.len()];
        let mut sum = 0_usize;
        self.template.placeholders(&mut |place, in_text| {
            if sum > MAX_ANSWER {
                return Ok(());
            }
            // A part is no heavier than the whole, whose weight is found once.
            let both = match weights[place.input] {
                Some(both) => both,
                None => match inputs.get(place.input) {
                    Some(whole) => [weight(whole, deadline)?, length(whole, deadline)?],
                    None => [0; 2],
                },
            };
            weights[place.input] = Some(both);
            let most = both[usize::from(in_text)];
            let more = match place.find(inputs) {
                _ if most < MAX_ANSWER / 64 => most,
                Some(part) if in_text => length(part, deadline)?,
                Some(part) => weight(part, deadline)?,
                None => 0,
            };
            sum = sum.saturating_add(more);
            Ok(())
        })?;
        Ok(sum)
    }
}

/// Bytes that a JSON value takes in memory.
fn weight(json: &Json, deadline: &Deadline) -> Result<usize, DeadlineExceeded> {
    deadline.check_after(1)?;
    Ok(match json {
        Json::String(text) => NODE + text.len(),
        Json::Array(items) => items
            .iter()
            .try_fold(NODE, |sum, item| Ok::<_, DeadlineExceeded>(sum.saturating_add(weight(item, deadline)?)))?,
        Json::Object(fields) => fields.iter().try_fold(NODE, |sum, (name, value)| {
            Ok::<_, DeadlineExceeded>(
                sum.saturating_add(weight(value, deadline)?).saturating_add(name.len() + 2 * NODE),
            )
        })?,
        _ => NODE,
    })
}

/// Bytes that a JSON value takes within a text, where control characters become six.
fn length(json: &Json, deadline: &Deadline) -> Result<usize, DeadlineExceeded> {
    Ok(match json {
        Json::String(text) => text.len(),
        Json::Array(items) => items.iter().try_fold(2, |sum: usize, item| {
            Ok::<_, DeadlineExceeded>(sum.saturating_add(length_within(item, deadline)? + 1))
        })?,
        Json::Object(fields) => fields.iter().try_fold(2, |sum: usize, (name, value)| {
            Ok::<_, DeadlineExceeded>(
                sum.saturating_add(quoted_len(name)).saturating_add(length_within(value, deadline)? + 2),
            )
        })?,
        Json::Null | Json::Bool(_) => 5,
        Json::Number(number) => number.to_string().len(),
    })
}

fn length_within(json: &Json, deadline: &Deadline) -> Result<usize, DeadlineExceeded> {
    let length = json.as_str().map_or_else(|| length(json, deadline), |text| Ok(quoted_len(text)))?;
    deadline.check_after(ELEMENTS_PER_VALUE + length).map(|()| length)
}

/// Bytes of a text as a JSON string.
fn quoted_len(text: &str) -> usize {
    let byte = |byte: u8| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 8 | 12 => 2,
        0..0x20 => 6,
        _ => 1,
    };
    text.bytes().map(byte).sum::<usize>() + 2
}

/// Bytes that a value takes as JSON, before it is one.
fn weight_as_json(value: &Value, deadline: &Deadline) -> Result<usize, DeadlineExceeded> {
    Ok(match value {
        Value::Tensor(tensor) => {
            json_value_count(tensor.shape()).saturating_mul(2 * NODE).saturating_add(tensor.byte_len())
        }
        Value::Text(text) => text.len(),
        Value::Bytes(bytes) => bytes.len().saturating_mul(2),
        Value::Json(json) => weight(json, deadline)?,
    })
}

impl Step for JsonTemplate {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn buffers(&self, inputs: &[Option<Value>]) -> usize {
        // Without a deadline, none is exceeded.
        let weight = |value: &Value| weight_as_json(value, &Deadline::default()).unwrap_or(usize::MAX);
        let weights: Vec<_> = inputs.iter().map(|input| input.as_ref().map_or(0, weight)).collect();
        let mut sum = weights.iter().copied().fold(0, usize::saturating_add);
        let counted: Result<(), DeadlineExceeded> = self.template.placeholders(&mut |place, in_text| {
            let weight = weights.get(place.input).copied().unwrap_or(0);
            // A value in a text is copied and escaped, and the text grows by doubling.
            sum = sum.saturating_add(if in_text { weight.saturating_mul(8) } else { weight });
            Ok(())
        });
        counted.map_or(usize::MAX, |()| sum)
    }

    fn json_depth(&self, inputs: &[usize]) -> usize {
        self.template.depth(inputs)
    }

    fn run(&self, inputs: Vec<Option<Value>>, context: &mut Context) -> Result<Vec<Value>, StepFailure> {
        let deadline = &Deadline::from_context(context);
        let invalid = |why: String| StepFailure::InvalidInput(format!("json-template: {why}"));
        let mut values = Vec::with_capacity(inputs.len());
        let mut inputs = inputs.into_iter();
        for port in &self.signature.inputs {
            let value =
                inputs.next().flatten().ok_or_else(|| invalid(format!("the input `{}` is missing", port.name)))?;
            if weight_as_json(&value, deadline)? > MAX_ANSWER {
                return Err(invalid(format!("`{}` is too large to be written as JSON", port.name)));
            }
            values.push(match value {
                Value::Json(json) => json,
                other => Arc::new(to_json_cancellable(&other, deadline).ok_or(DeadlineExceeded)?),
            });
        }
        if self.weight(&values, deadline)? > MAX_ANSWER {
            return Err(invalid("the answer would take more than 512 MiB".into()));
        }
        let rule = FillRule {
            missing_is_error: self.options.missing == Missing::Error,
            inserts_lists: self.options.lists == Lists::Json,
        };
        let filled = self.template.fill(&values, rule, deadline);
        let filled = filled.map_err(|why| match why {
            FillError::Missing(part) => invalid(format!("there is no `{part}`")),
            FillError::Structured(why) => {
                invalid(format!("a text takes no list or object; {why}, or let `lists: json` insert all of it"))
            }
            FillError::DeadlineExceeded(late) => late.into(),
        })?;
        Ok(vec![filled.into()])
    }

    fn details(&self) -> Json {
        json!({"template": self.options.template, "missing": self.options.missing, "lists": self.options.lists})
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use super::*;
    use gpux_core::Tensor;

    fn step(options: Json) -> Result<Box<dyn Step>, BuildError> {
        crate::reference::build(builtin(), options)
    }

    fn run(options: Json, inputs: Vec<Value>) -> Result<Json, StepFailure> {
        let inputs = inputs.into_iter().map(Some).collect();
        let Value::Json(json) = step(options).unwrap().run(inputs, &mut Context::default())?.remove(0) else {
            panic!("not JSON")
        };
        Ok(json.as_ref().clone())
    }

    #[test]
    fn fills_values_of_every_kind() {
        let template = json!({"t": "{{tensor}}", "first": "{{tensor[0]}}", "b": "{{bytes}}", "s": "say {{text}}"});
        let tensor = Tensor::new([2], vec![0.1_f32, f32::NAN]).unwrap();
        let inputs = vec![tensor.into(), vec![1_u8, 2].into(), "hello".into()];
        let filled = run(json!({ "template": template }), inputs).unwrap();
        let expected = json!({"t": [0.1, "NaN"], "first": 0.1, "b": {"base64": "AQI="}, "s": "say hello"});
        assert_eq!(filled, expected);
    }

    #[test]
    fn missing_parts_are_errors_or_null() {
        let inputs = || vec![json!([]).into()];
        let error = run(json!({"template": "{{top[0].label}}"}), inputs()).unwrap_err();
        assert_eq!(error.to_string(), "json-template: there is no `top[0].label`");
        assert_eq!(run(json!({"template": "{{top[0].label}}", "missing": "null"}), inputs()).unwrap(), json!(null));
        assert!(run(json!({"template": "{{top}}"}), vec![]).is_err());
    }

    #[test]
    fn rejects_large_results_before_allocating() {
        let large = || vec!["x".repeat(20 << 20).into()];
        let template = vec!["{{text}}"; 40];
        assert!(run(json!({ "template": template }), large()).unwrap_err().to_string().contains("512 MiB"));
        assert!(run(json!({"template": "{{text}}"}), large()).is_ok());
        let controls = || vec![json!(["\u{1}".repeat(60 << 20)]).into()];
        assert!(
            run(json!({"template": "{{list}} {{list}}", "lists": "json"}), controls())
                .unwrap_err()
                .to_string()
                .contains("512 MiB")
        );
        let wide = Tensor::zeros(gpux_core::ElementType::Uint8, [16 << 20]).unwrap();
        assert!(run(json!({"template": "{{x}}"}), vec![wide.into()]).unwrap_err().to_string().contains("too large"));
    }

    #[test]
    fn measures_empty_lists() {
        use gpux_core::ElementType::Uint8;
        let empty = Tensor::zeros(Uint8, [1 << 20, 0]).unwrap();
        let step = step(json!({"template": vec!["{{x}}"; 40]})).unwrap();
        assert!(step.buffers(&[Some(empty.clone().into())]) > 40 * (1 << 20) * NODE);
        let refused = step.run(vec![Some(empty.into())], &mut Context::default()).unwrap_err();
        assert!(refused.to_string().contains("512 MiB"), "{refused}");
        let deep = Tensor::zeros(Uint8, [vec![1 << 18], vec![1; 63]].concat()).unwrap();
        let refused = step.run(vec![Some(deep.into())], &mut Context::default()).unwrap_err();
        assert!(refused.to_string().contains("too large"), "{refused}");
    }

    #[test]
    fn measures_the_length_of_json() {
        for json in [
            json!(null),
            json!(false),
            json!(-0.25e-7),
            json!([]),
            json!({}),
            json!(["a\"\\\n\u{1}\u{7f}ž", 1, {"\t\u{b}": [null, true]}]),
        ] {
            let (written, length) = (json.to_string().len(), length(&json, &Deadline::default()).unwrap());
            assert!((written..=written + 8).contains(&length), "{json}: {length}");
        }
    }

    /// A template of a stranger mentions a large value often.
    #[test]
    fn measures_large_values_once() {
        let template = vec!["{{list}}"; 20_000];
        let list = json!(vec![0; 300_000]);
        let step = step(json!({ "template": template })).unwrap();
        let inputs = vec![Some(Value::from(list))];
        assert!(step.buffers(&inputs) > MAX_ANSWER);
        assert!(step.run(inputs, &mut Context::default()).unwrap_err().to_string().contains("512 MiB"));
    }

    #[test]
    fn names_become_inputs() {
        let step = step(json!({"template": {"a": "{{top[0]}}", "b": ["{{text}} {{top}}"]}})).unwrap();
        let names: Vec<_> = step.signature().inputs.iter().map(|port| port.name.as_str()).collect();
        assert_eq!(names, ["top", "text"]);
    }

    #[test]
    fn rejects_invalid_options_and_inputs() {
        for options in [
            json!({}),
            json!({"template": "plain"}),
            json!({"template": "{{a"}),
            json!({"template": "{{a}}", "missing": 0}),
        ] {
            assert!(step(options).is_err());
        }
    }
}
