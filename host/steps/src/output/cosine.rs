//! `cosine`: a vector → the most similar of a file of vectors.

use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::l2_normalize::{dot, normalize};
use super::label_names::LabelSource;
use super::ranking::{MAX_ANSWER, RankedLabels, best};
use crate::deadline::{Deadline, DeadlineExceeded, rows_per_check};
use crate::operation::{BuiltinStep, Inputs, Operation};
use crate::ports;
use gpux_core::{
    BuildError, Builtin, Dim, ElementSet, ElementType, Group, Kind, OptionOrigin, Port, Signature, StepFailure, Tensor,
    TensorKind, Value, from_npy,
};

/// Largest file of vectors that is read, in bytes.
const MAX_VECTORS_FILE: u64 = 1 << 30;

/// Options of `cosine`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Options {
    /// What is compared with: the path of a `.npy` file of floats, one vector a row, or a list of lists.
    /// Required.
    vectors: Vectors,
    /// The name of each vector: a list, the path of a text file with one label a line, or
    /// `{ model: NAME, key: KEY }`, a key of a model's metadata. Default: none, entries then have no
    /// `label`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    labels: Option<LabelSource>,
    /// How many entries to keep, at least 1; all of them where there are fewer. Default: 5.
    #[serde(default = "five")]
    #[schemars(range(min = 1))]
    k: usize,
}

const fn five() -> usize {
    5
}

#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
enum Vectors {
    File(String),
    List(Vec<Vec<f32>>),
}

/// Lists the vectors that are most similar by the cosine of the angle between them, best first, as
/// JSON: `[{"label": "refund", "index": 3, "score": 0.83}, …]`.
///
/// A tensor with more than one row gives a list of such lists. Follows sentence-transformers'
/// `util.cos_sim`, in float32. The vectors of the file are brought to length 1 once, at load.
struct Cosine {
    /// of length 1, one after the other
    vectors: Vec<f32>,
    count: usize,
    width: usize,
    names: RankedLabels,
    k: usize,
}

pub(super) fn builtin() -> Builtin {
    Builtin {
        name: "cosine",
        summary: "Lists the most similar vectors of a file",
        group: Group::Output,
        follows: "sentence-transformers: util.cos_sim",
        example: "cosine: { vectors: ./faq.npy, labels: ./faq.txt, k: 3 }",
        schema: || schemars::schema_for!(Options),
        build: |options, site| Ok(Box::new(Cosine::new(&ports::options(options)?, site)?)),
    }
}

impl Cosine {
    fn new(options: &Options, site: &OptionOrigin<'_>) -> Result<BuiltinStep<Self>, BuildError> {
        let (mut vectors, count, width) = options.vectors.read(site)?;
        vectors.chunks_exact_mut(width).for_each(normalize);
        let names = RankedLabels::read(options.labels.as_ref(), site)?;
        if let Some(labels) = names.count().filter(|labels| *labels != count) {
            let message = format!("there are {labels} labels, but {count} vectors");
            return Err(BuildError::option("labels", message));
        }
        let signature = Signature::unary(
            Port {
                description: format!("vectors of {width} numbers"),
                ..Port::new("embeddings", Kind::Tensor(TensorKind::of_elements(ElementSet::floats())))
            },
            Port {
                description: "the most similar, as {label, index, score}".into(),
                ..Port::new("similar", Kind::Json)
            },
        );
        let k = options.k;
        let details = json!({"vectors": count, "width": width, "k": k, "labels": names.count()});
        Ok(BuiltinStep::new(signature, details, Self { vectors, count, width, names, k }))
    }

    fn entries(&self, query: &[f32], deadline: &Deadline) -> Result<serde_json::Value, DeadlineExceeded> {
        let mut query = query.to_vec();
        normalize(&mut query);
        let mut scores = Vec::with_capacity(self.count);
        for block in self.vectors.chunks(rows_per_check(self.width) * self.width) {
            deadline.check_after(block.len())?;
            scores.extend(block.chunks_exact(self.width).map(|vector| dot(vector, &query)));
        }
        self.names.list(best(&scores, self.k, deadline)?, deadline, |index| (index, &scores[index]))
    }

    /// Bytes that the answer for `rows` vectors takes.
    fn output_bytes(&self, rows: usize) -> usize {
        self.names.output_bytes(rows.saturating_mul(self.k.min(self.count)))
    }

    fn wrong_width(&self, width: usize) -> String {
        format!("the vectors of the file have {} numbers, but these have {width}", self.width)
    }
}

impl Vectors {
    /// The numbers, how many vectors there are, and how long they are.
    fn read(&self, site: &OptionOrigin<'_>) -> Result<(Vec<f32>, usize, usize), BuildError> {
        let refuse = |message: String| Err(BuildError::option("vectors", message));
        let (vectors, count, width) = match self {
            Self::List(rows) => {
                let width = rows.first().map_or(0, Vec::len);
                if rows.iter().any(|row| row.len() != width) {
                    return refuse("the vectors have different lengths".into());
                }
                (rows.concat(), rows.len(), width)
            }
            Self::File(path) => {
                let unusable = |why: String| BuildError::option("vectors", format!("`{path}`: {why}"));
                let bytes = site
                    .read(Path::new(path), MAX_VECTORS_FILE)
                    .map_err(|error| BuildError::option("vectors", error))?;
                let tensor = from_npy(&bytes).map_err(|error| unusable(error.to_string()))?;
                drop(bytes);
                let [count, width] = *tensor.shape() else {
                    return Err(unusable(format!("vectors are rows × width, but the shape is {:?}", tensor.shape())));
                };
                if !tensor.element().is_float() {
                    return Err(unusable(format!("vectors are floats, not {}", tensor.element())));
                }
                let floats = tensor.cast(ElementType::Float32).map_err(|error| unusable(error.to_string()))?;
                drop(tensor);
                (floats.as_slice().unwrap_or_default().to_vec(), count, width)
            }
        };
        if count == 0 || width == 0 {
            return refuse("there are no vectors".into());
        }
        Ok((vectors, count, width))
    }
}

impl Operation for Cosine {
    fn infer_tensor(&self, given: &TensorKind, _: &mut Vec<Kind>) -> Result<(), String> {
        match given.shape.as_ref().map(|shape| shape.last()) {
            Some(None) => Err("it has no axis".into()),
            Some(Some(Dim::Fixed(width))) if *width != self.width => Err(self.wrong_width(*width)),
            _ => Ok(()),
        }
    }

    fn buffers(&self, inputs: &[Option<Value>]) -> usize {
        let Some(tensor) = ports::given_tensor(inputs) else { return 0 };
        // The rows in float32, the scores of one and their order, and the answer.
        let rows = tensor.len() / self.width;
        let scores = self.count.saturating_mul(size_of::<f32>() + size_of::<usize>());
        tensor.len().saturating_mul(4).saturating_add(scores).saturating_add(self.output_bytes(rows))
    }

    fn run(&self, mut inputs: Inputs<'_>, deadline: &Deadline) -> Result<Vec<Value>, StepFailure> {
        let tensor = inputs.tensor()?;
        let invalid = |message: String| Err(StepFailure::InvalidInput(message));
        let Some(&width) = tensor.shape().last() else {
            return invalid("cosine takes vectors along an axis, but gets a single number".into());
        };
        if width != self.width {
            return invalid(self.wrong_width(width));
        }
        if !tensor.element().is_float() {
            return invalid(format!("cosine takes floats, but gets {}; cast them first", tensor.element()));
        }
        if tensor.is_empty() {
            return invalid("there are no vectors to compare".into());
        }
        let rows = tensor.len() / width;
        if self.output_bytes(rows) > MAX_ANSWER {
            return invalid(format!(
                "the answer for {rows} vectors would be too large; send less, or ask for a smaller `k`"
            ));
        }
        let tensor: Tensor = tensor.cast_cancellable(ElementType::Float32, deadline)?;
        let queries = tensor.as_slice::<f32>().unwrap_or_default();
        let similar = if rows == 1 {
            self.entries(queries, deadline)?
        } else {
            queries.chunks_exact(width).map(|query| self.entries(query, deadline)).collect::<Result<_, _>>()?
        };
        Ok(vec![similar.into()])
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use super::*;
    use gpux_core::{Context, ProjectFiles, Step, to_npy};

    fn step(options: serde_json::Value) -> Result<Box<dyn Step>, BuildError> {
        crate::reference::build(builtin(), options)
    }

    #[test]
    fn sorts_by_similarity() {
        let step = step(json!({"vectors": [[1, 0], [0, 2], [3, 3]], "labels": ["x", "y", "xy"], "k": 2})).unwrap();
        let run = |shape: &[usize], data: Vec<f32>| {
            let query = Tensor::new(shape, data).unwrap().into();
            step.run(vec![Some(query)], &mut Context::default()).unwrap().remove(0)
        };
        let Value::Json(similar) = run(&[2], vec![0.0, 9.0]) else { panic!("not JSON") };
        assert_eq!(similar[0], json!({"label": "y", "index": 1, "score": 1.0}));
        assert_eq!(similar[1]["label"], "xy");
        let Value::Json(batch) = run(&[2, 2], vec![0.0, 9.0, 0.0, 0.0]) else { panic!("not JSON") };
        assert_eq!(batch[1][0], json!({"label": "x", "index": 0, "score": 0.0}), "zeros are like nothing");
    }

    #[test]
    fn reads_vectors_from_a_project_file() {
        let folder = tempfile::tempdir().unwrap();
        let write =
            |name: &str, tensor: &Tensor| std::fs::write(folder.path().join(name), to_npy(tensor).unwrap()).unwrap();
        write("good.npy", &Tensor::new([2, 2], vec![1_f64, 0.0, 0.0, 1.0]).unwrap());
        write("flat.npy", &Tensor::new([2], vec![1_f32, 0.0]).unwrap());
        write("whole.npy", &Tensor::new([1, 2], vec![1_u8, 0]).unwrap());
        write("none.npy", &Tensor::zeros(ElementType::Float32, [0, 2]).unwrap());
        std::fs::write(folder.path().join("damaged.npy"), b"\x93NUMPY").unwrap();
        let files = ProjectFiles::new(folder.path(), false);
        let build =
            |name: &str| crate::reference::build_at(builtin(), json!({"vectors": name}), &OptionOrigin::folder(&files));
        let step = build("good.npy").unwrap();
        let kind =
            |width| Some(Kind::Tensor(TensorKind::shaped(ElementType::Float32, [Dim::Dynamic, Dim::Fixed(width)])));
        assert!(step.infer(&[kind(2)]).is_ok());
        assert!(step.infer(&[kind(3)]).unwrap_err().to_string().contains("have 2 numbers, but these have 3"));
        for name in ["flat.npy", "whole.npy", "none.npy", "damaged.npy", "missing.npy", "../good.npy"] {
            assert_eq!(build(name).err().unwrap().option, ["vectors"], "{name}");
        }
    }

    #[test]
    fn stops_at_the_deadline() {
        let vectors = Vectors::List(vec![vec![1.0; 1 << 10]; 1 << 11]);
        let step = Cosine::new(&Options { vectors, labels: None, k: 1 }, &OptionOrigin::Component).unwrap();
        let query = vec![1.0; 1 << 10];
        assert_eq!(step.operation.entries(&query, &Deadline::exceeded_after(1)), Err(DeadlineExceeded));
        assert_eq!(step.operation.entries(&query, &Deadline::exceeded_after(9)).unwrap()[0]["index"], 0);
    }

    #[test]
    fn rejects_invalid_input() {
        for options in [
            json!({"vectors": []}),
            json!({"vectors": [[]]}),
            json!({"vectors": [[1], [1, 2]]}),
            json!({"vectors": [[1]], "k": 0}),
            json!({"vectors": [[1]], "labels": ["a", "b"]}),
            json!({"vectors": "x.npy"}),
            json!({}),
        ] {
            assert!(step(options.clone()).is_err(), "{options}");
        }
        let step = step(json!({"vectors": [[1, 0]]})).unwrap();
        for tensor in [
            Tensor::scalar(1_f32),
            Tensor::new([1], vec![1_f32]).unwrap(),
            Tensor::zeros(ElementType::Float32, [0, 2]).unwrap(),
            Tensor::new([2], vec![1_i64, 2]).unwrap(),
            Tensor::zeros(ElementType::Float32, [2_000_000, 2]).unwrap(),
        ] {
            let result = step.run(vec![Some(tensor.into())], &mut Context::default());
            assert!(matches!(result, Err(StepFailure::InvalidInput(_))));
        }
    }
}
