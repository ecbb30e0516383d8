//! Texts of a request, and what it says about them.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{MOST_TEXTS, branch, tokens};
use crate::engine::request_context::RequestContext;
use crate::{Execution, LoadedPipeline, ServeError};
use gpux::internal::Endpoints;
use gpux_core::{Request, TextOptions, TextSide, TokenizerRequest, Value};

/// One text or several, or their tokens.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged, expecting = "`input` (`inputs`) is a text, a list of texts, or numbers of tokens")]
pub(crate) enum Texts {
    One(String),
    Several(Vec<String>),
    /// numbers of tokens, where `serving.token_ids` allows them
    Tokens(Vec<u32>),
    Lists(Vec<Vec<u32>>),
}

/// A text or its tokens.
#[derive(Clone)]
pub(crate) enum TextInput {
    Text(String),
    Ids(Vec<u32>),
}

impl Texts {
    /// The texts of this field, for a pipeline with these endpoints.
    pub(crate) fn read(self, field: &str, endpoints: &Endpoints) -> Result<Vec<TextInput>, ServeError> {
        let texts: Vec<_> = match self {
            Self::One(text) => vec![TextInput::Text(text)],
            Self::Several(texts) => texts.into_iter().map(TextInput::Text).collect(),
            Self::Tokens(ids) => vec![TextInput::Ids(ids)],
            Self::Lists(lists) => lists.into_iter().map(TextInput::Ids).collect(),
        };
        let has_ids = texts.iter().any(|text| matches!(text, TextInput::Ids(_)));
        if has_ids && !(endpoints.token_ids && endpoints.tokenizer.is_some()) {
            return Err(ServeError::invalid(format!(
                "`{field}` has numbers of tokens, which may be those of another tokenizer: send texts (in LangChain \
                 `check_embedding_ctx_length=False`); where they are the pipeline's own, its gpux.yml can say \
                 `serving: {{ token_ids: true }}`",
            )));
        }
        match (texts.len(), texts.iter().position(TextInput::is_empty)) {
            (0, _) => Err(ServeError::invalid(format!("`{field}` has no text"))),
            (1..=MOST_TEXTS, None) => Ok(texts),
            (1..=MOST_TEXTS, Some(index)) => {
                Err(ServeError::invalid(format!("`{field}` has an empty text, at index {index}")))
            }
            (count, _) => Err(ServeError::invalid(format!("`{field}` has {count} texts; {MOST_TEXTS} are allowed"))),
        }
    }
}

impl TextInput {
    const fn is_empty(&self) -> bool {
        match self {
            Self::Text(text) => text.is_empty(),
            Self::Ids(ids) => ids.is_empty(),
        }
    }

    /// How many characters it has; numbers of tokens count as one each, as at Text Embeddings Inference.
    pub(crate) fn characters(&self) -> usize {
        match self {
            Self::Text(text) => text.chars().count(),
            Self::Ids(ids) => ids.len(),
        }
    }

    /// The text. That of tokens is made by the pipeline's tokenizer, which must make the same tokens of it.
    pub(super) fn into_text(self, execution: &Execution) -> Result<String, ServeError> {
        match self {
            Self::Text(text) => Ok(text),
            Self::Ids(ids) => match tokens::ask(execution, &TokenizerRequest::Restore { ids })? {
                serde_json::Value::String(text) => Ok(text),
                _ => Err(super::unfit("the tokenizer gave no text".to_owned())),
            },
        }
    }
}

/// The end of a text that is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
pub(crate) enum Direction {
    #[serde(alias = "left", alias = "LEFT")]
    Left,
    #[serde(alias = "right", alias = "RIGHT")]
    Right,
}

/// What a client says about the texts of a request.
#[derive(Default, Deserialize, JsonSchema)]
pub(crate) struct TextParameters {
    /// `false`: a text that the pipeline would cut is an error
    pub(crate) truncate: Option<bool>,
    /// the end that is cut off; the pipeline's own where it is left out
    pub(crate) truncation_direction: Option<Direction>,
    /// the name of a prompt of the pipeline
    pub(crate) prompt_name: Option<String>,
}

/// What a request says about its texts, which its pipeline can do.
#[derive(Clone, Default)]
pub(crate) struct Wanted {
    options: TextOptions,
    /// whether a text that is cut is an error
    is_whole: bool,
}

impl Wanted {
    pub(crate) fn new(parameters: TextParameters, loaded: &LoadedPipeline) -> Result<Self, ServeError> {
        let side = |direction| match direction {
            Direction::Left => TextSide::Left,
            Direction::Right => TextSide::Right,
        };
        let TextParameters { truncate, truncation_direction, prompt_name } = parameters;
        let truncation_side = truncation_direction.map(side);
        let options = TextOptions { prompt: prompt_name, truncation_side, ..TextOptions::default() };
        Self { options, is_whole: truncate == Some(false) }.checked(loaded)
    }

    /// Documents of at most so many tokens each.
    pub(crate) fn documents(most: Option<usize>, loaded: &LoadedPipeline, input: &str) -> Result<Self, ServeError> {
        let tokenizer = loaded.info().endpoints.tokenizer.as_ref();
        let is = |name: fn(&gpux::internal::TokenizerEndpoint) -> &Option<String>| {
            tokenizer.is_some_and(|tokenizer| name(tokenizer).as_deref() == Some(input))
        };
        let options = match most {
            None => TextOptions::default(),
            Some(0) => return Err(ServeError::invalid("`max_tokens_per_doc` is at least 1")),
            Some(_) if is(|tokenizer| &tokenizer.pair) => {
                TextOptions { max_pair_tokens: most, ..TextOptions::default() }
            }
            Some(_) if is(|tokenizer| &tokenizer.text) => {
                TextOptions { max_text_tokens: most, ..TextOptions::default() }
            }
            Some(_) => {
                let message = format!(
                    "`max_tokens_per_doc` needs a pipeline whose `tokenize` reads `{input}`; this one's own limits cut"
                );
                return Err(ServeError::invalid(message));
            }
        };
        Self { options, is_whole: false }.checked(loaded)
    }

    fn checked(self, loaded: &LoadedPipeline) -> Result<Self, ServeError> {
        let tokenizer = loaded.info().endpoints.tokenizer.as_ref();
        if let Some(name) = &self.options.prompt {
            let prompts = tokenizer.map_or(&[][..], |tokenizer| &tokenizer.prompts);
            if !prompts.contains(name) {
                let names: Vec<_> = prompts.iter().map(|name| format!("`{name}`")).collect();
                let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
                return Err(ServeError::invalid(format!("`{}` has no prompt `{name}`; it has {known}", loaded.name())));
            }
        }
        if self.options != TextOptions::default() && !tokenizer.is_some_and(|tokenizer| tokenizer.takes_options) {
            return Err(ServeError::invalid(format!(
                "`{}` takes no prompts and no limits from requests: its own `tokenize` step is not in gpux.yml, or reads \
                 its `text_options` from elsewhere",
                loaded.name()
            )));
        }
        Ok(self)
    }

    /// The inputs of a request with what it says about their texts.
    pub(super) fn request(&self, mut inputs: Request) -> Request {
        if self.options != TextOptions::default() {
            inputs.push((TextOptions::NAME.to_owned(), json!(self.options).into()));
        }
        inputs
    }

    /// The same, for a branch of the pipeline.
    pub(super) fn branch(&self, name: &str, inputs: Request) -> Request {
        let mut request = self.request(inputs);
        request.push(branch(name));
        request
    }

    /// Fails if a text was cut that must not be.
    pub(crate) fn check(&self) -> Result<(), ServeError> {
        if self.is_whole && RequestContext::current().is_some_and(|context| context.truncated() > 0) {
            return Err(ServeError::invalid("a text has more tokens than the pipeline takes, and `truncate` is false"));
        }
        Ok(())
    }
}

/// A text input of a request.
pub(super) fn named(name: &str, text: String) -> (String, Value) {
    (name.to_owned(), Value::from(text))
}
