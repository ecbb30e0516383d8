//! `wasi:filesystem`: the granted folders and nothing beside them.
//!
//! Paths are resolved inside a folder by wasmtime-wasi, links included. Refused here on top of it:
//! special files, which may block for ever; links, which other programs might follow out of the
//! folder. And nothing waits for a disk to have written: see `sync`.

use std::pin::pin;

use wasmtime::component::Resource;
use wasmtime_wasi::filesystem::{Descriptor, WasiFilesystemCtxView};
use wasmtime_wasi::p2::bindings::filesystem::preopens;
use wasmtime_wasi::p2::bindings::filesystem::types::{DescriptorType, ErrorCode, HostDescriptor as Inner};
use wasmtime_wasi::p2::bindings::sync::filesystem::types;
use wasmtime_wasi::p2::{DynInputStream, DynOutputStream, FsError, FsResult};
use wasmtime_wasi::runtime::poll_noop;

use super::super::failure::StopReason;
use super::super::state::State;
#[cfg(unix)]
use super::open::{OpenRequest, open_beneath};
use super::streams::{InputStream, OutputStream, PIECE};
use gpux_core::StepFailure;

/// Bytes that a new file or folder is taken to cost the disk.
const ENTRY: usize = 4 << 10;

/// Bytes of a path: what systems allow.
const PATH: usize = 4096;

type Handle = Resource<Descriptor>;
type View<'a> = WasiFilesystemCtxView<'a>;

impl State {
    /// Runs a call of wasmtime-wasi. Its futures are ready immediately: file operations run on this thread.
    pub(super) fn files<T>(&mut self, call: impl AsyncFnOnce(&mut View<'_>) -> FsResult<T>) -> FsResult<T> {
        self.time_budget.check().map_err(FsError::trap)?;
        let mut view = self.wasi().files();
        let done = poll_noop(pin!(call(&mut view)));
        let waits =
            || FsError::trap(StopReason(StepFailure::Failed("a file operation waits for another thread".to_owned())));
        let done = done.ok_or_else(waits)?;
        self.time_budget.check().map_err(FsError::trap)?;
        done
    }

    pub(super) fn read_file(&mut self, file: Handle, len: u64, at: u64) -> FsResult<(Vec<u8>, bool)> {
        let len = len.min(PIECE as u64);
        self.meter.check_fits(len as usize).map_err(FsError::trap)?;
        self.files(async |view| Inner::read(view, file, len, at).await)
    }

    /// Writes the first bytes of `data`; says how many.
    pub(super) fn write_file(&mut self, file: Handle, data: &[u8], at: u64) -> FsResult<usize> {
        let piece = data.get(..PIECE).unwrap_or(data).to_vec();
        self.write_to_disk(piece.len()).map_err(FsError::trap)?;
        let written = self.files(async |view| Inner::write(view, file, piece, at).await)?;
        Ok(usize::try_from(written).unwrap_or(usize::MAX))
    }

    pub(super) fn file_size(&mut self, file: Handle) -> FsResult<u64> {
        Ok(self.files(async |view| Inner::stat(view, file).await)?.size)
    }

    /// A second descriptor of the same open file, for a stream.
    fn again(&mut self, file: &Handle) -> FsResult<Handle> {
        let descriptor = match self.resource_mut::<Descriptor, _>(file).map_err(FsError::trap)? {
            Descriptor::File(file) => Descriptor::File(file.clone()),
            Descriptor::Dir(_) => return Err(ErrorCode::IsDirectory.into()),
        };
        self.count_open().map_err(FsError::trap)?;
        Ok(self.wasi().table.push(descriptor)?)
    }

    fn output(&mut self, file: &Handle, position: Option<u64>) -> FsResult<Resource<DynOutputStream>> {
        if !self.is_writable(file)? {
            return Err(ErrorCode::NotPermitted.into());
        }
        let file = self.again(file)?;
        self.insert_resource(OutputStream::File { file, position }).map_err(FsError::trap)
    }

    fn is_writable(&mut self, file: &Handle) -> FsResult<bool> {
        let perms = match self.resource_mut::<Descriptor, _>(file).map_err(FsError::trap)? {
            Descriptor::File(file) => file.perms,
            Descriptor::Dir(folder) => folder.perms,
        };
        Ok(!perms.write_not_permitted())
    }

    #[cfg(unix)]
    fn open(
        &mut self,
        folder: &Handle,
        path: String,
        follow: types::PathFlags,
        open: types::OpenFlags,
        flags: types::DescriptorFlags,
    ) -> FsResult<Handle> {
        let request = OpenRequest { follow, open, flags };
        let folder = match self.resource_mut::<Descriptor, _>(folder).map_err(FsError::trap)? {
            Descriptor::Dir(folder) => folder.clone(),
            Descriptor::File(_) => return Err(ErrorCode::NotDirectory.into()),
        };
        let opened = self.files(async |_| open_beneath(&folder, &path, &request))?;
        Ok(self.wasi().table.push(opened)?)
    }

    /// Elsewhere no pipe lies in a folder.
    #[cfg(not(unix))]
    fn open(
        &mut self,
        folder: &Handle,
        path: String,
        follow: types::PathFlags,
        open: types::OpenFlags,
        flags: types::DescriptorFlags,
    ) -> FsResult<Handle> {
        let folder = Resource::new_borrow(folder.rep());
        self.files(async |view| Inner::open_at(view, folder, follow.into(), path, open.into(), flags.into()).await)
    }

    /// Rejects anything but files and folders: opening a device may have side effects.
    fn refuse_special(&mut self, folder: &Handle, follow: types::PathFlags, path: &str) -> FsResult<()> {
        let (folder, path) = (Resource::new_borrow(folder.rep()), path.to_owned());
        let found = self.files(async |view| Inner::stat_at(view, folder, follow.into(), path).await);
        match found {
            Ok(stat) => match stat.type_ {
                DescriptorType::RegularFile | DescriptorType::Directory => Ok(()),
                // Links are visible only without following.
                DescriptorType::SymbolicLink => Err(ErrorCode::Loop.into()),
                _ => Err(ErrorCode::NotPermitted.into()),
            },
            // A missing file may be created by this call.
            Err(error) if matches!(error.downcast_ref(), Some(ErrorCode::NoEntry)) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

fn checked(path: String) -> FsResult<String> {
    if path.len() > PATH { Err(ErrorCode::NameTooLong.into()) } else { Ok(path) }
}

impl preopens::Host for State {
    fn get_directories(&mut self) -> wasmtime::Result<Vec<(Handle, String)>> {
        let folders = self.wasi().folders.dirs.clone();
        let mut given = Vec::with_capacity(folders.len());
        for (folder, name) in folders.iter() {
            self.count_open()?;
            given.push((self.wasi().table.push(Descriptor::Dir(folder.clone()))?, name.clone()));
        }
        Ok(given)
    }
}

impl types::Host for State {
    fn convert_error_code(&mut self, error: FsError) -> wasmtime::Result<types::ErrorCode> {
        Ok(error.downcast()?.into())
    }

    fn filesystem_error_code(
        &mut self,
        error: Resource<wasmtime::Error>,
    ) -> wasmtime::Result<Option<types::ErrorCode>> {
        let code = self.resource_mut::<wasmtime::Error, _>(&error)?.downcast_ref::<ErrorCode>();
        Ok(code.map(|code| (*code).into()))
    }
}

impl types::HostDescriptor for State {
    fn read_via_stream(&mut self, file: Handle, offset: u64) -> FsResult<Resource<DynInputStream>> {
        let file = self.again(&file)?;
        self.insert_resource(InputStream::File { file, position: offset }).map_err(FsError::trap)
    }

    fn write_via_stream(&mut self, file: Handle, offset: u64) -> FsResult<Resource<DynOutputStream>> {
        self.output(&file, Some(offset))
    }

    fn append_via_stream(&mut self, file: Handle) -> FsResult<Resource<DynOutputStream>> {
        self.output(&file, None)
    }

    /// Advice changes no result, and would let a guest fill the system's cache.
    fn advise(&mut self, _: Handle, _: u64, _: u64, _: types::Advice) -> FsResult<()> {
        Ok(())
    }

    fn sync_data(&mut self, file: Handle) -> FsResult<()> {
        self.sync(file)
    }

    fn get_flags(&mut self, file: Handle) -> FsResult<types::DescriptorFlags> {
        Ok(self.files(async |view| Inner::get_flags(view, file).await)?.into())
    }

    fn get_type(&mut self, file: Handle) -> FsResult<types::DescriptorType> {
        Ok(self.files(async |view| Inner::get_type(view, file).await)?.into())
    }

    fn set_size(&mut self, file: Handle, size: u64) -> FsResult<()> {
        let grows = size.saturating_sub(self.file_size(Resource::new_borrow(file.rep()))?);
        self.write_to_disk(usize::try_from(grows).unwrap_or(usize::MAX)).map_err(FsError::trap)?;
        self.files(async |view| Inner::set_size(view, file, size).await)
    }

    fn set_times(&mut self, file: Handle, read: types::NewTimestamp, changed: types::NewTimestamp) -> FsResult<()> {
        self.files(async |view| Inner::set_times(view, file, read.into(), changed.into()).await)
    }

    fn read(&mut self, file: Handle, len: u64, offset: u64) -> FsResult<(Vec<u8>, bool)> {
        self.read_file(file, len, offset)
    }

    fn write(&mut self, file: Handle, data: Vec<u8>, offset: u64) -> FsResult<u64> {
        Ok(self.write_file(file, &data, offset)? as u64)
    }

    fn read_directory(&mut self, folder: Handle) -> FsResult<Resource<types::DirectoryEntryStream>> {
        self.list(&folder)
    }

    /// Does not flush: the time for writes of other programs to the same file has no
    /// bound, and no deadline ends it. Every program sees the written data, and it reaches the
    /// disk when the system flushes it.
    fn sync(&mut self, file: Handle) -> FsResult<()> {
        self.resource_mut::<Descriptor, _>(&file).map_err(FsError::trap)?;
        self.time_budget.check().map_err(FsError::trap)
    }

    fn create_directory_at(&mut self, folder: Handle, path: String) -> FsResult<()> {
        let path = checked(path)?;
        self.write_to_disk(ENTRY).map_err(FsError::trap)?;
        self.files(async |view| Inner::create_directory_at(view, folder, path).await)
    }

    fn stat(&mut self, file: Handle) -> FsResult<types::DescriptorStat> {
        Ok(self.files(async |view| Inner::stat(view, file).await)?.into())
    }

    fn stat_at(&mut self, folder: Handle, follow: types::PathFlags, path: String) -> FsResult<types::DescriptorStat> {
        let path = checked(path)?;
        Ok(self.files(async |view| Inner::stat_at(view, folder, follow.into(), path).await)?.into())
    }

    fn set_times_at(
        &mut self,
        folder: Handle,
        follow: types::PathFlags,
        path: String,
        read: types::NewTimestamp,
        changed: types::NewTimestamp,
    ) -> FsResult<()> {
        let path = checked(path)?;
        self.files(async |view| {
            Inner::set_times_at(view, folder, follow.into(), path, read.into(), changed.into()).await
        })
    }

    fn link_at(&mut self, _: Handle, _: types::PathFlags, _: String, _: Handle, _: String) -> FsResult<()> {
        Err(ErrorCode::NotPermitted.into())
    }

    fn open_at(
        &mut self,
        folder: Handle,
        follow: types::PathFlags,
        path: String,
        request: types::OpenFlags,
        flags: types::DescriptorFlags,
    ) -> FsResult<Handle> {
        let path = checked(path)?;
        self.refuse_special(&folder, follow, &path)?;
        if request.contains(types::OpenFlags::CREATE) && self.is_writable(&folder)? {
            self.write_to_disk(ENTRY).map_err(FsError::trap)?;
        }
        self.count_open().map_err(FsError::trap)?;
        let opened = self.open(&folder, path, follow, request, flags);
        if opened.is_err() {
            let wasi = self.wasi();
            wasi.open -= 1;
            wasi.held -= 1;
        }
        opened
    }

    fn readlink_at(&mut self, folder: Handle, path: String) -> FsResult<String> {
        let path = checked(path)?;
        self.files(async |view| Inner::readlink_at(view, folder, path).await)
    }

    fn remove_directory_at(&mut self, folder: Handle, path: String) -> FsResult<()> {
        let path = checked(path)?;
        self.files(async |view| Inner::remove_directory_at(view, folder, path).await)
    }

    fn rename_at(&mut self, folder: Handle, path: String, into: Handle, new: String) -> FsResult<()> {
        let (path, new) = (checked(path)?, checked(new)?);
        self.files(async |view| Inner::rename_at(view, folder, path, into, new).await)
    }

    fn symlink_at(&mut self, _: Handle, _: String, _: String) -> FsResult<()> {
        Err(ErrorCode::NotPermitted.into())
    }

    fn unlink_file_at(&mut self, folder: Handle, path: String) -> FsResult<()> {
        let path = checked(path)?;
        self.files(async |view| Inner::unlink_file_at(view, folder, path).await)
    }

    fn is_same_object(&mut self, one: Handle, other: Handle) -> wasmtime::Result<bool> {
        self.time_budget.check()?;
        let mut view = self.wasi().files();
        let same = poll_noop(pin!(Inner::is_same_object(&mut view, one, other)));
        same.unwrap_or(Ok(false))
    }

    fn metadata_hash(&mut self, file: Handle) -> FsResult<types::MetadataHashValue> {
        Ok(self.files(async |view| Inner::metadata_hash(view, file).await)?.into())
    }

    fn metadata_hash_at(
        &mut self,
        folder: Handle,
        follow: types::PathFlags,
        path: String,
    ) -> FsResult<types::MetadataHashValue> {
        let path = checked(path)?;
        Ok(self.files(async |view| Inner::metadata_hash_at(view, folder, follow.into(), path).await)?.into())
    }

    fn drop(&mut self, file: Handle) -> wasmtime::Result<()> {
        Ok(self.close(&file)?)
    }
}
