//! `ner-aggregate`: a label for each token → the entities of a text.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};
use tokenizers::{Decoder as _, Tokenizer};

use super::label_names::LabelSource;
use super::ranking::{MAX_ANSWER, Score as _};
use super::token_spans::{Characters, QuoteBudget, SpanInputs, numbers, rows_of, scores};
use crate::deadline::Deadline;
use crate::operation::{self, BuiltinStep, Inputs, Operation};
use crate::ports;
use crate::text::encoder::read;
use crate::text::offload::{DECODED_BYTES, Offload, catch_tokenizer_panic};
use crate::text::tokenizer_speed::decodes_in_linear_time;
use crate::text::{text_input, tokenizer_file};
use gpux_core::{BuildError, Builtin, Dim, Group, Kind, Mismatch, OptionOrigin, Port, Signature, StepFailure, Value};

/// How many times as long as an addition it takes to look up a token, or to put it to others, about.
const TOKEN: usize = 512;

/// Bytes of a window, beside its tokens.
const WINDOW: usize = 256;

/// Most entities of an answer: as JSON one takes at least 1024 bytes.
const MAX_ENTITIES: usize = MAX_ANSWER / 1024;

/// Options of `ner-aggregate`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Options {
    /// The tokenizer of the model, as for `tokenize`: it knows which tokens belong to one word. Required.
    tokenizer: String,
    /// The name of each class, such as `B-PER`: a list, the path of a text file with one label a line, or
    /// `{ model: NAME, key: KEY }`, a key of a model's metadata. Required.
    labels: LabelSource,
    /// How tokens become entities: `none` (each for itself), `simple` (default: neighbours of one label),
    /// or whole words with the label of their `first` token, of the `average` score, or of the `max`.
    #[serde(default)]
    strategy: Strategy,
    /// LabelSource that are no entity. Default: `[O]`.
    #[serde(default = "outside")]
    ignore_labels: Vec<String>,
}

fn outside() -> Vec<String> {
    vec!["O".into()]
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum Strategy {
    None,
    #[default]
    Simple,
    First,
    Average,
    Max,
}

/// Puts the tokens that a token-classification model labelled together to entities, as JSON:
/// `[{"entity_group": "PER", "score": 0.99, "word": "Ada", "start": 0, "end": 3}, …]`, the place in
/// characters.
///
/// `input_ids`, `offsets` and `special_tokens_mask` are what `tokenize` or `chunk` gave; with
/// `window_of`, the windows of a long text make one answer. Several texts give a list of lists. Follows
/// transformers' token-classification pipeline, which applies softmax to the scores first.
struct NerAggregate {
    options: Options,
    tokenizer: Arc<Tokenizer>,
    offload: Offload,
    labels: Vec<String>,
    /// whether the tokenizer marks the tokens that continue a word
    knows_words: bool,
    unknown: Option<u32>,
}

pub(super) fn builtin() -> Builtin {
    Builtin {
        name: "ner-aggregate",
        summary: "Puts labelled tokens together to entities",
        group: Group::Output,
        follows: "transformers: TokenClassificationPipeline.postprocess",
        example: "ner-aggregate: { tokenizer: ./tokenizer.json, labels: ./labels.txt, strategy: simple }",
        schema: || schemars::schema_for!(Options),
        build: |options, site| Ok(Box::new(NerAggregate::new(ports::options(options)?, site)?)),
    }
}

/// The part of a `tokenizer.json` that tells words apart.
#[derive(Default, Deserialize)]
struct TokenizerJson {
    #[serde(default)]
    model: TokenizerModel,
}

#[derive(Default, Deserialize)]
struct TokenizerModel {
    continuing_subword_prefix: Option<String>,
    unk_token: Option<String>,
    unk_id: Option<u32>,
}

/// A token or a word with its scores.
struct Piece {
    word: String,
    scores: Vec<f32>,
    start: i64,
    end: i64,
    index: usize,
    continues: bool,
}

/// A token or a word with its label.
struct LabelledToken {
    label: usize,
    score: f32,
    word: String,
    start: i64,
    end: i64,
    index: usize,
}

struct Entity {
    label: String,
    score: f32,
    word: String,
    start: i64,
    end: i64,
    index: usize,
}

/// One window of a text.
struct TextWindow<'a> {
    logits: &'a [f32],
    ids: &'a [i64],
    /// two for each token
    offsets: &'a [i64],
    special: &'a [i64],
}

impl NerAggregate {
    fn new(options: Options, site: &OptionOrigin<'_>) -> Result<BuiltinStep<Self>, BuildError> {
        let labels = options.labels.read(site)?;
        let file = tokenizer_file::find(&options.tokenizer, site)?;
        let tokenizer = read(&file)?;
        let model = serde_json::from_slice::<TokenizerJson>(&file.bytes).unwrap_or_default().model;
        let unknown = model.unk_token.and_then(|token| tokenizer.token_to_id(&token)).or(model.unk_id);
        let optional = Port { optional: true, ..numbers("window_of", 1, "which text each window is from") };
        let inputs = vec![
            scores("logits", 3, &format!("scores of {} labels for each token", labels.len())),
            numbers("input_ids", 2, "the tokens, windows × length"),
            numbers("offsets", 3, "the place of each token in its text, windows × length × 2"),
            numbers("special_tokens_mask", 2, "1 for a special token and for padding"),
            text_input::port("text", "the text, or a list of texts"),
            optional,
        ];
        let output = Port {
            description: "a list of {entity_group, score, word, start, end}".into(),
            ..Port::new("entities", Kind::Json)
        };
        let signature = Signature { inputs, outputs: vec![output] };
        let file = file.path.display().to_string();
        let details = json!({
            "tokenizer": options.tokenizer,
            "file": file,
            "labels": labels.len(),
            "strategy": options.strategy,
            "ignore_labels": options.ignore_labels,
        });
        let operation = Self {
            options,
            offload: Offload::new(decodes_in_linear_time(&tokenizer), text_input::MAX_TEXT),
            tokenizer: Arc::new(tokenizer),
            labels,
            knows_words: model.continuing_subword_prefix.is_some_and(|prefix| !prefix.is_empty()),
            unknown,
        };
        Ok(BuiltinStep::new(signature, details, operation))
    }

    fn wrong_width(&self, width: usize) -> String {
        format!("there are {} labels, but {width} scores for each token", self.labels.len())
    }

    /// The tokens of a window that are text.
    fn pieces(
        &self,
        window: &TextWindow<'_>,
        text: &Characters<'_>,
        quoted: &mut QuoteBudget,
        deadline: &Deadline,
    ) -> Result<Vec<Piece>, StepFailure> {
        let width = self.labels.len();
        let mut pieces = Vec::new();
        for (index, logits) in window.logits.chunks_exact(width).enumerate() {
            deadline.check_after(TOKEN + width)?;
            if window.special[index] != 0 {
                continue;
            }
            let id = u32::try_from(window.ids[index]).ok();
            let (start, end) = (window.offsets[2 * index], window.offsets[2 * index + 1]);
            let token = id.and_then(|id| self.tokenizer.id_to_token(id)).unwrap_or_default();
            let continues = if self.knows_words {
                token.chars().count() != text.count(start, end)
            } else {
                start > 0 && !text.slice(start - 1, start.saturating_add(1)).contains(' ')
            };
            let unknown = id.is_some() && id == self.unknown;
            let word = if unknown { text.slice(start, end).to_owned() } else { token };
            quoted.add(&word)?;
            let mut scores = logits.to_vec();
            super::softmax::softmax_of_few(&mut scores);
            pieces.push(Piece { word, scores, start, end, index, continues: continues && !unknown });
        }
        Ok(pieces)
    }

    /// Tokens as text, as `convert_tokens_to_string` does.
    fn text_of(&self, tokens: Vec<String>, deadline: &Deadline) -> Result<String, StepFailure> {
        deadline.check_after(TOKEN.saturating_mul(tokens.len() + 1))?;
        if self.tokenizer.get_decoder().is_none() {
            return Ok(tokens.join(" "));
        }
        let bytes = tokens.iter().map(|token| token.len() + 1).sum::<usize>();
        let size = bytes.saturating_mul(DECODED_BYTES);
        if size > text_input::MAX_TEXT {
            let message =
                format!("a word could be {size} bytes; at most {} are put together at once", text_input::MAX_TEXT);
            return Err(StepFailure::InvalidInput(message));
        }
        let tokenizer = self.tokenizer.clone();
        let decode =
            move || tokenizer.get_decoder().map_or_else(|| Ok(String::new()), |decoder| decoder.decode(tokens));
        self.offload.run(size, deadline, |_| {
            catch_tokenizer_panic(decode)
                .map_err(|why| StepFailure::InvalidInput(format!("the tokens make no text: {why}")))
        })
    }

    /// A word of these tokens, with the label that the strategy gives it.
    fn word(&self, tokens: &[Piece], deadline: &Deadline) -> Result<LabelledToken, StepFailure> {
        let (first, last) = (&tokens[0], &tokens[tokens.len() - 1]);
        let (label, score) = match self.options.strategy {
            Strategy::Average => highest(&average(tokens)),
            Strategy::Max => {
                let scores = tokens.iter().map(|token| highest(&token.scores));
                scores.reduce(|best, other| if other.1 > best.1 { other } else { best }).unwrap_or_default()
            }
            Strategy::None | Strategy::Simple | Strategy::First => highest(&first.scores),
        };
        let word = self.text_of(tokens.iter().map(|token| token.word.clone()).collect(), deadline)?;
        Ok(LabelledToken { label, score, word, start: first.start, end: last.end, index: first.index })
    }

    fn label_tokens(&self, pieces: Vec<Piece>, deadline: &Deadline) -> Result<Vec<LabelledToken>, StepFailure> {
        if matches!(self.options.strategy, Strategy::None | Strategy::Simple) {
            let each = |piece: Piece| {
                deadline.check_after(TOKEN + piece.scores.len())?;
                let (label, score) = highest(&piece.scores);
                let Piece { word, start, end, index, .. } = piece;
                Ok(LabelledToken { label, score, word, start, end, index })
            };
            return pieces.into_iter().map(each).collect();
        }
        let mut words = Vec::new();
        let mut begin = 0;
        for next in 1..=pieces.len() {
            if next == pieces.len() || !pieces[next].continues {
                words.extend(pieces.get(begin..next).map(|tokens| self.word(tokens, deadline)).transpose()?);
                begin = next;
            }
        }
        Ok(words)
    }

    /// Neighbours of one label, as one.
    fn group(&self, labelled: Vec<LabelledToken>, deadline: &Deadline) -> Result<Vec<Entity>, StepFailure> {
        let mut groups: Vec<Vec<LabelledToken>> = Vec::new();
        for next in labelled {
            let (begins, tag) = tag(&self.labels[next.label]);
            match groups.last_mut() {
                Some(group)
                    if !begins && group.last().is_some_and(|last| self::tag(&self.labels[last.label]).1 == tag) =>
                {
                    group.push(next);
                }
                _ => groups.push(vec![next]),
            }
        }
        groups.into_iter().map(|group| self.entity(group, deadline)).collect()
    }

    fn entity(&self, group: Vec<LabelledToken>, deadline: &Deadline) -> Result<Entity, StepFailure> {
        let label = &self.labels[group[0].label];
        let (start, end, index) = (group[0].start, group[group.len() - 1].end, group[0].index);
        let scores: Vec<f32> = group.iter().map(|part| part.score).filter(|score| !score.is_nan()).collect();
        let score = scores.iter().sum::<f32>() / scores.len() as f32;
        let label = label.split_once('-').map_or(label.as_str(), |(_, name)| name).to_owned();
        let word = self.text_of(group.into_iter().map(|part| part.word).collect(), deadline)?;
        Ok(Entity { label, score, word, start, end, index })
    }

    fn entities(
        &self,
        window: &TextWindow<'_>,
        text: &Characters<'_>,
        quoted: &mut QuoteBudget,
        deadline: &Deadline,
    ) -> Result<Vec<Entity>, StepFailure> {
        let labelled = self.label_tokens(self.pieces(window, text, quoted, deadline)?, deadline)?;
        let mut entities = if self.options.strategy == Strategy::None {
            let each = |part: LabelledToken| {
                let LabelledToken { label, score, word, start, end, index } = part;
                Entity { label: self.labels[label].clone(), score, word, start, end, index }
            };
            labelled.into_iter().map(each).collect()
        } else {
            self.group(labelled, deadline)?
        };
        entities.retain(|entity| !self.options.ignore_labels.contains(&entity.label));
        Ok(entities)
    }

    fn json(&self, entity: Entity) -> Json {
        let Entity { label, score, word, start, end, index } = entity;
        let score = score.json();
        if self.options.strategy == Strategy::None {
            return json!({"entity": label, "score": score, "index": index, "word": word, "start": start, "end": end});
        }
        json!({"entity_group": label, "score": score, "word": word, "start": start, "end": end})
    }
}

/// Whether a label begins an entity, and of what.
fn tag(label: &str) -> (bool, &str) {
    match (label.strip_prefix("B-"), label.strip_prefix("I-")) {
        (Some(tag), _) => (true, tag),
        (_, Some(tag)) => (false, tag),
        _ => (false, label),
    }
}

/// The highest score with its index: the first of equal ones, and NaN before any, as NumPy's `argmax`.
fn highest(scores: &[f32]) -> (usize, f32) {
    let better = |best: (usize, f32), other: (usize, f32)| {
        if other.1 > best.1 || (other.1.is_nan() && !best.1.is_nan()) { other } else { best }
    };
    scores.iter().copied().enumerate().reduce(better).unwrap_or_default()
}

/// The mean of the tokens' scores, label by label, without NaN.
fn average(tokens: &[Piece]) -> Vec<f32> {
    let mean = |label: usize| {
        let scores = tokens.iter().map(|token| token.scores[label]).filter(|score| !score.is_nan());
        let (sum, count) = scores.fold((0.0, 0.0), |(sum, count), score| (sum + score, count + 1.0));
        sum / count
    };
    (0..tokens[0].scores.len()).map(mean).collect()
}

/// Keeps the longer ones of entities that overlap between windows.
fn without_overlaps(mut entities: Vec<Entity>) -> Vec<Entity> {
    entities.sort_by_key(|entity| entity.start);
    let mut kept: Vec<Entity> = Vec::new();
    for entity in entities {
        match kept.last_mut() {
            Some(last) if last.start <= entity.start && entity.start < last.end => {
                let length_of = |entity: &Entity| entity.end.saturating_sub(entity.start);
                let (length, last_length) = (length_of(&entity), length_of(last));
                if length > last_length || length == last_length && entity.score > last.score {
                    *last = entity;
                }
            }
            _ => kept.push(entity),
        }
    }
    kept
}

impl Operation for NerAggregate {
    fn infer(&self, signature: &Signature, inputs: &[Option<Kind>]) -> Result<Vec<Kind>, Mismatch> {
        if let Some(given) = operation::known_tensor(inputs)
            && let Some(Dim::Fixed(width)) = given.shape.as_ref().and_then(|shape| shape.last())
            && *width != self.labels.len()
        {
            return Err(operation::mismatch(signature, given, self.wrong_width(*width)));
        }
        if let Some(Some(text)) = inputs.get(4) {
            text_input::inferred_count(&signature.inputs[4], text)?;
        }
        Ok(vec![Kind::Json])
    }

    fn buffers(&self, inputs: &[Option<Value>]) -> usize {
        // Scores once more, a few texts and numbers for each token, and an answer for each window, which may be empty.
        let rows =
            ports::given_tensor(inputs).and_then(|tensor| tensor.shape().first()).map_or(0, |rows| rows * WINDOW);
        inputs.iter().flatten().map(|value| value.byte_len().saturating_mul(16)).fold(rows, usize::saturating_add)
    }

    fn run(&self, inputs: Inputs<'_>, deadline: &Deadline) -> Result<Vec<Value>, StepFailure> {
        let mut inputs = SpanInputs(inputs, deadline);
        let logits = inputs.scores(3)?;
        let [rows, length, width] = *logits.shape() else {
            return Err(StepFailure::InvalidInput("`logits` are windows × length × labels".into()));
        };
        if width != self.labels.len() {
            return Err(StepFailure::InvalidInput(self.wrong_width(width)));
        }

        let ids = inputs.numbers(&[rows, length])?;
        let offsets = inputs.numbers(&[rows, length, 2])?;
        let special = inputs.numbers(&[rows, length])?;
        let texts = inputs.texts()?;
        let window_of = inputs.optional(&[rows])?;

        let logits = logits.as_slice::<f32>().unwrap_or_default();
        let mut quoted = QuoteBudget::default();
        let mut answers = Vec::with_capacity(texts.len());
        let mut found = 0;

        for (text, windows) in texts.iter().zip(rows_of(texts.len(), rows, window_of.as_deref())?) {
            let characters = Characters::new(text);
            let mut entities = Vec::new();

            for row in &windows {
                deadline.check()?;
                let tokens = row * length..(row + 1) * length;
                let window = TextWindow {
                    logits: &logits[tokens.start * width..tokens.end * width],
                    ids: &ids[tokens.clone()],
                    offsets: &offsets[2 * tokens.start..2 * tokens.end],
                    special: &special[tokens],
                };
                entities.extend(self.entities(&window, &characters, &mut quoted, deadline)?);
            }

            if windows.len() > 1 {
                entities = without_overlaps(entities);
            }
            found += entities.len();
            if found > MAX_ENTITIES {
                let message = format!("there are over {MAX_ENTITIES} entities; send less text at once");
                return Err(StepFailure::InvalidInput(message));
            }
            answers.push(Json::Array(entities.into_iter().map(|entity| self.json(entity)).collect()));
        }
        Ok(vec![if answers.len() == 1 { answers.swap_remove(0) } else { Json::Array(answers) }.into()])
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use super::*;
    use crate::reference;
    use gpux_core::{Context, ElementType, Step, Tensor, TensorKind};

    fn step(labels: &[&str]) -> Box<dyn Step> {
        reference::step("ner-aggregate", json!({"tokenizer": "tokenize/wordpiece.json", "labels": labels}))
    }

    fn zeros(element: ElementType, shape: &[usize]) -> Value {
        Tensor::zeros(element, shape).unwrap().into()
    }

    fn inputs() -> Vec<Value> {
        use ElementType::{Float32, Int64};
        vec![
            zeros(Float32, &[1, 3, 2]),
            zeros(Int64, &[1, 3]),
            zeros(Int64, &[1, 3, 2]),
            zeros(Int64, &[1, 3]),
            "the fox".into(),
        ]
    }

    #[test]
    fn checks_labels_against_scores_when_planned() {
        let kind = |width| {
            Some(Kind::Tensor(TensorKind::shaped(
                ElementType::Float32,
                [Dim::Dynamic, Dim::Dynamic, Dim::Fixed(width)],
            )))
        };
        let infer = |width| step(&["O", "B-PER"]).infer(&[kind(width), None, None, None, Some(Kind::Text), None]);
        assert!(infer(2).is_ok());
        assert!(infer(3).unwrap_err().to_string().contains("2 labels, but 3 scores"));
    }

    #[test]
    fn handles_empty_and_invalid_inputs() {
        use ElementType::{Float32, Int64};
        let step = step(&["O", "B-PER"]);
        let run = |inputs: Vec<Value>| step.run(inputs.into_iter().map(Some).collect(), &mut Context::default());
        assert!(run(inputs()).is_ok());
        for (port, value) in [
            (0, zeros(Float32, &[1, 3, 3])),
            (0, zeros(Int64, &[1, 3, 2])),
            (0, zeros(Float32, &[3, 2])),
            (1, zeros(Int64, &[3])),
            (2, zeros(Int64, &[1, 3])),
            (3, "text".into()),
            (4, json!({}).into()),
        ] {
            let mut inputs = inputs();
            inputs[port] = value;
            assert!(matches!(run(inputs), Err(StepFailure::InvalidInput(_))));
        }
        let mut hostile = inputs();
        hostile[0] =
            Tensor::new([1, 3, 2], vec![f32::NAN, f32::INFINITY, -1.0, 2.0, f32::NEG_INFINITY, 0.0]).unwrap().into();
        hostile[1] = Tensor::new([1, 3], vec![-1_i64, i64::MAX, 5]).unwrap().into();
        hostile[2] = Tensor::new([1, 3, 2], vec![i64::MIN, i64::MAX, 5, 1, -1, 3]).unwrap().into();
        assert!(run(hostile).is_ok());
        // Each token claims the whole of a long text.
        let tokens = 20_000;
        let claims = [0, i64::MAX].repeat(tokens);
        let long = vec![
            zeros(Float32, &[1, tokens, 2]),
            zeros(Int64, &[1, tokens]),
            Tensor::new([1, tokens, 2], claims).unwrap().into(),
            zeros(Int64, &[1, tokens]),
            "é".repeat(4 << 20).into(),
        ];
        // It may quote too much, but not forever.
        assert!(matches!(run(long), Ok(_) | Err(StepFailure::InvalidInput(_))));
        let empty = vec![
            zeros(Float32, &[1, 0, 2]),
            zeros(Int64, &[1, 0]),
            zeros(Int64, &[1, 0, 2]),
            zeros(Int64, &[1, 0]),
            "".into(),
        ];
        assert_eq!(run(empty).unwrap(), [Value::from(json!([]))]);
    }
}
