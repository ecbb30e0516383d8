//! A component and its nested components: tools that stub or compose create these, and the
//! snapshotter accepts only components without nesting. So each component with modules (a leaf) is snapshotted
//! alone, and the enclosing ones forward its exports.

use wasm_encoder::{
    Alias, Component, ComponentAliasSection, ComponentExportKind, ComponentExportSection, ComponentSectionId,
    RawSection,
};
use wasmparser::{
    ComponentAlias, ComponentExternalKind, ComponentInstance, ComponentOuterAliasKind, Encoding, Parser, Payload,
};

/// The export through which the snapshotter reads memories and globals.
const ACCESS: &str = "wasmtime:wizer/access";
/// What begins the name of such an export of a component inside, where the root passes it out.
const PASSED_OUT: &str = "gpux:snapshot/part";
/// How deep components may lie in each other.
const DEPTH: usize = 8;
/// How many components with modules there may be.
const LEAVES: usize = 32;

/// A component's own parts, in order, and which of them are components with modules in them.
pub(super) struct Tree<'a> {
    component: &'a [u8],
    /// empty if the component is a leaf
    sections: Vec<Section<'a>>,
    /// component instances in its index space
    instances: u32,
}

enum Section<'a> {
    Raw { id: u8, data: &'a [u8] },
    Nested { tree: Tree<'a>, instance: u32 },
}

/// A component with modules, none of which lies in a component inside it.
pub(super) struct Leaf<'a> {
    pub(super) component: &'a [u8],
    /// the root's export through which it can be read
    pub(super) access: String,
}

impl<'a> Tree<'a> {
    /// Reads a valid component, or says what about it cannot be followed.
    pub(super) fn read(component: &'a [u8]) -> Result<Self, String> {
        Self::read_at(component, 0, &mut 0)
    }

    fn read_at(component: &'a [u8], depth: usize, leaves: &mut usize) -> Result<Self, String> {
        let parts = Parts::of(component)?;
        if depth > DEPTH || *leaves >= LEAVES {
            return Err("it is made of too many components".to_owned());
        }
        let nested = parts.components.iter().flatten().any(|nested| holds_modules(nested));
        if !nested {
            *leaves += 1;
            return Ok(Self { component, sections: Vec::new(), instances: 0 });
        }
        if parts.has_modules {
            return Err("it has modules of its own beside components with modules".to_owned());
        }
        let mut sections = Vec::with_capacity(parts.sections.len());
        for (id, data, index) in parts.sections {
            let section = match index.and_then(|index| parts.components[index]) {
                Some(nested) if holds_modules(nested) => {
                    let mut made = parts
                        .made
                        .iter()
                        .filter(|(component, _)| Some(*component as usize) == index)
                        .map(|(_, at)| *at);
                    let (Some(instance), None) = (made.next(), made.next()) else {
                        return Err("a component inside it is not instantiated exactly once".to_owned());
                    };
                    Section::Nested { tree: Self::read_at(nested, depth + 1, leaves)?, instance }
                }
                _ => Section::Raw { id, data },
            };
            sections.push(section);
        }
        Ok(Self { component, sections, instances: parts.instances })
    }

    const fn is_leaf(&self) -> bool {
        self.sections.is_empty()
    }

    /// The components with modules, in the order of the file.
    pub(super) fn leaves(&self) -> Vec<Leaf<'a>> {
        let mut leaves = Vec::new();
        self.collect(&mut leaves);
        if let [only] = leaves.as_mut_slice()
            && self.is_leaf()
        {
            ACCESS.clone_into(&mut only.access);
        }
        leaves
    }

    fn collect(&self, leaves: &mut Vec<Leaf<'a>>) {
        if self.is_leaf() {
            let access = passed_out(leaves.len());
            leaves.push(Leaf { component: self.component, access });
        }
        for section in &self.sections {
            if let Section::Nested { tree, .. } = section {
                tree.collect(leaves);
            }
        }
    }

    /// The whole component with other leaves, in the order of [`leaves`](Self::leaves).
    pub(super) fn rebuild(&self, leaves: &[Vec<u8>]) -> Vec<u8> {
        self.build(&mut leaves.iter().enumerate(), false).0
    }

    /// The tree in which each leaf exports the functions that the snapshotter needs, and the root forwards them.
    pub(super) fn instrumented(&self, leaves: &[Vec<u8>]) -> Vec<u8> {
        self.build(&mut leaves.iter().enumerate(), true).0
    }

    /// The component, and the names of the exports that it passes out.
    fn build<'b>(
        &self,
        leaves: &mut impl Iterator<Item = (usize, &'b Vec<u8>)>,
        pass_out: bool,
    ) -> (Vec<u8>, Vec<(String, String)>) {
        if self.is_leaf() {
            return leaves.next().map_or_else(Default::default, |(index, leaf)| {
                (leaf.clone(), vec![(ACCESS.to_owned(), passed_out(index))])
            });
        }
        let mut component = Component::new();
        let mut passed = Vec::new();
        for section in &self.sections {
            match section {
                Section::Raw { id, data } => {
                    component.section(&RawSection { id: *id, data });
                }
                Section::Nested { tree, instance } => {
                    let (bytes, exports) = tree.build(leaves, pass_out);
                    component.section(&RawSection { id: ComponentSectionId::Component.into(), data: &bytes });
                    passed.extend(exports.into_iter().map(|(name, unique)| (*instance, name, unique)));
                }
            }
        }
        let mut names = Vec::with_capacity(passed.len());
        if pass_out {
            let (mut aliases, mut exports) = (ComponentAliasSection::new(), ComponentExportSection::new());
            for (place, (instance, name, unique)) in passed.into_iter().enumerate() {
                aliases.alias(Alias::InstanceExport { instance, kind: ComponentExportKind::Instance, name: &name });
                exports.export(&unique, ComponentExportKind::Instance, self.instances + place as u32, None);
                names.push((unique.clone(), unique));
            }
            component.section(&aliases);
            component.section(&exports);
        }
        (component.finish(), names)
    }
}

fn passed_out(index: usize) -> String {
    format!("{PASSED_OUT}{index}")
}

/// Whether an export of an instrumented component is not its own.
pub(super) fn is_passed_out(name: &str) -> bool {
    name == ACCESS || name.starts_with(PASSED_OUT)
}

/// Whether there is a module anywhere in the component.
fn holds_modules(component: &[u8]) -> bool {
    Parser::new(0).parse_all(component).any(|payload| matches!(payload, Ok(Payload::ModuleSection { .. })))
}

/// The outermost level of a component.
#[derive(Default)]
struct Parts<'a> {
    /// number, contents, and for a component inside it its index
    sections: Vec<(u8, &'a [u8], Option<usize>)>,
    /// components by index; `None` for one that is not defined here
    components: Vec<Option<&'a [u8]>>,
    /// component and instance of each instantiation
    made: Vec<(u32, u32)>,
    instances: u32,
    has_modules: bool,
}

impl<'a> Parts<'a> {
    fn of(component: &'a [u8]) -> Result<Self, String> {
        let mut parts = Self::default();
        let mut depth = 0_usize;
        for payload in Parser::new(0).parse_all(component) {
            let payload = payload.map_err(|error| error.to_string())?;
            if let Payload::Version { encoding: Encoding::Module, .. } = payload
                && depth == 0
            {
                return Err("it is a core module".to_owned());
            }
            if depth == 0 {
                parts.add(component, &payload)?;
            }
            match payload {
                Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
                Payload::End(_) => depth = depth.saturating_sub(1),
                _ => {}
            }
        }
        Ok(parts)
    }

    fn add(&mut self, component: &'a [u8], payload: &Payload<'a>) -> Result<(), String> {
        let broken = |error: wasmparser::BinaryReaderError| error.to_string();
        let mut nested = None;
        match payload {
            Payload::ModuleSection { .. } => self.has_modules = true,
            Payload::ComponentSection { unchecked_range, .. } => {
                nested = Some(self.components.len());
                self.components.push(component.get(unchecked_range.start..unchecked_range.end));
            }
            Payload::ComponentInstanceSection(instances) => {
                for instance in instances.clone() {
                    if let ComponentInstance::Instantiate { component_index, .. } = instance.map_err(broken)? {
                        self.made.push((component_index, self.instances));
                    }
                    self.instances += 1;
                }
            }
            Payload::ComponentAliasSection(aliases) => {
                for alias in aliases.clone() {
                    match alias.map_err(broken)? {
                        ComponentAlias::InstanceExport { kind, .. } => self.count(kind),
                        ComponentAlias::Outer { kind: ComponentOuterAliasKind::Component, .. } => {
                            self.components.push(None);
                        }
                        ComponentAlias::Outer { .. } | ComponentAlias::CoreInstanceExport { .. } => {}
                    }
                }
            }
            Payload::ComponentImportSection(imports) => {
                for import in imports.clone() {
                    self.count(import.map_err(broken)?.ty.kind());
                }
            }
            Payload::ComponentExportSection(exports) => {
                for export in exports.clone() {
                    self.count(export.map_err(broken)?.kind);
                }
            }
            _ => {}
        }
        if let Some((id, range)) = payload.as_section() {
            let data = component.get(range.start..range.end).unwrap_or_default();
            self.sections.push((id, data, nested));
        }
        Ok(())
    }

    fn count(&mut self, kind: ComponentExternalKind) {
        match kind {
            ComponentExternalKind::Instance => self.instances += 1,
            ComponentExternalKind::Component => self.components.push(None),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use wasm_encoder::{ComponentInstanceSection, MemorySection, MemoryType, Module, ModuleSection};
    use wasmparser::{Validator, WasmFeatures};

    use super::*;

    /// A component with a module in it.
    fn leaf() -> Vec<u8> {
        let mut memories = MemorySection::new();
        memories.memory(MemoryType { minimum: 1, maximum: None, memory64: false, shared: false, page_size_log2: None });
        let mut module = Module::new();
        module.section(&memories);
        let mut component = Component::new();
        component.section(&ModuleSection(&module));
        component.finish()
    }

    /// A component around others, each instantiated `times`.
    fn around(inside: &[Vec<u8>], times: u32) -> Vec<u8> {
        let mut component = Component::new();
        let mut instances = ComponentInstanceSection::new();
        for (index, nested) in inside.iter().enumerate() {
            component.section(&RawSection { id: ComponentSectionId::Component.into(), data: nested });
            for _ in 0..times {
                instances.instantiate(index as u32, std::iter::empty::<(&str, ComponentExportKind, u32)>());
            }
        }
        component.section(&instances);
        component.finish()
    }

    /// A leaf that exports an (empty) instance under the snapshotter's name.
    fn exporting(leaf: &[u8]) -> Vec<u8> {
        let mut instances = ComponentInstanceSection::new();
        instances.export_items(std::iter::empty::<(&str, ComponentExportKind, u32)>());
        let mut exports = ComponentExportSection::new();
        exports.export(ACCESS, ComponentExportKind::Instance, 0, None);
        let mut tail = Component::new();
        tail.section(&instances).section(&exports);
        [leaf, &tail.finish()[8..]].concat()
    }

    #[test]
    fn nested_components_round_trip() {
        let nest = around(&[around(&[leaf()], 1), Component::new().finish(), leaf()], 1);
        let tree = Tree::read(&nest).unwrap();
        let leaves = tree.leaves();
        assert_eq!(leaves.len(), 2);
        let same: Vec<_> = leaves.iter().map(|leaf| leaf.component.to_vec()).collect();
        assert_eq!(same, [leaf(), leaf()]);
        assert_eq!(tree.rebuild(&same), nest);

        let exporting: Vec<_> = same.iter().map(|leaf| exporting(leaf)).collect();
        let instrumented = tree.instrumented(&exporting);
        Validator::new_with_features(WasmFeatures::all()).validate_all(&instrumented).unwrap();
        let parts = Parts::of(&instrumented).unwrap();
        assert_eq!(parts.instances, 3 + 2 + 2, "three inside, two taken out of them, two passed out");
        assert!(leaves.iter().all(|leaf| is_passed_out(&leaf.access)));
    }

    #[test]
    fn keeps_components_without_nested_ones() {
        let leaf = leaf();
        let tree = Tree::read(&leaf).unwrap();
        assert_eq!(tree.leaves()[0].access, ACCESS);
        assert_eq!(tree.rebuild(std::slice::from_ref(&leaf)), leaf);
    }

    #[test]
    fn rejects_unsupported_component_structure() {
        let why = |component: &[u8]| Tree::read(component).err().unwrap();
        assert!(why(&around(&[leaf()], 2)).contains("exactly once"));
        let deep = (0..10).fold(leaf(), |inside, _| around(&[inside], 1));
        assert!(why(&deep).contains("too many"));
        let many = |count| around(&vec![leaf(); count], 1);
        assert_eq!(Tree::read(&many(LEAVES)).unwrap().leaves().len(), LEAVES);
        assert!(why(&many(LEAVES + 1)).contains("too many"));
    }
}
