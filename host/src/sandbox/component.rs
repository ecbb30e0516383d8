//! Bytes → a compiled component that may be linked.

use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::{Deserialize, Serialize};
use wasmtime::Engine;
use wasmtime::component::{Component, ComponentExportIndex, Linker};

use super::bindings::{STEP, builtins, log, models, types};
use super::error::SandboxError;
use super::limits::Grants;
use super::log::plain;
use super::state::State;
use crate::pipeline::Registry;

/// What the bytes of a step are.
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
            _ => Err(SandboxError::NotWasm("a component begins with `\\0asm`".into())),
        }
    }
}

/// Makes a core module that carries its contract (as wit-bindgen leaves it) a component; a
/// component stays as it is.
pub fn componentize(bytes: &[u8]) -> Result<Cow<'_, [u8]>, SandboxError> {
    if ComponentKind::of(bytes)? == ComponentKind::Component {
        return Ok(Cow::Borrowed(bytes));
    }
    // The encoder trusts a module to be whole, and panics where a hostile one is not.
    if let Some(damage) = wasmparser::Parser::new(0).parse_all(bytes).find_map(Result::err) {
        return Err(SandboxError::Compile(plain(&damage.to_string(), 2000)));
    }
    let encode = || wit_component::ComponentEncoder::default().validate(true).module(bytes)?.encode();
    let encoded = catch_unwind(AssertUnwindSafe(encode))
        .map_err(|_| SandboxError::Componentize("the encoder gave up on it".to_owned()))?;
    // The whole chain: the outer error only says which stage it was.
    encoded.map(Cow::Owned).map_err(|error| SandboxError::Componentize(plain(&format!("{error:#}"), 2000)))
}

/// The export through which the snapshotter reads memories and globals; no component's own.
const ACCESS: &str = "wasmtime:wizer/access";

/// A component, compiled.
pub(super) struct Compiled {
    pub(super) component: Component,
    /// names of the interfaces it imports
    pub(super) imports: Vec<String>,
    /// names of the interfaces it exports
    pub(super) exports: Vec<String>,
}

impl Compiled {
    /// Compiles a component (no core module), or finds it in the engine's cache.
    pub(super) fn new(engine: &Engine, component: &[u8]) -> Result<Self, SandboxError> {
        let component = Component::from_binary(engine, component)
            .map_err(|error| SandboxError::Compile(plain(&format!("{error:#}"), 2000)))?;
        let shape = component.component_type();
        let name = |name: &str| plain(name, 200);
        Ok(Self {
            imports: shape.imports(engine).map(|(import, _)| name(import)).collect(),
            exports: shape.exports(engine).map(|(export, _)| name(export)).filter(|name| name != ACCESS).collect(),
            component,
        })
    }

    /// The places of the three calls of a step.
    pub(super) fn calls(&self) -> Result<Calls, SandboxError> {
        let other = || SandboxError::OtherWorld { expected: STEP.into(), exports: self.exports.clone() };
        let step = self.component.get_export_index(None, STEP).ok_or_else(other)?;
        let call = |name: &str| self.component.get_export_index(Some(&step), name).ok_or_else(other);
        Ok(Calls { describe: call("describe")?, configure: call("configure")?, process: call("process")? })
    }

    /// A linker with the interfaces that it imports and may have.
    pub(super) fn linker(&self, grants: &Grants, registry: &Registry) -> Result<Linker<State>, SandboxError> {
        let mut linker = Linker::new(self.component.engine());
        for import in &self.imports {
            let added = match Interface::named(import) {
                Interface::Types => types::add_to_linker::<State, Own>(&mut linker, |state| state),
                Interface::Log => log::add_to_linker::<State, Own>(&mut linker, |state| state),
                Interface::Builtins => builtins::add_to_linker::<State, Own>(&mut linker, |state| state),
                Interface::Models if grants.models.is_empty() => {
                    let names: Vec<_> = registry.model_names().collect();
                    let why = format!(
                        "is not granted; to let it run models, add `grant: {{ models: [{}] }}` to this step in gpux.yml",
                        if names.is_empty() { "NAME".to_owned() } else { names.join(", ") }
                    );
                    return Err(SandboxError::Import { import: import.clone(), why });
                }
                Interface::Models => models::add_to_linker::<State, Own>(&mut linker, |state| state),
                Interface::Other(why) => {
                    return Err(SandboxError::Import { import: import.clone(), why: why.to_owned() });
                }
            };
            added.map_err(|error| SandboxError::Engine(format!("{error:#}")))?;
        }
        Ok(linker)
    }
}

type Own = wasmtime::component::HasSelf<State>;

/// Where a step's calls are; looked up once.
pub(super) struct Calls {
    pub(super) describe: ComponentExportIndex,
    pub(super) configure: ComponentExportIndex,
    pub(super) process: ComponentExportIndex,
}

/// What an import asks for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Interface {
    Types,
    Log,
    Builtins,
    Models,
    /// nothing that can be linked, and why
    Other(&'static str),
}

impl Interface {
    pub(super) fn named(import: &str) -> Self {
        let (name, version) = import.split_once('@').unwrap_or((import, ""));
        let Some(interface) = name.strip_prefix("gpux:pipeline/") else {
            return Self::Other(if name.starts_with("wasi:") {
                "a sandbox does not have: a step gets no files, no network, no clock and no environment; build it \
                 without WASI (for Rust, target wasm32-unknown-unknown)"
            } else {
                "gpux does not offer; a step may import gpux:pipeline's types, log, builtins and models"
            });
        };
        match interface {
            _ if !version.starts_with("0.1.") => {
                Self::Other("is of another version; this gpux speaks gpux:pipeline@0.1")
            }
            "types" => Self::Types,
            "log" => Self::Log,
            "builtins" => Self::Builtins,
            "models" => Self::Models,
            _ => Self::Other("this gpux does not offer; the component was built for a newer one"),
        }
    }
}
