//! The target of a case: a component alone, or a whole pipeline.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::case::{Case, ErrorKind};
use gpux::GpuxError;
use gpux::internal::Definition;
use gpux::{LoadOptions, Pipeline};
use gpux_config::{ConfigurationError, Content, Diagnostic, Node};
use gpux_core::{Context, Kind, Port, RunError, RunOptions, Signature, Step, StepFailure, Value, deadline_after};

/// The result of running a case.
#[derive(Debug)]
pub(super) struct RunOutcome {
    pub(super) result: Result<Vec<(String, Value)>, RunFailure>,
    /// log lines
    pub(super) log: Vec<String>,
}

/// A run that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RunFailure {
    pub(super) kind: ErrorKind,
    pub(super) message: String,
}

impl From<&StepFailure> for RunFailure {
    fn from(failure: &StepFailure) -> Self {
        let kind = match failure {
            StepFailure::InvalidInput(_) => ErrorKind::InvalidInput,
            StepFailure::Failed(_) | StepFailure::Unsupported(_) | StepFailure::Cancelled => ErrorKind::Failed,
            StepFailure::Limit(_) | StepFailure::Timeout => ErrorKind::Limit,
        };
        Self { kind, message: failure.to_string() }
    }
}

/// The target of a case.
pub(super) enum Target {
    Component(Component),
    Pipeline(Box<Pipeline>),
}

/// A component file; each case says how it is configured.
pub(super) struct Component {
    /// its folder, in the role of a gpux.yml's
    pub(super) folder: PathBuf,
    /// its file there
    pub(super) file: String,
    /// the last configuration and its step: cases often share one
    loaded: Option<(String, ConfiguredStep)>,
}

/// A step, and how long one request may take in it.
#[derive(Clone)]
pub(super) struct ConfiguredStep {
    pub(super) step: Arc<dyn Step>,
    pub(super) timeout: Option<Duration>,
}

impl Component {
    pub(super) fn new(path: &Path) -> Self {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let file = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        Self { folder: folder.to_owned(), file, loaded: None }
    }

    /// The component as a case configures it, made as a gpux.yml with this one step would make it.
    fn step(&mut self, case: &Case, load_options: &LoadOptions) -> Result<ConfiguredStep, GpuxError> {
        let parts = ["options", "limits", "grant"].map(|key| (key, case.node(key).cloned()));
        let models = case.node("models").cloned();
        let texts = parts.iter().map(|(_, part)| part).chain([&models]);
        let key =
            texts.map(|part| part.as_ref().map(Node::to_json).unwrap_or_default().to_string()).collect::<Vec<_>>();
        let key = key.join("\n");
        if let Some((loaded, configured)) = &self.loaded
            && *loaded == key
        {
            return Ok(configured.clone());
        }
        let here = case.document.root.span.start..case.document.root.span.start;
        let text = |text: &str| Node::text(text, here.clone());
        let parts = parts.into_iter().filter_map(|(key, part)| Some((key, part?)));
        let wasm = Node::mapping([("component", text(&self.file))].into_iter().chain(parts), here.clone());
        let steps = Node::new(Content::Sequence(vec![Node::mapping([("wasm", wasm)], here.clone())]), here.clone());
        let fields = [("name", text("case")), ("version", text("0")), ("pipeline", steps)];
        let root = Node::mapping(fields.into_iter().chain(models.map(|models| ("models", models))), here);
        let (document, spec) = gpux_config::spec_of(&case.document.source, root, &gpux_config::accept_any_step)?;
        let definition = Definition::new(self.folder.join(gpux_config::FILE_NAMES[0]), document, spec);
        let pipeline = Pipeline::load(definition, load_options)?;
        let step = pipeline.plan().steps().first().map(|planned| planned.step.clone());
        let Some(step) = step else { return Err(case.configuration_error(Vec::new()).into()) };
        let configured = ConfiguredStep { step, timeout: pipeline.timeout() };
        self.loaded = Some((key, configured.clone()));
        Ok(configured)
    }
}

/// A target that is ready for a case.
pub(super) enum PreparedTarget<'a> {
    Step(ConfiguredStep),
    Pipeline(&'a Pipeline),
}

impl Target {
    /// The target as the case configures it.
    pub(super) fn prepare(&mut self, case: &Case, load_options: &LoadOptions) -> Result<PreparedTarget<'_>, GpuxError> {
        match self {
            Self::Component(component) => Ok(PreparedTarget::Step(component.step(case, load_options)?)),
            Self::Pipeline(pipeline) => {
                case.require_pipeline_case()?;
                Ok(PreparedTarget::Pipeline(pipeline))
            }
        }
    }
}

impl PreparedTarget<'_> {
    /// The input ports.
    pub(super) fn inputs(&self) -> Vec<Port> {
        match self {
            Self::Step(ConfiguredStep { step, .. }) => step.signature().inputs.clone(),
            Self::Pipeline(pipeline) => pipeline.plan().inputs().iter().map(|input| input.port.clone()).collect(),
        }
    }

    /// The output ports.
    pub(super) fn outputs(&self) -> Vec<Port> {
        match self {
            Self::Step(ConfiguredStep { step, .. }) => step.signature().outputs.clone(),
            Self::Pipeline(pipeline) => {
                let outputs = pipeline.plan().outputs().iter();
                outputs.map(|output| Port::new(output.name.clone(), output.kind.clone())).collect()
            }
        }
    }

    /// Runs it on these inputs.
    pub(super) fn run(&self, case: &Case, inputs: Vec<(String, Value)>) -> Result<RunOutcome, Box<ConfigurationError>> {
        match self {
            Self::Step(ConfiguredStep { step, timeout }) => {
                missing(case, step.signature(), &inputs)?;
                Ok(run_step(step.as_ref(), inputs, *timeout))
            }
            Self::Pipeline(pipeline) => {
                let deadline = deadline_after(pipeline.timeout());
                let options = RunOptions { deadline, ..RunOptions::default() };
                Ok(match pipeline.plan().run(inputs, options) {
                    Ok(outputs) => RunOutcome { result: Ok(outputs), log: Vec::new() },
                    Err(RunError::Validation(error)) => {
                        let failure = RunFailure { kind: ErrorKind::InvalidInput, message: error.to_string() };
                        RunOutcome { result: Err(failure), log: Vec::new() }
                    }
                    Err(RunError::Step(mut error)) => {
                        error.explain_timeout(|| pipeline.time_limit());
                        let failure = RunFailure { message: error.to_string(), ..RunFailure::from(&error.failure) };
                        RunOutcome { result: Err(failure), log: error.log }
                    }
                })
            }
        }
    }
}

/// Inputs that a step needs and the case lacks: no plan would connect it so.
fn missing(case: &Case, signature: &Signature, inputs: &[(String, Value)]) -> Result<(), Box<ConfigurationError>> {
    let given = |port: &&Port| !port.optional && !inputs.iter().any(|(name, _)| *name == port.name);
    let fault = |port: &Port| {
        let message = format!("the case lacks the input `{}` ({})", port.name, port.kind);
        Diagnostic::new("missing-input", case.span("inputs"), message).hint(match &port.kind {
            Kind::Tensor(_) => format!("add `{}: {{ file: NAME.npy }}` or `{{ data: […] }}`", port.name),
            Kind::Bytes => format!("add `{}: {{ file: NAME }}`", port.name),
            _ => format!("add `{}: …`", port.name),
        })
    };
    let faults: Vec<_> = signature.inputs.iter().filter(given).map(fault).collect();
    if faults.is_empty() { Ok(()) } else { Err(case.configuration_error(faults).into()) }
}

/// Runs one step on inputs by name, each held against its port as a plan would.
fn run_step(step: &dyn Step, mut inputs: Vec<(String, Value)>, timeout: Option<Duration>) -> RunOutcome {
    let signature = step.signature();
    let mut values = Vec::with_capacity(signature.inputs.len());
    for port in &signature.inputs {
        let place = inputs.iter().position(|(name, _)| *name == port.name);
        let value = place.map(|place| inputs.swap_remove(place).1);
        if let Some(Err(mismatch)) = value.as_ref().map(|value| port.kind.accepts(&value.kind())) {
            let message = format!("input `{}`: {mismatch}", port.name);
            return RunOutcome { result: Err(RunFailure { kind: ErrorKind::InvalidInput, message }), log: Vec::new() };
        }
        values.push(value);
    }
    let mut context = Context { deadline: deadline_after(timeout), ..Context::default() };
    let result = step.run(values, &mut context);
    let names = signature.outputs.iter().map(|port| port.name.clone());
    RunOutcome {
        result: result.map(|outputs| names.zip(outputs).collect()).map_err(|failure| RunFailure::from(&failure)),
        log: context.log,
    }
}
