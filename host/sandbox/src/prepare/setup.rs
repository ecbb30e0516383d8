//! The setup itself, in this process.

use std::borrow::Cow;
use std::sync::Arc;

use wasmtime::component::Instance;
use wasmtime::{Engine, Store};

use super::super::checked;
use super::super::clock::Clock;
use super::super::component::{Compiled, ComponentKind, componentize};
use super::super::engine::Machine;
use super::super::error::SandboxError;
use super::super::failure::failure;
use super::super::limits::exceeded;
use super::super::linked::Linked;
use super::super::native_code::NativeCode;
use super::super::schema;
use super::super::state::{Phase, Reach, State};
use super::processor_timer::Watch;
use super::snapshot::Instrumented;
use super::tree;
use super::{Described, Facts, Order, Prepared, Ready, Start};
use gpux_core::Signature;
use gpux_core::files::digest;

/// Describes and configures a component, and takes its snapshot. What is done to the component,
/// not by it, goes by `watch`.
pub(crate) fn prepare(order: &Order<'_>, watch: &Watch) -> Result<Prepared, SandboxError> {
    let kind = ComponentKind::of(order.bytes)?;
    let component = watch.during(|| componentize(order.bytes))?;
    let machine = Arc::new(Machine::for_setup()?);
    let instrumented = watch.during(|| Instrumented::new(&component, order.grants));
    let (compiled, instrumented) = watch.during(|| choose(&machine.engine, &component, instrumented))?;
    let compiled = Arc::new(compiled);
    let facts = Facts {
        digest: digest(order.bytes),
        size: order.bytes.len(),
        kind,
        imports: compiled.needs(),
        exports: compiled.exports.clone(),
    };
    let mut described = None;
    let mut ready = setup(&machine, &compiled, &instrumented, order, &mut described, watch);
    if let (Err(SandboxError::Setup { .. }), Ok(Instrumented { traps_handles: true, .. })) = (&ready, &instrumented) {
        // It may be only what was done to it that stopped it.
        let why = "it makes resource handles before its first request, which no snapshot can hold".to_owned();
        let compiled = Arc::new(watch.during(|| Compiled::new(&machine.engine, &component))?);
        ready = setup(&machine, &compiled, &Err(why), order, &mut described, watch);
    }
    Ok(Prepared { facts, described, ready })
}

impl Ready {
    const fn new(signature: Signature, start: Start, snapshot: Option<Vec<u8>>) -> Self {
        Self { signature, start, snapshot, digest: String::new(), code: None }
    }

    /// Compiles what requests will run: the snapshot, or the component in `bytes` where there is none.
    pub(crate) fn compile(&mut self, engine: &Engine, bytes: &[u8], watch: &Watch) -> Result<(), SandboxError> {
        let component = match self.snapshot.take() {
            Some(snapshot) => Cow::Owned(snapshot),
            None => watch.during(|| componentize(bytes))?,
        };
        self.digest = digest(&component);
        self.code = Some(watch.during(|| NativeCode::compile(engine, &component))?);
        Ok(())
    }
}

/// The component with what a snapshot needs, or else as it is and why.
type Chosen<'a> = Result<Instrumented<'a>, String>;

fn choose<'a>(
    engine: &Engine,
    component: &[u8],
    instrumented: Chosen<'a>,
) -> Result<(Compiled, Chosen<'a>), SandboxError> {
    let why = match instrumented {
        Ok(instrumented) => match Compiled::new(engine, &instrumented.component) {
            Ok(mut compiled) => {
                compiled.exports.retain(|name| !tree::is_passed_out(name));
                return Ok((compiled, Ok(instrumented)));
            }
            Err(error) => error.to_string(),
        },
        Err(why) => why,
    };
    Ok((Compiled::new(engine, component)?, Err(why)))
}

fn setup(
    machine: &Arc<Machine>,
    compiled: &Arc<Compiled>,
    instrumented: &Chosen<'_>,
    order: &Order<'_>,
    described: &mut Option<Described>,
    watch: &Watch,
) -> Result<Ready, SandboxError> {
    within_limits(compiled, order)?;
    let reach = Reach::new(order.limits.clone(), order.grants.clone(), order.registry.clone())?;
    let linked = Linked::new(machine.clone(), compiled.clone(), reach)?;
    let description = describe(&linked)?;
    // A schema can be work without end, too.
    let options_schema = watch.during(|| schema::parse(&description.options_schema))?;
    let Described { options_schema, .. } =
        described.insert(Described { summary: checked::summary(&description.summary), options_schema });
    watch.during(|| schema::check(options_schema, order.options))?;
    configure(&linked, &order.options.to_string(), instrumented, watch)
}

fn within_limits(compiled: &Compiled, order: &Order<'_>) -> Result<(), SandboxError> {
    let limits = order.limits;
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

fn store(linked: &Linked) -> Store<State> {
    linked.store(Phase::Setup, Clock::start("setup_time", linked.reach.limits.setup_time, None))
}

fn failed(call: &'static str, error: &wasmtime::Error, store: Store<State>) -> SandboxError {
    let State { log, reach, .. } = store.into_data();
    let failure = failure(error, &reach.limits, &log);
    SandboxError::Setup { call: call.into(), failure, log: log.into_lines() }
}

fn describe(linked: &Linked) -> Result<super::super::bindings::step::Description, SandboxError> {
    let _slot = linked.slot(None);
    let mut store = store(linked);
    let _running = linked.running();
    linked.describe(&mut store).map_err(|error| failed("describe", &error, store))
}

/// What a step that no snapshot holds takes and gives now: a folder, a variable or a clock may have
/// told it something else when it was prepared.
pub(crate) fn signature(linked: &Linked, options: &str) -> Result<Signature, SandboxError> {
    Ok(configure(linked, options, &Err(String::new()), &Watch::default())?.signature)
}

/// What the step takes and gives with `options`, and how its requests start. Also makes sure that
/// `process` is callable.
fn configure(linked: &Linked, options: &str, instrumented: &Chosen<'_>, watch: &Watch) -> Result<Ready, SandboxError> {
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
            return Err(SandboxError::Setup { call: "configure".into(), failure: checked::failure(&error), log });
        }
    };
    let signature = checked::signature(given, &linked.reach.limits)
        .map_err(|what| SandboxError::Contract { call: "configure".into(), what })?;
    Ok(match watch.during(|| take(instrumented, store, instance)) {
        Ok(snapshot) => Ready::new(signature, Start::Snapshot, Some(snapshot)),
        Err(why) => Ready::new(signature, Start::Configure { why }, None),
    })
}

fn take(instrumented: &Chosen<'_>, mut store: Store<State>, instance: Instance) -> Result<Vec<u8>, String> {
    let instrumented = instrumented.as_ref().map_err(Clone::clone)?;
    if store.data().handles.len() > 0 {
        return Err("`configure` kept a tensor, which no snapshot can hold".to_owned());
    }
    let limit = store.data().reach.limits.setup_time;
    store.data_mut().clock = Clock::start("setup_time", limit, None);
    instrumented.take(&mut store, instance)
}
