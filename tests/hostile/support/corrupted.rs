//! What becomes of damaged models: each is opened as a pipeline, in this process after its trial in
//! another, and run.

use std::path::Path;
use std::time::{Duration, Instant};

use gpux::GpuxError;
use gpux::internal::engine_search;
use gpux::{EngineChoice, LoadOptions, Pipeline};
use gpux_core::{Context, Step as _, SyntheticInputs};
use gpux_inference::{ModelLoadError, synthetic_inputs};

use crate::damage::ALL;
use crate::dice::Dice;
use crate::root;

/// What came of one model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// gpux's own reader refused the file
    Unread,
    /// the engine refused it, in the trial process
    Refused,
    /// it brought the trial process down, or took too much of it
    EndedTrial,
    /// it was loaded, and its run was an error
    RunFailed,
    /// it was loaded and ran
    Ran,
}

impl Outcome {
    pub const ALL: [Self; 5] = [Self::Unread, Self::Refused, Self::EndedTrial, Self::RunFailed, Self::Ran];

    /// For the heading of a table.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unread => "refused by gpux's reader",
            Self::Refused => "refused by the engine, in the trial",
            Self::EndedTrial => "ended the trial process",
            Self::RunFailed => "loaded, the run an error",
            Self::Ran => "loaded and ran",
        }
    }
}

/// How long one run may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// Real models and a folder for their corrupted copies.
pub struct Corrupted {
    models: Vec<Vec<u8>>,
    folder: tempfile::TempDir,
    load_options: LoadOptions,
}

impl Corrupted {
    /// `None` where the engine is ONNX Runtime, and none is there.
    pub fn new(engine: EngineChoice, program: &Path) -> Option<Self> {
        let library = if engine == EngineChoice::OnnxRuntime {
            Some(engine_search(&LoadOptions::default(), &[]).choose().unwrap().found?.path)
        } else {
            None
        };
        let root = root();
        let mut paths: Vec<_> = [
            "models/digits.onnx",
            "tests/models/conv.onnx",
            "tests/models/embedding.onnx",
            "tests/models/external.onnx",
            "tests/models/gather.onnx",
            "tests/models/loop.onnx",
            "tests/models/mean.onnx",
            "tests/models/two.onnx",
            "tests/models/zipmap.onnx",
        ]
        .map(|path| root.join(path))
        .into();
        let estimators =
            std::fs::read_dir(root.join("tests/onnx/estimators")).unwrap().map(|entry| entry.unwrap().path());
        let mut estimators: Vec<_> =
            estimators.filter(|path| path.extension().is_some_and(|ending| ending == "onnx")).collect();
        estimators.sort();
        paths.extend(estimators);
        let models = paths.iter().map(|path| std::fs::read(path).unwrap()).collect();
        let folder = tempfile::tempdir().unwrap();
        std::fs::copy(root.join("tests/models/weights.bin"), folder.path().join("weights.bin")).unwrap();
        // Without a cache: these are loaded once.
        let mut load_options = LoadOptions::default();
        (load_options.engine.choice, load_options.engine.library) = (engine, library);
        (load_options.program, load_options.cache) = (Some(program.to_owned()), None);
        Some(Self { models, folder, load_options })
    }

    /// Damages a model with this seed, and checks how it ends.
    pub fn one(&self, dice: &mut Dice, damage: usize) -> Outcome {
        let model = dice.pick(&self.models);
        let bytes = ALL[damage].1(dice, model, &self.models);
        let path = self.folder.path().join("damaged.onnx");
        std::fs::write(&path, bytes).unwrap();
        let pipeline = match Pipeline::open(&path, &self.load_options) {
            Ok(pipeline) => pipeline,
            Err(GpuxError::ModelLoad(ModelLoadError::Validation { .. })) => return Outcome::EndedTrial,
            Err(GpuxError::ModelLoad(
                ModelLoadError::Engine { .. }
                | ModelLoadError::NeedsOnnxRuntime { .. }
                | ModelLoadError::BeyondEmbedded { .. }
                | ModelLoadError::CustomOperator { .. }
                | ModelLoadError::Lacking { .. },
            )) => return Outcome::Refused,
            Err(_) => return Outcome::Unread,
        };
        let (_, step) = pipeline.models().next().expect("it is a model");
        let maker = SyntheticInputs { seed: Some(dice.next() >> 32), ..SyntheticInputs::default() };
        let Some(inputs) = synthetic_inputs(step.file().info(), maker) else { return Outcome::RunFailed };
        let mut context = Context { deadline: Some(Instant::now() + PATIENCE), ..Context::default() };
        if step.run(inputs, &mut context).is_ok() { Outcome::Ran } else { Outcome::RunFailed }
    }
}
