//! The native code of components, as gpux keeps it: compressed.

use std::io::{self, BufRead as _, Write};
use std::path::PathBuf;

use lz4_flex::frame::{BlockSize, FrameDecoder, FrameEncoder, FrameInfo};
use wasmtime::Engine;
use wasmtime::component::Component;

use super::error::SandboxError;
use super::log::sanitize;

/// The native code of one component: compiled by this process or its child, or read from the cache under gpux's
/// seal. It is executed without further checks.
#[derive(Clone, Debug)]
pub(super) struct NativeCode(Vec<u8>);

impl NativeCode {
    /// Compiles a component (no core module).
    pub(super) fn compile(engine: &Engine, component: &[u8]) -> Result<Self, SandboxError> {
        let code = engine.precompile_component(component).map_err(|error| compile_error(&error))?;
        let info = FrameInfo::new().block_size(BlockSize::Max256KB);
        let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
        let compressed = encoder.write_all(&code).map_err(Into::into).and_then(|()| encoder.finish());
        compressed.map(Self).map_err(|error| SandboxError::Compile(error.to_string()))
    }

    /// As [`NativeCode::as_bytes`] gave it.
    pub(super) const fn from_bytes(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The component, whose pages lie in a file without a name in the first of `folders` that takes it.
    pub(super) fn load(&self, engine: &Engine, folders: &[PathBuf]) -> Result<Component, SandboxError> {
        gpux_native_code::load(engine, folders, |into| self.write(into)).map_err(|error| compile_error(&error))
    }

    fn write(&self, into: &mut dyn Write) -> io::Result<()> {
        let mut code = FrameDecoder::new(self.0.as_slice());
        loop {
            let block = code.fill_buf()?;
            let length = block.len();
            if length == 0 {
                return Ok(());
            }
            into.write_all(block)?;
            code.consume(length);
        }
    }
}

fn compile_error(error: &wasmtime::Error) -> SandboxError {
    SandboxError::Compile(sanitize(&format!("{error:#}"), 2000))
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: &[u8] = b"\0asm\x0d\0\x01\0";

    #[test]
    fn rejects_truncated_native_code() {
        let (engine, folders) = (Engine::default(), [std::env::temp_dir()]);
        let code = NativeCode::compile(&engine, EMPTY).unwrap();
        NativeCode::from_bytes(code.as_bytes().to_vec()).load(&engine, &folders).unwrap();
        let cut_off = NativeCode::from_bytes(code.as_bytes()[..code.as_bytes().len() / 2].to_vec());
        assert!(cut_off.load(&engine, &folders).is_err());
    }

    #[test]
    fn compresses_zeros_in_the_cache() {
        let engine = Engine::default();
        let code = NativeCode::compile(&engine, EMPTY).unwrap();
        let mut whole = Vec::new();
        code.write(&mut whole).unwrap();
        assert_eq!(whole, engine.precompile_component(EMPTY).unwrap());
        assert!(code.as_bytes().len() < whole.len() / 2, "{} of {}", code.as_bytes().len(), whole.len());
    }
}
