//! `chunk` with a tokenizer: long texts → overlapping windows of their tokens.

use tokenizers::{Encoding, TruncationStrategy};

use super::options::{CutText, Options, window_of};
use crate::deadline::Deadline;
use crate::operation::{self, BuiltinStep, Inputs, Operation};
use crate::text::batch_padder::{self, BatchPadder, MAX_TOKENS, PaddingOptions, outputs};
use crate::text::encoder::{self, Encoder, TruncationRule};
use crate::text::text_input;
use crate::text::tokenizer_file::TokenizerFile;
use gpux_core::{BuildError, Kind, Mismatch, Port, Signature, StepFailure, Tensor, Value};

/// Bytes that the tokenizers crate holds for a token of a window, at most.
const BYTES_PER_TOKEN: usize = 256;

/// Numbers in the outputs for each token, at most: its id, two masks, two offsets, sequence, word, text.
const NUMBERS_PER_TOKEN: usize = 8;

/// Cuts a long text (or the second of a pair) into windows of `max_length` tokens that share `stride`
/// of them, and gives what `tokenize` gives with a row for each window, and `window_of`: which text
/// of the batch each row is from. `join` puts the models' answers together again.
///
/// Follows transformers' tokenizers with `return_overflowing_tokens` and `stride`.
pub(super) struct ChunkText {
    options: Options,
    encoder: Encoder,
    padder: BatchPadder,
}

impl ChunkText {
    pub(super) fn new(options: Options, file: &TokenizerFile) -> Result<BuiltinStep<Self>, BuildError> {
        let tokenizer = encoder::read(file)?;
        let padding = PaddingOptions {
            padding: options.padding,
            max_length: Some(options.max_length),
            multiple: None,
            token: options.pad_token.as_deref(),
            side: options.padding_side,
        };
        let padder = BatchPadder::new(&padding, &tokenizer, file)?;
        let strategy = match options.cut {
            Some(CutText::Text) => TruncationStrategy::OnlyFirst,
            Some(CutText::Pair) | None => TruncationStrategy::OnlySecond,
        };
        let cut = TruncationRule { max_length: options.max_length, side: None, strategy, stride: Some(options.stride) };
        let extras = options.extras();
        let encoder = Encoder::new(tokenizer, file, options.add_special_tokens, Some(cut), extras.needs_offsets())?;
        let mut outputs = outputs(&padder.fixed_length(true), extras);
        outputs.push(window_of());
        let inputs = vec![
            text_input::port("text", "a text, or a list of texts"),
            Port { optional: true, ..text_input::port("pair", "the second text of each pair") },
        ];
        let details = encoder.details(&options);
        Ok(BuiltinStep::new(Signature { inputs, outputs }, details, Self { options, encoder, padder }))
    }
}

impl Operation for ChunkText {
    fn infer(&self, signature: &Signature, inputs: &[Option<Kind>]) -> Result<Vec<Kind>, Mismatch> {
        batch_padder::inferred_batch(&signature.inputs, inputs)?;
        Ok(operation::output_kinds(signature))
    }

    fn buffers(&self, inputs: &[Option<Value>]) -> usize {
        let bytes = text_input::paired_bytes(inputs);
        // A token is a byte at least, and is given as often as windows share it.
        let repeated = self.options.max_length.div_ceil((self.options.max_length - self.options.stride).max(1));
        let tokens = bytes.saturating_mul(repeated).min(MAX_TOKENS);
        let held = if repeated > 1 { BYTES_PER_TOKEN } else { 0 };
        let answer = tokens.saturating_mul(NUMBERS_PER_TOKEN * size_of::<i64>() + held);
        let shortest = self.padder.output_bytes(inputs, Some(self.options.max_length), NUMBERS_PER_TOKEN);
        Encoder::buffers(bytes).saturating_add(answer).saturating_add(shortest)
    }

    fn run(&self, mut inputs: Inputs<'_>, deadline: &Deadline) -> Result<Vec<Value>, StepFailure> {
        let given = self.encoder.read_input(&mut inputs)?;
        let windows = |encoding: &Encoding| 1 + encoding.get_overflowing().len();
        let max_length = self.options.max_length;
        let size = move |encoding: &Encoding| windows(encoding).saturating_mul(max_length);
        let encodings = self.encoder.encode(given, deadline, size)?;
        let window_of: Vec<i64> = (0_i64..)
            .zip(&encodings)
            .flat_map(|(text, encoding)| std::iter::repeat_n(text, windows(encoding)))
            .collect();
        let rows: Vec<_> =
            encodings.iter().flat_map(|encoding| std::iter::once(encoding).chain(encoding.get_overflowing())).collect();
        let mut values = self.padder.tensors(&rows, self.options.extras(), deadline)?;
        values.push(Tensor::new([window_of.len()], window_of)?.into());
        Ok(values)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::reference;
    use crate::text::chunk::build;
    use crate::text::tokenizer_file::DeclaredPadding;
    use gpux_core::{Context, OptionOrigin, Step};

    const LONG: &str = "The quick brown fox jumps over the lazy dog, and every request gets its own sandbox.";

    fn chunk(options: serde_json::Value) -> Result<Box<dyn Step>, BuildError> {
        let mut options = options;
        options["tokenizer"] = json!("tokenize/wordpiece.json");
        let files =
            gpux_core::ProjectFiles::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/reference/builtin/"), false);
        reference::build_at(crate::text::chunk::builtin(), options, &OptionOrigin::folder(&files))
    }

    #[test]
    fn window_of_names_the_text() {
        let step = chunk(json!({"max_length": 12, "stride": 4})).unwrap();
        let values = reference::run(&*step, vec![json!([LONG, "a fox", LONG]).into()]);
        let window_of = values[3].as_tensor().unwrap();
        let each = window_of.len() / 2;
        assert!(each > 1);
        assert_eq!(window_of.as_slice::<i64>().unwrap()[each - 1..=each + 1], [0, 1, 2]);
        assert_eq!(values[0].as_tensor().unwrap().shape(), [window_of.len(), 12]);
    }

    #[test]
    fn ignores_truncation_of_the_file() {
        let mut file = reference::read_json("tokenize/wordpiece.json");
        file["truncation"] = json!({"direction": "Right", "max_length": 8, "strategy": "LongestFirst", "stride": 2});
        let file = TokenizerFile {
            path: "t.json".into(),
            bytes: file.to_string().into_bytes(),
            padding: DeclaredPadding::default(),
        };
        let options = json!({"tokenizer": "t", "max_length": 12, "stride": 4});
        let limited = ChunkText::new(crate::ports::options(options.clone()).unwrap(), &file).unwrap();
        let text = json!([LONG.repeat(3), "a fox"]);
        let ours = reference::run(&limited, vec![text.clone().into()]);
        assert_eq!(ours, reference::run(&*chunk(options).unwrap(), vec![text.into()]));
    }

    #[test]
    fn rejects_pairs_whose_other_text_fills_the_window() {
        let step = chunk(json!({"max_length": 12, "stride": 2})).unwrap();
        let run = |text: &str, pair: &str| {
            step.run(vec![Some(text.into()), Some(pair.into())], &mut Context::default()).map_err(|why| why.to_string())
        };
        assert!(run("a fox", LONG).is_ok());
        assert!(run(LONG, LONG).unwrap_err().contains("leaves nothing of 12"));
        assert!(run(LONG, "a fox").unwrap_err().contains("leaves nothing of 12"));
    }

    #[test]
    fn rejects_invalid_options() {
        for (options, option) in [
            (json!({"max_length": 0}), "max_length"),
            (json!({"max_length": 8, "stride": 8}), "stride"),
            (json!({"max_length": 8, "stride": 6}), "max_length"),
            (json!({"max_length": 8, "pad_id": 1}), "pad_id"),
        ] {
            assert_eq!(chunk(options.clone()).err().unwrap().option, [option], "{options}");
        }
        for option in ["cut", "pad_token"] {
            let error = build(json!({"max_length": 8, option: "text"}), &OptionOrigin::Component).err().unwrap();
            assert_eq!(error.option, [option]);
        }
    }

    #[test]
    fn impossible_windows_are_invalid_input() {
        let run = |options, inputs: Vec<Value>| {
            let inputs = inputs.into_iter().map(Some).collect();
            chunk(options).unwrap().run(inputs, &mut Context::default())
        };
        for result in [
            run(json!({"max_length": 12}), vec![LONG.into(), LONG.into()]),
            run(json!({"max_length": 12, "stride": 8}), vec!["the fox".into(), LONG.into()]),
            run(json!({"max_length": 8192, "stride": 8189}), vec!["a ".repeat(20_000).into()]),
            run(json!({"max_length": 12}), vec![json!(["a", "b"]).into(), json!(["a"]).into()]),
            run(json!({"max_length": 12}), vec![json!([]).into()]),
            run(json!({"max_length": 12}), vec![]),
        ] {
            assert!(matches!(result, Err(StepFailure::InvalidInput(_))), "{result:?}");
        }
    }
}
