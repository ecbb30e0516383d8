//! `GET /v1/models`: the pipelines that have an endpoint.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;

use super::error;
use crate::protocol::http::response;
use crate::{LoadedPipeline, ServeError, Server};

/// The pipelines that a client can name.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Models {
    /// `list`
    object: String,
    data: Vec<Model>,
}

/// A pipeline.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Model {
    /// its name or an alias
    id: String,
    /// `model`
    object: String,
    /// always 0: pipelines have versions instead
    created: u64,
    /// `gpux`
    owned_by: String,
}

impl Model {
    fn new(id: &str) -> Self {
        Self { id: id.to_owned(), object: "model".to_owned(), created: 0, owned_by: "gpux".to_owned() }
    }
}

/// Every name and alias.
pub(super) async fn list(State(server): State<Arc<Server>>) -> Response {
    let slots = server.repository().visible();
    let able = slots.iter().filter_map(|slot| slot.loaded().filter(|loaded| is_able(loaded)));
    let names = |loaded: Arc<LoadedPipeline>| {
        let names = std::iter::once(loaded.name()).chain(loaded.info().aliases.iter().map(String::as_str));
        names.map(Model::new).collect::<Vec<_>>()
    };
    response::json(&json!(Models { object: "list".to_owned(), data: able.flat_map(names).collect() }))
}

/// One of them.
pub(super) async fn one(State(server): State<Arc<Server>>, Path(name): Path<String>) -> Response {
    match server.repository().by_name_or_alias(&name) {
        Ok(loaded) if is_able(&loaded) => response::json(&json!(Model::new(&name))),
        Ok(_) => error(&ServeError::NotFound(format!("`{name}` has none of these endpoints"))),
        Err(refused) => error(&refused),
    }
}

fn is_able(loaded: &LoadedPipeline) -> bool {
    !loaded.info().endpoints.is_empty()
}
