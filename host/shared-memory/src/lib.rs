//! Memory that two processes map.
//!
//! The other process may write at any time, and may be hostile. So this crate never makes a reference to bytes of the
//! memory: it copies them in and out, and hands out references to atomics only. Every access is checked against the
//! size, which nobody can change (the file is sealed).
//!
//! Linux only, for its sealed files (`memfd_create`, `F_SEAL_SHRINK`) and futexes between processes.

#![cfg(target_os = "linux")]
#![allow(unsafe_code, reason = "maps memory; each use is bounds-checked beside it")]

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use rustix::thread::futex;

/// Memory that two processes map.
#[derive(Debug)]
pub struct SharedMemory {
    base: NonNull<u8>,
    len: usize,
    file: OwnedFd,
}

// SAFETY: the memory is accessed by copies and atomics alone.
unsafe impl Send for SharedMemory {}
// SAFETY: as above; two threads that copy to the same bytes mix their values, as two processes may.
unsafe impl Sync for SharedMemory {}

/// The access would lie outside the memory, or an atomic is not aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfBounds;

impl std::fmt::Display for OutOfBounds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("outside the shared memory")
    }
}

impl std::error::Error for OutOfBounds {}

impl From<OutOfBounds> for io::Error {
    fn from(error: OutOfBounds) -> Self {
        Self::new(io::ErrorKind::InvalidData, error)
    }
}

/// What the file must be sealed against: truncating it under the other process would end that by SIGBUS.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

impl SharedMemory {
    /// Memory of `len` bytes, all zero. Only pages that are written take memory.
    pub fn create(len: usize) -> io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("gpux", flags)?;
        rustix::fs::ftruncate(&file, len as u64)?;
        rustix::fs::fcntl_add_seals(&file, SEALS)?;
        Self::open(file)
    }

    /// The memory that another process created.
    pub fn open(file: OwnedFd) -> io::Result<Self> {
        if !rustix::fs::fcntl_get_seals(&file)?.contains(SEALS) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the file of shared memory is not sealed"));
        }
        let size = rustix::fs::fstat(&file)?.st_size;
        let len = usize::try_from(size).map_err(|_| Errno::FBIG)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the system chooses. The file cannot shrink below it.
        let base = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), len, access, MapFlags::SHARED | MapFlags::NORESERVE, &file, 0)?
        };
        // SAFETY: advice about the new mapping. A core dump would otherwise allocate every page of it; without the
        // advice it still works.
        let _ = unsafe { rustix::mm::madvise(base, len, Advice::LinuxDontDump) };
        let base = NonNull::new(base.cast()).ok_or(Errno::INVAL)?;
        Ok(Self { base, len, file })
    }

    /// Its size, in bytes.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes of its pages that are in use, by any process, mapped or not.
    pub fn used_bytes(&self) -> io::Result<u64> {
        Ok(rustix::fs::fstat(&self.file)?.st_blocks.cast_unsigned().saturating_mul(512))
    }

    /// The address of `len` bytes at `offset`.
    fn place(&self, offset: usize, len: usize) -> Result<*mut u8, OutOfBounds> {
        let is_within = offset.checked_add(len).is_some_and(|end| end <= self.len);
        // SAFETY: `offset` is within the mapping, or at its end if `len` is 0.
        if is_within { Ok(unsafe { self.base.as_ptr().add(offset) }) } else { Err(OutOfBounds) }
    }

    /// Copies bytes out.
    pub fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), OutOfBounds> {
        let from = self.place(offset, into.len())?;
        // SAFETY: both are valid for the length; `into` is exclusive and lies outside the mapping. If the other process
        // writes meanwhile, the bytes are any mixture, which is what callers must expect of bytes from it.
        unsafe { std::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) };
        Ok(())
    }

    /// Copies bytes in.
    pub fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), OutOfBounds> {
        let to = self.place(offset, bytes.len())?;
        // SAFETY: as in `read`.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        Ok(())
    }

    fn atomic<T>(&self, offset: usize) -> Result<&T, OutOfBounds> {
        let place = self.place(offset, size_of::<T>())?.cast::<T>();
        // SAFETY: within the mapping, which lives as long as `self`, and aligned. The callers' types are atomics, which
        // others may change.
        if place.is_aligned() { Ok(unsafe { &*place }) } else { Err(OutOfBounds) }
    }

    /// Four bytes, as an atomic.
    pub fn word(&self, offset: usize) -> Result<&AtomicU32, OutOfBounds> {
        self.atomic(offset)
    }

    /// Eight bytes, as an atomic.
    pub fn long(&self, offset: usize) -> Result<&AtomicU64, OutOfBounds> {
        self.atomic(offset)
    }

    /// One byte, as an atomic flag. Only for memory whose other process is trusted: any byte but 0 and 1 is undefined
    /// behaviour.
    pub fn flag(&self, offset: usize) -> Result<&AtomicBool, OutOfBounds> {
        self.atomic(offset)
    }

    /// Gives the pages of these bytes back to the system; they read as zeros then.
    pub fn release(&self, offset: usize, len: usize) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(rustix::fs::fallocate(&self.file, flags, offset as u64, len as u64)?)
    }
}

impl AsFd for SharedMemory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping of `open`, which nothing refers to any more. A failure would leave it mapped.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// Blocks while the word has this value, at most for `timeout`. May return early.
pub fn wait(word: &AtomicU32, value: u32, timeout: Option<Duration>) {
    if word.load(Ordering::Acquire) != value {
        return;
    }
    let timeout = timeout.and_then(|timeout| timeout.try_into().ok());
    // Interrupted, changed or timed out: the caller looks again.
    let _ = futex::wait(word, futex::Flags::empty(), value, timeout.as_ref());
}

/// Wakes up to `count` threads, of any process, that wait on the word.
pub fn wake(word: &AtomicU32, count: u32) {
    let _ = futex::wake(word, futex::Flags::empty(), count);
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn two_mappings_share_bytes_and_words() {
        let first = SharedMemory::create(1 << 20).unwrap();
        let second = SharedMemory::open(first.as_fd().try_clone_to_owned().unwrap()).unwrap();
        first.write(100, b"hello").unwrap();
        let mut read = [0; 5];
        second.read(100, &mut read).unwrap();
        assert_eq!(&read, b"hello");
        second.word(8).unwrap().store(7, Ordering::Release);
        assert_eq!(first.word(8).unwrap().load(Ordering::Acquire), 7);
        assert!((1..1 << 20).contains(&first.used_bytes().unwrap()));
        rustix::fs::fallocate(&second, FallocateFlags::empty(), 0, 1 << 20).unwrap();
        assert_eq!(first.used_bytes().unwrap(), 1 << 20, "also of what was never mapped");
        first.release(0, 1 << 20).unwrap();
        assert_eq!(second.word(8).unwrap().load(Ordering::Acquire), 0);
    }

    #[test]
    fn refuses_what_lies_outside_or_between() {
        let memory = SharedMemory::create(4096).unwrap();
        let mut bytes = [0; 8];
        for offset in [4089, 4096, usize::MAX, usize::MAX - 4] {
            assert_eq!(memory.read(offset, &mut bytes), Err(OutOfBounds), "{offset}");
            assert_eq!(memory.write(offset, &bytes), Err(OutOfBounds), "{offset}");
            assert!(memory.long(offset).is_err(), "{offset}");
        }
        assert!(memory.word(4092).is_ok() && memory.word(4093).is_err() && memory.word(2).is_err());
        assert!(memory.read(4096, &mut []).is_ok());
    }

    #[test]
    fn the_size_is_sealed() {
        let memory = SharedMemory::create(4096).unwrap();
        assert!(rustix::fs::ftruncate(&memory, 0).is_err() && rustix::fs::ftruncate(&memory, 1 << 20).is_err());
        let plain = rustix::fs::memfd_create("plain", MemfdFlags::ALLOW_SEALING).unwrap();
        assert!(SharedMemory::open(plain).is_err());
    }

    #[test]
    fn waiting_ends_by_a_wake_or_in_time() {
        let memory = SharedMemory::create(4096).unwrap();
        let word = memory.word(0).unwrap();
        wait(word, 1, None);
        wait(word, 0, Some(Duration::from_millis(1)));
        std::thread::scope(|scope| {
            let waiting = std::thread::Builder::new().spawn_scoped(scope, || {
                while word.load(Ordering::Acquire) == 0 {
                    wait(word, 0, None);
                }
            });
            word.store(1, Ordering::Release);
            wake(word, 1);
            waiting.unwrap().join().unwrap();
        });
    }
}
