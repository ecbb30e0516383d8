//! Valid steps with hostile sections appended, which no toolchain writes.

use std::time::Duration;

use gpux_core::{Context, Step as _};
use gpux_hostile_support::attack::limits;
use gpux_hostile_support::root;
use gpux_sandbox::{ComponentConfig, Limits, SandboxError, componentize};
use wasm_encoder::{
    Component, ComponentExportKind, ComponentExportSection, ComponentImportSection, ComponentInstanceSection,
    ComponentTypeRef, ComponentTypeSection, ConstExpr, GlobalSection, GlobalType, InstanceSection, InstanceType,
    Module, ModuleArg, ModuleSection, ValType,
};
use wasmparser::{ComponentExternalKind, Parser, Payload};

use crate::{REGISTRY, SANDBOX, alone};

/// A step by hand, as a component.
fn honest() -> Vec<u8> {
    let module = std::fs::read(root().join("guest-examples/hostile/wat/memory-at-maximum.wasm")).unwrap();
    componentize(&module).unwrap().into_owned()
}

/// The sections of `tail` behind an honest step.
fn append(tail: &Component) -> Vec<u8> {
    let mut bytes = honest();
    bytes.extend(&tail.as_slice()[8..]);
    bytes
}

/// How many core modules, instances and types an honest step has by itself.
fn counts() -> [u32; 3] {
    let (mut modules, mut instances, mut types, mut depth) = (0, 0, 0, 0);
    for payload in Parser::new(0).parse_all(&honest()) {
        let payload = payload.unwrap();
        match &payload {
            Payload::Version { .. } => depth += 1,
            Payload::End(_) => depth -= 1,
            _ if depth != 1 => {}
            Payload::ModuleSection { .. } => modules += 1,
            Payload::ComponentInstanceSection(section) => instances += section.count(),
            Payload::ComponentTypeSection(section) => types += section.count(),
            Payload::ComponentImportSection(section) => {
                for import in section.clone() {
                    match import.unwrap().ty {
                        wasmparser::ComponentTypeRef::Instance(_) => instances += 1,
                        wasmparser::ComponentTypeRef::Type(_) => types += 1,
                        _ => {}
                    }
                }
            }
            Payload::ComponentExportSection(section) => {
                for export in section.clone() {
                    match export.unwrap().kind {
                        ComponentExternalKind::Instance => instances += 1,
                        ComponentExternalKind::Type => types += 1,
                        _ => {}
                    }
                }
            }
            Payload::ComponentAliasSection(section) => {
                for alias in section.clone() {
                    use wasmparser::{ComponentAlias, ComponentOuterAliasKind};
                    match alias.unwrap() {
                        ComponentAlias::InstanceExport { kind: ComponentExternalKind::Type, .. }
                        | ComponentAlias::Outer { kind: ComponentOuterAliasKind::Type, .. } => types += 1,
                        ComponentAlias::InstanceExport { kind: ComponentExternalKind::Instance, .. } => instances += 1,
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    [modules, instances, types]
}

fn run(component: &[u8]) -> Result<String, SandboxError> {
    // These are rejected independent of time, also on a busy machine.
    let limits = Limits { setup_time: Duration::from_secs(20), ..limits() };
    let config = ComponentConfig { limits, ..ComponentConfig::default() };
    let step = SANDBOX.load(component, config, &REGISTRY)?;
    Ok(format!("{:?}", step.run(vec![Some("".into())], &mut Context::default())))
}

#[test]
fn ignores_exports_named_like_the_snapshotters() {
    let _alone = alone();
    let mut instances = ComponentInstanceSection::new();
    instances.export_items([("nothing", ComponentExportKind::Func, 0); 0]);
    let mut exports = ComponentExportSection::new();
    exports.export("wasmtime:wizer/access", ComponentExportKind::Instance, counts()[1], None);
    let mut tail = Component::new();
    tail.section(&instances).section(&exports);
    let given = run(&append(&tail)).unwrap();
    assert_eq!(given, r#"Ok([Text("served")])"#);
}

#[test]
fn rejects_sockets_by_name() {
    let _alone = alone();
    let mut types = ComponentTypeSection::new();
    types.instance(&InstanceType::new());
    let mut imports = ComponentImportSection::new();
    imports.import("wasi:sockets/tcp@0.2.0", ComponentTypeRef::Instance(counts()[2]));
    let mut tail = Component::new();
    tail.section(&types).section(&imports);
    let error = run(&append(&tail)).unwrap_err().to_string();
    assert!(error.starts_with("this component imports `wasi:sockets/tcp@0.2.0`, which "), "{error}");
}

#[test]
fn rejects_instances_that_take_megabytes_of_the_host() {
    let _alone = alone();
    // What an instance keeps of itself lies outside its memory: here 16 bytes for each global.
    let mut globals = GlobalSection::new();
    for number in 0..60_000 {
        let kind = GlobalType { val_type: ValType::I64, mutable: true, shared: false };
        globals.global(kind, &ConstExpr::i64_const(number));
    }
    let mut module = Module::new();
    module.section(&globals);
    let mut instances = InstanceSection::new();
    for _ in 0..90 {
        instances.instantiate::<[(&str, ModuleArg); 0], &str>(counts()[0], []);
    }
    let mut tail = Component::new();
    tail.section(&ModuleSection(&module)).section(&instances);
    let error = run(&append(&tail)).unwrap_err().to_string();
    assert!(error.contains("requires 86416356 bytes"), "{error}");
}
