//! The variables by which users of the hub know its client.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

use gpux_core::hub_folders;

use crate::error::HubError;

/// Where the hub is, and how it is asked.
#[derive(Clone)]
pub struct HubSettings {
    /// `HF_ENDPOINT`, without a slash at its end
    pub endpoint: String,
    /// `HF_TOKEN`, else the content of the token's file
    pub(crate) token: Option<String>,
    /// `HF_HUB_OFFLINE`: only what lies on this machine is used
    pub offline: bool,
    /// the caches of the hub's own client on this machine
    pub caches: Vec<PathBuf>,
    /// whether a repository that has another name now is taken by that
    pub follows_renames: bool,
    /// how many files are fetched at a time
    pub jobs: usize,
}

impl fmt::Debug for HubSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { endpoint, token: _, offline, caches, follows_renames: _, jobs: _ } = self;
        let mut fields = f.debug_struct("HubSettings");
        fields.field("endpoint", endpoint).field("offline", offline).field("caches", caches).finish_non_exhaustive()
    }
}

/// The hub that is asked without `HF_ENDPOINT`.
const ENDPOINT: &str = "https://huggingface.co";
/// How many files are fetched at a time, unless somebody says otherwise.
const JOBS: usize = 4;
/// The most bytes of a token's file that are read.
const MAX_TOKEN: usize = 4096;

impl HubSettings {
    /// As the environment has them.
    pub fn from_environment() -> Result<Self, HubError> {
        Self::read(&|name| std::env::var_os(name).filter(|value| !value.is_empty()), hub_folders())
    }

    fn read(variable: &dyn Fn(&str) -> Option<OsString>, caches: Vec<PathBuf>) -> Result<Self, HubError> {
        let text = |name: &str| variable(name).map(|value| value.to_string_lossy().into_owned());
        let endpoint = text("HF_ENDPOINT").unwrap_or_else(|| ENDPOINT.to_owned());
        let endpoint = endpoint.trim_end_matches('/').to_owned();
        let rest = endpoint.strip_prefix("https://").or_else(|| endpoint.strip_prefix("http://"));
        if rest.is_none_or(|rest| rest.is_empty() || rest.contains(['?', '#', '@', ' '])) {
            return Err(HubError::Endpoint(endpoint));
        }

        let home = || variable("HF_HOME").map(PathBuf::from).or_else(default_home);
        let file = variable("HF_TOKEN_PATH").map(PathBuf::from).or_else(|| Some(home()?.join("token")));
        let named = text("HF_TOKEN").or_else(|| text("HUGGING_FACE_HUB_TOKEN"));
        let kept = || {
            let head = gpux_core::files::read_head(&file?, MAX_TOKEN)?;
            String::from_utf8(head).ok()
        };
        let token = named.or_else(kept).map(|token| token.trim().to_owned()).filter(|token| !token.is_empty());
        if token.as_ref().is_some_and(|token| !token.bytes().all(|byte| byte.is_ascii_graphic())) {
            return Err(HubError::Token);
        }

        let is_true =
            |name| text(name).is_some_and(|value| ["1", "on", "yes", "true"].contains(&&*value.to_lowercase()));
        let offline = is_true("HF_HUB_OFFLINE") || is_true("TRANSFORMERS_OFFLINE");
        Ok(Self { endpoint, token, offline, caches, follows_renames: false, jobs: JOBS })
    }
}

/// `$XDG_CACHE_HOME/huggingface`, else that of the home folder.
fn default_home() -> Option<PathBuf> {
    // The first folder is that of `HF_HUB_CACHE` or `HF_HOME`, the last that of the home folder.
    Some(hub_folders().pop()?.parent()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<HubSettings, HubError> {
        let variable =
            |name: &str| variables.iter().find(|(other, _)| *other == name).map(|(_, value)| OsString::from(value));
        HubSettings::read(&variable, Vec::new())
    }

    #[test]
    fn reads_the_variables_of_the_hubs_client() {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join("token"), "hf_kept\n").unwrap();
        let home = home.path().to_str().unwrap();
        let settings = read(&[("HF_ENDPOINT", "http://mirror:8000/"), ("HF_HOME", home)]).unwrap();
        assert_eq!((&*settings.endpoint, settings.token.as_deref()), ("http://mirror:8000", Some("hf_kept")));
        assert!(!settings.offline);
        let settings = read(&[("HF_TOKEN", "hf_x"), ("HF_HOME", home), ("HF_HUB_OFFLINE", "TRUE")]).unwrap();
        assert_eq!((&*settings.endpoint, settings.token.as_deref(), settings.offline), (ENDPOINT, Some("hf_x"), true));
        assert!(!format!("{settings:?}").contains("hf_x"));
    }

    #[test]
    fn refuses_what_cannot_be_asked() {
        for endpoint in ["mirror", "ftp://x", "https://", "https://a@b", "https://x/?y"] {
            assert!(matches!(read(&[("HF_ENDPOINT", endpoint)]), Err(HubError::Endpoint(_))), "{endpoint}");
        }
        assert!(matches!(read(&[("HF_TOKEN", "a\nb")]), Err(HubError::Token)));
    }
}
