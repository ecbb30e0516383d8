//! Files, child processes and threads, safe against other users, crashes and full disks.

pub mod authenticated_file;
pub(crate) mod cache;
pub mod catch_panic;
pub mod child_process;
#[cfg(unix)]
pub mod file_passing;
pub mod files;
pub(crate) mod foreign_file;
pub(crate) mod hub;
pub(crate) mod image_type;
pub mod lossless_path;
pub mod process_exit;
pub(crate) mod project_files;
mod resolved_path;
pub mod threads;
pub(crate) mod used_entries;
