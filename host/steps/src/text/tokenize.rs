//! `tokenize`: text → the numbers that a language model takes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokenizers::{Encoding, TruncationDirection, TruncationStrategy};

use super::batch_padder::{
    BatchPadder, ExtraOutputs, Padding, PaddingOptions, TextSide, inferred_batch, outputs, with_batch,
};
use super::encoder::{self, Encoder, TruncationRule};
use super::text_input;
use super::tokenizer_file::{self, TokenizerFile};
use crate::deadline::Deadline;
use crate::operation::{BuiltinStep, Inputs, Operation};
use crate::ports;
use gpux_core::{BuildError, Builtin, Group, Kind, Mismatch, Port, Signature, StepFailure, TextCounts, Value};

/// Options of `tokenize`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
struct Options {
    /// A `tokenizer.json`: its path, or a model's name, looked up as `./NAME/tokenizer.json`, in the local
    /// Hugging Face cache, and last, with a warning, as `./tokenizer.json`. Required.
    tokenizer: String,
    /// Most tokens of one text (or pair), special ones included, 1 to 1048576. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_048_576))]
    max_length: Option<usize>,
    /// Whether a longer text is cut at `max_length`, and which of a pair: `longest_first` (as `true`:
    /// the longer one), `only_first` or `only_second`. Default: true where `max_length` is given, else
    /// false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    truncation: Option<Truncation>,
    /// The end that is cut off: `left` or `right`. Default: what the tokenizer's file says, else `right`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    truncation_side: Option<TextSide>,
    /// Whether shorter texts are filled up: `none`, `longest` (default: to the longest of the batch)
    /// or `max_length`.
    #[serde(default)]
    padding: Padding,
    /// The end that is filled up: `left` or `right`. Default: what the tokenizer's file says, else `right`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    padding_side: Option<TextSide>,
    /// Round the padded length up to a multiple of this many tokens, 1 to 1048576. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_048_576))]
    pad_to_multiple_of: Option<usize>,
    /// The token that fills up, such as `[PAD]`. Default: what `tokenizer_config.json` or `special_tokens_map.json`
    /// beside the tokenizer's file says, else that file, else its token named `[PAD]`, `<pad>`, `<|padding|>` or `<|endoftext|>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pad_token: Option<String>,
    /// Whether the tokens that mark start, end and separation are added. Default: true.
    #[serde(default = "crate::ports::default_true")]
    add_special_tokens: bool,
    /// Whether to give `offsets` too, batch × length × 2: the first character of each token in its text,
    /// and one past its last, counted in Unicode characters as Python does. Default: false.
    #[serde(default)]
    offsets: bool,
    /// Whether to give `special_tokens_mask` too: 1 for a special token and for padding. Default: false.
    #[serde(default)]
    special_tokens_mask: bool,
    /// Whether to give `sequence_ids` too: 0 for the first text, 1 for its pair, -1 for what is neither.
    /// Default: false.
    #[serde(default)]
    sequence_ids: bool,
    /// Whether to give `word_ids` too: which word of its text a token belongs to, -1 for none. Default:
    /// false.
    #[serde(default)]
    word_ids: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
enum Truncation {
    Whether(bool),
    TruncationChoice(TruncationChoice),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum TruncationChoice {
    LongestFirst,
    OnlyFirst,
    OnlySecond,
}

impl Options {
    /// Which text is cut, if any.
    fn strategy(&self) -> Option<TruncationStrategy> {
        match self.truncation.unwrap_or(Truncation::Whether(self.max_length.is_some())) {
            Truncation::Whether(false) => None,
            Truncation::Whether(true) | Truncation::TruncationChoice(TruncationChoice::LongestFirst) => {
                Some(TruncationStrategy::LongestFirst)
            }
            Truncation::TruncationChoice(TruncationChoice::OnlyFirst) => Some(TruncationStrategy::OnlyFirst),
            Truncation::TruncationChoice(TruncationChoice::OnlySecond) => Some(TruncationStrategy::OnlySecond),
        }
    }

    fn extras(&self) -> ExtraOutputs {
        ExtraOutputs {
            offsets: self.offsets,
            special_tokens_mask: self.special_tokens_mask,
            sequence_ids: self.sequence_ids,
            word_ids: self.word_ids,
        }
    }

    fn padding_options(&self) -> PaddingOptions<'_> {
        PaddingOptions {
            padding: self.padding,
            max_length: self.max_length,
            multiple: self.pad_to_multiple_of,
            token: self.pad_token.as_deref(),
            side: self.padding_side,
        }
    }

    fn check(&self) -> Result<(), BuildError> {
        let needs_length = |option: &str| {
            let message = format!("`{option}` needs to know the `max_length`");
            Err(BuildError::option(option, message).with_hint("add `max_length: 128`, for example"))
        };
        match self.max_length {
            None if self.strategy().is_some() => needs_length("truncation"),
            None if self.padding == Padding::MaxLength => needs_length("padding"),
            _ => Ok(()),
        }
    }
}

/// Splits text into tokens as a Hugging Face `tokenizer.json` says, into int64 tensors of batch ×
/// length named `input_ids`, `attention_mask` and `token_type_ids`; a model's inputs of these names
/// read them.
///
/// Takes a text, a JSON list of texts or a string tensor of one axis; with a second port, `pair`,
/// pairs of them; one text beside a list of texts is paired with each. Follows the Python package `tokenizers` exactly: it is the same code. Truncation
/// and padding are those of the options, never those that the file switches on; the file still says
/// from which side, and with which token, unless the options do.
struct Tokenize {
    options: Options,
    encoder: Encoder,
    padder: BatchPadder,
    /// the number of its outputs
    outputs: usize,
}

pub(super) fn builtin() -> Builtin {
    Builtin {
        name: "tokenize",
        summary: "Turns text into a language model's token numbers",
        group: Group::Text,
        follows: "Hugging Face tokenizers: Tokenizer.encode",
        example: "tokenize: { tokenizer: ./tokenizer.json, max_length: 128 }",
        schema: || schemars::schema_for!(Options),
        build: |options, site| {
            let options: Options = ports::options(options)?;
            let file = tokenizer_file::find(&options.tokenizer, site)?;
            Ok(Box::new(Tokenize::new(options, &file)?))
        },
    }
}

impl TextSide {
    pub(super) const fn direction(self) -> TruncationDirection {
        match self {
            Self::Left => TruncationDirection::Left,
            Self::Right => TruncationDirection::Right,
        }
    }
}

impl Tokenize {
    fn new(options: Options, file: &TokenizerFile) -> Result<BuiltinStep<Self>, BuildError> {
        options.check()?;
        let tokenizer = encoder::read(file)?;
        let padder = BatchPadder::new(&options.padding_options(), &tokenizer, file)?;
        let cut = options.strategy().zip(options.max_length).map(|(strategy, max_length)| TruncationRule {
            max_length,
            side: options.truncation_side.map(TextSide::direction),
            strategy,
            stride: None,
        });
        let extras = options.extras();
        let encoder = Encoder::new(tokenizer, file, options.add_special_tokens, cut, extras.needs_offsets())?;
        let signature = Signature {
            inputs: vec![
                text_input::port("text", "a text, or a list of texts"),
                Port { optional: true, ..text_input::port("pair", "the second text of each pair, or one for all") },
            ],
            outputs: outputs(&padder.fixed_length(cut.is_some()), extras),
        };
        let (details, outputs) = (encoder.details(&options), signature.outputs.len());
        Ok(BuiltinStep::new(signature, details, Self { options, encoder, padder, outputs }))
    }
}

impl Operation for Tokenize {
    fn infer(&self, signature: &Signature, inputs: &[Option<Kind>]) -> Result<Vec<Kind>, Mismatch> {
        let batch = inferred_batch(&signature.inputs, inputs)?;
        Ok(with_batch(&signature.outputs, &batch))
    }

    fn buffers(&self, inputs: &[Option<Value>]) -> usize {
        let most = self.options.strategy().and(self.options.max_length);
        let answer = self.padder.output_bytes(inputs, most, self.outputs + 1);
        Encoder::buffers(text_input::paired_bytes(inputs)).saturating_add(answer)
    }

    fn run(&self, inputs: Inputs<'_>, deadline: &Deadline) -> Result<Vec<Value>, StepFailure> {
        self.run_noting(inputs, deadline, &mut TextCounts::default())
    }

    fn run_noting(
        &self,
        inputs: Inputs<'_>,
        deadline: &Deadline,
        texts: &mut TextCounts,
    ) -> Result<Vec<Value>, StepFailure> {
        let given = self.encoder.read_input(inputs)?;
        let encodings = self.encoder.encode(given, deadline, Encoding::len)?;
        texts.add(TextCounts {
            truncated: encodings.iter().filter(|encoding| !encoding.get_overflowing().is_empty()).count() as u32,
            tokens: encodings.iter().map(|encoding| encoding.len() as u64).sum(),
        });
        self.padder.tensors(&encodings.iter().collect::<Vec<_>>(), self.options.extras(), deadline)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use serde_json::json;

    use super::super::tokenizer_file::DeclaredPadding;
    use super::*;
    use crate::reference;
    use gpux_core::{Context, Dim, ElementType, Step, Tensor, TensorKind};

    fn file(bytes: &[u8]) -> TokenizerFile {
        TokenizerFile { path: "t.json".into(), bytes: bytes.to_vec(), padding: DeclaredPadding::default() }
    }

    fn build(name: &str, mut options: serde_json::Value) -> Result<BuiltinStep<Tokenize>, BuildError> {
        options["tokenizer"] = json!(name);
        reference::check_options(builtin(), &options)?;
        Tokenize::new(ports::options(options)?, &file(&reference::read(&format!("tokenize/{name}.json"))))
    }

    fn run(step: &dyn Step, inputs: Vec<Value>) -> Result<Vec<Vec<i64>>, StepFailure> {
        let outputs = step.run(inputs.into_iter().map(Some).collect(), &mut Context::default())?;
        Ok(outputs.iter().map(|value| value.as_tensor().unwrap().as_slice::<i64>().unwrap().to_vec()).collect())
    }

    #[test]
    fn accepts_every_form_of_text() {
        let step = build("wordpiece", json!({})).unwrap();
        let text = run(&step, vec!["the fox".into()]).unwrap();
        let strings = Tensor::new([1], vec!["the fox".to_owned()]).unwrap();
        for value in [json!("the fox").into(), json!(["the fox"]).into(), Value::Tensor(strings)] {
            assert_eq!(run(&step, vec![value]).unwrap(), text);
        }
        for value in [
            json!([]).into(),
            json!(["a", 1]).into(),
            json!({"text": "a"}).into(),
            json!(null).into(),
            vec![1_u8].into(),
            Value::Tensor(Tensor::new([1], vec![1_i64]).unwrap()),
            Value::Tensor(Tensor::new([0], Vec::<String>::new()).unwrap()),
        ] {
            let error = run(&step, vec![value]).unwrap_err();
            assert!(error.to_string().contains("takes text or a list of texts"), "{error}");
        }
        let error = run(&step, vec![json!(["a", "b"]).into(), json!(["c"]).into()]).unwrap_err();
        assert!(error.to_string().contains("`text` holds 2 texts, but `pair` 1"), "{error}");
        assert!(run(&step, vec![]).is_err());
    }

    #[test]
    fn pairs_one_text_with_each_of_a_list() {
        let step = build("wordpiece", json!({"max_length": 12})).unwrap();
        let documents = json!(["the fox", "a lazy dog jumps", ""]);
        let queries = json!(["the dog", "the dog", "the dog"]);
        let expected = run(&step, vec![queries.clone().into(), documents.clone().into()]).unwrap();
        assert_eq!(run(&step, vec!["the dog".into(), documents.clone().into()]).unwrap(), expected);
        assert_eq!(run(&step, vec![json!("the dog").into(), documents.clone().into()]).unwrap(), expected);
        let expected = run(&step, vec![documents.clone().into(), queries.into()]).unwrap();
        assert_eq!(run(&step, vec![documents.clone().into(), "the dog".into()]).unwrap(), expected);

        let error = run(&step, vec![json!(["the dog"]).into(), documents.into()]).unwrap_err();
        assert!(error.to_string().contains("`text` holds 1 texts, but `pair` 3; give one text"), "{error}");
        let many = json!(vec![""; 1 << 10]);
        let error = run(&step, vec!["a".repeat(1 << 17).as_str().into(), many.clone().into()]).unwrap_err();
        assert!(error.to_string().contains("the text is 134217728 bytes"), "{error}");
        let declared = step.buffers(&[Some("a".repeat(1 << 10).as_str().into()), Some(many.into())]);
        assert!(declared > 512 << 20, "{declared}");

        let infer = |kinds: [Kind; 2]| step.infer(&kinds.map(Some)).unwrap()[0].to_string();
        assert_eq!(infer([Kind::Text, Kind::Text]), "tensor int64[1, ?]");
        assert_eq!(infer([Kind::Text, Kind::Json]), "tensor int64[?, ?]");
        let three = Kind::Tensor(TensorKind::shaped(ElementType::String, [Dim::Fixed(3)]));
        assert_eq!(infer([Kind::Text, three]), "tensor int64[3, ?]");
    }

    #[test]
    fn counts_truncated_texts() {
        let truncated = |options, inputs: Vec<Value>| {
            let (step, mut context) = (build("wordpiece", options).unwrap(), Context::default());
            step.run(inputs.into_iter().map(Some).collect(), &mut context).unwrap();
            context.texts.truncated
        };
        let length = run(&build("wordpiece", json!({})).unwrap(), vec!["the fox the fox".into()]).unwrap()[0].len();
        let texts = || vec![json!(["the fox the fox", "the", "the fox the fox the"]).into()];
        for side in ["left", "right"] {
            for (max_length, expected) in [(length + 1, 0), (length, 1), (length - 1, 2)] {
                let options = json!({"max_length": max_length, "truncation_side": side});
                assert_eq!(truncated(options, texts()), expected, "{side} {max_length} of {length}");
            }
        }
        let pair = || vec!["the fox the fox".into(), "the fox".into()];
        assert_eq!(truncated(json!({"max_length": 5}), pair()), 1);
        assert_eq!(truncated(json!({"max_length": 5, "truncation": false}), pair()), 0);
    }

    #[test]
    fn infers_batch_and_length() {
        let infer = |options, kind| {
            build("wordpiece", options).unwrap().infer(&[Some(kind), None]).map(|kinds| kinds[0].to_string())
        };
        assert_eq!(infer(json!({}), Kind::Text).unwrap(), "tensor int64[1, ?]");
        assert_eq!(infer(json!({"max_length": 10}), Kind::Json).unwrap(), "tensor int64[?, ?]");
        let padded = json!({"max_length": 10, "padding": "max_length", "pad_to_multiple_of": 8});
        assert_eq!(infer(padded, Kind::Text).unwrap(), "tensor int64[1, 16]");
        let strings = |dim| Kind::Tensor(TensorKind::shaped(ElementType::String, [dim]));
        assert_eq!(infer(json!({}), strings(Dim::Fixed(3))).unwrap(), "tensor int64[3, ?]");
        assert!(infer(json!({}), Kind::Bytes).is_err());
        assert!(infer(json!({}), Kind::Tensor(TensorKind::of_elements(ElementType::Int64))).is_err());
    }

    #[test]
    fn pads_as_the_files_beside_the_tokenizer_declare() {
        let bytes = reference::read("tokenize/wordpiece.json");
        let ids = |token: Option<&str>, left: Option<bool>| {
            let padding = DeclaredPadding { token: token.map(str::to_owned), left };
            let file = TokenizerFile { padding, ..file(&bytes) };
            let step = Tokenize::new(ports::options(json!({"tokenizer": "t.json"})).unwrap(), &file).unwrap();
            run(&step, vec![json!(["the", "the the"]).into()]).unwrap().remove(0)
        };
        let usual = ids(None, None);
        let [cls, the, sep, pad, ..] = usual[..] else { panic!("{usual:?}") };
        assert_eq!(usual, [cls, the, sep, pad, cls, the, the, sep]);
        assert_eq!(ids(Some("[SEP]"), Some(true)), [sep, cls, the, sep, cls, the, the, sep]);
        // A token that the tokenizer does not have.
        assert_eq!(ids(Some("<none>"), Some(false)), usual);
    }

    #[test]
    fn ignores_truncation_and_padding_of_the_file() {
        let unlimited = reference::read_json("tokenize/wordpiece.json");
        let mut limited = unlimited.clone();
        limited["truncation"] = json!({"direction": "Right", "max_length": 8, "strategy": "LongestFirst", "stride": 2});
        limited["padding"] = json!({"strategy": {"Fixed": 64}, "direction": "Right", "pad_to_multiple_of": 16,
            "pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]"});
        let text = "the quick brown fox jumps over the lazy dog ".repeat(9);
        for mut options in [
            json!({}),
            json!({"max_length": 12, "truncation": false}),
            json!({"max_length": 40, "truncation": "only_second"}),
            json!({"max_length": 40, "truncation_side": "left", "word_ids": true}),
            json!({"add_special_tokens": false, "offsets": true}),
        ] {
            options["tokenizer"] = json!("t");
            for inputs in [vec![text.as_str().into()], vec!["what?".into(), text.as_str().into()]] {
                let given = [&unlimited, &limited].map(|json| {
                    let options = ports::options(options.clone()).unwrap();
                    run(&Tokenize::new(options, &file(json.to_string().as_bytes())).unwrap(), inputs.clone())
                });
                assert_eq!(given[0], given[1], "{options}");
            }
        }
    }

    #[test]
    fn rejects_invalid_options() {
        for (options, option) in [
            (json!({"max_length": 0}), "max_length"),
            (json!({"max_length": 1}), "max_length"),
            (json!({"max_length": 1_u64 << 40}), "max_length"),
            (json!({"truncation": true}), "truncation"),
            (json!({"truncation": "only_second"}), "truncation"),
            (json!({"padding": "max_length"}), "padding"),
            (json!({"pad_to_multiple_of": 0}), "pad_to_multiple_of"),
            (json!({"pad_token": "[NONE]"}), "pad_token"),
        ] {
            assert_eq!(build("wordpiece", options.clone()).err().unwrap().option, [option], "{options}");
        }
        assert!(build("wordpiece", json!({"max_length": 1, "add_special_tokens": false})).is_ok());
        assert!(build("wordpiece", json!({"max_length": 1, "truncation": false})).is_ok());
    }

    #[test]
    fn rejects_batches_of_unequal_lengths_without_padding() {
        let batch = || vec![json!(["a", "a much longer text"]).into()];
        let error = run(&build("wordpiece", json!({"padding": "none"})).unwrap(), batch()).unwrap_err();
        assert!(error.to_string().contains("set `padding: longest`"), "{error}");
        let short = build("wordpiece", json!({"max_length": 2})).unwrap();
        assert_eq!(run(&short, batch()).unwrap()[0], [2, 3, 2, 3], "only [CLS] and [SEP] fit");
        let error = run(&short, vec!["a".into(), "b".into()]).unwrap_err();
        assert!(error.to_string().contains("special tokens alone are 3"), "{error}");
        let left = build("bpe", json!({"max_length": 3, "padding": "max_length"})).unwrap();
        assert_eq!(run(&left, vec!["a".into()]).unwrap()[1], [0, 0, 1], "the file says: from the left");
    }

    #[test]
    fn returns_requested_extra_outputs() {
        let all = json!({"offsets": true, "special_tokens_mask": true, "sequence_ids": true, "word_ids": true});
        let step = build("wordpiece", all).unwrap();
        let names: Vec<_> = step.signature().outputs.iter().skip(3).map(|port| port.name.as_str()).collect();
        assert_eq!(names, ["offsets", "special_tokens_mask", "sequence_ids", "word_ids"]);
        let kinds = step.infer(&[Some(Kind::Text), None]).unwrap();
        assert_eq!(kinds[3].to_string(), "tensor int64[1, ?, 2]");
        let given = run(&step, vec!["the fox".into(), "a fox".into()]).unwrap();
        assert_eq!(given[5].iter().filter(|id| **id == -1).count(), 3, "[CLS] and two [SEP]");
        assert_eq!(given[6].len(), given[0].len());
        assert_eq!(given[3].len(), 2 * given[0].len());
    }

    #[test]
    fn impossible_truncation_is_invalid_input() {
        let step = build("wordpiece", json!({"max_length": 6, "truncation": "only_second"})).unwrap();
        let long = "the quick brown fox jumps over the lazy dog";
        assert!(run(&step, vec!["the fox".into()]).is_ok(), "nothing needs to be cut");
        for inputs in [vec![long.into()], vec![long.into(), "fox".into()]] {
            assert!(matches!(run(&step, inputs), Err(StepFailure::InvalidInput(_))));
        }
    }

    #[test]
    fn rejects_too_much_text() {
        let step = build("wordpiece", json!({"max_length": 1 << 20, "padding": "max_length"})).unwrap();
        let error = run(&step, vec![json!(vec![""; 17]).into()]).unwrap_err();
        assert!(error.to_string().contains("tokens"), "{error}");
        let error = run(&step, vec!["a".repeat(text_input::MAX_TEXT + 1).into()]).unwrap_err();
        assert!(error.to_string().contains("bytes"), "{error}");
    }

    #[test]
    fn rejects_hostile_files_and_texts() {
        let options = || Options { max_length: None, ..ports::options(json!({"tokenizer": "t"})).unwrap() };
        let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
        for bytes in [&b""[..], b"{}", b"null", &[0xff, 0xfe], deep.as_bytes(), b"{\"model\": {\"type\": \"BPE\"}}"] {
            assert!(Tokenize::new(options(), &file(bytes)).is_err());
        }
        let mut random = reference::random();
        for name in ["wordpiece", "bpe", "unigram"] {
            let whole = reference::read(&format!("tokenize/{name}.json"));
            for length in (0..whole.len() - 1).step_by(1501) {
                assert!(Tokenize::new(options(), &file(&whole[..length])).is_err());
            }
            for _ in 0..100 {
                let mut bytes = whole.clone();
                for _ in 0..=random(4) {
                    let at = random(bytes.len());
                    bytes[at] = b"0195,:{}[]\"-e\\ aZ"[random(17)];
                }
                if let Ok(step) = Tokenize::new(options(), &file(&bytes)) {
                    let text: String = (0..40).filter_map(|_| char::from_u32(random(0x3000) as u32)).collect();
                    let _ = run(&step, vec![text.as_str().into(), "pair".into()]);
                }
            }
        }
    }
}
