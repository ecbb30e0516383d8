//! The operator's policy: the permissions of a gpux.yml.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::limits;
use gpux_config::{DirGrant, WasmLimits};
use gpux_sandbox::Limits;

/// The permissions of a gpux.yml.
///
/// Default: nothing outside the pipeline's folder, variables named `GPUX_*` that are no secrets, no grants,
/// components of at most 256 MiB and 10 s.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Policy {
    /// whether gpux.yml may name files outside its folder
    pub outside_files: bool,
    /// environment variables that gpux.yml may read beside those named `GPUX_*`
    pub env: Vec<String>,
    /// environment variables that files of the operator's own read; gpux.yml may not, unless they are in `env`
    pub reserved_env: Vec<String>,
    /// what gpux.yml may grant to components beside its own models
    pub grants: AllowedGrants,
    /// the upper bounds of components' limits
    pub ceiling: Limits,
}

impl Policy {
    /// Replaces the bounds that `limits` sets.
    #[doc(hidden)]
    pub fn set_ceiling(&mut self, limits: &WasmLimits) {
        self.ceiling = limits::apply(self.ceiling.clone(), limits);
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            outside_files: false,
            env: Vec::new(),
            reserved_env: Vec::new(),
            grants: AllowedGrants::default(),
            ceiling: Limits { memory: 256 << 20, time: Duration::from_secs(10), ..Limits::default() },
        }
    }
}

/// The grants that a gpux.yml may give to components. It may always grant its own models.
///
/// As a flag: `--allow clock,random,env=LANG,dir=./assets`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AllowedGrants {
    /// read the clock and wait
    pub clock: bool,
    /// draw random numbers
    pub random: bool,
    /// environment variables, by name
    pub env: Vec<String>,
    /// folders; a folder inside one of them is allowed, too
    pub dirs: Vec<AllowedDir>,
}

/// A folder that a pipeline may grant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllowedDir {
    /// absolute, or relative to the pipeline's folder
    pub path: PathBuf,
    /// whether it may be granted for writing
    pub writable: bool,
}

/// A part of `--allow` that names no grant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is nothing that can be allowed; write clock, random, env=NAME, dir=PATH or dir=PATH:rw, several with commas \
     (models and stdio always are; no grant opens the network)"
)]
pub struct ParseGrantsError(String);

impl AllowedGrants {
    /// Allows what `other` allows, too.
    pub fn extend(&mut self, other: Self) {
        self.clock |= other.clock;
        self.random |= other.random;
        self.env.extend(other.env);
        self.dirs.extend(other.dirs);
    }
}

impl FromStr for AllowedGrants {
    type Err = ParseGrantsError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut allow = Self::default();
        for word in text.split(',').map(str::trim) {
            match word.split_once('=') {
                None if word == "clock" => allow.clock = true,
                None if word == "random" => allow.random = true,
                None if word == "models" || word == "stdio" => {}
                Some(("env", name)) if !name.is_empty() => allow.env.push(name.to_owned()),
                Some(("dir", path)) if !path.is_empty() => {
                    let Ok(DirGrant { path, writable }) = path.parse();
                    allow.dirs.push(AllowedDir { path: path.into(), writable });
                }
                _ => return Err(ParseGrantsError(word.to_owned())),
            }
        }
        Ok(allow)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_comma_separated_grants() {
        let allow: AllowedGrants = "clock, env=LANG,dir=./out:rw,dir=/data:ro,models".parse().unwrap();
        assert!(allow.clock && !allow.random);
        assert_eq!(allow.env, ["LANG"]);
        let dir = |path: &str, writable| AllowedDir { path: path.into(), writable };
        assert_eq!(allow.dirs, [dir("./out", true), dir("/data", false)]);
        for wrong in ["network", "", "env=", "dir", "clock;random"] {
            assert_eq!(wrong.parse::<AllowedGrants>(), Err(ParseGrantsError(wrong.to_owned())));
        }
    }
}
