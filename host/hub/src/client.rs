//! Asks the hub, within bounds. The token goes to the hub alone, whatever it redirects to.

use std::time::Duration;

use ureq::http::header::{AUTHORIZATION, CONTENT_RANGE, HeaderValue, LOCATION, RANGE, RETRY_AFTER};
use ureq::http::{HeaderMap, Response, Uri};
use ureq::{Agent, Body};

use crate::error::HubError;
use crate::http::{HttpLimits, http_agent, read_body};
use crate::settings::HubSettings;

/// How often a redirect is followed.
const MAX_REDIRECTS: usize = 5;
/// The most bytes of an answer of the API.
const MAX_ANSWER: u64 = 32 << 20;
const ANSWER_LIMIT: Duration = Duration::from_mins(1);
/// How long a body may bring nothing.
const STALL_LIMIT: Duration = Duration::from_secs(30);

/// A client of one hub.
#[derive(Debug)]
pub(crate) struct HubClient {
    agent: Agent,
    endpoint: String,
    origin: Uri,
    token: Option<HeaderValue>,
}

/// The body of a file, from `start` on.
pub(crate) struct FileBody {
    /// its first byte's place in the file
    pub(crate) start: u64,
    pub(crate) body: Body,
}

impl HubClient {
    pub(crate) fn new(settings: &HubSettings) -> Result<Self, HubError> {
        let endpoint = settings.endpoint.clone();
        let origin: Uri = endpoint.parse().map_err(|_| HubError::Endpoint(endpoint.clone()))?;
        let token = settings.token.as_ref().map(|token| HeaderValue::from_str(&format!("Bearer {token}")));
        let mut token = token.transpose().map_err(|_| HubError::Token)?;
        if let Some(token) = &mut token {
            token.set_sensitive(true);
        }

        let limits = HttpLimits { answer: ANSWER_LIMIT, stall: STALL_LIMIT, body: None };
        let certificates = |reason| HubError::Certificates { endpoint: endpoint.clone(), reason };
        let agent = http_agent(!endpoint.starts_with("http://"), limits).map_err(certificates)?;
        Ok(Self { agent, endpoint, origin, token })
    }

    pub(crate) const fn has_token(&self) -> bool {
        self.token.is_some()
    }

    /// What the API says about a revision of a repository, as JSON.
    pub(crate) fn model_info(&self, id: &str, revision: &str) -> Result<Vec<u8>, HubError> {
        let url = format!("{}/api/models/{id}/revision/{}?blobs=true", self.endpoint, percent_encoded(revision, false));
        let about = id;
        let response = self.get(&url.parse().map_err(|_| HubError::Endpoint(self.endpoint.clone()))?, None, about)?;
        if response.status().is_redirection() {
            let to = location(&response).unwrap_or_default();
            let path = to.split(['?', '#']).next().unwrap_or_default();
            let renamed = path.split_once("/api/models/").and_then(|(_, rest)| {
                let mut parts = rest.split('/');
                Some(format!("{}/{}", parts.next()?, parts.next()?))
            });
            return Err(match renamed {
                Some(to) if to != id => HubError::Renamed { id: id.to_owned(), to },
                _ => HubError::Redirect {
                    about: about.to_owned(),
                    why: "elsewhere, where its answer is not looked for".to_owned(),
                },
            });
        }
        self.check(&response, &self.origin, id, revision, None)?;
        let bytes = read_body(response, MAX_ANSWER).map_err(|error| unreachable(&self.origin, &error))?;
        let reason = || format!("it is longer than {} MiB", MAX_ANSWER >> 20);
        bytes.ok_or_else(|| HubError::Answer { about: id.to_owned(), reason: reason() })
    }

    /// A file of a commit, from `start` on if the server can do that.
    pub(crate) fn file(&self, id: &str, commit: &str, file: &str, start: u64) -> Result<FileBody, HubError> {
        let url = format!("{}/{id}/resolve/{commit}/{}", self.endpoint, percent_encoded(file, true));
        let mut uri: Uri = url.parse().map_err(|_| HubError::Endpoint(self.endpoint.clone()))?;
        for _ in 0..=MAX_REDIRECTS {
            let response = self.get(&uri, (start > 0).then_some(start), file)?;
            if response.status().is_redirection() {
                uri = redirected(&uri, &response, file)?;
                continue;
            }
            if response.status() == 416 {
                // What is there already is no part of this file, or all of it.
                return Ok(FileBody { start: u64::MAX, body: response.into_body() });
            }
            self.check(&response, &uri, id, commit, Some(file))?;
            let from = if response.status() == 206 { range_start(response.headers(), file)? } else { 0 };
            return Ok(FileBody { start: from, body: response.into_body() });
        }
        Err(HubError::Redirect { about: file.to_owned(), why: format!("more than {MAX_REDIRECTS} times") })
    }

    fn get(&self, uri: &Uri, start: Option<u64>, about: &str) -> Result<Response<Body>, HubError> {
        let mut request = self.agent.get(uri);
        if let Some(start) = start {
            request = request.header(RANGE, format!("bytes={start}-"));
        }
        if let Some(token) = self.token.as_ref().filter(|_| is_same_origin(uri, &self.origin)) {
            request = request.header(AUTHORIZATION, token);
        }
        request.call().map_err(|error| match error {
            ureq::Error::LargeResponseHeader(..) | ureq::Error::Http(_) | ureq::Error::Protocol(_) => {
                HubError::Answer { about: about.to_owned(), reason: error.to_string() }
            }
            error => unreachable(uri, &error),
        })
    }

    /// Refuses statuses of failure; the hub says what is missing in a header.
    fn check(
        &self,
        response: &Response<Body>,
        uri: &Uri,
        id: &str,
        revision: &str,
        file: Option<&str>,
    ) -> Result<(), HubError> {
        let status = response.status().as_u16();
        if matches!(status, 200 | 206) {
            return Ok(());
        }
        let code = header(response.headers(), "x-error-code").unwrap_or_default();
        let (id, with_token) = (id.to_owned(), self.has_token());
        let is_hub = is_same_origin(uri, &self.origin);
        Err(match (code, status) {
            ("GatedRepo", _) => HubError::Gated { id, endpoint: self.endpoint.clone(), with_token },
            ("RepoNotFound", _) => HubError::NoRepository { id, with_token },
            ("RevisionNotFound", _) => HubError::NoRevision { id, revision: revision.to_owned() },
            ("EntryNotFound", _) if let Some(file) = file => HubError::NoFile { id, file: file.to_owned() },
            (_, 401) if is_hub && with_token => HubError::Unauthorized,
            // The hub answers 401 for what is not there, so that nobody learns what is private.
            (_, 401 | 404) if is_hub && file.is_none() => HubError::NoRepository { id, with_token },
            _ => HubError::Status {
                about: file.unwrap_or(&id).to_owned(),
                host: host(uri),
                status,
                after: header(response.headers(), RETRY_AFTER.as_str()).and_then(|seconds| seconds.parse().ok()),
            },
        })
    }
}

fn unreachable(uri: &Uri, error: &dyn std::error::Error) -> HubError {
    HubError::Unreachable { host: host(uri), reason: error.to_string() }
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

fn location(response: &Response<Body>) -> Option<&str> {
    header(response.headers(), LOCATION.as_str())
}

fn host(uri: &Uri) -> String {
    uri.authority().map_or_else(String::new, |authority| authority.host().to_owned())
}

fn is_same_origin(one: &Uri, other: &Uri) -> bool {
    let port = |uri: &Uri| uri.port_u16().or(if uri.scheme_str() == Some("https") { Some(443) } else { Some(80) });
    one.scheme() == other.scheme() && one.host() == other.host() && port(one) == port(other)
}

/// Where a file is redirected to: another path, or another host, but never from TLS to none.
fn redirected(from: &Uri, response: &Response<Body>, about: &str) -> Result<Uri, HubError> {
    let fail = |why: &str| HubError::Redirect { about: about.to_owned(), why: why.to_owned() };
    let to = location(response).ok_or_else(|| fail("to nowhere: there is no `Location`"))?;
    let absolute = match (from.scheme_str(), from.authority()) {
        (Some(scheme), Some(authority)) if to.starts_with('/') && !to.starts_with("//") => {
            format!("{scheme}://{authority}{to}")
        }
        _ => to.to_owned(),
    };
    let uri: Uri = absolute.parse().map_err(|_| fail("to what is no address"))?;
    match (from.scheme_str(), uri.scheme_str()) {
        (_, Some("https")) | (Some("http"), Some("http")) if uri.host().is_some() => Ok(uri),
        (Some("https"), Some("http")) => Err(fail("from https to http, which anybody on the way could change")),
        _ => Err(fail("to what is neither http nor https")),
    }
}

/// Where a part begins: `bytes 10-99/100`.
fn range_start(headers: &HeaderMap, file: &str) -> Result<u64, HubError> {
    let range = header(headers, CONTENT_RANGE.as_str());
    let start = range.and_then(|range| range.strip_prefix("bytes ")?.split('-').next()?.parse().ok());
    let unusable =
        || HubError::Answer { about: file.to_owned(), reason: "its part says not where it begins".to_owned() };
    start.ok_or_else(unusable)
}

/// `text` for the path of an address.
fn percent_encoded(text: &str, keeps_slashes: bool) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        let is_plain = byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) || keeps_slashes && byte == b'/';
        if is_plain { encoded.push(char::from(byte)) } else { encoded += &format!("%{byte:02X}") }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(name: &str, value: &str) -> Response<Body> {
        Response::builder().status(302).header(name, value).body(Body::builder().data("")).unwrap()
    }

    #[test]
    fn follows_redirects_to_no_weaker_address() {
        let to = |from: &str, to: &str| {
            let uri = redirected(&from.parse().unwrap(), &answer("location", to), "f");
            uri.map(|uri| uri.to_string()).map_err(|error| error.to_string())
        };
        assert_eq!(to("https://hub/a", "https://other/b?c=d").unwrap(), "https://other/b?c=d");
        assert_eq!(to("https://hub:8443/a", "/b").unwrap(), "https://hub:8443/b");
        assert_eq!(to("http://hub/a", "http://other/b").unwrap(), "http://other/b");
        assert!(to("https://hub/a", "http://hub/a").unwrap_err().contains("from https to http"));
        for odd in ["ftp://other/b", "//other/b", "b", "javascript:x", ""] {
            assert!(to("http://hub/a", odd).is_err(), "{odd}");
        }
        assert!(redirected(&"https://hub".parse().unwrap(), &answer("x", "y"), "f").is_err());
    }

    #[test]
    fn knows_the_origin_that_gets_the_token() {
        let same = |one: &str, other: &str| is_same_origin(&one.parse().unwrap(), &other.parse().unwrap());
        assert!(same("https://hub/a", "https://hub:443/b"));
        for other in ["http://hub/a", "https://hub:8443/a", "https://hub.evil/a", "https://evil/hub"] {
            assert!(!same("https://hub/a", other), "{other}");
        }
    }

    #[test]
    fn reads_where_a_part_begins() {
        let start = |value: &str| range_start(answer("content-range", value).headers(), "f").ok();
        assert_eq!(start("bytes 10-99/100"), Some(10));
        assert_eq!((start("bytes */100"), start("items 1-2/3"), start("")), (None, None, None));
        assert_eq!(percent_encoded("refs/pr/1 ü", false), "refs%2Fpr%2F1%20%C3%BC");
        assert_eq!(percent_encoded("onnx/a+b", true), "onnx/a%2Bb");
    }
}
