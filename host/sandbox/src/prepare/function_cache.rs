//! Cache of compiled functions. A component is compiled to be set up and again as its snapshot, and most functions are
//! the same. Where it carries an interpreter, they are the same in the next build and with other options, too.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use wasmtime::{CacheStore, Engine};

use super::compiler_hash;
use gpux_core::files::digest;
use gpux_core::{CacheDir, CacheFolder, authenticated_file};

/// Version of this format; files of other versions are not read.
const FORMAT: u32 = 1;
/// Bytes of function bodies from which a component's functions are kept in a file. Fewer are compiled in the time that
/// the file takes.
const MIN_CODE: usize = 1 << 20;
/// A file is written again where this part of it is new: one part in so many.
const MIN_NEW: usize = 16;
/// Bytes beyond which a file is not written again.
const MAX_SIZE: usize = 256 << 20;

/// SHA-256 of a function in the compiler's own form, with the compiler's settings: cranelift's key.
type Key = [u8; 32];

/// The functions that were compiled, for wasmtime to look up.
#[derive(Debug, Default)]
pub(crate) struct FunctionCache {
    bytes: Vec<u8>,
    /// where in `bytes` each function lies
    known: HashMap<Key, Range<usize>>,
    /// what was compiled since
    added: Mutex<HashMap<Key, Vec<u8>>>,
}

impl FunctionCache {
    /// As [`FunctionCache::to_bytes`] gave it.
    pub(crate) fn from_bytes(bytes: Vec<u8>) -> Self {
        let mut known = HashMap::new();
        let mut rest = bytes.as_slice();
        while let Some((key, after)) = rest.split_first_chunk()
            && let Some((length, after)) = after.split_first_chunk()
            && let Some((_, after)) = after.split_at_checked(u32::from_le_bytes(*length) as usize)
        {
            let end = bytes.len() - after.len();
            known.insert(*key, end - u32::from_le_bytes(*length) as usize..end);
            rest = after;
        }
        Self { bytes, known, added: Mutex::default() }
    }

    /// All functions, if enough of them are new to be worth a file.
    pub(crate) fn to_bytes(&self) -> Option<Vec<u8>> {
        let added = self.added();
        let size: usize = added.values().map(|function| size_of::<Key>() + size_of::<u32>() + function.len()).sum();
        if size <= self.bytes.len() / MIN_NEW || self.bytes.len() + size > MAX_SIZE {
            return None;
        }
        let mut bytes = Vec::with_capacity(self.bytes.len() + size);
        bytes.extend(&self.bytes);
        for (key, function) in &*added {
            let Ok(length) = u32::try_from(function.len()) else { continue };
            bytes.extend(key.iter().chain(&length.to_le_bytes()).chain(function));
        }
        Some(bytes)
    }

    fn added(&self) -> MutexGuard<'_, HashMap<Key, Vec<u8>>> {
        self.added.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CacheStore for FunctionCache {
    fn get(&self, key: &[u8]) -> Option<Cow<'_, [u8]>> {
        let function = self.known.get(key).and_then(|place| self.bytes.get(place.clone()));
        function.map(Cow::Borrowed).or_else(|| self.added().get(key).cloned().map(Cow::Owned))
    }

    fn insert(&self, key: &[u8], function: Vec<u8>) -> bool {
        key.try_into().is_ok_and(|key| self.added().insert(key, function).is_none())
    }
}

/// The file of a component's functions, under gpux's seal. Components share one only where all their function bodies
/// are the same, whatever their data.
pub(crate) struct FunctionFile<'a> {
    cache: &'a CacheDir,
    name: String,
}

impl<'a> FunctionFile<'a> {
    /// `None` for a component whose functions are not worth a file.
    pub(crate) fn of(cache: &'a CacheDir, engine: &Engine, component: &[u8]) -> Option<Self> {
        let code = code_digest(component)?;
        let key = format!("{FORMAT} {} {} {code}", env!("CARGO_PKG_VERSION"), compiler_hash(engine));
        Some(Self { cache, name: format!("{}.functions", digest(key)) })
    }

    pub(crate) fn read(&self) -> Option<Vec<u8>> {
        authenticated_file::read(self.cache, CacheFolder::Steps, &self.name)
    }

    /// A failed write only costs the next compilation some time.
    pub(crate) fn write(&self, functions: &[u8]) {
        let _ = authenticated_file::write(self.cache, CacheFolder::Steps, &self.name, functions);
    }
}

/// SHA-256 of the bodies of a component's functions in any order: componentize-py writes its stubs in a random one.
fn code_digest(component: &[u8]) -> Option<String> {
    if component.len() < MIN_CODE {
        return None;
    }
    let mut size = 0;
    let mut bodies = Vec::new();
    for payload in wasmparser::Parser::new(0).parse_all(component) {
        if let wasmparser::Payload::CodeSectionEntry(body) = payload.ok()? {
            size += body.as_bytes().len();
            bodies.push(digest(body.as_bytes()));
        }
    }
    bodies.sort_unstable();
    (size >= MIN_CODE).then(|| digest(bodies.concat()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;
    use wasm_encoder::{CodeSection, Function, FunctionSection, Instruction, Module, TypeSection};

    use super::super::{PrepareRequest, ProcessorTimer, prepare};
    use super::*;
    use crate::config::ComponentConfig;
    use crate::engine::SandboxEngine;

    /// A module of functions with so many instructions each.
    fn module(functions: &[usize]) -> Vec<u8> {
        let (mut types, mut indices, mut code) = (TypeSection::new(), FunctionSection::new(), CodeSection::new());
        types.ty().function([], []);
        for instructions in functions {
            indices.function(0);
            let mut function = Function::new([]);
            for _ in 1..*instructions {
                function.instruction(&Instruction::Nop);
            }
            code.function(function.instruction(&Instruction::End));
        }
        Module::new().section(&types).section(&indices).section(&code).clone().finish()
    }

    #[test]
    fn components_of_the_same_functions_share_a_file() {
        let (one, other) = (MIN_CODE / 2, MIN_CODE / 2 + 1);
        let digest = code_digest(&module(&[one, other])).unwrap();
        assert_eq!(code_digest(&module(&[other, one])).unwrap(), digest);
        assert_ne!(code_digest(&module(&[other, other])).unwrap(), digest);
        assert_ne!(code_digest(&module(&[one, other, 1])).unwrap(), digest);
        assert_eq!(code_digest(&module(&[one])), None);
        let cut_off = &module(&[one, other])[..MIN_CODE];
        assert_eq!(code_digest(cut_off), None);
    }

    #[test]
    fn a_file_holds_what_was_compiled() {
        let cache = FunctionCache::default();
        let (one, other) = ([1; 32], [2; 32]);
        assert_eq!(cache.to_bytes(), None, "there is nothing new");
        assert!(cache.insert(&one, vec![7; 100]) && cache.insert(&other, Vec::new()));
        assert!(!cache.insert(b"no key", Vec::new()));
        let bytes = cache.to_bytes().unwrap();
        let read = FunctionCache::from_bytes(bytes.clone());
        assert_eq!((read.get(&one).unwrap(), read.get(&other).unwrap()), ([7; 100][..].into(), [][..].into()));
        assert!(read.get(&[3; 32]).is_none());
        assert_eq!(read.to_bytes(), None, "nothing is new");
        read.insert(&[3; 32], vec![8]);
        assert_eq!(FunctionCache::from_bytes(read.to_bytes().unwrap()).known.len(), 3);
        for length in 0..bytes.len() {
            assert!(FunctionCache::from_bytes(bytes[..length].to_vec()).known.len() < 2);
        }
    }

    /// How many functions are new with the second of two, of those of the first.
    fn assert_mostly_known(second: usize, first: usize) {
        // A key depends a little on what the compiler's thread compiled before.
        assert!(second * 2 < first, "{second} of {first}");
    }

    #[test]
    fn compiles_known_functions_only_once() {
        let component = crate::tests::guest("rust/to-floats.wasm");
        let compile = |functions: FunctionCache| {
            let functions = Arc::new(functions);
            let engine = SandboxEngine::for_setup(functions.clone()).unwrap();
            (engine.wasmtime.precompile_component(&component).unwrap(), functions)
        };
        let (code, first) = compile(FunctionCache::default());
        let (same_code, second) = compile(FunctionCache::from_bytes(first.to_bytes().unwrap()));
        assert!(code == same_code);
        assert_mostly_known(second.added().len(), first.added().len());
    }

    #[test]
    fn options_change_no_functions() {
        let bytes = crate::tests::guest("rust/center-ink.wasm");
        let functions = Arc::new(FunctionCache::default());
        let prepared = [0.1, 0.2].map(|margin| {
            let config = ComponentConfig { options: json!({ "margin": margin }), ..ComponentConfig::default() };
            let request = PrepareRequest { bytes: &bytes, config: &config, registry: &Arc::default(), to_run: true };
            let code = prepare(&request, &functions, &ProcessorTimer::default()).unwrap().ready.unwrap().digest;
            (code, functions.added().len())
        });
        let [(one, first), (other, both)] = prepared;
        assert_ne!(one, other);
        assert_mostly_known(both - first, first);
    }
}
