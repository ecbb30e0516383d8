//! Bytes → a compiled component that may be linked.

use serde::{Deserialize, Serialize};
use wasmparser::Parser;
use wasmtime::Engine;
use wasmtime::component::types::ComponentItem;
use wasmtime::component::{Component, ComponentExportIndex, Linker};

use super::bindings::STEP;
use super::error::SandboxError;
use super::grants::Grants;
use super::imports::{self, Import};
use super::log::sanitize;
use super::state::State;
use gpux_core::foreign_file;

/// The format of a step's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ComponentKind {
    /// a WebAssembly component
    Component,
    /// a core module with its contract in a custom section, made a component at load
    CoreModule,
}

impl ComponentKind {
    /// What `bytes` begin as.
    pub(super) fn of(bytes: &[u8]) -> Result<Self, SandboxError> {
        match bytes {
            [b'\0', b'a', b's', b'm', 0x0d, 0, 1, 0, ..] => Ok(Self::Component),
            [b'\0', b'a', b's', b'm', 1, 0, 0, 0, ..] => Ok(Self::CoreModule),
            [b'\0', b'a', b's', b'm', ..] => {
                Err(SandboxError::NotWasm("its version is unknown or its header cut off".into()))
            }
            [] => Err(SandboxError::NotWasm("the file is empty".into())),
            other => Err(SandboxError::NotWasm(
                foreign_file(other).map_or("a component begins with `\\0asm`".into(), Into::into),
            )),
        }
    }
}

/// Why these bytes are no component or core module, by the words of whoever read them.
pub(super) fn damage(bytes: &[u8], reason: &str) -> SandboxError {
    // Looks at the sizes of sections only.
    let is_cut_off = |error: &wasmparser::BinaryReaderError| error.message().starts_with("unexpected end");
    match Parser::new(0).parse_all(bytes).find_map(Result::err) {
        Some(error) if is_cut_off(&error) => SandboxError::Truncated { size: bytes.len() },
        _ => SandboxError::Compile(sanitize(reason, 2000)),
    }
}

/// A component, compiled.
pub(super) struct CompiledComponent {
    pub(super) component: Component,
    /// names of the interfaces it exports
    pub(super) exports: Vec<String>,
}

impl CompiledComponent {
    /// Compiles a component (no core module) in memory.
    pub(super) fn new(engine: &Engine, component: &[u8]) -> Result<Self, SandboxError> {
        let component =
            Component::from_binary(engine, component).map_err(|error| damage(component, &format!("{error:#}")))?;
        Ok(component.into())
    }

    /// The places of the three calls of a step.
    pub(super) fn step_exports(&self) -> Result<StepExports, SandboxError> {
        let other = || SandboxError::OtherWorld { expected: STEP.into(), exports: self.exports.clone() };
        let step = self.component.get_export_index(None, STEP).ok_or_else(other)?;
        let call = |name: &str| self.component.get_export_index(Some(&step), name).ok_or_else(other);
        Ok(StepExports { describe: call("describe")?, configure: call("configure")?, process: call("process")? })
    }

    /// The interfaces that it imports.
    pub(super) fn imports(&self) -> Vec<Import> {
        let engine = self.component.engine();
        let called = |item: &ComponentItem| match item {
            ComponentItem::ComponentInstance(instance) => {
                instance.exports(engine).any(|(_, export)| matches!(export.ty, ComponentItem::ComponentFunc(_)))
            }
            _ => true,
        };
        let imports = self.component.component_type();
        let imports = imports.imports(engine);
        imports.map(|(name, item)| Import { name: sanitize(name, 200), called: called(&item.ty) }).collect()
    }

    /// A linker with the interfaces that it imports and may have.
    pub(super) fn linker(&self, grants: &Grants) -> Result<Linker<State>, SandboxError> {
        let mut linker = Linker::new(self.component.engine());
        imports::link(&mut linker, &self.imports(), grants)?;
        Ok(linker)
    }
}

impl From<Component> for CompiledComponent {
    fn from(component: Component) -> Self {
        let exports = component.component_type();
        let exports = exports.exports(component.engine()).map(|(name, _)| sanitize(name, 200));
        Self { exports: exports.collect(), component }
    }
}

/// Where a step's calls are; looked up once.
pub(super) struct StepExports {
    pub(super) describe: ComponentExportIndex,
    pub(super) configure: ComponentExportIndex,
    pub(super) process: ComponentExportIndex,
}
