//! Loads the models of a pipeline.

use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::engine::{self, SelectedEngine};
use super::load_options::{LoadOptions, MAX_THREADS};
use super::precision::{self, ModelPrecision, ResolvedPrecision};
use super::provider_options;
use crate::GpuxError;
use gpux_config::{Action, BatchingSpec, Diagnostic, ModelSpec, Spanned, Spec, StepSpec};
use gpux_core::{Precision, ProjectFiles, Registry};
use gpux_inference::{
    self, BatchOptions, ExecutionProvider, Hardware, ModelFile, ModelOptions, ModelStep, Optimization, ProviderChoice,
    ProviderError, ProviderRanking, ShapeLadder, Trial, ensure_validated, rank_providers,
};

/// The most sessions of one model: each takes memory for its weights.
const MAX_INSTANCES: u32 = 64;

/// The most threads that all sessions of a pipeline may have of their own for a core, and where there are few
/// cores: waiting, each looks for work.
const MAX_THREADS_PER_CORE: usize = 16;
const MIN_THREAD_LIMIT: usize = 256;

/// The most rows of one run: beyond this only memory grows.
const MAX_ROWS: u32 = 4096;

/// The most tokens that `max_size` rows of `lengths` may have: each takes 24 bytes in a BERT's inputs.
const MAX_TOKENS: u32 = 1 << 22;

/// A model and its name in gpux.yml.
pub(super) struct LoadedModel {
    pub(super) name: String,
    pub(super) step: Arc<ModelStep>,
    /// what it is computed in
    pub(super) precision: ModelPrecision,
    /// the measurements, where the fastest provider was asked for
    pub(super) ranking: Option<ProviderRanking>,
    /// the result of optimizing its graph, unless that is off or cached
    pub(super) optimization: Option<Optimization>,
}

/// The models of a pipeline and their engine.
pub(super) struct LoadedModels {
    pub(super) registry: Registry,
    pub(super) models: Vec<LoadedModel>,
    /// the engine with its provider, for people
    pub(super) engine: String,
    pub(super) warnings: Vec<String>,
}

/// Diagnostics for models whose file is missing or outside the folder, and for numbers above their maximum.
pub(super) fn check(spec: &Spec, files: &ProjectFiles) -> Vec<Diagnostic> {
    let check = |model: &ModelSpec| {
        let error = files.resolve(Path::new(&model.source.value)).err()?;
        Some(Diagnostic::new("file", model.source.span.clone(), format!("the model: {error}")))
    };
    let most = |model: &ModelSpec| {
        let above = |name: &str, asked: &Spanned<NonZeroU32>, most: u32| {
            let message = format!("`{name}: {}` is more than the {most} that a model may have", asked.value);
            (asked.value.get() > most).then(|| Diagnostic::new("ceiling", asked.span.clone(), message))
        };
        let instances = model.instances.as_ref().and_then(|asked| above("instances", asked, MAX_INSTANCES));
        let threads = model.threads.as_ref().and_then(|asked| above("threads", asked, MAX_THREADS));
        let batching = model.batching.iter().flat_map(|batching| {
            let rows = batching.max_size.value.get();
            let longest = MAX_TOKENS / rows.min(MAX_ROWS);
            let sizes = batching.sizes.iter().filter_map(move |size| above("sizes", size, rows));
            let lengths = batching.lengths.iter().filter_map(move |length| above("lengths", length, longest));
            above("max_size", &batching.max_size, MAX_ROWS).into_iter().chain(sizes).chain(lengths)
        });
        instances.into_iter().chain(threads).chain(batching).collect::<Vec<_>>()
    };
    let each = spec.models.iter().flat_map(|model| check(model).into_iter().chain(most(model)));
    each.chain(too_many_threads(spec)).collect()
}

/// The model with which the sessions have more threads together than they may.
fn too_many_threads(spec: &Spec) -> Option<Diagnostic> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let most = (MAX_THREADS_PER_CORE * cores).max(MIN_THREAD_LIMIT);
    let mut together = 0;
    spec.models.iter().find_map(|model| {
        let threads = model.threads.as_ref()?;
        let instances = model.instances.as_ref().map_or(1, |instances| instances.value.get());
        if threads.value.get() > MAX_THREADS || instances > MAX_INSTANCES {
            // `check` reports these for the model itself.
            return None;
        }
        together += threads.value.get() as usize * instances as usize;
        let message = || {
            format!("the sessions of all models have {together} threads of their own; on this machine at most {most}")
        };
        (together > most).then(|| Diagnostic::new("ceiling", threads.span.clone(), message()))
    })
}

/// Loads the models of a pipeline, each tried in a process of its own the first time.
pub(super) fn load(spec: &Spec, files: &ProjectFiles, load_options: &LoadOptions) -> Result<LoadedModels, GpuxError> {
    let mut loaded = LoadedModels {
        registry: super::builtins(),
        models: Vec::new(),
        engine: "no model".to_owned(),
        warnings: Vec::new(),
    };
    if spec.models.is_empty() {
        return Ok(loaded);
    }

    let mut resolved = Vec::new();
    for model in &spec.models {
        let providers = provider_choice(model, load_options)?;
        let replacement = load_options.model_files.iter().find(|(name, _)| *name == model.name.value);
        resolved.push(match replacement {
            Some((_, path)) => ResolvedPrecision::exact(ModelFile::open(path)?, providers),
            None => precision::resolve(model, files, providers, load_options)?,
        });
    }

    let choices: Vec<_> = resolved.iter().map(|resolved| resolved.providers.clone()).collect();
    let SelectedEngine { engine, library, plugins, warnings, .. } = engine::select_engine(load_options, &choices)?;
    loaded.warnings = warnings;

    for (model, resolved) in spec.models.iter().zip(resolved) {
        let ResolvedPrecision { file, providers, float, mut precision, warning } = resolved;
        loaded.warnings.extend(warning);

        let mut options = model_options(model, spec, providers, file.digest(), load_options)?;
        options.precision = float;
        let (program, cache) = (load_options.trial_program(&Hardware::detect().drivers), load_options.cache.as_ref());
        let trial = Trial {
            program,
            cache,
            file: &file,
            engine: engine.as_ref(),
            library: library.as_deref(),
            plugins: &plugins,
        };

        let mut ranking = None;
        if options.providers == ProviderChoice::Fastest {
            let shapes = load_options.providers.shapes.iter().find(|(name, _)| *name == model.name.value);
            let shapes = shapes.map(|(_, shapes)| shapes.as_slice()).unwrap_or_default();
            let found = rank_providers(&trial, &options, shapes, load_options.providers.measure);
            loaded.warnings.extend(found.warning.clone());
            options.providers = found.choice();
            ranking = Some(found);
        }

        let report = ensure_validated(&trial, &options)?;
        let misdeclared = report.misdeclared.iter();
        loaded.warnings.extend(misdeclared.map(|output| format!("the model `{}`: {output}", model.name.value)));
        options.batch_verdict = report.batch;

        let mut optimization = None;
        if load_options.optimize || gpux_inference::should_optimize(&trial, &options, load_options.serving) {
            match gpux_inference::optimize(&trial, load_options.optimize) {
                Ok(made) => optimization = made,
                Err(error) => loaded.warnings.push(error.to_string()),
            }
        }
        options.optimized = gpux_inference::cached_graph(&trial);

        let step = Arc::new(ModelStep::load(engine.clone(), Arc::new(file), &options)?);
        if step.provider() != ExecutionProvider::Cpu {
            provider_options::mark_used(step.file().digest(), load_options);
        }
        loaded.warnings.extend(step.fallbacks().iter().map(ToString::to_string));

        if step.precision() != float {
            precision.precision = Precision::Exact;
            let (name, provider) = (&model.name.value, step.provider());
            loaded.warnings.push(format!(
                "the model `{name}` is computed in float32, not in {float}: no provider on this machine that it \
                 may use has that, and it runs on `{provider}`"
            ));
        }

        if let Some(Err(reason)) = step.batcher() {
            let name = &model.name.value;
            loaded.warnings.push(format!("requests of the model `{name}` run one at a time: {reason}"));
        }

        let (metadata, omitted) = (&step.file().info().metadata, &step.file().info().omitted_metadata);
        loaded.registry.model_metadata_mut().insert(&model.name.value, metadata.clone(), omitted.clone());
        loaded.registry.add_model(&model.name.value, step.clone());
        loaded.models.push(LoadedModel { name: model.name.value.clone(), step, precision, ranking, optimization });
    }

    loaded.engine = on_providers(engine.name(), loaded.models.iter().map(|model| model.step.provider()));
    Ok(loaded)
}

/// The engine with the providers that its models run on, each once, for people.
fn on_providers(engine: &str, providers: impl Iterator<Item = ExecutionProvider>) -> String {
    let mut names: Vec<&str> = Vec::new();
    for provider in providers {
        if !names.contains(&provider.name()) {
            names.push(provider.name());
        }
    }
    format!("{engine} on {}", names.join(", "))
}

/// The providers to try: the operator's, else those of gpux.yml.
pub(super) fn provider_choice(model: &ModelSpec, load_options: &LoadOptions) -> Result<ProviderChoice, ProviderError> {
    match &load_options.providers.names {
        _ if load_options.providers.measure => Ok(ProviderChoice::Fastest),
        Some(provider) => provider.parse(),
        None => model.provider.value.name().parse(),
    }
}

/// The options of the model: the operator's, else those of gpux.yml.
fn model_options(
    model: &ModelSpec,
    spec: &Spec,
    providers: ProviderChoice,
    digest: &str,
    load_options: &LoadOptions,
) -> Result<ModelOptions, GpuxError> {
    let count = |number: &Spanned<NonZeroU32>| number.value.get() as usize;
    Ok(ModelOptions {
        providers,
        strict: load_options.providers.strict,
        provider_options: provider_options::for_model(model, spec, digest, load_options)?,
        precision: Precision::Exact,
        instances: model.instances.as_ref().map(count),
        threads: match load_options.engine.threads {
            Some(threads) => Some(threads.get().min(MAX_THREADS) as usize),
            None => model.threads.as_ref().map(count),
        },
        batch: batch_options(model, spec, load_options),
        batch_verdict: None,
        optimized: None,
    })
}

/// The model's `batching`, else `serving.batch_size` in a server and
/// `runtime.batch_size` elsewhere.
fn batch_options(model: &ModelSpec, spec: &Spec, load_options: &LoadOptions) -> BatchOptions {
    let options = declared_batch_options(model, spec, load_options);
    // Items of one request share runs by the same rules as requests.
    BatchOptions { max_size: options.max_size.max(item_batch(&model.name.value, spec)), ..options }
}

/// The most items that a `for-each` gives a model together.
fn item_batch(model: &str, spec: &Spec) -> usize {
    let runs = |step: &StepSpec| match &step.action {
        Action::Model(call) => call.name.as_ref().map_or(spec.models.len() == 1, |name| name.value == model),
        _ => false,
    };
    let batch = |step: &StepSpec| match &step.action {
        Action::ForEach(for_each) => for_each.steps.iter().any(runs).then_some(for_each.batch),
        _ => None,
    };
    spec.all_steps().filter_map(batch).max().unwrap_or(1)
}

fn declared_batch_options(model: &ModelSpec, spec: &Spec, load_options: &LoadOptions) -> BatchOptions {
    let Some(BatchingSpec { max_size, max_delay, pad, max_tokens, lengths, sizes, tolerance }) = &model.batching else {
        let rows = if load_options.serving { spec.serving.batch_size } else { spec.runtime.batch_size };
        return BatchOptions { max_size: rows.get() as usize, ..BatchOptions::default() };
    };
    let max_delay = max_delay.map_or(Duration::ZERO, |delay| delay.0);
    let number = |number: &Spanned<NonZeroU32>| number.value.get() as usize;
    BatchOptions {
        max_size: number(max_size),
        max_delay,
        pad: *pad,
        max_tokens: max_tokens.map_or(usize::MAX, |tokens| tokens.get() as usize),
        shapes: ShapeLadder::new(lengths.iter().map(number), sizes.iter().map(number)),
        tolerance: *tolerance,
    }
}
