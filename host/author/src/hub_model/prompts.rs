//! What sentence-transformers' configuration puts before texts.

use serde_json::Value as Json;

use super::MakeError;
use super::fault::HubModelFault;
use super::source::ModelSource;
use super::yaml::{StepLines, quoted};

pub(super) const SENTENCES: &str = "config_sentence_transformers.json";

/// `tokenize` with what the configuration puts before texts; `pooling` is the file that configures the pooling.
pub(super) fn with_prompts(
    source: &mut ModelSource<'_>,
    tokenize: StepLines,
    pooling: Option<&str>,
    without_default: bool,
) -> Result<StepLines, MakeError> {
    let sentences = source.json(SENTENCES)?.unwrap_or_default();
    let prompts = sentences["prompts"].as_object().cloned().unwrap_or_default();
    let default = sentences["default_prompt_name"].as_str().filter(|_| !without_default);
    if let Some(name) = default.filter(|name| !prompts.contains_key(*name)) {
        return Err(HubModelFault::value(SENTENCES, "default_prompt_name", name, "`prompts` has no such one").into());
    }
    if prompts.values().all(|prompt| prompt.as_str().is_none_or(str::is_empty)) {
        return Ok(tokenize);
    }
    if let Some(file) = pooling
        && source.json(file)?.is_some_and(|config| config["include_prompt"] == false)
    {
        let why = "gpux pools a prompt like the text; without `prompts` in config_sentence_transformers.json, it is not \
                   put before texts";
        return Err(HubModelFault::value(file, "include_prompt", "false", why).into());
    }
    let tokenize = tokenize.sourced("prompts", Json::Object(prompts), format!("{SENTENCES}: prompts"));
    Ok(match default {
        Some(name) => tokenize.sourced("prompt", quoted(name), format!("{SENTENCES}: default_prompt_name")),
        None => tokenize,
    })
}
