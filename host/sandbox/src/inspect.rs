//! Describes a component and its capabilities, for people and as JSON.

use serde::Serialize;

use super::component::ComponentKind;
use super::error::SandboxError;
use super::grants::{Capability, Grants};
use super::imports::{Import, Interface, refusals};
use super::prepare::{ComponentDescription, ComponentFacts, PreparedComponent, Start};
use super::refusal::RefusalReason;
use gpux_core::{Port, Signature};

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
    /// what it asks for, and can do once gpux.yml grants it
    pub needs: Vec<NeededCapability>,
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

/// Something that a component can do once it is granted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NeededCapability {
    /// what it is
    pub capability: Capability,
    /// what it is, in plain words
    pub what: &'static str,
    /// the grant in gpux.yml
    pub grant: &'static str,
    /// what the operator allows it with, after `--allow`; `None` where every pipeline may
    pub allow: Option<&'static str>,
    /// whether the component cannot be loaded without it
    pub required: bool,
    /// the imports that ask for it
    pub imports: Vec<String>,
}

fn imports_for(imports: &[Import], capability: Capability) -> impl Iterator<Item = &Import> {
    imports
        .iter()
        .filter(move |import| import.called && Interface::from_name(&import.name).capability() == Some(capability))
}

fn needs(imports: &[Import]) -> Vec<NeededCapability> {
    let refused = refusals(imports, &Grants::default());
    let required = |capability| refused.iter().any(|refusal| refusal.reason == RefusalReason::NotGranted(capability));
    let need = |capability: Capability| NeededCapability {
        capability,
        what: capability.words(),
        grant: capability.grant(),
        allow: capability.allow(),
        required: required(capability),
        imports: imports_for(imports, capability).map(|import| import.name.clone()).collect(),
    };
    Capability::ALL.into_iter().map(need).filter(|need| need.required || !need.imports.is_empty()).collect()
}

/// What needs no grant, in plain words.
fn free(imports: &[Import]) -> Vec<&'static str> {
    let named = |name: &str| imports.iter().any(|import| import.name.starts_with(name));
    let mut can = vec!["compute"];
    can.extend(named("gpux:pipeline/builtins@").then_some("call built-in steps"));
    can.extend(named("gpux:pipeline/log@").then_some("write log lines"));
    can
}

/// What a component with these imports can do under `grants`, in plain words.
pub(super) fn granted(imports: &[Import], grants: &Grants) -> Vec<String> {
    let mut can: Vec<String> = free(imports).into_iter().map(str::to_owned).collect();
    let holds = |capability| match capability {
        // Any part of WASI brings them along.
        Capability::Stdio => grants.any_wasi(),
        other => grants.allows(other),
    };
    for capability in Capability::ALL {
        if !holds(capability) || imports_for(imports, capability).next().is_none() {
            continue;
        }
        match capability {
            Capability::Models => can.push(format!("run the models {}", grants.models.join(", "))),
            Capability::Environment => {
                let names: Vec<_> = grants.env.iter().map(|env| env.name.as_str()).collect();
                can.push(format!("see the variables {}", names.join(", ")));
            }
            Capability::Files => can.extend(grants.dirs.iter().map(|dir| {
                let what = if dir.writable { "read and write files in" } else { "read files in" };
                format!("{what} {}", dir.name)
            })),
            Capability::Clock | Capability::Random | Capability::Stdio => can.push(capability.words().to_owned()),
        }
    }
    can
}

/// What no component can do, or only this one cannot: nothing in it asks for it.
fn lacking(needs: &[NeededCapability]) -> Vec<&'static str> {
    let shown = [
        Some(Capability::Files),
        None,
        Some(Capability::Clock),
        Some(Capability::Random),
        Some(Capability::Environment),
        Some(Capability::Models),
    ];
    let asked = |capability| needs.iter().any(|need| need.capability == capability);
    let words = |capability: Option<Capability>| match capability {
        None => Some("use the network"),
        Some(capability) => (!asked(capability)).then(|| capability.words()),
    };
    shown.into_iter().filter_map(words).collect()
}

impl ComponentInfo {
    pub(super) fn of(prepared: PreparedComponent, options_given: bool) -> Self {
        let PreparedComponent { facts: ComponentFacts { digest, size, kind, imports, exports }, described, ready } =
            prepared;
        let (summary, options_schema) =
            described.map(|ComponentDescription { summary, options_schema }| (summary, options_schema)).unzip();
        let (ready, problem) = match ready {
            Ok(ready) => (Some(ready), None),
            // Without any, it may well need some.
            Err(SandboxError::Options { .. }) if !options_given => (None, None),
            Err(error) => (None, Some(error.to_string())),
        };
        let needs = needs(&imports);
        Self {
            digest,
            size,
            kind,
            can: free(&imports),
            cannot: lacking(&needs),
            needs,
            imports: imports.into_iter().map(|import| import.name).collect(),
            exports,
            summary,
            options_schema,
            signature: ready.as_ref().map(|ready| SignatureInfo::of(&ready.signature)),
            start: ready.map(|ready| ready.start),
            problem,
        }
    }

    /// "It can: compute. If granted, it can: read the clock … It cannot: read files …"
    pub fn capabilities(&self) -> String {
        let mut said = format!("It can: {}.", self.can.join(", "));
        if !self.needs.is_empty() {
            let needs: Vec<_> =
                self.needs.iter().map(|need| format!("{} (`grant: {{ {} }}`)", need.what, need.grant)).collect();
            said += &format!(" If granted, it can: {}.", needs.join(", "));
        }
        said += &format!(" It cannot: {}.", self.cannot.join(", "));
        let required = || self.needs.iter().filter(|need| need.required);
        if required().next().is_some() {
            let words: Vec<_> = required().map(|need| need.what).collect();
            said += &format!(" It is not loaded unless it may {}", and(&words));
            let allow: Vec<_> = required().filter_map(|need| need.allow).collect();
            if !allow.is_empty() {
                said += &format!("; the operator agrees with `--allow {}`", allow.join(","));
            }
            said.push('.');
        }
        said
    }
}

fn and(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [only] => (*only).to_owned(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn imports(names: &[&str]) -> Vec<Import> {
        let import = |name: &&str| match name.strip_suffix(" (types)") {
            Some(name) => Import { name: format!("wasi:{name}@0.2.3"), called: false },
            None if name.starts_with("gpux:") => Import { name: format!("{name}@0.1.0"), called: true },
            None => Import { name: format!("wasi:{name}@0.2.3"), called: true },
        };
        names.iter().map(import).collect()
    }

    /// Words of what is asked for; those required are marked.
    fn asked(names: &[&str]) -> Vec<String> {
        let mark = |need: NeededCapability| format!("{}{}", need.what, if need.required { "!" } else { "" });
        needs(&imports(names)).into_iter().map(mark).collect()
    }

    #[test]
    fn derives_required_capabilities_from_imports() {
        assert!(asked(&["gpux:pipeline/types", "gpux:pipeline/builtins"]).is_empty());
        assert_eq!(asked(&["gpux:pipeline/models"]), ["run models!"]);
        assert_eq!(asked(&["clocks/monotonic-clock", "io/poll"]), ["read the clock!", "use standard streams"]);
        // The file interface names a type of the clock's.
        assert_eq!(asked(&["filesystem/types", "clocks/wall-clock (types)"]), ["read files", "use standard streams!"]);
        assert_eq!(asked(&["cli/stdout", "cli/environment"]), ["see the environment", "use standard streams!"]);
        assert_eq!(asked(&["random/insecure-seed", "cli/stderr"]), ["draw random numbers!", "use standard streams"]);
        assert!(asked(&["sockets/tcp", "http/outgoing-handler", "nn/graph"]).is_empty());
    }

    #[test]
    fn lists_unavailable_capabilities() {
        let all = ["read files", "use the network", "read the clock", "draw random numbers", "see the environment"];
        assert_eq!(lacking(&needs(&imports(&["gpux:pipeline/models"]))), all);
        let wasi = imports(&["filesystem/types", "clocks/wall-clock", "random/random", "cli/environment"]);
        assert_eq!(lacking(&needs(&wasi)), ["use the network", "run models"]);
    }

    #[test]
    fn lists_granted_capabilities() {
        let grants = Grants {
            clock: true,
            random: true,
            dirs: vec![super::super::FolderGrant {
                name: "./out".to_owned(),
                folder: "/out".into(),
                writable: true,
                opened: None,
            }],
            ..Grants::default()
        };
        let imports = imports(&["gpux:pipeline/log", "clocks/wall-clock", "filesystem/preopens"]);
        assert_eq!(
            granted(&imports, &grants),
            ["compute", "write log lines", "read the clock", "read and write files in ./out"]
        );
        assert_eq!(super::super::imports::unused(&imports, &grants), [Capability::Random]);
    }
}
