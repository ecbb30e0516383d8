use std::fmt;

/// Why a step gives no result. The text is for people: what is wrong, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The caller's fault: what it gave cannot be worked on. The request is answered with this.
    InvalidInput(String),
    /// The step's own fault.
    Failed(String),
}

impl Error {
    /// The caller's fault.
    pub fn invalid(why: impl Into<String>) -> Self {
        Self::InvalidInput(why.into())
    }

    /// The step's fault.
    pub fn failed(why: impl Into<String>) -> Self {
        Self::Failed(why.into())
    }

    /// What is wrong, whoever's fault it is.
    pub fn message(&self) -> &str {
        match self {
            Self::InvalidInput(why) | Self::Failed(why) => why,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message())
    }
}

impl std::error::Error for Error {}
