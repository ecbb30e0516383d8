//! Imports that the sandbox does not link, with the reason.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::grants::Capability;

/// Imports that are not linked, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// the interfaces, as the component names them
    pub imports: Vec<String>,
    /// why
    pub reason: RefusalReason,
}

/// Why an import is not linked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RefusalReason {
    /// it is not granted
    NotGranted(Capability),
    /// it never is, and why
    Never(Cow<'static, str>),
}

/// At most this many interfaces are named in a message.
const NAMED: usize = 3;

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown: Vec<_> = self.imports.iter().take(NAMED).map(|import| format!("`{import}`")).collect();
        write!(f, "this component imports {}", shown.join(", "))?;
        if self.imports.len() > NAMED {
            write!(f, " and {} more", self.imports.len() - NAMED)?;
        }
        match &self.reason {
            // Not all of them are streams, and none of them does anything by itself.
            RefusalReason::NotGranted(Capability::Stdio) => f.write_str(", and nothing of WASI is granted"),
            RefusalReason::NotGranted(capability) => write!(f, " to {}, which is not granted", capability.words()),
            RefusalReason::Never(why) => write!(f, ", which {why}"),
        }
    }
}
