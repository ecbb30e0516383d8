//! Tokens of several texts → padded tensors of batch × length.

use super::tokenizer_file::TokenizerFile;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokenizers::{Encoding, PaddingDirection, Tokenizer};

use super::text_input;
use crate::deadline::Deadline;
use gpux_core::{BuildError, Dim, ElementType, Kind, Mismatch, Port, StepFailure, Tensor, TensorKind, TextSide, Value};

/// Most tokens of one answer, over the whole batch, padding included.
pub(super) const MAX_TOKENS: usize = 4 << 20;

/// Special tokens that are added to a text or a pair, in usual tokenizers.
const SPECIAL: usize = 16;

/// Usual names of the padding token, for files that do not name one.
const PAD_TOKENS: [&str; 4] = ["[PAD]", "<pad>", "<|padding|>", "<|endoftext|>"];

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub(super) enum Padding {
    None,
    #[default]
    Longest,
    MaxLength,
}

/// The outputs beside `input_ids`, `attention_mask` and `token_type_ids`.
#[derive(Clone, Copy, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub(super) struct ExtraOutputs {
    pub(super) offsets: bool,
    pub(super) special_tokens_mask: bool,
    pub(super) sequence_ids: bool,
    pub(super) word_ids: bool,
}

impl ExtraOutputs {
    /// Whether the tokenizer must track the offsets of tokens.
    pub(super) const fn needs_offsets(self) -> bool {
        self.offsets || self.word_ids
    }
}

/// Pads the rows of a batch.
pub(super) struct BatchPadder {
    padding: Padding,
    /// the length of `padding: max_length`
    max_length: usize,
    multiple: usize,
    /// the token's number; `None` if the tokenizer has none
    id: Option<u32>,
    type_id: u32,
    left: bool,
    file: String,
}

/// The options of padding.
pub(super) struct PaddingOptions<'o> {
    pub(super) padding: Padding,
    pub(super) max_length: Option<usize>,
    pub(super) multiple: Option<usize>,
    pub(super) token: Option<&'o str>,
    pub(super) side: Option<TextSide>,
}

impl BatchPadder {
    /// From the options, else what the files beside the tokenizer's declare, else what its own says.
    pub(super) fn new(
        options: &PaddingOptions<'_>,
        tokenizer: &Tokenizer,
        source: &TokenizerFile,
    ) -> Result<Self, BuildError> {
        let declared = source.padding.token.as_ref().and_then(|token| tokenizer.token_to_id(token));
        let file = tokenizer.get_padding();
        let id = match options.token {
            Some(token) => {
                let id = tokenizer.token_to_id(token);
                let unknown = || BuildError::option("pad_token", format!("the tokenizer has no token `{token}`"));
                Some(id.ok_or_else(unknown)?)
            }
            None => declared
                .or_else(|| file.map(|file| file.pad_id))
                .or_else(|| PAD_TOKENS.iter().find_map(|token| tokenizer.token_to_id(token))),
        };
        if id.is_none() && options.padding == Padding::MaxLength {
            let error = BuildError::option("padding", "the tokenizer names no padding token");
            return Err(error.with_hint("set `pad_token`"));
        }
        let file_left = file.is_some_and(|file| matches!(file.direction, PaddingDirection::Left));
        let file_left = source.padding.left.unwrap_or(file_left);
        Ok(Self {
            padding: options.padding,
            max_length: options.max_length.filter(|_| options.padding == Padding::MaxLength).unwrap_or(0),
            multiple: options.multiple.unwrap_or(1),
            id,
            type_id: file.map_or(0, |file| file.pad_type_id),
            left: options.side.map_or(file_left, |side| side == TextSide::Left),
            file: source.path.display().to_string(),
        })
    }

    /// The length of every row, where it is the same for any texts.
    pub(super) fn fixed_length(&self, truncates: bool) -> Dim {
        match self.padding {
            Padding::MaxLength if truncates => Dim::Fixed(self.max_length.next_multiple_of(self.multiple)),
            _ => Dim::Dynamic,
        }
    }

    /// Upper bound of the bytes of the result, in this many tensors: texts of at most `most` tokens if they are
    /// truncated, in rows as long as the longest.
    pub(super) fn output_bytes(&self, inputs: &[Option<Value>], most: Option<usize>, tensors: usize) -> usize {
        let extents = inputs.iter().flatten().map(text_input::count_and_bytes);
        let (rows, longest) =
            extents.fold((0, SPECIAL), |(rows, sum), (texts, longest)| (texts.max(rows), sum + longest));
        let length = longest.min(most.unwrap_or(longest)).max(self.max_length).next_multiple_of(self.multiple);
        rows.saturating_mul(length).min(MAX_TOKENS).saturating_mul(tensors * size_of::<i64>())
    }

    /// The length that every row of the answer gets.
    fn length(&self, rows: &[&Encoding]) -> Result<usize, StepFailure> {
        let lengths = || rows.iter().map(|row| row.len());
        let longest = lengths().max().unwrap_or(0);
        let wanted = match self.padding {
            Padding::None => {
                if lengths().min() != lengths().max() {
                    let message = "the texts of the batch have different numbers of tokens; set `padding: longest`";
                    return Err(StepFailure::InvalidInput(message.into()));
                }
                return Ok(longest);
            }
            Padding::Longest => longest,
            Padding::MaxLength => longest.max(self.max_length),
        };
        Ok(wanted.next_multiple_of(self.multiple))
    }

    /// The tensors of these rows, in the order of [`outputs`].
    pub(super) fn tensors(
        &self,
        rows: &[&Encoding],
        extras: ExtraOutputs,
        deadline: &Deadline,
    ) -> Result<Vec<Value>, StepFailure> {
        let length = self.length(rows)?;
        let pads = rows.iter().any(|row| row.len() < length);
        let pad_id = match self.id {
            Some(id) => id,
            None if pads => {
                let message =
                    format!("texts must be filled up, but `{}` names no padding token; set `pad_token`", self.file);
                return Err(StepFailure::Failed(message));
            }
            None => 0,
        };
        if rows.len().saturating_mul(length) > MAX_TOKENS {
            return Err(too_many());
        }
        let rows_of_tokens = TokenRows { rows, length, left: self.left, deadline };
        let mut tensors = vec![
            rows_of_tokens.tensor(Encoding::get_ids, |id| i64::from(*id), i64::from(pad_id))?,
            rows_of_tokens.tensor(Encoding::get_attention_mask, |mask| i64::from(*mask), 0)?,
            rows_of_tokens.tensor(Encoding::get_type_ids, |id| i64::from(*id), i64::from(self.type_id))?,
        ];
        if extras.offsets {
            tensors.push(rows_of_tokens.offsets()?);
        }
        if extras.special_tokens_mask {
            tensors.push(rows_of_tokens.tensor(Encoding::get_special_tokens_mask, |mask| i64::from(*mask), 1)?);
        }
        if extras.sequence_ids {
            let number = |id: &Option<usize>| id.map_or(-1, |id| id as i64);
            let data = rows.iter().map(|row| row.get_sequence_ids());
            tensors.push(rows_of_tokens.collect(data, |data, ids| data.extend(ids.iter().map(number)), -1, 1)?);
        }
        if extras.word_ids {
            tensors.push(rows_of_tokens.tensor(Encoding::get_word_ids, |id| id.map_or(-1, i64::from), -1)?);
        }
        Ok(tensors)
    }
}

/// The rows of one answer, padded to one length.
struct TokenRows<'e> {
    rows: &'e [&'e Encoding],
    length: usize,
    left: bool,
    deadline: &'e Deadline,
}

impl<'e> TokenRows<'e> {
    fn tensor<T>(
        &self,
        values: fn(&'e Encoding) -> &'e [T],
        number: fn(&T) -> i64,
        pad: i64,
    ) -> Result<Value, StepFailure> {
        let rows = self.rows.iter().map(|row| values(row));
        self.collect(rows, |data, row| data.extend(row.iter().map(number)), pad, 1)
    }

    fn offsets(&self) -> Result<Value, StepFailure> {
        let rows = self.rows.iter().map(|row| row.get_offsets());
        let pair = |(start, end): &(usize, usize)| [*start as i64, *end as i64];
        self.collect(rows, |data, row| data.extend(row.iter().flat_map(pair)), 0, 2)
    }

    /// One tensor of `width` numbers for each token.
    fn collect<R>(
        &self,
        rows: impl Iterator<Item = R>,
        put: impl Fn(&mut Vec<i64>, R),
        pad: i64,
        width: usize,
    ) -> Result<Value, StepFailure> {
        let mut data = Vec::with_capacity(self.rows.len() * self.length * width);
        for (encoding, row) in self.rows.iter().zip(rows) {
            self.deadline.check_after(self.length * width + 1)?;
            let missing = std::iter::repeat_n(pad, (self.length - encoding.len()) * width);
            if self.left {
                data.extend(missing);
                put(&mut data, row);
            } else {
                put(&mut data, row);
                data.extend(missing);
            }
        }
        let mut shape = vec![self.rows.len(), self.length];
        shape.extend((width > 1).then_some(width));
        Ok(Tensor::new(shape, data)?.into())
    }
}

pub(super) fn too_many() -> StepFailure {
    StepFailure::InvalidInput(format!("the text has over {MAX_TOKENS} tokens; set `max_length` or send less at once"))
}

/// The ports of a step that gives tokens, whose rows have this length.
pub(super) fn outputs(length: &Dim, extras: ExtraOutputs) -> Vec<Port> {
    let output = |name: &str, description: &str, more: &[Dim]| {
        let kind = TensorKind::shaped(ElementType::Int64, [&[Dim::Dynamic, length.clone()], more].concat());
        Port { description: description.into(), ..Port::new(name, Kind::Tensor(kind)) }
    };
    let mut ports = vec![
        output("input_ids", "the number of each token", &[]),
        output("attention_mask", "1 for a token, 0 for padding", &[]),
        output("token_type_ids", "0 for the first text, 1 for its pair", &[]),
    ];
    if extras.offsets {
        ports.push(output(
            "offsets",
            "first character of each token in its text, and one past its last",
            &[Dim::Fixed(2)],
        ));
    }
    if extras.special_tokens_mask {
        ports.push(output("special_tokens_mask", "1 for a special token and for padding, 0 for text", &[]));
    }
    if extras.sequence_ids {
        ports.push(output("sequence_ids", "0 for the first text, 1 for its pair, -1 for what is neither", &[]));
    }
    if extras.word_ids {
        ports.push(output("word_ids", "which word of its text each token belongs to, -1 for none", &[]));
    }
    ports
}

/// How many texts the plan knows will arrive at these ports.
pub(super) fn inferred_batch(ports: &[Port], inputs: &[Option<Kind>]) -> Result<Dim, Mismatch> {
    let (mut batch, mut is_one) = (Dim::Dynamic, true);
    for (port, given) in ports.iter().zip(inputs) {
        if let Some(given) = given {
            let count = text_input::inferred_count(port, given)?;
            // One text goes with as many as the other port holds.
            is_one &= *given == Kind::Text;
            if *given != Kind::Text && count != Dim::Dynamic {
                batch = count;
            }
        }
    }
    Ok(if is_one && inputs.iter().any(Option::is_some) { Dim::Fixed(1) } else { batch })
}

/// The kinds of `ports` whose first axis is `batch`.
pub(super) fn with_batch(ports: &[Port], batch: &Dim) -> Vec<Kind> {
    let kind = |port: &Port| match &port.kind {
        Kind::Tensor(TensorKind { elements, shape: Some(shape), .. }) => {
            Kind::Tensor(TensorKind::shaped(*elements, [std::slice::from_ref(batch), &shape[1..]].concat()))
        }
        other => other.clone(),
    };
    ports.iter().map(kind).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::text::tokenizer_file::DeclaredPadding;

    #[test]
    fn pads_rows_on_either_side() {
        let tokenizer = Tokenizer::new(tokenizers::models::bpe::BPE::default());
        let row = |ids: &[u32]| {
            let tokens = ids.iter().map(|id| tokenizers::Token::new(*id, String::new(), (0, 1))).collect();
            Encoding::from_tokens(tokens, 0)
        };
        let (short, long) = (row(&[5]), row(&[6, 7]));
        for (left, ids, offsets) in
            [(true, [9, 5, 6, 7], [0, 0, 0, 1, 0, 1, 0, 1]), (false, [5, 9, 6, 7], [0, 1, 0, 0, 0, 1, 0, 1])]
        {
            let options =
                PaddingOptions { padding: Padding::Longest, max_length: None, multiple: None, token: None, side: None };
            let file = TokenizerFile { path: "t.json".into(), bytes: Vec::new(), padding: DeclaredPadding::default() };
            let fill = BatchPadder { id: Some(9), left, ..BatchPadder::new(&options, &tokenizer, &file).unwrap() };
            let extras = ExtraOutputs { offsets: true, ..ExtraOutputs::default() };
            let values = fill.tensors(&[&short, &long], extras, &Deadline::default()).unwrap();
            assert_eq!(values[0].as_tensor().unwrap().as_slice::<i64>().unwrap(), ids);
            assert_eq!(values[3].as_tensor().unwrap().as_slice::<i64>().unwrap(), offsets);
        }
    }
}
