//! What a component is and could do, for people and for JSON.

use serde::Serialize;

use super::component::{ComponentKind, Interface};
use super::error::SandboxError;
use super::prepare::{Described, Facts, Prepared, Start};
use crate::pipeline::{Port, Signature};

/// Everything that is known of a component outside a pipeline.
#[derive(Clone, Debug, Serialize)]
pub struct ComponentInfo {
    /// SHA-256 of its bytes, in hexadecimal
    pub digest: String,
    /// its size in bytes
    pub size: usize,
    /// component or core module
    pub kind: ComponentKind,
    /// the interfaces it imports
    pub imports: Vec<String>,
    /// the interfaces it exports
    pub exports: Vec<String>,
    /// what it says about itself, in a line
    pub summary: Option<String>,
    /// the JSON Schema of its options
    pub options_schema: Option<serde_json::Value>,
    /// what it takes and gives, if options were given
    pub signature: Option<SignatureInfo>,
    /// how requests start, if options were given
    pub start: Option<Start>,
    /// what it can do, in plain words
    pub can: Vec<&'static str>,
    /// what it can do once gpux.yml grants it
    pub needs: Vec<&'static str>,
    /// what it cannot do, in plain words
    pub cannot: Vec<&'static str>,
    /// why it cannot be used as it is
    pub problem: Option<String>,
}

/// What a step takes and gives, as text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SignatureInfo {
    /// what it takes
    pub inputs: Vec<PortInfo>,
    /// what it gives
    pub outputs: Vec<PortInfo>,
}

/// A port, as text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PortInfo {
    /// its name in the frame
    pub name: String,
    /// what it takes or gives, for example `tensor uint8[?, ?, 1] HWC`
    pub kind: String,
    /// whether it may be left out
    pub optional: bool,
    /// one line for people
    pub description: String,
}

impl SignatureInfo {
    pub(super) fn of(signature: &Signature) -> Self {
        let info = |port: &Port| PortInfo {
            name: port.name.clone(),
            kind: port.kind.to_string(),
            optional: port.optional,
            description: port.description.clone(),
        };
        Self {
            inputs: signature.inputs.iter().map(info).collect(),
            outputs: signature.outputs.iter().map(info).collect(),
        }
    }
}

impl ComponentInfo {
    pub(super) fn of(prepared: Prepared, options_given: bool) -> Self {
        let Prepared { facts: Facts { digest, size, kind, imports, exports }, described, ready } = prepared;
        let (summary, options_schema) =
            described.map(|Described { summary, options_schema }| (summary, options_schema)).unzip();
        let (ready, problem) = match ready {
            Ok(ready) => (Some(ready), None),
            // Without any, it may well need some.
            Err(SandboxError::Options { .. }) if !options_given => (None, None),
            Err(error) => (None, Some(error.to_string())),
        };
        let signature = ready.as_ref().map(|ready| SignatureInfo::of(&ready.signature));
        let imports_it = |interface| imports.iter().any(|import| Interface::named(import) == interface);
        let mut can = vec!["compute"];
        can.extend(imports_it(Interface::Builtins).then_some("call built-in steps"));
        can.extend(imports_it(Interface::Log).then_some("write log lines"));
        let needs = imports_it(Interface::Models).then_some("run models (`grant: { models: [NAME] }`)");
        Self {
            digest,
            size,
            kind,
            imports,
            exports,
            summary,
            options_schema,
            signature,
            start: ready.map(|ready| ready.start),
            can,
            needs: needs.into_iter().collect(),
            cannot: vec!["read files", "use the network", "read the clock", "see the environment"],
            problem,
        }
    }

    /// "It can: compute. It cannot: read files, use the network …"
    pub fn capabilities(&self) -> String {
        let needs = if self.needs.is_empty() {
            String::new()
        } else {
            format!(" If granted, it can: {}.", self.needs.join(", "))
        };
        format!("It can: {}.{needs} It cannot: {}.", self.can.join(", "), self.cannot.join(", "))
    }
}
