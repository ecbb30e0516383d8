//! Models of text: labels, scores of pairs, labels of words, answers.

use serde_json::Value as Json;

use super::fault::HubModelFault;
use super::prompts::{SENTENCES, with_prompts};
use super::source::ModelSource;
use super::unread::{SAVE_TOKENIZER, check_tokenizer};
use super::yaml::{StepLines, quoted};
use super::{
    HubModelRequest, LABELS, MakeError, Recipe, Sample, TOP, check_inputs, labels, last_size, only_output, output,
};
use gpux_core::Dim;
use gpux_inference::ModelInfo;

const TOKENIZER: &str = "./tokenizer.json";
/// What `tokenize` gives.
const TOKENS: [&str; 3] = ["input_ids", "attention_mask", "token_type_ids"];
/// A tokenizer's `model_max_length` beyond this stands for none.
const NO_LIMIT: f64 = 1e6;
/// Models whose positions begin behind those of padding.
const SHIFTED: [&str; 9] = [
    "roberta",
    "xlm-roberta",
    "xlm-roberta-xl",
    "camembert",
    "mpnet",
    "longformer",
    "roberta-prelayernorm",
    "xmod",
    "data2vec-text",
];
/// Windows of a long text, as transformers has them for questions.
const WINDOW: usize = 384;
const STRIDE: usize = 128;

/// How texts are cut: the most tokens and which key says it, and whether the beginning goes first.
pub(super) struct TokenLimit {
    most: Option<(usize, String)>,
    cuts_left: bool,
}

/// The files of the tokenizer; checks that the model takes what it gives.
pub(super) fn tokenizer_files(source: &mut ModelSource<'_>, info: &ModelInfo) -> Result<Vec<&'static str>, MakeError> {
    if !source.repository.has("tokenizer.json") {
        let why = format!("gpux reads no other tokenizer; {SAVE_TOKENIZER}");
        return Err(HubModelFault::Missing { file: "tokenizer.json".to_owned(), why }.into());
    }
    check_inputs(info, &TOKENS, "`tokenize`")?;
    check_tokenizer(source)?;
    let beside = ["tokenizer_config.json", "special_tokens_map.json"];
    let beside = beside.into_iter().filter(|file| source.repository.has(file));
    Ok(std::iter::once("tokenizer.json").chain(beside).collect())
}

impl TokenLimit {
    /// The least of what the files say; `sentences` is the content of `sentence_bert_config.json`, which goes before the
    /// tokenizer's own.
    pub(super) fn read(source: &mut ModelSource<'_>, config: &Json, sentences: &Json) -> Result<Self, MakeError> {
        let tokenizer = source.json("tokenizer_config.json")?.unwrap_or_default();
        let limit =
            |value: &Json| value.as_f64().filter(|limit| (1.0..NO_LIMIT).contains(limit)).map(|limit| limit as usize);
        let called = &sentences["processing_kwargs"]["text"]["max_length"];
        let of_sentences = [(called, "processing_kwargs"), (&sentences["max_seq_length"], "max_seq_length")];
        let of_sentences = of_sentences.into_iter().find_map(|(value, key)| Some((limit(value)?, key)));
        let of_sentences = of_sentences.map(|(limit, key)| (limit, format!("sentence_bert_config.json: {key}")));
        let of_tokenizer = limit(&tokenizer["model_max_length"])
            .map(|limit| (limit, "tokenizer_config.json: model_max_length".to_owned()));
        let is_shifted = config["model_type"].as_str().is_some_and(|kind| SHIFTED.contains(&kind));
        let positions = limit(&config["max_position_embeddings"]).map(|positions| {
            let source = "config.json: max_position_embeddings";
            if is_shifted {
                (positions.saturating_sub(2).max(1), format!("{source}, less 2 for the padding's"))
            } else {
                (positions, source.to_owned())
            }
        });
        let named = of_sentences.or(of_tokenizer);
        let most = named.into_iter().chain(positions).min_by_key(|(limit, _)| *limit);
        Ok(Self { most, cuts_left: tokenizer["truncation_side"] == "left" })
    }

    /// The step `tokenize` with it. A model of a fixed length gets texts of that length.
    pub(super) fn tokenize(&self, info: &ModelInfo) -> StepLines {
        let fixed = info.inputs.iter().find(|input| input.name == "input_ids");
        let fixed = fixed.and_then(|input| match input.shape.as_ref()?.get(1)? {
            Dim::Fixed(length) => Some(*length),
            _ => None,
        });
        let step = StepLines::new("tokenize").option("tokenizer", TOKENIZER);
        let step = match (fixed, &self.most) {
            (Some(length), _) => {
                let source = "the model takes no other length";
                step.sourced("max_length", length, source).option("padding", "max_length")
            }
            (None, Some((limit, source))) => step.sourced("max_length", limit, source),
            (None, None) => step,
        };
        if self.cuts_left {
            step.sourced("truncation_side", "left", "tokenizer_config.json: truncation_side")
        } else {
            step
        }
    }
}

/// The steps that make labels of a classifier's numbers. The order of these questions is that of transformers'
/// text_classification.py and image_classification.py.
pub(super) fn ranked_labels(config: &Json, labels: &[String], logits: &str) -> Vec<StepLines> {
    let problem_source = "config.json: problem_type";
    let scores = match config["problem_type"].as_str() {
        Some("regression") => None,
        Some("multi_label_classification") => Some(StepLines::new("sigmoid").from(problem_source)),
        _ if labels.len() == 1 => Some(StepLines::new("sigmoid").from("one label")),
        Some(_) => Some(StepLines::new("softmax").from(problem_source)),
        None => Some(StepLines::new("softmax").from("config.json: several labels, no problem_type")),
    };
    let top = StepLines::new("top-k").option("k", labels.len().min(TOP)).sourced(
        "labels",
        format!("./{LABELS}"),
        "config.json: id2label",
    );
    match scores {
        Some(scores) => vec![scores.option("in", quoted(logits)), top],
        None => vec![top.option("in", quoted(logits))],
    }
}

pub(super) fn classification(
    source: &mut ModelSource<'_>,
    config: &Json,
    info: &ModelInfo,
) -> Result<Recipe, MakeError> {
    let companions = tokenizer_files(source, info)?;
    let logits = output(info, &["logits"], "`logits`")?;
    let labels = labels(config, last_size(info, logits))?;
    let sentences = source.json(SENTENCES)?.unwrap_or_default();
    if sentences["model_type"] == "CrossEncoder" && labels.len() > 1 {
        let why = "it gives several labels to pairs of texts, and `text-classification` is for one text";
        return Err(HubModelFault::value(SENTENCES, "model_type", "CrossEncoder", why).into());
    }
    if labels.iter().any(|label| label.eq_ignore_ascii_case("entailment")) {
        source.progress.note(
            "config.json has the label `entailment`: such models take pairs of texts (premise and hypothesis), and this \
             pipeline gives labels to one text; `tokenize: { in: { text: premise, pair: hypothesis } }` makes pairs",
        );
    }
    let limit = TokenLimit::read(source, config, &Json::Null)?;
    let mut steps = vec![limit.tokenize(info), StepLines::new("model")];
    steps.extend(ranked_labels(config, &labels, logits));
    Ok(Recipe {
        inputs: "\ninputs: { text: text }\n",
        steps,
        outputs: String::new(),
        serving: "",
        labels: Some(labels),
        sample: Sample::Text,
        companions,
    })
}

pub(super) fn ranking(
    source: &mut ModelSource<'_>,
    config: &Json,
    info: &ModelInfo,
    request: &HubModelRequest<'_>,
) -> Result<Recipe, MakeError> {
    let companions = tokenizer_files(source, info)?;
    let logits = output(info, &["logits"], "`logits`")?;
    let labels = labels(config, last_size(info, logits))?;
    if labels.len() != 1 {
        let (file, key) = ("config.json".to_owned(), "id2label".to_owned());
        let why = "a query and a document get one score; no pipeline is made for pairs of texts with several labels"
            .to_owned();
        return Err(HubModelFault::Value { file, key, value: format!("{} labels", labels.len()), why }.into());
    }
    let sentences = source.json("sentence_bert_config.json")?.unwrap_or_default();
    let limit = TokenLimit::read(source, config, &sentences)?;
    let scores = activation(source, config)?.map(|step| step.option("in", quoted(logits)));
    let tokenize = limit.tokenize(info).option("in", "{ text: query, pair: documents }");
    // As in CrossEncoder, a prompt stands before the first text of a pair.
    let tokenize = with_prompts(source, tokenize, None, request.without_prompt)?;
    let steps: Vec<_> = [tokenize, StepLines::new("model")].into_iter().chain(scores).collect();
    let is_raw = steps.len() == 2 && info.outputs.len() > 1;
    let outputs = if is_raw { only_output(info, logits) } else { String::new() };
    Ok(Recipe {
        inputs: "\ninputs: { query: text, documents: json }\n",
        steps,
        outputs,
        serving: "\nserving: { endpoints: [rerank] }\n",
        labels: None,
        sample: Sample::Ranking,
        companions,
    })
}

/// What sentence-transformers' `CrossEncoder` does with the model's number: a sigmoid, unless its configuration names
/// another function.
fn activation(source: &mut ModelSource<'_>, config: &Json) -> Result<Option<StepLines>, MakeError> {
    let sentences = source.json(SENTENCES)?.unwrap_or_default();
    let places = [
        (&sentences["activation_fn"], "config_sentence_transformers.json", "activation_fn"),
        (&config["sentence_transformers"]["activation_fn"], "config.json", "sentence_transformers.activation_fn"),
        (&config["sbert_ce_default_activation_function"], "config.json", "sbert_ce_default_activation_function"),
    ];
    let named = places.into_iter().find_map(|(value, file, key)| Some((value.as_str()?, file, key)));
    let sigmoid = StepLines::new("sigmoid");
    let Some((name, file, key)) = named else {
        return Ok(Some(sigmoid.from("sentence-transformers' default for one score")));
    };
    match name.rsplit('.').next() {
        Some("Sigmoid") => Ok(Some(sigmoid.from(format!("{file}: {key}")))),
        Some("Identity") => Ok(None),
        _ => {
            let why = "gpux has Sigmoid and Identity here".to_owned();
            let (file, key, value) = (file.to_owned(), key.to_owned(), name.to_owned());
            Err(HubModelFault::Value { file, key, value, why }.into())
        }
    }
}

pub(super) fn tokens(source: &mut ModelSource<'_>, config: &Json, info: &ModelInfo) -> Result<Recipe, MakeError> {
    let companions = tokenizer_files(source, info)?;
    let logits = output(info, &["logits"], "`logits`")?;
    let labels = labels(config, last_size(info, logits))?;
    let limit = TokenLimit::read(source, config, &Json::Null)?;
    let tokenize = limit.tokenize(info).option("offsets", true).option("special_tokens_mask", true);
    let entities = StepLines::new("ner-aggregate")
        .option("tokenizer", TOKENIZER)
        .sourced("labels", format!("./{LABELS}"), "config.json: id2label")
        .option("strategy", "simple");
    Ok(Recipe {
        inputs: "\ninputs: { text: text }\n",
        steps: vec![tokenize, StepLines::new("model"), entities],
        outputs: String::new(),
        serving: "",
        labels: Some(labels),
        sample: Sample::Text,
        companions,
    })
}

pub(super) fn answers(source: &mut ModelSource<'_>, config: &Json, info: &ModelInfo) -> Result<Recipe, MakeError> {
    let companions = tokenizer_files(source, info)?;
    for name in ["start_logits", "end_logits"] {
        output(info, &[name], "`start_logits` and `end_logits`")?;
    }
    let TokenLimit { most, cuts_left } = TokenLimit::read(source, config, &Json::Null)?;
    if cuts_left {
        let why = "`chunk` cuts windows from the beginning of a text on";
        return Err(HubModelFault::value("tokenizer_config.json", "truncation_side", "left", why).into());
    }
    let usual = (WINDOW, "as transformers has it for questions".to_owned());
    let (length, from) = most.into_iter().chain([usual]).min_by_key(|(limit, _)| *limit).unwrap_or_default();
    let chunk = StepLines::new("chunk")
        .option("tokenizer", TOKENIZER)
        .sourced("max_length", length, from)
        .sourced("stride", STRIDE.min(length / 2), "as transformers has it for questions")
        .option("offsets", true)
        .option("sequence_ids", true)
        .sourced("word_ids", true, "answers in whole words, as transformers' align_to_words")
        .option("in", "[question, context]");
    Ok(Recipe {
        inputs: "\ninputs: { question: text, context: text }\n",
        steps: vec![chunk, StepLines::new("model"), StepLines::new("qa-span")],
        outputs: String::new(),
        serving: "",
        labels: None,
        sample: Sample::Question,
        companions,
    })
}
