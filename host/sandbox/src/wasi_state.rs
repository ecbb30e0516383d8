//! The state of WASI in one sandbox: granted folders and the table of resources.

use std::sync::Arc;
use std::time::Instant;

use wasmtime::component::ResourceTable;
use wasmtime_wasi::filesystem::{Dir, OpenMode, WasiFilesystemCtx, WasiFilesystemCtxView};
use wasmtime_wasi::random::WasiRandomCtx;
use wasmtime_wasi::{FsPerms, WasiCtxBuilder};

use super::error::SandboxError;
use super::grants::{FolderGrant, Grants};

/// The granted folders of a step, open since they were checked.
#[derive(Clone, Default)]
pub(super) struct GrantedFolders {
    pub(super) context: WasiFilesystemCtx,
    /// each with the path that the component knows it by
    pub(super) dirs: Arc<[(Dir, String)]>,
}

impl GrantedFolders {
    pub(super) fn open(grants: &mut Grants) -> Result<Self, SandboxError> {
        if grants.dirs.is_empty() {
            return Ok(Self::default());
        }
        let mut builder = WasiCtxBuilder::new();
        // Files are read and written on the guest's own thread: calls are small, and the thread is
        // the guest's until its deadline anyway.
        builder.allow_blocking_current_thread(true);
        let open = |dir: &mut FolderGrant| {
            let (perms, mode) = if dir.writable {
                (FsPerms::ReadWrite, OpenMode::READ | OpenMode::WRITE)
            } else {
                (FsPerms::ReadOnly, OpenMode::READ)
            };
            let opened = dir.open(None).and_then(|folder| folder.file().try_clone());
            let opened =
                opened.map_err(|error| SandboxError::Folder { folder: dir.folder.clone(), why: error.to_string() })?;
            Ok((Dir::new(opened, perms, mode, true), dir.name.clone()))
        };
        let dirs = grants.dirs.iter_mut().map(open).collect::<Result<_, SandboxError>>()?;
        Ok(Self { context: builder.build().filesystem().clone(), dirs })
    }
}

/// What one sandbox holds of WASI.
pub(super) struct Wasi {
    pub(super) folders: GrantedFolders,
    pub(super) table: ResourceTable,
    /// entries of `table`
    pub(super) held: usize,
    /// how many of them keep a file or a folder open
    pub(super) open: usize,
    /// bytes written to files in this request
    pub(super) written: usize,
    random: Option<WasiRandomCtx>,
    /// the start of the monotonic clock
    pub(super) begin: Instant,
}

impl Wasi {
    pub(super) fn new(folders: &GrantedFolders) -> Self {
        Self {
            folders: folders.clone(),
            table: ResourceTable::new(),
            held: 0,
            open: 0,
            written: 0,
            random: None,
            begin: Instant::now(),
        }
    }

    /// For the next request of the same instance.
    pub(super) const fn renew(&mut self) {
        self.written = 0;
    }

    /// How many pollables, streams, descriptors and listings the guest holds.
    pub(super) const fn held(&self) -> usize {
        self.held
    }

    pub(super) fn random(&mut self) -> &mut WasiRandomCtx {
        self.random.get_or_insert_default()
    }

    pub(super) fn files(&mut self) -> WasiFilesystemCtxView<'_> {
        WasiFilesystemCtxView { ctx: &mut self.folders.context, table: &mut self.table }
    }
}
