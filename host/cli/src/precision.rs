//! `precision: auto`: measures the pipeline in every precision that this machine has, and remembers the fastest whose
//! results stay close to `exact`.

use std::path::Path;
use std::time::Duration;

use clap::Args;
use serde::{Deserialize, Serialize};

use super::exit::Exit;
use super::input::InputArguments;
use super::load_arguments::{LoadArguments, PipelineArguments};
use super::measure::{self, MeasureError, MeasureRequest, Measurement, Target};
use super::printer::{LogLevel, Printer, table};
use gpux::{GpuxError, LoadOptions, PrecisionDecision};
use gpux_author::Accuracy;
use gpux_config::PrecisionChoice;
use gpux_core::{CacheDir, child_process};
use gpux_inference::ExecutionProvider;

/// The arguments of the hidden command that chooses beside a server.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    pipeline: PipelineArguments,

    #[command(flatten)]
    load: LoadArguments,
}

#[cfg(target_os = "linux")]
impl Arguments {
    /// Confines this process if the pipeline is isolated, which the variable says.
    pub(super) fn confine(&self) {
        if std::env::var_os(CacheDir::PIPELINE_VARIABLE).is_some()
            && let Ok(mut load_options) = self.load.options()
        {
            // Opening the pipeline reports errors; what the system lacks, its worker reports.
            let _ = gpux_worker::confine(&self.pipeline.path(), &mut load_options);
        }
    }
}

/// The outcome of a measurement.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Choice {
    /// all candidates, for people
    pub(super) report: String,
    /// why it may not be right
    pub(super) warning: Option<String>,
}

/// Runs in the child; returns the line to print.
pub(super) fn answer(arguments: &Arguments) -> String {
    child_process::lower_priority();
    let quiet = Printer { json: true, level: LogLevel::Error };
    let choice = arguments.load.options().map_err(MeasureError::from);
    let choice = choice.and_then(|options| choose(&arguments.pipeline, &[], &arguments.load, &options, quiet));
    serde_json::to_string(&choice).unwrap_or_default()
}

/// By how much an output may be off, as a part of its largest number.
const TOLERANCE: f64 = 0.03;
/// What a precision must gain over `exact`: less is noise, and not worth other numbers.
const LEAST_SPEEDUP: f64 = 1.05;
/// How long each candidate is measured, and warmed up before.
const MEASURING: Duration = Duration::from_millis(1500);
/// The longest that a candidate may take, with its loading.
const CANDIDATE_TIMEOUT: Duration = Duration::from_mins(10);
/// The most requests whose results are compared.
const SAMPLES: usize = 64;

/// One provider in one precision.
struct Candidate {
    provider: ExecutionProvider,
    precision: PrecisionChoice,
    /// requests a second and the largest error of an output; or why it is none
    result: Result<(f64, Accuracy), String>,
}

impl Candidate {
    fn target(&self) -> Target {
        Target::Precision(self.provider.short_name().to_owned(), self.precision)
    }

    /// Requests a second, if its results are close enough.
    fn accepted(&self) -> Option<f64> {
        let (throughput, accuracy) = self.result.as_ref().ok()?;
        (accuracy.error() <= TOLERANCE).then_some(*throughput)
    }
}

/// Chooses the precision of the pipeline's models for which it is `auto`; `None` if there are none.
pub(super) fn choose(
    pipeline: &PipelineArguments,
    samples: &[String],
    load: &LoadArguments,
    load_options: &LoadOptions,
    printer: Printer,
) -> Result<Option<Choice>, MeasureError> {
    // Errors are reported when the pipeline is opened.
    let Ok(models) = gpux::auto_models(&pipeline.path(), load_options) else { return Ok(None) };
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
    let converted =
        [PrecisionChoice::Int8, PrecisionChoice::Fp16].into_iter().filter(|precision| is_converted(*precision));
    let on_cpu = candidates.iter().any(|(provider, _)| *provider == ExecutionProvider::Cpu);
    candidates.extend(converted.filter(|_| on_cpu).map(|precision| (ExecutionProvider::Cpu, precision)));

    let reference = (ExecutionProvider::Cpu, PrecisionChoice::Exact);
    candidates.retain(|candidate| *candidate != reference);
    candidates.insert(0, reference);
    let input = InputArguments::of_files(samples);
    let asked = MeasureRequest {
        pipeline,
        input: &input,
        load,
        samples: SAMPLES,
        runs: 0,
        warmup: 0,
        timeout: None,
        cases: true,
        throughput: Some(MEASURING),
        output: None,
        child_timeout: CANDIDATE_TIMEOUT,
    };
    let measured = measure_all(&asked, candidates, printer)?;
    let (baseline, samples) = match (&measured.candidates.first().map(|first| &first.result), &measured.samples) {
        // A server beside it may have been busier then than now.
        (Some(Ok((throughput, _))), samples) => (throughput.max(throughput_of(&asked, reference)?), samples.clone()),
        (Some(Err(reason)), _) => return Err(MeasureError { message: reason.clone(), exit: Exit::Failed }),
        (None, _) => return Ok(None),
    };
    let candidates = measured.candidates;
    let fastest = candidates.iter().filter_map(|candidate| Some((candidate, candidate.accepted()?)));
    let fastest = fastest.max_by(|(_, a), (_, b)| a.total_cmp(b)).filter(|(_, most)| *most >= baseline * LEAST_SPEEDUP);
    let (chosen, throughput) = fastest.unwrap_or((&candidates[0], baseline));
    let decision = PrecisionDecision {
        precision: chosen.precision,
        provider: chosen.provider,
        speedup: throughput / baseline,
        error: chosen.result.as_ref().map_or(0.0, |(_, accuracy)| accuracy.error()),
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
    Ok(Some(Choice { report: report(&candidates, chosen, baseline, &decision), warning }))
}

fn environment_error(error: std::io::Error) -> MeasureError {
    MeasureError { message: error.to_string(), exit: Exit::Environment }
}

/// The name of synthetic requests.
pub(super) const SYNTHETIC_INPUTS: &str = "made-up inputs";

struct Measured {
    candidates: Vec<Candidate>,
    /// over what, for people
    samples: String,
}

/// Measures the first candidate, and the others beside it.
fn measure_all(
    asked: &MeasureRequest<'_>,
    candidates: Vec<(ExecutionProvider, PrecisionChoice)>,
    printer: Printer,
) -> Result<Measured, MeasureError> {
    let mut reference: Option<(Measurement, tempfile::TempDir)> = None;
    let mut measured = Measured { candidates: Vec::new(), samples: String::new() };
    for (provider, precision) in candidates {
        let mut candidate = Candidate { provider, precision, result: Err(String::new()) };
        printer.detail(&format!("measuring {}", candidate.target()));
        let folder = tempfile::tempdir().map_err(environment_error)?;
        let own = asked.run(&candidate.target(), folder.path());
        let own = match own {
            Ok(own) => own,
            Err(error) => {
                candidate.result = Err(error.message);
                measured.candidates.push(candidate);
                continue;
            }
        };
        let compared_with = reference.as_ref().map_or(&own, |(reference, _)| reference);
        candidate.result = compare(compared_with, &own).map(|accuracy| (own.throughput.unwrap_or_default(), accuracy));
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

/// Requests a second of one candidate.
fn throughput_of(
    asked: &MeasureRequest<'_>,
    (provider, precision): (ExecutionProvider, PrecisionChoice),
) -> Result<f64, MeasureError> {
    let folder = tempfile::tempdir().map_err(environment_error)?;
    let target = Target::Precision(provider.short_name().to_owned(), precision);
    Ok(asked.run(&target, folder.path())?.throughput.unwrap_or_default())
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

fn report(candidates: &[Candidate], chosen: &Candidate, baseline: f64, decision: &PrecisionDecision) -> String {
    let row = |candidate: &Candidate| {
        let mark = if std::ptr::eq(candidate, chosen) { "→" } else { "" };
        let (numbers, verdict) = match &candidate.result {
            Ok((throughput, accuracy)) => {
                let cosine = accuracy.cosine.map(|cosine| format!("{cosine:.5}")).unwrap_or_default();
                let numbers = [
                    format!("{throughput:.1}"),
                    format!("{:.2}", throughput / baseline),
                    format!("{:.1e}", accuracy.error()),
                    cosine,
                ];
                let verdict = if accuracy.error() <= TOLERANCE {
                    String::new()
                } else {
                    accuracy.statistics.mismatch.clone().unwrap_or_else(|| "too far from exact".to_owned())
                };
                (numbers, verdict)
            }
            Err(reason) => (Default::default(), reason.clone()),
        };
        let words = [mark.to_owned(), candidate.provider.to_string(), candidate.precision.to_string()];
        words.into_iter().chain(numbers).chain([verdict]).collect()
    };
    let heading = ["", "provider", "precision", "requests a second", "× exact", "error", "cosine", ""];
    let rows = table(&heading, &[3, 4, 5, 6], candidates.iter().map(row));
    format!("{rows}\n\nprecision: {decision}, at most {TOLERANCE} off")
}
