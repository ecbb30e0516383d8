//! Host functions that read a guest's memory in place. The generated bindings would copy each list
//! first, which is half the cost of a tensor written in pieces.

use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, Resource, WasmList};

use super::state::State;
use gpux_core::Tensor;

/// The interface that these calls belong to.
const TYPES: &str = "gpux:pipeline/types@0.1.1";

type WriteParams = (Resource<Tensor>, u32, WasmList<u8>);

/// Puts these calls in the place of the bindings' own.
pub(super) fn link(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    let linked = linker.instance(TYPES)?.func_wrap("[method]tensor.write", write);
    linker.allow_shadowing(false);
    linked
}

/// `tensor.write`.
fn write(
    mut store: StoreContextMut<'_, State>,
    (tensor, offset, data): WriteParams,
) -> wasmtime::Result<(Result<(), String>,)> {
    store.data_mut().tensor_mut(&tensor)?;
    // State and memory belong to the same store, so the tensor leaves the state for as long.
    let Some(mut held) = store.data_mut().handles.lift(&tensor) else { return Ok((Ok(()),)) };
    let written = held.tensor.write_bytes(offset as usize, data.as_le_slice(&store));
    store.data_mut().handles.put_back(&tensor, held);
    Ok((written.map_err(|error| error.to_string()),))
}
