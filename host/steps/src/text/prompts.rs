//! Prompts: what stands before and behind every text that a model is given for a purpose.

use std::collections::BTreeMap;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::text_input;
use gpux_core::{BuildError, OptionOrigin, StepFailure};

/// Largest file of prompts that is read, in bytes.
const MAX_FILE: u64 = 1 << 20;

/// The most bytes of a prompt.
const MAX_PROMPT: usize = 64 << 10;

/// Prompts as gpux.yml has them.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub(super) enum PromptsOption {
    /// the path of sentence-transformers' configuration
    File(String),
    /// by name
    ByName(BTreeMap<String, PromptOption>),
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub(super) enum PromptOption {
    Prefix(String),
    Affixes(Prompt),
}

/// A prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub(super) struct Prompt {
    /// What stands before the text. Default: nothing.
    prefix: String,
    /// What stands behind it. Default: nothing.
    suffix: String,
}

/// The prompts of a tokenizer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Prompts {
    prompts: BTreeMap<String, Prompt>,
    /// the name of the one that stands for requests that name none
    default: Option<String>,
}

/// What `config_sentence_transformers.json` says of prompts.
#[derive(Deserialize)]
struct SentenceTransformersConfig {
    #[serde(default)]
    prompts: BTreeMap<String, String>,
    default_prompt_name: Option<String>,
}

impl Prompts {
    /// From the options `prompts` and `prompt`.
    pub(super) fn new(
        option: Option<&PromptsOption>,
        default: Option<&str>,
        site: &OptionOrigin<'_>,
    ) -> Result<Self, BuildError> {
        let prefix = |(name, prefix)| (name, Prompt { prefix, suffix: String::new() });
        let mut read = match option {
            None => Self::default(),
            Some(PromptsOption::ByName(prompts)) => {
                let prompt = |(name, option): (&String, &PromptOption)| {
                    let prompt = match option {
                        PromptOption::Prefix(prefix) => Prompt { prefix: prefix.clone(), suffix: String::new() },
                        PromptOption::Affixes(prompt) => prompt.clone(),
                    };
                    (name.clone(), prompt)
                };
                Self { prompts: prompts.iter().map(prompt).collect(), default: None }
            }
            Some(PromptsOption::File(path)) => {
                let SentenceTransformersConfig { prompts, default_prompt_name } = config(path, site)?;
                Self { prompts: prompts.into_iter().map(prefix).collect(), default: default_prompt_name }
            }
        };
        if let Some(name) = default {
            read.default = Some(name.to_owned());
        }
        if let Some(name) = read.default.as_ref().filter(|name| !read.prompts.contains_key(*name)) {
            let error = BuildError::option("prompt", format!("there is no prompt `{name}`"));
            return Err(error.with_hint(format!("`prompts` has {}", read.names())));
        }
        let long = read.prompts.iter().find(|(_, prompt)| prompt.bytes() > MAX_PROMPT);
        match long {
            Some((name, _)) => {
                Err(BuildError::option("prompts", format!("the prompt `{name}` has more than {MAX_PROMPT} bytes")))
            }
            None => Ok(read),
        }
    }

    /// The names of all, for people.
    fn names(&self) -> String {
        let names: Vec<_> = self.prompts.keys().map(|name| format!("`{name}`")).collect();
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    }

    /// The bytes that the longest adds to a text.
    pub(super) fn longest(&self) -> usize {
        self.prompts.values().map(Prompt::bytes).max().unwrap_or(0)
    }

    /// The prompt of this name, or the default one; `None` for none.
    fn find(&self, name: Option<&str>) -> Result<Option<&Prompt>, StepFailure> {
        let Some(name) = name.or(self.default.as_deref()) else { return Ok(None) };
        let unknown = || StepFailure::InvalidInput(format!("there is no prompt `{name}`; there is {}", self.names()));
        self.prompts.get(name).map(Some).ok_or_else(unknown)
    }

    /// Puts the prompt around each text.
    pub(super) fn apply(&self, name: Option<&str>, texts: &mut [String]) -> Result<(), StepFailure> {
        if let Some(prompt) = self.find(name)? {
            let bytes = texts.iter().map(|text| text.len().saturating_add(prompt.bytes()));
            text_input::check_bytes(bytes.fold(0, usize::saturating_add))?;
            for text in texts {
                *text = prompt.around(text);
            }
        }
        Ok(())
    }

    /// The text with the prompt.
    pub(super) fn applied(&self, name: Option<&str>, text: String) -> Result<String, StepFailure> {
        Ok(match self.find(name)? {
            Some(prompt) => prompt.around(&text),
            None => text,
        })
    }
}

impl Prompt {
    fn around(&self, text: &str) -> String {
        [&*self.prefix, text, &*self.suffix].concat()
    }

    const fn bytes(&self) -> usize {
        self.prefix.len() + self.suffix.len()
    }
}

fn config(path: &str, site: &OptionOrigin<'_>) -> Result<SentenceTransformersConfig, BuildError> {
    let OptionOrigin::Pipeline { files, .. } = site else {
        return Err(BuildError::option("prompts", gpux_core::FileError::Forbidden));
    };
    let bytes = files.read(Path::new(path), MAX_FILE).map_err(|error| BuildError::option("prompts", error))?;
    serde_json::from_slice(&bytes).map_err(|error| {
        let message = format!("`{path}` is no `config_sentence_transformers.json`: {error}");
        BuildError::option("prompts", message)
    })
}
