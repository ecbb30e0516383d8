//! The imports of a component, and the grants that they require.

use serde::{Deserialize, Serialize};

use wasmtime::component::Linker;

use super::bindings::{builtins, log, models, types};
use super::error::SandboxError;
use super::grants::{Capability, Grants};
use super::refusal::{Refusal, RefusalReason};
use super::state::{HasState, State};
use super::wasi;
use super::zero_copy;

/// An interface that a component imports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Import {
    /// as the component names it
    pub(super) name: String,
    /// whether it calls anything there; otherwise it only needs the names of its types
    pub(super) called: bool,
}

/// What an import asks for.
pub(super) enum Interface {
    Types,
    Log,
    Builtins,
    Models,
    Wasi(&'static wasi::WasiInterface),
    /// nothing that can be linked, and why
    Other(&'static str),
}

impl Interface {
    pub(super) fn from_name(import: &str) -> Self {
        let (name, version) = import.split_once('@').unwrap_or((import, ""));
        if let Some(name) = name.strip_prefix("wasi:") {
            return Self::wasi(name, version);
        }
        let Some(interface) = name.strip_prefix("gpux:pipeline/") else {
            return Self::Other(
                "gpux does not offer; a step may import gpux:pipeline's types, log, builtins and models, and what of \
                 WASI it is granted",
            );
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

    fn wasi(name: &str, version: &str) -> Self {
        if ["sockets/", "http/", "tls/"].iter().any(|network| name.starts_with(network)) {
            return Self::Other("a step never gets: no grant opens the network");
        }
        if !version.starts_with("0.2.") {
            return Self::Other("is of another version of WASI; this gpux speaks 0.2");
        }
        wasi::WasiInterface::from_name(name).map_or(
            Self::Other("a step never gets; of WASI there are clocks, random, filesystem, cli and io"),
            Self::Wasi,
        )
    }

    /// What must be granted for it.
    pub(super) const fn capability(&self) -> Option<Capability> {
        match self {
            Self::Models => Some(Capability::Models),
            Self::Wasi(interface) => Some(interface.capability),
            Self::Types | Self::Log | Self::Builtins | Self::Other(_) => None,
        }
    }
}

/// Required capabilities of a component with these imports that are not granted.
///
/// Files and the environment are imported by habit: they give nothing without a folder or a
/// variable, so any granted part of WASI brings them along, as it does standard output.
pub(super) fn refusals(imports: &[Import], grants: &Grants) -> Vec<Refusal> {
    let mut refusals: Vec<Refusal> = Vec::new();
    let mut refuse =
        |reason: RefusalReason, import: &Import| match refusals.iter_mut().find(|refusal| refusal.reason == reason) {
            Some(refusal) => refusal.imports.push(import.name.clone()),
            None => refusals.push(Refusal { imports: vec![import.name.clone()], reason }),
        };
    let mut habit = Vec::new();
    let mut wasi = grants.any_wasi();
    for import in imports {
        match Interface::from_name(&import.name) {
            Interface::Types | Interface::Log | Interface::Builtins => {}
            Interface::Other(why) => refuse(RefusalReason::Never(why.into()), import),
            Interface::Wasi(interface) => match interface.capability {
                Capability::Clock | Capability::Random if !import.called => {}
                needed @ (Capability::Clock | Capability::Random) => {
                    wasi = true;
                    if !grants.allows(needed) {
                        refuse(RefusalReason::NotGranted(needed), import);
                    }
                }
                _ => habit.push(import),
            },
            Interface::Models if grants.models.is_empty() => {
                refuse(RefusalReason::NotGranted(Capability::Models), import);
            }
            Interface::Models => {}
        }
    }
    if !wasi {
        for import in habit {
            refuse(RefusalReason::NotGranted(Capability::Stdio), import);
        }
    }
    refusals
}

/// Granted capabilities that no import uses.
pub(super) fn unused(imports: &[Import], grants: &Grants) -> Vec<Capability> {
    let asked = |capability| {
        imports
            .iter()
            .any(|import| import.called && Interface::from_name(&import.name).capability() == Some(capability))
    };
    let any_wasi = imports.iter().any(|import| matches!(Interface::from_name(&import.name), Interface::Wasi(_)));
    let unused = |capability: &Capability| {
        grants.allows(*capability) && if *capability == Capability::Stdio { !any_wasi } else { !asked(*capability) }
    };
    Capability::ALL.into_iter().filter(unused).collect()
}

/// A linker with the interfaces that are imported and may be had.
pub(super) fn link(linker: &mut Linker<State>, imports: &[Import], grants: &Grants) -> Result<(), SandboxError> {
    let refusals = refusals(imports, grants);
    if !refusals.is_empty() {
        return Err(SandboxError::Imports(refusals));
    }
    // A composed component may import an interface in two versions, which are one here.
    linker.allow_shadowing(true);
    for import in imports {
        let added = match Interface::from_name(&import.name) {
            Interface::Types => {
                types::add_to_linker::<State, HasState>(linker, |state| state).and_then(|()| zero_copy::link(linker))
            }
            Interface::Log => log::add_to_linker::<State, HasState>(linker, |state| state),
            Interface::Builtins => builtins::add_to_linker::<State, HasState>(linker, |state| state),
            Interface::Models => models::add_to_linker::<State, HasState>(linker, |state| state),
            // An import of types alone needs nothing, unless one of them is a resource.
            Interface::Wasi(interface) if import.called || interface.capability == Capability::Stdio => {
                interface.link(linker)
            }
            Interface::Wasi(_) | Interface::Other(_) => Ok(()),
        };
        added.map_err(|error| SandboxError::Engine(format!("{error:#}")))?;
    }
    Ok(())
}
