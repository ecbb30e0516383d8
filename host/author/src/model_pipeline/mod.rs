//! A pipeline around a model, with a sample and a test: guessed from the model's file, and from what the model gives on
//! the sample.

mod class_names;
mod columns;
mod sample;
mod steps;
mod task;

use std::fs;
use std::path::{Path, PathBuf};

pub use self::columns::ColumnsError;
pub(super) use self::sample::IMAGE as SAMPLE_IMAGE;
use self::steps::{OpenSizes, Postprocessing};
pub use self::task::Task;
use super::case::CASES_FOLDER;
use super::case_runner::{CaseOutcome, CaseRunner};
use super::scaffold::{ScaffoldError, ScaffoldReport, in_draft};
use gpux::{ErrorCategory, GpuxError, LoadOptions, Pipeline};
use gpux_core::{RunOptions, Tensor, Value};
use gpux_inference::{ModelFile, ModelInfo};

/// The model's name in the new folder.
const MODEL: &str = "model.onnx";
const LABELS: &str = "labels.txt";
const TOKENIZER: &str = "tokenizer.json";
const PIPELINE: &str = "gpux.yml";
const README: &str = "README.md";
/// The folder of the test.
const CASE: &str = "sample";

/// What to make a pipeline of.
#[derive(Clone, Copy, Debug)]
pub struct ModelPipelineRequest<'a> {
    /// the new folder; its last part is the name
    pub folder: &'a Path,
    /// the model's file, which is copied
    pub model: &'a Path,
    /// what the model takes, if its inputs do not tell
    pub task: Option<Task>,
    /// the names of its classes, one a line
    pub labels: Option<&'a Path>,
    /// a table whose header names the elements of its input, if it takes one row of numbers
    pub columns: Option<&'a Path>,
    /// its `tokenizer.json`, if that does not lie beside it
    pub tokenizer: Option<&'a Path>,
    /// how the model is run on the sample
    pub load_options: &'a LoadOptions,
}

/// A pipeline that was made.
#[derive(Debug)]
pub struct ModelPipelineReport {
    /// its files
    pub made: ScaffoldReport,
    /// what the model takes
    pub task: Task,
    /// why the test does not pass yet
    pub failure: Option<TestFailure>,
}

/// Why the test of a new pipeline does not pass yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestFailure {
    /// the error
    pub message: String,
    /// whether the machine is at fault, such as one without ONNX Runtime
    pub is_environment: bool,
}

impl From<GpuxError> for TestFailure {
    fn from(error: GpuxError) -> Self {
        Self { message: error.to_string(), is_environment: error.category() == ErrorCategory::Environment }
    }
}

/// Why no pipeline was made. Nothing is left behind.
#[derive(Debug, thiserror::Error)]
pub enum ModelPipelineError {
    /// the folder
    #[error(transparent)]
    Scaffold(#[from] ScaffoldError),
    /// the model
    #[error(transparent)]
    Gpux(#[from] GpuxError),
    /// a model of text without its tokenizer
    #[error(
        "a model of text needs its tokenizer: put `tokenizer.json` beside the model, or name it with --tokenizer; \
         `--task tensor` takes token numbers"
    )]
    NoTokenizer,
    /// labels for a model that gives no classes
    #[error(
        "the model gives nothing that the {labels} labels of --labels could name ({outputs}): a row of as many scores, or \
         numbers of classes"
    )]
    UnusedLabels {
        /// how many there are
        labels: usize,
        /// what the model gave on the sample
        outputs: String,
    },
    /// an input that no sample is written for
    #[error("the input `{0}` takes too many elements for a sample: say what the model takes with --task")]
    LargeInput(String),
    /// weights whose file would be in the place of another file of the folder
    #[error(
        "the model keeps weights in `{0}`, which is the name of another file of a pipeline: give them another name"
    )]
    WeightsName(String),
    /// columns that do not fit
    #[error(transparent)]
    Columns(#[from] ColumnsError),
    /// a file that cannot be copied
    #[error("cannot copy `{}`: {source}", path.display())]
    Copy {
        /// the file
        path: PathBuf,
        /// the system's reason
        source: std::io::Error,
    },
}

impl From<std::io::Error> for ModelPipelineError {
    fn from(source: std::io::Error) -> Self {
        Self::Copy { path: MODEL.into(), source }
    }
}

/// Makes the folder: the model, a gpux.yml, and a test that expects what the model gives on a sample.
pub fn pipeline_for_model(request: &ModelPipelineRequest<'_>) -> Result<ModelPipelineReport, ModelPipelineError> {
    let model = ModelFile::open(request.model).map_err(GpuxError::from)?;
    let info = model.info();
    let task = request.task.unwrap_or_else(|| Task::guess(info));
    let (made, failure) = in_draft(request.folder, |draft, name| {
        let folder = Draft { root: draft, name, info, task, load_options: request.load_options };
        folder.copy_files(request)?;
        let failure = folder.write(request.labels)?.map(|failure| {
            // The draft has another name than the folder.
            let draft = draft.file_name().unwrap_or_default().to_string_lossy();
            TestFailure { message: failure.message.replace(&*draft, name), ..failure }
        });
        if task == Task::Table {
            columns::add(&draft.join(PIPELINE), MODEL, info, request.columns)?;
        }
        Ok::<_, ModelPipelineError>((files(draft)?, failure))
    })?;
    Ok(ModelPipelineReport { made, task, failure })
}

/// The folder while it is being made.
struct Draft<'a> {
    root: &'a Path,
    name: &'a str,
    info: &'a ModelInfo,
    task: Task,
    load_options: &'a LoadOptions,
}

impl Draft<'_> {
    fn copy(&self, from: &Path, to: &Path) -> Result<(), ModelPipelineError> {
        let to = self.root.join(to);
        let copied = to.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::copy(from, to));
        copied.map(drop).map_err(|source| ModelPipelineError::Copy { path: from.to_owned(), source })
    }

    /// Copies the model and what belongs to it.
    fn copy_files(&self, request: &ModelPipelineRequest<'_>) -> Result<(), ModelPipelineError> {
        let copy = |from: &Path, to: &Path| self.copy(from, to);
        copy(request.model, Path::new(MODEL))?;
        let beside = request.model.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        for (name, file) in &self.info.external_locations {
            if name.starts_with(CASES_FOLDER)
                || [MODEL, LABELS, TOKENIZER, PIPELINE, README].iter().any(|own| name == Path::new(own))
            {
                return Err(ModelPipelineError::WeightsName(name.display().to_string()));
            }
            copy(file, name)?;
        }
        if self.task == Task::Text {
            let found = beside.join(TOKENIZER);
            let tokenizer = request.tokenizer.unwrap_or(&found);
            if request.tokenizer.is_none() && !found.is_file() {
                return Err(ModelPipelineError::NoTokenizer);
            }
            copy(tokenizer, Path::new(TOKENIZER))?;
        }
        Ok(())
    }

    /// Writes gpux.yml, the sample and the test; `labels` is the file that the user named. Gives why the test does not
    /// pass.
    fn write(&self, labels: Option<&Path>) -> Result<Option<TestFailure>, ModelPipelineError> {
        if let Some(labels) = labels {
            self.copy(labels, Path::new(LABELS))?;
        }
        let count = labels.map(|_| count_lines(&self.root.join(LABELS))).transpose()?;
        let case = self.root.join(CASES_FOLDER).join(CASE);
        fs::create_dir_all(&case)?;
        fs::write(self.root.join(README), self.readme())?;
        let mut failure = None;
        for sizes in self.task.open_sizes(self.info) {
            let before = self.write_sample(sizes, &case)?;
            match self.model_outputs() {
                Ok(outputs) => return self.write_rest(&before, &outputs, &case, count),
                // The next sizes would fail as well.
                Err(error) if error.category() != ErrorCategory::Run && error.category() != ErrorCategory::Request => {
                    return Ok(Some(error.into()));
                }
                Err(error) => {
                    failure.get_or_insert_with(|| TestFailure::from(error));
                }
            }
        }
        if let Some(sizes) = self.task.open_sizes(self.info).first() {
            self.write_sample(*sizes, &case)?;
        }
        Ok(failure)
    }

    /// Writes the sample, and a gpux.yml without what follows the model. Gives what stands before it.
    fn write_sample(&self, sizes: OpenSizes, case: &Path) -> Result<String, ModelPipelineError> {
        let inputs = sample::write(self.task, self.info, sizes.axis, case)?;
        // Results differ in the last digits between processors.
        let tolerance = "tolerance: { absolute: 1e-4, relative: 1e-3 }\n";
        let description = "description: what the model gave on the sample when the pipeline was made\n";
        fs::write(case.join("case.yml"), format!("{description}{tolerance}inputs:\n{inputs}"))?;
        let before = steps::preprocessing(self.task, self.info, sizes);
        self.write_pipeline(&before, &Postprocessing::Nothing, false)?;
        Ok(before)
    }

    /// Writes what follows the model by its `outputs`, and the results of the test.
    fn write_rest(
        &self,
        before: &str,
        outputs: &[(String, Value)],
        case: &Path,
        labels: Option<usize>,
    ) -> Result<Option<TestFailure>, ModelPipelineError> {
        let tensor = |name: &String| outputs.iter().find(|(output, _)| output == name)?.1.as_tensor();
        let named = self.info.outputs.iter().map(|output| &output.name);
        let tensors: Vec<_> = named.filter_map(|name| Some((name.as_str(), tensor(name)?))).collect();
        let after = Postprocessing::choose(self.task, self.info, &tensors, labels);
        let has_labels = match (labels, after.classes()) {
            (Some(labels), _) if !after.takes_labels() => {
                let output = |(name, tensor): &(&str, &Tensor)| format!("`{name}` {:?}", tensor.shape());
                let outputs = tensors.iter().map(output).collect::<Vec<_>>().join(", ");
                return Err(ModelPipelineError::UnusedLabels { labels, outputs });
            }
            (Some(_), _) => true,
            // A table's numbers of classes are not looked up without labels of its own.
            (None, count) if count.is_some() || matches!(after, Postprocessing::Boxes { .. }) => {
                match class_names::class_names(self.info, count) {
                    Some(names) => fs::write(self.root.join(LABELS), names.join("\n") + "\n").map(|()| true)?,
                    None => false,
                }
            }
            (None, _) => false,
        };
        self.write_pipeline(after.preprocessing(self.info).as_deref().unwrap_or(before), &after, has_labels)?;
        let ran =
            self.open().and_then(|pipeline| CaseRunner::for_pipeline(pipeline, self.load_options).run(case, true));
        let failed = |message| TestFailure { message, is_environment: false };
        Ok(match ran.map(|report| report.outcome) {
            Ok(CaseOutcome::Passed | CaseOutcome::Blessed(_)) => None,
            Ok(CaseOutcome::Failed(lines)) => Some(failed(lines.join("\n"))),
            Ok(CaseOutcome::Invalid(error)) => Some(failed(error.to_string())),
            Err(error) => Some(error.into()),
        })
    }

    fn open(&self) -> Result<Pipeline, GpuxError> {
        Pipeline::open(self.root.join(PIPELINE), self.load_options)
    }

    /// The model's outputs on the sample.
    fn model_outputs(&self) -> Result<Vec<(String, Value)>, GpuxError> {
        let pipeline = self.open()?;
        let requests = super::case_requests(&pipeline)?;
        let Some((_, request)) = requests.into_iter().next() else { return Ok(Vec::new()) };
        Ok(pipeline.plan().run(request, RunOptions::default())?)
    }

    fn write_pipeline(&self, before: &str, after: &Postprocessing, has_labels: bool) -> std::io::Result<()> {
        let head = format!(
            "# Made by `gpux new` from the model's inputs and what it gave on a sample: check what stands before the model.\n\
             name: {}\nversion: 0.1.0\n\nmodel: ./{MODEL}\n{}",
            self.name,
            steps::inputs(self.task, self.info)
        );
        let alone = self.info.outputs.len() == 1;
        let after = after.lines(alone, has_labels);
        let steps = if before.is_empty() && after.is_empty() {
            String::new()
        } else {
            format!("\npipeline:\n{before}  - model\n{after}")
        };
        fs::write(self.root.join(PIPELINE), head + &steps)
    }

    fn readme(&self) -> String {
        let file = match self.task {
            Task::Image => "--file photo.jpg",
            Task::Text => "--input text='a sentence'",
            Task::Audio => "--file sound.wav",
            Task::Table => "--file rows.csv",
            Task::Tensor => "--file request.json",
        };
        format!(
            "# {}\n\nA pipeline for [gpux](https://github.com/gpux/gpux) around `{MODEL}`.\n\n\
             ```sh\ngpux run . {file}\ngpux test            # the cases in tests/\ngpux inspect .       # what each step gives\n\
             gpux serve .         # POST /predict, and a page to try it\n```\n\n\
             The steps before the model were guessed: bring them to what the model was trained with, then \
             `gpux test --bless` keeps the new results.\n",
            self.name
        )
    }
}

/// How many labels a file has.
fn count_lines(path: &Path) -> std::io::Result<usize> {
    Ok(fs::read_to_string(path)?.lines().filter(|line| !line.trim().is_empty()).count())
}

/// Every file below `folder`, relative to it.
pub(super) fn files(folder: &Path) -> std::io::Result<Vec<String>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if let Ok(name) = path.strip_prefix(folder) {
                found.push(name.to_string_lossy().replace('\\', "/"));
            }
        }
    }
    found.sort();
    Ok(found)
}
