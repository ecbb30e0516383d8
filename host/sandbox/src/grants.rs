//! Grants: the capabilities of a component beyond computation.

use std::fmt;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::json;

use gpux_core::files::{identity, open_canonical, resolve_path};

/// In the place of a model's name: a component that is only described may name any.
pub(super) const ANY_MODEL: &str = "";

/// What a component may reach beyond computing and the built-in steps. Nothing by default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grants {
    /// Models of this pipeline that it may run, by name: `models: [NAME]`.
    pub models: Vec<String>,
    /// Read the time of day, measure time and wait: `wasi: [clock]`. A clock can measure what a
    /// neighbour does to the processor's caches.
    pub clock: bool,
    /// Draw random numbers: `wasi: [random]`. Its results are then no longer a function of its
    /// inputs.
    pub random: bool,
    /// Have the standard streams that a toolchain links by habit: `wasi: [stdio]`. Output becomes
    /// log lines; input is empty; nothing is reached. Any other part of WASI brings it along.
    pub stdio: bool,
    /// Environment variables that it may read: `env: [NAME]`.
    pub env: Vec<EnvGrant>,
    /// Folders that it may open: `dirs: [./assets:ro]`.
    pub dirs: Vec<FolderGrant>,
}

/// An environment variable that a component may read.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnvGrant {
    /// its name
    pub name: String,
    /// its value; `None` if it is not set
    pub value: Option<String>,
}

/// A folder that a component may open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FolderGrant {
    /// the path that the component knows it by: as written in gpux.yml
    pub name: String,
    /// where it is
    pub folder: PathBuf,
    /// whether files in it may be made, changed and removed
    pub writable: bool,
    /// the folder itself, open since it was checked: another that lies there by now is not granted. `None` opens
    /// whatever lies at `folder` when the step is loaded
    #[serde(skip)]
    pub opened: Option<OpenFolder>,
}

/// A folder that is held open.
#[derive(Clone, Debug)]
pub struct OpenFolder(Arc<File>);

impl OpenFolder {
    /// The open folder.
    pub fn file(&self) -> &File {
        &self.0
    }

    /// What tells it from every other folder while it is open; `None` if the system does not say.
    pub(super) fn identity(&self) -> Option<(u64, u64)> {
        identity(&self.0).ok()
    }
}

impl From<File> for OpenFolder {
    fn from(file: File) -> Self {
        Self(Arc::new(file))
    }
}

impl PartialEq for OpenFolder {
    fn eq(&self, other: &Self) -> bool {
        self.identity() == other.identity()
    }
}

impl Eq for OpenFolder {}

impl FolderGrant {
    /// Opens the folder if it is not open, by its path, without following links. In a process other than the
    /// one that checked it, it must be the one with this `identity`.
    pub(super) fn open(&mut self, known: Option<(u64, u64)>) -> std::io::Result<&OpenFolder> {
        let folder = match self.opened.take() {
            Some(folder) => folder,
            None => OpenFolder::from(open_canonical(&resolve_path(&self.folder)?)?),
        };
        if known.is_some() && folder.identity() != known {
            return Err(std::io::Error::other("another folder lies there than the one that was checked"));
        }
        Ok(self.opened.insert(folder))
    }
}

impl Grants {
    /// Whether anything of WASI is granted. If not, nothing of it is linked.
    pub const fn any_wasi(&self) -> bool {
        self.clock || self.random || self.stdio || !self.env.is_empty() || !self.dirs.is_empty()
    }

    /// As in gpux.yml; values of variables are left out, since they may be secrets.
    pub fn to_json(&self) -> serde_json::Value {
        let wasi = [(self.clock, "clock"), (self.random, "random"), (self.stdio, "stdio")];
        json!({
            "models": self.models,
            "wasi": wasi.iter().filter_map(|(granted, part)| granted.then_some(*part)).collect::<Vec<_>>(),
            "env": self.env.iter().map(|env| env.name.as_str()).collect::<Vec<_>>(),
            "dirs": self.dirs.iter().map(ToString::to_string).collect::<Vec<_>>(),
        })
    }

    /// Whether `capability` is granted by its own name.
    pub const fn allows(&self, capability: Capability) -> bool {
        match capability {
            Capability::Models => !self.models.is_empty(),
            Capability::Clock => self.clock,
            Capability::Random => self.random,
            Capability::Environment => !self.env.is_empty(),
            Capability::Files => !self.dirs.is_empty(),
            Capability::Stdio => self.stdio,
        }
    }
}

impl fmt::Debug for EnvGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl fmt::Display for FolderGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.name, if self.writable { "rw" } else { "ro" })
    }
}

/// A capability that must be granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Capability {
    /// run models of the pipeline
    Models,
    /// read the clock and wait
    Clock,
    /// draw random numbers
    Random,
    /// see environment variables
    Environment,
    /// read and write files
    Files,
    /// have the streams and the exit of a program, which lead nowhere but to the log
    Stdio,
}

impl Capability {
    /// Every capability.
    pub const ALL: [Self; 6] = [Self::Models, Self::Clock, Self::Random, Self::Environment, Self::Files, Self::Stdio];

    /// In plain words, after "it can".
    pub const fn words(self) -> &'static str {
        match self {
            Self::Models => "run models",
            Self::Clock => "read the clock",
            Self::Random => "draw random numbers",
            Self::Environment => "see the environment",
            Self::Files => "read files",
            Self::Stdio => "use standard streams",
        }
    }

    /// The grant in gpux.yml that gives it; a name in capitals is to be filled in.
    pub const fn grant(self) -> &'static str {
        match self {
            Self::Models => "models: [NAME]",
            Self::Clock => "wasi: [clock]",
            Self::Random => "wasi: [random]",
            Self::Environment => "env: [NAME]",
            Self::Files => "dirs: [./FOLDER]",
            Self::Stdio => "wasi: [stdio]",
        }
    }

    /// The value of `--allow` that permits it; `None` if every pipeline may grant it.
    pub const fn allow(self) -> Option<&'static str> {
        match self {
            Self::Models | Self::Stdio => None,
            Self::Clock => Some("clock"),
            Self::Random => Some("random"),
            Self::Environment => Some("env=NAME"),
            Self::Files => Some("dir=./FOLDER"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_serialize_without_secret_values() {
        let grants = Grants {
            models: vec!["rec".to_owned()],
            clock: true,
            stdio: true,
            env: vec![EnvGrant { name: "TOKEN".to_owned(), value: Some("hunter2".to_owned()) }],
            dirs: vec![FolderGrant { name: "./out".to_owned(), folder: "/x/out".into(), writable: true, opened: None }],
            ..Grants::default()
        };
        let json = serde_json::json!({
            "models": ["rec"], "wasi": ["clock", "stdio"], "env": ["TOKEN"], "dirs": ["./out:rw"]
        });
        assert_eq!(grants.to_json(), json);
        assert!(!format!("{grants:?}").contains("hunter2"));
        assert!(grants.any_wasi() && !Grants::default().any_wasi());
    }
}
