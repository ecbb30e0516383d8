//! `qa-span`: where an answer begins and ends → the answer.

use std::cmp::Ordering;
use std::collections::HashMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use super::ranking::Score as _;
use super::token_spans::{Characters, QuoteBudget, SpanInputs, numbers, rows_of, scores};
use crate::deadline::{Deadline, DeadlineExceeded};
use crate::operation::{BuiltinStep, Inputs, Operation};
use crate::ports;
use crate::text::text_input;
use gpux_core::{Builtin, Group, Kind, Mismatch, Port, Signature, StepFailure, Value};

/// How many times as long as for a span it takes to prepare a token, or to quote a span, about.
const ELEMENTS_PER_VALUE: usize = 16;

/// The score of a position that cannot be in an answer.
const IMPOSSIBLE: f32 = -10_000.0;

/// Options of `qa-span`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Options {
    /// How many answers to give, 1 to 1000. Default: 1, which is given as an object; more as a list.
    #[schemars(range(min = 1, max = 1000))]
    top_k: usize,
    /// Most tokens of an answer, 1 to 1000. Default: 15.
    #[schemars(range(min = 1, max = 1000))]
    max_answer_length: usize,
    /// Whether the text may hold no answer: an empty one then competes, with the score of the first
    /// token. Default: false.
    impossible: bool,
    /// Which text of the pair that was tokenized is the context: 0 or 1. Default: 1.
    #[schemars(range(max = 1))]
    sequence: u8,
}

impl Default for Options {
    fn default() -> Self {
        Self { top_k: 1, max_answer_length: 15, impossible: false, sequence: 1 }
    }
}

/// Finds the answer that a question-answering model's scores mark in the context, as JSON:
/// `{"answer": "in a sandbox", "score": 0.91, "start": 12, "end": 24}`, the place in characters.
///
/// `offsets` and `sequence_ids` (and `word_ids`, to answer in whole words) are what `tokenize` or
/// `chunk` gave; with `window_of`, the windows of a long context make one answer. Several contexts
/// give a list. Follows transformers' question-answering pipeline (4.57): equal answers count
/// together, and the text is never answered with its first token.
struct QaSpan {
    options: Options,
}

pub(super) fn builtin() -> Builtin {
    Builtin {
        name: "qa-span",
        summary: "Finds the answer that start and end scores mark in a text",
        group: Group::Output,
        follows: "transformers 4.57: QuestionAnsweringPipeline.postprocess",
        example: "qa-span: { top_k: 1, max_answer_length: 15 }",
        schema: || schemars::schema_for!(Options),
        build: |options, _| Ok(Box::new(QaSpan::new(ports::options(options)?))),
    }
}

impl QaSpan {
    fn new(options: Options) -> BuiltinStep<Self> {
        let optional = |port: Port| Port { optional: true, ..port };
        let inputs = vec![
            scores("start_logits", 2, "how well an answer begins at each token, windows × length"),
            scores("end_logits", 2, "how well it ends there"),
            numbers("offsets", 3, "the place of each token in its text, windows × length × 2"),
            numbers("sequence_ids", 2, "which text each token is from"),
            text_input::port("context", "the text, or a list of texts"),
            optional(numbers("attention_mask", 2, "0 for padding")),
            optional(numbers("word_ids", 2, "the word of each token, to answer in whole words")),
            optional(numbers("window_of", 1, "which text each window is from")),
        ];
        let output =
            Port { description: "{answer, score, start, end}, or a list".into(), ..Port::new("answer", Kind::Json) };
        let signature = Signature { inputs, outputs: vec![output] };
        BuiltinStep::new(signature, json!(options), Self { options })
    }

    /// The best spans of one window, and the score of no answer.
    fn spans(
        &self,
        window: &TextWindow<'_>,
        count: usize,
        deadline: &Deadline,
    ) -> Result<(Vec<Span>, f32), DeadlineExceeded> {
        deadline.check_after(ELEMENTS_PER_VALUE * window.start.len())?;
        let sequence = i64::from(self.options.sequence);
        let allowed: Vec<bool> = (0..window.start.len())
            .map(|token| {
                let text = window.sequence_ids[token] == sequence || (token == 0 && window.sequence_ids[0] < 0);
                text && window.attention.is_none_or(|mask| mask[token] != 0)
            })
            .collect();
        let (mut start, mut end) = (shares(window.start, &allowed), shares(window.end, &allowed));
        let none = start[0] * end[0];
        (start[0], end[0]) = (0.0, 0.0);
        let mut best = Best { spans: Vec::new(), count, least: 0.0 };
        for (first, start) in start.iter().enumerate().filter(|(first, _)| allowed[*first]) {
            deadline.check_after(self.options.max_answer_length)?;
            let last = end.len().min(first + self.options.max_answer_length);
            for (last, end) in end[..last].iter().enumerate().skip(first).filter(|(last, _)| allowed[*last]) {
                best.add((start * end, first, last));
            }
        }
        Ok((best.into_sorted(), none))
    }

    fn answer(
        &self,
        text: &str,
        windows: &[TextWindow<'_>],
        quoted: &mut QuoteBudget,
        deadline: &Deadline,
    ) -> Result<Json, StepFailure> {
        deadline.check_after(text.len())?;
        let characters = Characters::new(text);

        let mut answers: Vec<Answer> = Vec::new();
        // Windows overlap, so that a place is often found again; and other places read the same.
        let (mut places, mut texts) = (HashMap::new(), HashMap::new());
        let mut least_none = 1e6_f32;
        for window in windows {
            // Some become one when they are made whole words.
            let count = if window.words.is_some() { 2 * self.options.top_k + 10 } else { self.options.top_k };

            let (spans, none) = self.spans(window, count, deadline)?;
            least_none = least_none.min(none);
            for (score, first, last) in spans {
                deadline.check_after(ELEMENTS_PER_VALUE)?;
                let (start, end) = window.place(first, last);
                let known = if let Some(known) = places.get(&(start, end)) {
                    *known
                } else {
                    let quote = characters.slice(start, end);
                    quoted.add(quote)?;
                    deadline.check_after(quote.len())?;
                    let known = *texts.entry(quote.to_lowercase()).or_insert(answers.len());
                    if known == answers.len() {
                        answers.push(Answer { score: 0.0, start, end, text: quote.to_owned() });
                    }
                    places.insert((start, end), known);
                    known
                };
                answers[known].score += f64::from(score);
            }
        }

        if self.options.impossible {
            answers.push(Answer { score: least_none.into(), ..Answer::default() });
        }
        answers.sort_by(|a, b| b.score.partial_cmp(&a.score).unwrap_or(Ordering::Equal));
        let mut answers = answers.into_iter().take(self.options.top_k).map(Answer::json);
        Ok(if self.options.top_k == 1 { answers.next().unwrap_or(Json::Null) } else { answers.collect() })
    }
}

/// One window of a text.
struct TextWindow<'a> {
    start: &'a [f32],
    end: &'a [f32],
    /// two for each token
    offsets: &'a [i64],
    sequence_ids: &'a [i64],
    attention: Option<&'a [i64]>,
    words: Option<Words>,
}

impl TextWindow<'_> {
    /// The characters of a span, in whole words where the words are known.
    fn place(&self, first: usize, last: usize) -> (i64, i64) {
        let (begin, end) = self.words.as_ref().map_or((first, last), |words| (words.first[first], words.last[last]));
        (self.offsets[2 * begin], self.offsets[2 * end + 1])
    }
}

/// For each token of a window, the first and the last token of its word.
struct Words {
    first: Vec<usize>,
    last: Vec<usize>,
}

impl Words {
    fn new(word_ids: &[i64], sequence_ids: &[i64]) -> Self {
        // Tokens of one word are adjacent; a token outside of words is a word of its own.
        let continues = |token: usize, other: usize| {
            word_ids[token] >= 0 && word_ids[token] == word_ids[other] && sequence_ids[token] == sequence_ids[other]
        };
        let (mut first, mut last): (Vec<_>, Vec<_>) = (0..word_ids.len()).map(|token| (token, token)).unzip();
        for token in 1..first.len() {
            if continues(token, token - 1) {
                first[token] = first[token - 1];
            }
        }
        for token in (1..last.len()).rev() {
            if continues(token, token - 1) {
                last[token - 1] = last[token];
            }
        }
        Self { first, last }
    }
}

#[derive(Default)]
struct Answer {
    score: f64,
    start: i64,
    end: i64,
    text: String,
}

impl Answer {
    fn json(self) -> Json {
        json!({"answer": self.text, "score": (self.score as f32).json(), "start": self.start, "end": self.end})
    }
}

/// Score, first token, last token.
type Span = (f32, usize, usize);

/// Keeps the best spans of many.
struct Best {
    spans: Vec<Span>,
    count: usize,
    /// the score that a span must exceed
    least: f32,
}

impl Best {
    fn add(&mut self, span: Span) {
        if span.0 > self.least {
            self.spans.push(span);
            if self.spans.len() >= 4 * self.count + 64 {
                self.spans.select_nth_unstable_by(self.count - 1, better);
                self.spans.truncate(self.count);
                self.least = self.spans[self.count - 1].0;
            }
        }
    }

    fn into_sorted(mut self) -> Vec<Span> {
        self.spans.sort_unstable_by(better);
        self.spans.truncate(self.count);
        self.spans
    }
}

fn better(a: &Span, b: &Span) -> Ordering {
    b.0.partial_cmp(&a.0).unwrap_or(Ordering::Equal).then((a.1, a.2).cmp(&(b.1, b.2)))
}

/// Softmax over all positions, with almost no weight on disallowed ones.
fn shares(logits: &[f32], allowed: &[bool]) -> Vec<f32> {
    let mut shares: Vec<f32> =
        logits.iter().zip(allowed).map(|(logit, allowed)| if *allowed { *logit } else { IMPOSSIBLE }).collect();
    super::softmax::softmax_of_few(&mut shares);
    shares
}

impl Operation for QaSpan {
    fn infer(&self, signature: &Signature, inputs: &[Option<Kind>]) -> Result<Vec<Kind>, Mismatch> {
        if let Some(Some(context)) = inputs.get(4) {
            text_input::inferred_count(&signature.inputs[4], context)?;
        }
        Ok(vec![Kind::Json])
    }

    fn buffers(&self, inputs: &[Option<Value>]) -> usize {
        inputs.iter().flatten().map(|value| value.byte_len().saturating_mul(8)).sum()
    }

    fn run(&self, inputs: Inputs<'_>, deadline: &Deadline) -> Result<Vec<Value>, StepFailure> {
        let mut inputs = SpanInputs(inputs, deadline);
        let start = inputs.scores(2)?;
        let end = inputs.scores(2)?;
        let (rows, length) = (start.shape()[0], start.shape()[1]);
        if start.shape() != end.shape() || start.is_empty() {
            let message =
                format!("`start_logits` has the shape {:?}, but `end_logits` {:?}", start.shape(), end.shape());
            return Err(StepFailure::InvalidInput(message));
        }
        let grid = [rows, length];
        let offsets = inputs.numbers(&[rows, length, 2])?;
        let sequence_ids = inputs.numbers(&grid)?;
        let contexts = inputs.texts()?;
        let attention = inputs.optional(&grid)?;
        let word_ids = inputs.optional(&grid)?;
        let window_of = inputs.optional(&[rows])?;
        let (start, end) = (start.as_slice::<f32>().unwrap_or_default(), end.as_slice::<f32>().unwrap_or_default());
        let window = |row: usize| {
            let tokens = row * length..(row + 1) * length;
            TextWindow {
                start: &start[tokens.clone()],
                end: &end[tokens.clone()],
                offsets: &offsets[2 * tokens.start..2 * tokens.end],
                sequence_ids: &sequence_ids[tokens.clone()],
                attention: attention.as_ref().map(|mask| &mask[tokens.clone()]),
                words: word_ids.as_ref().map(|words| Words::new(&words[tokens.clone()], &sequence_ids[tokens.clone()])),
            }
        };
        let mut quoted = QuoteBudget::default();
        let rows_of = rows_of(contexts.len(), rows, window_of.as_deref())?;
        let mut answers = contexts
            .iter()
            .zip(&rows_of)
            .map(|(text, rows)| {
                let looked = |row: &usize| deadline.check_after(ELEMENTS_PER_VALUE * length).map(|()| window(*row));
                let windows = rows.iter().map(looked).collect::<Result<Vec<_>, DeadlineExceeded>>()?;
                self.answer(text, &windows, &mut quoted, deadline)
            })
            .collect::<Result<Vec<_>, StepFailure>>()?;
        Ok(vec![if answers.len() == 1 { answers.swap_remove(0) } else { Json::Array(answers) }.into()])
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use super::*;
    use crate::reference;
    use gpux_core::{BuildError, Context, ElementType, Step, Tensor};

    fn step(options: Json) -> Result<Box<dyn Step>, BuildError> {
        reference::build(builtin(), options)
    }

    /// `[CLS] q [SEP] red fox [SEP]`, the answer being the fox.
    fn inputs() -> Vec<Value> {
        let logits = |at: usize| {
            let row: Vec<f32> = (0..6).map(|token| if token == at { 5.0 } else { 0.0 }).collect();
            Value::from(Tensor::new([1, 6], row).unwrap())
        };
        let offsets = vec![0_i64, 0, 0, 1, 0, 0, 0, 3, 4, 7, 0, 0];
        vec![
            logits(4),
            logits(4),
            Tensor::new([1, 6, 2], offsets).unwrap().into(),
            Tensor::new([1, 6], vec![-1_i64, 0, -1, 1, 1, -1]).unwrap().into(),
            "red fox".into(),
        ]
    }

    #[test]
    fn quotes_the_answer_with_its_offsets() {
        let answer = reference::run(&*step(json!({})).unwrap(), inputs()).remove(0);
        let Value::Json(answer) = answer else { panic!("not JSON") };
        assert_eq!((&answer["answer"], &answer["start"], &answer["end"]), (&json!("fox"), &json!(4), &json!(7)));
        let best = reference::run(&*step(json!({"top_k": 3, "impossible": true})).unwrap(), inputs()).remove(0);
        let Value::Json(best) = best else { panic!("not JSON") };
        assert_eq!(best.as_array().unwrap().len(), 3);
    }

    #[test]
    fn handles_empty_and_invalid_inputs() {
        let step = step(json!({})).unwrap();
        let run = |inputs: Vec<Value>| step.run(inputs.into_iter().map(Some).collect(), &mut Context::default());
        for (port, value) in [
            (0, Tensor::zeros(ElementType::Float32, [1, 5]).unwrap().into()),
            (0, Tensor::zeros(ElementType::Float32, [6]).unwrap().into()),
            (1, Tensor::zeros(ElementType::Int64, [1, 6]).unwrap().into()),
            (2, Tensor::zeros(ElementType::Int64, [1, 6]).unwrap().into()),
            (3, "text".into()),
            (4, Value::from(vec![1_u8])),
            (4, json!(["a", "b", "c"]).into()),
        ] {
            let mut inputs = inputs();
            inputs[port] = value;
            if port == 4 && inputs[4].type_name() == "json" {
                // Texts without a row have no answer.
                assert!(run(inputs).is_ok());
                continue;
            }
            assert!(matches!(run(inputs), Err(StepFailure::InvalidInput(_))));
        }
        let mut far = inputs();
        far[2] = Tensor::new([1, 6, 2], vec![i64::MAX; 12]).unwrap().into();
        far[0] = Tensor::new([1, 6], vec![f32::NAN; 6]).unwrap().into();
        assert!(run(far).is_ok());
        assert!(run(vec![]).is_err());
    }

    /// Many windows whose answers are all different, or long and the same.
    #[test]
    fn hostile_offsets_stop_at_the_deadline() {
        let step = step(json!({})).unwrap();
        let run = |windows: usize, text: &str, place: &dyn Fn(i64) -> [i64; 2], context: &mut Context| {
            let zeros = |element, shape: &[usize]| Value::from(Tensor::zeros(element, shape).unwrap());
            let offsets: Vec<i64> = (0..windows as i64 * 2).flat_map(place).collect();
            let inputs = vec![
                zeros(ElementType::Float32, &[windows, 2]),
                zeros(ElementType::Float32, &[windows, 2]),
                Tensor::new([windows, 2, 2], offsets).unwrap().into(),
                Tensor::new([windows, 2], vec![1_i64; 2 * windows]).unwrap().into(),
                text.into(),
                Tensor::new([windows, 2], vec![true; 2 * windows]).unwrap().into(),
                zeros(ElementType::Int64, &[windows, 2]),
                zeros(ElementType::Int64, &[windows]),
            ];
            step.run(inputs.into_iter().map(Some).collect(), context)
        };
        let attended = |windows: usize, text: &str, place: &dyn Fn(i64) -> [i64; 2]| {
            run(windows, text, place, &mut Context::default())
        };
        let text: String = (0..40_000_u32).filter_map(|number| char::from_u32(0x2_0000 + number)).collect();
        assert!(attended(40_000, &text, &|token| [token / 2, token / 2 + 1]).is_ok());
        let same = "a".repeat(8 << 20);
        assert!(attended(2000, &same, &|_| [0, i64::MAX]).is_ok());
        let mut late = Context { deadline: Some(std::time::Instant::now()), ..Context::default() };
        assert_eq!(run(1, &same, &|_| [0, 1], &mut late), Err(StepFailure::Timeout));
    }

    #[test]
    fn rejects_invalid_options() {
        for options in
            [json!({"top_k": 0}), json!({"max_answer_length": 0}), json!({"top_k": 1001}), json!({"sequence": 2})]
        {
            assert!(step(options).is_err());
        }
    }
}
