//! `mfcc`: mel bands in decibels → their cepstral coefficients.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::deadline::{Deadline, DeadlineExceeded};
use crate::operation::{BuiltinStep, Inputs, Operation};
use crate::ports;
use crate::simd::vectorize;
use gpux_core::{
    BuildError, Builtin, Dim, ElementType, Group, Kind, Port, Signature, StepFailure, Tensor, TensorKind, Value,
};

/// Frames that are weighed at a time.
const LANES: usize = 16;

/// Most bands and most coefficients.
const MAX: usize = 1024;

/// Options of `mfcc`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Options {
    /// Coefficients, at most as many as there are mel bands. Default: 20.
    #[schemars(range(min = 1, max = 1024))]
    n_mfcc: usize,
    /// `ortho` (default): the cosine transform keeps lengths; `none`: it is not scaled.
    norm: Norm,
    /// Strength of the lifter, which raises the higher coefficients: 0 (default) for none, 22 is usual.
    lifter: f64,
}

impl Default for Options {
    fn default() -> Self {
        Self { n_mfcc: 20, norm: Norm::Ortho, lifter: 0.0 }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Norm {
    Ortho,
    None,
}

/// Turns mel bands in decibels, `[n_mels, frames]` or `[channels, n_mels, frames]`, into mel-frequency cepstral
/// coefficients, `[n_mfcc, frames]`: the cosine transform of type 2 along the bands.
///
/// Follows `librosa.feature.mfcc(S=…)`; with the steps `mel-spectrogram: { db: true }` and `mfcc` after each other
/// it is `librosa.feature.mfcc(y=…)`.
struct Mfcc {
    options: Options,
}

pub(super) fn builtin() -> Builtin {
    Builtin {
        name: "mfcc",
        summary: "Turns mel bands in decibels into cepstral coefficients",
        group: Group::Audio,
        follows: "librosa: feature.mfcc(S=…)",
        example: "mfcc: { n_mfcc: 13 }",
        schema: || schemars::schema_for!(Options),
        build: |options, _| Ok(Box::new(Mfcc::new(ports::options(options)?)?)),
    }
}

impl Mfcc {
    fn new(options: Options) -> Result<BuiltinStep<Self>, BuildError> {
        if !(options.lifter >= 0.0 && options.lifter.is_finite()) {
            return Err(BuildError::option("lifter", format!("`lifter` is {}, not 0 or more", options.lifter)));
        }
        let port = |name: &str, description: &str| Port {
            description: description.into(),
            ..Port::new(name, Kind::Tensor(TensorKind::of_elements(ElementType::Float32)))
        };
        let signature = Signature::unary(
            port("mel", "mel bands in decibels, [n_mels, frames]"),
            port("mfcc", "the coefficients, [n_mfcc, frames]"),
        );
        Ok(BuiltinStep::new(signature, json!(options), Self { options }))
    }

    /// Rejects bands that cannot be taken, as far as their shape is known.
    fn check_shape(&self, shape: &[Option<usize>]) -> Result<(), String> {
        let [.., bands, _] = *shape else { return Err(wrong_rank(shape.len())) };
        let wanted = self.options.n_mfcc;
        match bands {
            _ if shape.len() > 3 => Err(wrong_rank(shape.len())),
            Some(bands) if !(wanted..=MAX).contains(&bands) => {
                Err(format!("{wanted} coefficients need {wanted} to {MAX} bands, not {bands}"))
            }
            _ => Ok(()),
        }
    }

    /// The weight of each band in each coefficient, coefficient after coefficient.
    fn weights(&self, bands: usize) -> Vec<f32> {
        let count = bands as f64;
        let weight = |coefficient: usize, band: usize| {
            let angle = std::f64::consts::PI * coefficient as f64 * (2 * band + 1) as f64 / (2.0 * count);
            let scale = match (self.options.norm, coefficient) {
                (Norm::None, _) => 2.0,
                (Norm::Ortho, 0) => (1.0 / count).sqrt(),
                (Norm::Ortho, _) => (2.0 / count).sqrt(),
            };
            let lifter = self.options.lifter;
            let turn = std::f64::consts::PI * (coefficient + 1) as f64;
            let lifted = if lifter > 0.0 { 1.0 + lifter / 2.0 * (turn / lifter).sin() } else { 1.0 };
            (angle.cos() * scale * lifted) as f32
        };
        let coefficients = 0..self.options.n_mfcc;
        coefficients
            .flat_map(|coefficient| (0..bands).map(move |band| (coefficient, band)))
            .map(|(c, b)| weight(c, b))
            .collect()
    }

    /// The coefficients of every channel, which each have a row for a band.
    fn weighted_sums(
        &self,
        given: &[f32],
        bands: usize,
        frames: usize,
        deadline: &Deadline,
    ) -> Result<Vec<f32>, DeadlineExceeded> {
        let (weights, rows) = (self.weights(bands), self.options.n_mfcc);
        // An empty one has no channel or no frame.
        let channels = given.chunks_exact((bands * frames).max(1));
        let mut output = vec![0.0; channels.len() * rows * frames];
        for (given, output) in channels.zip(output.chunks_exact_mut((rows * frames).max(1))) {
            for from in (0..frames).step_by(LANES) {
                // A few products are as fast as one sample.
                deadline.check_after(bands * rows * LANES / 4)?;
                weigh(given, frames, from, &weights, output);
            }
        }
        Ok(output)
    }
}

fn wrong_rank(rank: usize) -> String {
    format!("bands are [n_mels, frames] or [channels, n_mels, frames], not of {rank} axes")
}

impl Operation for Mfcc {
    fn infer_tensor(&self, given: &TensorKind, outputs: &mut Vec<Kind>) -> Result<(), String> {
        let Some(mut shape) = given.shape.clone() else { return Ok(()) };
        let sizes: Vec<_> = shape.iter().map(ports::fixed).collect();
        self.check_shape(&sizes)?;
        let bands = shape.len() - 2;
        shape[bands] = Dim::Fixed(self.options.n_mfcc);
        outputs[0] = Kind::Tensor(TensorKind::shaped(ElementType::Float32, shape));
        Ok(())
    }

    fn buffers(&self, _: &[Option<Value>]) -> usize {
        self.options.n_mfcc * MAX * size_of::<f32>()
    }

    fn run(&self, mut inputs: Inputs<'_>, deadline: &Deadline) -> Result<Vec<Value>, StepFailure> {
        let tensor = inputs.tensor()?;
        let Some(given) = tensor.as_slice::<f32>() else {
            let message = format!("mfcc takes float32, but gets {}; cast it first", tensor.element());
            return Err(StepFailure::InvalidInput(message));
        };
        let sizes: Vec<_> = tensor.shape().iter().copied().map(Some).collect();
        self.check_shape(&sizes).map_err(|why| StepFailure::InvalidInput(format!("mfcc: {why}")))?;
        let mut shape = tensor.shape().to_vec();
        let (bands, frames) = (shape[shape.len() - 2], shape[shape.len() - 1]);
        let place = shape.len() - 2;
        shape[place] = self.options.n_mfcc;
        let output = self.weighted_sums(given, bands, frames, deadline)?;
        Ok(vec![Tensor::new(shape, output)?.with_metadata(tensor.metadata).into()])
    }
}

/// The coefficients of up to [`LANES`] frames, from `from` on: four at a time, so that they stay in the processor.
fn weigh(given: &[f32], frames: usize, from: usize, weights: &[f32], output: &mut [f32]) {
    let count = LANES.min(frames - from);
    let bands = given.len() / frames;
    vectorize(
        #[inline(always)]
        || {
            for (weights, rows) in weights.chunks(4 * bands).zip(output.chunks_mut(4 * frames)) {
                // Where less than four are left, the first of them stands in for the others.
                let row = |row: usize| weights.get(row * bands..(row + 1) * bands).unwrap_or(&weights[..bands]);
                let weights = [row(0), row(1), row(2), row(3)];
                let mut sums = [[0.0; LANES]; 4];
                for (band, strengths) in given.chunks_exact(frames).enumerate() {
                    let lanes = strengths[from..].first_chunk().copied().unwrap_or_else(|| {
                        let mut lanes = [0.0; LANES];
                        lanes[..count].copy_from_slice(&strengths[from..]);
                        lanes
                    });
                    for (sums, weights) in sums.iter_mut().zip(weights) {
                        for (sum, strength) in sums.iter_mut().zip(lanes) {
                            *sum += strength * weights[band];
                        }
                    }
                }
                for (row, sums) in rows.chunks_exact_mut(frames).zip(sums) {
                    row[from..from + count].copy_from_slice(&sums[..count]);
                }
            }
        },
    );
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use super::*;
    use crate::reference::step;
    use gpux_core::Context;

    #[test]
    fn handles_empty_and_invalid_inputs() {
        let run = |shape: &[usize]| {
            let tensor = Tensor::zeros(ElementType::Float32, shape).unwrap();
            let outcome = step("mfcc", json!({})).run(vec![Some(tensor.into())], &mut Context::default());
            outcome.map(|values| values[0].as_tensor().unwrap().shape().to_vec())
        };
        assert_eq!(run(&[40, 0]).unwrap(), [20, 0]);
        assert_eq!(run(&[0, 40, 3]).unwrap(), [0, 20, 3]);
        assert_eq!(run(&[2, 40, 3]).unwrap(), [2, 20, 3]);
        assert!(run(&[19, 3]).unwrap_err().to_string().contains("20 coefficients need 20 to 1024 bands, not 19"));
        assert!(run(&[5000, 1]).is_err());
        assert!(run(&[40]).unwrap_err().to_string().contains("not of 1 axes"));
        for options in [json!({"n_mfcc": 0}), json!({"n_mfcc": 5000}), json!({"lifter": -1}), json!({"norm": "l2"})] {
            assert!(crate::reference::build(builtin(), options).is_err());
        }
    }

    #[test]
    fn stops_at_the_deadline() {
        let step = Mfcc::new(ports::options(json!({"n_mfcc": 32})).unwrap()).unwrap();
        let (bands, frames) = (32, LANES << 10);
        let mel = vec![0.0; bands * frames];
        assert_eq!(
            step.operation.weighted_sums(&mel, bands, frames, &Deadline::exceeded_after(0)),
            Err(DeadlineExceeded)
        );
        assert_eq!(
            step.operation.weighted_sums(&mel, bands, frames, &Deadline::exceeded_after(9)).unwrap().len(),
            32 * frames
        );
    }

    #[test]
    fn infers_shape() {
        let infer = |shape: &[Dim]| {
            let kind = Kind::Tensor(TensorKind::shaped(ElementType::Float32, shape));
            step("mfcc", json!({"n_mfcc": 13})).infer(&[Some(kind)]).map(|kinds| kinds[0].to_string())
        };
        assert_eq!(infer(&[Dim::Fixed(40), Dim::Dynamic]).unwrap(), "tensor float32[13, ?]");
        assert!(infer(&[Dim::Fixed(12), Dim::Dynamic]).is_err());
        assert!(infer(&[Dim::Dynamic]).is_err());
    }
}
