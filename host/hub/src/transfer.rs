//! What is told while a repository is fetched, and about it.

/// What happens while files are fetched.
pub trait TransferProgress {
    /// A file of `size` bytes begins, of which `done` are there.
    fn begin(&mut self, file: &str, size: u64, done: u64);
    /// So many bytes of it are there.
    fn advance(&mut self, done: u64);
    /// The file is there.
    fn end(&mut self);
    /// A part of the work that is worth a line.
    fn note(&mut self, text: &str);
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
