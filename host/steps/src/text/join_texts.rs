//! `join-texts`: a list of texts → one text.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::text_input::{self, MAX_TEXT};
use crate::deadline::Deadline;
use crate::operation::{BuiltinStep, Inputs, Operation};
use crate::ports;
use gpux_core::{Builtin, Group, Kind, Mismatch, Port, Signature, StepFailure, Value};

/// Options of `join-texts`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Options {
    /// What stands between two texts. Default: a line break.
    #[serde(default = "Options::line_break")]
    #[schemars(length(max = 1024))]
    separator: String,
}

impl Options {
    fn line_break() -> String {
        "\n".to_owned()
    }
}

/// Puts texts one behind the other.
struct JoinTexts(Options);

pub(super) fn builtin() -> Builtin {
    Builtin {
        name: "join-texts",
        summary: "Puts the texts of a list together to one",
        group: Group::Text,
        follows: "Python: str.join",
        example: "join-texts: { separator: \" \" }",
        schema: || schemars::schema_for!(Options),
        build: |options, _| {
            let options: Options = ports::options(options)?;
            let signature = Signature::unary(
                text_input::port("texts", "a list of texts"),
                Port { description: "all of them".into(), ..Port::new("text", Kind::Text) },
            );
            Ok(Box::new(BuiltinStep::new(signature, json!(options), JoinTexts(options))))
        },
    }
}

/// The bytes of texts with a separator of this many bytes between them.
fn joined_bytes(texts: &[String], separator: usize) -> usize {
    let between = separator.saturating_mul(texts.len().saturating_sub(1));
    texts.iter().map(String::len).fold(between, usize::saturating_add)
}

impl Operation for JoinTexts {
    fn infer(&self, signature: &Signature, inputs: &[Option<Kind>]) -> Result<Vec<Kind>, Mismatch> {
        for (port, given) in signature.inputs.iter().zip(inputs) {
            given.as_ref().map(|given| text_input::inferred_count(port, given)).transpose()?;
        }
        Ok(vec![Kind::Text])
    }

    fn buffers(&self, inputs: &[Option<Value>]) -> usize {
        // The texts are copied, joined, and shared.
        let bytes = inputs.iter().flatten().map(Value::byte_len).fold(0, usize::saturating_add);
        let count = inputs.iter().flatten().map(|value| text_input::count_and_bytes(value).0).sum::<usize>();
        let more = size_of::<String>().saturating_add(self.0.separator.len());
        bytes.saturating_mul(3).saturating_add(count.saturating_mul(more))
    }

    fn run(&self, mut inputs: Inputs<'_>, _: &Deadline) -> Result<Vec<Value>, StepFailure> {
        let (name, value) = inputs.named()?;
        let is_empty = match &value {
            Value::Json(json) => json.as_array().is_some_and(Vec::is_empty),
            Value::Tensor(tensor) => tensor.is_empty(),
            Value::Text(_) | Value::Bytes(_) => false,
        };
        let texts = if is_empty { Vec::new() } else { text_input::read(value, name)? };
        let bytes = joined_bytes(&texts, self.0.separator.len());
        if bytes > MAX_TEXT {
            let message =
                format!("the joined text would have {bytes} bytes; at most {} MiB are joined", MAX_TEXT >> 20);
            return Err(StepFailure::InvalidInput(message));
        }
        Ok(vec![texts.join(&self.0.separator).into()])
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use gpux_core::{Context, ElementType, Tensor};

    fn run(options: serde_json::Value, texts: Value) -> Result<Value, StepFailure> {
        let step = crate::reference::build(builtin(), options).unwrap();
        Ok(step.run(vec![Some(texts)], &mut Context::default())?.remove(0))
    }

    #[test]
    fn puts_texts_together() {
        assert_eq!(run(json!({}), json!(["a", "", "b"]).into()).unwrap(), "a\n\nb".into());
        let tensor = Tensor::new([2], vec!["ä".to_owned(), "b".to_owned()]).unwrap();
        assert_eq!(run(json!({"separator": ", "}), tensor.into()).unwrap(), "ä, b".into());
        assert_eq!(run(json!({}), "alone".into()).unwrap(), "alone".into());
        assert_eq!(run(json!({}), json!([]).into()).unwrap(), "".into());
        assert_eq!(run(json!({}), Tensor::zeros(ElementType::String, [0]).unwrap().into()).unwrap(), "".into());
        for odd in [json!([1]).into(), json!({}).into(), Tensor::scalar(1_u8).into(), Value::from(vec![0xff_u8])] {
            assert!(matches!(run(json!({}), odd), Err(StepFailure::InvalidInput(_))));
        }
        let many = json!(vec![""; 1 << 17]);
        let error = run(json!({"separator": "x".repeat(1024)}), many.into()).unwrap_err().to_string();
        assert!(error.contains("at most 64 MiB"), "{error}");
    }
}
