//! A core module → a component.

use std::borrow::Cow;

use wasmparser::{Parser, Payload};
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::{Resolve, WorldId};

use super::bindings::{STEP, STEP_INTERFACE};
use super::component::{ComponentKind, damage};
use super::error::SandboxError;
use super::log::sanitize;
use gpux_core::catch_panic::catch_panic;

const WIT: &str = include_str!("../../../wit/pipeline.wit");
const WORLD: &str = "pipeline-step";
/// How the custom section of a contract is called, with or without a suffix.
const CONTRACT_SECTION: &str = "component-type";
const WASI_PREVIEW_1: [&str; 2] = ["wasi_snapshot_preview1", "wasi_unstable"];

/// The contract in the version `version`, for modules that do not carry it. A later 0.1.x only adds to an earlier one.
fn contract(version: &str) -> Result<(Resolve, WorldId), Box<dyn std::error::Error + Send + Sync>> {
    let ours = STEP.rsplit_once('@').map_or("", |(_, version)| version);
    let wit = WIT.replacen(&format!("package gpux:pipeline@{ours};"), &format!("package gpux:pipeline@{version};"), 1);
    let mut resolve = Resolve::default();
    let package = resolve.push_source("pipeline.wit", &wit)?;
    let world = resolve.select_world(&[package], Some(WORLD))?;
    Ok((resolve, world))
}

/// Makes a core module a component; a component stays as it is. A module that lacks the custom section of
/// the contract, as compilers without a generator of bindings leave it, gets it if it exports a step.
pub fn componentize(bytes: &[u8]) -> Result<Cow<'_, [u8]>, SandboxError> {
    if ComponentKind::of(bytes)? == ComponentKind::Component {
        return Ok(Cow::Borrowed(bytes));
    }
    // The encoder trusts a module to be whole, and panics where a hostile one is not.
    let module = ModuleSummary::read(bytes).map_err(|error| damage(bytes, &describe(&error)))?;
    if !module.wasi.is_empty() {
        return Err(SandboxError::WasiPreview1(module.wasi));
    }
    let bytes = if module.has_contract { Cow::Borrowed(bytes) } else { Cow::Owned(with_contract(bytes, &module)?) };
    let encode = || ComponentEncoder::default().validate(true).module(&bytes)?.encode();
    let encoded = catch_panic(encode).map_err(|why| SandboxError::Componentize(sanitize(&why, 2000)))?;
    // The whole chain: the outer error only says which stage it was.
    encoded.map(Cow::Owned).map_err(|error| SandboxError::Componentize(sanitize(&format!("{error:#}"), 2000)))
}

/// Whether a component exports the interface of a step, as far as its names tell.
pub fn exports_step(component: &[u8]) -> bool {
    let mut depth = 0_usize;
    Parser::new(0).parse_all(component).any(|payload| match payload {
        Ok(Payload::Version { .. }) => {
            depth += 1;
            false
        }
        Ok(Payload::End(_)) => {
            depth = depth.saturating_sub(1);
            false
        }
        Ok(Payload::ComponentExportSection(exports)) => {
            depth == 1 && exports.into_iter().flatten().any(|export| step_version(export.name.name).is_some())
        }
        _ => false,
    })
}

/// What of a core module decides how it is made a component.
#[derive(Default)]
struct ModuleSummary {
    has_contract: bool,
    /// the version of the step's interface that it exports
    step_version: Option<String>,
    /// functions of WASI 0.1 that it imports
    wasi: Vec<String>,
}

impl ModuleSummary {
    fn read(bytes: &[u8]) -> wasmparser::Result<Self> {
        let mut module = Self::default();
        for payload in Parser::new(0).parse_all(bytes) {
            match payload? {
                Payload::CustomSection(section) => module.has_contract |= section.name().starts_with(CONTRACT_SECTION),
                Payload::ImportSection(imports) => {
                    for import in imports.into_imports() {
                        let import = import?;
                        if WASI_PREVIEW_1.contains(&import.module) {
                            module.wasi.push(sanitize(import.name, 200));
                        }
                    }
                }
                Payload::ExportSection(exports) => {
                    for export in exports {
                        let version = step_call_version(export?.name);
                        module.step_version = module.step_version.take().or_else(|| version.map(str::to_owned));
                    }
                }
                _ => {}
            }
        }
        Ok(module)
    }
}

/// The version of the step's interface of this name, if it is one that is offered: 0.1.x.
fn step_version(name: &str) -> Option<&str> {
    let version = name.strip_prefix(STEP_INTERFACE)?.strip_prefix('@')?;
    let patch = version.strip_prefix("0.1.")?;
    (!patch.is_empty() && patch.len() < 10 && patch.bytes().all(|digit| digit.is_ascii_digit())).then_some(version)
}

/// The same of an export of a core module, if it is a call of that interface.
fn step_call_version(name: &str) -> Option<&str> {
    step_version(name.split_once('#')?.0)
}

fn with_contract(bytes: &[u8], module: &ModuleSummary) -> Result<Vec<u8>, SandboxError> {
    let Some(version) = &module.step_version else {
        let why = format!("it carries no contract, and exports no function of a step, such as `{STEP}#process`");
        return Err(SandboxError::Componentize(why));
    };
    let (resolve, world) = contract(version).map_err(|error| SandboxError::Engine(error.to_string()))?;
    let mut bytes = bytes.to_vec();
    embed_component_metadata(&mut bytes, &resolve, world, StringEncoding::UTF8)
        .map_err(|error| SandboxError::Engine(describe(&error)))?;
    Ok(bytes)
}

fn describe(error: &dyn std::fmt::Display) -> String {
    sanitize(&error.to_string(), 2000)
}
