//! The extension `model_repository`: what there is, and loading and unloading it.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;

use super::grpc::proto;
use crate::{ServeError, Server, State};
use gpux_core::sanitize::sanitize_for_terminal;

/// A pipeline in the index.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ModelIndex")]
pub(crate) struct Indexed {
    name: String,
    /// empty if it is not loaded
    version: String,
    /// `READY`, `LOADING` or `UNAVAILABLE`
    state: &'static str,
    /// why it is unavailable
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
}

/// What there is, by name.
pub(super) fn index(server: &Server, only_ready: bool) -> Vec<Indexed> {
    let entries = server.repository().visible();
    let indexed = entries.iter().map(|entry| {
        let (state, reason) = match entry.state() {
            State::Ready => ("READY", String::new()),
            State::Loading => ("LOADING", String::new()),
            State::Unloaded => ("UNAVAILABLE", entry.told_failure().unwrap_or_else(|| "unloaded".to_owned())),
        };
        let version = entry.served().map_or_else(String::new, |served| served.version_number());
        Indexed { name: entry.name().to_owned(), version, state, reason }
    });
    indexed.filter(|indexed| !only_ready || indexed.state == "READY").collect()
}

/// The same in gRPC's message.
pub(super) fn index_message(server: &Server, only_ready: bool) -> proto::RepositoryIndexResponse {
    let one = |indexed: Indexed| proto::repository_index_response::ModelIndex {
        name: indexed.name,
        version: indexed.version,
        state: indexed.state.to_owned(),
        reason: indexed.reason,
    };
    proto::RepositoryIndexResponse { models: index(server, only_ready).into_iter().map(one).collect() }
}

/// Loads a pipeline again, from where the operator said that it is.
pub(super) async fn load(server: &Arc<Server>, name: String) -> Result<(), ServeError> {
    permitted(server)?;
    let server = server.clone();
    let change = server.repository().turn(&name).await?;
    // Reading and compiling a pipeline takes long, so it must not be done where connections are.
    let loaded = tokio::task::spawn_blocking(move || {
        server.repository().load(&change).inspect_err(|_| {
            // The client does not hear why.
            let reason = sanitize_for_terminal(&change.entry().failure().unwrap_or_default());
            tracing::warn!(target: "gpux", "{name} could not be loaded: {reason}");
        })
    });
    let loaded = loaded.await;
    loaded.unwrap_or_else(|error| Err(ServeError::NotReady(format!("loading was broken off: {error}"))))
}

/// Takes a pipeline out of service, when nobody loads it any more.
pub(super) async fn unload(server: &Server, name: &str) -> Result<(), ServeError> {
    permitted(server)?;
    server.repository().turn(name).await?.unload();
    Ok(())
}

/// Any client may ask, so the operator must have said that clients may.
fn permitted(server: &Server) -> Result<(), ServeError> {
    if server.settings().model_control {
        return Ok(());
    }
    let message =
        "clients may not load or unload pipelines of this server; its operator permits it by `--model-control`";
    Err(ServeError::Forbidden(message.to_owned()))
}

/// A load may not bring a configuration or files of its own: what is served is the operator's word.
pub(super) fn refuse_override<'a>(mut parameters: impl Iterator<Item = &'a String>) -> Result<(), ServeError> {
    match parameters.find(|name| *name == "config" || name.starts_with("file:")) {
        None => Ok(()),
        Some(name) => {
            let message = format!("the parameter `{name}` is not supported: pipelines are loaded from where they are");
            Err(ServeError::invalid(message))
        }
    }
}
