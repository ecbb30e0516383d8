//! A configured component as a component of its own, whose memory begins as `configure` left it.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use wasmparser::{CanonicalFunction, Parser, Payload};
use wasmtime::Store;
use wasmtime::component::{ComponentNamedList, Instance, Lift, WasmList};
use wasmtime_wizer::{ComponentContext, ComponentInstanceState, Wizer};

use super::super::limits::Grants;
use super::super::log::plain;
use super::super::state::State;
use crate::guard::guard;

/// The snapshotter adds a page to each memory each time it reads it, and it reads them twice.
const SPARE: usize = 2 << 16;
/// Bytes of a reason.
const REASON: usize = 300;

/// A component with the exports that the snapshotter reads it through.
pub(super) struct Instrumented<'a> {
    context: ComponentContext<'a>,
    pub(super) component: Vec<u8>,
}

impl<'a> Instrumented<'a> {
    /// Prepares a component for its snapshot, or says why there can be none.
    pub(super) fn new(component: &'a [u8], grants: &Grants) -> Result<Self, String> {
        if let Some(granted) = grants.volatile() {
            return Err(format!("it may use {granted}, which a snapshot would freeze"));
        }
        if defines_resources(component) {
            return Err("it defines resources of its own, whose handles no snapshot can hold".to_owned());
        }
        let instrumented = guard(|| Wizer::new().instrument_component(component));
        let (context, component) = instrumented?.map_err(|error| plain(&format!("{error:#}"), REASON))?;
        Ok(Self { context, component })
    }

    /// The snapshot of `instance`, which is spent.
    pub(super) fn take(&self, store: &mut Store<State>, instance: Instance) -> Result<Vec<u8>, String> {
        let memories = store.data().reach.limits.memories;
        store.data_mut().meter.give(memories.saturating_mul(SPARE));
        // The memories themselves come through the same door as a guest's values.
        store.set_hostcall_fuel(usize::MAX);
        let mut reader = Reader { store, instance, fault: None };
        let taken = guard(|| ready(Wizer::new().snapshot_component(&self.context, &mut reader)));
        match reader.fault {
            Some(fault) => Err(plain(&fault, REASON)),
            None => taken?.ok_or("the snapshotter waits")?.map_err(|error| plain(&format!("{error:#}"), REASON)),
        }
    }
}

/// Whether the component makes handles that only its instance knows.
fn defines_resources(component: &[u8]) -> bool {
    Parser::new(0).parse_all(component).any(|payload| match payload {
        Ok(Payload::ComponentCanonicalSection(functions)) => {
            functions.into_iter().any(|function| matches!(function, Ok(CanonicalFunction::ResourceNew { .. })))
        }
        _ => false,
    })
}

/// The result of a future that never waits.
fn ready<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => Some(result),
        Poll::Pending => None,
    }
}

/// Reads an instance for the snapshotter, which takes every call to succeed: the first that does
/// not is kept, and the snapshot thrown away.
struct Reader<'a> {
    store: &'a mut Store<State>,
    instance: Instance,
    fault: Option<String>,
}

impl Reader<'_> {
    fn read<T>(&mut self, interface: &str, function: &str) -> Option<T>
    where
        (T,): ComponentNamedList + Lift + 'static,
    {
        if self.fault.is_some() {
            return None;
        }
        let read = self.call(interface, function);
        read.map_err(|error| self.fault = Some(format!("`{function}`: {}", error.root_cause()))).ok()
    }

    fn call<T>(&mut self, interface: &str, function: &str) -> wasmtime::Result<T>
    where
        (T,): ComponentNamedList + Lift + 'static,
    {
        let missing = || wasmtime::format_err!("it is not there");
        let (_, interface) = self.instance.get_export(&mut *self.store, None, interface).ok_or_else(missing)?;
        let (_, export) = self.instance.get_export(&mut *self.store, Some(&interface), function).ok_or_else(missing)?;
        let function = self.instance.get_typed_func::<(), (T,)>(&mut *self.store, export)?;
        Ok(function.call(&mut *self.store, ())?.0)
    }
}

impl ComponentInstanceState for Reader<'_> {
    async fn call_func_ret_list_u8(&mut self, interface: &str, function: &str, contents: impl FnOnce(&[u8]) + Send) {
        match self.read::<WasmList<u8>>(interface, function) {
            Some(list) => contents(list.as_le_slice(&*self.store)),
            None => contents(&[]),
        }
    }

    async fn call_func_ret_s32(&mut self, interface: &str, function: &str) -> i32 {
        self.read(interface, function).unwrap_or_default()
    }

    async fn call_func_ret_s64(&mut self, interface: &str, function: &str) -> i64 {
        self.read(interface, function).unwrap_or_default()
    }

    async fn call_func_ret_f32(&mut self, interface: &str, function: &str) -> u32 {
        self.read(interface, function).map_or(0, f32::to_bits)
    }

    async fn call_func_ret_f64(&mut self, interface: &str, function: &str) -> u64 {
        self.read(interface, function).map_or(0, f64::to_bits)
    }
}
