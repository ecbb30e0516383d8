//! Limits of a tokenizer that the tokenizers crate has read. Usual tokenizers stay far below them; a hostile one above
//! them takes time or memory without end.

use std::collections::HashMap;

use serde_json::Value;
use tokenizers::{AddedToken, ModelWrapper, PostProcessor as _, Tokenizer};

use super::tokenizer_cost::TokenizerCost;
use super::tokenizer_parts::parts;

/// Parts of one kind, one after the other.
const MOST_PARTS: usize = 32;

/// Bytes of a text that stands in for others, or is put before them.
const MOST_BYTES: usize = 256;

/// Special tokens that are added to a text or a pair.
const MOST_SPECIAL: usize = 1024;

/// How many times longer a text may get. Those of ALBERT and XLNet come to 2178, part by part.
const MOST_GROWTH: usize = 1 << 16;

/// Bytes that added tokens may become.
const MOST_ADDED: usize = 256 << 20;

/// The most bytes of a post-processor's description.
const MOST_TEMPLATE: usize = 64 << 10;

/// Rejects a tokenizer with these parts; its added tokens, with this many bytes in total, are normalized while it
/// is read.
pub(super) fn check_skeleton(skeleton: &Tokenizer, added: usize) -> Result<(), String> {
    for (kind, parts) in [
        ("normalizer", parts(skeleton.get_normalizer())),
        ("pre_tokenizer", parts(skeleton.get_pre_tokenizer())),
        ("post_processor", parts(skeleton.get_post_processor())),
        ("decoder", parts(skeleton.get_decoder())),
    ] {
        if parts.len() > MOST_PARTS {
            return Err(format!("its {kind} has {} parts; at most {MOST_PARTS} are taken", parts.len()));
        }
        parts.iter().filter(|part| part["type"] == "TemplateProcessing").try_for_each(check_template)?;
    }
    let growth = TokenizerCost::for_encoding(skeleton).growth.max(TokenizerCost::for_decoding(skeleton).growth);
    if growth > MOST_GROWTH {
        return Err(format!("it may make {growth} times as much of a text; at most {MOST_GROWTH} are taken"));
    }
    if growth.saturating_mul(added) > MOST_ADDED {
        return Err(format!("it may make {growth} times as much of its added tokens, which are {added} bytes"));
    }
    let Some(processor) = skeleton.get_post_processor() else { return Ok(()) };
    let bytes = serde_json::to_string(processor).map_or(usize::MAX, |text| text.len());
    if bytes > MOST_TEMPLATE {
        return Err(format!("its post_processor is {bytes} bytes; at most {MOST_TEMPLATE} are taken"));
    }
    match processor.added_tokens(false).max(processor.added_tokens(true)) {
        special if special > MOST_SPECIAL => {
            Err(format!("it adds {special} special tokens to a text; at most {MOST_SPECIAL} are taken"))
        }
        _ => Ok(()),
    }
}

/// Rejects a tokenizer with this vocabulary, whose longest token has this many bytes.
pub(super) fn check_vocabulary(tokenizer: &Tokenizer, longest: usize) -> Result<(), String> {
    check_model(tokenizer.get_model(), longest)?;
    tokenizer.get_added_tokens_decoder().values().try_for_each(check_added)
}

/// Each text stands once in a template.
fn check_template(template: &Value) -> Result<(), String> {
    for name in ["single", "pair"] {
        let pieces = template[name].as_array().into_iter().flatten();
        let mut texts: Vec<_> = pieces.filter_map(|piece| piece["Sequence"]["id"].as_str()).collect();
        let all = texts.len();
        texts.sort_unstable();
        texts.dedup();
        if texts.len() < all {
            return Err("its post_processor repeats a text".to_owned());
        }
    }
    Ok(())
}

fn check_model(model: &ModelWrapper, longest: usize) -> Result<(), String> {
    let texts = match model {
        ModelWrapper::BPE(model) => {
            let texts = [&model.unk_token, &model.continuing_subword_prefix, &model.end_of_word_suffix];
            // `get_vocab` copies the vocabulary.
            if longest > MOST_BYTES {
                check_numbers(&model.get_vocab())?;
            }
            texts.map(|text| text.as_deref().unwrap_or_default()).to_vec()
        }
        ModelWrapper::WordPiece(model) => vec![model.unk_token.as_str(), &model.continuing_subword_prefix],
        ModelWrapper::WordLevel(model) => vec![model.unk_token.as_str()],
        ModelWrapper::Unigram(_) => Vec::new(),
    };
    match texts.into_iter().find(|text| text.len() > MOST_BYTES) {
        Some(text) => Err(format!(
            "its model's unknown token, prefix or suffix is {} bytes; at most {MOST_BYTES} are taken",
            text.len()
        )),
        None => Ok(()),
    }
}

/// Tokens of one id stand for each other.
fn check_numbers(vocabulary: &HashMap<String, u32>) -> Result<(), String> {
    let long = vocabulary.iter().filter(|(token, _)| token.len() > MOST_BYTES);
    let numbers: HashMap<u32, &str> = long.map(|(token, number)| (*number, token.as_str())).collect();
    let twice = |(token, number): (&String, &u32)| numbers.get(number).is_some_and(|long| long != token);
    if vocabulary.iter().any(twice) {
        return Err("tokens of its vocabulary have the same number".to_owned());
    }
    Ok(())
}

fn check_added(token: &AddedToken) -> Result<(), String> {
    if token.content.len() > MOST_BYTES {
        return Err(format!("an added token is {} bytes; at most {MOST_BYTES} are taken", token.content.len()));
    }
    // Each would hold the spaces of all that follow.
    let spaces = |letter: Option<char>| letter.is_some_and(char::is_whitespace);
    let (first, last) = (token.content.chars().next(), token.content.chars().next_back());
    if (token.lstrip || token.rstrip) && (spaces(first) || spaces(last)) {
        return Err("an added token of white space takes white space with it (`lstrip`, `rstrip`)".to_owned());
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::reference;

    fn checked(parts: &Value) -> Result<(), String> {
        let mut file = json!({
            "version": "1.0",
            "added_tokens": [],
            "model": { "type": "WordLevel", "vocab": { "a": 0 }, "unk_token": "a" },
        });
        file.as_object_mut().unwrap().extend(parts.as_object().unwrap().clone());
        let tokenizer = Tokenizer::from_bytes(file.to_string()).unwrap();
        check_skeleton(&tokenizer, 20_000).and_then(|()| check_vocabulary(&tokenizer, 300))
    }

    #[test]
    fn accepts_usual_tokenizers() {
        for name in ["wordpiece", "bpe", "unigram"] {
            let tokenizer = Tokenizer::from_bytes(reference::read(&format!("tokenize/{name}.json"))).unwrap();
            assert_eq!(check_skeleton(&tokenizer, 1000), Ok(()), "{name}");
            assert_eq!(check_vocabulary(&tokenizer, 300), Ok(()), "{name}");
        }
    }

    #[test]
    fn rejects_hostile_tokenizers() {
        let long = "a".repeat(300);
        let added = |content: &str, rstrip: bool| {
            json!({ "added_tokens": [{ "id": 1, "content": content, "single_word": false, "lstrip": false,
                "rstrip": rstrip, "normalized": false, "special": true }] })
        };
        let template = |pieces: usize, ids: usize, token: &str| {
            let single = vec![json!({ "Sequence": { "id": "A", "type_id": 0 } }); pieces];
            let special = json!({ "SpecialToken": { "id": "a", "type_id": 0 } });
            let single = [single, vec![special]].concat();
            json!({ "post_processor": { "type": "TemplateProcessing", "single": single,
                "pair": [{ "Sequence": { "id": "A", "type_id": 0 } }, { "Sequence": { "id": "B", "type_id": 0 } }],
                "special_tokens": { "a": { "id": "a", "ids": vec![0; ids], "tokens": vec![token; ids] } } } })
        };
        let bpe = |prefix: &str, vocabulary: &Value| json!({ "model": { "type": "BPE", "vocab": vocabulary, "merges": [], "continuing_subword_prefix": prefix } });
        let many = json!({ "type": "Sequence", "normalizers": vec![json!({ "type": "NFC" }); 33] });
        let sequence = |parts: &str, length: usize| {
            let replace = json!({ "type": "Replace", "pattern": { "String": "a" }, "content": "b".repeat(length) });
            json!({ "type": "Sequence", parts: [replace, replace] })
        };
        for (parts, why) in [
            (json!({ "normalizer": sequence("normalizers", 5000) }), "25000000 times as much"),
            (json!({ "decoder": sequence("decoders", 5000) }), "25000000 times as much"),
            // Not for itself, but for 20 kB of added tokens.
            (json!({ "normalizer": sequence("normalizers", 256) }), "65536 times as much of its added tokens"),
            (json!({ "normalizer": { "type": "Sequence", "normalizers": [many, { "type": "NFC" }] } }), "34 parts"),
            (json!({ "model": { "type": "WordLevel", "vocab": {}, "unk_token": long } }), "is 300 bytes"),
            (bpe(&long, &json!({ "a": 0 })), "is 300 bytes"),
            (bpe("", &json!({ "a": 0, long.as_str(): 0 })), "the same number"),
            (added(&long, false), "an added token is 300 bytes"),
            (added("a ", true), "of white space"),
            (template(2, 1, "a"), "repeats a text"),
            (template(1, 1025, "a"), "1025 special tokens"),
            (template(1, 1, &"a".repeat(70_000)), "at most 65536"),
        ] {
            let refused = checked(&parts).unwrap_err();
            assert!(refused.contains(why), "{refused}");
        }
        for parts in [
            bpe("", &json!({ "a": 0, "b": 0 })),
            bpe("", &json!({ "a": 0, long.as_str(): 1 })),
            added("a ", false),
            added("a", true),
            template(1, 1024, "a"),
        ] {
            assert_eq!(checked(&parts), Ok(()));
        }
    }
}
