//! A pipeline around a model of the hub, by what its files say: no number is guessed.

mod custom_code;
mod fault;
mod image;
mod model_choice;
mod prompts;
mod sentence;
mod source;
mod speech;
mod task;
mod text;
mod unread;
mod yaml;

use std::fs;
use std::path::Path;

pub use self::fault::HubModelFault;
pub use self::model_choice::PRECISIONS;
pub use self::task::HubTask;

use self::source::ModelSource;
use self::yaml::{StepLines, one_line};
use super::case::CASES_FOLDER;
use super::case_runner::{CaseOutcome, CaseRunner};
use super::project_name::suggested_name;
use super::scaffold::{ScaffoldError, ScaffoldReport, in_draft};
use gpux::{GpuxError, LoadOptions, Pipeline};
use gpux_hub::{HubError, LOCK_FILE as LOCK, Repository, TransferProgress};
use gpux_inference::ModelInfo;

const MODEL: &str = "model.onnx";
const LABELS: &str = "labels.txt";
const PIPELINE: &str = "gpux.yml";
const CASE: &str = "sample";
/// Documents that are kept, if they are there.
const DOCUMENTS: [&str; 6] = ["README.md", "LICENSE", "LICENSE.txt", "LICENSE.md", "NOTICE", "NOTICE.txt"];
/// Small files that say how a model is used, which are fetched together. Those that no pipeline needs are few.
const CONFIGURATION: [&str; 8] = [
    "config.json",
    "tokenizer_config.json",
    "preprocessor_config.json",
    "processor_config.json",
    "config_sentence_transformers.json",
    "modules.json",
    "sentence_bert_config.json",
    "1_Pooling/config.json",
];
/// The most labels that a result lists.
const TOP: usize = 5;

/// How a vector for each token becomes one, where no file says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// their mean
    Mean,
    /// that of the first token
    Cls,
    /// that of the last token
    LastToken,
}

/// Whose numbers a picture is resized with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ImageBackend {
    /// torchvision's on tensors, as transformers 5 does
    #[default]
    Torch,
    /// Pillow's, as transformers did before
    Pillow,
}

/// How the files of the repository get into the new folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilePlacement {
    /// as copies
    Copies,
    /// as links, where the file system can; the folder is not for others to write to
    Links,
}

/// What to make of a repository.
#[derive(Clone, Copy, Debug)]
pub struct HubModelRequest<'a> {
    /// the new folder; its last part is the name
    pub folder: &'a Path,
    /// what the repository was named by
    pub reference: &'a str,
    /// what the model does, if config.json does not tell
    pub task: Option<HubTask>,
    /// which of its ONNX files
    pub file: Option<&'a str>,
    /// which of them by its precision, as exporters name it
    pub precision: Option<&'a str>,
    /// how vectors of tokens become one, where no file says it
    pub pooling: Option<Pooling>,
    /// whether a prompt that the repository puts before each text is left out
    pub without_prompt: bool,
    /// whose numbers a picture is resized with
    pub image_backend: ImageBackend,
    /// how files get into the folder
    pub placement: FilePlacement,
    /// how the model is run on a sample
    pub load_options: &'a LoadOptions,
}

/// A pipeline that was made.
#[derive(Clone, Debug)]
pub struct HubModelReport {
    /// its files
    pub made: ScaffoldReport,
    /// what the model does
    pub task: HubTask,
    /// which ONNX file it is
    pub model: String,
}

/// Why no pipeline was made. Nothing is left behind.
#[derive(Debug, thiserror::Error)]
pub enum HubModelError {
    /// the folder
    #[error(transparent)]
    Scaffold(#[from] ScaffoldError),
    /// the files
    #[error(transparent)]
    Hub(#[from] HubError),
    /// what the files say
    #[error("no pipeline is made of `{repository}`: {fault}")]
    Fault {
        /// the repository
        repository: String,
        /// why
        fault: HubModelFault,
    },
    /// the model
    #[error(transparent)]
    Gpux(#[from] GpuxError),
    /// the new pipeline did not run
    #[error("the pipeline of `{repository}` does not run, so it is not kept: {reason}")]
    Run {
        /// the repository
        repository: String,
        /// why
        reason: String,
    },
    /// a file that cannot be written
    #[error("cannot write `{file}`: {source}")]
    Write {
        /// the file
        file: String,
        /// the system's reason
        source: std::io::Error,
    },
}

/// A pipeline, before it is written.
struct Recipe {
    /// the lines of `inputs:`
    inputs: &'static str,
    steps: Vec<StepLines>,
    /// the lines of `outputs:`
    outputs: String,
    /// the lines of `serving:`
    serving: &'static str,
    labels: Option<Vec<String>>,
    sample: Sample,
    /// files of the repository that the steps read
    companions: Vec<&'static str>,
}

/// What the pipeline is tried with.
#[derive(Clone, Copy)]
enum Sample {
    Text,
    Ranking,
    Question,
    Picture,
    Sound,
}

/// A name of a folder for a repository's name.
pub fn folder_name(repository: &str) -> String {
    suggested_name(repository)
}

/// Makes the folder: the model and what belongs to it, a gpux.yml that says where each number comes from, a test, and
/// gpux.lock. It is run once before it is kept.
pub fn pipeline_for_hub_model(
    request: &HubModelRequest<'_>,
    repository: &mut Repository,
    progress: &dyn TransferProgress,
) -> Result<HubModelReport, HubModelError> {
    let shown = request.reference.to_owned();
    let (made, (task, model)) = in_draft(request.folder, |draft, name| {
        let mut source = ModelSource { repository, progress };
        let made = make(request, &mut source, draft, name);
        let (task, model) = made.map_err(|error| match error {
            MakeError::Fault(fault) => HubModelError::Fault { repository: shown.clone(), fault },
            MakeError::Other(error) => error,
        })?;
        source.progress.note("running it once");
        try_sample(request, draft, name)?;
        Ok::<_, HubModelError>((files(draft)?, (task, model)))
    })?;
    Ok(HubModelReport { made, task, model })
}

/// Faults do not know which repository they are about.
enum MakeError {
    Fault(HubModelFault),
    Other(HubModelError),
}

impl From<HubModelFault> for MakeError {
    fn from(fault: HubModelFault) -> Self {
        Self::Fault(fault)
    }
}

impl<E: Into<HubModelError>> From<E> for MakeError {
    fn from(error: E) -> Self {
        Self::Other(error.into())
    }
}

fn make(
    request: &HubModelRequest<'_>,
    source: &mut ModelSource<'_>,
    draft: &Path,
    name: &str,
) -> Result<(HubTask, String), MakeError> {
    source.prefetch(&CONFIGURATION)?;
    let config = source.required_json("config.json", "it says what the model does")?;
    let has_model_code = custom_code::check(source, &config)?;
    if has_model_code {
        source.progress.note(custom_code::NOTE);
    }
    unread::check(source)?;
    let task = source.task(request.task, &config)?;
    let model = model_choice::choose(source.repository.names(), request.file, request.precision, request.reference)?;

    let tokenizer = (!source.repository.has("preprocessor_config.json")).then_some("tokenizer.json");
    let beside: Vec<_> = DOCUMENTS.into_iter().chain(tokenizer).chain([&*model]).collect();
    source.prefetch(&beside)?;
    place_locked(request, source, &model, draft, MODEL)?;
    let weights = gpux_inference::ModelInspector::weight_locations(&draft.join(MODEL)).map_err(GpuxError::from)?;
    let folder = model.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut shards = Vec::new();
    for location in weights {
        let location = location.to_string_lossy().replace('\\', "/");
        if location.starts_with(CASES_FOLDER) || is_own_file(&location) {
            return Err(HubModelFault::Weights(location).into());
        }
        let file = if folder.is_empty() { location.clone() } else { format!("{folder}/{location}") };
        if !source.repository.has(&file) {
            return Err(HubModelFault::Missing { file, why: format!("`{model}` keeps weights in it") }.into());
        }
        shards.push((file, location));
    }
    source.prefetch(&shards.iter().map(|(file, _)| file.as_str()).collect::<Vec<_>>())?;
    for (file, location) in shards {
        place_locked(request, source, &file, draft, &location)?;
    }
    let info = gpux_inference::ModelInspector::inspect(&draft.join(MODEL)).map_err(GpuxError::from)?;

    let recipe = match task {
        HubTask::TextClassification => text::classification(source, &config, &info),
        HubTask::TextRanking => text::ranking(source, &config, &info, request),
        HubTask::TokenClassification => text::tokens(source, &config, &info),
        HubTask::QuestionAnswering => text::answers(source, &config, &info),
        HubTask::SentenceSimilarity => sentence::embedding(source, &config, &info, request),
        HubTask::ImageClassification => image::classification(source, &config, &info, request),
        HubTask::ImageFeatureExtraction => image::embedding(source, &info, request),
        HubTask::SpeechRecognition => speech::recognition(source, &info),
    }?;
    for companion in &recipe.companions {
        place_locked(request, source, companion, draft, companion)?;
    }
    for document in DOCUMENTS.into_iter().filter(|document| source.repository.has(document)).collect::<Vec<_>>() {
        place(request, source, document, &draft.join(document))?;
    }
    write(&draft.join(PIPELINE), &recipe.text(request.reference, source, name, &model, has_model_code))?;
    if let Some(labels) = &recipe.labels {
        write(&draft.join(LABELS), &(labels.join("\n") + "\n"))?;
    }
    if let Some(locked) = source.repository.locked() {
        write(&draft.join(LOCK), &gpux_hub::lock_text(&[locked]))?;
    }
    recipe.sample.write(&draft.join(CASES_FOLDER).join(CASE))?;
    Ok((task, model))
}

/// Whether a path is that of a file which gpux writes, or keeps under its own name.
fn is_own_file(location: &str) -> bool {
    [MODEL, LABELS, PIPELINE, LOCK].contains(&location)
        || DOCUMENTS.contains(&location)
        || location.rsplit('.').next() == Some("json")
}

/// Puts a file that the pipeline reads into the new folder, where gpux.lock names it.
fn place_locked(
    request: &HubModelRequest<'_>,
    source: &mut ModelSource<'_>,
    file: &str,
    draft: &Path,
    target: &str,
) -> Result<(), HubModelError> {
    place(request, source, file, &draft.join(target))?;
    source.repository.set_target(file, target);
    Ok(())
}

/// Puts a file of the repository into the new folder.
fn place(
    request: &HubModelRequest<'_>,
    source: &mut ModelSource<'_>,
    file: &str,
    to: &Path,
) -> Result<(), HubModelError> {
    let from = source.repository.fetch(file, source.progress)?;
    let put = || {
        fs::create_dir_all(to.parent().unwrap_or(to))?;
        if request.placement == FilePlacement::Links && fs::hard_link(&from, to).is_ok() {
            return Ok(());
        }
        let mut original = gpux_core::files::open_file(&from, "it")?;
        std::io::copy(&mut original, &mut fs::File::create(to)?).map(drop)
    };
    put().map_err(|source| HubModelError::Write { file: to.display().to_string(), source })
}

fn write(path: &Path, text: &str) -> Result<(), HubModelError> {
    let put = || {
        fs::create_dir_all(path.parent().unwrap_or(path))?;
        fs::write(path, text)
    };
    put().map_err(|source| HubModelError::Write { file: path.display().to_string(), source })
}

/// Runs the new pipeline on its sample, whose results become those of its test.
fn try_sample(request: &HubModelRequest<'_>, draft: &Path, name: &str) -> Result<(), HubModelError> {
    let pipeline = Pipeline::open(draft.join(PIPELINE), request.load_options)?;
    let case = draft.join(CASES_FOLDER).join(CASE);
    let report = CaseRunner::for_pipeline(pipeline, request.load_options).run(&case, true)?;
    let reason = match report.outcome {
        CaseOutcome::Passed | CaseOutcome::Blessed(_) => return Ok(()),
        CaseOutcome::Failed(lines) => lines.join("\n"),
        CaseOutcome::Invalid(error) => error.to_string(),
    };
    // The draft has another name than the folder.
    let draft = draft.file_name().unwrap_or_default().to_string_lossy();
    Err(HubModelError::Run { repository: request.reference.to_owned(), reason: reason.replace(&*draft, name) })
}

fn files(folder: &Path) -> Result<Vec<String>, HubModelError> {
    super::model_pipeline::files(folder)
        .map_err(|source| HubModelError::Write { file: folder.display().to_string(), source })
}

impl Recipe {
    fn text(&self, reference: &str, source: &ModelSource<'_>, name: &str, model: &str, has_model_code: bool) -> String {
        let facts = source.repository.facts();
        let commit = facts.commit.as_ref().map_or_else(String::new, |commit| format!(", commit {commit}"));
        let license = facts
            .license
            .as_ref()
            .map_or_else(String::new, |license| format!("# Licence, as its card says: {}\n", one_line(license)));
        let code = if has_model_code { format!("# {}.\n", custom_code::NOTE) } else { String::new() };
        let mut lines = format!(
            "# Made by `gpux pull {}`{commit}.\n# A comment says which file and key a number comes from.\n{code}{license}\
             name: {name}\nversion: 0.1.0\n\nmodel: ./{MODEL}  # {}\n{}\npipeline:\n",
            one_line(reference),
            one_line(model),
            self.inputs
        );
        self.steps.iter().for_each(|step| step.write(&mut lines));
        lines + &self.outputs + self.serving
    }
}

impl Sample {
    fn write(self, case: &Path) -> Result<(), HubModelError> {
        let tolerance = "tolerance: { absolute: 1e-4, relative: 1e-3 }\n";
        let description = "description: what the model gave on the sample when the pipeline was made\n";
        let inputs = match self {
            Self::Text => "  text: The quick brown fox jumps over the lazy dog.\n",
            Self::Ranking => {
                "  query: What is Deep Learning?\n  documents: { json: [Deep Learning is not..., Deep learning is...] }\n"
            }
            Self::Question => {
                "  question: Who jumps over the dog?\n  context: The quick brown fox jumps over the lazy dog.\n"
            }
            Self::Picture => "  image: { file: sample.png }\n",
            Self::Sound => "  audio: { file: sample.wav }\n",
        };
        write(&case.join("case.yml"), &format!("{description}{tolerance}inputs:\n{inputs}"))?;
        let media = match self {
            Self::Picture => ("sample.png", super::model_pipeline::SAMPLE_IMAGE.to_vec()),
            Self::Sound => ("sample.wav", gpux_core::SyntheticInputs::audio()),
            Self::Text | Self::Ranking | Self::Question => return Ok(()),
        };
        let (file, bytes) = media;
        fs::write(case.join(file), bytes).map_err(|source| HubModelError::Write { file: file.to_owned(), source })
    }
}

/// The names of the outputs, for people.
fn shown_outputs(info: &ModelInfo) -> String {
    info.outputs.iter().map(|output| format!("`{}`", output.name)).collect::<Vec<_>>().join(", ")
}

/// Whether the model has an output of this name.
fn has_output(info: &ModelInfo, name: &str) -> bool {
    info.outputs.iter().any(|output| output.name == name)
}

/// The first of `names` that the model gives.
fn output<'a>(info: &ModelInfo, names: &[&'a str], wanted: &'static str) -> Result<&'a str, HubModelFault> {
    let found = names.iter().find(|name| has_output(info, name)).copied();
    found.ok_or_else(|| HubModelFault::Output { wanted, outputs: shown_outputs(info) })
}

/// Refuses a model that takes what `step` does not give.
fn check_inputs(info: &ModelInfo, given: &[&str], step: &'static str) -> Result<(), HubModelFault> {
    let other = info.inputs.iter().find(|input| input.required && !given.contains(&input.name.as_str()));
    other.map_or(Ok(()), |input| Err(HubModelFault::Input { input: input.name.clone(), step }))
}

/// The labels of config.json in the order of their numbers, as many as the model gives scores.
fn labels(config: &serde_json::Value, scores: Option<usize>) -> Result<Vec<String>, HubModelFault> {
    let value = |why: &str, value: String| HubModelFault::Value {
        file: "config.json".to_owned(),
        key: "id2label".to_owned(),
        value,
        why: why.to_owned(),
    };
    let names = match config.get("id2label").and_then(serde_json::Value::as_object) {
        Some(map) => {
            let label = |number: usize| {
                let label = map.get(&number.to_string()).and_then(serde_json::Value::as_str);
                let missing = || value("the labels are not numbered from 0 on", format!("without `{number}`"));
                label.map(str::to_owned).ok_or_else(missing)
            };
            (0..map.len()).map(label).collect::<Result<Vec<_>, _>>()?
        }
        // What transformers leaves out is its default of two labels.
        None => ["LABEL_0", "LABEL_1"].map(str::to_owned).to_vec(),
    };
    let is_line = |name: &String| !name.is_empty() && name.trim() == name && !name.contains(char::is_control);
    if let Some(odd) = names.iter().find(|name| !is_line(name)) {
        return Err(value("a label is one line of text", format!("{odd:?}")));
    }
    match scores {
        Some(scores) if scores != names.len() => Err(HubModelFault::Labels { labels: names.len(), scores }),
        _ => Ok(names),
    }
}

/// The lines of `outputs:` that give one of the model's outputs alone.
fn only_output(info: &ModelInfo, name: &str) -> String {
    let kind = info.outputs.iter().find(|output| output.name == name).map_or("float32", |output| output.kind.as_str());
    format!("\noutputs: {{ {name}: {{ type: {kind} }} }}\n")
}

/// The size of the last axis of an output, if the model fixes it.
fn last_size(info: &ModelInfo, output: &str) -> Option<usize> {
    let output = info.outputs.iter().find(|other| other.name == output)?;
    match output.shape.as_ref()?.last()? {
        gpux_core::Dim::Fixed(size) => Some(*size),
        _ => None,
    }
}
