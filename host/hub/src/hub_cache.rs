//! What lies in the cache of the hub's own client.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use gpux_store::{FileDigest, is_safe};

use crate::remote_file::RemoteFile;

/// How deep a snapshot is looked into.
const MAX_DEPTH: usize = 6;

fn folder(cache: &Path, id: &str) -> PathBuf {
    cache.join(format!("models--{}", id.replace('/', "--")))
}

/// The file of this digest in a cache; its bytes are still to be compared.
pub(crate) fn blob(caches: &[PathBuf], id: &str, digest: &FileDigest) -> Option<PathBuf> {
    caches.iter().map(|cache| folder(cache, id).join("blobs").join(digest.hex())).find(|path| path.is_file())
}

/// The commit that a cache has for a revision, and its files there.
pub(crate) fn snapshot(caches: &[PathBuf], id: &str, revision: &str) -> Option<(String, BTreeMap<String, RemoteFile>)> {
    caches.iter().find_map(|cache| {
        let folder = folder(cache, id);
        let named = gpux_core::files::read_head(&folder.join("refs").join(revision), 64);
        let named = named.and_then(|bytes| Some(String::from_utf8(bytes).ok()?.trim().to_owned()));
        let commit = named.unwrap_or_else(|| revision.to_owned());
        if !matches!(FileDigest::from_hex(&commit), Some(FileDigest::GitBlob(_))) {
            return None;
        }
        let mut files = BTreeMap::new();
        list(&folder.join("snapshots").join(&commit), "", MAX_DEPTH, &mut files);
        (!files.is_empty()).then_some((commit, files))
    })
}

/// Adds the files of a snapshot: links to blobs, which are named by their digests.
fn list(folder: &Path, before: &str, depth: usize, files: &mut BTreeMap<String, RemoteFile>) {
    for entry in folder.read_dir().into_iter().flatten().flatten() {
        let Ok(name) = entry.file_name().into_string() else { continue };
        let (path, name) = (entry.path(), format!("{before}{name}"));
        if path.is_dir() && depth > 0 {
            list(&path, &format!("{name}/"), depth - 1, files);
            continue;
        }
        let target = path.read_link().ok();
        let digest = target.as_ref().and_then(|target| FileDigest::from_hex(target.file_name()?.to_str()?));
        if let (Some(digest), Ok(metadata), true) = (digest, path.metadata(), is_safe(&name)) {
            files.insert(name, RemoteFile { size: metadata.len(), digest });
        }
    }
}
