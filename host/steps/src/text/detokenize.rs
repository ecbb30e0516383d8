//! `detokenize`: the numbers that a language model gives → text.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokenizers::Tokenizer;

use super::encoder::read;
use super::offload::{DECODED_BYTES, Offload, catch_tokenizer_panic};
use super::text_input::MAX_TEXT;
use super::tokenizer_file::{self, TokenizerFile};
use super::tokenizer_speed::decodes_in_linear_time;
use crate::deadline::{Deadline, DeadlineExceeded};
use crate::operation::{BuiltinStep, Inputs, Operation};
use crate::ports;
use gpux_core::{
    BuildError, Builtin, ElementSet, ElementType, Group, Kind, Port, Signature, StepFailure, Tensor, TensorKind, Value,
};

/// Bytes of a token while the text is assembled, beside its own text.
const PER_TOKEN: usize = 64;

/// The cost of looking up a token, in elements.
const LOOK_UP: usize = 16;

/// The replacements of Hugging Face's clean-up, in its order.
const CLEAN_UP: [(&str, &str); 10] = [
    (" .", "."),
    (" ?", "?"),
    (" !", "!"),
    (" ,", ","),
    (" ' ", "'"),
    (" n't", "n't"),
    (" 'm", "'m"),
    (" 's", "'s"),
    (" 've", "'ve"),
    (" 're", "'re"),
];

/// Options of `detokenize`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Options {
    /// A `tokenizer.json`: its path, or a model's name, looked up as `./NAME/tokenizer.json`, in the local
    /// Hugging Face cache, and last, with a warning, as `./tokenizer.json`. Required.
    tokenizer: String,
    /// Whether tokens such as `[SEP]`, `</s>` and padding are left out. Default: true.
    #[serde(default = "crate::ports::default_true")]
    skip_special_tokens: bool,
    /// Whether the spaces before punctuation and English contractions are taken away, as
    /// `clean_up_tokenization_spaces` of transformers does. Default: false.
    #[serde(default)]
    clean_up: bool,
}

/// Puts tokens together to text as a Hugging Face `tokenizer.json` says.
///
/// Takes whole numbers: one axis of tokens gives a text, two (batch × length) a JSON list of texts.
/// Numbers beyond the vocabulary are left out. Follows the Python package `tokenizers`: it is the same code.
struct Detokenize {
    options: Options,
    tokenizer: Arc<Tokenizer>,
    /// bytes of the longest token, with a space before it
    longest: usize,
    offload: Offload,
}

pub(super) fn builtin() -> Builtin {
    Builtin {
        name: "detokenize",
        summary: "Turns token numbers back into text",
        group: Group::Text,
        follows: "Hugging Face tokenizers: Tokenizer.decode",
        example: "detokenize: { tokenizer: ./tokenizer.json }",
        schema: || schemars::schema_for!(Options),
        build: |options, site| {
            let options: Options = ports::options(options)?;
            let file = tokenizer_file::find(&options.tokenizer, site)?;
            Ok(Box::new(Detokenize::new(options, &file)?))
        },
    }
}

impl Detokenize {
    fn new(options: Options, file: &TokenizerFile) -> Result<BuiltinStep<Self>, BuildError> {
        let tokenizer = read(file)?;
        let longest = tokenizer.get_vocab(true).keys().map(String::len).max().unwrap_or(0) + 1;
        let offload = Offload::new(decodes_in_linear_time(&tokenizer), MAX_TEXT);
        let ids = Kind::Tensor(TensorKind::of_elements(ElementSet::integers()));
        let signature = Signature::unary(
            Port { description: "token numbers, of one axis or batch × length".into(), ..Port::new("ids", ids) },
            Port { description: "the text; for a batch a JSON list".into(), ..Port::new("text", Kind::Any) },
        );
        let mut details = json!(options);
        details["file"] = json!(file.path.display().to_string());
        details["vocabulary"] = json!(tokenizer.get_vocab_size(true));
        let operation = Self { options, tokenizer: Arc::new(tokenizer), longest, offload };
        Ok(BuiltinStep::new(signature, details, operation))
    }

    /// Bytes that these tokens become at most.
    fn size(&self, ids: &[u32], deadline: &Deadline) -> Result<usize, DeadlineExceeded> {
        let bound = ids.len().saturating_mul(self.longest).saturating_mul(DECODED_BYTES);
        if bound <= MAX_TEXT {
            return Ok(bound);
        }
        // Long tokens are rare: what these are decides.
        let each = |size: usize, id: &u32| {
            deadline.check_after(LOOK_UP)?;
            let length = self.tokenizer.id_to_token(*id).map_or(0, |token| token.len() + 1);
            Ok(size.saturating_add(length))
        };
        Ok(ids.iter().try_fold(0, each)?.saturating_mul(DECODED_BYTES))
    }
}

impl Operation for Detokenize {
    fn infer_tensor(&self, given: &TensorKind, outputs: &mut Vec<Kind>) -> Result<(), String> {
        outputs[0] = match given.shape.as_ref().map(Vec::len) {
            None => Kind::Any,
            Some(0 | 1) => Kind::Text,
            Some(2) => Kind::Json,
            Some(rank) => return Err(wrong_rank(rank)),
        };
        Ok(())
    }

    fn buffers(&self, inputs: &[Option<Value>]) -> usize {
        let Some(tensor) = ports::given_tensor(inputs) else { return 0 };
        let text = tensor.len().saturating_mul(self.longest).saturating_mul(DECODED_BYTES).min(MAX_TEXT);
        // A row without tokens is a text, too.
        let rows = tensor.shape().first().map_or(0, |rows| rows.saturating_mul(2 * size_of::<serde_json::Value>()));
        tensor.len().saturating_mul(PER_TOKEN).saturating_add(text.saturating_mul(2)).saturating_add(rows)
    }

    fn run(&self, mut inputs: Inputs<'_>, deadline: &Deadline) -> Result<Vec<Value>, StepFailure> {
        let tensor = inputs.tensor()?;
        if !ElementSet::integers().contains(tensor.element()) {
            let message = format!("detokenize takes whole numbers, but gets {}", tensor.element());
            return Err(StepFailure::InvalidInput(message));
        }
        let ids = ids(&tensor, deadline)?;
        let size = self.size(&ids, deadline)?;
        if size > MAX_TEXT {
            let message = format!("the text could be {size} bytes; at most {MAX_TEXT} are put together at once");
            return Err(StepFailure::InvalidInput(message));
        }
        let length = match *tensor.shape() {
            [] | [_] => None,
            [rows, 0] => return Ok(vec![json!(vec![""; rows]).into()]),
            [_, length] => Some(length),
            ref shape => return Err(StepFailure::InvalidInput(wrong_rank(shape.len()))),
        };
        let (tokenizer, skip, clean_up) =
            (self.tokenizer.clone(), self.options.skip_special_tokens, self.options.clean_up);
        let text = self.offload.run(size, deadline, move |deadline| {
            let text = |row: &[u32]| {
                deadline.check_after(row.len().saturating_mul(LOOK_UP))?;
                let decoded = catch_tokenizer_panic(|| tokenizer.decode(row, skip));
                let text =
                    decoded.map_err(|why| StepFailure::InvalidInput(format!("the tokens make no text: {why}")))?;
                Ok(if clean_up { clean_up_spaces(text) } else { text })
            };
            match length {
                None => Ok(Value::from(text(&ids)?)),
                Some(length) => {
                    let texts = ids.chunks_exact(length).map(|row| text(row).map(serde_json::Value::from));
                    Ok(serde_json::Value::Array(texts.collect::<Result<_, StepFailure>>()?).into())
                }
            }
        })?;
        Ok(vec![text])
    }
}

fn clean_up_spaces(text: String) -> String {
    CLEAN_UP.iter().fold(text, |text, (from, to)| if text.contains(from) { text.replace(from, to) } else { text })
}

fn wrong_rank(rank: usize) -> String {
    format!("tokens have one axis, or two for a batch, not {rank}")
}

fn ids(tensor: &Tensor, deadline: &Deadline) -> Result<Vec<u32>, StepFailure> {
    let wide = tensor.cast_cancellable(ElementType::Int64, deadline)?;
    let id = |id: &i64| {
        u32::try_from(*id).map_err(|_| StepFailure::InvalidInput(format!("{id} is not the number of a token")))
    };
    wide.as_slice::<i64>().unwrap_or_default().iter().map(id).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use super::*;
    use crate::reference;
    use crate::text::tokenizer_file::DeclaredPadding;
    use gpux_core::{Context, Dim, Step};

    fn file(bytes: Vec<u8>) -> TokenizerFile {
        TokenizerFile { path: "t.json".into(), bytes, padding: DeclaredPadding::default() }
    }

    fn build(name: &str) -> BuiltinStep<Detokenize> {
        let options = Options { tokenizer: name.into(), skip_special_tokens: true, clean_up: false };
        Detokenize::new(options, &file(reference::read(&format!("tokenize/{name}.json")))).unwrap()
    }

    fn run(step: &dyn Step, tensor: Tensor) -> Result<Value, StepFailure> {
        Ok(step.run(vec![Some(tensor.into())], &mut Context::default())?.remove(0))
    }

    #[test]
    fn infers_one_or_many_texts() {
        let step = build("bpe");
        let infer = |shape: &[Dim]| step.infer(&[Some(Kind::Tensor(TensorKind::shaped(ElementType::Int64, shape)))]);
        assert_eq!(infer(&[Dim::Dynamic]).unwrap(), [Kind::Text]);
        assert_eq!(infer(&[Dim::Dynamic, Dim::Dynamic]).unwrap(), [Kind::Json]);
        assert!(infer(&[Dim::Dynamic, Dim::Dynamic, Dim::Fixed(2)]).unwrap_err().to_string().contains("not 3"));
        assert!(step.infer(&[Some(Kind::Text)]).is_err());
    }

    #[test]
    fn rejects_invalid_token_ids() {
        let step = build("wordpiece");
        assert_eq!(run(&step, Tensor::new([2], vec![u32::MAX, 100_000]).unwrap()).unwrap(), "".into());
        assert_eq!(run(&step, Tensor::new([0], Vec::<i64>::new()).unwrap()).unwrap(), "".into());
        assert_eq!(run(&step, Tensor::new([2, 0], Vec::<i8>::new()).unwrap()).unwrap(), json!(["", ""]).into());
        assert!(run(&step, Tensor::scalar(9_u8)).is_ok());
        for tensor in [
            Tensor::new([1], vec![-1_i64]).unwrap(),
            Tensor::new([1], vec![u64::MAX]).unwrap(),
            Tensor::new([1], vec![1_i64 << 32]).unwrap(),
            Tensor::new([1], vec![1_f32]).unwrap(),
            Tensor::new([1], vec!["a".to_owned()]).unwrap(),
            Tensor::new([1, 1, 1], vec![1_u8]).unwrap(),
        ] {
            assert!(matches!(run(&step, tensor), Err(StepFailure::InvalidInput(_))));
        }
        assert!(step.run(vec![Some("text".into())], &mut Context::default()).is_err());
    }

    #[test]
    fn long_tokens_are_counted_once_each() {
        let long = "a".repeat(8 << 10);
        let vocabulary = json!({ "model": { "type": "WordLevel", "vocab": { long: 0, "b": 1 }, "unk_token": "b" } });
        let options = Options { tokenizer: String::new(), skip_special_tokens: true, clean_up: false };
        let step = Detokenize::new(options, &file(vocabulary.to_string().into_bytes())).unwrap();
        let error = run(&step, Tensor::zeros(ElementType::Int64, [10_000]).unwrap()).unwrap_err();
        assert!(error.to_string().contains("at most"), "{error}");
        assert!(run(&step, Tensor::new([3], vec![1_u8, 1, 0]).unwrap()).is_ok());
        assert!(run(&step, Tensor::new([100_000], vec![1_u8; 100_000]).unwrap()).is_ok());
    }
}
