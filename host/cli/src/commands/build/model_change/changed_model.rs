//! The changed model's file.

use std::path::{Path, PathBuf};

use super::change_error::ChangeError;
use super::samples::Samples;
use super::{ModelChange, parent_folder};
use crate::build_log::BuildLog;
use gpux_author::{Package, ToolEnvironment};
use gpux_core::Precision;
use gpux_core::files::is_same;
use gpux_inference::{CONVERSION_PACKAGES, Conversion, ConvertError, CopiedModel, ModelFile, convert};

/// A changed model in a folder of its own, with what belongs to it.
pub(super) struct ChangedModel {
    pub(super) path: PathBuf,
    /// what made it
    pub(super) tools: Option<String>,
}

impl ChangedModel {
    /// First the shapes, then the precision.
    pub(super) fn create(change: &ModelChange<'_>, folder: &Path, samples: &Samples<'_>) -> Result<Self, ChangeError> {
        let name = change.place.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let file = change.original.file();
        let mut made = None;
        if change.asked.fixes_shapes() {
            let shapes = change.asked.shapes.resolve(file.info())?;
            let path = folder.join(&name);
            let model = std::fs::read(file.path()).map_err(|error| ChangeError::output(file.path(), &error))?;
            std::fs::write(&path, shapes.apply(&model)?).map_err(|error| ChangeError::output(&path, &error))?;
            let linked = change.precision.is_none();
            weights_beside(file, folder, linked).map_err(|error| ChangeError::output(&path, &error))?;
            made = Some(Self { path, tools: None });
        }
        let Some(precision) = change.precision else {
            let external = !file.info().external_files.is_empty();
            if external && !is_same(parent_folder(&change.place), parent_folder(file.path())) {
                let message = "its weights lie in other files, beside which it must stay: leave out --output";
                return Err(ChangeError::Output(message.to_owned()));
            }
            return made.ok_or(ChangeError::Nothing);
        };
        // The onnx package refuses weights with several names, which those of the store have.
        let copy = if made.is_some() { Ok(None) } else { file.copied() };
        let copy = copy.map_err(|error| ChangeError::output(folder, &error))?;
        let fixed = made.map(|made| made.path).or_else(|| copy.as_ref().map(CopiedModel::path));
        let fixed = fixed.map(ModelFile::open).transpose()?;
        // The tools leave other files, too, when they fail.
        let folder = folder.join("made");
        std::fs::create_dir(&folder).map_err(|error| ChangeError::output(&folder, &error))?;
        let is_quantized = precision == Precision::Int8;
        let ranges = if is_quantized { samples.for_ranges(change.name, change.original) } else { Vec::new() };
        let conversion = Conversion {
            file: fixed.as_ref().unwrap_or(file),
            precision,
            samples: &ranges,
            python: change.asked.python.as_deref(),
            folder: &folder,
            name: &name,
        };
        let tools = convert_with_tools(conversion, change)?;
        Ok(Self { path: folder.join(&name), tools: Some(tools) })
    }

    /// Moves it where it is to lie, its weights first.
    pub(super) fn persist(&self, place: &Path) -> Result<(), ChangeError> {
        let failed = |error: std::io::Error| ChangeError::output(place, &error);
        let weights = |path: &Path| {
            let mut name = path.file_name().unwrap_or_default().to_owned();
            name.push(".data");
            path.with_file_name(name)
        };
        if weights(&self.path).is_file() {
            std::fs::rename(weights(&self.path), weights(place)).map_err(failed)?;
        }
        std::fs::rename(&self.path, place).map_err(failed)
    }
}

/// Converts a model. Where no Python has what it takes, and the user named none, with one of gpux's own.
fn convert_with_tools(conversion: Conversion<'_>, change: &ModelChange<'_>) -> Result<String, ChangeError> {
    let error = match convert(&conversion) {
        Err(error @ (ConvertError::NoPython { .. } | ConvertError::Missing { .. })) => error,
        result => return result.map_err(ChangeError::Convert),
    };
    if conversion.python.is_some() {
        let hint = "or leave out `--python`: gpux then makes an environment of its own";
        return Err(ChangeError::Tools(format!("{error}, {hint}")));
    }
    let cache = change.load_options.cache.as_ref();
    let mut works = |environment: &ToolEnvironment| environment.imports(&CONVERSION_PACKAGES.map(|(name, _)| name));
    let mut log = BuildLog::new(change.printer);
    let environment = ToolEnvironment::install(Package::CONVERSION, cache, &mut log, &mut works)
        .map_err(|why| ChangeError::Tools(format!("{error}; {why}")))?;
    drop(log);
    convert(&Conversion { python: Some(&environment.python()), ..conversion }).map_err(ChangeError::Convert)
}

/// Makes the files of weights that a model names findable from another folder: `linked`, or copied
/// for the onnx package, which refuses links.
fn weights_beside(file: &ModelFile, folder: &Path, linked: bool) -> std::io::Result<()> {
    for (location, path) in &file.info().external_locations {
        let target = folder.join(location);
        if let Some(parent) = target.parent() {
            std::fs::create_dir_all(parent)?;
        }
        if !linked || std::fs::hard_link(path, &target).is_err() {
            std::fs::copy(path, &target)?;
        }
    }
    Ok(())
}
