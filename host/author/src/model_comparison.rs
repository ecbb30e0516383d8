//! Compares a changed model with its original: errors of the outputs, and times.

use std::time::{Duration, Instant};

use super::diff_statistics::DiffStatistics;
use super::model_input_capture::ModelSample;
use gpux_core::{Context, ElementType, Step, StepFailure, Tensor, Value, to_json};

/// The time for timing both models.
const TIMING: Duration = Duration::from_secs(2);
/// Runs of each that are timed, at least and at most.
const RUNS: std::ops::Range<usize> = 5..400;
/// Runs of each before those: kernels are compiled, tuned and fetched in them.
const WARM: usize = 2;
/// Below this, an output's largest number says nothing about its scale.
const LEAST_SCALE: f64 = 1e-6;

/// The error of one output over all samples.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Accuracy {
    /// number by number
    pub statistics: DiffStatistics,
    /// the largest absolute number of the original's
    pub largest: f64,
    /// whether it holds floats; whole numbers and texts are the same or not
    pub floats: bool,
    /// of an output with scores (rows of at least two floats): in how many rows the largest stands
    /// where it stood, and of how many
    pub top: Option<(usize, usize)>,
    /// the least cosine between a row of the original's and the same row
    pub cosine: Option<f64>,
}

impl Accuracy {
    /// The number that is compared with the tolerance: of floats, the largest difference as a part of the
    /// largest number, or the difference itself where [all are zero](Self::is_zero); of anything else, the part that
    /// is not the same.
    pub fn error(&self) -> f64 {
        let DiffStatistics { compared, different, absolute, mismatch, .. } = &self.statistics;
        match mismatch {
            Some(_) => f64::INFINITY,
            None if *different == 0 => 0.0,
            None if self.is_zero() => *absolute,
            None if self.floats => absolute / self.largest,
            None => *different as f64 / *compared as f64,
        }
    }

    /// Whether the original's numbers are all about zero, so that no difference is a part of them.
    pub fn is_zero(&self) -> bool {
        self.floats && self.largest < LEAST_SCALE
    }

    /// Takes in one result of both.
    pub fn add(&mut self, original: &Value, changed: &Value) {
        self.statistics =
            std::mem::take(&mut self.statistics).merge(DiffStatistics::compare(original, changed, 0.0, 0.0));
        match (original, changed) {
            (Value::Tensor(original), Value::Tensor(changed)) => {
                self.floats |= original.element().is_float();
                let (Some(original), Some(changed)) = (scores(original), scores(changed)) else { return };
                self.largest = original.numbers.iter().copied().fold(self.largest, larger);
                if let (true, Some(width)) = (self.floats, original.width) {
                    let rows = original.numbers.chunks(width).zip(changed.numbers.chunks(width));
                    let (same, all) = self.top.unwrap_or_default();
                    let found = rows.clone().filter(|(one, other)| top(one) == top(other)).count();
                    let cosine = rows.clone().filter_map(|(one, other)| cosine(one, other));
                    self.cosine = self.cosine.into_iter().chain(cosine).min_by(f64::total_cmp);
                    self.top = Some((same + found, all + rows.count()));
                }
            }
            (original, _) => {
                self.floats = true;
                self.largest = numbers(&to_json(original)).into_iter().fold(self.largest, larger);
            }
        }
    }
}

struct Scores {
    numbers: Vec<f64>,
    /// how long a row is, where the tensor is a row or a list of rows
    width: Option<usize>,
}

fn scores(tensor: &Tensor) -> Option<Scores> {
    let wide = tensor.cast(ElementType::Float64).ok()?;
    let width = tensor.shape().last().copied().filter(|width| *width > 1 && tensor.rank() <= 2);
    Some(Scores { numbers: wide.as_slice::<f64>()?.to_vec(), width })
}

fn larger(most: f64, number: f64) -> f64 {
    if number.is_finite() { most.max(number.abs()) } else { most }
}

fn top(row: &[f64]) -> Option<usize> {
    row.iter().enumerate().max_by(|(_, a), (_, b)| a.total_cmp(b)).map(|(at, _)| at)
}

/// `None` for rows of zeros, which have no direction.
fn cosine(one: &[f64], other: &[f64]) -> Option<f64> {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let lengths = (dot(one, one) * dot(other, other)).sqrt();
    (lengths > 0.0).then(|| dot(one, other) / lengths)
}

fn numbers(json: &serde_json::Value) -> Vec<f64> {
    match json {
        serde_json::Value::Array(items) => items.iter().flat_map(numbers).collect(),
        serde_json::Value::Object(fields) => fields.values().flat_map(numbers).collect(),
        // Whole numbers are classes and identifiers.
        other => other.as_f64().filter(|_| other.is_f64()).into_iter().collect(),
    }
}

/// A changed model beside the original.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelComparison {
    /// each output by name
    pub outputs: Vec<(String, Accuracy)>,
    /// the middle of the times of a run on the first sample, of the original and of the changed one
    pub times: (Duration, Duration),
}

impl ModelComparison {
    /// The output that is off the most.
    pub fn worst(&self) -> Option<(&str, f64)> {
        let errors = self.outputs.iter().map(|(name, accuracy)| (name.as_str(), accuracy.error()));
        errors.max_by(|(_, a), (_, b)| a.total_cmp(b))
    }
}

/// Which of the two models could not be run, on which sample, and why.
#[derive(Debug, thiserror::Error)]
#[error("{} fails on sample {number}: {failure}", if *.changed { "the changed model" } else { "the model itself" })]
pub struct ComparisonError {
    /// whether it is the changed one
    pub changed: bool,
    /// from 1
    pub number: usize,
    /// why
    pub failure: StepFailure,
}

/// Runs both on every sample, then times them on the first, in turns.
pub fn compare_models(
    original: &dyn Step,
    changed: &dyn Step,
    samples: &[ModelSample],
) -> Result<ModelComparison, ComparisonError> {
    let names = original.signature().outputs.iter().map(|output| output.name.clone());
    let mut outputs: Vec<_> = names.map(|name| (name, Accuracy::default())).collect();
    for (at, sample) in samples.iter().enumerate() {
        let run = |step: &dyn Step, changed| {
            let unequal = |failure| ComparisonError { changed, number: at + 1, failure };
            step.run(sample.clone(), &mut Context::default()).map_err(unequal)
        };
        let (one, other) = (run(original, false)?, run(changed, true)?);
        for ((_, accuracy), (one, other)) in outputs.iter_mut().zip(one.iter().zip(&other)) {
            accuracy.add(one, other);
        }
    }
    let times = samples.first().map(|sample| time([original, changed], sample)).unwrap_or_default();
    Ok(ModelComparison { outputs, times })
}

fn time(steps: [&dyn Step; 2], sample: &ModelSample) -> (Duration, Duration) {
    let run = |step: &dyn Step| {
        let sample = sample.clone();
        let start = Instant::now();
        let _ = step.run(sample, &mut Context::default());
        start.elapsed()
    };
    for _ in 0..WARM {
        let _ = steps.map(run);
    }
    let mut times = [Vec::new(), Vec::new()];
    let start = Instant::now();
    while times[0].len() < RUNS.start || (start.elapsed() < TIMING && times[0].len() < RUNS.end) {
        for (times, step) in times.iter_mut().zip(steps) {
            times.push(run(step));
        }
    }
    let [one, other] = times.map(|mut times| {
        times.sort_unstable();
        times[times.len() / 2]
    });
    (one, other)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::float_cmp, reason = "tests")]
mod tests {
    use super::*;

    fn rows(numbers: [f32; 4]) -> Value {
        Value::Tensor(Tensor::new([2, 2], numbers.to_vec()).unwrap())
    }

    #[test]
    fn error_of_scores_is_relative_to_scores() {
        let top = |score: f64| Value::from(serde_json::json!([{ "index": 618, "score": score }]));
        let mut accuracy = Accuracy::default();
        accuracy.add(&top(0.5), &top(0.25));
        assert_eq!((accuracy.error(), accuracy.largest), (0.5, 0.5));
    }

    #[test]
    fn float_error_is_relative_to_the_largest() {
        let mut accuracy = Accuracy::default();
        accuracy.add(&rows([1.0, 8.0, 4.0, 2.0]), &rows([1.0, 8.5, 4.0, 4.5]));
        assert_eq!((accuracy.error(), accuracy.largest, accuracy.top), (2.5 / 8.0, 8.0, Some((1, 2))));
        accuracy.add(&rows([-16.0, 0.0, 0.0, 1.0]), &rows([-16.0, 0.0, 0.0, 1.0]));
        assert_eq!((accuracy.error(), accuracy.top), (2.5 / 16.0, Some((3, 4))));
        accuracy.add(&rows([0.0; 4]), &rows([f32::NAN, 0.0, 0.0, 0.0]));
        assert_eq!(accuracy.error(), f64::INFINITY);
        let mut turned = Accuracy::default();
        turned.add(&rows([3.0, 4.0, 1.0, 0.0]), &rows([4.0, 3.0, 2.0, 0.0]));
        assert_eq!(turned.cosine, Some(24.0 / 25.0));
    }

    #[test]
    fn integer_and_text_error_is_the_share_that_differs() {
        let labels = |labels: [i64; 4]| Value::Tensor(Tensor::new([4], labels.to_vec()).unwrap());
        let mut accuracy = Accuracy::default();
        accuracy.add(&labels([1, 2, 3, 900]), &labels([1, 2, 3, 4]));
        assert_eq!((accuracy.error(), accuracy.top), (0.25, None));
        let mut same = Accuracy::default();
        same.add(&labels([0; 4]), &labels([0; 4]));
        assert_eq!(same.error(), 0.0);
        let mut other = Accuracy::default();
        other.add(&labels([0; 4]), &rows([0.0; 4]));
        assert_eq!(other.error(), f64::INFINITY);
        let text = |text: &str| Value::Tensor(Tensor::new([1], vec![text.to_owned()]).unwrap());
        let mut texts = Accuracy::default();
        texts.add(&text("a"), &text("b"));
        assert_eq!(texts.error(), f64::INFINITY);
    }

    #[test]
    fn error_of_changed_zeros_is_the_difference() {
        let mut accuracy = Accuracy::default();
        accuracy.add(&rows([0.0; 4]), &rows([0.0, 0.0, 0.0, 0.25]));
        assert!(accuracy.is_zero() && accuracy.error() == 0.25, "{accuracy:?}");
        accuracy.add(&rows([0.0, 0.0, 0.0, 5.0]), &rows([0.0, 0.0, 0.0, 5.0]));
        assert_eq!((accuracy.is_zero(), accuracy.error()), (false, 0.05), "now there is a scale");
        let mut broken = Accuracy::default();
        broken.add(&rows([0.0; 4]), &rows([0.0, 0.0, 0.0, f32::NAN]));
        assert_eq!(broken.error(), f64::INFINITY);
    }
}
