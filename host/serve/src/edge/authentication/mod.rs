//! Authentication by API key.

pub(crate) mod api_keys;
pub(crate) mod failed_attempts;

use crate::engine::server::Server;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use http::Method;
use http::request::Parts;

use super::load_generation::LoadGeneration;
use crate::engine::error::ServeError;
use crate::engine::tenant::{Role, Tenant};
use api_keys::ApiKeys;
use failed_attempts::FailedAttempts;
use gpux_config::{LoadError, Variables};

/// The path of the metrics, for keys of admins and monitoring alone.
const METRICS: &str = "/metrics";

/// The keys file and its last valid content.
#[derive(Debug)]
pub(crate) struct Authentication {
    path: Option<PathBuf>,
    keys: ArcSwapOption<ApiKeys>,
    generation: LoadGeneration,
    attempts: FailedAttempts,
}

impl Authentication {
    /// Starts without keys: until [`Self::load`], every request that needs a key is rejected. If no keys file is
    /// configured, no request needs a key.
    pub(crate) fn new(server: &Server) -> Self {
        let path = server.settings().keys.clone();
        let (keys, generation, attempts) = (ArcSwapOption::empty(), LoadGeneration::default(), FailedAttempts::new());
        Self { path, keys, generation, attempts }
    }

    /// Reads the keys file, at the start and on reload; returns warnings for the operator. If it fails, the previous
    /// keys stay. Blocks on the file; of overlapping loads, the one that began last wins.
    pub(crate) fn load(&self) -> Result<Vec<String>, LoadError> {
        let Some(path) = &self.path else { return Ok(Vec::new()) };
        let attempt = self.generation.begin();
        let variables = Variables::of_operator(|name| std::env::var(name).ok());
        let keys = Arc::new(ApiKeys::load(path, &variables, self.keys.load().as_deref())?);
        attempt.commit(|| {
            if let Some(before) = self.keys.swap(Some(keys.clone())) {
                keys.replace(&before);
            }
        });
        Ok(keys.warnings().to_vec())
    }

    /// The number of tenants; 0 if no key is needed.
    pub(crate) fn tenant_count(&self) -> usize {
        self.keys.load().as_ref().map_or(0, |keys| keys.tenant_count())
    }

    /// The tenant of a request from this address; `None` if no key is needed.
    pub(crate) fn authenticate(&self, head: &Parts, from: Option<IpAddr>) -> Result<Option<Arc<Tenant>>, ServeError> {
        if self.path.is_none() || is_public(&head.method, head.uri.path()) {
            return Ok(None);
        }
        let keys = self.keys.load();
        let keys = keys.as_ref().ok_or_else(|| ServeError::NotReady("the keys are being read".to_owned()))?;
        self.identify(keys, head, from).map(Some)
    }

    /// The key's tenant. An address with too many failed attempts may only use keys that it has used before.
    fn identify(&self, keys: &ApiKeys, head: &Parts, from: Option<IpAddr>) -> Result<Arc<Tenant>, ServeError> {
        let found = keys.tenant(&head.headers);
        let Some(from) = from else { return found };
        let retry_after = self.attempts.retry_after(from, Instant::now());
        match (found, retry_after) {
            (Ok(tenant), Some(_)) if tenant.was_used_from(from) => Ok(tenant),
            (Ok(_) | Err(ServeError::UnknownKey(_)), Some(retry_after)) => Err(ServeError::TooMany {
                message: "too many wrong keys came from this address".to_owned(),
                retry_after: retry_after.max(Duration::from_secs(1)),
            }),
            (Ok(tenant), None) => {
                tenant.note_use_from(from);
                Ok(tenant)
            }
            (Err(ServeError::UnknownKey(_)), None) => {
                Err(ServeError::UnknownKey(self.attempts.add(from, Instant::now())))
            }
            (Err(missing), _) => Err(missing),
        }
    }
}

/// Fails if the tenant may not send this request.
pub(crate) fn authorize(tenant: &Tenant, head: &Parts) -> Result<(), ServeError> {
    let path = head.uri.path();
    let refusal = match (path == METRICS, tenant.role()) {
        (_, Role::Admin) | (true, Role::Metrics) => return Ok(()),
        (true, Role::User) => format!("`{METRICS}` is for keys with `admin: true` or `metrics: true`"),
        (false, Role::Metrics) => format!("a key with `metrics: true` may read `{METRICS}`, and nothing else"),
        (false, Role::User) if needs_admin(&head.method, path) => {
            format!("`{path}` is for keys with `admin: true`")
        }
        (false, Role::User) => return Ok(()),
    };
    Err(ServeError::Forbidden(refusal))
}

/// A warning if everybody on this machine may read the secret file.
#[cfg(unix)]
pub(crate) fn world_readable_warning(path: &Path) -> Option<String> {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = path.metadata().ok()?.permissions().mode();
    (mode & 0o004 != 0).then(|| format!("everybody on this machine may read `{}`: chmod 600 it", path.display()))
}

#[cfg(not(unix))]
pub(crate) fn world_readable_warning(_: &Path) -> Option<String> {
    None
}

/// Paths without authentication: probes, and the files of the page, which reveal nothing about pipelines.
fn is_public(method: &Method, path: &str) -> bool {
    let is_read = matches!(*method, Method::GET | Method::HEAD);
    match path {
        "/" | "/docs" => is_read,
        "/health" | "/health/live" | "/health/ready" | "/v2/health/live" | "/v2/health/ready" => true,
        "/inference.GRPCInferenceService/ServerLive" | "/inference.GRPCInferenceService/ServerReady" => true,
        "/grpc.health.v1.Health/Check" | "/grpc.health.v1.Health/Watch" => true,
        path => path.starts_with("/page/") && is_read,
    }
}

/// Paths for admin keys: loading and unloading.
fn needs_admin(method: &Method, path: &str) -> bool {
    match path {
        "/inference.GRPCInferenceService/RepositoryModelLoad"
        | "/inference.GRPCInferenceService/RepositoryModelUnload" => true,
        path => {
            let changes = path.ends_with("/load") || path.ends_with("/unload");
            path.starts_with("/v2/repository/") && changes && method == Method::POST
        }
    }
}
