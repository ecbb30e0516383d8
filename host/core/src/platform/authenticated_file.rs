//! Authenticated files of the cache: only this user's gpux can have written them.
//!
//! What lies in the cache is run as native code, or believed instead of tried again. Its folder keeps other users
//! out ([`CacheDir::folder`]); the seal keeps out whatever comes to write there as this user. It is an Ed25519 signature
//! of the content under the file's own name, so that no file passes for another, with a key that lies beside the cache,
//! not in it: `~/.cache/gpux.key` for `~/.cache/gpux`. The process of one pipeline gets the public key alone: it can read
//! what the operator's cache has, and write nothing that others take for theirs.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom as _, SystemRandom};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};

use crate::platform::cache::{PublicKey, SharedCache};
use crate::platform::files::{ReadAccess, write_parts};
use crate::{CacheDir, CacheFolder};

/// Bytes of a key.
const SIZE: usize = 32;

/// Bytes of a seal.
const SEAL_SIZE: usize = 64;

/// What [`write`](fn@write) wrote under this name in this cache, or else in the operator's, whole and unchanged; `None`
/// of everything else.
pub fn read(cache: &CacheDir, folder: CacheFolder, name: &str) -> Option<Vec<u8>> {
    let own = public_key(cache).ok().and_then(|key| read_sealed(&cache.folder(folder).ok()?, &key, folder, name));
    if own.is_some() {
        cache.touch(folder, name);
        cache.note_use(folder, name);
        return own;
    }
    read_shared(cache.shared()?, folder, name)
}

/// The same of the operator's cache alone.
pub(crate) fn read_shared(cache: &SharedCache, folder: CacheFolder, name: &str) -> Option<Vec<u8>> {
    read_sealed(&cache.path(folder), &cache.public_key?, folder, name)
}

fn read_sealed(path: &Path, key: &PublicKey, folder: CacheFolder, name: &str) -> Option<Vec<u8>> {
    let mut file = crate::platform::files::open_file(&path.join(name), "it").ok()?;
    let mut seal = [0; SEAL_SIZE];
    file.read_exact(&mut seal).ok()?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).ok()?;
    UnparsedPublicKey::new(&ED25519, key).verify(&sealed_text(folder, name, &bytes), &seal).ok()?;
    Some(bytes)
}

/// Writes a file of the cache whole or not at all, sealed.
pub fn write(cache: &CacheDir, folder: CacheFolder, name: &str, bytes: &[u8]) -> io::Result<()> {
    let path = cache.folder(folder)?.join(name);
    let seal = key_pair(cache)?.sign(&sealed_text(folder, name, bytes));
    write_parts(&path, &[seal.as_ref(), bytes], ReadAccess::Owner)?;
    cache.touch_and_evict(folder, name);
    cache.note_use(folder, name);
    Ok(())
}

/// What is signed: which file it is, and a digest of its content.
fn sealed_text(folder: CacheFolder, name: &str, bytes: &[u8]) -> Vec<u8> {
    let mut text = format!("{}\0{name}\0", folder.name()).into_bytes();
    text.extend(digest(&SHA256, bytes).as_ref());
    text
}

fn key_pair(cache: &CacheDir) -> io::Result<Ed25519KeyPair> {
    Ed25519KeyPair::from_seed_unchecked(&key(cache)?).map_err(|error| io::Error::other(error.to_string()))
}

/// The key that verifies what this user's gpux writes in the cache.
pub fn public_key(cache: &CacheDir) -> io::Result<PublicKey> {
    PublicKey::try_from(key_pair(cache)?.public_key().as_ref()).map_err(io::Error::other)
}

/// The user's key: beside the cache, or in it where nothing can be written beside it.
fn key(cache: &CacheDir) -> io::Result<[u8; SIZE]> {
    let inside = cache.make_root()?.join("key");
    match beside(cache.root()).map(|beside| read_or_make(&beside)) {
        Some(Ok(key)) => Ok(key),
        _ => read_or_make(&inside),
    }
}

/// Where the key of the cache at `root` lies.
fn beside(root: &Path) -> Option<PathBuf> {
    let root = std::path::absolute(root).ok()?;
    let mut name = root.file_name()?.to_owned();
    name.push(".key");
    Some(root.with_file_name(name))
}

fn read_or_make(path: &Path) -> io::Result<[u8; SIZE]> {
    read_key(path).or_else(|_| {
        let folder = path.parent().ok_or(io::ErrorKind::NotFound)?;
        let mut key = [0; SIZE];
        SystemRandom::new().fill(&mut key).map_err(|_| io::Error::other("the system gives no random numbers"))?;
        // Only its owner may read it from the start; of several processes that create it, the first wins.
        let mut draft = tempfile::Builder::new().prefix(".gpux-").tempfile_in(folder)?;
        io::Write::write_all(&mut draft, &key)?;
        draft.as_file().sync_all()?;
        match draft.persist_noclobber(path) {
            Ok(_) => Ok(key),
            // A key that others could read, or that is truncated, is replaced.
            Err(error) => read_key(path).or_else(|_| {
                error.file.persist(path)?;
                Ok(key)
            }),
        }
    })
}

/// Reads a key that belongs to this user and that no other user can read.
fn read_key(path: &Path) -> io::Result<[u8; SIZE]> {
    let mut options = File::options();
    #[cfg(unix)]
    {
        use rustix::fs::OFlags;
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, flags.bits().cast_signed());
    }
    let mut file = options.read(true).open(path)?;
    let metadata = file.metadata()?;
    #[cfg(unix)]
    let is_own = {
        use std::os::unix::fs::MetadataExt as _;
        const OTHERS: u32 = 0o077;
        metadata.uid() == rustix::process::geteuid().as_raw() && metadata.mode() & OTHERS == 0
    };
    #[cfg(not(unix))]
    let is_own = true;
    if !(metadata.is_file() && is_own && metadata.len() == SIZE as u64) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "this is no key of this user's alone"));
    }
    let mut key = [0; SIZE];
    file.read_exact(&mut key)?;
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache() -> (tempfile::TempDir, CacheDir) {
        let folder = tempfile::tempdir().unwrap();
        let cache = CacheDir::at(folder.path().join("cache"));
        (folder, cache)
    }

    #[test]
    fn reads_only_content_written_under_the_same_name() {
        let (_folder, cache) = cache();
        write(&cache, CacheFolder::Steps, "one", b"native code").unwrap();
        assert_eq!(read(&cache, CacheFolder::Steps, "one").unwrap(), b"native code");
        assert_eq!(read(&cache, CacheFolder::Steps, "two"), None);
        let path = cache.folder(CacheFolder::Steps).unwrap().join("one");
        let whole = std::fs::read(&path).unwrap();
        // Moved, it is another file.
        std::fs::copy(&path, cache.folder(CacheFolder::Steps).unwrap().join("two")).unwrap();
        std::fs::copy(&path, cache.folder(CacheFolder::Verified).unwrap().join("one")).unwrap();
        assert_eq!((read(&cache, CacheFolder::Steps, "two"), read(&cache, CacheFolder::Verified, "one")), (None, None));
        // Cut off or changed anywhere, it is none.
        for length in 0..whole.len() {
            std::fs::write(&path, &whole[..length]).unwrap();
            assert_eq!(read(&cache, CacheFolder::Steps, "one"), None, "{length} bytes");
        }
        for place in 0..whole.len() {
            let mut changed = whole.clone();
            changed[place] ^= 1;
            std::fs::write(&path, changed).unwrap();
            assert_eq!(read(&cache, CacheFolder::Steps, "one"), None, "byte {place}");
        }
        std::fs::write(&path, &whole).unwrap();
        assert!(read(&cache, CacheFolder::Steps, "one").is_some());
    }

    #[test]
    fn reads_the_shared_cache_with_its_public_key() {
        let (folder, cache) = cache();
        write(&cache, CacheFolder::Steps, "one", b"native code").unwrap();
        let own = folder.path().join("own");
        let with_key = |key| CacheDir::within(&cache, own.clone(), key);
        let nested = with_key(public_key(&cache).ok());
        assert_eq!(read(&nested, CacheFolder::Steps, "one").unwrap(), b"native code");
        write(&nested, CacheFolder::Steps, "one", b"own code").unwrap();
        assert_eq!(read(&nested, CacheFolder::Steps, "one").unwrap(), b"own code");
        assert_eq!(read(&cache, CacheFolder::Steps, "one").unwrap(), b"native code");
        // What was sealed with its own key is nothing to others.
        let path = cache.path(CacheFolder::Steps).join("one");
        std::fs::copy(nested.path(CacheFolder::Steps).join("one"), path).unwrap();
        assert_eq!(read(&cache, CacheFolder::Steps, "one"), None);
        std::fs::remove_file(nested.path(CacheFolder::Steps).join("one")).unwrap();
        assert_eq!(read(&nested, CacheFolder::Steps, "one"), None);
        assert_eq!(read(&with_key(None), CacheFolder::Steps, "one"), None);
    }

    #[cfg(unix)]
    #[test]
    fn key_file_is_private_and_outside_the_cache() {
        use std::os::unix::fs::PermissionsExt as _;
        let (folder, cache) = cache();
        write(&cache, CacheFolder::Steps, "one", b"").unwrap();
        let key = folder.path().join("cache.key");
        assert_eq!(key.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert!(!cache.root().join("key").exists());
        // What others could read, is cut off, or leads elsewhere, is replaced.
        for spoil in [
            (|key: &Path| std::fs::set_permissions(key, std::fs::Permissions::from_mode(0o640)).unwrap()) as fn(&Path),
            |key| std::fs::write(key, "short").unwrap(),
            |key| {
                std::fs::rename(key, key.with_extension("away")).unwrap();
                std::os::unix::fs::symlink(key.with_extension("away"), key).unwrap();
            },
        ] {
            spoil(&key);
            assert_eq!(read(&cache, CacheFolder::Steps, "one"), None);
            assert!(key.symlink_metadata().unwrap().is_file());
            write(&cache, CacheFolder::Steps, "one", b"").unwrap();
            assert!(read(&cache, CacheFolder::Steps, "one").is_some());
        }
        // Where nothing can be written beside the cache, the key lies in it.
        std::fs::remove_file(&key).unwrap();
        std::fs::create_dir(&key).unwrap();
        write(&cache, CacheFolder::Steps, "one", b"").unwrap();
        assert!(read(&cache, CacheFolder::Steps, "one").is_some() && cache.root().join("key").is_file());
    }
}
