//! `hf:OWNER/NAME[@REVISION]`.

use std::fmt;
use std::str::FromStr;

/// A repository of models on the hub, and which of its revisions.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HubReference {
    owner: String,
    name: String,
    revision: Option<String>,
}

/// Why a text is no [`HubReference`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{written}` names no model of the hub: {reason}; write `hf:OWNER/NAME`, or `hf:OWNER/NAME@REVISION`")]
pub struct ReferenceError {
    written: String,
    reason: &'static str,
}

/// The longest part of a reference, in bytes: as the hub has it.
const MAX_PART: usize = 96;
/// The longest revision, in bytes.
const MAX_REVISION: usize = 256;

impl HubReference {
    /// What such references begin with.
    pub const SCHEME: &'static str = "hf:";

    /// The repository, as `OWNER/NAME`.
    pub fn id(&self) -> String {
        format!("{}/{}", self.owner, self.name)
    }

    /// The repository's owner.
    pub fn owner(&self) -> &str {
        &self.owner
    }

    /// The repository's name without its owner.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The named revision: a branch, a tag or a commit.
    pub fn revision(&self) -> Option<&str> {
        self.revision.as_deref()
    }

    /// This revision of the same repository.
    #[must_use]
    pub fn at(&self, revision: &str) -> Self {
        Self { revision: Some(revision.to_owned()), ..self.clone() }
    }

    /// The same revision of another repository; `None` if that is no name of one.
    pub(crate) fn renamed(&self, id: &str) -> Option<Self> {
        let other: Self = format!("{}{id}", Self::SCHEME).parse().ok()?;
        (other.revision.is_none()).then_some(Self { revision: self.revision.clone(), ..other })
    }
}

impl FromStr for HubReference {
    type Err = ReferenceError;

    fn from_str(written: &str) -> Result<Self, ReferenceError> {
        let fault = |reason| ReferenceError { written: written.to_owned(), reason };
        let rest = written.strip_prefix(Self::SCHEME).ok_or_else(|| fault("it does not begin with `hf:`"))?;
        let rest = rest.strip_prefix("//").unwrap_or(rest);
        let (id, revision) = match rest.split_once('@') {
            Some((id, revision)) => (id, Some(revision)),
            None => (rest, None),
        };
        let (owner, name) = id.split_once('/').ok_or_else(|| fault("an owner and a name are needed"))?;
        if !is_part(owner) || !is_part(name) {
            return Err(fault("owner and name have letters, digits, `-`, `_` and `.` only"));
        }
        if revision.is_some_and(|revision| !is_revision(revision)) {
            return Err(fault("the revision is none"));
        }
        Ok(Self { owner: owner.to_owned(), name: name.to_owned(), revision: revision.map(str::to_owned) })
    }
}

/// As the hub checks names: no dot or hyphen at the ends, no two of them in a row.
fn is_part(part: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let ends = |c: char| part.starts_with(c) || part.ends_with(c);
    !part.is_empty()
        && part.len() <= MAX_PART
        && part.chars().all(is_allowed)
        && !ends('.')
        && !ends('-')
        && !part.contains("..")
        && !part.contains("--")
}

fn is_revision(revision: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/' | '+');
    let is_segment = |segment: &str| !segment.is_empty() && !segment.starts_with('.') && !segment.contains("..");
    revision.len() <= MAX_REVISION && revision.chars().all(is_allowed) && revision.split('/').all(is_segment)
}

impl fmt::Display for HubReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", Self::SCHEME, self.id())?;
        self.revision.iter().try_for_each(|revision| write!(f, "@{revision}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_references() {
        for text in ["hf:BAAI/bge-small-en-v1.5", "hf:a/b@main", "hf:a/b@refs/pr/3", "hf:a_/b.c@v1.0+cpu"] {
            assert_eq!(text.parse::<HubReference>().unwrap().to_string(), text);
        }
        assert_eq!("hf://a/b@x".parse::<HubReference>().unwrap().to_string(), "hf:a/b@x");
    }

    #[test]
    fn refuses_what_could_lead_elsewhere() {
        let long = format!("hf:a/{}", "b".repeat(97));
        for text in [
            "hf:bert",
            "hf:a/b/c",
            "hf:../b",
            "hf:a/..",
            "hf:a/b@../c",
            "hf:a/b@",
            "hf:a/b@x//y",
            "hf:a/b?x",
            "hf:a /b",
            "hf:a--b/c",
            "hf:a/b@-/../x",
            "a/b",
            "hf:/b",
            &long,
        ] {
            assert!(text.parse::<HubReference>().is_err(), "{text}");
        }
    }
}
