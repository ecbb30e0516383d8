//! What is told while a repository is fetched, and about it.

/// What happens while files are fetched, several at a time.
pub trait TransferProgress: Sync {
    /// A file of `size` bytes begins, of which `done` are there. It ends when the result is dropped.
    fn begin(&self, file: &str, size: u64, done: u64) -> Box<dyn FileProgress>;
    /// A part of the work that is worth a line.
    fn note(&self, text: &str);
}

/// What happens while one file is fetched.
pub trait FileProgress {
    /// So many bytes of it are there.
    fn advance(&self, done: u64);
}

/// What is known about a repository beside its files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepositoryFacts {
    /// its name, for people
    pub name: String,
    /// the task that its author or the hub gave it
    pub pipeline_tag: Option<String>,
    /// the licence that its card names
    pub license: Option<String>,
    /// its commit
    pub commit: Option<String>,
}
