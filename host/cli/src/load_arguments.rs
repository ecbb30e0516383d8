//! The flags that every command which opens a pipeline shares: the operator's word.

use std::io::Read as _;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use super::exit::Exit;
use super::hub_pipeline::{self, PullArguments};
use super::printer::Printer;
use super::progress::ProgressLine;
use crate::input::is_pattern;
use gpux::internal::{Definition, FileContent, MAX_THREADS, Source};
use gpux::{AllowedGrants, EngineChoice, LoadOptions, Pipeline};
use gpux::{ErrorCategory, GpuxError};
use gpux_author::StepFile;
use gpux_config::{FILE_NAMES, LoadError, WasmLimits, variable_names};
use gpux_core::files::open_file;
use gpux_core::{Precision, child_process};
use gpux_inference::{OptionSource, ProviderLibrary, ProviderOptions};
use gpux_sandbox::SandboxError;

/// The bytes of a component at `path`. If it is larger than the operator allows, enough bytes to
/// show it.
pub(super) fn read_component(path: &Path, operator: &LoadOptions, printer: Printer) -> Result<Vec<u8>, Exit> {
    let most = (operator.policy.ceiling.component_size as u64).saturating_add(1);
    let mut bytes = Vec::new();
    match open_file(path, "a component").and_then(|file| file.take(most).read_to_end(&mut bytes)) {
        Ok(_) => Ok(bytes),
        Err(error) => {
            Err(printer.fail("UsageError", &format!("cannot read `{}`: {error}", path.display()), Exit::Usage))
        }
    }
}

/// Prints why the component at `path` is none, or why this machine cannot tell.
pub(super) fn component_error(path: &Path, error: SandboxError, printer: Printer) -> Exit {
    if error.is_environment() {
        return printer.error(&error.into());
    }
    printer.fail("ConfigurationError", &format!("{}: {error}", path.display()), Exit::Usage)
}

/// Which pipeline.
#[derive(Debug, Args)]
pub(super) struct PipelineArguments {
    /// A folder with a gpux.yml, such a file, the `name` in one, a model (.onnx) or a component (.wasm) alone, a bundle,
    /// or a name in the store
    #[arg(value_name = "PIPELINE")]
    pipeline: Option<String>,

    /// Name of the file in the folder [default: gpux.yml, gpux.yaml or GPUXfile]
    #[arg(short, long, value_name = "NAME")]
    config: Option<String>,
}

impl PipelineArguments {
    /// Opens the pipeline; warnings go to the printer.
    pub(super) fn open(&self, load: &LoadArguments, printer: Printer) -> Result<Pipeline, GpuxError> {
        self.open_as(load.options()?, printer)
    }

    /// [`Self::open`] with the operator's word given.
    pub(super) fn open_as(&self, load_options: LoadOptions, printer: Printer) -> Result<Pipeline, GpuxError> {
        open(&self.path(), &load_options, printer)
    }

    /// The pipeline with default options.
    pub(super) fn open_without_warnings(&self, operator: &LoadOptions) -> Result<Pipeline, GpuxError> {
        Pipeline::load(self.read(operator)?, operator)
    }

    /// What describes the pipeline, without the files that it names.
    pub(super) fn read(&self, operator: &LoadOptions) -> Result<Definition, GpuxError> {
        Source::find(self.path())?.read(operator)
    }

    /// What describes the pipeline on any machine: variables have their defaults.
    pub(super) fn read_for_others(&self, operator: &LoadOptions, printer: Printer) -> Result<Definition, Exit> {
        let source = Source::find(self.path()).map_err(|error| printer.error(&error))?;
        source.read_without_variables(operator).map_err(|error| {
            let exit = printer.error(&error);
            if let GpuxError::Configuration(LoadError::Invalid(error)) = &error
                && error.diagnostics().iter().any(|found| found.code == "variable")
            {
                printer.note(
                    "what others get does not depend on the environment here: give each variable a default, as in \
                     `${GPUX_MODEL:-./model.onnx}`",
                );
            }
            exit
        })
    }

    /// Fetches the model of the hub that is named, if that is asked for.
    pub(super) fn fetch(&mut self, pull: PullArguments, printer: Printer) -> Result<(), Exit> {
        let Some(name) = &mut self.pipeline else { return Ok(()) };
        pull.fetch(name, printer).map_err(|error| hub_pipeline::report(&error, printer))
    }

    /// Takes the name out if it is that of a file to run on; the pipeline is then this folder's.
    pub(super) fn take_data_file(&mut self) -> Option<String> {
        self.pipeline.take_if(|named| {
            let path = Path::new(named);
            is_pattern(path) || FileContent::detect(path) == Some(FileContent::Data)
        })
    }

    /// Whether the user named a pipeline.
    pub(super) const fn is_named(&self) -> bool {
        self.pipeline.is_some() || self.config.is_some()
    }

    /// The named path, if it has this extension.
    pub(super) fn file_with_extension(&self, ending: &str) -> Option<PathBuf> {
        let path = PathBuf::from(self.pipeline.as_ref()?);
        path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case(ending)).then_some(path)
    }

    /// The folder that the user named, if it holds a step and no pipeline.
    pub(super) fn step_folder(&self) -> Option<PathBuf> {
        Some(self.path()).filter(|path| is_step_folder(path))
    }

    /// The named folder; by default the working directory.
    pub(super) fn folder(&self) -> PathBuf {
        PathBuf::from(self.pipeline.as_deref().unwrap_or("."))
    }

    /// The named file or folder.
    pub(super) fn path(&self) -> PathBuf {
        match &self.config {
            Some(config) => self.folder().join(config),
            None => self.folder(),
        }
    }
}

/// Opens the pipeline at [`path`](PipelineArguments::path); warnings go to the printer.
pub(super) fn open(path: &Path, load_options: &LoadOptions, printer: Printer) -> Result<Pipeline, GpuxError> {
    if is_step_folder(path) {
        return Err(step_folder_is_no_pipeline(path).into());
    }
    load(Source::find(path)?.read(load_options)?, load_options, printer)
}

/// The same for a pipeline whose gpux.yml has been read.
pub(super) fn load(
    definition: Definition,
    load_options: &LoadOptions,
    printer: Printer,
) -> Result<Pipeline, GpuxError> {
    let line = ProgressLine::on_terminal(printer, "loading; what is new is compiled and tried once");
    let tested = definition.source().tested_engine();
    let pipeline = Pipeline::load(definition, load_options).inspect_err(|error| {
        if let (ErrorCategory::Environment, Some(tested)) = (error.category(), tested) {
            printer.note(&format!("its author tried it with {tested}"));
        }
    })?;
    drop(line);
    for warning in pipeline.warnings() {
        printer.warning(warning);
    }
    for optimized in pipeline.optimization_notes() {
        printer.note(&optimized);
    }
    for measured in pipeline.ranking_notes() {
        printer.note(&format!("fastest provider of {measured}"));
    }
    printer.detail(&format!("engine: {}", pipeline.engine()));
    Ok(pipeline)
}

/// Whether it is a folder that holds a step and no pipeline.
fn is_step_folder(path: &Path) -> bool {
    !FILE_NAMES.iter().any(|name| path.join(name).is_file()) && StepFile::exists_in(path)
}

fn step_folder_is_no_pipeline(folder: &Path) -> LoadError {
    let wasm = match StepFile::load(folder) {
        Ok(step) => step.component().display().to_string(),
        Err(error) => return error,
    };
    let tried = format!(
        "`{}`, but this is the folder of a step: `gpux test` runs its cases, `gpux inspect {wasm}` explains it",
        FILE_NAMES[0]
    );
    LoadError::NotFound { wanted: folder.display().to_string(), tried: vec![tried], similar: None }
}

/// The engine to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum EngineName {
    /// ONNX Runtime where there is one, else the embedded engine
    Auto,
    /// ONNX Runtime, or an error
    Onnxruntime,
    /// the embedded engine
    Embedded,
}

fn named_value(text: &str) -> Result<String, String> {
    if text.split_once('=').is_some_and(|(name, value)| !name.is_empty() && !value.is_empty()) {
        return Ok(text.to_owned());
    }
    Err("write NAME=VALUE, for example `memory=1GiB`".to_owned())
}

/// An option that some provider has, with a value that it takes.
fn provider_option(text: &str) -> Result<(String, serde_json::Value), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE, for example `device_id=1`")?;
    let plain = || serde_json::Value::String(value.to_owned());
    let value = serde_json::from_str(value).unwrap_or_else(|_| plain());
    // Options of a plug-in (`NAME.OPTION`) are checked when its library is loaded.
    if !name.contains('.') {
        let mut options = ProviderOptions::default();
        options.set(&[], name, &value, OptionSource::Operator).map_err(|fault| fault.to_string())?;
    }
    Ok((name.to_owned(), value))
}

/// The operator's flags.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Operator")]
pub(super) struct LoadArguments {
    /// Execution provider: auto, fastest, tensorrt, cuda, rocm, coreml, directml, webgpu, openvino, cpu; or a
    /// list to try in order (cuda,cpu)
    #[arg(short, long, value_name = "NAME")]
    provider: Option<String>,

    /// A library with a further execution provider, which `--provider NAME` then asks for; may be
    /// repeated
    #[arg(long, value_name = "NAME=PATH")]
    provider_library: Vec<ProviderLibrary>,

    /// An option of an execution provider, in place of gpux.yml's; may be repeated. `gpux engine
    /// options` lists them
    #[arg(long, value_name = "NAME=VALUE", value_parser = provider_option)]
    provider_option: Vec<(String, serde_json::Value)>,

    /// What models are computed in: exact (float32 stays float32), bf16, fp16, int8, or auto: the fastest that
    /// `gpux build`, or a server in the background, found to stay close to exact
    #[arg(long, value_name = "PRECISION")]
    pub(super) precision: Option<Precision>,

    /// Fail where a provider or a precision would otherwise be replaced by the next one
    #[arg(long)]
    strict: bool,

    /// Inference engine
    #[arg(long, value_enum, default_value_t = EngineName::Auto, value_name = "ENGINE")]
    engine: EngineName,

    /// ONNX Runtime's shared library, before any other
    #[arg(long, value_name = "PATH")]
    engine_library: Option<PathBuf>,

    /// Threads of each model's session, in place of gpux.yml's [default: what suits the model and the cores]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_THREADS)))]
    threads: Option<u32>,

    /// Let gpux.yml read this environment variable (GPUX_* may be read, but no GPUX_*_KEY, _TOKEN, _SECRET or
    /// _PASSWORD)
    #[arg(long, value_name = "NAME")]
    env: Vec<String>,

    /// The variables that files of the operator's own read: gpux.yml may not, unless `--env` names them
    #[arg(skip)]
    reserved_env: Vec<String>,

    /// Let gpux.yml name files outside its folder
    #[arg(long)]
    allow_outside: bool,

    /// Let gpux.yml grant this to components: clock, random, env=NAME, dir=PATH (dir=PATH:rw to
    /// write), several with commas; may be repeated [default: nothing but their own models]
    #[arg(long, value_name = "WHAT")]
    allow: Vec<AllowedGrants>,

    /// The most that a component may ask for, for example `memory=1GiB`, `time=30s`; may be
    /// repeated [default: memory=256MiB, time=10s, others as each limit's own default]
    #[arg(long, value_name = "NAME=VALUE", value_parser = named_value)]
    limit: Vec<String>,
}

impl LoadArguments {
    /// The providers that `--provider` lists.
    pub(super) fn providers(&self) -> Vec<String> {
        let listed = self.provider.iter().flat_map(|listed| listed.split(','));
        listed.map(|provider| provider.trim().to_owned()).filter(|provider| !provider.is_empty()).collect()
    }

    /// Whether the operator lets gpux.yml read this variable, or grant it.
    #[cfg(target_os = "linux")]
    pub(super) fn names_variable(&self, name: &str) -> bool {
        self.env.iter().chain(self.allow.iter().flat_map(|allow| &allow.env)).any(|named| named == name)
    }

    /// Keeps the variables of this file, which is the operator's own, from every gpux.yml. The file itself is read
    /// later, with its errors.
    pub(super) fn reserve_variables_of(&mut self, file: &Path) {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        self.reserved_env.extend(variable_names(&text).map(str::to_owned));
    }

    /// Whether gpux.yml may not read this variable unless `--env` names it.
    #[cfg(target_os = "linux")]
    pub(super) fn is_secret(&self, name: &str) -> bool {
        gpux_config::is_secret(name) || self.reserved_env.iter().any(|reserved| reserved == name)
    }

    /// The operator's settings: flags, then environment, then defaults.
    pub(super) fn options(&self) -> Result<LoadOptions, GpuxError> {
        // No flag is forgotten.
        let Self {
            provider,
            provider_library,
            provider_option,
            precision,
            strict,
            engine,
            engine_library,
            threads,
            env,
            reserved_env,
            allow_outside,
            allow,
            limit,
        } = self.clone();
        let choice = match engine {
            EngineName::Auto => EngineChoice::Auto,
            EngineName::Onnxruntime => EngineChoice::OnnxRuntime,
            EngineName::Embedded => EngineChoice::Embedded,
        };
        let mut options = LoadOptions::default();
        let policy = &mut options.policy;
        policy.outside_files = allow_outside;
        (policy.env, policy.reserved_env) = (env, reserved_env);
        for grants in allow {
            policy.grants.extend(grants);
        }
        if !limit.is_empty() {
            let lines: Vec<_> = limit.iter().map(|limit| limit.replacen('=', ": ", 1)).collect();
            policy.set_ceiling(&WasmLimits::parse("--limit", &lines.join("\n"))?);
        }
        let engine = &mut options.engine;
        (engine.choice, engine.library) = (choice, engine_library);
        engine.provider_libraries = provider_library;
        engine.threads = threads.and_then(NonZeroU32::new);
        let providers = &mut options.providers;
        (providers.names, providers.options) = (provider, provider_option);
        (providers.precision, providers.strict) = (precision, strict);
        options.program = child_process::own_program().ok();
        Ok(options)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use clap::FromArgMatches as _;

    use super::*;

    #[test]
    fn every_flag_changes_the_options() {
        let values = [
            ("provider", "cuda"),
            ("provider-library", "openvino=/opt/ep.so"),
            ("provider-option", "device_id=1"),
            ("precision", "bf16"),
            ("strict", ""),
            ("engine", "embedded"),
            ("engine-library", "libonnxruntime.so"),
            ("threads", "3"),
            ("env", "LANG"),
            ("allow-outside", ""),
            ("allow", "clock"),
            ("limit", "memory=1GiB"),
        ];
        let command = || LoadArguments::augment_args(clap::Command::new("gpux"));
        let options = |flags: &[String]| {
            let words = ["gpux".to_owned()].into_iter().chain(flags.iter().cloned());
            LoadArguments::from_arg_matches(&command().get_matches_from(words)).unwrap().options().unwrap()
        };
        for flag in command().get_arguments().filter_map(clap::Arg::get_long) {
            let (_, value) =
                values.iter().find(|(name, _)| *name == flag).unwrap_or_else(|| panic!("--{flag}: no value"));
            let word = if value.is_empty() { format!("--{flag}") } else { format!("--{flag}={value}") };
            assert_ne!(options(&[word]), options(&[]), "--{flag}");
        }
    }
}
