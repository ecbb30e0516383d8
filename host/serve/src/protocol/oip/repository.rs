//! The extension `model_repository`: index, load and unload.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;

use crate::{PipelineState, ServeError, Server};
use gpux_core::sanitize::sanitize_for_terminal;

/// A pipeline in the index.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ModelIndex")]
pub(crate) struct ModelIndex {
    pub(super) name: String,
    /// empty if it is not loaded
    pub(super) version: String,
    /// `READY`, `LOADING` or `UNAVAILABLE`
    pub(super) state: &'static str,
    /// why it is unavailable
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) reason: String,
}

/// The index of the repository, by name.
pub(super) fn index(server: &Server, only_ready: bool) -> Vec<ModelIndex> {
    let slots = server.repository().visible();
    let indexed = slots.iter().map(|slot| {
        let (state, reason) = match slot.state() {
            PipelineState::Ready => ("READY", String::new()),
            PipelineState::Loading => ("LOADING", String::new()),
            PipelineState::Crashed | PipelineState::Failed => {
                ("UNAVAILABLE", slot.public_failure().unwrap_or_default())
            }
            PipelineState::Unloaded => ("UNAVAILABLE", slot.public_failure().unwrap_or_else(|| "unloaded".to_owned())),
        };
        let version = slot.loaded().map_or_else(String::new, |loaded| loaded.version_number());
        ModelIndex { name: slot.name().to_owned(), version, state, reason }
    });
    indexed.filter(|indexed| !only_ready || indexed.state == "READY").collect()
}

/// Reloads a pipeline from the source that the operator configured.
pub(super) async fn load(server: &Arc<Server>, name: String) -> Result<(), ServeError> {
    permitted(server)?;
    let server = server.clone();
    let update = server.repository().lock_update(&name).await?;
    // Parsing and compiling a pipeline takes long and must not block an I/O thread.
    let loaded = tokio::task::spawn_blocking(move || {
        server.repository().load(&update).inspect_err(|_| {
            // The client does not see the reason.
            let reason = sanitize_for_terminal(&update.slot().failure().unwrap_or_default());
            tracing::warn!(target: "gpux", "{name} could not be loaded: {reason}");
        })
    });
    let loaded = loaded.await;
    loaded.unwrap_or_else(|error| Err(ServeError::NotReady(format!("loading was broken off: {error}"))))
}

/// Takes a pipeline out of service, after any load under way.
pub(super) async fn unload(server: &Server, name: &str) -> Result<(), ServeError> {
    permitted(server)?;
    server.repository().lock_update(name).await?.unload();
    Ok(())
}

/// Fails unless the operator permits clients to load and unload pipelines: any client may call this.
fn permitted(server: &Server) -> Result<(), ServeError> {
    if server.settings().model_control {
        return Ok(());
    }
    let message =
        "clients may not load or unload pipelines of this server; its operator permits it by `--model-control`";
    Err(ServeError::Forbidden(message.to_owned()))
}

/// Rejects a load with a configuration or files of its own: only the operator decides what is served.
pub(super) fn reject_config_override<'a>(mut parameters: impl Iterator<Item = &'a String>) -> Result<(), ServeError> {
    match parameters.find(|name| *name == "config" || name.starts_with("file:")) {
        None => Ok(()),
        Some(name) => {
            let message = format!("the parameter `{name}` is not supported: pipelines are loaded from where they are");
            Err(ServeError::invalid(message))
        }
    }
}
