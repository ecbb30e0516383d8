//! A model in another precision, made by ONNX Runtime's own offline tools in a Python of the
//! user's.

mod python;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::model_file::ModelFile;
use super::trial_context::absolute;
use gpux_core::catch_panic::shorten;
use gpux_core::child_process::{self, ChildError};
use gpux_core::files::check_room;
use gpux_core::{Precision, Tensor, to_npy};

const SCRIPT: &str = include_str!("convert.py");
/// A model of some gigabytes is converted within it on a slow machine.
const TIMEOUT: Duration = Duration::from_mins(15);
/// Memory for Python and the tools, in bytes; a model may take [`TIMES`] its size on top.
const MEMORY: u64 = 8 << 30;
/// The tools hold the model several times: as read, as text for shape inference, as written.
const TIMES: u64 = 16;
/// Above this size, in bytes, weights are put beside the model: one message of protobuf holds
/// 2 GB at most.
const LARGEST: u64 = 3 << 29;
/// The Python packages that convert models, in the versions of the tests.
pub const CONVERSION_PACKAGES: [(&str, &str); 2] = [("onnx", "1.23.2"), ("onnxruntime", "1.32.0")];

/// A requested conversion.
#[derive(Debug)]
pub struct Conversion<'a> {
    /// the model
    pub file: &'a ModelFile,
    /// the precision to compute in: `fp16`, weights and computation; or `int8`, weights, with activations quantized by
    /// ranges of each run in models that are products of matrices for the most part ("dynamic quantization"), and of
    /// samples in those of convolutions ("static quantization")
    pub precision: Precision,
    /// the inputs of some runs, in the model's order: static quantization takes its ranges from them
    pub samples: &'a [Vec<Option<Tensor>>],
    /// the Python to use; `None`: the active environment's, else that of the search path
    pub python: Option<&'a Path>,
    /// where to put it: an empty folder, in which the tools leave other files, too, when they fail
    pub folder: &'a Path,
    /// the name of its file; weights of large models lie in `NAME.data` beside it
    pub name: &'a str,
}

/// Why there is no converted model.
#[derive(Debug, thiserror::Error)]
pub enum ConvertError {
    /// no Python can be started
    #[error(
        "converting a model takes Python with the packages `onnx` and `onnxruntime`, and none was found (tried {tried}); `--python PATH` names one"
    )]
    NoPython {
        /// where it was looked for
        tried: String,
    },
    /// the disk takes no files
    #[error("the model cannot be converted: `{}` cannot be written to: {source}", folder.display())]
    Disk {
        /// where files are to be written
        folder: PathBuf,
        /// the system's reason
        source: std::io::Error,
    },
    /// the machine lets no process do it
    #[error("converting a model takes a process of its own: {0}")]
    NoProcess(String),
    /// Python is there without the tools
    #[error("{} (Python {version}) has no package `{}`; run: {} -m pip install {install}", python.display(), packages.join("`, `"), python.display())]
    Missing {
        /// the program
        python: PathBuf,
        /// its version
        version: String,
        /// the missing package
        packages: Vec<String>,
        /// what pip is to be told
        install: String,
    },
    /// nothing in the model can be converted
    #[error("the model cannot be converted to {precision}: {reason}")]
    Unchanged {
        /// what was asked for
        precision: Precision,
        /// why nothing changes
        reason: String,
    },
    /// the tools failed
    #[error("ONNX Runtime's tools could not convert the model to {precision}: {reason}")]
    Failed {
        /// what was asked for
        precision: Precision,
        /// in their words
        reason: String,
    },
}

impl ConvertError {
    /// Whether the machine lacks something.
    pub const fn is_environment(&self) -> bool {
        matches!(self, Self::NoPython { .. } | Self::NoProcess(_) | Self::Disk { .. } | Self::Missing { .. })
    }
}

#[derive(Serialize)]
struct Request<'a> {
    model: &'a Path,
    precision: Precision,
    folder: &'a Path,
    name: &'a str,
    external: bool,
    /// files of tensors, by the model's names
    samples: &'a [BTreeMap<&'a str, PathBuf>],
    /// bytes
    memory: u64,
    /// of processor time, on each core
    seconds: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Answer {
    Made { tools: String },
    Missing { packages: Vec<String>, python: String },
    Unchanged(String),
    Failed(String),
}

/// Writes the tensors of samples to files.
fn write_samples<'a>(conversion: &Conversion<'a>, folder: &Path) -> std::io::Result<Vec<BTreeMap<&'a str, PathBuf>>> {
    let mut samples = Vec::new();
    for (number, tensors) in conversion.samples.iter().enumerate() {
        let mut sample = BTreeMap::new();
        for (position, (input, tensor)) in conversion.file.info().inputs.iter().zip(tensors).enumerate() {
            if let Some(bytes) = tensor.as_ref().and_then(|tensor| to_npy(tensor).ok()) {
                let path = folder.join(format!("{number}-{position}.npy"));
                std::fs::write(&path, bytes)?;
                sample.insert(input.name.as_str(), path);
            }
        }
        samples.push(sample);
    }
    Ok(samples)
}

/// Makes the model; says what made it. It has not been loaded by any engine yet.
pub fn convert(conversion: &Conversion<'_>) -> Result<String, ConvertError> {
    let Conversion { file, precision, folder, name, .. } = *conversion;
    let info = file.info();
    let failed = |reason: String| ConvertError::Failed { precision, reason: shorten(&reason) };

    let folder = absolute(folder);
    let disk = |source| ConvertError::Disk { folder: folder.clone(), source };
    // Removed when this returns.
    let sample_folder = tempfile::tempdir_in(&folder).map_err(disk)?;
    let samples = write_samples(conversion, sample_folder.path()).map_err(disk)?;

    let request = Request {
        model: &absolute(file.path()),
        precision,
        folder: &folder,
        name,
        samples: &samples,
        external: !info.external_files.is_empty() || info.size_bytes > LARGEST,
        memory: MEMORY.saturating_add(info.size_bytes.saturating_mul(TIMES)),
        seconds: TIMEOUT.as_secs(),
    };
    let request = serde_json::to_string(&request).map_err(|error| failed(error.to_string()))?;

    // The tools say it in many words.
    let no_room = || {
        [folder.as_path(), &std::env::temp_dir()].into_iter().find_map(|folder| {
            let source = check_room(folder).err()?;
            Some(ConvertError::Disk { folder: folder.to_owned(), source })
        })
    };

    let candidates = python::candidates(conversion.python);
    for python in &candidates {
        // Without the modules of the current folder, of `PYTHONPATH` and of the user: of those of its installation alone.
        let arguments = ["-I".as_ref(), "-c".as_ref(), SCRIPT.as_ref(), request.as_ref()];
        match child_process::run_json(python, &arguments, TIMEOUT) {
            Err(ChildError::Start(error)) if python::is_not_there(&error) => {}
            Err(fault) if fault.is_environment() => return Err(ConvertError::NoProcess(fault.to_string())),
            Err(fault) => return Err(no_room().unwrap_or_else(|| failed(format!("{}: {fault}", python.display())))),
            Ok(Answer::Made { tools }) => return Ok(tools),
            Ok(Answer::Unchanged(reason)) => return Err(ConvertError::Unchanged { precision, reason }),
            Ok(Answer::Failed(reason)) => return Err(no_room().unwrap_or_else(|| failed(reason))),
            Ok(Answer::Missing { packages, python: version }) => {
                let wanted =
                    CONVERSION_PACKAGES.iter().filter(|(package, _)| packages.iter().any(|missing| missing == package));
                let install = wanted.map(|(package, version)| format!("{package}=={version}")).collect::<Vec<_>>();
                let python = python.clone();
                return Err(ConvertError::Missing { python, version, packages, install: install.join(" ") });
            }
        }
    }

    let tried: Vec<_> = candidates.iter().map(|python| format!("`{}`", python.display())).collect();
    Err(ConvertError::NoPython { tried: tried.join(", ") })
}
