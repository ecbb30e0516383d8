//! Why no pipeline is made of a model.

use gpux_core::sanitize::sanitize_for_terminal as clean;

/// Something about a repository that gpux would have to guess, or cannot do. Nothing is kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HubModelFault {
    /// it brings code
    #[error(
        "`{file}` has `auto_map` with `{class}`: code of the repository prepares what goes into the model, and gpux does \
         not run it", class = clean(class)
    )]
    CustomCode {
        /// the file
        file: String,
        /// what the code takes the place of, such as `AutoTokenizer`
        class: String,
    },
    /// a file is missing
    #[error("there is no `{file}`: {why}")]
    Missing {
        /// the file
        file: String,
        /// what it is needed for
        why: String,
    },
    /// a file that is not JSON
    #[error("`{file}` cannot be read: {reason}")]
    Json {
        /// the file
        file: String,
        /// what is wrong
        reason: String,
    },
    /// no ONNX
    #[error(
        "it holds no ONNX file; `optimum-cli export onnx --model {model} exported` makes one, and `gpux pull ./exported` \
         takes that. Of a model of sentence-transformers, copy `config_sentence_transformers.json` (its prompts) there, \
         which Optimum leaves out"
    )]
    NoOnnx {
        /// the repository
        model: String,
    },
    /// several ONNX files
    #[error("it holds several ONNX files, and none is named `model.onnx`: choose one with --file: {}", .0.join(", "))]
    SeveralModels(Vec<String>),
    /// a file that is named and is not there
    #[error("it holds no `{file}`; its ONNX files are: {}", others.join(", "))]
    NoSuchModel {
        /// the named file
        file: String,
        /// those that there are
        others: Vec<String>,
    },
    /// an architecture without a pipeline
    #[error(
        "`{}` (config.json: architectures): {missing}. `gpux new pipeline NAME --model model.onnx` is a start",
        clean(architecture)
    )]
    Architecture {
        /// its name
        architecture: String,
        /// what is missing
        missing: &'static str,
    },
    /// no task is known
    #[error("config.json names no architecture: say what the model does with --task")]
    NoTask,
    /// a key has a value that no step has
    #[error("{file}: `{key}` is {}: {why}", clean(value))]
    Value {
        /// the file
        file: String,
        /// the key
        key: String,
        /// its value
        value: String,
        /// why it is refused
        why: String,
    },
    /// no pooling is written down
    #[error(
        "the model gives a vector for each token, and nothing says how they become one (there is no `modules.json`): \
         say it with --pooling mean, cls or lasttoken"
    )]
    NoPooling,
    /// a module of sentence-transformers
    #[error("modules.json has `{}`, which no step does", clean(.0))]
    Module(String),
    /// an input that no step gives
    #[error("the model takes `{}`, which {step} does not give", clean(input))]
    Input {
        /// the input
        input: String,
        /// the step
        step: &'static str,
    },
    /// an output that is not there
    #[error("the model gives no {wanted}, but {}", clean(outputs))]
    Output {
        /// what was looked for
        wanted: &'static str,
        /// what it gives
        outputs: String,
    },
    /// another number of classes
    #[error("config.json has {labels} labels, but the model gives {scores} scores")]
    Labels {
        /// how many labels
        labels: usize,
        /// how many scores
        scores: usize,
    },
    /// weights that have no place in the folder
    #[error("the model keeps weights in `{}`, which cannot lie in a pipeline's folder", clean(.0))]
    Weights(String),
}

impl HubModelFault {
    /// A key with a value that is refused.
    pub(super) fn value(file: &str, key: &str, value: &str, why: &str) -> Self {
        let [file, key, value, why] = [file, key, value, why].map(str::to_owned);
        Self::Value { file, key, value, why }
    }
}
