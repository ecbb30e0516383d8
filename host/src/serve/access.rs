//! Which requests are let in.

use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use http::Method;
use http::request::Parts;

use super::error::ServeError;
use super::readings::Readings;
use super::tenants::{Keys, Tenant};
use crate::config::LoadError;

/// The door: the file of keys, and what it said when it was last read.
#[derive(Debug)]
pub(super) struct Access {
    path: Option<PathBuf>,
    keys: ArcSwapOption<Keys>,
    readings: Readings,
}

impl Access {
    /// Keys from this file, once they are read; until then nobody has one. Without a file, everybody
    /// may come in.
    pub(super) fn new(path: Option<PathBuf>) -> Self {
        Self { path, keys: ArcSwapOption::empty(), readings: Readings::default() }
    }

    /// Reads the file, at the start and again. If it cannot be read, what it said before holds. Gives
    /// what the operator should know of it. It takes as long as reading does, and what was begun later holds.
    pub(super) fn load(&self) -> Result<Vec<String>, LoadError> {
        let Some(path) = &self.path else { return Ok(Vec::new()) };
        let reading = self.readings.begin();
        let keys = Arc::new(Keys::load(path, self.keys.load().as_deref())?);
        reading.put(|| {
            if let Some(before) = self.keys.swap(Some(keys.clone())) {
                keys.replace(&before);
            }
        });
        Ok(keys.warnings().to_vec())
    }

    /// Whose request it is; `None` where nobody is asked for a key.
    pub(super) fn admit(&self, head: &Parts) -> Result<Option<Arc<Tenant>>, ServeError> {
        if self.path.is_none() || is_open(&head.method, head.uri.path()) {
            return Ok(None);
        }
        let keys = self.keys.load();
        let keys = keys.as_ref().ok_or_else(|| ServeError::NotReady("the keys are being read".to_owned()))?;
        let tenant = keys.tenant(&head.headers)?;
        if needs_admin(&head.method, head.uri.path()) && !tenant.is_admin() {
            return Err(ServeError::Forbidden(format!("`{}` is for keys with `admin: true`", head.uri.path())));
        }
        Ok(Some(tenant))
    }
}

/// What probes ask, and the files of the page, which say nothing of the pipelines.
fn is_open(method: &Method, path: &str) -> bool {
    let is_read = matches!(*method, Method::GET | Method::HEAD);
    match path {
        "/" | "/docs" => is_read,
        "/health" | "/health/live" | "/health/ready" | "/v2/health/live" | "/v2/health/ready" => true,
        "/inference.GRPCInferenceService/ServerLive" | "/inference.GRPCInferenceService/ServerReady" => true,
        "/grpc.health.v1.Health/Check" | "/grpc.health.v1.Health/Watch" => true,
        path => path.starts_with("/page/") && is_read,
    }
}

/// What concerns all pipelines: loading and unloading them, and the metrics.
fn needs_admin(method: &Method, path: &str) -> bool {
    match path {
        "/metrics" => true,
        "/inference.GRPCInferenceService/RepositoryModelLoad"
        | "/inference.GRPCInferenceService/RepositoryModelUnload" => true,
        path => {
            let changes = path.ends_with("/load") || path.ends_with("/unload");
            path.starts_with("/v2/repository/") && changes && method == Method::POST
        }
    }
}
