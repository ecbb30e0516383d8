//! Reads the text of configuration files.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use gpux_core::what_instead;

use super::diagnostic::{ConfigurationError, Diagnostic};
use super::document::{self, FileKind};
use super::source_file::SourceFile;

/// A configuration that cannot be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// nothing was found
    #[error("no pipeline at `{wanted}`; looked for {}{}", tried.join(", "), advice(wanted, similar.as_deref()))]
    NotFound {
        /// what was asked for
        wanted: String,
        /// where it was looked for
        tried: Vec<String>,
        /// the file, folder or pipeline there with the most similar name
        similar: Option<String>,
    },
    /// several pipelines have the name
    #[error("several pipelines are called `{name}`: {}; name a folder", gpux_core::list(files, "and"))]
    Ambiguous {
        /// their name
        name: String,
        /// their files
        files: Vec<String>,
    },
    /// the file is a link to another folder's
    #[error("`{}` leads out of its folder; pass `--allow-outside` to permit that", .0.display())]
    Outside(PathBuf),
    /// the file cannot be read
    #[error("cannot read `{}`: {source}", path.display())]
    Io {
        /// the file
        path: PathBuf,
        /// the system's reason
        source: std::io::Error,
    },
    /// the file is wrong
    #[error(transparent)]
    Invalid(#[from] Box<ConfigurationError>),
}

fn advice(wanted: &str, similar: Option<&str>) -> String {
    match similar {
        Some(similar) => format!(". Did you mean `{similar}`?"),
        None if wanted == "." => ". `gpux new pipeline NAME` makes one".to_owned(),
        None => String::new(),
    }
}

/// The text of a file of this kind.
pub(super) fn read_text(path: &Path, kind: FileKind) -> Result<String, LoadError> {
    decode_text(
        File::open(path).and_then(read_bytes).map_err(|source| LoadError::Io { path: path.to_owned(), source })?,
        path,
        kind,
    )
}

pub(super) fn decode_text(bytes: Vec<u8>, path: &Path, kind: FileKind) -> Result<String, LoadError> {
    let name = || path.display().to_string();
    if let Some(what) = what_instead(&bytes) {
        let diagnostic = Diagnostic::new("not-text", 0..0, format!("the file is no {}: {what}", kind.name));
        return Err(LoadError::Invalid(Box::new(ConfigurationError::new(
            SourceFile::new(name(), String::new()),
            vec![diagnostic],
        ))));
    }
    String::from_utf8(bytes).map_err(|error| LoadError::Invalid(Box::new(not_text(name(), &error, kind))))
}

/// The bytes of a file, one more than may be used at most.
pub(super) fn read_bytes(file: File) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(document::MAX_FILE_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn not_text(name: String, error: &std::string::FromUtf8Error, kind: FileKind) -> ConfigurationError {
    let valid = error.utf8_error().valid_up_to();
    let text = String::from_utf8_lossy(error.as_bytes()).into_owned();
    let message = "the file is not UTF-8 text";
    let hint = format!("save it as UTF-8; if this is a model or another binary file, name its {} instead", kind.name);
    let end = text[valid..].chars().next().map_or(valid, |c| valid + c.len_utf8());
    let diagnostic = Diagnostic::new("not-text", valid..end, message).label("this byte is not UTF-8").hint(hint);
    ConfigurationError::new(SourceFile::new(name, text), vec![diagnostic])
}
