//! What can be wrong with a bundle.

use gpux_core::Size;

/// What is wrong with a bundle: each kind of fault has words of its own.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BundleFault {
    /// not an archive, and not a folder with a layout
    #[error("it is neither an archive (tar) nor a folder with an OCI layout")]
    NotAnArchive,
    /// an archive that a program compressed
    #[error("it is compressed with {0}; a bundle is not: unpack it first")]
    Compressed(&'static str),
    /// the file ends too early
    #[error("it is cut off at byte {at}: it was not copied whole")]
    Truncated {
        /// where more was expected
        at: u64,
    },
    /// bytes behind the end of the archive
    #[error("something follows the archive's end")]
    TrailingBytes,
    /// a header of the archive that cannot be read
    #[error("the archive is damaged at byte {at}")]
    Header {
        /// where
        at: u64,
    },
    /// an entry that is no plain file or folder
    #[error("the archive's entry `{name}` is {kind}; a bundle holds plain files only")]
    EntryKind {
        /// its name
        name: String,
        /// what it is
        kind: &'static str,
    },
    /// an entry whose name leads elsewhere
    #[error("the archive's entry `{name}` has a name that leads out of it")]
    EntryName {
        /// its name
        name: String,
    },
    /// two entries of one name
    #[error("the archive has two entries `{name}`")]
    DuplicateEntry {
        /// their name
        name: String,
    },
    /// too many entries
    #[error("the archive has more than {limit} entries")]
    TooManyEntries {
        /// the bound
        limit: usize,
    },
    /// an archive of something else
    #[error("it is no OCI layout: it has no `{missing}`")]
    NotALayout {
        /// what is missing
        missing: &'static str,
    },
    /// a layout of another version
    #[error("its OCI layout has a version that is not known: {found}")]
    LayoutVersion {
        /// what it says
        found: String,
    },
    /// larger than what is read
    #[error("{what} has {} bytes; at most {} are read", .size, .limit)]
    TooLarge {
        /// what
        what: &'static str,
        /// its size
        size: u64,
        /// the bound
        limit: u64,
    },
    /// a document that is no JSON, or not that of its kind
    #[error("{what} cannot be read: {reason}")]
    Json {
        /// which document
        what: &'static str,
        /// why
        reason: String,
    },
    /// a document that two programs would read in two ways
    #[error("{what} has `layers` and `manifests`: it could be read as a manifest and as an index")]
    Ambiguous {
        /// which document
        what: &'static str,
    },
    /// a document of another type
    #[error("{what} is of the type `{found}`, not `{expected}`")]
    Type {
        /// which document
        what: &'static str,
        /// what it says
        found: String,
        /// what it should be
        expected: &'static str,
    },
    /// a digest of another kind
    #[error("`{found}` is no SHA-256 digest")]
    NoSha256 {
        /// what stands there
        found: String,
    },
    /// an artifact of another kind
    #[error("it holds no pipeline, but `{found}`")]
    NotAPipeline {
        /// its type
        found: String,
    },
    /// a model that others packed
    #[error(
        "it holds a model without a gpux.yml; `gpux new pipeline NAME --model FILE` makes a pipeline around a model"
    )]
    ModelAlone,
    /// nothing that is a pipeline
    #[error("none of what it holds is a pipeline: {found}")]
    NoPipeline {
        /// what it holds
        found: String,
    },
    /// more manifests than are read
    #[error(
        "it has more than {limit} manifests; take the pipeline's out, for example with `skopeo copy oci-archive:FILE:NAME oci-archive:NEW`"
    )]
    TooManyManifests {
        /// the bound
        limit: usize,
    },
    /// several pipelines
    #[error(
        "it holds several pipelines: {found}; take one out, for example with `skopeo copy oci-archive:FILE:NAME oci-archive:NEW`"
    )]
    SeveralPipelines {
        /// their names
        found: String,
    },
    /// made for a later version
    #[error("it needs a newer {what}: {found}, and this is {known}; update gpux")]
    Newer {
        /// of what
        what: &'static str,
        /// what it needs
        found: String,
        /// what there is
        known: String,
    },
    /// too many files
    #[error("it has {files} files; at most {limit} are taken")]
    TooManyFiles {
        /// how many
        files: usize,
        /// the bound
        limit: usize,
    },
    /// a path that may not be one
    #[error("`{path}` cannot be the path of a file: {reason}")]
    Path {
        /// the path
        path: String,
        /// why
        reason: &'static str,
    },
    /// two files of one path
    #[error("two of its files have the path `{path}`")]
    SamePath {
        /// the path
        path: String,
    },
    /// two paths that are one on some systems
    #[error("`{one}` and `{other}` differ by case only, which not every system can tell")]
    Case {
        /// one path
        one: String,
        /// the other
        other: String,
    },
    /// a file within a file
    #[error("`{file}` is a file, and the folder of `{path}`")]
    FileAsFolder {
        /// the file
        file: String,
        /// the file below it
        path: String,
    },
    /// a file that is packed in a way that is not read
    #[error("`{path}` is packed as `{found}`; only files as they are (`application/vnd.cncf.model.….raw`) are read")]
    FileType {
        /// its path
        path: String,
        /// its media type
        found: String,
    },
    /// a file that is not there
    #[error("`{path}` is not in it (sha256:{digest})")]
    MissingFile {
        /// its path
        path: String,
        /// its digest
        digest: String,
    },
    /// a file of another size
    #[error("`{path}` has {found} bytes, and should have {expected}")]
    WrongSize {
        /// its path
        path: String,
        /// what is there
        found: u64,
        /// what the manifest says
        expected: u64,
    },
    /// a file of another content
    #[error("`{path}` is damaged: its digest is not sha256:{digest}")]
    WrongDigest {
        /// its path
        path: String,
        /// what it should be
        digest: String,
    },
    /// code for a machine, or what runs code when it is read
    #[error("`{path}` is {what}, which never travels in a bundle: {instead}")]
    Forbidden {
        /// its path
        path: String,
        /// what it is
        what: &'static str,
        /// what to do instead
        instead: &'static str,
    },
    /// no room for it
    #[error("its files need {} in the store, and the disk has {} left; make room, or set GPUX_STORE to another disk", Size(*.needed), Size(*.free))]
    NoRoom {
        /// bytes that are needed
        needed: u64,
        /// bytes that are free
        free: u64,
    },
    /// it changed meanwhile
    #[error("`{path}` was changed while it was read; do it again")]
    Changed {
        /// its path
        path: String,
    },
}
