//! Cache of prepared components, by a digest of component, options, limits and grants. Later starts skip the child
//! process.

use serde_json::json;
use wasmtime::Engine;

use super::super::native_code::NativeCode;
use super::{PrepareRequest, PreparedComponent, compiler_hash};
use gpux_core::files::digest;
use gpux_core::{CacheDir, CacheFolder, authenticated_file};

/// Version of this format; entries of other versions are not read.
const FORMAT: u32 = 4;
/// The files of an entry: what came of preparing, and the native code of the component or of its snapshot.
const ANSWER: &str = "json";
const CODE: &str = "code";

/// The place of one prepared component in the cache.
pub(crate) struct SnapshotCache {
    cache: CacheDir,
    /// SHA-256 of everything that decides what comes of preparing
    key: String,
}

impl SnapshotCache {
    /// Where this order's result is kept, if there is a cache; `engine` is what would run it.
    pub(crate) fn at(cache: Option<&CacheDir>, engine: &Engine, request: &PrepareRequest<'_>) -> Option<Self> {
        let cache = cache?.clone();
        let engine = compiler_hash(engine);
        let decides = json!([FORMAT, env!("CARGO_PKG_VERSION"), engine, digest(request.bytes), request.config]);
        Some(Self { cache, key: digest(decides.to_string().as_bytes()) })
    }

    fn name(&self, ending: &str) -> String {
        format!("{}.{ending}", self.key)
    }

    /// Reads a cached preparation without its native code. An entry that is truncated, changed or
    /// not sealed by gpux counts as missing.
    pub(crate) fn read(&self) -> Option<PreparedComponent> {
        serde_json::from_slice(&self.read_file(ANSWER)?).ok()
    }

    /// The native code of what [`read`](Self::read) gave; there is none if it was only described.
    pub(crate) fn code(&self) -> Option<NativeCode> {
        self.read_file(CODE).map(NativeCode::from_bytes)
    }

    fn read_file(&self, ending: &str) -> Option<Vec<u8>> {
        authenticated_file::read(&self.cache, CacheFolder::Steps, &self.name(ending))
    }

    /// Stores a success. A failed write only costs the next start some time.
    pub(crate) fn write(&self, prepared: &PreparedComponent) {
        let Ok(ready) = &prepared.ready else { return };
        let Ok(text) = serde_json::to_vec(prepared) else { return };
        let code = ready.code.as_ref().map(|code| (CODE, code.as_bytes()));
        for (ending, bytes) in code.into_iter().chain([(ANSWER, text.as_slice())]) {
            if authenticated_file::write(&self.cache, CacheFolder::Steps, &self.name(ending), bytes).is_err() {
                return;
            }
        }
    }
}
