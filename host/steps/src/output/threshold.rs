//! `threshold`: scores → those above a bound.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::label_names::LabelSource;
use super::ranking::{MAX_ANSWER, RankedLabels, Score, best};
use crate::deadline::{Deadline, DeadlineExceeded, ELEMENTS_PER_CHECK};
use crate::operation::{BuiltinStep, Inputs, Operation};
use crate::ports;
use gpux_core::{
    BuildError, Builtin, Dim, ElementSet, ElementType, Group, Kind, OptionOrigin, Port, Signature, StepFailure, Tensor,
    TensorData, TensorKind, Value, bf16_from_f64, f16_from_f64,
};

/// Options of `threshold`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Options {
    /// Scores above it are kept: one number, or one for each index of the last axis. Default: 0.5.
    threshold: Bound,
    /// What the step gives: `list` (of what is kept, best first, with its labels) or `mask` (a bool for each
    /// score). Default: list.
    gives: OutputKind,
    /// The name of each index of the last axis: a list, the path of a text file with one label a
    /// line, or `{ model: NAME, key: KEY }`, a key of a model's metadata.
    /// Default: none, entries then have no `label`.
    #[serde(skip_serializing_if = "Option::is_none")]
    labels: Option<LabelSource>,
}

impl Default for Options {
    fn default() -> Self {
        Self { threshold: Bound::One(0.5), gives: OutputKind::List, labels: None }
    }
}

#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
enum Bound {
    One(f64),
    Each(Vec<f64>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum OutputKind {
    List,
    Mask,
}

/// Keeps the scores above a threshold, as a classifier of several labels needs: as JSON, best first,
/// `[{"label": "rain", "index": 2, "score": 0.91}, …]`, or as a tensor of bools.
///
/// A tensor with more than one row gives a list of such lists. Follows NumPy's `scores > threshold`, the
/// threshold rounded to the type of the scores; NaN is not above anything.
struct Threshold {
    options: Options,
    names: RankedLabels,
}

pub(super) fn builtin() -> Builtin {
    Builtin {
        name: "threshold",
        summary: "Keeps the scores above a threshold, with their labels",
        group: Group::Output,
        follows: "NumPy: scores > threshold",
        example: "threshold: { threshold: 0.5, labels: ./labels.txt }",
        schema: || schemars::schema_for!(Options),
        build: |options, site| Ok(Box::new(Threshold::new(ports::options(options)?, site)?)),
    }
}

impl Threshold {
    fn new(options: Options, site: &OptionOrigin<'_>) -> Result<BuiltinStep<Self>, BuildError> {
        if matches!(&options.threshold, Bound::Each(each) if each.is_empty()) {
            return Err(BuildError::option("threshold", "there are no thresholds"));
        }
        if options.gives == OutputKind::Mask && options.labels.is_some() {
            return Err(BuildError::option("labels", "a mask has no labels").with_hint("`gives: list` has"));
        }
        let names = RankedLabels::read(options.labels.as_ref(), site)?;
        if let (Bound::Each(each), Some(labels)) = (&options.threshold, names.count())
            && each.len() != labels
        {
            let why = format!("there are {} thresholds, but {labels} labels", each.len());
            return Err(BuildError::option("threshold", why));
        }
        let floats = Kind::Tensor(TensorKind::of_elements(ElementSet::floats()));
        let output = match options.gives {
            OutputKind::List => {
                Port { description: "what is kept, as {label, index, score}".into(), ..Port::new("kept", Kind::Json) }
            }
            OutputKind::Mask => {
                let kind = Kind::Tensor(TensorKind::of_elements(ElementType::Bool));
                Port { description: "whether each score is kept".into(), ..Port::new("kept", kind) }
            }
        };
        let input =
            Port { description: "a score for each index of the last axis".into(), ..Port::new("scores", floats) };
        let details = json!({"threshold": options.threshold, "gives": options.gives, "labels": names.count()});
        Ok(BuiltinStep::new(Signature::unary(input, output), details, Self { options, names }))
    }

    /// Refuses another number of scores than there are labels or thresholds.
    fn check_width(&self, scores: usize) -> Result<(), String> {
        let misfit = |count, what| Err(format!("there are {count} {what}, but {scores} scores on the last axis"));
        match (self.names.count(), &self.options.threshold) {
            (Some(labels), _) if labels != scores => misfit(labels, "labels"),
            (_, Bound::Each(each)) if each.len() != scores => misfit(each.len(), "thresholds"),
            _ => Ok(()),
        }
    }

    fn output_bytes(&self, scores: usize) -> usize {
        match self.options.gives {
            OutputKind::List => self.names.output_bytes(scores),
            OutputKind::Mask => 0,
        }
    }

    fn work<T: Score + Copy>(
        &self,
        scores: &[T],
        shape: &[usize],
        deadline: &Deadline,
        of: impl Fn(f64) -> T,
    ) -> Result<Value, StepFailure> {
        let width = shape.last().copied().unwrap_or(1);
        let bounds: Vec<T> = match &self.options.threshold {
            Bound::One(bound) => vec![of(*bound); width],
            Bound::Each(each) => each.iter().copied().map(of).collect(),
        };
        let rows = scores.chunks_exact(width.max(1));
        if self.options.gives == OutputKind::Mask {
            let mut mask = Vec::with_capacity(scores.len());
            for row in rows {
                compare(row, &bounds, deadline, |kept| mask.push(kept))?;
            }
            return Ok(Tensor::new(shape, mask)?.into());
        }
        let invalid = |why: String| Err(StepFailure::InvalidInput(why));
        let (mut kept, lists) = (0_usize, scores.len() / width.max(1));
        for row in rows.clone() {
            compare(row, &bounds, deadline, |above| kept += usize::from(above))?;
        }
        if self.output_bytes(kept.saturating_add(lists)) > MAX_ANSWER {
            return invalid(format!("{kept} scores are above the threshold, more than can be listed"));
        }
        let only = scores.len() == width;
        let mut lists = rows.map(|row| self.entries(row, &bounds, deadline));
        let list = if only { lists.next() } else { None };
        Ok(list.unwrap_or_else(|| lists.collect())?.into())
    }

    fn entries<T: Score + Copy>(
        &self,
        row: &[T],
        bounds: &[T],
        deadline: &Deadline,
    ) -> Result<serde_json::Value, DeadlineExceeded> {
        let (mut above, mut index) = (Vec::new(), 0);
        compare(row, bounds, deadline, |kept| {
            if kept {
                above.push(index);
            }
            index += 1;
        })?;
        let scores: Vec<_> = above.iter().map(|index| row[*index]).collect();
        self.names.list(best(&scores, scores.len(), deadline)?, deadline, |place| (above[place], &scores[place]))
    }
}

/// Whether each score is above its bound.
fn compare<T: PartialOrd>(
    row: &[T],
    bounds: &[T],
    deadline: &Deadline,
    mut each: impl FnMut(bool),
) -> Result<(), DeadlineExceeded> {
    for (row, bounds) in row.chunks(ELEMENTS_PER_CHECK).zip(bounds.chunks(ELEMENTS_PER_CHECK)) {
        deadline.check_after(row.len())?;
        row.iter().zip(bounds).for_each(|(score, bound)| each(score > bound));
    }
    Ok(())
}

impl Operation for Threshold {
    fn class_names(&self) -> &[String] {
        self.names.names()
    }

    fn infer_tensor(&self, given: &TensorKind, outputs: &mut Vec<Kind>) -> Result<(), String> {
        let Some(shape) = &given.shape else { return Ok(()) };
        if let Dim::Fixed(scores) = shape.last().ok_or("it has no axis")? {
            self.check_width(*scores)?;
        }
        if self.options.gives == OutputKind::Mask {
            outputs[0] = Kind::Tensor(TensorKind::shaped(ElementType::Bool, shape.clone()));
        }
        Ok(())
    }

    fn buffers(&self, inputs: &[Option<Value>]) -> usize {
        let Some(tensor) = ports::given_tensor(inputs) else { return 0 };
        // The bounds, the order of a row, and the answer if everything is kept.
        let bounds = tensor.shape().last().map_or(0, |width| width.saturating_mul(size_of::<f64>()));
        self.output_bytes(tensor.len()).saturating_add(tensor.len() * 16).saturating_add(bounds)
    }

    fn run(&self, mut inputs: Inputs<'_>, deadline: &Deadline) -> Result<Vec<Value>, StepFailure> {
        let tensor = inputs.tensor()?;
        let invalid = |message: String| Err(StepFailure::InvalidInput(message));
        let Some(&width) = tensor.shape().last() else {
            return invalid("threshold takes scores along an axis, but gets a single number".into());
        };
        self.check_width(width).map_err(StepFailure::InvalidInput)?;
        let shape = tensor.shape();
        let kept = match tensor.data() {
            TensorData::Float16(scores) => self.work(scores, shape, deadline, f16_from_f64)?,
            TensorData::Bfloat16(scores) => self.work(scores, shape, deadline, bf16_from_f64)?,
            TensorData::Float32(scores) => self.work(scores, shape, deadline, |bound| bound as f32)?,
            TensorData::Float64(scores) => self.work(scores, shape, deadline, |bound| bound)?,
            other => return invalid(format!("threshold takes floats, but gets {}", other.element())),
        };
        Ok(vec![kept])
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use super::*;
    use gpux_core::{Context, Step};

    fn step(options: serde_json::Value) -> Result<Box<dyn Step>, BuildError> {
        crate::reference::build(builtin(), options)
    }

    fn run(options: serde_json::Value, tensor: Tensor) -> Result<Value, StepFailure> {
        Ok(step(options).unwrap().run(vec![Some(tensor.into())], &mut Context::default())?.remove(0))
    }

    #[test]
    fn keeps_scores_above_the_bound() {
        let scores = || Tensor::new([1, 4], vec![0.9_f32, 0.5, f32::NAN, 0.95]).unwrap();
        let kept = run(json!({"labels": ["a", "b", "c", "d"]}), scores()).unwrap();
        let expected = json!([{"label": "d", "index": 3, "score": 0.95}, {"label": "a", "index": 0, "score": 0.9}]);
        assert_eq!(kept, expected.into());
        let mask = run(json!({"gives": "mask", "threshold": [0.95, 0.4, 0, 0.9]}), scores()).unwrap();
        assert_eq!(mask, Tensor::new([1, 4], vec![false, true, false, true]).unwrap().into());
        let rows = Tensor::new([2, 1], vec![0.1_f64, 0.6]).unwrap();
        assert_eq!(run(json!({}), rows).unwrap(), json!([[], [{"index": 0, "score": 0.6}]]).into());
    }

    #[test]
    fn handles_empty_and_invalid_inputs() {
        let empty = |shape: [usize; 2]| Tensor::zeros(ElementType::Float32, shape).unwrap();
        assert_eq!(run(json!({}), empty([3, 0])).unwrap(), json!([]).into());
        assert_eq!(run(json!({}), empty([0, 3])).unwrap(), json!([]).into());
        assert_eq!(run(json!({"gives": "mask"}), empty([0, 3])).unwrap().as_tensor().unwrap().shape(), [0, 3]);
        for (options, tensor) in [
            (json!({}), Tensor::scalar(1_f32)),
            (json!({}), Tensor::new([1], vec![1_i64]).unwrap()),
            (json!({"labels": ["a"]}), empty([1, 2])),
            (json!({"threshold": [0.1]}), empty([1, 2])),
            (json!({"threshold": -1}), Tensor::zeros(ElementType::Float32, [1 << 21]).unwrap()),
        ] {
            assert!(matches!(run(options, tensor), Err(StepFailure::InvalidInput(_))));
        }
    }

    #[test]
    fn rejects_invalid_options_and_inputs() {
        for options in [
            json!({"threshold": []}),
            json!({"threshold": [0.5], "labels": ["a", "b"]}),
            json!({"gives": "mask", "labels": ["a"]}),
            json!({"labels": []}),
            json!({"threshold": "high"}),
        ] {
            assert!(step(options).is_err());
        }
    }

    #[test]
    fn infers_type_and_shape() {
        let infer = |options, last| {
            let kind = TensorKind::shaped(ElementType::Float32, vec![Dim::Dynamic, Dim::Fixed(last)]);
            step(options).unwrap().infer(&[Some(Kind::Tensor(kind))]).map(|kinds| kinds[0].to_string())
        };
        assert_eq!(infer(json!({"gives": "mask"}), 3).unwrap(), "tensor bool[?, 3]");
        assert_eq!(infer(json!({}), 3).unwrap(), "JSON");
        assert!(infer(json!({"labels": ["a", "b"]}), 3).unwrap_err().to_string().contains("2 labels, but 3 scores"));
    }
}
