//! The native code of components, between wasmtime and gpux's cache.
//!
//! wasmtime's own cache runs whatever lies in its folder. So that folder is one of this process alone, and what lies
//! there longer is sealed ([`gpux_core::seal`]): code passes through it on its way from wasmtime, and to it.

use std::fs::{self, DirEntry};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use wasmtime::{Cache, CacheConfig, Engine};

use super::component::Compiled;
use super::error::SandboxError;
use gpux_core::catch_panic::catch_panic;

/// Where wasmtime keeps code in its folder, a folder for each compiler.
const MODULES: &str = "modules";

/// The native code of one component, as wasmtime keeps it: under which name, and the code, compressed.
#[derive(Clone, Debug)]
pub(super) struct NativeCode(Vec<u8>);

impl NativeCode {
    /// As [`NativeCode::as_bytes`] gave it.
    pub(super) fn from_bytes(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    fn new(name: &str, code: Vec<u8>) -> Self {
        Self([name.as_bytes(), b"\n", &code].concat())
    }

    /// The code that wasmtime left in `folder`, which is then gone; `None` if there is none, or more than one.
    pub(super) fn take(folder: &Path) -> Option<Self> {
        let modules = folder.join(MODULES);
        let mut found = Vec::new();
        for compiler in entries(&modules) {
            for file in entries(&compiler.path()) {
                // What has an ending is wasmtime's book-keeping.
                if let (Some(compiler), Some(name)) = (compiler.file_name().to_str(), file.file_name().to_str())
                    && !name.contains('.')
                {
                    found.push((format!("{compiler}/{name}"), file.path()));
                }
            }
        }
        let code = match found.as_slice() {
            [(name, path)] => fs::read(path).ok().map(|code| Self::new(name, code)),
            _ => None,
        };
        // What stays takes room, no more.
        let _ = fs::remove_dir_all(modules);
        code
    }

    /// Puts it where wasmtime finds it.
    fn put(&self, folder: &Path) -> io::Result<()> {
        let Some((name, code)) = self.parts() else { return Ok(()) };
        let path = folder.join(MODULES).join(name);
        fs::create_dir_all(path.parent().unwrap_or(folder))?;
        fs::write(path, code)
    }

    fn parts(&self) -> Option<(&str, &[u8])> {
        let end = self.0.iter().position(|byte| *byte == b'\n')?;
        Some((std::str::from_utf8(&self.0[..end]).ok()?, &self.0[end + 1..]))
    }
}

/// The folder in which wasmtime finds and leaves native code: of this process alone, and there only while a component
/// is loaded.
pub(super) struct CodeFolder {
    path: PathBuf,
    cache: Cache,
    /// whoever loads a component; one at a time
    turn: Mutex<()>,
}

impl CodeFolder {
    /// A folder at this absolute path, which nobody else knows.
    pub(super) fn at(path: &Path) -> Result<Self, SandboxError> {
        let mut config = CacheConfig::new();
        config.with_directory(path);
        // It starts a thread, and panics where there can be none.
        let cache = catch_panic(|| Cache::new(config)).map_err(SandboxError::Engine)?;
        let cache = cache.map_err(|error| SandboxError::Cache(format!("{error:#}")))?;
        Ok(Self { path: cache.directory().clone(), cache, turn: Mutex::default() })
    }

    /// wasmtime's cache in it.
    pub(super) fn cache(&self) -> Cache {
        self.cache.clone()
    }

    /// Loads a component from its native code, or compiles it and gives the code that it came to.
    pub(super) fn load(
        &self,
        engine: &Engine,
        component: &[u8],
        code: Option<&NativeCode>,
    ) -> Result<(Compiled, Option<NativeCode>), SandboxError> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let put = || {
            make(&self.path)?;
            code.map_or(Ok(()), |code| code.put(&self.path))
        };
        put().map_err(|error| SandboxError::Cache(format!("{}: {error}", self.path.display())))?;
        let compiled = Compiled::new(engine, component);
        // What was given was read once already.
        let made = if code.is_some() { None } else { NativeCode::take(&self.path) };
        // wasmtime's own thread may still be at its book-keeping.
        let _ = fs::remove_dir_all(&self.path);
        Ok((compiled?, made))
    }
}

/// Makes a folder that only its owner may enter.
fn make(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder).or_else(|error| if folder.is_dir() { Ok(()) } else { Err(error) })
}

fn entries(folder: &Path) -> Vec<DirEntry> {
    fs::read_dir(folder).map(|entries| entries.flatten().collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::engine::Machine;
    use super::super::limits::Limits;
    use super::*;

    #[test]
    fn code_is_loaded_where_there_is_some() {
        let component = b"\0asm\x0d\0\x01\0";
        let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let [first, second] = [0, 1].map(|which| {
            let code = CodeFolder::at(folders[which].path()).unwrap();
            (code.cache(), Machine::new(Some(code), &Limits::default(), 1).unwrap())
        });
        let (_, code) = first.1.load(component, None).unwrap();
        let code = code.unwrap();
        assert_eq!((first.0.cache_hits(), first.0.cache_misses()), (0, 1));
        assert!(NativeCode::take(folders[0].path()).is_none(), "no code stays");
        let kept = NativeCode::from_bytes(code.as_bytes().to_vec());
        second.1.load(component, Some(&kept)).unwrap();
        assert!(NativeCode::take(folders[1].path()).is_none(), "no code stays");
        assert_eq!((second.0.cache_hits(), second.0.cache_misses()), (1, 0));
        // What is no code is compiled.
        let (name, _) = code.parts().unwrap();
        let damaged = NativeCode::new(name, b"no code".to_vec());
        second.1.load(component, Some(&damaged)).unwrap();
        assert_eq!((second.0.cache_hits(), second.0.cache_misses()), (1, 1));
    }
}
