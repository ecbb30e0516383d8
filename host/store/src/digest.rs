//! Digests of files: the SHA-256, or the SHA-1 by which Git knows a file.

use std::fmt::{self, Write as _};

use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY, SHA256};

/// The digest of a file, in lowercase hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum FileDigest {
    /// the SHA-256 of its bytes
    Sha256(String),
    /// the SHA-1 of Git's header and its bytes
    GitBlob(String),
}

impl FileDigest {
    /// A digest by its digits: 64 are a SHA-256, 40 are Git's.
    pub fn from_hex(digits: &str) -> Option<Self> {
        let is_hex = digits.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
        match digits.len() {
            64 if is_hex => Some(Self::Sha256(digits.to_owned())),
            40 if is_hex => Some(Self::GitBlob(digits.to_owned())),
            _ => None,
        }
    }

    /// Its digits.
    pub fn hex(&self) -> &str {
        match self {
            Self::Sha256(digits) | Self::GitBlob(digits) => digits,
        }
    }
}

impl fmt::Display for FileDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sha256(digits) => write!(f, "SHA-256 {digits}"),
            Self::GitBlob(digits) => write!(f, "Git's SHA-1 {digits}"),
        }
    }
}

/// Both digests of the bytes that pass.
pub struct Hasher {
    sha256: Context,
    git: Context,
}

impl Hasher {
    /// For a file of `size` bytes.
    pub fn new(size: u64) -> Self {
        let mut git = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
        git.update(format!("blob {size}\0").as_bytes());
        Self { sha256: Context::new(&SHA256), git }
    }

    /// Takes the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.sha256.update(bytes);
        self.git.update(bytes);
    }

    /// The SHA-256, and Git's digest.
    pub fn finish(self) -> (String, String) {
        (hex(self.sha256.finish().as_ref()), hex(self.git.finish().as_ref()))
    }
}

/// The SHA-256 of bytes in memory.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    hex(ring::digest::digest(&SHA256, bytes).as_ref())
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_the_digests_of_git_and_sha256() {
        let mut hasher = Hasher::new(6);
        hasher.update(b"hel");
        hasher.update(b"lo\n");
        // `printf 'hello\n' | git hash-object --stdin`, and of sha256sum.
        let expected = [
            "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03",
            "ce013625030ba8dba906f756967f9e9ca394464a",
        ];
        let (sha256, git) = hasher.finish();
        assert_eq!([sha256.as_str(), git.as_str()], expected);
        assert_eq!(FileDigest::from_hex(&git), Some(FileDigest::GitBlob(git.clone())));
        for wrong in ["", "CE013625030ba8dba906f756967f9e9ca394464a", "../013625030ba8dba906f756967f9e9ca394464a"] {
            assert_eq!(FileDigest::from_hex(wrong), None);
        }
    }
}
