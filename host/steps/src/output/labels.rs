//! `labels`: the numbers of classes → their names.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::label_names::LabelSource;
use super::ranking::MAX_ANSWER;
use crate::deadline::{Deadline, DeadlineExceeded, ELEMENTS_PER_CHECK};
use crate::operation::{BuiltinStep, Inputs, Operation};
use crate::ports;
use gpux_core::{
    BuildError, Builtin, ElementSet, Group, Kind, OptionOrigin, Port, Signature, StepFailure, Tensor, TensorKind,
    Value, json_value_count, to_json_cancellable,
};

/// Bytes of a name, beside its text.
const ENTRY: usize = 64;

/// Options of `labels`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Options {
    /// The name of each number, from 0: a list, the path of a text file with one label a line, or
    /// `{ model: NAME, key: KEY }`, a key of a model's metadata. Required.
    labels: LabelSource,
    /// The name of a number that has none. Default: none, such a number is an error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unknown: Option<String>,
}

/// Names the classes that a model gives as whole numbers, of any shape, as JSON: a string, a list, or
/// lists in a list.
struct NameClasses {
    labels: Vec<String>,
    unknown: Option<String>,
}

pub(super) fn builtin() -> Builtin {
    Builtin {
        name: "labels",
        summary: "Turns class numbers into their names",
        group: Group::Output,
        follows: "transformers: config.id2label",
        example: "labels: { labels: ./labels.txt }",
        schema: || schemars::schema_for!(Options),
        build: |options, site| Ok(Box::new(NameClasses::new(ports::options(options)?, site)?)),
    }
}

impl NameClasses {
    fn new(options: Options, site: &OptionOrigin<'_>) -> Result<BuiltinStep<Self>, BuildError> {
        let indices = Kind::Tensor(TensorKind::of_elements(ElementSet::integers()));
        let signature = Signature::unary(
            Port { description: "numbers of classes".into(), ..Port::new("indices", indices) },
            Port { description: "their names, in the same shape".into(), ..Port::new("labels", Kind::Json) },
        );
        let labels = options.labels.read(site)?;
        let details = json!({"labels": labels.len(), "unknown": options.unknown});
        Ok(BuiltinStep::new(signature, details, Self { labels, unknown: options.unknown }))
    }

    /// The name of each number of a tensor, in lists of its shape.
    fn name_all(&self, tensor: &Tensor, deadline: &Deadline) -> Result<serde_json::Value, StepFailure> {
        if tensor.len() <= ELEMENTS_PER_CHECK {
            return self.name(to_json_cancellable(&tensor.clone().into(), deadline).ok_or(DeadlineExceeded)?, deadline);
        }
        let mut level = Vec::with_capacity(tensor.len());
        for start in (0..tensor.len()).step_by(ELEMENTS_PER_CHECK) {
            let block = tensor.pick(start, &[(ELEMENTS_PER_CHECK.min(tensor.len() - start), 1)])?;
            if let serde_json::Value::Array(names) =
                self.name(to_json_cancellable(&block.into(), deadline).ok_or(DeadlineExceeded)?, deadline)?
            {
                level.extend(names);
            }
        }
        for size in tensor.shape().iter().skip(1).rev() {
            let mut items = level.into_iter().peekable();
            level = Vec::new();
            while items.peek().is_some() {
                deadline.check_after(ENTRY)?;
                level.push(items.by_ref().take(*size).collect());
            }
        }
        Ok(level.into())
    }

    /// The name of each number in nested lists.
    fn name(&self, indices: serde_json::Value, deadline: &Deadline) -> Result<serde_json::Value, StepFailure> {
        deadline.check_after(ENTRY)?;
        if let serde_json::Value::Array(items) = indices {
            return items.into_iter().map(|item| self.name(item, deadline)).collect();
        }
        let label = indices.as_u64().and_then(|index| self.labels.get(usize::try_from(index).ok()?));
        match label.or(self.unknown.as_ref()) {
            Some(label) => Ok(label.as_str().into()),
            None => Err(StepFailure::InvalidInput(format!(
                "there are {} labels, from 0, but the class is {indices}",
                self.labels.len()
            ))),
        }
    }

    /// Bytes that the names of such a tensor take, with the lists that they lie in.
    fn output_bytes(&self, tensor: &Tensor) -> usize {
        let longest = self.labels.iter().chain(&self.unknown).map(String::len).max().unwrap_or(0);
        json_value_count(tensor.shape()).saturating_mul(ENTRY).saturating_add(tensor.len().saturating_mul(longest))
    }
}

impl Operation for NameClasses {
    fn buffers(&self, inputs: &[Option<Value>]) -> usize {
        ports::given_tensor(inputs).map_or(0, |tensor| self.output_bytes(tensor).saturating_mul(2))
    }

    fn run(&self, mut inputs: Inputs<'_>, deadline: &Deadline) -> Result<Vec<Value>, StepFailure> {
        let tensor = inputs.tensor()?;
        if !ElementSet::integers().contains(tensor.element()) {
            let message = format!("labels takes whole numbers, but gets {}", tensor.element());
            return Err(StepFailure::InvalidInput(message));
        }
        if self.output_bytes(&tensor) > MAX_ANSWER {
            let message = format!("the answer would have {} names, which is too much at once", tensor.len());
            return Err(StepFailure::InvalidInput(message));
        }
        Ok(vec![self.name_all(&tensor, deadline)?.into()])
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use super::*;
    use gpux_core::{Context, ElementType};

    fn run(options: serde_json::Value, tensor: Tensor) -> Result<Value, StepFailure> {
        let step = crate::reference::build(builtin(), options).unwrap();
        Ok(step.run(vec![Some(tensor.into())], &mut Context::default())?.remove(0))
    }

    #[test]
    fn replaces_indices_by_names() {
        let labels = || json!({"labels": ["cat", "dog"]});
        assert_eq!(run(labels(), Tensor::scalar(1_i64)).unwrap(), json!("dog").into());
        assert_eq!(run(labels(), Tensor::new([2], vec![1_u8, 0]).unwrap()).unwrap(), json!(["dog", "cat"]).into());
        let nested = Tensor::new([2, 1], vec![0_i32, 1]).unwrap();
        assert_eq!(run(labels(), nested).unwrap(), json!([["cat"], ["dog"]]).into());
        assert_eq!(run(labels(), Tensor::zeros(ElementType::Int8, [0]).unwrap()).unwrap(), json!([]).into());
    }

    #[test]
    fn stops_at_the_deadline() {
        let options = serde_json::from_value(json!({"labels": ["cat"]})).unwrap();
        let step = NameClasses::new(options, &OptionOrigin::Component).unwrap();
        let many = Tensor::zeros(ElementType::Uint8, [2, 50_000, 1]).unwrap();
        assert_eq!(step.operation.name_all(&many, &Deadline::exceeded_after(1)), Err(StepFailure::Timeout));
        assert_eq!(
            step.operation.name_all(&many, &Deadline::exceeded_after(99)).unwrap(),
            json!(vec![vec![["cat"]; 50_000]; 2])
        );
    }

    #[test]
    fn handles_indices_without_a_name() {
        for tensor in [
            Tensor::scalar(2_i64),
            Tensor::scalar(-1_i64),
            Tensor::scalar(u64::MAX),
            Tensor::scalar(1_f32),
            Tensor::scalar(true),
            Tensor::new([1], vec!["cat".to_owned()]).unwrap(),
        ] {
            assert!(matches!(run(json!({"labels": ["cat", "dog"]}), tensor), Err(StepFailure::InvalidInput(_))));
        }
        let named = run(json!({"labels": ["cat"], "unknown": "?"}), Tensor::scalar(-1_i64)).unwrap();
        assert_eq!(named, json!("?").into());
        let long = json!({"labels": ["x".repeat(1 << 20)]});
        assert!(run(long, Tensor::zeros(ElementType::Uint8, [1000]).unwrap()).is_err());
        assert!(crate::reference::build(builtin(), json!({"labels": []})).is_err());
        assert!(crate::reference::build(builtin(), json!({})).is_err());
    }
}
