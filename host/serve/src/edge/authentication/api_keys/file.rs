//! Parses the keys file.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use tokio::sync::Semaphore;

use super::ApiKeys;
use super::digest::Digest;
use crate::edge::authentication::world_readable_warning;
use crate::engine::request_options::Priority;
use crate::engine::tenant::{Role, Tenant, TenantOptions};
use gpux_config::{ConfigurationError, Diagnostic, FileKind, LoadError, Spanned, Variables, load_with};
use gpux_core::sanitize::is_unsafe_for_terminal;

/// The file as it is written.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct KeysFile {
    /// Who may use the server
    keys: Vec<KeySpec>,
}

/// A key, and what it allows.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct KeySpec {
    /// Who has it, for logs
    name: Spanned<String>,
    /// SHA-256 of the key, in hexadecimal
    #[serde(default)]
    #[schemars(schema_with = "text")]
    sha256: Option<Spanned<String>>,
    /// The key itself; whoever reads the file has it
    #[serde(default)]
    #[schemars(schema_with = "text")]
    key: Option<Spanned<String>>,
    /// The pipelines that it may use [default: all]
    #[serde(default)]
    pipelines: Option<BTreeSet<String>>,
    /// Requests a second that it may make [default: any number]
    #[serde(default)]
    rate: Option<NonZeroU32>,
    /// Requests that it may make at once beyond that [default: those of a second]
    #[serde(default)]
    burst: Option<NonZeroU32>,
    /// Requests that it may have under way [default: any number]
    #[serde(default)]
    concurrency: Option<NonZeroU32>,
    /// The most urgent that its requests may be: low, normal or high
    #[serde(default)]
    priority: Priority,
    /// Whether it may load and unload pipelines, and see the metrics
    #[serde(default)]
    admin: bool,
    /// Whether it may read the metrics of all pipelines, and nothing else
    #[serde(default)]
    metrics: bool,
}

/// Text, or a number that is taken as written: a key may consist of digits.
fn text(_: &mut SchemaGenerator) -> Schema {
    schemars::json_schema!({ "type": ["string", "number", "null"] })
}

/// Shorter keys can be guessed by brute force.
const SHORT: usize = 16;

pub(crate) fn load(path: &Path, variables: &Variables<'_>, before: Option<&ApiKeys>) -> Result<ApiKeys, LoadError> {
    let form = FileKind { name: "list of keys", start: "write `keys:` with a list of `name:` and `sha256:`" };
    let (document, file) = load_with::<KeysFile>(form, path, variables)?;
    let mut keys = ApiKeys { tenants: Vec::new(), warnings: Vec::new() };
    let mut faults = Vec::new();
    for spec in file.keys {
        // A value from a variable is not written in the file.
        let is_written =
            |key: &Spanned<String>| document.source.text.get(key.span.clone()).is_some_and(|text| !text.contains("${"));
        match digest(&spec, is_written, &mut keys.warnings) {
            Err(fault) => faults.push(fault),
            Ok(digest) if keys.tenants.iter().any(|(known, _)| *known == digest) => {
                faults.push(Diagnostic::new("key", spec.name.span.clone(), "this key is there already"));
            }
            Ok(_) if spec.name.value.chars().any(is_unsafe_for_terminal) => {
                let message = "a name for logs is on one line and has no control characters";
                faults.push(Diagnostic::new("key", spec.name.span.clone(), message));
            }
            Ok(_) if keys.find(&spec.name.value).is_some() => {
                faults.push(Diagnostic::new("key", spec.name.span.clone(), "this name is there already"));
            }
            Ok(_) if spec.metrics && (spec.admin || spec.pipelines.is_some()) => {
                let message = "`metrics: true` is for a key that reads metrics alone";
                let hint = "leave out `admin:` and `pipelines:`, or `metrics:`: an admin key reads metrics, too";
                faults.push(Diagnostic::new("key", spec.name.span.clone(), message).hint(hint));
            }
            Ok(digest) => {
                let tenant = Arc::new(tenant(spec, before));
                let same = before.and_then(|before| {
                    let (_, old) = before.tenants.iter().find(|(known, _)| *known == digest)?;
                    old.allows_the_same_as(&tenant).then(|| old.clone())
                });
                keys.tenants.push((digest, same.unwrap_or(tenant)));
            }
        }
    }
    if !faults.is_empty() {
        return Err(LoadError::Invalid(Box::new(ConfigurationError::new(document.source, faults))));
    }
    keys.warnings.extend(world_readable_warning(path));
    Ok(keys)
}

fn digest(
    spec: &KeySpec,
    is_written: impl Fn(&Spanned<String>) -> bool,
    warnings: &mut Vec<String>,
) -> Result<Digest, Diagnostic> {
    let name = &spec.name.value;
    match (&spec.sha256, &spec.key) {
        (Some(sha256), None) => Digest::from_hex(&sha256.value).ok_or_else(|| {
            Diagnostic::new("key", sha256.span.clone(), "SHA-256 has 64 hexadecimal digits")
                .hint("printf %s \"$KEY\" | sha256sum")
        }),
        (None, Some(key)) if key.value.trim().is_empty() => {
            Err(Diagnostic::new("key", key.span.clone(), "a key cannot be empty"))
        }
        (None, Some(key)) => {
            if is_written(key) {
                warnings.push(format!("the key of `{name}` is written in the file; write its `sha256:` instead"));
            }
            let key = key.value.trim();
            if key.len() < SHORT {
                warnings.push(format!("the key of `{name}` has {} characters; take {SHORT} or more", key.len()));
            }
            Ok(Digest::compute(key.as_bytes()))
        }
        _ => Err(Diagnostic::new("key", spec.name.span.clone(), "either `sha256:` or `key:` is needed")),
    }
}

const fn role(spec: &KeySpec) -> Role {
    match spec {
        KeySpec { metrics: true, .. } => Role::Metrics,
        KeySpec { admin: true, .. } => Role::Admin,
        _ => Role::User,
    }
}

fn tenant(spec: KeySpec, before: Option<&ApiKeys>) -> Tenant {
    let rate = spec.rate.map(|rate| f64::from(rate.get()));
    let burst = spec.burst.map(|burst| f64::from(burst.get())).or(rate);
    let before = before.and_then(|before| before.find(&spec.name.value));
    let role = role(&spec);
    let options = TenantOptions {
        name: spec.name.value.clone(),
        pipelines: spec.pipelines,
        priority: spec.priority,
        role,
        rate: rate.zip(burst),
        concurrency: spec.concurrency.map(|most| (most.get() as usize).min(Semaphore::MAX_PERMITS)),
    };
    Tenant::new(options, before)
}
