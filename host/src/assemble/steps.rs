//! Steps as written → steps that run.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value as Json;

use super::limits;
use super::operator::Operator;
use crate::config::{self, Action, Diagnostic, Instances, Node, Spanned, StepSpec, WasmSpec, Wiring};
use crate::pipeline::{BuildError, Names, ProjectFiles, Registry, Site, Step};
use crate::sandbox::{Grants, LoadRequest, Sandbox, SandboxError};

/// Makes the steps of one pipeline.
pub(super) struct Workshop<'a> {
    pub(super) operator: &'a Operator,
    pub(super) files: &'a ProjectFiles,
    /// built-in steps and models
    pub(super) registry: Arc<Registry>,
    /// there if the pipeline has components
    sandbox: Option<&'a Sandbox>,
    /// components that are used more than once are read once
    components: HashMap<String, Vec<u8>>,
}

impl<'a> Workshop<'a> {
    pub(super) fn new(
        operator: &'a Operator,
        files: &'a ProjectFiles,
        registry: Arc<Registry>,
        sandbox: Option<&'a Sandbox>,
    ) -> Self {
        Self { operator, files, registry, sandbox, components: HashMap::new() }
    }

    /// The step, or every reason why there is none.
    pub(super) fn make(&mut self, spec: &StepSpec) -> Result<Arc<dyn Step>, Vec<Diagnostic>> {
        match &spec.action {
            Action::Model(call) => {
                let name = call.name.as_ref();
                model(&self.registry, name, spec).map_err(|diagnostic| vec![diagnostic])
            }
            Action::BuiltIn(options) => builtin(&self.registry, self.files, &spec.tag, options).map(Arc::from),
            Action::Wasm(wasm) => self.component(wasm),
        }
    }

    fn component(&mut self, wasm: &WasmSpec) -> Result<Arc<dyn Step>, Vec<Diagnostic>> {
        let unsupported = unsupported(wasm);
        if !unsupported.is_empty() {
            return Err(unsupported);
        }
        let limits = limits::below(&wasm.limits, &self.operator.ceiling)?;
        let path = &wasm.component;
        if !self.components.contains_key(&path.value) {
            let bytes = self.files.read(Path::new(&path.value), self.operator.ceiling.component_size as u64);
            let bytes = bytes.map_err(|error| vec![Diagnostic::new("file", path.span.clone(), error.to_string())])?;
            self.components.insert(path.value.clone(), bytes);
        }
        let request = LoadRequest {
            options: wasm.options.to_json(),
            limits,
            grants: Grants { models: wasm.grant.models.iter().map(|name| name.value.clone()).collect() },
            registry: self.registry.clone(),
            reuse: wasm.instances == Instances::Reuse,
        };
        let fail = |error: &SandboxError| component_diagnostics(error, wasm);
        let Some(sandbox) = self.sandbox else { return Err(Vec::new()) };
        let bytes = self.components.get(&path.value).map(Vec::as_slice).unwrap_or_default();
        let step = sandbox.load(bytes, &request).map_err(|error| fail(&error))?;
        Ok(Arc::new(step))
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
            Some(name) if name.value != config::ONLY_MODEL => format!("model {}", name.value),
            _ => "model".to_owned(),
        },
        Action::BuiltIn(_) => spec.tag.value.clone(),
    }
}

/// `in:` or `out:` as the plan takes it.
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
        let known: Vec<_> = registry.builtins().map(|builtin| builtin.name).chain(["model", "wasm"]).collect();
        let hint = match config::closest(&tag.value, known.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("these are: {}; a component is `wasm: PATH`", known.join(", ")),
        };
        let message = format!("there is no step `{}`", tag.value);
        return vec![Diagnostic::new("unknown-step", tag.span.clone(), message).hint(hint)];
    };
    config::check(options, &tag.value, &(builtin.schema)())
}

fn builtin(
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
    (builtin.build)(json, &Site::Pipeline(files)).map_err(|error| vec![build_diagnostic(error, tag, options)])
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
fn at(options: &Node, path: &[String]) -> Option<config::Span> {
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

/// What a gpux.yml may ask for, but this version does not have.
fn unsupported(wasm: &WasmSpec) -> Vec<Diagnostic> {
    let grant = &wasm.grant;
    let wasi = grant.wasi.iter().map(|part| ("wasi", &part.span));
    let env = grant.env.iter().map(|name| ("env", &name.span));
    let dirs = grant.dirs.iter().map(|dir| ("dirs", &dir.span));
    let refuse = |(kind, span): (&str, &config::Span)| {
        Diagnostic::new("grant", span.clone(), format!("this version of gpux grants no `{kind}`"))
            .hint("a component can be granted models: `grant: { models: [NAME] }`")
    };
    wasi.chain(env).chain(dirs).map(refuse).collect()
}

fn component_diagnostics(error: &SandboxError, wasm: &WasmSpec) -> Vec<Diagnostic> {
    let here = &wasm.component;
    // The same words as for the options of built-in steps, wherever they find the fault as well.
    let described = |schema: &Json| {
        let schema = schemars::Schema::try_from(schema.clone()).unwrap_or_default();
        config::check(&wasm.options, &here.value, &schema)
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
        other => vec![Diagnostic::new("component", here.span.clone(), format!("{}: {other}", here.value))],
    }
}
