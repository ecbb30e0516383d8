//! A part of a file: an entry of an archive, or a whole file.

use std::fs::File;
use std::io::{self, Read, Seek as _, SeekFrom, Take};

/// Bytes of a file, from one place on.
#[derive(Debug)]
pub(crate) struct FileSection {
    file: File,
    start: u64,
    pub(crate) size: u64,
}

impl FileSection {
    pub(crate) const fn new(file: File, start: u64, size: u64) -> Self {
        Self { file, start, size }
    }

    pub(crate) fn whole(file: File) -> io::Result<Self> {
        let size = file.metadata()?.len();
        Ok(Self::new(file, 0, size))
    }

    /// Its bytes from `offset` on, at most `size` of them.
    pub(crate) fn reader(&self, offset: u64, size: u64) -> io::Result<Take<&File>> {
        let mut file = &self.file;
        file.seek(SeekFrom::Start(self.start + offset))?;
        Ok(file.take(size.min(self.size.saturating_sub(offset))))
    }

    pub(crate) fn bytes(&self, offset: u64, size: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.reader(offset, size)?.read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}
