//! Sentence embeddings, as sentence-transformers' modules say.

use serde_json::Value as Json;

use super::fault::HubModelFault;
use super::prompts::{SENTENCES, with_prompts};
use super::source::ModelSource;
use super::text::{TokenLimit, tokenizer_files};
use super::yaml::{StepLines, quoted};
use super::{HubModelRequest, MakeError, Pooling, Recipe, Sample, has_output, only_output, output};
use gpux_inference::ModelInfo;

const MODULES: &str = "modules.json";
/// Said of a folder without that file.
const NO_SENTENCES: &str = "there is no `config_sentence_transformers.json`, so texts get no prompt; Optimum does not \
    export it: if the original model has one, put it into the folder and pull again";

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
    if !source.repository.has(SENTENCES) {
        source.progress.note(NO_SENTENCES);
    }
    let truncate = source.json(SENTENCES)?.unwrap_or_default()["truncate_dim"].take();
    let sentences = source.json("sentence_bert_config.json")?.unwrap_or_default();
    let limit = TokenLimit::read(source, config, &sentences)?;
    let modules = source.json(MODULES)?.map(|json| Modules::read(&json));
    let pooled = modules.as_ref().and_then(|modules| modules.pooling.as_deref()).map(pooling_file);
    let tokenize = with_prompts(source, limit.tokenize(info), pooled.as_deref(), request.without_prompt)?;

    let mut steps = Vec::new();
    if sentences["do_lower_case"].as_bool() == Some(true) {
        steps.push(StepLines::new("normalize-text").sourced(
            "case",
            "lower",
            "sentence_bert_config.json: do_lower_case",
        ));
    }
    steps.extend([tokenize, StepLines::new("model")]);
    let mut outputs = String::new();
    let normalizes = modules.as_ref().is_some_and(|modules| modules.normalizes);
    let cut = cut(&truncate)?;
    if has_output(info, "sentence_embedding") {
        // The export has all modules in its graph.
        if normalizes {
            steps.push(
                StepLines::new("l2-normalize").option("in", "sentence_embedding").from("modules.json: Normalize"),
            );
        } else if cut.is_none() && info.outputs.len() > 1 {
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
    steps.extend(cut.map(|cut| {
        let is_raw = steps.last().is_some_and(StepLines::is_model);
        if is_raw { cut.option("in", "sentence_embedding") } else { cut }
    }));
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

/// The step that keeps so many numbers of a vector. sentence-transformers does it last, and does not normalize again.
fn cut(truncate: &Json) -> Result<Option<StepLines>, HubModelFault> {
    let slice = |size: u64| {
        StepLines::new("slice").sourced("index", format!("\"..., :{size}\""), format!("{SENTENCES}: truncate_dim"))
    };
    match (truncate, truncate.as_u64().filter(|size| *size > 0)) {
        (Json::Null, _) => Ok(None),
        (_, Some(size)) => Ok(Some(slice(size))),
        _ => Err(HubModelFault::value(
            SENTENCES,
            "truncate_dim",
            &truncate.to_string(),
            "it is how many numbers a vector has",
        )),
    }
}

fn pooling_file(path: &str) -> String {
    format!("{}/config.json", path.trim_end_matches('/'))
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
    let (modes, from) = match (named, path) {
        (Some(Pooling::Mean), _) => (vec!["mean"], "--pooling".to_owned()),
        (Some(Pooling::Cls), _) => (vec!["cls"], "--pooling".to_owned()),
        (Some(Pooling::LastToken), _) => (vec!["lasttoken"], "--pooling".to_owned()),
        (None, None) => return Err(HubModelFault::NoPooling.into()),
        (None, Some(path)) => {
            let file = pooling_file(&path);
            let config = source.required_json(&file, "modules.json names it")?;
            (modes(&config, &file)?, format!("{file}: pooling_mode"))
        }
    };
    let both = format!("[{}, attention_mask]", quoted(vectors));
    Ok(match modes.as_slice() {
        ["mean"] => StepLines::new("mean-pool").option("in", both),
        ["cls"] => StepLines::new("cls-pool").option("in", both),
        ["lasttoken"] => StepLines::new("cls-pool").option("in", both).option("token", "last"),
        [only] => StepLines::new("pool").option("in", both).option("mode", only),
        several => StepLines::new("pool").option("in", both).option("mode", format!("[{}]", several.join(", "))),
    }
    .from(from))
}

/// The modes of the step `pool`, with the keys that sentence-transformers before 6 wrote, in the order of its vectors.
const MODES: [(&str, &str); 6] = [
    ("cls", "pooling_mode_cls_token"),
    ("max", "pooling_mode_max_tokens"),
    ("mean", "pooling_mode_mean_tokens"),
    ("mean_sqrt_len_tokens", "pooling_mode_mean_sqrt_len_tokens"),
    ("weightedmean", "pooling_mode_weightedmean_tokens"),
    ("lasttoken", "pooling_mode_lasttoken"),
];

/// The modes of a pooling's configuration: `pooling_mode` of sentence-transformers 6, or one of several booleans before.
fn modes(config: &Json, file: &str) -> Result<Vec<&'static str>, HubModelFault> {
    let unknown = |mode: &str| HubModelFault::value(file, "pooling_mode", mode, "`pool` has no such mode");
    let known =
        |mode: &str| MODES.iter().map(|(name, _)| *name).find(|name| *name == mode).ok_or_else(|| unknown(mode));
    let read = match &config["pooling_mode"] {
        Json::String(mode) => vec![known(mode)?],
        Json::Array(modes) => {
            modes.iter().map(|mode| known(mode.as_str().unwrap_or_default())).collect::<Result<_, _>>()?
        }
        _ => MODES.iter().filter(|(_, key)| config[key] == true).map(|(name, _)| *name).collect(),
    };
    if read.is_empty() { Err(unknown("")) } else { Ok(read) }
}
