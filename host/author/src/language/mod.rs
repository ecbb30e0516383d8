//! The languages that a step can be written in: a template and a recipe each.
//!
//! A new language is a folder of `host/author/templates/` (`build.rs` embeds it, with the files that it takes
//! from elsewhere), a file beside this one, and its line in [`Language`]'s methods.

mod c;
mod javascript;
mod python;
mod rust;

use std::fmt;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::build_error::BuildError;
use super::fingerprint::Fingerprint;
use super::template::{TemplateFile, embedded};
use super::tool::Tool;
use super::workspace::Workspace;

/// A language that a step can be written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum Language {
    /// Rust, with the crate `gpux-step`
    Rust,
    /// C, with the header `gpux_step.h`
    C,
    /// JavaScript, with the package `gpux-step`
    #[serde(rename = "js")]
    JavaScript,
    /// Python, with the package `gpux_step`
    Python,
}

impl Language {
    /// Every language.
    pub const ALL: [Self; 4] = [Self::Rust, Self::C, Self::JavaScript, Self::Python];

    /// Its name in step.yml and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rust => "rust",
            Self::C => "c",
            Self::JavaScript => "js",
            Self::Python => "python",
        }
    }

    /// The tools that building a step needs.
    pub const fn tools(self) -> &'static [Tool] {
        match self {
            Self::Rust => rust::TOOLS,
            Self::C => c::TOOLS,
            Self::JavaScript => javascript::TOOLS,
            Self::Python => python::TOOLS,
        }
    }

    /// The files of a new step's folder.
    pub(super) const fn template(self) -> &'static [TemplateFile] {
        match self {
            Self::Rust => embedded::RUST,
            Self::C => embedded::C,
            Self::JavaScript => embedded::JS,
            Self::Python => embedded::PYTHON,
        }
    }

    /// Sees to what the build needs beside its tools.
    pub(super) fn prepare(self, workspace: &mut Workspace<'_>) -> Result<(), BuildError> {
        match self {
            Self::JavaScript => javascript::prepare(workspace),
            Self::Rust | Self::C | Self::Python => Ok(()),
        }
    }

    /// The fingerprint with everything that the build reads in the step's folder, but for `output`, and around it.
    /// `None` where that is not known: Cargo itself knows best whether something has changed.
    pub(super) fn fingerprint(
        self,
        workspace: &Workspace<'_>,
        fingerprint: Fingerprint,
        output: &Path,
    ) -> Option<Fingerprint> {
        let sources = |fingerprint: Fingerprint| fingerprint.with_sources(workspace.folder(), output);
        match self {
            Self::Rust => None,
            Self::C => sources(fingerprint),
            Self::JavaScript => javascript::fingerprint(workspace, sources(fingerprint)?),
            Self::Python => Some(python::fingerprint(workspace, sources(fingerprint)?)),
        }
    }

    /// Builds the step of a folder: the bytes of a component, or of a core module that carries its
    /// contract.
    pub(super) fn build(self, workspace: &mut Workspace<'_>) -> Result<Vec<u8>, BuildError> {
        match self {
            Self::Rust => rust::build(workspace),
            Self::C => c::build(workspace),
            Self::JavaScript => javascript::build(workspace),
            Self::Python => python::build(workspace),
        }
    }
}

impl fmt::Display for Language {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
