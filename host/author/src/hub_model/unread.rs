//! Keys that change what a model gives, and that no step reads: only values that change nothing are taken.

use serde::Deserialize;
use serde_json::Value as Json;

use super::MakeError;
use super::fault::HubModelFault;
use super::source::ModelSource;

const TOKENIZER: &str = "tokenizer.json";
const TOKENIZER_CONFIG: &str = "tokenizer_config.json";
const SENTENCES: &str = "sentence_bert_config.json";
/// Python that makes tokenizer.json say what the files beside it say.
pub(super) const SAVE_TOKENIZER: &str = "in Python, `from transformers import AutoTokenizer` and \
    `AutoTokenizer.from_pretrained(\"FOLDER\").save_pretrained(\"FOLDER\")` write it";

/// A key that no step reads.
struct Unread {
    file: &'static str,
    /// the objects and the key within them
    keys: &'static [&'static str],
    /// the values that change nothing, beside none and null, as JSON
    neutral: &'static [&'static str],
    why: &'static str,
}

const CALL: &str = "of what calls the tokenizer, gpux takes the text's `max_length` over";
const UNREAD: [Unread; 5] = [
    Unread {
        file: TOKENIZER_CONFIG,
        keys: &["replace_word_delimiter_char"],
        neutral: &["\" \""],
        why: "`ctc-greedy-decode` puts a space between words",
    },
    Unread { file: SENTENCES, keys: &["query_expansion"], neutral: &[], why: "gpux does not lengthen queries" },
    Unread { file: SENTENCES, keys: &["processing_kwargs", "common"], neutral: &["{}"], why: CALL },
    Unread {
        file: SENTENCES,
        keys: &["processing_kwargs", "text", "truncation"],
        neutral: &["true", "\"longest_first\""],
        why: CALL,
    },
    Unread {
        file: SENTENCES,
        keys: &["processing_kwargs", "text", "padding"],
        neutral: &["true", "\"longest\""],
        why: CALL,
    },
];
/// Those of the above, and what is read.
const TEXT_KEYS: [&str; 3] = ["max_length", "truncation", "padding"];

/// Refuses a repository with such a key.
pub(super) fn check(source: &mut ModelSource<'_>) -> Result<(), MakeError> {
    for Unread { file, keys, neutral, why } in UNREAD {
        let json = source.json(file)?.unwrap_or_default();
        let value = keys.iter().fold(&json, |value, key| &value[key]);
        if !value.is_null() && !neutral.contains(&&*value.to_string()) {
            return Err(fault(file, &keys.join("."), value, why).into());
        }
    }
    let sentences = source.json(SENTENCES)?.unwrap_or_default();
    let called = sentences["processing_kwargs"]["text"].as_object().into_iter().flatten();
    match called.into_iter().find(|(key, value)| !TEXT_KEYS.contains(&key.as_str()) && !value.is_null()) {
        Some((key, value)) => Err(fault(SENTENCES, &format!("processing_kwargs.text.{key}"), value, CALL).into()),
        None => Ok(()),
    }
}

fn fault(file: &str, key: &str, value: &Json, why: &str) -> HubModelFault {
    HubModelFault::value(file, key, &value.to_string(), why)
}

/// What of tokenizer.json is compared.
#[derive(Deserialize)]
struct TokenizerFile {
    #[serde(default)]
    normalizer: Json,
    #[serde(default)]
    added_tokens: Vec<AddedToken>,
}

#[derive(Deserialize)]
struct AddedToken {
    id: u64,
    content: String,
}

/// The keys of BERT's tokenizers, and what their normalizer calls them.
const BERT: [(&str, &str); 3] = [
    ("do_lower_case", "lowercase"),
    ("strip_accents", "strip_accents"),
    ("tokenize_chinese_chars", "handle_chinese_chars"),
];
/// Classes that take their normalizer as tokenizer.json has it.
const PLAIN: [&str; 2] = ["PreTrainedTokenizerFast", "TokenizersBackend"];

/// Refuses a tokenizer.json that says something else than tokenizer_config.json, which transformers goes by.
pub(super) fn check_tokenizer(source: &mut ModelSource<'_>) -> Result<(), MakeError> {
    let Some(config) = source.json(TOKENIZER_CONFIG)? else { return Ok(()) };
    let Some(file) = source.read::<TokenizerFile>(TOKENIZER)? else { return Ok(()) };
    let refuse = |key: &str, value: &Json, what: &str| {
        let why = format!("tokenizer.json {what}, and gpux reads no other tokenizer; {SAVE_TOKENIZER} anew");
        Err(fault(TOKENIZER_CONFIG, key, value, &why).into())
    };
    let is_plain = config["tokenizer_class"].as_str().is_none_or(|class| PLAIN.contains(&class));
    if let Some(normalizer) = bert_normalizer(&file.normalizer).filter(|_| !is_plain) {
        for (key, name) in BERT {
            let (wanted, given) = (&config[key], &normalizer[name]);
            if wanted.is_boolean() && wanted != given {
                return refuse(key, wanted, &format!("has `{name}: {given}`"));
            }
        }
    }
    for (id, token) in config["added_tokens_decoder"].as_object().into_iter().flatten() {
        let content = token["content"].as_str().unwrap_or_default();
        if !file.added_tokens.iter().any(|added| added.content == content && added.id.to_string() == *id) {
            return refuse("added_tokens_decoder", token, &format!("has no added token {id} with this text"));
        }
    }
    Ok(())
}

/// BERT's normalizer, alone or among others.
fn bert_normalizer(normalizer: &Json) -> Option<&Json> {
    let listed = normalizer["normalizers"].as_array().into_iter().flatten();
    std::iter::once(normalizer).chain(listed).find(|one| one["type"] == "BertNormalizer")
}
