//! The setup itself, in this process.

use std::sync::Arc;

use wasmtime::component::Instance;
use wasmtime::{Engine, Store};

use super::super::component::{CompiledComponent, ComponentKind};
use super::super::core_module::componentize;
use super::super::engine::SandboxEngine;
use super::super::error::SandboxError;
use super::super::failure::failure_from_error;
use super::super::guest_output;
use super::super::limits::exceeded;
use super::super::linked_component::LinkedComponent;
use super::super::native_code::NativeCode;
use super::super::options_schema;
use super::super::prepared::PreparedCall;
use super::super::state::{Capabilities, Phase, State};
use super::super::time_budget::TimeBudget;
use super::function_cache::FunctionCache;
use super::processor_timer::ProcessorTimer;
use super::snapshot::Instrumented;
use super::tree;
use super::{ComponentDescription, ComponentFacts, ConfiguredComponent, PrepareRequest, PreparedComponent, Start};
use gpux_core::Signature;
use gpux_core::files::digest;

/// Describes and configures a component, takes its snapshot, and compiles what requests will run. `timer` bounds the
/// host's work, not the guest's.
pub(crate) fn prepare(
    request: &PrepareRequest<'_>,
    functions: &Arc<FunctionCache>,
    timer: &ProcessorTimer,
) -> Result<PreparedComponent, SandboxError> {
    let kind = ComponentKind::of(request.bytes)?;
    let component = timer.measure(|| componentize(request.bytes))?;
    let engine = Arc::new(SandboxEngine::for_setup(functions.clone())?);
    let instrumented = timer.measure(|| Instrumented::new(&component, &request.config.grants));
    let (compiled, instrumented) = timer.measure(|| choose(&engine.wasmtime, &component, instrumented))?;
    let compiled = Arc::new(compiled);
    let facts = ComponentFacts {
        digest: digest(request.bytes),
        size: request.bytes.len(),
        kind,
        imports: compiled.imports(),
        exports: compiled.exports.clone(),
    };
    let mut described = None;
    let mut ready = setup(&engine, &compiled, &instrumented, request, &mut described, timer);
    if let (Err(SandboxError::Setup { .. }), Ok(Instrumented { traps_handles: true, .. })) = (&ready, &instrumented) {
        // The host's own work may have exceeded the limit.
        let why = "it makes resource handles before its first request, which no snapshot can hold".to_owned();
        let compiled = Arc::new(timer.measure(|| CompiledComponent::new(&engine.wasmtime, &component))?);
        ready = setup(&engine, &compiled, &Err(why), request, &mut described, timer);
    }
    if request.to_run
        && let Ok(ready) = &mut ready
    {
        let snapshot = ready.snapshot.take();
        let component = snapshot.as_deref().unwrap_or(&component);
        ready.digest = digest(component);
        ready.code = Some(timer.measure(|| NativeCode::compile(&engine.wasmtime, component))?);
    }
    Ok(PreparedComponent { facts, described, ready })
}

impl ConfiguredComponent {
    const fn new(signature: Signature, start: Start, prepared: Vec<PreparedCall>, snapshot: Option<Vec<u8>>) -> Self {
        Self { signature, start, prepared, snapshot, digest: String::new(), code: None }
    }
}

/// The component with the exports that a snapshot needs, or else unchanged with the reason.
type InstrumentResult<'a> = Result<Instrumented<'a>, String>;

fn choose<'a>(
    engine: &Engine,
    component: &[u8],
    instrumented: InstrumentResult<'a>,
) -> Result<(CompiledComponent, InstrumentResult<'a>), SandboxError> {
    let why = match instrumented {
        Ok(instrumented) => match CompiledComponent::new(engine, &instrumented.component) {
            Ok(mut compiled) => {
                compiled.exports.retain(|name| !tree::is_passed_out(name));
                return Ok((compiled, Ok(instrumented)));
            }
            Err(error) => error.to_string(),
        },
        Err(why) => why,
    };
    Ok((CompiledComponent::new(engine, component)?, Err(why)))
}

fn setup(
    engine: &Arc<SandboxEngine>,
    compiled: &Arc<CompiledComponent>,
    instrumented: &InstrumentResult<'_>,
    request: &PrepareRequest<'_>,
    described: &mut Option<ComponentDescription>,
    timer: &ProcessorTimer,
) -> Result<ConfiguredComponent, SandboxError> {
    within_limits(compiled, request)?;
    let capabilities = Capabilities::new(request.config, request.registry.clone())?;
    let linked = LinkedComponent::new(engine.clone(), compiled.clone(), capabilities)?;
    let description = describe(&linked)?;
    // A schema can be work without end, too.
    let options_schema = timer.measure(|| options_schema::parse(&description.options_schema))?;
    let ComponentDescription { options_schema, .. } =
        described.insert(ComponentDescription { summary: guest_output::summary(&description.summary), options_schema });
    timer.measure(|| options_schema::check(options_schema, &request.config.options))?;
    configure(&linked, &request.config.options.to_string(), instrumented, timer)
}

fn within_limits(compiled: &CompiledComponent, request: &PrepareRequest<'_>) -> Result<(), SandboxError> {
    let limits = &request.config.limits;
    let Some(needs) = compiled.component.resources_required() else { return Ok(()) };
    for (name, needed, limit) in
        [("memories", needs.num_memories, limits.memories), ("tables", needs.num_tables, limits.tables)]
    {
        if needed as usize > limit {
            return Err(SandboxError::Limit(exceeded(name, limit.to_string())));
        }
    }
    Ok(())
}

fn store(linked: &LinkedComponent) -> Store<State> {
    linked.store(Phase::Setup, TimeBudget::start("setup_time", linked.capabilities.limits.setup_time, None))
}

fn failed(call: &'static str, error: &wasmtime::Error, store: Store<State>) -> SandboxError {
    let State { log, capabilities, .. } = store.into_data();
    let failure = failure_from_error(error, &capabilities.limits, &log);
    SandboxError::Setup { call: call.into(), failure, log: log.into_lines() }
}

fn describe(linked: &LinkedComponent) -> Result<super::super::bindings::step::Description, SandboxError> {
    let _slot = linked.slot(None);
    let mut store = store(linked);
    let _running = linked.running();
    linked.describe(&mut store).map_err(|error| failed("describe", &error, store))
}

/// The current signature of a step without a snapshot: a folder, a variable or a clock may have
/// changed it since preparation.
pub(crate) fn signature(linked: &LinkedComponent, options: &str) -> Result<Signature, SandboxError> {
    Ok(configure(linked, options, &Err(String::new()), &ProcessorTimer::default())?.signature)
}

/// The step's signature with `options`, and how its requests start. Also checks that
/// `process` is callable.
fn configure(
    linked: &LinkedComponent,
    options: &str,
    instrumented: &InstrumentResult<'_>,
    timer: &ProcessorTimer,
) -> Result<ConfiguredComponent, SandboxError> {
    let _slot = linked.slot(None);
    let mut store = store(linked);
    let _running = linked.running();
    let configured = linked.pre.instantiate(&mut store).and_then(|instance| {
        let given = linked.configure(&mut store, &instance, options)?;
        Ok((instance, given))
    });
    let (instance, given) = match configured {
        Ok(configured) => configured,
        Err(error) => return Err(failed("configure", &error, store)),
    };
    linked
        .process(&mut store, &instance)
        .map_err(|error| SandboxError::OtherTypes { call: "process".into(), reason: format!("{error:#}") })?;
    let given = match given {
        Ok(given) => given,
        Err(error) => {
            let log = store.into_data().log.into_lines();
            return Err(SandboxError::Setup { call: "configure".into(), failure: guest_output::failure(&error), log });
        }
    };
    let signature = guest_output::signature(given, &linked.capabilities.limits)
        .map_err(|what| SandboxError::Contract { call: "configure".into(), what })?;
    let prepared = store.data().prepared.calls();
    Ok(match timer.measure(|| take(instrumented, store, instance)) {
        Ok(snapshot) => ConfiguredComponent::new(signature, Start::Snapshot, prepared, Some(snapshot)),
        Err(why) => ConfiguredComponent::new(signature, Start::Configure { why }, prepared, None),
    })
}

fn take(instrumented: &InstrumentResult<'_>, mut store: Store<State>, instance: Instance) -> Result<Vec<u8>, String> {
    let instrumented = instrumented.as_ref().map_err(Clone::clone)?;
    if store.data().handles.len() > 0 {
        return Err("`configure` kept a tensor, which no snapshot can hold".to_owned());
    }
    let limit = store.data().capabilities.limits.setup_time;
    store.data_mut().time_budget = TimeBudget::start("setup_time", limit, None);
    instrumented.take(&mut store, instance)
}
