//! `precision: auto`: measures the pipeline in every precision that this machine has, and remembers the fastest whose
//! results stay close to `exact`.

use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use super::measurement::{MeasureError, MeasureRequest, MeasureTarget, Measurement, read_output};
use super::model_comparison::Accuracy;
use gpux::internal::Source;
use gpux::{
    ErrorCategory, GpuxError, LoadOptions, PrecisionCandidate, PrecisionDecision, PrecisionGain, PrecisionReport,
};
use gpux_core::{CacheDir, Precision};
use gpux_inference::ExecutionProvider;

/// The name of made-up requests.
pub const SYNTHETIC_INPUTS: &str = "made-up inputs";

/// By how much an output may be off, as a part of its largest number.
const TOLERANCE: f64 = 0.03;
/// What a precision must gain over `exact`: less is noise, and not worth other numbers.
const LEAST_SPEEDUP: f64 = 1.05;
/// How often each candidate is measured, in turns with the others: a machine's speed changes with what else it does.
const ROUNDS: usize = 5;
/// How long each candidate is measured in a round, and warmed up before.
const MEASURING: Duration = Duration::from_millis(600);
/// The longest that a candidate may take, with its loading.
const CANDIDATE_TIMEOUT: Duration = Duration::from_mins(10);
/// The most requests whose results are compared.
const SAMPLES: usize = 64;

/// One provider in one precision.
struct Candidate {
    provider: ExecutionProvider,
    precision: Precision,
    /// the largest error of an output; or why there is none
    result: Result<Accuracy, String>,
    /// requests a second, of each round that it took part in
    rounds: Vec<f64>,
}

impl Candidate {
    fn target(&self) -> MeasureTarget {
        MeasureTarget::Precision(self.provider.short_name().to_owned(), self.precision)
    }

    /// Whether its results are close enough.
    fn is_accepted(&self) -> bool {
        self.result.as_ref().is_ok_and(|accuracy| accuracy.error() <= TOLERANCE)
    }

    /// How often it is faster than the reference.
    fn gain(&self, reference: &Self) -> Option<PrecisionGain> {
        gain_of_rounds(&self.rounds, &reference.rounds)
    }

    fn report(&self, reference: &Self) -> PrecisionCandidate {
        let accuracy = self.result.as_ref().ok();
        let gain = accuracy.and_then(|_| self.gain(reference));
        let refused = match (&self.result, gain) {
            (Err(reason), _) => Some(reason.clone()),
            (Ok(accuracy), _) if !self.is_accepted() => {
                Some(accuracy.statistics.mismatch.clone().unwrap_or_else(|| "too far from exact".to_owned()))
            }
            (_, Some(gain)) if may_be_worth_it(gain) && !is_worth_it(gain) => {
                Some("gains less than rounds differ".to_owned())
            }
            _ => None,
        };
        PrecisionCandidate {
            provider: self.provider,
            precision: self.precision,
            rounds: self.rounds.clone(),
            gain,
            error: accuracy.map(Accuracy::error).filter(|error| error.is_finite()),
            cosine: accuracy.and_then(|accuracy| accuracy.cosine),
            refused,
        }
    }
}

/// The gain over the rounds that both took part in; `None` without a round.
fn gain_of_rounds(rounds: &[f64], reference: &[f64]) -> Option<PrecisionGain> {
    let mut ratios: Vec<_> = rounds.iter().zip(reference).map(|(own, other)| own / other).collect();
    ratios.sort_by(f64::total_cmp);
    let (low, high) = (*ratios.first()?, *ratios.last()?);
    Some(PrecisionGain { low, median: ratios[ratios.len() / 2], high })
}

/// Whether it gains enough in every round so far.
fn may_be_worth_it(gain: PrecisionGain) -> bool {
    gain.low >= LEAST_SPEEDUP
}

/// Whether it also gains more than rounds differ from each other.
fn is_worth_it(gain: PrecisionGain) -> bool {
    may_be_worth_it(gain) && gain.median - 1.0 > gain.high - gain.low
}

/// Chooses the precision of the pipeline's models for which it is `auto`, and remembers it; `None` if there are none.
/// Measures on `input`, which the program's child reads; where it names no requests, on those of golden cases, else of
/// `serving.warmup`, else on made-up ones. Says what it measures to `on_detail`.
pub fn choose_precision<I: Clone + Serialize>(
    pipeline: &Path,
    input: I,
    load_options: &LoadOptions,
    on_detail: &dyn Fn(&str),
) -> Result<Option<PrecisionReport>, MeasureError> {
    // Errors are reported when the pipeline is opened.
    let definition = Source::find(pipeline).and_then(|source| source.read(load_options));
    let models = definition.and_then(|definition| gpux::internal::auto_models(&definition, load_options));
    let Ok(models) = models else { return Ok(None) };
    if models.is_empty() {
        return Ok(None);
    }
    let cache = load_options.cache.as_ref().ok_or_else(|| std::io::Error::other("there is no folder for a cache"));
    cache.and_then(CacheDir::check).map_err(|error| MeasureError {
        message: format!("a choice could not be kept in the cache: {error}"),
        category: ErrorCategory::Environment,
    })?;
    let is_converted =
        |precision| models.iter().all(|model| gpux::internal::converted_path(model.path(), precision).is_file());
    let mut candidates = gpux::internal::precision_candidates(load_options).map_err(GpuxError::from)?;
    let converted = [Precision::Int8, Precision::Fp16].into_iter().filter(|precision| is_converted(*precision));
    let on_cpu = candidates.iter().any(|(provider, _)| *provider == ExecutionProvider::Cpu);
    candidates.extend(converted.filter(|_| on_cpu).map(|precision| (ExecutionProvider::Cpu, precision)));

    let reference = (ExecutionProvider::Cpu, Precision::Exact);
    candidates.retain(|candidate| *candidate != reference);
    candidates.insert(0, reference);
    // Nothing but this is measured, and nothing else kept.
    let mut child_options = load_options.clone();
    child_options.optimize = false;
    (child_options.providers.measure, child_options.providers.shapes) = (false, Vec::new());
    let asked = MeasureRequest {
        pipeline: pipeline.to_owned(),
        input,
        load_options: child_options,
        samples: SAMPLES,
        runs: 0,
        warmup: 0,
        timeout: None,
        cases: true,
        throughput: Some(MEASURING),
        output: None,
    };
    let Measured { mut candidates, samples } = measure_all(&asked, candidates, on_detail)?;
    let Some(first) = candidates.first() else { return Ok(None) };
    if let Err(reason) = &first.result {
        return Err(MeasureError { message: reason.clone(), category: ErrorCategory::Run });
    }
    measure_again(&asked, &mut candidates, on_detail)?;

    let reference = &candidates[0];
    let others = candidates.iter().skip(1).filter(|candidate| candidate.is_accepted());
    let gains = others.filter_map(|candidate| Some((candidate, candidate.gain(reference)?)));
    let fastest = gains.filter(|(_, gain)| is_worth_it(*gain)).max_by(|(_, a), (_, b)| a.median.total_cmp(&b.median));
    let (chosen, gain) = fastest.unwrap_or((reference, PrecisionGain { low: 1.0, median: 1.0, high: 1.0 }));
    let decision = PrecisionDecision {
        precision: chosen.precision,
        provider: chosen.provider,
        speedup: gain.median,
        spread: (gain.low, gain.high),
        error: chosen.result.as_ref().map_or(0.0, Accuracy::error),
        samples,
    };
    for model in &models {
        gpux::internal::remember_precision(model, load_options, &decision)?;
    }
    let is_synthetic = decision.samples == SYNTHETIC_INPUTS;
    let candidates = candidates.iter().map(|candidate| candidate.report(reference)).collect();
    Ok(Some(PrecisionReport { decision, candidates, tolerance: TOLERANCE, is_synthetic }))
}

struct Measured {
    candidates: Vec<Candidate>,
    /// over what, for people
    samples: String,
}

/// Compares the others with the first candidate, and measures each once.
fn measure_all(
    asked: &MeasureRequest<impl Clone + Serialize>,
    candidates: Vec<(ExecutionProvider, Precision)>,
    on_detail: &dyn Fn(&str),
) -> Result<Measured, MeasureError> {
    let mut reference: Option<(Measurement, tempfile::TempDir)> = None;
    let mut measured = Measured { candidates: Vec::new(), samples: String::new() };
    for (provider, precision) in candidates {
        let mut candidate = Candidate { provider, precision, result: Err(String::new()), rounds: Vec::new() };
        on_detail(&format!("measuring {}", candidate.target()));
        let folder = tempfile::tempdir()?;
        let own = asked.run(&candidate.target(), folder.path(), CANDIDATE_TIMEOUT);
        let own = match own {
            Ok(own) => own,
            Err(error) => {
                candidate.result = Err(error.message);
                measured.candidates.push(candidate);
                continue;
            }
        };
        let compared_with = reference.as_ref().map_or(&own, |(reference, _)| reference);
        candidate.result = compare(compared_with, &own);
        candidate.rounds.extend(own.throughput);
        if reference.is_none() {
            measured.samples = match own.items.as_slice() {
                [only] => only.source.clone(),
                all => format!("{} requests", all.len()),
            };
            reference = Some((own, folder));
        }
        measured.candidates.push(candidate);
    }
    Ok(measured)
}

/// Measures those that may be worth it in further rounds, in turns with the reference, which is the first.
fn measure_again(
    asked: &MeasureRequest<impl Clone + Serialize>,
    candidates: &mut [Candidate],
    on_detail: &dyn Fn(&str),
) -> Result<(), MeasureError> {
    for round in 1..ROUNDS {
        let Some((reference, others)) = candidates.split_first_mut() else { return Ok(()) };
        let mut left: Vec<_> = others
            .iter_mut()
            .filter(|other| other.is_accepted() && other.rounds.len() == round)
            .filter(|other| other.gain(reference).is_some_and(may_be_worth_it))
            .collect();
        if left.is_empty() {
            return Ok(());
        }
        left.insert(0, reference);
        // Not always the same one is first.
        if round % 2 == 1 {
            left.reverse();
        }
        for candidate in left {
            on_detail(&format!("measuring {} again", candidate.target()));
            let folder = tempfile::tempdir()?;
            let own = asked.run(&candidate.target(), folder.path(), CANDIDATE_TIMEOUT)?;
            candidate.rounds.push(own.throughput.unwrap_or_default());
        }
    }
    Ok(())
}

/// The worst output over all requests.
fn compare(reference: &Measurement, other: &Measurement) -> Result<Accuracy, String> {
    let mut outputs: Vec<(String, Accuracy)> = Vec::new();
    for (reference, other) in reference.items.iter().zip(&other.items) {
        let (Ok(reference), other) = (&reference.result, &other.result) else { continue };
        let other = other.as_ref().map_err(Clone::clone)?;
        for ((name, reference), (_, other)) in reference.iter().zip(other) {
            let read = |path: &Path| read_output(path);
            let (reference, other) = (read(reference)?, read(other)?);
            if let Some((_, accuracy)) = outputs.iter_mut().find(|(known, _)| known == name) {
                accuracy.add(&reference, &other);
            } else {
                let mut accuracy = Accuracy::default();
                accuracy.add(&reference, &other);
                outputs.push((name.clone(), accuracy));
            }
        }
    }
    let worst = outputs.into_iter().max_by(|(_, a), (_, b)| a.error().total_cmp(&b.error()));
    worst.map(|(_, accuracy)| accuracy).ok_or_else(|| "no request gives a result that can be compared".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gain_below_its_spread_is_none() {
        let gain = |rounds: &[f64]| gain_of_rounds(rounds, &vec![100.0; rounds.len()]);
        assert_eq!(gain(&[]), None);
        assert_eq!(gain(&[110.0, 140.0, 120.0]), Some(PrecisionGain { low: 1.1, median: 1.2, high: 1.4 }));
        // Faster in each round, but by what rounds differ.
        let noise = gain(&[106.0, 150.0, 125.0, 108.0, 120.0]);
        assert!(noise.is_some_and(|gain| may_be_worth_it(gain) && !is_worth_it(gain)), "{noise:?}");
        assert!(gain(&[125.0, 104.0, 126.0]).is_some_and(|gain| !may_be_worth_it(gain)), "once it was not");
        assert!(gain(&[190.0, 210.0, 200.0]).is_some_and(is_worth_it));
        assert!(gain(&[112.0, 115.0, 113.0]).is_some_and(is_worth_it), "small, but steady");
        // Each round has its own reference: a machine that slows down slows both.
        let slowing = gain_of_rounds(&[200.0, 100.0, 50.0], &[100.0, 50.0, 25.0]);
        assert_eq!(slowing, Some(PrecisionGain { low: 2.0, median: 2.0, high: 2.0 }));
    }
}
