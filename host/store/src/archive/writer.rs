//! Writing an archive whose first entries are known last: index and manifest have the digests of the files behind them.

use std::fs::File;
use std::io::{self, Read, Seek as _, SeekFrom, Write as _};

use super::{BLOCK, header};
use crate::copy_hashed::{CopyError, copy_hashed};

/// An archive that is being written.
pub(crate) struct ArchiveWriter<'a> {
    file: &'a mut File,
    at: u64,
}

/// What an entry of this size takes.
pub(crate) const fn entry_size(size: u64) -> u64 {
    BLOCK + size.next_multiple_of(BLOCK)
}

impl<'a> ArchiveWriter<'a> {
    /// Leaves room for first entries of these sizes.
    pub(crate) fn new(file: &'a mut File, first: impl IntoIterator<Item = usize>) -> Self {
        Self { file, at: first.into_iter().map(|size| entry_size(size as u64)).sum() }
    }

    /// Writes a file, and gives its digest and size. The file is an entry once [`Self::name`] has its name.
    pub(crate) fn write(
        &mut self,
        source: impl Read,
        size: u64,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(String, u64), CopyError> {
        let failed = |source| CopyError::Write { source, done: 0 };
        self.file.seek(SeekFrom::Start(self.at + BLOCK)).map_err(failed)?;
        copy_hashed(source, size, self.file, progress)
    }

    /// Makes an entry of the file that was written last.
    pub(crate) fn name(&mut self, name: &str, size: u64) -> io::Result<()> {
        let padding = size.next_multiple_of(BLOCK) - size;
        self.file.seek(SeekFrom::Start(self.at + BLOCK + size))?;
        self.file.write_all(&[0; BLOCK as usize][..padding as usize])?;
        self.file.seek(SeekFrom::Start(self.at))?;
        self.file.write_all(header::for_file(name, size)?.as_bytes())?;
        self.at += entry_size(size);
        Ok(())
    }

    /// Writes the first entries, for which there is room, and the end.
    pub(crate) fn finish(self, first: &[(&str, &[u8])]) -> io::Result<()> {
        let end = [0; 2 * BLOCK as usize];
        self.file.seek(SeekFrom::Start(self.at))?;
        self.file.write_all(&end)?;
        self.file.set_len(self.at + end.len() as u64)?;
        self.file.seek(SeekFrom::Start(0))?;
        for (name, bytes) in first {
            let padding = bytes.len().next_multiple_of(BLOCK as usize) - bytes.len();
            self.file.write_all(header::for_file(name, bytes.len() as u64)?.as_bytes())?;
            self.file.write_all(bytes)?;
            self.file.write_all(&end[..padding])?;
        }
        Ok(())
    }
}
