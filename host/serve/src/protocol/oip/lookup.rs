//! Finds the pipeline of a model name and version.

use std::sync::Arc;

use crate::{LoadedPipeline, ServeError, Server};

/// A pipeline under the version that it was asked for.
#[derive(Clone)]
pub(super) struct Model {
    pub(super) loaded: Arc<LoadedPipeline>,
    /// as the client calls it; its number where the client does not say
    pub(super) version: String,
}

/// Finds a pipeline. An empty version is the one there is.
pub(super) fn model(server: &Server, name: &str, version: &str) -> Result<Model, ServeError> {
    found(server, name)?.under(version).map_err(ServeError::NotFound)
}

/// The same for a message of gRPC, whose versions are text: one that is no number, nor the pipeline's own,
/// is a wrong argument. In a path of REST it is a path that there is not.
#[cfg(feature = "grpc")]
pub(super) fn of_message(server: &Server, name: &str, version: &str) -> Result<Model, ServeError> {
    found(server, name)?.under(version).map_err(|unknown| {
        if version.bytes().all(|byte| byte.is_ascii_digit()) {
            ServeError::NotFound(unknown)
        } else {
            ServeError::invalid(format!("a version is a whole number: {unknown}"))
        }
    })
}

/// The pipeline of this name under its number.
fn found(server: &Server, name: &str) -> Result<Model, ServeError> {
    let repository = server.repository();
    if !repository.is_ready() {
        return Err(ServeError::NotReady("the pipelines are being loaded".to_owned()));
    }
    let loaded = repository.get(name)?;
    Ok(Model { version: loaded.version_number(), loaded })
}

impl Model {
    /// Every pipeline that is loaded and may be known, under its number.
    pub(super) fn all(server: &Server) -> Vec<Self> {
        let loaded = server.repository().visible().into_iter().filter_map(|slot| slot.loaded());
        loaded.map(|loaded| Self { version: loaded.version_number(), loaded }).collect()
    }

    /// The same as the client calls its version; the error says which one there is.
    fn under(self, version: &str) -> Result<Self, String> {
        if version.is_empty() || version == self.version {
            return Ok(self);
        }
        let (name, full) = (self.loaded.name(), self.loaded.version());
        if version == full {
            return Ok(Self { version: version.to_owned(), ..self });
        }
        Err(format!("`{name}` has no version `{version}`; it is version {} ({full})", self.version))
    }
}
