//! Finds the pipeline of a model name and version.

use std::sync::Arc;

use crate::{LoadedPipeline, ServeError, Server};

/// A pipeline with its requested version.
#[derive(Clone)]
pub(super) struct Model {
    pub(super) loaded: Arc<LoadedPipeline>,
    /// the version in the request; the pipeline's version number if there is none
    pub(super) version: String,
}

/// Finds a pipeline. An empty version means the loaded one.
pub(super) fn model(server: &Server, name: &str, version: &str) -> Result<Model, ServeError> {
    found(server, name)?.under(version).map_err(ServeError::NotFound)
}

/// Finds a pipeline for a gRPC message. A version that is neither a number nor the pipeline's own is an invalid
/// argument; over REST it is part of the path, and not found.
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

/// The pipeline of this name with its version number.
fn found(server: &Server, name: &str) -> Result<Model, ServeError> {
    let loaded = server.repository().get(name)?;
    Ok(Model { version: loaded.version_number(), loaded })
}

impl Model {
    /// Every loaded pipeline that the request may use, with its version number.
    pub(super) fn all(server: &Server) -> Vec<Self> {
        let loaded = server.repository().visible().into_iter().filter_map(|slot| slot.loaded());
        loaded.map(|loaded| Self { version: loaded.version_number(), loaded }).collect()
    }

    /// The pipeline under this version; the error names the loaded one.
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
