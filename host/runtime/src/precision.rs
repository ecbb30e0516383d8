//! What a model is computed in: `precision` of gpux.yml or of the operator, and what was measured for `auto`.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::engine;
use super::load_options::LoadOptions;
use super::source::Definition;
use crate::error::ReportedError;
use crate::{ErrorCategory, GpuxError};
use gpux_config::ModelSpec;
use gpux_core::child_process::{self, ChildError};
use gpux_core::files::digest;
use gpux_core::{CacheFolder, Precision, ProjectFiles, authenticated_file, lossless_path};
use gpux_inference::{
    ExecutionProvider, Hardware, ModelFile, ModelLoadError, ProviderChoice, ProviderError, WeightLinks,
};

/// What `precision: auto` came to for a model on this machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PrecisionDecision {
    /// anything but `auto`
    pub precision: Precision,
    /// the execution provider that was measured with it
    pub provider: ExecutionProvider,
    /// the time of a request in `exact` divided by that in this precision; the middle of the rounds
    pub speedup: f64,
    /// the least and the greatest of the rounds
    #[serde(default)]
    pub spread: (f64, f64),
    /// the largest difference from `exact`, as a part of the largest number of an output
    pub error: f64,
    /// on what it was measured, for people
    pub samples: String,
}

impl fmt::Display for PrecisionDecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { precision, provider, speedup, spread: (low, high), error, samples } = self;
        write!(f, "{precision} on {provider}, {speedup:.2} ({low:.2} to {high:.2}) × as fast as exact")?;
        write!(f, ", {error:.1e} off, over {samples}")
    }
}

/// A choice of the precision of a pipeline's models for which it is `auto`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PrecisionRequest {
    /// a folder, a gpux.yml, a name or a model
    #[serde(with = "lossless_path")]
    pub pipeline: PathBuf,
    /// files of requests to measure on, as `gpux run --file` takes them; without any, golden cases, else the requests of
    /// `serving.warmup`, else made-up ones
    pub samples: Vec<String>,
    /// how the pipeline is loaded; the choice holds for these engines
    pub load_options: LoadOptions,
    /// whether other processes go first
    pub background: bool,
}

/// What was measured to choose a precision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PrecisionReport {
    /// the choice
    pub decision: PrecisionDecision,
    /// each provider in each precision; the first is what others are compared with
    pub candidates: Vec<PrecisionCandidate>,
    /// the largest error that is accepted
    pub tolerance: f64,
    /// whether it was measured on made-up inputs, for want of others
    pub is_synthetic: bool,
}

/// One provider in one precision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PrecisionCandidate {
    /// where it ran
    pub provider: ExecutionProvider,
    /// what models were computed in
    pub precision: Precision,
    /// requests a second, in each round that it took part in
    pub rounds: Vec<f64>,
    /// how many times as fast as the first candidate
    pub gain: Option<PrecisionGain>,
    /// the largest difference from the first candidate, as a part of the largest number of an output
    pub error: Option<f64>,
    /// the least cosine between rows of both
    pub cosine: Option<f64>,
    /// why it could not be chosen; `None` where it could, or is not faster
    pub refused: Option<String>,
}

/// How many times as fast as another, over several rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PrecisionGain {
    /// in the worst round
    pub low: f64,
    /// in the middle one
    pub median: f64,
    /// in the best one
    pub high: f64,
}

/// The longest that a choice may take.
const CHOICE_TIMEOUT: Duration = Duration::from_hours(2);

impl PrecisionRequest {
    /// Measures in child processes of the `gpux` program ([`LoadOptions::program`]), and remembers the choice in the
    /// cache: pipelines that are loaded from now on use it. `None` if no precision is `auto`.
    pub fn choose(&self) -> Result<Option<PrecisionReport>, GpuxError> {
        self.ask(|program, arguments| child_process::run_json_with_input(program, arguments, self, CHOICE_TIMEOUT))
    }

    /// The same with these variables of the environment alone.
    pub fn choose_in(&self, environment: &[(OsString, OsString)]) -> Result<Option<PrecisionReport>, GpuxError> {
        self.ask(|program, arguments| child_process::run_json_in(environment, program, arguments, self, CHOICE_TIMEOUT))
    }

    fn ask(
        &self,
        run: impl FnOnce(&Path, &[&OsStr]) -> Result<Result<Option<PrecisionReport>, ReportedError>, ChildError>,
    ) -> Result<Option<PrecisionReport>, GpuxError> {
        let program = self.load_options.program.as_deref().ok_or_else(|| {
            let message = "choosing a precision takes the program `gpux`".to_owned();
            ReportedError::new(ErrorCategory::Environment, message)
        })?;
        let answer = run(program, &["__choose-precision".as_ref()]).map_err(|fault| {
            let category = if fault.is_environment() { ErrorCategory::Environment } else { ErrorCategory::Run };
            ReportedError::new(category, fault.to_string())
        })?;
        Ok(answer?)
    }
}

/// What a model of a pipeline is computed in.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ModelPrecision {
    /// anything but `auto`
    pub precision: Precision,
    /// what `auto` came to
    pub decision: Option<PrecisionDecision>,
    /// whether it is `auto`, which was not measured on this machine yet
    pub is_undecided: bool,
}

/// A model's file, providers and precision.
#[derive(Debug)]
pub(super) struct ResolvedPrecision {
    pub(super) file: ModelFile,
    pub(super) providers: ProviderChoice,
    /// what the provider computes float32 operators in
    pub(super) float: Precision,
    pub(super) precision: ModelPrecision,
    /// why it is not what was asked for
    pub(super) warning: Option<String>,
}

impl ResolvedPrecision {
    /// As the file says.
    pub(super) fn exact(file: ModelFile, providers: ProviderChoice) -> Self {
        let precision = ModelPrecision { precision: Precision::Exact, decision: None, is_undecided: false };
        Self { file, providers, float: Precision::Exact, precision, warning: None }
    }
}

/// The choice for a model: the operator's, else that of gpux.yml.
fn choice(model: &ModelSpec, load_options: &LoadOptions) -> Precision {
    load_options.providers.precision.unwrap_or(model.precision)
}

/// Reads the model in the precision that was chosen for it, and orders the providers after that.
pub(super) fn resolve(
    model: &ModelSpec,
    files: &ProjectFiles,
    providers: ProviderChoice,
    load_options: &LoadOptions,
) -> Result<ResolvedPrecision, ModelLoadError> {
    let path = Path::new(&model.source.value);
    let original = || read(files, path);
    let (mut providers, mut float, mut decision, mut warning) = (providers, Precision::Exact, None, None);
    let mut choice = choice(model, load_options);
    let (mut file, mut is_undecided) = (None, false);
    if choice == Precision::Auto {
        let read = original()?;
        decision = self::decision(&read, load_options);
        file = Some(read);
        if let Some(decision) = &decision {
            choice = decision.precision;
            providers = ProviderChoice::First(vec![decision.provider]);
        } else {
            let name = &model.name.value;
            let message = format!(
                "the precision of the model `{name}` is not chosen yet, so it is computed in float32 until `gpux build` \
                 or a server has measured"
            );
            if load_options.providers.strict {
                return Err(ModelLoadError::Precision { path: path.to_owned(), reason: message });
            }
            (choice, is_undecided, warning) = (Precision::Exact, true, Some(message));
        }
    }
    match choice {
        Precision::Exact | Precision::Auto => {}
        Precision::Bf16 => float = Precision::Bf16,
        Precision::Fp16 => match variant(files, path, choice) {
            Some(converted) => file = Some(read(files, &converted)?),
            None => float = Precision::Fp16,
        },
        Precision::Int8 => {
            let Some(converted) = variant(files, path, choice) else {
                let missing = converted_path(path, choice);
                let reason = format!(
                    "there is no `{}` beside it; `gpux build --precision int8` makes one",
                    missing.file_name().unwrap_or_default().display()
                );
                return Err(ModelLoadError::Precision { path: path.to_owned(), reason });
            };
            file = Some(read(files, &converted)?);
        }
    }
    if float != Precision::Exact && providers == ProviderChoice::Auto {
        providers = ProviderChoice::First(Hardware::detect().providers_with(float));
    }
    let file = file.map_or_else(original, Ok)?;
    let precision = ModelPrecision { precision: choice, decision, is_undecided };
    Ok(ResolvedPrecision { file, providers, float, precision, warning })
}

fn read(files: &ProjectFiles, path: &Path) -> Result<ModelFile, ModelLoadError> {
    // The files have been checked; this fails for a file that changed since.
    let changed = |error| ModelLoadError::Io { path: path.to_owned(), source: std::io::Error::other(error) };
    let (found, file) = files.open(path).map_err(changed)?;
    let links = if files.allows_outside() { WeightLinks::Anywhere } else { WeightLinks::Inside };
    let Some(link) = files.location(path).filter(|location| *location != found) else {
        return ModelFile::read(found, file, links);
    };
    // Weights lie beside the file, or links to them beside the link to it, whose path is the one that the user knows.
    ModelFile::read(found, file, links).or_else(|_| {
        let (_, file) = files.open(path).map_err(changed)?;
        ModelFile::read(link, file, links)
    })
}

/// Where `gpux build --precision` puts the converted model: beside the original, as `NAME.int8.onnx`.
pub fn converted_path(model: &Path, precision: Precision) -> PathBuf {
    let stem = model.file_stem().unwrap_or_default().to_string_lossy();
    model.with_file_name(format!("{stem}.{precision}.onnx"))
}

/// The converted model, if there is one.
fn variant(files: &ProjectFiles, model: &Path, precision: Precision) -> Option<PathBuf> {
    let path = converted_path(model, precision);
    files.resolve(&path).is_ok().then_some(path)
}

/// The converted models that may run in the place of this one, by its precision.
pub(super) fn variants(model: &ModelSpec, files: &ProjectFiles, load_options: &LoadOptions) -> Vec<PathBuf> {
    let is_asked = |precision: &Precision| [*precision, Precision::Auto].contains(&choice(model, load_options));
    let path = Path::new(&model.source.value);
    [Precision::Fp16, Precision::Int8]
        .into_iter()
        .filter(is_asked)
        .filter_map(|precision| variant(files, path, precision))
        .collect()
}

/// The models of a pipeline for which the precision is `auto`. Loads no engine: a process can load one library only,
/// and which one the choice decides.
pub fn auto_models(definition: &Definition, load_options: &LoadOptions) -> Result<Vec<ModelFile>, GpuxError> {
    let files = definition.files(load_options);
    let models = definition.spec().models.iter().filter(|model| choice(model, load_options) == Precision::Auto);
    models.map(|model| Ok(read(&files, Path::new(&model.source.value))?)).collect()
}

/// What was chosen for this model on this machine, if anything.
fn decision(file: &ModelFile, load_options: &LoadOptions) -> Option<PrecisionDecision> {
    let bytes =
        authenticated_file::read(load_options.cache.as_ref()?, CacheFolder::Precisions, &key(file, load_options))?;
    serde_json::from_slice(&bytes).ok()
}

/// Remembers a choice for a model on this machine.
pub fn remember(file: &ModelFile, load_options: &LoadOptions, decision: &PrecisionDecision) -> std::io::Result<()> {
    let Some(cache) = &load_options.cache else { return Ok(()) };
    let bytes = serde_json::to_vec(decision).map_err(std::io::Error::other)?;
    authenticated_file::write(cache, CacheFolder::Precisions, &key(file, load_options), &bytes)
}

/// The model, the machine, and every engine that could have been chosen: a new one is measured anew.
fn key(file: &ModelFile, load_options: &LoadOptions) -> String {
    let search = engine::engine_search(load_options, &[ProviderChoice::Fastest]);
    let hardware = Hardware::detect();
    digest(format!(
        "{}\0{}\0{:?}\0{:?}\0{:?}\0{:?}\0{:?}",
        file.digest(),
        env!("CARGO_PKG_VERSION"),
        hardware.cpu,
        hardware.gpus,
        hardware.drivers,
        search.all(),
        search.plugins(),
    ))
}

/// The providers among which `auto` chooses, with the precisions that each has on this machine.
pub fn candidates(load_options: &LoadOptions) -> Result<Vec<(ExecutionProvider, Precision)>, ProviderError> {
    let search = engine::engine_search(load_options, &[ProviderChoice::Fastest]);
    let hardware = Hardware::detect();
    let offered = search.offered_providers();
    let of_provider = |provider: ExecutionProvider| {
        let precisions =
            Precision::ALL.into_iter().filter(move |precision| hardware.has_precision(provider, *precision));
        precisions.map(move |precision| (provider, precision))
    };
    let wanted: ProviderChoice = load_options.providers.names.as_deref().unwrap_or("auto").parse()?;
    let is_wanted = |provider: &ExecutionProvider| match &wanted {
        ProviderChoice::These(these) => these.contains(provider),
        _ => hardware.unavailable_reason(*provider).is_none(),
    };
    Ok(offered.into_iter().filter(is_wanted).flat_map(of_provider).collect())
}
