//! Execution providers from libraries of their own, which the operator names.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use super::ExecutionProvider;

/// The names that the operator gave. They are few, and live as long as the process.
static NAMES: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());

/// The operator's name for the provider of a library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PluginName(&'static str);

impl PluginName {
    /// The plug-in of this name, if the operator has named one.
    pub(super) fn known(name: &str) -> Option<Self> {
        let names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
        names.iter().find(|known| known.eq_ignore_ascii_case(name)).map(|known| Self(known))
    }

    /// A new name for a plug-in: letters, digits and hyphens.
    fn register(name: &str) -> Result<Self, String> {
        let sound = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if name.is_empty() || name.len() > 64 || !name.chars().all(sound) {
            return Err(format!("`{name}` cannot be the name of a provider; use letters, digits and hyphens"));
        }
        if ["auto", "fastest"].iter().any(|word| word.eq_ignore_ascii_case(name)) {
            return Err(format!("`{name}` means a choice of providers; give the library another name"));
        }
        let kept: &'static str = Box::leak(name.to_owned().into_boxed_str());
        NAMES.lock().unwrap_or_else(PoisonError::into_inner).push(kept);
        Ok(Self(kept))
    }

    /// The name.
    pub const fn as_str(self) -> &'static str {
        self.0
    }
}

/// A library that holds an execution provider: a plug-in of ONNX Runtime.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "LibraryRecord", into = "LibraryRecord")]
pub struct ProviderLibrary {
    /// the provider: one of ONNX Runtime's own, or another under the operator's name
    pub provider: ExecutionProvider,
    /// the library
    pub path: PathBuf,
    /// whether the operator named it: then it must work
    pub is_required: bool,
}

/// How a [`ProviderLibrary`] travels to a child process: reading it makes the name known there.
#[derive(Serialize, Deserialize)]
struct LibraryRecord {
    name: String,
    path: PathBuf,
    is_required: bool,
}

impl TryFrom<LibraryRecord> for ProviderLibrary {
    type Error = String;

    fn try_from(LibraryRecord { name, path, is_required }: LibraryRecord) -> Result<Self, String> {
        Ok(Self { provider: provider_of(&name)?, path, is_required })
    }
}

impl From<ProviderLibrary> for LibraryRecord {
    fn from(library: ProviderLibrary) -> Self {
        let ProviderLibrary { provider, path, is_required } = library;
        Self { name: provider.short_name().to_owned(), path, is_required }
    }
}

/// The provider of this name: ONNX Runtime's own, else one whose name is registered now.
fn provider_of(name: &str) -> Result<ExecutionProvider, String> {
    match name.parse() {
        Ok(ExecutionProvider::Cpu) => Err("the CPU needs no library of its own".to_owned()),
        Ok(provider) => Ok(provider),
        Err(_) => PluginName::register(name).map(ExecutionProvider::Plugin),
    }
}

impl fmt::Display for ProviderLibrary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.provider, self.path.display())
    }
}

impl FromStr for ProviderLibrary {
    type Err = String;

    /// Reads `NAME=PATH`; from then on, the name is one of an execution provider.
    fn from_str(text: &str) -> Result<Self, String> {
        let (name, path) = text.split_once('=').ok_or("write NAME=PATH, for example `npu=/opt/npu/libnpu_ep.so`")?;
        if path.is_empty() {
            return Err(format!("`{name}` needs the path of its library"));
        }
        Ok(Self { provider: provider_of(name)?, path: path.into(), is_required: true })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn registers_named_libraries_as_providers() {
        assert!("test-plugin".parse::<ExecutionProvider>().is_err());
        let library: ProviderLibrary = "test-plugin=/opt/lib.so".parse().unwrap();
        let provider: ExecutionProvider = "Test-Plugin".parse().unwrap();
        assert_eq!(provider, library.provider);
        assert_eq!(serde_json::to_string(&provider).unwrap(), "\"test-plugin\"");
        let text = serde_json::to_string(&library).unwrap();
        assert_eq!(serde_json::from_str::<ProviderLibrary>(&text).unwrap(), library);
        let own: ProviderLibrary = "OpenVINO=/opt/openvino.so".parse().unwrap();
        assert_eq!((own.provider, own.is_required), (ExecutionProvider::OpenVino, true));
        for (wrong, why) in [
            ("cpu=x", "the CPU needs no library"),
            ("auto=x", "means a choice of providers"),
            ("a b=x", "cannot be the name"),
            ("x", "write NAME=PATH"),
            ("x=", "needs the path"),
        ] {
            assert!(wrong.parse::<ProviderLibrary>().unwrap_err().contains(why), "{wrong}");
        }
    }
}
