//! What the operator lets pipelines grant to components.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use gpux_config::DirGrant;

/// The operator's allowance: a gpux.yml may grant this, and models of its own, and nothing else.
///
/// As a flag: `--allow clock,random,env=LANG,dir=./assets`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allow {
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowedDir {
    /// absolute, or relative to the pipeline's folder
    pub path: PathBuf,
    /// whether it may be granted for writing
    pub writable: bool,
}

/// A word after `--allow` that means nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is nothing that can be allowed; write clock, random, env=NAME, dir=PATH or dir=PATH:rw, several with commas \
     (models and stdio always are; no grant opens the network)"
)]
pub struct NotAllowable(String);

impl Allow {
    /// Allows what `other` allows, too.
    pub fn extend(&mut self, other: Self) {
        self.clock |= other.clock;
        self.random |= other.random;
        self.env.extend(other.env);
        self.dirs.extend(other.dirs);
    }
}

impl fmt::Display for Allow {
    /// As [`FromStr`] reads it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags = [(self.clock, "clock"), (self.random, "random")];
        let flags = flags.into_iter().filter(|(set, _)| *set).map(|(_, name)| name.to_owned());
        let dir = |dir: &AllowedDir| format!("dir={}:{}", dir.path.display(), if dir.writable { "rw" } else { "ro" });
        let env = self.env.iter().map(|name| format!("env={name}"));
        let words: Vec<_> = flags.chain(env).chain(self.dirs.iter().map(dir)).collect();
        f.write_str(&words.join(","))
    }
}

impl FromStr for Allow {
    type Err = NotAllowable;

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
                _ => return Err(NotAllowable(word.to_owned())),
            }
        }
        Ok(allow)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flag_is_a_list() {
        let allow: Allow = "clock, env=LANG,dir=./out:rw,dir=/data:ro,models".parse().unwrap();
        assert!(allow.clock && !allow.random);
        assert_eq!(allow.env, ["LANG"]);
        assert_eq!(allow.to_string().parse(), Ok(allow.clone()));
        let dir = |path: &str, writable| AllowedDir { path: path.into(), writable };
        assert_eq!(allow.dirs, [dir("./out", true), dir("/data", false)]);
        for wrong in ["network", "", "env=", "dir", "clock;random"] {
            assert_eq!(wrong.parse::<Allow>(), Err(NotAllowable(wrong.to_owned())));
        }
    }
}
