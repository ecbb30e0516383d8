//! API keys, each with its tenant.

mod digest;
mod file;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;

use self::digest::Digest;
use crate::engine::error::ServeError;
use crate::engine::tenant::{Role, Tenant};
use gpux_config::{LoadError, Variables};

/// All keys.
#[derive(Debug)]
pub(crate) struct ApiKeys {
    tenants: Vec<(Digest, Arc<Tenant>)>,
    /// warnings about the file for the operator
    warnings: Vec<String>,
}

impl ApiKeys {
    /// Reads the file at `path`. Tenants of the same name and limits in `before` keep their usage (tokens, permits).
    pub(crate) fn load(path: &Path, variables: &Variables<'_>, before: Option<&Self>) -> Result<Self, LoadError> {
        file::load(path, variables, before)
    }

    /// Replaces `before`: tenants whose entry has changed are revoked.
    pub(crate) fn replace(&self, before: &Self) {
        let stays = |old: &Arc<Tenant>| self.tenants.iter().any(|(_, tenant)| Arc::ptr_eq(tenant, old));
        for (_, old) in before.tenants.iter().filter(|(_, old)| !stays(old)) {
            old.set_revoked(true);
        }
        // Two concurrent reloads may share a tenant that the other has revoked.
        self.tenants.iter().for_each(|(_, tenant)| tenant.set_revoked(false));
    }

    /// The number of tenants. Keys with `admin: true` or `metrics: true` are the operator's own.
    pub(crate) fn tenant_count(&self) -> usize {
        self.tenants.iter().filter(|(_, tenant)| tenant.role() == Role::User).count()
    }

    /// Warnings for the operator.
    pub(crate) fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The tenant of the key in `Authorization: Bearer KEY` or `X-API-Key: KEY`.
    pub(crate) fn tenant(&self, headers: &HeaderMap) -> Result<Arc<Tenant>, ServeError> {
        let missing = "a key is needed: send `Authorization: Bearer KEY` or `X-API-Key: KEY`";
        let key = digest::presented(headers).ok_or_else(|| ServeError::Unauthorized(missing.to_owned()))?;
        let presented = Digest::compute(key);
        // All digests are compared in constant time, so the duration does not reveal a match.
        let mut found = None;
        for (digest, tenant) in &self.tenants {
            if digest.equals(&presented) {
                found = Some(tenant);
            }
        }
        found.cloned().ok_or(ServeError::UnknownKey(Duration::ZERO))
    }

    fn find(&self, name: &str) -> Option<&Tenant> {
        self.tenants.iter().find(|(_, tenant)| tenant.name() == name).map(|(_, tenant)| &**tenant)
    }
}

#[cfg(test)]
mod tests;
