//! Removes debug information and names from a component.

use wasm_encoder::{Component, ComponentSectionId, Module, RawSection};
use wasmparser::{Encoding, Parser, Payload};

use super::build_error::BuildError;

/// A component or a module that is being written.
enum SectionBuilder {
    Component(Component),
    Module(Module),
}

impl SectionBuilder {
    fn section(&mut self, id: u8, data: &[u8]) {
        let section = RawSection { id, data };
        match self {
            Self::Component(component) => {
                component.section(&section);
            }
            Self::Module(module) => {
                module.section(&section);
            }
        }
    }

    /// Its bytes, and the section in which it lies in another component.
    fn finish(self) -> (Vec<u8>, ComponentSectionId) {
        match self {
            Self::Component(component) => (component.finish(), ComponentSectionId::Component),
            Self::Module(module) => (module.finish(), ComponentSectionId::CoreModule),
        }
    }
}

/// Takes the custom sections for people and debuggers (names, producers, DWARF, what only linkers
/// read) out of a component and its nested components. Its behaviour does not change.
pub fn strip(component: &[u8]) -> Result<Vec<u8>, BuildError> {
    let damaged = |why: &dyn std::fmt::Display| BuildError::Damaged(why.to_string());
    let mut open: Vec<SectionBuilder> = Vec::new();
    for payload in Parser::new(0).parse_all(component) {
        let payload = payload.map_err(|error| damaged(&error))?;
        match &payload {
            Payload::Version { encoding: Encoding::Component, .. } => {
                open.push(SectionBuilder::Component(Component::new()));
            }
            Payload::Version { encoding: Encoding::Module, .. } => open.push(SectionBuilder::Module(Module::new())),
            Payload::End(_) => {
                let Some(done) = open.pop() else { return Err(damaged(&"it ends twice")) };
                let (bytes, section) = done.finish();
                match open.last_mut() {
                    Some(outer) => outer.section(section as u8, &bytes),
                    None => return Ok(bytes),
                }
            }
            Payload::CustomSection(custom) if is_debug_section(custom.name()) => {}
            // A nested module or component follows as a whole, from its own version to its own end.
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => {}
            other => {
                if let Some((id, range)) = other.as_section()
                    && let Some(open) = open.last_mut()
                {
                    open.section(id, component.get(range).ok_or_else(|| damaged(&"a section is cut off"))?);
                }
            }
        }
    }
    Err(damaged(&"it has no end"))
}

fn is_debug_section(section: &str) -> bool {
    const NAMES: [&str; 9] = [
        "name",
        "producers",
        "component-name",
        "target_features",
        "linking",
        "sourceMappingURL",
        "external_debug_info",
        "build_id",
        "package-docs",
    ];
    NAMES.contains(&section) || section.starts_with(".debug") || section.starts_with("reloc.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpux_sandbox::{Sandbox, SandboxOptions};

    const HOSTILE: &[u8] = include_bytes!("../../../guest-examples/hostile/hostile.wasm");
    const HOSTILE_WASI: &[u8] = include_bytes!("../../../guest-examples/hostile-wasi/all.wasm");
    const CENTER_INK: &[u8] = include_bytes!("../../../guest-examples/rust/center-ink.wasm");

    fn custom_sections(bytes: &[u8]) -> Vec<String> {
        let named = |payload| match payload {
            Payload::CustomSection(custom) => Some(custom.name().to_owned()),
            _ => None,
        };
        Parser::new(0).parse_all(bytes).filter_map(|payload| named(payload.unwrap())).collect()
    }

    #[test]
    fn stripped_components_behave_the_same() {
        let sandbox = Sandbox::new(SandboxOptions::default()).unwrap();
        // Those that are checked in as they leave the compiler.
        for module in [HOSTILE, HOSTILE_WASI] {
            let component = gpux_sandbox::componentize(module).unwrap();
            let stripped = strip(&component).unwrap();
            assert!(stripped.len() < component.len());
            assert_eq!(custom_sections(&stripped), Vec::<String>::new());
            assert!(!custom_sections(&component).is_empty());
            let told = |bytes: &[u8]| {
                let info = sandbox.inspect(bytes, Some(&serde_json::json!({}))).unwrap();
                (info.problem, info.imports, info.exports, info.summary, info.options_schema, info.signature)
            };
            assert_eq!(told(&stripped), told(&component));
            assert_eq!(strip(&stripped).unwrap(), stripped);
        }
        assert_eq!(strip(CENTER_INK).unwrap(), CENTER_INK);
    }

    #[test]
    fn keeps_other_custom_sections() {
        let mut module = Module::new();
        module.section(&wasm_encoder::CustomSection { name: "mine".into(), data: (&b"x"[..]).into() });
        module.section(&wasm_encoder::CustomSection { name: ".debug_info".into(), data: (&b"x"[..]).into() });
        assert_eq!(custom_sections(&strip(&module.finish()).unwrap()), ["mine"]);
    }

    #[test]
    fn rejects_damaged_components() {
        let component = gpux_sandbox::componentize(CENTER_INK).unwrap();
        for end in [0, 4, 20, component.len() / 2, component.len() - 1] {
            assert!(strip(&component[..end]).is_err(), "{end}");
        }
        assert!(strip(b"not wasm at all").is_err());
    }
}
