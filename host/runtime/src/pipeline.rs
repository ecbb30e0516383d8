//! A pipeline, ready to run.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::branches::Branches;
use super::build_plan::build_plan;
use super::endpoints::{self, Endpoints};
use super::labels;
use super::lineage::Lineage;
use super::load_options::LoadOptions;
use super::models::{self, LoadedModel};
use super::precision::ModelPrecision;
use super::provider_options;
use super::source::{Definition, Source};
use super::space::{self, Space};
use super::step_factory::{StepBuildError, StepFactory};
use super::warm_up;
use crate::GpuxError;
use gpux_config::{Action, ConfigurationError, Diagnostic, PortType, ServingSpec, Spec, StepSpec};
use gpux_core::files::FileVersions;
use gpux_core::{Kind, Plan, PlannedStep, Port, Request, TimeLimit};
use gpux_inference::{ModelFile, ModelStep};
use gpux_sandbox::Sandbox;

/// The most requests of a list that run concurrently: each takes a thread and its values' memory.
const MAX_CONCURRENCY: usize = 256;

/// A checked pipeline with its models and components, ready to run.
pub struct Pipeline {
    source: Source,
    pub(super) spec: Spec,
    pub(super) plan: Plan,
    pub(super) models: Vec<LoadedModel>,
    pub(super) engine: String,
    pub(super) warnings: Vec<String>,
    files: FileVersions,
    /// by the names of outputs
    labels: BTreeMap<String, Vec<String>>,
    /// names of outputs
    probabilities: BTreeSet<String>,
    warm_up: Vec<Request>,
    pub(super) endpoints: Endpoints,
    pub(super) space: Option<Space>,
}

impl Pipeline {
    /// Opens the pipeline of a folder, a gpux.yml or a name; or a model or a component alone. Every mistake
    /// that can be found without running the pipeline is found here.
    pub fn open(wanted: impl AsRef<Path>, load_options: &LoadOptions) -> Result<Self, GpuxError> {
        Self::load(Source::find(wanted)?.read(load_options)?, load_options)
    }

    /// The file it was read from.
    pub fn path(&self) -> &Path {
        self.source.path()
    }

    /// The labels that the file declares for an output; none where it declares none.
    pub fn labels(&self, output: &str) -> &[String] {
        self.labels.get(output).map_or(&[], Vec::as_slice)
    }

    /// The media type of an input of bytes, `image/*` or `audio/*`: as declared, else from the step that reads it.
    pub fn media_type(&self, port: &Port) -> Option<&'static str> {
        if port.kind != Kind::Bytes {
            return None;
        }
        let declared = self.spec.inputs.iter().find(|input| input.name.value == port.name);
        match declared.map(|input| input.kind.value) {
            Some(PortType::Image) => return Some("image/*"),
            Some(PortType::Audio) => return Some("audio/*"),
            _ => {}
        }
        let slot = self.plan.inputs().iter().position(|input| input.port.name == port.name)?;
        media_type(&self.plan, &self.spec.pipeline, slot)
    }

    /// Whether the scores of an output come from `softmax` or `sigmoid`.
    pub fn is_probability(&self, output: &str) -> bool {
        self.probabilities.contains(output)
    }

    /// The checked steps.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The engine that runs its models, with version and provider, for people.
    pub fn engine(&self) -> &str {
        &self.engine
    }

    /// Warnings: providers passed over, engines not loaded.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Which vectors can lie in one index with those that it gives, if it gives any.
    pub const fn space(&self) -> Option<&Space> {
        self.space.as_ref()
    }

    /// How long one request may take: `runtime.timeout`.
    pub fn timeout(&self) -> Option<Duration> {
        Some(self.spec.runtime.timeout.0)
    }

    /// The same, for the error of a request that took longer.
    pub fn time_limit(&self) -> TimeLimit {
        TimeLimit::new(self.spec.runtime.timeout.0, "`runtime.timeout` of gpux.yml")
    }

    /// How long one request may take in a server: the lesser of `serving.timeout` and `runtime.timeout`.
    pub(crate) fn serving_time_limit(&self) -> TimeLimit {
        let serving = TimeLimit::new(self.spec.serving.timeout.0, "`serving.timeout` of gpux.yml");
        if serving.value <= self.spec.runtime.timeout.0 { serving } else { self.time_limit() }
    }
}

/// For the program `gpux`; no part of the API.
#[doc(hidden)]
impl Pipeline {
    /// [`open`](Self::open) for a pipeline whose gpux.yml has been read.
    pub fn load(definition: Definition, load_options: &LoadOptions) -> Result<Self, GpuxError> {
        if let Source::Model(path) = definition.source()
            && !path.is_file()
        {
            ModelFile::open(path)?;
        }
        let mut load_options = load_options.clone();
        let mut warnings: Vec<_> = load_options.drop_unusable_cache().into_iter().collect();
        // Its isolated process, later, is given what this one uses.
        load_options.cache =
            load_options.cache.map(|cache| if cache.shared().is_none() { cache.noting_use() } else { cache });
        let load_options = &load_options;
        let (document, spec, files) = (definition.document(), definition.spec(), definition.files(load_options));
        let report_all =
            |found: Vec<Diagnostic>| GpuxError::from(ConfigurationError::new(document.source.clone(), found));
        let report = |found: Vec<Diagnostic>| if found.is_empty() { Ok(()) } else { Err(report_all(found)) };

        let has_components = spec.all_steps().any(|step| matches!(step.action, Action::Wasm(_)));
        let sandbox = has_components.then(|| load_options.sandbox()).transpose()?;
        warnings.extend(sandbox.as_ref().and_then(Sandbox::warning).map(str::to_owned));
        let mut missing = models::check(spec, &files);
        missing.extend(provider_options::check(&document.root, spec));
        if !missing.is_empty() {
            // Without its models the pipeline cannot be connected, but its other steps can be made.
            let mut factory = StepFactory::new(load_options, &files, Arc::new(super::builtins()), sandbox.as_ref());
            factory.lacks_models = true;
            let steps = spec.all_steps().filter(|step| !matches!(step.action, Action::Model(_)));
            for error in steps.filter_map(|step| factory.build(step)?.err()) {
                match error {
                    StepBuildError::Invalid(faults) => missing.extend(faults),
                    StepBuildError::Environment(error) => return Err(error.into()),
                }
            }
        }
        report(missing)?;

        let loaded = models::load(spec, &files, load_options)?;
        let mut factory = StepFactory::new(load_options, &files, Arc::new(loaded.registry.clone()), sandbox.as_ref());
        let (labels, faults) = match labels::read(spec, &files, loaded.registry.model_metadata()) {
            Ok(labels) => (labels, Vec::new()),
            Err(faults) => (BTreeMap::new(), faults),
        };
        let mut plan = build_plan(spec, faults, &mut factory).map_err(|error| match error {
            StepBuildError::Invalid(faults) => report_all(faults),
            StepBuildError::Environment(error) => error.into(),
        })?;
        let warm_up = warm_up::requests(spec, &plan, &files).map_err(report_all)?;
        warnings.extend(factory.warnings);
        let computations = factory.computations;
        warnings.extend(loaded.warnings);
        warnings.extend(files.warnings());
        warnings.extend(timeout_warning(spec));
        let lineage = Lineage::new(&spec.pipeline, &plan);
        warnings.extend(lineage.unscaled_images());
        warnings.extend(lineage.oversized_vocabularies(&|model, input| {
            let model = loaded.models.iter().find(|loaded| model.is_none_or(|name| name == loaded.name))?;
            model.step.file().info().inputs.iter().find(|spec| spec.name == input)?.index_limit
        }));
        let mut endpoints = endpoints::of(spec, &plan, &lineage, &labels).map_err(report_all)?;
        let probabilities = lineage.probabilities().map(str::to_owned).collect();
        let space = space::identify(spec, &plan, &lineage, &endpoints, &loaded.models, computations).unwrap_or_else(
            |unknown| {
                warnings.push(format!("its vectors have no space id: {unknown}"));
                None
            },
        );
        Branches::find(&plan, &lineage, &mut endpoints).add_to(&mut plan);
        let mut files = files.named();
        files.extend(loaded.models.iter().flat_map(|model| model.step.file().external_data().to_owned()));
        files.insert(definition.source().path().to_owned(), definition.version());
        if let Some(cache) = &load_options.cache {
            cache.record_entries(definition.source().path());
        }
        let (engine, models) = (loaded.engine, loaded.models);
        let (source, spec) = definition.into_parts();
        Ok(Self {
            source,
            spec,
            plan,
            models,
            engine,
            warnings,
            files,
            labels,
            probabilities,
            warm_up,
            endpoints,
            space,
        })
    }

    /// The number of requests to run concurrently: the capacity of a model's instances.
    pub fn concurrency(&self) -> usize {
        let together = |model: &LoadedModel| {
            let rows = model.step.batcher().and_then(Result::ok).map_or(1, |batcher| batcher.options().max_size);
            rows.saturating_mul(model.step.sessions().max_concurrency())
        };
        self.models.iter().map(together).max().unwrap_or(1).min(MAX_CONCURRENCY)
    }

    /// Whether requests wait for each other, so that a model runs several together.
    pub fn is_batched(&self) -> bool {
        self.models.iter().any(|model| matches!(model.step.batcher(), Some(Ok(_))))
    }

    /// Where it was read from.
    pub const fn source(&self) -> &Source {
        &self.source
    }

    /// Every file that it was loaded from: gpux.yml, models with their weight files, components,
    /// labels, tokenizers, and missing files that were looked for; each with its version before it was read.
    pub const fn files(&self) -> &FileVersions {
        &self.files
    }

    /// The contents of gpux.yml.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// The labels of all outputs that have some, by the outputs' names.
    pub(super) const fn all_labels(&self) -> &BTreeMap<String, Vec<String>> {
        &self.labels
    }

    /// The version of a model: as declared, else the one that its file says.
    pub fn model_version(&self, name: &str) -> Option<&str> {
        let declared = self.spec.models.iter().find(|model| model.name.value == name)?.version.as_deref();
        let model = self.models.iter().find(|model| model.name == name)?;
        Some(declared.unwrap_or(&model.step.file().info().version))
    }

    /// The requests of `serving.warmup`, which a server runs before it takes others.
    pub fn warm_up(&self) -> &[Request] {
        &self.warm_up
    }

    /// For each model whose providers were measured, the measurements, for people.
    pub fn ranking_notes(&self) -> impl Iterator<Item = String> {
        self.models.iter().filter_map(|model| Some(format!("{}: {}", model.name, model.ranking.as_ref()?)))
    }

    /// The model that `step` is, with its name.
    pub fn model_of_step(&self, step: &PlannedStep) -> Option<(&str, &ModelStep)> {
        let is = |model: &&LoadedModel| std::ptr::addr_eq(Arc::as_ptr(&model.step), Arc::as_ptr(&step.step));
        self.models.iter().find(is).map(|model| (model.name.as_str(), &*model.step))
    }

    /// For each model whose graph was optimized, the result, for people.
    pub fn optimization_notes(&self) -> impl Iterator<Item = String> {
        self.models.iter().filter_map(|model| Some(format!("{}: {}", model.name, model.optimization.as_ref()?)))
    }

    /// The file of each step that has a tokenizer, with the step's name.
    pub fn tokenizers(&self) -> impl Iterator<Item = (&str, String)> {
        self.plan.all_steps().into_iter().filter_map(|(_, step)| {
            let details = step.step.details();
            details["tokenizer"].as_str()?;
            Some((step.name.as_str(), details["file"].as_str()?.to_owned()))
        })
    }

    /// Its models, by their names in the file.
    pub fn models(&self) -> impl Iterator<Item = (&str, &ModelStep)> {
        self.models.iter().map(|model| (model.name.as_str(), model.step.as_ref()))
    }

    /// Its models with what they are computed in, by their names in the file.
    pub fn precisions(&self) -> impl Iterator<Item = (&str, &ModelStep, &ModelPrecision)> {
        self.models.iter().map(|model| (model.name.as_str(), model.step.as_ref(), &model.precision))
    }

    /// Size of its models' files.
    pub fn model_bytes(&self) -> u64 {
        self.models.iter().map(|model| model.step.file().info().size_bytes).sum()
    }
}

/// A warning where gpux.yml gives the server more time than requests have.
fn timeout_warning(spec: &Spec) -> Option<String> {
    let [serving, runtime] = [spec.serving.timeout, spec.runtime.timeout];
    let is_written = serving != ServingSpec::default().timeout;
    (is_written && serving.0 > runtime.0).then(|| {
        format!("`serving.timeout` is {serving}, but `runtime.timeout` is {runtime}, which holds: set that to {serving}, too")
    })
}

/// The media type of the value of a plan, from the step that reads it.
fn media_type(plan: &Plan, specs: &[StepSpec], slot: usize) -> Option<&'static str> {
    let steps = plan.steps().iter().zip(specs);
    steps
        .filter_map(|(step, spec)| Some((step, spec, step.input_slots().position(|read| read == Some(slot))?)))
        .find_map(|(step, spec, input)| match (spec.tag.value.as_str(), step.inner_plan()) {
            ("decode-image", _) => Some("image/*"),
            ("decode-audio", _) => Some("audio/*"),
            (_, Some(inner)) => media_type(inner, spec.inner(), input),
            _ => None,
        })
}
