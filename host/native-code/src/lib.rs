//! Loads the native code of components.
//!
//! wasmtime maps the file that it loads code from, so the code and the memory that instances begin with are pages of
//! that file: the system shares them between instances and can take them back. From bytes in memory, wasmtime makes
//! two copies that nobody can take back.

#![allow(unsafe_code, reason = "wasmtime cannot check native code; see `load`")]

use std::fs::File;
use std::io::{self, Seek as _, SeekFrom, Write};
use std::path::Path;

use wasmtime::component::Component;
use wasmtime::{Engine, Result};

/// Bytes that are compared with zeros at a time.
const BLOCK: usize = 64 << 10;

/// Loads a component from native code that `write` writes: whole, as `Engine::precompile_component` gave it.
///
/// The code is run as it is. The caller answers for its origin: it compiled the code itself, or the code carries a
/// seal of its own that nobody else can make.
///
/// The code lies in a file in the first of `folders` that takes it, or in memory if none does. On other systems than
/// Linux the file has a name while it is loaded, so nobody else may write to the folders. `write` is called once
/// for each attempt.
pub fn load<P: AsRef<Path>>(
    engine: &Engine,
    folders: &[P],
    write: impl Fn(&mut dyn Write) -> io::Result<()>,
) -> Result<Component> {
    // Windows removes no file that is mapped.
    let folders = if cfg!(unix) { folders } else { &[] };
    let in_file = folders.iter().find_map(|folder| load_file(engine, folder.as_ref(), &write).ok());
    if let Some(component) = in_file {
        return Ok(component);
    }
    let mut code = Vec::new();
    write(&mut code)?;
    // SAFETY: `write` gives what wasmtime's compiler made (see above). wasmtime itself refuses the code of another
    // version of it, of other settings and of another processor.
    unsafe { Component::deserialize(engine, code) }
}

/// The same from a file in `folder` that nobody else can open.
fn load_file(engine: &Engine, folder: &Path, write: &impl Fn(&mut dyn Write) -> io::Result<()>) -> Result<Component> {
    let fill = |file| {
        let mut sparse = SparseFile(file);
        write(&mut sparse)?;
        sparse.finish()
    };
    #[cfg(target_os = "linux")]
    let (file, path) = {
        use std::os::fd::AsRawFd as _;
        use std::os::unix::fs::OpenOptionsExt as _;

        use rustix::fs::OFlags;
        // A file that never has a name, and cannot be given one.
        let flags = OFlags::TMPFILE | OFlags::EXCL;
        let mut options = File::options();
        options.read(true).write(true).mode(0o600).custom_flags(flags.bits().cast_signed());
        let file = fill(options.open(folder)?)?;
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        (file, path)
    };
    #[cfg(not(target_os = "linux"))]
    let (folder, path) = {
        // Only its owner may enter this folder, and it goes where the system removes files in use.
        let folder = tempfile::tempdir_in(folder)?;
        let path = folder.path().join("code");
        fill(File::create_new(&path)?)?;
        (folder, path)
    };
    // SAFETY: as in `load`. Nobody changes the file while it is mapped: no other process can name it, and the only
    // handle for writing is closed here.
    let component = unsafe { Component::deserialize_file(engine, path) };
    #[cfg(target_os = "linux")]
    drop(file);
    #[cfg(not(target_os = "linux"))]
    drop(folder);
    component
}

/// A file that takes no room for zeros.
struct SparseFile(File);

impl SparseFile {
    /// The file at its whole length.
    fn finish(mut self) -> io::Result<File> {
        let length = self.0.stream_position()?;
        self.0.set_len(length)?;
        Ok(self.0)
    }
}

impl Write for SparseFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        static ZEROS: [u8; BLOCK] = [0; BLOCK];
        let block = &bytes[..bytes.len().min(BLOCK)];
        if *block == ZEROS[..block.len()] {
            self.0.seek(SeekFrom::Current(block.len() as i64))?;
            return Ok(block.len());
        }
        self.0.write(block)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    const EMPTY: &[u8] = b"\0asm\x0d\0\x01\0";

    #[test]
    fn loads_from_a_file_that_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let engine = Engine::default();
        let code = engine.precompile_component(EMPTY).unwrap();
        let component = load_file(&engine, folder.path(), &|file| file.write_all(&code)).unwrap();
        drop(component);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn loads_from_memory_where_no_folder_takes_a_file() {
        let engine = Engine::default();
        let code = engine.precompile_component(EMPTY).unwrap();
        let write = |file: &mut dyn Write| file.write_all(&code);
        assert!(load_file(&engine, Path::new("/nowhere/at/all"), &write).is_err());
        load(&engine, &["/nowhere/at/all"], write).unwrap();
    }

    #[test]
    fn rejects_code_of_other_settings_and_garbage() {
        let folder = tempfile::tempdir().unwrap();
        let mut config = wasmtime::Config::new();
        let other = Engine::new(config.epoch_interruption(true)).unwrap();
        let code = other.precompile_component(EMPTY).unwrap();
        for code in [code.as_slice(), b"", b"no code"] {
            assert!(load(&Engine::default(), &[folder.path()], |file| file.write_all(code)).is_err());
        }
    }

    #[test]
    fn zeros_take_no_room() {
        let mut bytes = vec![0; 40 * BLOCK + 7];
        bytes[3 * BLOCK + 1] = 1;
        let mut sparse = SparseFile(tempfile::tempfile().unwrap());
        for part in bytes.chunks(BLOCK + 1000) {
            sparse.write_all(part).unwrap();
        }
        let mut file = sparse.finish().unwrap();
        #[cfg(target_os = "linux")]
        assert!(std::os::unix::fs::MetadataExt::blocks(&file.metadata().unwrap()) * 512 <= 2 * BLOCK as u64);
        file.rewind().unwrap();
        assert_eq!(io::read_to_string(file).unwrap().into_bytes(), bytes);
    }
}
