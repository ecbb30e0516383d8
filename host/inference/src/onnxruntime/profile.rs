//! One run of a model about which ONNX Runtime writes down what each node did.

use std::borrow::Cow;
use std::path::Path;

use ort::session::builder::GraphOptimizationLevel;
use ort::session::{SessionInputValue, SessionInputs};

use super::{OnnxRuntime, builder, commit, error_text, preload, text, values};
use crate::engine::SessionOptions;
use crate::error::ModelLoadError;
use crate::model_file::ModelFile;
use gpux_core::Tensor;
use gpux_core::catch_panic::{catch_panic, shorten};

impl OnnxRuntime {
    /// Runs the model once, its graph as the file has it: nothing is fused or folded away before its
    /// nodes are given to providers. What each node did is written to a file whose name begins with
    /// `prefix`.
    pub fn profile(
        &self,
        file: &ModelFile,
        options: &SessionOptions,
        inputs: &[(usize, &Tensor)],
        prefix: &Path,
    ) -> Result<(), ModelLoadError> {
        preload::preload(&self.library, options.provider);
        catch_panic(|| self.run_profiled(file, options, inputs, prefix)).unwrap_or_else(Err).map_err(|fault| {
            ModelLoadError::Engine {
                path: file.path().to_owned(),
                engine: self.name.clone(),
                reason: shorten(&error_text::simplify(&fault)),
            }
        })
    }

    fn run_profiled(
        &self,
        file: &ModelFile,
        options: &SessionOptions,
        inputs: &[(usize, &Tensor)],
        prefix: &Path,
    ) -> Result<(), String> {
        let plain = |error: ort::Error| error.to_string();
        let builder = builder(self.environment, options)?
            .with_optimization_level(GraphOptimizationLevel::Disable)
            .map_err(text)?
            // The profile leaves prepacked weights out of a node's inputs.
            .with_prepacking(false)
            .map_err(text)?
            .with_profiling(prefix)
            .map_err(text)?;
        let mut native = commit(builder, file)?;
        let named = inputs.iter().map(|(index, tensor)| {
            let name = file.info().inputs.get(*index).map(|input| Cow::Borrowed(input.name.as_str()));
            Ok((name.unwrap_or_default(), values::view(tensor)?))
        });
        let named: Vec<(Cow<'_, str>, SessionInputValue<'_>)> = named.collect::<ort::Result<_>>().map_err(plain)?;
        native.run(SessionInputs::<0>::ValueMap(named)).map_err(plain)?;
        native.end_profiling().map(drop).map_err(plain)
    }
}
