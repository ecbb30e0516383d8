//! Bytes that are no step: each its own clear error.

use super::*;

fn refuse(bytes: &[u8]) -> String {
    SANDBOX.load(bytes, ComponentConfig::default(), &Arc::default()).err().unwrap().to_string()
}

/// An empty component, with `tail` behind its header.
fn component(tail: &[u8]) -> Vec<u8> {
    [b"\0asm\x0d\0\x01\0", tail].concat()
}

/// A component that imports an instance named `import`, with nothing in it.
fn importing(import: &str) -> Vec<u8> {
    // type section: one instance type without items; import section: one instance of it.
    let name = import.as_bytes();
    let mut section = vec![1, 0, name.len() as u8];
    section.extend(name);
    section.extend([5, 0]);
    let mut tail = vec![7, 3, 1, 0x42, 0, 10, section.len() as u8];
    tail.extend(section);
    component(&tail)
}

#[test]
fn rejects_files_that_are_not_webassembly() {
    assert_eq!(refuse(b""), "this is not WebAssembly: the file is empty");
    assert_eq!(refuse(b"\x7fELF\x02\x01\x01\0"), "this is not WebAssembly: a component begins with `\\0asm`");
    assert!(refuse(b"\0asm").contains("header cut off"));
}

#[test]
fn rejects_damaged_components() {
    let mut bytes = guest("rust/center-ink.wasm");
    bytes.truncate(bytes.len() / 2);
    assert!(refuse(&bytes).starts_with("this component is cut off"), "{}", refuse(&bytes));
    let module = &HOSTILE[..HOSTILE.len() / 2];
    assert!(refuse(module).starts_with("this component is cut off"), "{}", refuse(module));
    let mut bytes = guest("rust/center-ink.wasm");
    let middle = bytes.len() / 2;
    bytes[middle..middle + 64].fill(0xff);
    assert!(refuse(&bytes).starts_with("this component is damaged"), "{}", refuse(&bytes));
}

#[test]
fn rejects_oversized_components() {
    let config = ComponentConfig {
        limits: Limits { component_size: 10 << 10, ..Limits::default() },
        ..ComponentConfig::default()
    };
    let error = SANDBOX.load(&HOSTILE, config, &Arc::default()).err().unwrap().to_string();
    assert!(error.starts_with("it reached its limit of 10 KiB (component_size)"), "{error}");
}

#[test]
fn rejects_components_of_another_world() {
    let error = refuse(&component(&[]));
    assert!(error.contains("it does not export `gpux:pipeline/step@0.1.1`; it exports none"), "{error}");
}

#[test]
fn rejects_core_modules_without_a_contract() {
    let error = refuse(b"\0asm\x01\0\0\0");
    assert!(error.contains("exports no function of a step, such as `gpux:pipeline/step@0.1.1#process`"), "{error}");
}

#[test]
fn rejects_core_modules_for_wasi_preview_1() {
    let mut module = b"\0asm\x01\0\0\0\x01\x04\x01\x60\0\0\x02\x23\x01\x16".to_vec();
    module.extend(b"wasi_snapshot_preview1\x08fd_write\0\0");
    let error = refuse(&module);
    assert!(
        error.starts_with("this module is built for WASI 0.1, which gpux does not offer: it imports `fd_write`; "),
        "{error}"
    );
    assert!(error.contains("`printf`") && error.contains("`gpux_log("), "{error}");
}

#[test]
fn accepts_core_modules_with_a_contract() {
    let load = |bytes: &[u8]| SANDBOX.load(bytes, ComponentConfig::default(), &Arc::default()).unwrap();
    let (module, component) = (load(&HOSTILE), load(&componentize(&HOSTILE).unwrap()));
    assert!(exports_step(&componentize(&HOSTILE).unwrap()) && !exports_step(&HOSTILE));
    for (step, kind) in [(&module, "core-module"), (&component, "component")] {
        assert_eq!(run(step, "x"), Ok("visit 1".into()));
        assert_eq!(step.details()["kind"], json!(kind));
    }
    assert_ne!(module.digest(), component.digest());
}

/// A module of a compiler that writes no custom section works as well.
#[test]
fn embeds_the_contract_that_a_core_module_lacks() {
    let mut bare = HOSTILE[..8].to_vec();
    for payload in wasmparser::Parser::new(0).parse_all(&HOSTILE) {
        let payload = payload.unwrap();
        let is_contract = matches!(&payload, wasmparser::Payload::CustomSection(section) if section.name().starts_with("component-type"));
        if let Some((id, range)) = payload.as_section().filter(|_| !is_contract) {
            wasm_encoder::Section::append_to(&wasm_encoder::RawSection { id, data: &HOSTILE[range] }, &mut bare);
        }
    }
    assert!(bare.len() < HOSTILE.len());
    let step = SANDBOX.load(&bare, ComponentConfig::default(), &Arc::default()).unwrap();
    assert_eq!(run(&step, "x"), Ok("visit 1".into()));
}

#[test]
fn reports_unknown_imports() {
    let problem = |import: &str| {
        let info = SANDBOX.inspect(&importing(import), None).unwrap();
        assert_eq!(info.imports, [import]);
        info.problem.unwrap()
    };
    // Without the export, the world is wrong before the imports are.
    assert!(problem("wasi:sockets/tcp@0.2.0").contains("no pipeline step"));
    let compiled = |import: &str| CompiledComponent::new(&SANDBOX.engine().wasmtime, &importing(import)).unwrap();
    let error = |import: &str| compiled(import).linker(&Grants::default()).err().unwrap().to_string();
    assert_eq!(
        error("wasi:sockets/tcp@0.2.0"),
        "this component imports `wasi:sockets/tcp@0.2.0`, which a step never gets: no grant opens the network"
    );
    assert!(error("wasi:http/outgoing-handler@0.2.0").contains("no grant opens the network"));
    assert!(error("wasi:clocks/wall-clock@0.3.0").contains("another version of WASI"));
    assert!(error("wasi:nn/graph@0.2.0").contains("a step never gets"));
    assert!(error("gpux:pipeline/log@0.2.0").contains("another version"));
    assert!(error("gpux:pipeline/telepathy@0.1.0").contains("newer"));
    assert_eq!(
        error("gpux:pipeline/models@0.1.0"),
        "this component imports `gpux:pipeline/models@0.1.0` to run models, which is not granted: its step needs \
         `grant: { models: [NAME] }`"
    );
    assert!(compiled("gpux:pipeline/models@0.1.0").linker(&granted(&["rec"])).is_ok());
}

#[test]
fn rejects_grants_for_unknown_models() {
    let config = ComponentConfig { grants: granted(&["rec"]), ..ComponentConfig::default() };
    let error = SANDBOX.load(&HOSTILE, config, &Arc::default()).err().unwrap().to_string();
    assert_eq!(error, "`grant: { models: [rec] }` names no model of this pipeline; it has none");
}

fn replaced(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let mut bytes = bytes.to_vec();
    let mut at = 0;
    while let Some(found) = bytes[at..].windows(from.len()).position(|window| window == from) {
        bytes[at + found..][..to.len()].copy_from_slice(to);
        at += found + to.len();
    }
    assert!(at > 0, "{} is not there", String::from_utf8_lossy(from));
    bytes
}

#[test]
fn accepts_only_compatible_contract_versions() {
    let of_version = |version: &str| replaced(&guest("rust/center-ink.wasm"), b"@0.1.0", version.as_bytes());
    let later = SANDBOX.load(&of_version("@0.1.9"), ComponentConfig::default(), &Arc::default()).unwrap();
    let ours = SANDBOX.load(&guest("rust/center-ink.wasm"), ComponentConfig::default(), &Arc::default()).unwrap();
    assert_eq!(later.signature(), ours.signature());
    let error = refuse(&of_version("@0.2.0"));
    assert!(error.contains("it does not export `gpux:pipeline/step@0.1.1`"), "{error}");
}

#[test]
fn the_contract_changes_with_its_version_only() {
    let read = |name: &str| {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../wit").join(name);
        std::fs::read_to_string(path).unwrap()
    };
    let (wit, versions) = (read("pipeline.wit"), read("versions.txt"));
    let version = wit.lines().find_map(|line| line.strip_prefix("package gpux:pipeline@")?.strip_suffix(';')).unwrap();
    let recorded = versions.lines().filter_map(|line| line.split_once(' ')).find(|(name, _)| *name == version);
    let digest = gpux_core::files::digest(wit.as_bytes());
    assert_eq!(
        recorded.map(|(_, digest)| digest),
        Some(digest.as_str()),
        "wit/pipeline.wit is not what version {version} was: give it the next version, and a line in wit/versions.txt"
    );
    assert!(super::super::bindings::STEP.ends_with(&format!("@{version}")));
}

#[test]
fn says_that_a_component_is_cut_off() {
    let whole = guest("rust/center-ink.wasm");
    for size in [whole.len() / 2, whole.len() - 1] {
        let error = SANDBOX.inspect(&whole[..size], None).err();
        assert!(matches!(error, Some(SandboxError::Truncated { size: found }) if found == size), "{size}: {error:?}");
    }
    let mut damaged = whole;
    damaged[8] = 0xff;
    let error = SANDBOX.inspect(&damaged, None).err();
    assert!(matches!(error, Some(SandboxError::Compile(_))), "{error:?}");
}
