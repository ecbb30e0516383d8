//! The pipeline that a name and a version stand for.

use std::sync::Arc;

use crate::{ServeError, Served, Server};

/// A pipeline under the version that it was asked for.
#[derive(Clone)]
pub(super) struct Model {
    pub(super) served: Arc<Served>,
    /// as the client calls it; its number where the client does not say
    pub(super) version: String,
}

/// Finds a pipeline. An empty version is the one there is.
pub(super) fn model(server: &Server, name: &str, version: &str) -> Result<Model, ServeError> {
    found(server, name)?.under(version).map_err(ServeError::NotFound)
}

/// The same for a message of gRPC, whose versions are text: one that is no number, nor the pipeline's own,
/// is a wrong argument. In a path of REST it is a path that there is not.
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
    let served = repository.get(name)?;
    Ok(Model { version: served.version_number(), served })
}

impl Model {
    /// Every pipeline that is loaded and may be known, under its number.
    pub(super) fn all(server: &Server) -> Vec<Self> {
        let served = server.repository().visible().into_iter().filter_map(|entry| entry.served());
        served.map(|served| Self { version: served.version_number(), served }).collect()
    }

    /// The same as the client calls its version; the error says which one there is.
    fn under(self, version: &str) -> Result<Self, String> {
        if version.is_empty() || version == self.version {
            return Ok(self);
        }
        let (name, full) = (self.served.name(), self.served.version());
        if version == full {
            return Ok(Self { version: version.to_owned(), ..self });
        }
        Err(format!("`{name}` has no version `{version}`; it is version {} ({full})", self.version))
    }
}

/// The protocol's versions are whole numbers: the first one in a pipeline's version, else 1.
pub(crate) fn version_number(version: &str) -> String {
    let digits: String = version.trim_start_matches(['v', 'V']).chars().take_while(char::is_ascii_digit).collect();
    let trimmed = digits.trim_start_matches('0');
    match (digits.is_empty(), trimmed.is_empty() || trimmed.len() > MAX_DIGITS) {
        // A version 0.x is the first that there is.
        (true, _) | (_, true) => "1".to_owned(),
        _ => trimmed.to_owned(),
    }
}

/// What fits the 64-bit integers that clients read versions into.
const MAX_DIGITS: usize = 18;

#[cfg(test)]
mod tests {
    use super::version_number;

    #[test]
    fn versions_are_whole_numbers() {
        for (version, number) in [
            ("1.0.0", "1"),
            ("12", "12"),
            ("v3.1", "3"),
            ("2024-11-02", "2024"),
            ("0.4.0", "1"),
            ("latest", "1"),
            ("007", "7"),
            ("", "1"),
            ("99999999999999999999", "1"),
        ] {
            assert_eq!(version_number(version), number, "{version}");
        }
    }
}
