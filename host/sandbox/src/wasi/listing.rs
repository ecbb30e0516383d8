//! Lists a folder one entry at a time: only the entries that are read cost time.

#[cfg(target_os = "linux")]
use rustix::fs::{Mode, OFlags};
use wasmtime::component::Resource;
use wasmtime_wasi::filesystem::Descriptor;
#[cfg(target_os = "linux")]
use wasmtime_wasi::p2::bindings::filesystem::types::ErrorCode;
use wasmtime_wasi::p2::bindings::sync::filesystem::types::{
    DirectoryEntry, DirectoryEntryStream, HostDirectoryEntryStream,
};
use wasmtime_wasi::p2::{FsError, FsResult};

use super::super::state::State;

#[cfg(target_os = "linux")]
type Listing = rustix::fs::Dir;
/// On other systems wasmtime-wasi reads the whole folder first.
#[cfg(not(target_os = "linux"))]
type Listing = DirectoryEntryStream;

impl State {
    /// Begins to list a folder.
    #[cfg(target_os = "linux")]
    pub(super) fn list(&mut self, folder: &Resource<Descriptor>) -> FsResult<Resource<DirectoryEntryStream>> {
        let folder = match self.resource_mut::<Descriptor, _>(folder).map_err(FsError::trap)? {
            Descriptor::Dir(folder) => folder.dir.clone(),
            Descriptor::File(_) => return Err(ErrorCode::NotDirectory.into()),
        };
        // The folder's own descriptor may not permit reading.
        let how = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(folder.as_ref(), c".", how, Mode::empty());
        let listing = opened.and_then(Listing::new).map_err(std::io::Error::from)?;
        self.count_open().map_err(FsError::trap)?;
        let key = self.wasi().table.push(listing)?;
        Ok(Resource::new_own(key.rep()))
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn list(&mut self, folder: &Resource<Descriptor>) -> FsResult<Resource<DirectoryEntryStream>> {
        use wasmtime_wasi::p2::bindings::filesystem::types::HostDescriptor;
        let folder = Resource::new_borrow(folder.rep());
        let listing = self.files(async |view| HostDescriptor::read_directory(view, folder).await)?;
        self.count_open().map_err(FsError::trap)?;
        Ok(listing)
    }

    #[cfg(target_os = "linux")]
    fn next_entry(&mut self, listing: &Resource<DirectoryEntryStream>) -> FsResult<Option<DirectoryEntry>> {
        self.time_budget.check().map_err(FsError::trap)?;
        let listing = self.resource_mut::<Listing, _>(listing).map_err(FsError::trap)?;
        for entry in listing {
            let entry = entry.map_err(std::io::Error::from)?;
            let name = entry.file_name().to_str().map_err(|_| ErrorCode::IllegalByteSequence)?;
            if name != "." && name != ".." {
                return Ok(Some(DirectoryEntry { type_: kind(entry.file_type()), name: name.to_owned() }));
            }
        }
        Ok(None)
    }

    #[cfg(not(target_os = "linux"))]
    fn next_entry(&mut self, listing: &Resource<DirectoryEntryStream>) -> FsResult<Option<DirectoryEntry>> {
        use wasmtime_wasi::p2::bindings::filesystem::types::HostDirectoryEntryStream as Inner;
        let listing = Resource::new_borrow(listing.rep());
        let entry = self.files(async |view| Inner::read_directory_entry(view, listing).await)?;
        Ok(entry.map(Into::into))
    }
}

#[cfg(target_os = "linux")]
fn kind(kind: rustix::fs::FileType) -> wasmtime_wasi::p2::bindings::sync::filesystem::types::DescriptorType {
    use rustix::fs::FileType;
    use wasmtime_wasi::p2::bindings::sync::filesystem::types::DescriptorType;
    match kind {
        FileType::RegularFile => DescriptorType::RegularFile,
        FileType::Directory => DescriptorType::Directory,
        FileType::Symlink => DescriptorType::SymbolicLink,
        FileType::Fifo => DescriptorType::Fifo,
        FileType::Socket => DescriptorType::Socket,
        FileType::CharacterDevice => DescriptorType::CharacterDevice,
        FileType::BlockDevice => DescriptorType::BlockDevice,
        FileType::Unknown => DescriptorType::Unknown,
    }
}

impl HostDirectoryEntryStream for State {
    fn read_directory_entry(&mut self, listing: Resource<DirectoryEntryStream>) -> FsResult<Option<DirectoryEntry>> {
        self.next_entry(&listing)
    }

    fn drop(&mut self, listing: Resource<DirectoryEntryStream>) -> wasmtime::Result<()> {
        Ok(self.close::<Listing>(&Resource::new_own(listing.rep()))?)
    }
}
