//! A configured component as a component of its own, whose memory begins as `configure` left it.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use wasmtime::Store;
use wasmtime::component::{ComponentNamedList, Instance, Lift, WasmList};
use wasmtime_wizer::{ComponentContext, ComponentInstanceState, Wizer};

use super::super::grants::Grants;
use super::super::log::sanitize;
use super::super::state::State;
use super::tree::{Leaf, Tree};
use gpux_core::catch_panic::catch_panic;

/// The snapshotter adds a page to each memory each time it reads it, and it reads them twice.
const SPARE: usize = 2 << 16;
/// Bytes of a reason.
const REASON: usize = 300;

/// A component with the exports that the snapshotter reads it through.
pub(super) struct Instrumented<'a> {
    tree: Tree<'a>,
    leaves: Vec<(Leaf<'a>, ComponentContext<'a>)>,
    pub(super) component: Vec<u8>,
    /// whether it traps where it would make a resource handle
    pub(super) traps_handles: bool,
}

impl<'a> Instrumented<'a> {
    /// Prepares a component for its snapshot, or says why there can be none.
    pub(super) fn new(component: &'a [u8], grants: &Grants) -> Result<Self, String> {
        if grants.any_wasi() && imports_wasi(component) {
            let why = "what WASI gave it (a time, a seed, a variable, an open file) a snapshot would freeze";
            return Err(why.to_owned());
        }
        let tree = Tree::read(component)?;
        let mut traps_handles = false;
        let (mut leaves, mut instrumented) = (Vec::new(), Vec::new());
        for leaf in tree.leaves() {
            let ready = catch_panic(|| Wizer::new().instrument_component(leaf.component));
            let (context, mut component) = ready?.map_err(|error| sanitize(&format!("{error:#}"), REASON))?;
            traps_handles |= trap_new_handles(&mut component);
            leaves.push((leaf, context));
            instrumented.push(component);
        }
        Ok(Self { component: tree.instrumented(&instrumented), tree, leaves, traps_handles })
    }

    /// The snapshot of `instance`, which is spent.
    pub(super) fn take(&self, store: &mut Store<State>, instance: Instance) -> Result<Vec<u8>, String> {
        let memories = store.data().capabilities.limits.memories;
        store.data_mut().meter.give(memories.saturating_mul(SPARE));
        // The memories themselves come through the same door as a guest's values.
        store.set_hostcall_fuel(usize::MAX);
        let mut taken = Vec::with_capacity(self.leaves.len());
        for (leaf, context) in &self.leaves {
            let mut reader = Reader { store, instance, access: &leaf.access, fault: None };
            let snapshot = catch_panic(|| ready(Wizer::new().snapshot_component(context, &mut reader)));
            if let Some(fault) = reader.fault {
                return Err(sanitize(&fault, REASON));
            }
            let snapshot = snapshot?.ok_or("the snapshotter waits")?;
            taken.push(snapshot.map_err(|error| sanitize(&format!("{error:#}"), REASON))?);
        }
        Ok(self.tree.rebuild(&taken))
    }
}

/// Whether the component itself, not one inside it, imports anything of WASI.
fn imports_wasi(component: &[u8]) -> bool {
    use wasmparser::{Parser, Payload};
    let mut depth = 0_usize;
    Parser::new(0).parse_all(component).any(|payload| {
        match &payload {
            Ok(Payload::ModuleSection { .. } | Payload::ComponentSection { .. }) => depth += 1,
            Ok(Payload::End(_)) => depth = depth.saturating_sub(1),
            _ => {}
        }
        let Ok(Payload::ComponentImportSection(imports)) = payload else { return false };
        depth == 0 && imports.into_iter().flatten().any(|import| import.name.name.starts_with("wasi:"))
    })
}

/// Makes every `resource.new` a `resource.rep`, of the same type and length, which traps for what
/// is no handle: no snapshot holds the table of handles, so none may be made before it is taken.
fn trap_new_handles(component: &mut [u8]) -> bool {
    use wasmparser::{CanonicalFunction, Parser, Payload};
    /// `resource.rep` in the binary format of components.
    const RESOURCE_REP: u8 = 0x04;
    let sections = Parser::new(0).parse_all(component).filter_map(|payload| match payload {
        Ok(Payload::ComponentCanonicalSection(functions)) => Some(functions),
        _ => None,
    });
    let functions = sections.flat_map(wasmparser::SectionLimited::into_iter_with_offsets);
    let offsets: Vec<_> = functions
        .filter_map(|function| match function {
            Ok((offset, CanonicalFunction::ResourceNew { .. })) => Some(offset),
            _ => None,
        })
        .collect();
    for offset in &offsets {
        component[*offset] = RESOURCE_REP;
    }
    !offsets.is_empty()
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
    /// the root's export of the interface that the snapshotter asks for
    access: &'a str,
    fault: Option<String>,
}

impl Reader<'_> {
    fn read<T>(&mut self, function: &str) -> Option<T>
    where
        (T,): ComponentNamedList + Lift + 'static,
    {
        if self.fault.is_some() {
            return None;
        }
        let read = self.call(function);
        read.map_err(|error| self.fault = Some(format!("`{function}`: {}", error.root_cause()))).ok()
    }

    fn call<T>(&mut self, function: &str) -> wasmtime::Result<T>
    where
        (T,): ComponentNamedList + Lift + 'static,
    {
        let missing = || wasmtime::format_err!("it is not there");
        let (_, interface) = self.instance.get_export(&mut *self.store, None, self.access).ok_or_else(missing)?;
        let (_, export) = self.instance.get_export(&mut *self.store, Some(&interface), function).ok_or_else(missing)?;
        let function = self.instance.get_typed_func::<(), (T,)>(&mut *self.store, export)?;
        Ok(function.call(&mut *self.store, ())?.0)
    }
}

impl ComponentInstanceState for Reader<'_> {
    async fn call_func_ret_list_u8(&mut self, _: &str, function: &str, contents: impl FnOnce(&[u8]) + Send) {
        match self.read::<WasmList<u8>>(function) {
            Some(list) => contents(list.as_le_slice(&*self.store)),
            None => contents(&[]),
        }
    }

    async fn call_func_ret_s32(&mut self, _: &str, function: &str) -> i32 {
        self.read(function).unwrap_or_default()
    }

    async fn call_func_ret_s64(&mut self, _: &str, function: &str) -> i64 {
        self.read(function).unwrap_or_default()
    }

    async fn call_func_ret_f32(&mut self, _: &str, function: &str) -> u32 {
        self.read(function).map_or(0, f32::to_bits)
    }

    async fn call_func_ret_f64(&mut self, _: &str, function: &str) -> u64 {
        self.read(function).map_or(0, f64::to_bits)
    }
}
