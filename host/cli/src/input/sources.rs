//! The files and streams behind `--input` and `--file`.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Largest file that is read as one value.
const MAX_FILE: u64 = 2 << 30;

/// Something that cannot be read at all: a usage error, found before anything runs.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UsageError {
    #[error("no file matches `{0}`")]
    NoMatch(String),
    #[error("`{0}` is not a pattern: {1}")]
    Pattern(String, glob::PatternError),
    #[error("cannot read `{path}`: {source}")]
    Read { path: String, source: std::io::Error },
    #[error("`{0}` is a folder; name its files, for example `{0}/*` (a pipeline is named before --file)")]
    Folder(String),
    #[error("`{name}=…` names no input; the pipeline takes {known}")]
    UnknownInput { name: String, known: String },
    #[error("--only {name}: there is no such output; the pipeline gives {known}")]
    UnknownOutput { name: String, known: String },
    #[error("--input {0}: {1}; it takes JSON, `@file.json`, `name=value` or `name=@path`")]
    Json(String, serde_json::Error),
    #[error(
        "--input {input}: it takes {kind}, as .npy, .pb or .json, and the file is none of these; a picture or a sound \
         goes into a pipeline with a step that decodes it, by `--file` or by the input that takes bytes"
    )]
    NoTensor { input: String, kind: String },
    #[error("--input and a batch of requests cannot be combined; put the values into each request")]
    Combined,
    #[error("`{0}` is read; writing the results to it would destroy it")]
    Overwrites(String),
    #[error("--format npy writes a file for each output: say into which folder with --output FOLDER")]
    NoFolder,
    #[error(
        "`{path}` would be no {ending} file: the results ({outputs}) are not the bytes of one. Name a .json, .jsonl, .csv \
         or .txt file, say another --format, or write each output to a file with `--format npy --output FOLDER`"
    )]
    Ending { path: String, ending: String, outputs: String },
    #[error("the input `{name}` cannot be made up: give --input or --file; the pipeline takes {inputs}")]
    NotMadeUp { name: String, inputs: String },
    #[error("nothing to run on: give --input or --file; the pipeline takes {0}")]
    Nothing(String),
}

pub(crate) fn extension(path: &Path) -> String {
    path.extension().map(|extension| extension.to_string_lossy().to_ascii_lowercase()).unwrap_or_default()
}

/// Paths as they are; patterns expanded, in alphabetical order. Also whether there was a pattern.
pub(super) fn expand(files: &[String]) -> Result<(Vec<PathBuf>, bool), UsageError> {
    let (mut paths, mut pattern) = (Vec::new(), false);
    for file in files {
        let path = PathBuf::from(file);
        if path.is_dir() {
            return Err(UsageError::Folder(file.trim_end_matches('/').to_owned()));
        }
        if !is_pattern(&path) {
            if file != "-" {
                std::fs::metadata(&path).map_err(|source| read_error(&path, source))?;
            }
            paths.push(path);
            continue;
        }
        pattern = true;
        let found = glob::glob(file).map_err(|error| UsageError::Pattern(file.clone(), error))?;
        let before = paths.len();
        paths.extend(found.filter_map(Result::ok).filter(|path| path.is_file()));
        if paths.len() == before {
            return Err(UsageError::NoMatch(file.clone()));
        }
    }
    Ok((paths, pattern))
}

/// Whether this names several files: `photos/*.jpg`.
pub(crate) fn is_pattern(path: &Path) -> bool {
    path.to_string_lossy().contains(['*', '?', '[']) && !path.exists()
}

pub(super) fn read_error(path: &Path, source: std::io::Error) -> UsageError {
    UsageError::Read { path: path.display().to_string(), source }
}

pub(super) fn read_file(path: &Path) -> Result<Vec<u8>, UsageError> {
    let fail = |source| read_error(path, source);
    let mut bytes = Vec::new();
    File::open(path).map_err(fail)?.take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(fail)?;
    too_large(&bytes).map_err(fail)?;
    Ok(bytes)
}

pub(super) fn read_stdin() -> Result<Vec<u8>, UsageError> {
    let fail = |source| UsageError::Read { path: "-".to_owned(), source };
    let mut bytes = Vec::new();
    std::io::stdin().lock().take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(fail)?;
    too_large(&bytes).map_err(fail)?;
    Ok(bytes)
}

fn too_large(bytes: &[u8]) -> std::io::Result<()> {
    if bytes.len() as u64 > MAX_FILE {
        return Err(std::io::Error::new(std::io::ErrorKind::FileTooLarge, "it is larger than 2 GiB"));
    }
    Ok(())
}
