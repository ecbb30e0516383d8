//! `top-k`: scores → the best of them, with their labels.

use half::{bf16, f16};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::label_names::LabelSource;
use super::ranking::{MAX_ANSWER, RankedLabels, Score, best};
use crate::deadline::{Deadline, DeadlineExceeded};
use crate::operation::{BuiltinStep, Inputs, Operation};
use crate::ports;
use gpux_core::with_integer_type;
use gpux_core::{
    BuildError, Builtin, Dim, ElementSet, ElementType, Group, Kind, OptionOrigin, Port, Signature, StepFailure, Tensor,
    TensorKind, Value,
};

/// Options of `top-k`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Options {
    /// How many entries to keep, at least 1; all of them where there are fewer. Default: 5.
    #[schemars(range(min = 1))]
    k: usize,
    /// The name of each index: a list, the path of a text file with one label a line, or
    /// `{ model: NAME, key: KEY }`, a key of a model's metadata. There must be as many as scores. Default: none, entries then have no `label`.
    #[serde(skip_serializing_if = "Option::is_none")]
    labels: Option<LabelSource>,
}

impl Default for Options {
    fn default() -> Self {
        Self { k: 5, labels: None }
    }
}

/// Lists the highest scores of the last axis, best first, as JSON:
/// `[{"label": "seven", "index": 7, "score": 0.98}, …]`.
///
/// A tensor with more than one row gives a list of such lists. Follows a stable descending sort
/// (`np.argsort(-scores, kind="stable")`): equal scores stay in the order of their indices, NaN
/// comes last. NaN and infinities are written as text, as everywhere.
struct TopK {
    options: Options,
    names: RankedLabels,
}

pub(super) fn builtin() -> Builtin {
    Builtin {
        name: "top-k",
        summary: "Lists the highest scores with their labels",
        group: Group::Output,
        follows: "NumPy: numpy.argsort",
        example: "top-k: { k: 5, labels: ./labels.txt }",
        schema: || schemars::schema_for!(Options),
        build: |options, site| Ok(Box::new(TopK::new(ports::options(options)?, site)?)),
    }
}

impl TopK {
    fn new(options: Options, site: &OptionOrigin<'_>) -> Result<BuiltinStep<Self>, BuildError> {
        let names = RankedLabels::read(options.labels.as_ref(), site)?;
        let count = names.count().map_or_else(String::new, |count| format!(", {count} on the last axis"));
        let signature = Signature::unary(
            Port {
                description: format!("a score for each index of the last axis{count}"),
                ..Port::new("scores", Kind::Tensor(TensorKind::of_elements(ElementSet::numeric())))
            },
            Port { description: "the best, as {label, index, score}".into(), ..Port::new("top", Kind::Json) },
        );
        let details = json!({"k": options.k, "labels": names.count()});
        Ok(BuiltinStep::new(signature, details, Self { options, names }))
    }

    fn check_labels(&self, scores: usize) -> Result<(), String> {
        match self.names.count() {
            Some(labels) if labels != scores => {
                Err(format!("there are {labels} labels, but {scores} scores on the last axis"))
            }
            _ => Ok(()),
        }
    }

    /// Bytes that the answer for `rows` rows of `width` scores takes.
    fn output_bytes(&self, rows: usize, width: usize) -> usize {
        self.names.output_bytes(rows.saturating_mul(self.options.k.min(width)))
    }

    fn rows<T: Score>(
        &self,
        tensor: &Tensor,
        width: usize,
        deadline: &Deadline,
    ) -> Result<serde_json::Value, DeadlineExceeded> {
        let scores = tensor.as_slice::<T>().unwrap_or_default();
        let list =
            |row: &[T]| self.names.list(best(row, self.options.k, deadline)?, deadline, |index| (index, &row[index]));
        if scores.len() == width { list(scores) } else { scores.chunks_exact(width).map(list).collect() }
    }
}

impl Operation for TopK {
    fn class_names(&self) -> &[String] {
        self.names.names()
    }

    fn infer_tensor(&self, given: &TensorKind, _: &mut Vec<Kind>) -> Result<(), String> {
        match given.shape.as_ref().map(|shape| shape.last()) {
            Some(None) => Err("it has no axis".into()),
            Some(Some(Dim::Fixed(scores))) => self.check_labels(*scores),
            _ => Ok(()),
        }
    }

    fn buffers(&self, inputs: &[Option<Value>]) -> usize {
        let Some(tensor) = ports::given_tensor(inputs) else { return 0 };
        let width = tensor.shape().last().map_or(1, |width| (*width).max(1));
        // The order of one row, and the answer.
        width.saturating_mul(size_of::<usize>()).saturating_add(self.output_bytes(tensor.len() / width, width))
    }

    fn run(&self, mut inputs: Inputs<'_>, deadline: &Deadline) -> Result<Vec<Value>, StepFailure> {
        let tensor = inputs.tensor()?;
        let invalid = |message: String| Err(StepFailure::InvalidInput(message));
        let Some(&width) = tensor.shape().last() else {
            return invalid("top-k takes scores along an axis, but gets a single number".into());
        };
        if tensor.is_empty() {
            return invalid(format!("there are no scores in a tensor of shape {:?}", tensor.shape()));
        }
        self.check_labels(width).map_err(StepFailure::InvalidInput)?;
        let rows = tensor.len() / width;
        if self.output_bytes(rows, width) > MAX_ANSWER {
            let entries = rows.saturating_mul(self.options.k.min(width));
            let most = MAX_ANSWER / self.names.output_bytes(1);
            return invalid(format!("the answer would have {entries} entries, but at most {most} are given"));
        }
        let top = with_integer_type!(tensor.element(), T => self.rows::<T>(&tensor, width, deadline),
            ElementType::Float16 => self.rows::<f16>(&tensor, width, deadline),
            ElementType::Bfloat16 => self.rows::<bf16>(&tensor, width, deadline),
            ElementType::Float32 => self.rows::<f32>(&tensor, width, deadline),
            ElementType::Float64 => self.rows::<f64>(&tensor, width, deadline),
            other => return invalid(format!("top-k takes numbers, but gets {other}")),
        );
        Ok(vec![top?.into()])
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use super::*;
    use gpux_core::{Context, Step, TensorElement};

    fn step(options: serde_json::Value) -> Result<Box<dyn Step>, BuildError> {
        crate::reference::build(builtin(), options)
    }

    fn top<T: TensorElement>(options: serde_json::Value, shape: &[usize], scores: Vec<T>) -> serde_json::Value {
        let scores = Tensor::new(shape, scores).unwrap().into();
        let Value::Json(json) =
            step(options).unwrap().run(vec![Some(scores)], &mut Context::default()).unwrap().remove(0)
        else {
            panic!("not JSON")
        };
        json.as_ref().clone()
    }

    #[test]
    fn sorts_best_first_with_labels() {
        assert_eq!(
            top(json!({"k": 2, "labels": ["a", "b", "c"]}), &[1, 3], vec![0.1_f32, 0.7, 0.2]),
            json!([{"label": "b", "index": 1, "score": 0.7}, {"label": "c", "index": 2, "score": 0.2}])
        );
        assert_eq!(top(json!({}), &[3], vec![1_u8, 3, 2]).as_array().unwrap().len(), 3);
        assert_eq!(
            top(json!({"k": 1}), &[2, 2], vec![1_i64, i64::MAX, i64::MAX, i64::MAX - 1]),
            json!([
                [{"index": 1, "score": i64::MAX}],
                [{"index": 0, "score": i64::MAX}]
            ])
        );
    }

    #[test]
    fn ties_keep_their_order_and_nan_comes_last() {
        let scores = vec![f32::NAN, 1.0, f32::INFINITY, 1.0, f32::NAN, f32::NEG_INFINITY];
        let order = |k: usize| -> Vec<u64> {
            let top = top(json!({"k": k}), &[6], scores.clone());
            top.as_array().unwrap().iter().map(|entry| entry["index"].as_u64().unwrap()).collect()
        };
        assert_eq!(order(6), [2, 1, 3, 5, 0, 4]);
        for k in 1..6 {
            assert_eq!(order(k), order(6)[..k], "k = {k}");
        }
        let all = top(json!({"k": 9}), &[6], scores.clone());
        assert_eq!(all[4], json!({"index": 0, "score": "NaN"}));
        assert_eq!(all[0]["score"], json!("Infinity"));
        let half = top(json!({"k": 1}), &[2], vec![f16::from_f32(0.5), f16::from_f32(2.0)]);
        assert_eq!(half, json!([{"index": 1, "score": 2.0}]));
    }

    #[test]
    fn rejects_labels_of_another_count() {
        let step = step(json!({"labels": ["a", "b"]})).unwrap();
        let kind = |dims: &[Dim]| Some(Kind::Tensor(TensorKind::shaped(ElementType::Float32, dims)));
        assert!(step.infer(&[kind(&[Dim::Dynamic, Dim::Dynamic])]).is_ok());
        let error = step.infer(&[kind(&[Dim::Dynamic, Dim::Fixed(3)])]).unwrap_err().to_string();
        assert!(error.contains("2 labels, but 3 scores"), "{error}");
        let scores = Tensor::new([3], vec![1_f32; 3]).unwrap().into();
        let error = step.run(vec![Some(scores)], &mut Context::default()).unwrap_err();
        assert!(matches!(error, StepFailure::InvalidInput(_)), "{error}");
    }

    #[test]
    fn rejects_invalid_input() {
        assert!(step(json!({"k": 0})).is_err());
        assert!(step(json!({"k": -1})).is_err());
        assert!(step(json!({"labels": []})).is_err());
        let step = step(json!({"k": u64::MAX})).unwrap();
        let run = |tensor: Tensor| step.run(vec![Some(tensor.into())], &mut Context::default());
        assert!(run(Tensor::new([1 << 21], vec![0_u8; 1 << 21]).unwrap()).unwrap_err().to_string().contains("entries"));
        for tensor in [
            Tensor::scalar(1_f32),
            Tensor::new([0], Vec::<f32>::new()).unwrap(),
            Tensor::new([2, 0], Vec::<f32>::new()).unwrap(),
            Tensor::new([1], vec![true]).unwrap(),
            Tensor::new([1], vec!["x".to_owned()]).unwrap(),
        ] {
            assert!(matches!(run(tensor), Err(StepFailure::InvalidInput(_))));
        }
        assert!(step.run(vec![Some("text".into())], &mut Context::default()).is_err());
        assert!(step.run(vec![], &mut Context::default()).is_err());
    }
}
