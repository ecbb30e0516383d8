//! Work of a pipeline's tokenizer by itself, for servers: tokens of a text, text of tokens.

use std::sync::Arc;

use serde_json::{Map, Value as Json, json};

use super::encoder::Encoder;
use super::offload::{DECODED_BYTES, Offload, catch_tokenizer_panic};
use super::prompts::Prompts;
use super::tokenizer_speed::decodes_in_linear_time;
use crate::deadline::Deadline;
use crate::operation::{BuiltinStep, Inputs, Operation};
use gpux_core::{Kind, Port, Signature, Step, StepFailure, TokenizerRequest, Value};

/// The most tokens of a request: each becomes an object.
const MAX_TOKENS: usize = 1 << 17;

/// Bytes of a token's object.
const PER_TOKEN: usize = 1 << 10;

/// The longest text that tokens become, in bytes.
const MAX_TEXT: usize = 4 << 20;

/// Characters of a text that an error quotes.
const QUOTED: usize = 80;

/// Answers [`TokenizerRequest`]s.
struct TokenizerRequests {
    encoder: Encoder,
    prompts: Arc<Prompts>,
    decoding: Offload,
}

pub(super) fn step(encoder: &Encoder, prompts: &Arc<Prompts>) -> Arc<dyn Step> {
    let signature = Signature::unary(
        Port { description: "what is asked".into(), ..Port::new(TokenizerRequest::NAME, Kind::Json) },
        Port { description: "a list of tokens, or a text".into(), ..Port::new("answer", Kind::Json) },
    );
    let decoding = Offload::new(decodes_in_linear_time(encoder.core.tokenizer()), MAX_TEXT);
    let operation = TokenizerRequests { encoder: encoder.clone(), prompts: prompts.clone(), decoding };
    Arc::new(BuiltinStep::new(signature, Json::Object(Map::new()), operation))
}

impl Operation for TokenizerRequests {
    fn buffers(&self, inputs: &[Option<Value>]) -> usize {
        let bytes = inputs.iter().flatten().map(Value::byte_len).sum();
        Encoder::buffers(bytes).saturating_add(MAX_TOKENS * PER_TOKEN)
    }

    fn run(&self, mut inputs: Inputs<'_>, deadline: &Deadline) -> Result<Vec<Value>, StepFailure> {
        let (name, Value::Json(request)) = inputs.named()? else {
            return Err(StepFailure::InvalidInput("a request of a tokenizer is JSON".into()));
        };
        let wrong = |error| StepFailure::InvalidInput(format!("`{name}`: {error}"));
        let answer = match serde_json::from_value(Arc::unwrap_or_clone(request)).map_err(wrong)? {
            TokenizerRequest::Tokenize { text, add_special_tokens, prompt } => {
                let text = self.prompts.applied(prompt.as_deref(), text)?;
                self.tokens(text, add_special_tokens, deadline)?
            }
            TokenizerRequest::Decode { ids, skip_special_tokens } => {
                self.decode(ids, skip_special_tokens, deadline)?.into()
            }
            TokenizerRequest::Restore { ids } => self.restore(ids, deadline)?.into(),
        };
        Ok(vec![answer.into()])
    }
}

impl TokenizerRequests {
    fn tokens(&self, text: String, add_special_tokens: bool, deadline: &Deadline) -> Result<Json, StepFailure> {
        let core = self.encoder.core.clone();
        self.encoder.offload.run(text.len(), deadline, move |deadline| {
            let encoding = core.encode_whole(text.clone(), add_special_tokens, deadline)?;
            if encoding.len() > MAX_TOKENS {
                let message = format!("the text has {} tokens; {MAX_TOKENS} are listed at most", encoding.len());
                return Err(StepFailure::InvalidInput(message));
            }
            let characters: Vec<char> = text.chars().collect();
            let token = |index: usize| {
                let (id, (start, stop)) = (encoding.get_ids()[index], encoding.get_offsets()[index]);
                if encoding.get_special_tokens_mask()[index] == 1 {
                    let text = &encoding.get_tokens()[index];
                    return json!({ "id": id, "text": text, "special": true, "start": null, "stop": null });
                }
                let text: String = characters.get(start..stop).unwrap_or_default().iter().collect();
                json!({ "id": id, "text": text, "special": false, "start": start, "stop": stop })
            };
            Ok((0..encoding.len()).map(token).collect())
        })
    }

    fn decode(&self, ids: Vec<u32>, skip_special_tokens: bool, deadline: &Deadline) -> Result<String, StepFailure> {
        if ids.len() > MAX_TOKENS {
            let message = format!("there are {} numbers of tokens; {MAX_TOKENS} are taken at most", ids.len());
            return Err(StepFailure::InvalidInput(message));
        }
        let tokenizer = self.encoder.core.tokenizer();
        let mut bytes = 0_usize;
        for id in &ids {
            let Some(token) = tokenizer.id_to_token(*id) else {
                let message =
                    format!("{id} is not the number of a token: the vocabulary has {}", tokenizer.get_vocab_size(true));
                return Err(StepFailure::InvalidInput(message));
            };
            bytes = bytes.saturating_add(token.len() + 1);
        }
        let bytes = bytes.saturating_mul(DECODED_BYTES);
        if bytes > MAX_TEXT {
            let message = format!("the text could be {bytes} bytes; at most {MAX_TEXT} are put together");
            return Err(StepFailure::InvalidInput(message));
        }
        let core = self.encoder.core.clone();
        self.decoding.run(bytes, deadline, move |_| {
            let decoded = catch_tokenizer_panic(|| core.tokenizer().decode(&ids, skip_special_tokens));
            decoded.map_err(|why| StepFailure::InvalidInput(format!("the tokens make no text: {why}")))
        })
    }

    fn restore(&self, ids: Vec<u32>, deadline: &Deadline) -> Result<String, StepFailure> {
        let text = self.decode(ids.clone(), true, deadline)?;
        let core = self.encoder.core.clone();
        self.encoder.offload.run(text.len(), deadline, move |deadline| {
            for add_special_tokens in [false, true] {
                if core.encode_whole(text.clone(), add_special_tokens, deadline)?.get_ids() == ids {
                    return Ok(text);
                }
            }
            let quoted: String = text.chars().take(QUOTED).collect();
            Err(StepFailure::InvalidInput(format!(
                "the tokenizer of this pipeline does not make these numbers of any text (it would read them as \
                 {quoted:?}): are they of another tokenizer? Send the text"
            )))
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::reference;
    use gpux_core::Context;

    fn step(name: &str, prompts: &Json) -> Arc<dyn Step> {
        let file = format!("tokenize/{name}.json");
        let tokenize = json!({ "tokenizer": file, "max_length": 4, "prompts": prompts });
        reference::step("tokenize", tokenize).tokenizer().unwrap()
    }

    fn ask(step: &Arc<dyn Step>, request: &TokenizerRequest) -> Result<Json, String> {
        let answer = step.run(vec![Some(json!(request).into())], &mut Context::default());
        match answer.map_err(|failure| failure.to_string())?.remove(0) {
            Value::Json(answer) => Ok(Arc::unwrap_or_clone(answer)),
            other => Err(other.kind().to_string()),
        }
    }

    fn ids(tokens: &Json) -> Vec<u32> {
        tokens.as_array().unwrap().iter().map(|token| token["id"].as_u64().unwrap() as u32).collect()
    }

    #[test]
    fn lists_all_tokens_with_their_places() {
        let step = step("wordpiece", &json!({ "query": "the " }));
        let tokenize = |text: &str, add_special_tokens, prompt: Option<&str>| {
            let prompt = prompt.map(str::to_owned);
            ask(&step, &TokenizerRequest::Tokenize { text: text.to_owned(), add_special_tokens, prompt })
        };
        let tokens = tokenize("the fox över the fox", false, None).unwrap();
        assert!(tokens.as_array().unwrap().len() >= 5, "nothing is cut: {tokens}");
        assert_eq!(tokens[1]["text"], "fox");
        assert_eq!((&tokens[1]["start"], &tokens[1]["stop"]), (&json!(4), &json!(7)));
        let last = tokens.as_array().unwrap().last().unwrap();
        assert_eq!((&last["start"], &last["stop"]), (&json!(17), &json!(20)), "characters are counted, not bytes");
        let special = tokenize("fox", true, None).unwrap();
        assert_eq!((&special[0]["text"], &special[0]["special"]), (&json!("[CLS]"), &json!(true)));
        assert!(special[0]["start"].is_null());
        assert_eq!(ids(&tokenize("fox", true, Some("query")).unwrap()), ids(&tokenize("the fox", true, None).unwrap()));
        let error = tokenize("fox", true, Some("other")).unwrap_err();
        assert!(error.contains("there is no prompt `other`; there is `query`"), "{error}");
    }

    #[test]
    fn restores_only_what_it_would_make_again() {
        for name in ["wordpiece", "bpe", "unigram"] {
            let step = step(name, &json!({}));
            let text = "the quick brown fox jumps over the lazy dog";
            for add_special_tokens in [true, false] {
                let request = TokenizerRequest::Tokenize { text: text.to_owned(), add_special_tokens, prompt: None };
                let ids = ids(&ask(&step, &request).unwrap());
                let restored = ask(&step, &TokenizerRequest::Restore { ids: ids.clone() }).unwrap();
                assert_eq!(restored.as_str().unwrap().trim(), text, "{name}");
                let mut other = ids;
                other.reverse();
                let error = ask(&step, &TokenizerRequest::Restore { ids: other });
                assert!(error.is_err() || name != "wordpiece" || !add_special_tokens, "{name}: {error:?}");
            }
            let error = ask(&step, &TokenizerRequest::Restore { ids: vec![5, 10_000_000] }).unwrap_err();
            assert!(error.contains("10000000 is not the number of a token: the vocabulary has"), "{error}");
            let many = TokenizerRequest::Decode { ids: vec![5; MAX_TOKENS + 1], skip_special_tokens: true };
            assert!(ask(&step, &many).unwrap_err().contains("131072 are taken at most"));
        }
        let step = step("wordpiece", &json!({}));
        let answer = step.run(vec![Some(json!({ "other": 5 }).into())], &mut Context::default());
        assert!(answer.unwrap_err().to_string().contains("unknown variant"));
    }
}
