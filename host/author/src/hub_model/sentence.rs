//! Sentence embeddings, as sentence-transformers' modules say.

use serde_json::Value as Json;

use super::fault::HubModelFault;
use super::source::ModelSource;
use super::text::{TokenLimit, tokenizer_files};
use super::yaml::{StepLines, quoted};
use super::{HubModelRequest, MakeError, Pooling, Recipe, Sample, has_output, only_output, output};
use gpux_inference::ModelInfo;

const MODULES: &str = "modules.json";
const SENTENCES: &str = "config_sentence_transformers.json";

/// The modules behind the transformer.
#[derive(Default)]
struct Modules {
    /// where the configuration of the pooling is
    pooling: Option<String>,
    normalizes: bool,
    /// one that no step does
    other: Option<String>,
}

pub(super) fn embedding(
    source: &mut ModelSource<'_>,
    config: &Json,
    info: &ModelInfo,
    request: &HubModelRequest<'_>,
) -> Result<Recipe, MakeError> {
    let companions = tokenizer_files(source, info)?;
    let sentences = source.json("sentence_bert_config.json")?.unwrap_or_default();
    let limit = TokenLimit::read(source, config, &sentences)?;
    let prompt = default_prompt(&source.json(SENTENCES)?.unwrap_or_default());
    if let Some(prompt) = prompt.filter(|_| !request.without_prompt) {
        return Err(HubModelFault::Prompt(prompt).into());
    }
    let modules = source.json(MODULES)?.map(|json| Modules::read(&json));

    let mut steps = Vec::new();
    if sentences["do_lower_case"].as_bool() == Some(true) {
        steps.push(StepLines::new("normalize-text").sourced(
            "case",
            "lower",
            "sentence_bert_config.json: do_lower_case",
        ));
    }
    steps.extend([limit.tokenize(info), StepLines::new("model")]);
    let mut outputs = String::new();
    let normalizes = modules.as_ref().is_some_and(|modules| modules.normalizes);
    if has_output(info, "sentence_embedding") {
        // The export has all modules in its graph.
        if normalizes {
            steps.push(
                StepLines::new("l2-normalize").option("in", "sentence_embedding").from("modules.json: Normalize"),
            );
        } else if info.outputs.len() > 1 {
            outputs = only_output(info, "sentence_embedding");
        }
    } else {
        let vectors = output(info, &["token_embeddings", "last_hidden_state"], "vectors of tokens")?;
        let modules = modules.unwrap_or_default();
        if let Some(other) = modules.other {
            return Err(HubModelFault::Module(other).into());
        }
        steps.push(pooling(source, modules.pooling, request.pooling, vectors)?);
        if normalizes {
            steps.push(StepLines::new("l2-normalize").from("modules.json: Normalize"));
        }
    }
    Ok(Recipe {
        inputs: "\ninputs: { text: text }\n",
        steps,
        outputs,
        serving: "\nserving: { endpoints: [embeddings] }\n",
        labels: None,
        sample: Sample::Text,
        companions,
    })
}

/// The prompt that stands before each text, if there is one.
fn default_prompt(sentences: &Json) -> Option<String> {
    let name = sentences["default_prompt_name"].as_str()?;
    let prompt = sentences["prompts"][name].as_str().unwrap_or(name);
    (!prompt.is_empty()).then(|| prompt.to_owned())
}

impl Modules {
    fn read(json: &Json) -> Self {
        let mut modules = Self::default();
        for module in json.as_array().into_iter().flatten() {
            let kind = module["type"].as_str().unwrap_or_default();
            match kind.rsplit('.').next().unwrap_or_default() {
                "Transformer" => {}
                "Pooling" => modules.pooling = module["path"].as_str().map(str::to_owned),
                "Normalize" => modules.normalizes = true,
                _ => modules.other = Some(kind.to_owned()),
            }
        }
        modules
    }
}

/// The step that makes one vector of `vectors`, as the configuration at `path` says, else as it is `named`.
fn pooling(
    source: &mut ModelSource<'_>,
    path: Option<String>,
    named: Option<Pooling>,
    vectors: &str,
) -> Result<StepLines, MakeError> {
    let (mode, from) = match (named, path) {
        (Some(named), _) => (named, "--pooling".to_owned()),
        (None, None) => return Err(HubModelFault::NoPooling.into()),
        (None, Some(path)) => {
            let file = format!("{}/config.json", path.trim_end_matches('/'));
            let config = source.required_json(&file, "modules.json names it")?;
            let (mode, key) = mode(&config, &file)?;
            (mode, format!("{file}: {key}"))
        }
    };
    let both = format!("[{}, attention_mask]", quoted(vectors));
    Ok(match mode {
        Pooling::Mean => StepLines::new("mean-pool").option("in", both),
        Pooling::Cls => StepLines::new("cls-pool").option("in", both),
        Pooling::LastToken => StepLines::new("cls-pool").option("in", both).option("token", "last"),
    }
    .from(from))
}

/// The mode of a pooling's configuration: `pooling_mode` of sentence-transformers 6, or one of several booleans before.
fn mode(config: &Json, file: &str) -> Result<(Pooling, String), HubModelFault> {
    let written: Vec<String> = match &config["pooling_mode"] {
        Json::String(mode) => vec![mode.clone()],
        Json::Array(modes) => modes.iter().filter_map(Json::as_str).map(str::to_owned).collect(),
        _ => {
            let is_set = |(key, value): (&String, &Json)| {
                (key.starts_with("pooling_mode_") && value.as_bool() == Some(true)).then(|| key.clone())
            };
            config.as_object().into_iter().flatten().filter_map(is_set).collect()
        }
    };
    let fault = |value: String, why: &str| {
        let (file, key) = (file.to_owned(), "pooling_mode".to_owned());
        Err(HubModelFault::Value { file, key, value, why: why.to_owned() })
    };
    let [only] = written.as_slice() else {
        return fault(format!("[{}]", written.join(", ")), "one vector needs one mode");
    };
    let key = if only.starts_with("pooling_mode_") { only.clone() } else { "pooling_mode".to_owned() };
    match only.trim_start_matches("pooling_mode_").trim_end_matches("_token").trim_end_matches("_tokens") {
        "mean" => Ok((Pooling::Mean, key)),
        "cls" => Ok((Pooling::Cls, key)),
        "lasttoken" => Ok((Pooling::LastToken, key)),
        _ => fault(only.clone(), "gpux pools by mean, cls and lasttoken here"),
    }
}
