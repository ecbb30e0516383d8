//! `gpux.lock`: where the files of a folder came from, by commit and digest.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use gpux_core::sanitize::sanitize_for_terminal as clean;
use gpux_store::{FileDigest, is_safe};
use serde::Deserialize;

use crate::reference::HubReference;

/// The name of the file.
pub const LOCK_FILE: &str = "gpux.lock";
/// The version that this program writes and reads.
const VERSION: i64 = 1;
/// The most bytes of a lock, and the most files that it names.
const MAX_LOCK: usize = 4 << 20;
const MAX_FILES: usize = 10_000;

/// A file in `gpux.lock`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LockedFile {
    /// its path in the repository
    pub path: String,
    /// its path in the pipeline's folder; `None` if it was only read to make the pipeline
    pub target: Option<String>,
    /// the SHA-256 of its bytes, in hexadecimal digits
    pub sha256: String,
    /// its size in bytes
    pub size: u64,
}

/// What files came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockedSource {
    /// the repository and the revision that was named
    pub reference: HubReference,
    /// its commit
    pub commit: String,
    /// the files that were taken, by their paths
    pub files: Vec<LockedFile>,
}

impl LockedSource {
    /// The repository and revision, as a lock names them.
    pub fn from(&self) -> String {
        format!("hf://{}@{}", self.reference.id(), self.reference.revision().unwrap_or("main"))
    }
}

/// Why a `gpux.lock` is of no use.
#[derive(Debug, thiserror::Error)]
#[error("`{}` {fault}", path.display())]
pub struct LockError {
    path: PathBuf,
    fault: LockFault,
}

#[derive(Debug, thiserror::Error)]
enum LockFault {
    #[error("cannot be read: {0}")]
    Read(std::io::Error),
    #[error("has more than {} MiB, so gpux has not written it: restore it, or pull the model by its name", MAX_LOCK >> 20)]
    Large,
    #[error("is not what gpux writes ({0}): restore it, or pull the model by its name with --force")]
    Malformed(String),
    #[error("is of version {0}, and this gpux reads version {VERSION}: a newer one has written it")]
    Version(i64),
    #[error("names `{}`, which this gpux cannot fetch: a newer one has written it", clean(.0))]
    Source(String),
}

#[derive(Deserialize)]
struct Header {
    version: i64,
}

#[derive(Deserialize)]
struct Content {
    #[serde(default)]
    source: Vec<SourceEntry>,
}

#[derive(Deserialize)]
struct SourceEntry {
    from: String,
    commit: Option<String>,
    #[serde(default)]
    files: Vec<FileEntry>,
}

#[derive(Deserialize)]
struct FileEntry {
    path: String,
    target: Option<String>,
    digest: String,
    size: u64,
}

/// The lock of a folder; `None` if there is none.
pub fn read_lock(folder: &Path) -> Result<Option<Vec<LockedSource>>, LockError> {
    let path = folder.join(LOCK_FILE);
    let error = |fault| LockError { path: path.clone(), fault };
    let mut bytes = Vec::new();
    let file = match gpux_core::files::open_file(&path, "a lock") {
        Ok(file) => file,
        Err(source) if source.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(error(LockFault::Read(source))),
    };
    let mut head = std::io::Read::take(file, MAX_LOCK as u64 + 1);
    std::io::Read::read_to_end(&mut head, &mut bytes).map_err(|source| error(LockFault::Read(source)))?;
    if bytes.len() > MAX_LOCK {
        return Err(error(LockFault::Large));
    }
    parse(&bytes).map(Some).map_err(error)
}

fn parse(bytes: &[u8]) -> Result<Vec<LockedSource>, LockFault> {
    let malformed = |reason: &str| LockFault::Malformed(clean(reason));
    let text = std::str::from_utf8(bytes).map_err(|_| malformed("it is no UTF-8"))?;
    let toml = |error: toml::de::Error| {
        let line = error.span().map(|span| text.bytes().take(span.start).filter(|byte| *byte == b'\n').count() + 1);
        let place = line.map_or_else(String::new, |line| format!("line {line}: "));
        malformed(&format!("{place}{}", error.message().trim_end().replace('\n', ", ")))
    };
    let Header { version } = toml::from_str(text).map_err(toml)?;
    if version != VERSION {
        return Err(LockFault::Version(version));
    }
    let Content { source } = toml::from_str(text).map_err(toml)?;
    if source.is_empty() {
        return Err(malformed("it has no `source`"));
    }
    let mut targets = BTreeSet::new();
    source.into_iter().map(|entry| checked(entry, &mut targets)).collect()
}

fn checked(entry: SourceEntry, targets: &mut BTreeSet<String>) -> Result<LockedSource, LockFault> {
    let malformed = |reason: String| LockFault::Malformed(clean(&reason));
    let named = entry.from.strip_prefix("hf://").map(|rest| format!("{}{rest}", HubReference::SCHEME));
    let named = named.ok_or_else(|| LockFault::Source(entry.from.clone()))?;
    let reference: HubReference = named.parse().map_err(|error| malformed(format!("{error}")))?;
    let commit = entry.commit.unwrap_or_default();
    if !matches!(FileDigest::from_hex(&commit), Some(FileDigest::GitBlob(_))) {
        return Err(malformed(format!("the `commit` of {} is none", entry.from)));
    }
    if entry.files.len() > MAX_FILES {
        return Err(malformed(format!("it names more than {MAX_FILES} files")));
    }
    let files = entry.files.into_iter().map(|FileEntry { path, target, digest, size }| {
        let Some(FileDigest::Sha256(sha256)) = digest.strip_prefix("sha256:").and_then(FileDigest::from_hex) else {
            return Err(malformed(format!("the `digest` of `{path}` is no SHA-256")));
        };
        if !is_safe(&path) {
            return Err(malformed(format!("the path `{path}` leads out of the repository")));
        }
        if let Some(target) = &target {
            if !is_target(target) {
                return Err(malformed(format!("no file of a model lies at `{target}`")));
            }
            if !targets.insert(target.to_lowercase()) {
                return Err(malformed(format!("it names `{target}` twice")));
            }
        }
        Ok(LockedFile { path, target, sha256, size })
    });
    Ok(LockedSource { files: files.collect::<Result<_, _>>()?, reference, commit })
}

/// Whether a file of a model may be written there: within the folder, not among what Git and editors keep in folders
/// with a dot, and not over gpux's own files.
fn is_target(path: &str) -> bool {
    is_safe(path)
        && !path.split('/').any(|part| part.starts_with('.'))
        && !["gpux.yml", LOCK_FILE].iter().any(|own| path.eq_ignore_ascii_case(own))
}

/// The text of a `gpux.lock`. Equal sources give equal text.
pub fn lock_text(sources: &[LockedSource]) -> String {
    let mut text =
        format!("# Written by gpux. Do not edit.\nversion = {VERSION}\ncontract = \"gpux:pipeline@0.1.0\"\n");
    for source in sources {
        let (from, commit) = (quoted(&source.from()), quoted(&source.commit));
        let _ = writeln!(text, "\n[[source]]\nfrom = {from}\ncommit = {commit}\nfiles = [");
        for LockedFile { path, target, sha256, size } in &source.files {
            let target = target.as_ref().map_or_else(String::new, |target| format!("target = {}, ", quoted(target)));
            let path = quoted(path);
            let _ = writeln!(text, "  {{ path = {path}, {target}digest = \"sha256:{sha256}\", size = {size} }},");
        }
        text += "]\n";
    }
    text
}

/// A basic string of TOML.
fn quoted(text: &str) -> String {
    let escaped = |c: char| match c {
        '"' | '\\' => format!("\\{c}"),
        c if c.is_control() => format!("\\u{:04X}", u32::from(c)),
        c => c.to_string(),
    };
    format!("\"{}\"", text.chars().map(escaped).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn source(files: Vec<LockedFile>) -> LockedSource {
        LockedSource { reference: "hf:a/b@main".parse().unwrap(), commit: "c0".repeat(20), files }
    }

    #[test]
    fn writes_toml() {
        let file = |path: &str, target: Option<&str>| LockedFile {
            path: path.to_owned(),
            target: target.map(str::to_owned),
            sha256: "00ff".to_owned(),
            size: 3,
        };
        let source = source(vec![file("config.json", None), file("a \"b\"\\c", Some("d"))]);
        let expected = "# Written by gpux. Do not edit.\nversion = 1\ncontract = \"gpux:pipeline@0.1.0\"\n\n[[source]]\n\
                        from = \"hf://a/b@main\"\ncommit = \"c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0\"\nfiles = [\n  \
                        { path = \"config.json\", digest = \"sha256:00ff\", size = 3 },\n  \
                        { path = \"a \\\"b\\\"\\\\c\", target = \"d\", digest = \"sha256:00ff\", size = 3 },\n]\n";
        assert_eq!(lock_text(&[source]), expected);
    }

    proptest! {
        #[test]
        fn reads_what_it_writes(names in prop::collection::btree_set("[^\\p{C}:\\\\/.]{1,20}", 0..6), size in any::<i64>()) {
            let size = size.unsigned_abs() >> 1;
            let files = names.into_iter().enumerate().map(|(number, path)| LockedFile {
                target: (number % 2 == 0).then(|| format!("{number}/{path}")),
                path,
                sha256: format!("{number:064x}"),
                size,
            });
            let sources = [source(files.collect())];
            let text = lock_text(&sources);
            let read = parse(text.as_bytes()).unwrap();
            prop_assert_eq!(&read, &sources);
            // Git on Windows may have changed the ends of lines.
            prop_assert_eq!(&parse(text.replace('\n', "\r\n").as_bytes()).unwrap(), &sources);
            prop_assert_eq!(lock_text(&read), text);
        }

        #[test]
        fn survives_any_text(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes);
        }
    }

    #[test]
    fn names_each_fault() {
        let folder = tempfile::tempdir().unwrap();
        assert!(matches!(read_lock(folder.path()), Ok(None)));
        let fault = |text: &str| {
            std::fs::write(folder.path().join(LOCK_FILE), text).unwrap();
            read_lock(folder.path()).unwrap_err().to_string()
        };
        let file = |path: &str, target: &str| {
            let digest = "0".repeat(64);
            format!("{{ path = \"{path}\", target = \"{target}\", digest = \"sha256:{digest}\", size = 1 }},")
        };
        let with = |files: &str| {
            let commit = "c0".repeat(20);
            format!("version = 1\n[[source]]\nfrom = \"hf://a/b\"\ncommit = \"{commit}\"\nfiles = [{files}]\n")
        };
        for (text, message) in [
            (" ".repeat(MAX_LOCK + 1), "has more than 4 MiB"),
            ("[".repeat(100_000), "is not what gpux writes (line 1: "),
            ("version = \"1\"\n".to_owned(), "is not what gpux writes (line 1: invalid type: string"),
            (String::new(), "missing field `version`"),
            ("version = 2\n[[origin]]\n".to_owned(), "is of version 2, and this gpux reads version 1"),
            ("version = 1\n".to_owned(), "it has no `source`"),
            (
                "version = 1\n[[source]]\nfrom = \"oci://r/a:1\"\n".to_owned(),
                "names `oci://r/a:1`, which this gpux cannot",
            ),
            ("version = 1\n[[source]]\nfrom = \"hf://a/../b\"\n".to_owned(), "names no model of the hub"),
            (with("").replace("c0c0", "main"), "the `commit` of hf://a/b is none"),
            (with(&file("../x", "x")), "the path `../x` leads out of the repository"),
            (with(&file("x", ".git/hooks/post-checkout")), "no file of a model lies at `.git/hooks/post-checkout`"),
            (with(&file("x", "GPUX.yml")), "no file of a model lies at `GPUX.yml`"),
            (with(&(file("x", "x") + &file("y", "X"))), "it names `X` twice"),
            (with(&file("x", "x").replace("sha256:00", "sha256:")), "the `digest` of `x` is no SHA-256"),
            (with(&file("x", "x").replace("size = 1", "size = -1")), "is not what gpux writes (line 5: invalid value"),
            (with(&file("x", "x")) + "\n<<<<<<< HEAD\n", "is not what gpux writes (line 7: "),
        ] {
            let given = fault(&text);
            assert!(given.contains(message), "{message}\n{given}");
        }
    }
}
