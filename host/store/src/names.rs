//! What a name means in the store.

use crate::error::StoreError;
use crate::pipeline::StoredPipeline;
use crate::store::Store;

/// What a digest begins with, where it stands for a pipeline.
pub const DIGEST_SCHEME: &str = "sha256:";
/// The fewest digits that stand for a whole digest.
const LEAST_DIGITS: usize = 12;
/// The longest name, in bytes.
const MAX_NAME: usize = 255;

/// Whether a pipeline may be called so in the store: what an OCI layout allows as a name, and no digest.
pub fn is_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric();
    let is_allowed = |c: char| is_plain(c) || "-._:@+/".contains(c);
    name.len() <= MAX_NAME
        && name.starts_with(is_plain)
        && name.ends_with(is_plain)
        && name.chars().all(is_allowed)
        && !name.contains("//")
        && !name.starts_with(DIGEST_SCHEME)
}

impl Store {
    /// The manifest's digest that `wanted` means, as its digits: a name; one without its version, if there is one
    /// version; or `sha256:` and the first digits of the digest, at least 12.
    pub fn resolve_digest(&self, wanted: &str) -> Result<Option<String>, StoreError> {
        if let Some(digits) = wanted.strip_prefix(DIGEST_SCHEME) {
            if digits.len() < LEAST_DIGITS {
                return Err(StoreError::ShortDigest { wanted: wanted.to_owned(), least: LEAST_DIGITS });
            }
            let found = self.manifests_like(digits)?;
            return only(wanted, found.into_iter().map(|digits| (format!("{DIGEST_SCHEME}{digits}"), digits)));
        }
        if let Some(digits) = self.named_digest(wanted)? {
            return Ok(Some(digits));
        }
        let is_version = |name: &str| {
            name.strip_prefix(wanted).and_then(|rest| rest.strip_prefix(':')).is_some_and(|version| !version.is_empty())
        };
        only(wanted, self.named_digests()?.into_iter().filter(|(name, _)| is_version(name)))
    }

    /// The digits of what a name means, of this very name.
    pub fn named_digest(&self, name: &str) -> Result<Option<String>, StoreError> {
        Ok(self.named_digests()?.into_iter().find(|(other, _)| other == name).map(|(_, digits)| digits))
    }

    /// Another name of what `wanted` [means](Self::resolve_digest), or its digest.
    pub fn other_name(&self, wanted: &str) -> Result<Option<String>, StoreError> {
        let Some(digits) = self.resolve_digest(wanted)? else { return Ok(None) };
        let mut names = self.named_digests()?.into_iter().filter(|(name, other)| *other == digits && name != wanted);
        Ok(Some(names.next().map_or_else(|| format!("{DIGEST_SCHEME}{digits}"), |(name, _)| name)))
    }

    /// The pipeline that `wanted` [means](Self::resolve_digest), whole.
    pub fn resolve(&self, wanted: &str) -> Result<Option<StoredPipeline>, StoreError> {
        let digits = self.resolve_digest(wanted)?;
        digits.map(|digits| self.pipeline(&digits)).transpose()
    }
}

fn only(wanted: &str, found: impl IntoIterator<Item = (String, String)>) -> Result<Option<String>, StoreError> {
    let found: Vec<_> = found.into_iter().collect();
    match found.as_slice() {
        [] => Ok(None),
        [(_, digits)] => Ok(Some(digits.clone())),
        several => Err(StoreError::Ambiguous {
            wanted: wanted.to_owned(),
            names: several.iter().map(|(name, _)| name.clone()).collect(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_a_layout() {
        for name in ["digits", "digits:1.0.0", "hf:BAAI/bge-base@main", "registry.example:5000/a/b:1.2+x"] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", ":1", "a b", "../x", "a//b", "a\n", "a:", "sha256:0123456789ab", &"a".repeat(256)] {
            assert!(!is_name(name), "{name}");
        }
    }
}
