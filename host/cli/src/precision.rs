//! `precision: auto`: measures the pipeline in every precision that this machine has, and remembers the fastest whose
//! results stay close to `exact`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::exit::Exit;
use super::input::InputArguments;
use super::measure::{self, MeasureError, MeasureRequest, Measurement, Target, environment_error};
use super::printer::{LogLevel, Printer, table};
use gpux::{GpuxError, LoadOptions, PrecisionDecision, Source};
use gpux_author::Accuracy;
use gpux_core::{CacheDir, Precision, child_process, lossless_path};
use gpux_inference::ExecutionProvider;

/// A choice, which a server has a child make.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct PrecisionRequest {
    /// as [`PipelineArguments::path`](super::load_arguments::PipelineArguments::path) gives it
    #[serde(with = "lossless_path")]
    pub(super) pipeline: PathBuf,
    pub(super) load_options: LoadOptions,
}

/// The outcome of a measurement.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Choice {
    /// all candidates, for people
    pub(super) report: String,
    /// why it may not be right
    pub(super) warning: Option<String>,
}

/// Runs in the child, which has no other threads yet; returns the line to print.
pub(super) fn answer(told: std::io::Result<PrecisionRequest>) -> String {
    child_process::lower_priority();
    let quiet = Printer { json: true, level: LogLevel::Error };
    let choice = told.map_err(environment_error).and_then(|mut request| {
        confine(&mut request);
        let _ = child_process::exit_with_parent();
        choose(&request.pipeline, &[], &request.load_options, quiet)
    });
    serde_json::to_string(&choice).unwrap_or_default()
}

/// Confines this process if the pipeline is isolated, which its cache says.
#[cfg(target_os = "linux")]
fn confine(request: &mut PrecisionRequest) {
    if request.load_options.cache.as_ref().is_some_and(|cache| cache.shared().is_some()) {
        // Opening the pipeline reports errors; what the system lacks, its worker reports.
        if let Ok(definition) = Source::find(&request.pipeline).and_then(|source| source.read(&request.load_options)) {
            gpux_worker::confine(&definition, &mut request.load_options);
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn confine(_: &mut PrecisionRequest) {}

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
    /// the largest error of an output; or why it is none
    result: Result<Accuracy, String>,
    /// requests a second, of each round that it took part in
    rounds: Vec<f64>,
}

impl Candidate {
    fn target(&self) -> Target {
        Target::Precision(self.provider.short_name().to_owned(), self.precision)
    }

    /// Whether its results are close enough.
    fn is_accepted(&self) -> bool {
        self.result.as_ref().is_ok_and(|accuracy| accuracy.error() <= TOLERANCE)
    }

    /// How often it is faster than the reference.
    fn gain(&self, reference: &Self) -> Option<Gain> {
        Gain::of_rounds(&self.rounds, &reference.rounds)
    }
}

/// How many times as fast as the reference, over the rounds that both took part in.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Gain {
    low: f64,
    median: f64,
    high: f64,
}

impl Gain {
    /// `None` without a round.
    fn of_rounds(rounds: &[f64], reference: &[f64]) -> Option<Self> {
        let mut ratios: Vec<_> = rounds.iter().zip(reference).map(|(own, other)| own / other).collect();
        ratios.sort_by(f64::total_cmp);
        let (low, high) = (*ratios.first()?, *ratios.last()?);
        Some(Self { low, median: ratios[ratios.len() / 2], high })
    }

    /// Whether it gains enough in every round so far.
    fn may_be_worth_it(self) -> bool {
        self.low >= LEAST_SPEEDUP
    }

    /// Whether it also gains more than rounds differ from each other.
    fn is_worth_it(self) -> bool {
        self.may_be_worth_it() && self.median - 1.0 > self.high - self.low
    }
}

/// Chooses the precision of the pipeline's models for which it is `auto`; `None` if there are none.
pub(super) fn choose(
    pipeline: &Path,
    samples: &[String],
    load_options: &LoadOptions,
    printer: Printer,
) -> Result<Option<Choice>, MeasureError> {
    // Errors are reported when the pipeline is opened.
    let definition = Source::find(pipeline).and_then(|source| source.read(load_options));
    let models = definition.and_then(|definition| gpux::auto_models(&definition, load_options));
    let Ok(models) = models else { return Ok(None) };
    if models.is_empty() {
        return Ok(None);
    }
    let cache = load_options.cache.as_ref().ok_or_else(|| std::io::Error::other("there is no folder for a cache"));
    cache.and_then(CacheDir::check).map_err(|error| MeasureError {
        message: format!("a choice could not be kept in the cache: {error}"),
        exit: Exit::Environment,
    })?;
    let is_converted = |precision| models.iter().all(|model| gpux::converted_path(model.path(), precision).is_file());
    let mut candidates = gpux::precision_candidates(load_options).map_err(GpuxError::from)?;
    let converted = [Precision::Int8, Precision::Fp16].into_iter().filter(|precision| is_converted(*precision));
    let on_cpu = candidates.iter().any(|(provider, _)| *provider == ExecutionProvider::Cpu);
    candidates.extend(converted.filter(|_| on_cpu).map(|precision| (ExecutionProvider::Cpu, precision)));

    let reference = (ExecutionProvider::Cpu, Precision::Exact);
    candidates.retain(|candidate| *candidate != reference);
    candidates.insert(0, reference);
    let mut load_options_of_child = load_options.clone();
    // Nothing is measured or kept but the choice.
    load_options_of_child.optimize = false;
    (load_options_of_child.providers.measure, load_options_of_child.providers.shapes) = (false, Vec::new());
    let asked = MeasureRequest {
        pipeline: pipeline.to_owned(),
        input: InputArguments::of_files(samples),
        load_options: load_options_of_child,
        samples: SAMPLES,
        runs: 0,
        warmup: 0,
        timeout: None,
        cases: true,
        throughput: Some(MEASURING),
        output: None,
    };
    let Measured { mut candidates, samples } = measure_all(&asked, candidates, printer)?;
    let Some(first) = candidates.first() else { return Ok(None) };
    if let Err(reason) = &first.result {
        return Err(MeasureError { message: reason.clone(), exit: Exit::Failed });
    }
    measure_again(&asked, &mut candidates, printer)?;

    let reference = &candidates[0];
    let others = candidates.iter().skip(1).filter(|candidate| candidate.is_accepted());
    let gains = others.filter_map(|candidate| Some((candidate, candidate.gain(reference)?)));
    let fastest = gains.filter(|(_, gain)| gain.is_worth_it()).max_by(|(_, a), (_, b)| a.median.total_cmp(&b.median));
    let (chosen, gain) = fastest.unwrap_or((reference, Gain { low: 1.0, median: 1.0, high: 1.0 }));
    let decision = PrecisionDecision {
        precision: chosen.precision,
        provider: chosen.provider,
        speedup: gain.median,
        spread: (gain.low, gain.high),
        error: chosen.result.as_ref().map_or(0.0, Accuracy::error),
        samples,
    };
    for model in &models {
        gpux::remember_precision(model, load_options, &decision).map_err(environment_error)?;
    }
    let warning = (decision.samples == SYNTHETIC_INPUTS).then(|| {
        "the precision was chosen on made-up inputs: golden cases, `serving.warmup` or --sample make the choice about \
         yours"
            .to_owned()
    });
    Ok(Some(Choice { report: report(&candidates, chosen, &decision), warning }))
}

/// The name of synthetic requests.
pub(super) const SYNTHETIC_INPUTS: &str = "made-up inputs";

struct Measured {
    candidates: Vec<Candidate>,
    /// over what, for people
    samples: String,
}

/// Compares the others with the first candidate, and measures each once.
fn measure_all(
    asked: &MeasureRequest,
    candidates: Vec<(ExecutionProvider, Precision)>,
    printer: Printer,
) -> Result<Measured, MeasureError> {
    let mut reference: Option<(Measurement, tempfile::TempDir)> = None;
    let mut measured = Measured { candidates: Vec::new(), samples: String::new() };
    for (provider, precision) in candidates {
        let mut candidate = Candidate { provider, precision, result: Err(String::new()), rounds: Vec::new() };
        printer.detail(&format!("measuring {}", candidate.target()));
        let folder = tempfile::tempdir().map_err(environment_error)?;
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
fn measure_again(asked: &MeasureRequest, candidates: &mut [Candidate], printer: Printer) -> Result<(), MeasureError> {
    for round in 1..ROUNDS {
        let Some((reference, others)) = candidates.split_first_mut() else { return Ok(()) };
        let mut left: Vec<_> = others
            .iter_mut()
            .filter(|other| other.is_accepted() && other.rounds.len() == round)
            .filter(|other| other.gain(reference).is_some_and(Gain::may_be_worth_it))
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
            printer.detail(&format!("measuring {} again", candidate.target()));
            let folder = tempfile::tempdir().map_err(environment_error)?;
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
            let read = |path: &Path| measure::read_output(path);
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

fn report(candidates: &[Candidate], chosen: &Candidate, decision: &PrecisionDecision) -> String {
    let row = |candidate: &Candidate| {
        let mark = if std::ptr::eq(candidate, chosen) { "→" } else { "" };
        let (numbers, verdict) = match &candidate.result {
            Ok(accuracy) => {
                let cosine = accuracy.cosine.map(|cosine| format!("{cosine:.5}")).unwrap_or_default();
                let gain = candidate.gain(&candidates[0]);
                let mut rounds = candidate.rounds.clone();
                rounds.sort_by(f64::total_cmp);
                let numbers = [
                    rounds.get(rounds.len() / 2).map(|median| format!("{median:.1}")).unwrap_or_default(),
                    gain.map(|gain| format!("{:.2}", gain.median)).unwrap_or_default(),
                    gain.map(|gain| format!("{:.2} to {:.2}", gain.low, gain.high)).unwrap_or_default(),
                    rounds.len().to_string(),
                    format!("{:.1e}", accuracy.error()),
                    cosine,
                ];
                let verdict = match gain {
                    _ if accuracy.error() > TOLERANCE => {
                        accuracy.statistics.mismatch.clone().unwrap_or_else(|| "too far from exact".to_owned())
                    }
                    Some(gain) if gain.may_be_worth_it() && !gain.is_worth_it() => {
                        "gains less than rounds differ".to_owned()
                    }
                    _ => String::new(),
                };
                (numbers, verdict)
            }
            Err(reason) => (Default::default(), reason.clone()),
        };
        let words = [mark.to_owned(), candidate.provider.to_string(), candidate.precision.to_string()];
        words.into_iter().chain(numbers).chain([verdict]).collect()
    };
    let heading =
        ["", "provider", "precision", "requests a second", "× exact", "from, to", "rounds", "error", "cosine", ""];
    let rows = table(&heading, &[3, 4, 5, 6, 7, 8], candidates.iter().map(row));
    format!("{rows}\n\nprecision: {decision}, at most {TOLERANCE} off")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gain_below_its_spread_is_none() {
        let gain = |rounds: &[f64]| Gain::of_rounds(rounds, &vec![100.0; rounds.len()]);
        assert_eq!(gain(&[]), None);
        assert_eq!(gain(&[110.0, 140.0, 120.0]), Some(Gain { low: 1.1, median: 1.2, high: 1.4 }));
        // Faster in each round, but by what rounds differ.
        let noise = gain(&[106.0, 150.0, 125.0, 108.0, 120.0]);
        assert!(noise.is_some_and(|gain| gain.may_be_worth_it() && !gain.is_worth_it()), "{noise:?}");
        assert!(gain(&[125.0, 104.0, 126.0]).is_some_and(|gain| !gain.may_be_worth_it()), "once it was not");
        assert!(gain(&[190.0, 210.0, 200.0]).is_some_and(Gain::is_worth_it));
        assert!(gain(&[112.0, 115.0, 113.0]).is_some_and(Gain::is_worth_it), "small, but steady");
        // Each round has its own reference: a machine that slows down slows both.
        let slowing = Gain::of_rounds(&[200.0, 100.0, 50.0], &[100.0, 50.0, 25.0]);
        assert_eq!(slowing, Some(Gain { low: 2.0, median: 2.0, high: 2.0 }));
    }
}
