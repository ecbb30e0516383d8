//! Other files than gpux.yml, read with the same care: `step.yml`, `case.yml`, lists of limits.

use std::path::Path;
use std::sync::Arc;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::de::DeserializeOwned;

use super::deserialize::read;
use super::diagnostic::{ConfigurationError, Diagnostic};
use super::document::{self, Document, FileKind};
use super::file_text::{LoadError, read_text};
use super::interpolate::{Variables, interpolate};
use super::schema::check;
use super::source_file::SourceFile;

/// Reads the text of a file whose fields are those of `T`, which its schema describes: unknown keys
/// and wrong values are mistakes with their place. `name` is what diagnostics call the file.
/// Variables are not read.
pub fn parse_as<T: DeserializeOwned + JsonSchema>(
    kind: FileKind,
    name: impl Into<String>,
    text: impl Into<Arc<str>>,
) -> Result<(Document, T), Box<ConfigurationError>> {
    parse_with(kind, SourceFile::new(name, text), None)
}

fn parse_with<T: DeserializeOwned + JsonSchema>(
    kind: FileKind,
    source: SourceFile,
    variables: Option<&Variables<'_>>,
) -> Result<(Document, T), Box<ConfigurationError>> {
    let fail = |diagnostics| Box::new(ConfigurationError::new(source.clone(), diagnostics));
    let (root, mut diagnostics) = document::parse(&source, kind);
    let Some(mut root) = root else { return Err(fail(diagnostics)) };
    if let Some(variables) = variables {
        diagnostics.extend(interpolate(&mut root, &source, variables));
        if !diagnostics.is_empty() {
            // A value that could not be read is not wrong a second time.
            return Err(fail(diagnostics));
        }
    }
    let schema = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<T>();
    diagnostics.extend(check(&root, "", &schema));
    if !diagnostics.is_empty() {
        return Err(fail(diagnostics));
    }
    match read(&root) {
        Ok(value) => Ok((Document { source, root }, value)),
        Err(error) => Err(fail(vec![Diagnostic::new("value", root.span.clone(), error.to_string())])),
    }
}

/// [`parse_as`] for the file at `path`.
pub fn load_as<T: DeserializeOwned + JsonSchema>(kind: FileKind, path: &Path) -> Result<(Document, T), LoadError> {
    Ok(parse_as(kind, path.display().to_string(), read_text(path, kind)?)?)
}

/// [`load_as`] with variables read, as in gpux.yml.
pub fn load_with<T: DeserializeOwned + JsonSchema>(
    kind: FileKind,
    path: &Path,
    variables: &Variables<'_>,
) -> Result<(Document, T), LoadError> {
    Ok(parse_with(kind, SourceFile::new(path.display().to_string(), read_text(path, kind)?), Some(variables))?)
}
