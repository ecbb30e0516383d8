//! Builds steps from their specs.

use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use serde_json::Value as Json;

use super::load_options::LoadOptions;
use super::{computation, grants, limits};
use gpux_config::{Action, Diagnostic, Instances, Node, Spanned, StepSpec, WasmSpec, Wiring};
use gpux_core::{BuildError, FileError, Names, OptionOrigin, ProjectFiles, Registry, Step};
use gpux_sandbox::{ComponentConfig, Limits, Refusal, Sandbox, SandboxError};

/// Builds the steps of one pipeline.
pub(super) struct StepFactory<'a> {
    pub(super) load_options: &'a LoadOptions,
    pub(super) files: &'a ProjectFiles,
    /// built-in steps and models
    pub(super) registry: Arc<Registry>,
    /// `None` for a pipeline without components
    sandbox: Option<&'a Sandbox>,
    /// bytes of the components, by path
    components: HashMap<String, Vec<u8>>,
    /// what each built-in step computes, in the order of the file
    pub(super) computations: Vec<Json>,
    /// for the user
    pub(super) warnings: Vec<String>,
    /// whether the registry lacks the pipeline's models, because they cannot be loaded
    pub(super) lacks_models: bool,
}

/// A step cannot be built.
pub(super) enum StepBuildError {
    /// mistakes in gpux.yml, or in a file that it names
    Invalid(Vec<Diagnostic>),
    /// this machine cannot run components
    Environment(SandboxError),
}

impl From<Vec<Diagnostic>> for StepBuildError {
    fn from(diagnostics: Vec<Diagnostic>) -> Self {
        Self::Invalid(diagnostics)
    }
}

impl<'a> StepFactory<'a> {
    pub(super) fn new(
        load_options: &'a LoadOptions,
        files: &'a ProjectFiles,
        registry: Arc<Registry>,
        sandbox: Option<&'a Sandbox>,
    ) -> Self {
        Self {
            load_options,
            files,
            registry,
            sandbox,
            components: HashMap::new(),
            computations: Vec::new(),
            warnings: Vec::new(),
            lacks_models: false,
        }
    }

    /// Builds a step, or returns every mistake in it. `None` for a step that is made of others.
    pub(super) fn build(&mut self, spec: &StepSpec) -> Option<Result<Arc<dyn Step>, StepBuildError>> {
        Some(match &spec.action {
            Action::Model(call) => {
                let name = call.name.as_ref();
                model(&self.registry, name, spec).map_err(|diagnostic| vec![diagnostic].into())
            }
            Action::BuiltIn(options) if self.lacks_models && reads_metadata(options) => {
                Err(check_builtin(&self.registry, &spec.tag, options).into())
            }
            Action::BuiltIn(options) => {
                // Those of others.
                self.files.take_contents();
                let built = builtin(&self.registry, self.files, &spec.tag, options);
                self.computations.push(computation::describe_builtin(
                    &self.registry,
                    self.files,
                    &spec.tag.value,
                    options,
                ));
                built.map(Arc::from).map_err(StepBuildError::from)
            }
            Action::Wasm(wasm) => self.component(wasm),
            Action::ForEach(_) => return None,
        })
    }

    fn component(&mut self, wasm: &WasmSpec) -> Result<Arc<dyn Step>, StepBuildError> {
        let mut faults = Vec::new();
        let limits = limits::resolve(&wasm.limits, &self.load_options.policy.ceiling).unwrap_or_else(|above| {
            faults.extend(above);
            Limits::default()
        });
        let (grants, denied) = grants::resolve(&wasm.grant, self.load_options, self.files);
        faults.extend(denied);

        let path = &wasm.component;
        if !self.components.contains_key(&path.value) {
            match self.files.read(Path::new(&path.value), self.load_options.policy.ceiling.component_size as u64) {
                Ok(bytes) => {
                    self.components.insert(path.value.clone(), bytes);
                }
                Err(error) => {
                    let fault = Diagnostic::new("file", path.span.clone(), error.to_string());
                    faults.push(match error {
                        FileError::TooLarge { .. } => {
                            fault.hint("raise the operator's ceiling with `--limit component_size=…`")
                        }
                        FileError::NotFound { .. } => match self.step_folder(&path.value) {
                            Some(folder) => fault.hint(format!("its step is there: `gpux build {folder}` makes it")),
                            None => fault,
                        },
                        _ => fault,
                    });
                    return Err(faults.into());
                }
            }
        }

        let Some(sandbox) = self.sandbox else { return Err(faults.into()) };
        let bytes = self.components.get(&path.value).map(Vec::as_slice).unwrap_or_default();
        if !faults.is_empty() {
            if let Ok(refusals) = sandbox.refusals(bytes, &grants) {
                faults.extend(self.import_diagnostics(&refusals, wasm));
            }
            return Err(faults.into());
        }

        let reuse = wasm.instances == Instances::Reuse;
        let config = ComponentConfig { options: wasm.options.to_json(), limits, grants, reuse };
        let step = sandbox.load(bytes, config, &self.registry).map_err(|error| match error {
            machine if machine.is_environment() => StepBuildError::Environment(machine),
            SandboxError::Imports(refusals) => self.import_diagnostics(&refusals, wasm).into(),
            other => component_diagnostics(&other, wasm).into(),
        })?;
        self.warnings.extend(grants::unused_warnings(&step.unused_grants(), wasm));
        Ok(Arc::new(step))
    }

    /// The folder of the step whose build makes this component, as a command takes it.
    fn step_folder(&self, component: &str) -> Option<String> {
        let mut folders = Path::new(component).ancestors().skip(1).map(|folder| self.files.root().join(folder));
        let folder = folders.find(|folder| folder.join("step.yml").is_file())?;
        let shown: PathBuf = folder.components().filter(|part| *part != Component::CurDir).collect();
        Some(if shown.as_os_str().is_empty() { ".".to_owned() } else { shown.display().to_string() })
    }

    fn import_diagnostics(&self, refusals: &[Refusal], wasm: &WasmSpec) -> Vec<Diagnostic> {
        let models: Vec<_> = self.registry.model_names().collect();
        grants::import_diagnostics(refusals, wasm, self.load_options, &models)
    }
}

/// The name of a step in errors and traces.
pub(super) fn label(spec: &StepSpec) -> String {
    match &spec.action {
        Action::Wasm(wasm) => {
            let path = Path::new(&wasm.component.value);
            path.file_name().map_or_else(|| wasm.component.value.clone(), |name| name.to_string_lossy().into_owned())
        }
        Action::Model(call) => match &call.name {
            Some(name) if name.value != gpux_config::DEFAULT_MODEL_NAME => format!("model {}", name.value),
            _ => "model".to_owned(),
        },
        Action::BuiltIn(_) | Action::ForEach(_) => spec.tag.value.clone(),
    }
}

/// `in:` or `out:` as names of the plan.
pub(super) fn names(wiring: &Wiring) -> Names {
    match wiring {
        Wiring::Name(name) => Names::Ordered(vec![name.value.clone()]),
        Wiring::List(names) => Names::Ordered(names.iter().map(|name| name.value.clone()).collect()),
        Wiring::Map(pairs) => {
            Names::ByPort(pairs.iter().map(|(port, name)| (port.value.clone(), name.value.clone())).collect())
        }
    }
}

/// Checks the tag and the options of a built-in step without making it.
pub(super) fn check_builtin(registry: &Registry, tag: &Spanned<String>, options: &Node) -> Vec<Diagnostic> {
    let Some(builtin) = registry.builtin(&tag.value) else {
        let known = registry.builtins().map(|builtin| builtin.name).chain(["model", "wasm", "for-each"]);
        let hint = match gpux_core::closest(&tag.value, known) {
            Some(near) => format!("did you mean `{near}`?"),
            None => "`gpux steps` lists them; a component is `wasm: PATH`".to_owned(),
        };
        let message = format!("there is no step `{}`", tag.value);
        return vec![Diagnostic::new("unknown-step", tag.span.clone(), message).hint(hint)];
    };
    gpux_config::check(options, &tag.value, &(builtin.schema)())
}

/// A built-in step.
pub(super) fn builtin(
    registry: &Registry,
    files: &ProjectFiles,
    tag: &Spanned<String>,
    options: &Node,
) -> Result<Box<dyn Step>, Vec<Diagnostic>> {
    let faults = check_builtin(registry, tag, options);
    let Some(builtin) = registry.builtin(&tag.value).filter(|_| faults.is_empty()) else { return Err(faults) };
    let json = match options.to_json() {
        Json::Null => Json::Object(serde_json::Map::new()),
        json => json,
    };
    (builtin.build)(json, &OptionOrigin::Pipeline { files, models: registry.model_metadata() })
        .map_err(|error| vec![build_diagnostic(error, tag, options)])
}

/// Whether an option is `{ model: NAME, key: KEY }`.
fn reads_metadata(options: &Node) -> bool {
    let is_source = |(_, node): &(_, Node)| node.get("key").is_some();
    options.entries().is_some_and(|entries| entries.iter().any(is_source))
}

fn build_diagnostic(error: BuildError, tag: &Spanned<String>, options: &Node) -> Diagnostic {
    let place = at(options, &error.option).unwrap_or_else(|| tag.span.clone());
    let diagnostic = Diagnostic::new("option", place, format!("{}: {}", tag.value, error.message));
    match error.hint {
        Some(hint) => diagnostic.hint(hint),
        None => diagnostic,
    }
}

/// The place of the option at this path of keys; as deep as the file goes.
fn at(options: &Node, path: &[String]) -> Option<gpux_config::Span> {
    let mut node = options;
    let mut found = None;
    for key in path {
        let next = match key.parse::<usize>() {
            Ok(index) => node.items().and_then(|items| items.get(index)),
            Err(_) => node.get(key),
        };
        let Some(next) = next else { break };
        node = next;
        found = Some(node.span.clone());
    }
    found
}

fn model(registry: &Registry, name: Option<&Spanned<String>>, spec: &StepSpec) -> Result<Arc<dyn Step>, Diagnostic> {
    let known: Vec<_> = registry.model_names().collect();
    let list = known.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let here = spec.tag.span.clone();
    let found = match (name, known.as_slice()) {
        (_, []) => {
            return Err(Diagnostic::new("model", here, "the pipeline has no model")
                .hint("add `model: { source: PATH.onnx }`, or `models:` with several"));
        }
        (Some(name), _) => registry.model(&name.value),
        (None, [only]) => registry.model(only),
        (None, _) => None,
    };
    found.cloned().ok_or_else(|| match name {
        Some(name) => Diagnostic::new("model", name.span.clone(), format!("there is no model `{}`", name.value))
            .hint(format!("there is {list}")),
        None => Diagnostic::new("model", here, "the pipeline has several models; say which one runs here")
            .hint(format!("write `- model: NAME` with one of {list}")),
    })
}

fn component_diagnostics(error: &SandboxError, wasm: &WasmSpec) -> Vec<Diagnostic> {
    let here = &wasm.component;
    // The same words as for the options of built-in steps, wherever they find the fault as well.
    let described = |schema: &Json| {
        let schema = schemars::Schema::try_from(schema.clone()).unwrap_or_default();
        gpux_config::check(&wasm.options, &here.value, &schema)
    };
    match error {
        SandboxError::Options { schema, .. } if !described(schema).is_empty() => described(schema),
        SandboxError::Options { faults, .. } => faults
            .iter()
            .map(|fault| {
                let span = at(&wasm.options, &fault.path).unwrap_or_else(|| {
                    if wasm.options.is_null() { here.span.clone() } else { wasm.options.span.clone() }
                });
                Diagnostic::new("option", span, format!("{}: {}", here.value, fault.message))
                    .hint(format!("`gpux inspect {}` shows its options", here.value))
            })
            .collect(),
        SandboxError::UnknownModel { name, .. } => {
            let granted = wasm.grant.models.iter().find(|granted| granted.value == *name);
            let span = granted.map_or(here.span.clone(), |granted| granted.span.clone());
            vec![Diagnostic::new("grant", span, format!("{}: {error}", here.value))]
        }
        other => vec![Diagnostic::new("component", here.span.clone(), format!("{}: {other}", here.value))],
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use gpux_config::Variables;
    use gpux_core::RunOptions;

    /// Steps that nest their inputs, so that a small file builds JSON of thousands of levels.
    #[test]
    fn rejects_plans_that_nest_json_too_deeply() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gpux.yml");
        let open = |steps: usize, levels: usize, placeholder: &str| {
            let (open, close) = ("[".repeat(levels), "]".repeat(levels));
            let step =
                format!("  - json-template: {{ template: {{ json: {open}\"{{{{{placeholder}}}}}\"{close} }} }}\n");
            let text = format!(
                "name: t\nversion: 1.0.0\ninputs: {{ json: {{ type: text }} }}\npipeline:\n{}",
                step.repeat(steps)
            );
            std::fs::write(&path, text).unwrap();
            crate::Pipeline::open(&path, &LoadOptions::default())
        };
        for (steps, levels) in [(180, 52), (200, 1), (6, 50)] {
            let error = open(steps, levels, "json").err().unwrap().to_json().to_string();
            assert!(error.contains("levels deep; a pipeline builds 256 at most"), "{steps} steps: {error}");
        }
        // As deep as may be, it is run, written and dropped on a small stack.
        let pipeline = open(5, 50, "json").unwrap();
        let run = move || {
            let outputs = pipeline.plan().run(vec![("json".to_owned(), "x".into())], RunOptions::default()).unwrap();
            gpux_core::to_json(&outputs[0].1).to_string().len()
        };
        let written = std::thread::Builder::new().stack_size(1 << 20).spawn(run).unwrap().join().unwrap();
        assert_eq!(written, 3 + 5 * (2 * 50 + "{\"json\":}".len()));
        // A placeholder that reads a part does not nest deeper.
        assert!(open(250, 0, "json.json").is_ok());
    }

    #[test]
    fn says_which_build_makes_a_missing_component() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("tidy")).unwrap();
        let path = folder.path().join("gpux.yml");
        let hint = |component: &str| {
            std::fs::write(&path, format!("name: t\nversion: 1\npipeline:\n  - wasm: {component}\n")).unwrap();
            let error = crate::Pipeline::open(&path, &LoadOptions::default()).err().unwrap();
            error.to_json()["details"]["diagnostics"]["errors"][0]["hint"].clone()
        };
        assert_eq!(hint("./tidy/tidy.wasm"), Json::Null);
        std::fs::write(folder.path().join("tidy/step.yml"), "name: tidy\nlanguage: python\n").unwrap();
        let command = format!("`gpux build {}` makes it", folder.path().join("tidy").display());
        for component in ["./tidy/tidy.wasm", "./tidy/out/tidy.wasm"] {
            assert!(hint(component).as_str().unwrap().ends_with(&command), "{}", hint(component));
        }
    }

    #[test]
    fn accepts_the_example_of_every_builtin() {
        let registry = crate::builtins();
        for builtin in registry.builtins() {
            let text = format!("name: example\nversion: 1.0.0\npipeline:\n  - {}\n", builtin.example);
            let check = |tag: &Spanned<String>, options: &Node| check_builtin(&registry, tag, options);
            let (_, spec) = gpux_config::parse(builtin.name, text, &Variables::empty(), &check).unwrap();
            assert_eq!(spec.pipeline.iter().map(|step| step.tag.value.as_str()).collect::<Vec<_>>(), [builtin.name]);
        }
    }
}
