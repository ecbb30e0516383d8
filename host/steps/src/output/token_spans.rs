//! Spans of text that a model marks by its tokens: shared by `qa-span` and `ner-aggregate`.

use crate::deadline::Deadline;
use crate::operation::{Inputs, expect_tensor};
use crate::text::text_input;
use gpux_core::{ElementSet, ElementType, Kind, Port, StepFailure, Tensor, TensorKind, Value};

/// Most text that one answer may quote, in bytes.
const MAX_QUOTED: usize = 64 << 20;

/// A text whose characters have numbers, as in Python.
pub(super) struct Characters<'t> {
    text: &'t str,
    /// where each character begins; `None` where every one is a byte
    starts: Option<Vec<usize>>,
}

impl<'t> Characters<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        let starts = (!text.is_ascii()).then(|| text.char_indices().map(|(start, _)| start).collect());
        Self { text, starts }
    }

    fn byte(&self, character: i64) -> usize {
        let character = usize::try_from(character).unwrap_or(0);
        match &self.starts {
            None => character.min(self.text.len()),
            Some(starts) => starts.get(character).copied().unwrap_or(self.text.len()),
        }
    }

    /// The number of characters that [`slice`](Self::slice) returns.
    pub(super) fn count(&self, start: i64, end: i64) -> usize {
        let length = self.starts.as_ref().map_or(self.text.len(), Vec::len);
        let [start, end] = [start, end].map(|at| usize::try_from(at).unwrap_or(0).min(length));
        end.saturating_sub(start)
    }

    /// The characters from `start` to before `end`, clamped to the text.
    pub(super) fn slice(&self, start: i64, end: i64) -> &'t str {
        let (start, end) = (self.byte(start), self.byte(end));
        self.text.get(start..end).unwrap_or_default()
    }
}

/// Counts how much text an answer quotes.
#[derive(Default)]
pub(super) struct QuoteBudget(usize);

impl QuoteBudget {
    pub(super) fn add(&mut self, text: &str) -> Result<(), StepFailure> {
        self.0 += text.len();
        if self.0 > MAX_QUOTED {
            let message = format!("the answer would quote over {MAX_QUOTED} bytes of text; check `offsets`");
            return Err(StepFailure::InvalidInput(message));
        }
        Ok(())
    }
}

/// A port of whole numbers with this many axes.
pub(super) fn numbers(name: &str, rank: usize, description: &str) -> Port {
    let mut kind = TensorKind::of_elements(ElementSet::integers().with(ElementType::Bool));
    kind.shape = Some(vec![gpux_core::Dim::Dynamic; rank]);
    Port { description: description.into(), ..Port::new(name, Kind::Tensor(kind)) }
}

/// A port of scores with this many axes.
pub(super) fn scores(name: &str, rank: usize, description: &str) -> Port {
    let kind = TensorKind::shaped(ElementSet::floats(), vec![gpux_core::Dim::Dynamic; rank]);
    Port { description: description.into(), ..Port::new(name, Kind::Tensor(kind)) }
}

/// The inputs of a step, taken one after the other in the request's time.
pub(super) struct SpanInputs<'s>(pub(super) Inputs<'s>, pub(super) &'s Deadline);

impl SpanInputs<'_> {
    /// Scores with this many axes, in float32.
    pub(super) fn scores(&mut self, rank: usize) -> Result<Tensor, StepFailure> {
        let (name, value) = self.0.named()?;
        let tensor = expect_tensor(name, value)?;
        if tensor.rank() != rank || !tensor.element().is_float() {
            let kind = Kind::Tensor(TensorKind::of(&tensor));
            return Err(StepFailure::InvalidInput(format!("`{name}` takes floats with {rank} axes, but gets {kind}")));
        }
        Ok(tensor.cast_cancellable(ElementType::Float32, self.1)?)
    }

    /// Whole numbers of this shape.
    pub(super) fn numbers(&mut self, shape: &[usize]) -> Result<Vec<i64>, StepFailure> {
        let (name, value) = self.0.named()?;
        numbers_of(name, value, shape, self.1)
    }

    /// [`numbers`](Self::numbers) of an optional port.
    pub(super) fn optional(&mut self, shape: &[usize]) -> Result<Option<Vec<i64>>, StepFailure> {
        let Some((port, Some(value))) = self.0.next() else { return Ok(None) };
        numbers_of(&port.name, value, shape, self.1).map(Some)
    }

    pub(super) fn texts(&mut self) -> Result<Vec<String>, StepFailure> {
        let (name, value) = self.0.named()?;
        let texts = text_input::read(value, name)?;
        text_input::check_size(texts.iter())?;
        Ok(texts)
    }
}

fn numbers_of(name: &str, value: Value, shape: &[usize], deadline: &Deadline) -> Result<Vec<i64>, StepFailure> {
    let tensor = expect_tensor(name, value)?;
    if tensor.shape() != shape || tensor.element() == ElementType::String {
        let kind = Kind::Tensor(TensorKind::of(&tensor));
        return Err(StepFailure::InvalidInput(format!("`{name}` must have the shape {shape:?}, but is {kind}")));
    }
    let wide = tensor.cast_cancellable(ElementType::Int64, deadline)?;
    Ok(wide.as_slice::<i64>().unwrap_or_default().to_vec())
}

/// The rows (windows) of each text.
pub(super) fn rows_of(texts: usize, rows: usize, window_of: Option<&[i64]>) -> Result<Vec<Vec<usize>>, StepFailure> {
    let mut rows_of = vec![Vec::new(); texts];
    for row in 0..rows {
        let text = match window_of {
            Some(window_of) => usize::try_from(window_of[row]).unwrap_or(usize::MAX),
            None if texts == 1 => 0,
            None => row,
        };
        let Some(rows) = rows_of.get_mut(text) else {
            let message = format!("row {row} is from a text that is not there: there are {texts}, and {rows} rows");
            return Err(StepFailure::InvalidInput(message));
        };
        rows.push(row);
    }
    Ok(rows_of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_characters_as_python_does() {
        for (text, start, end, slice) in [
            ("hello", 1, 3, "el"),
            ("größe 😀!", 2, 5, "öße"),
            ("größe 😀!", 6, 99, "😀!"),
            ("abc", 2, 1, ""),
            ("abc", -5, 2, "ab"),
            ("é", i64::MAX, i64::MIN, ""),
            ("", 0, 1, ""),
        ] {
            assert_eq!(Characters::new(text).slice(start, end), slice);
        }
    }

    #[test]
    fn count_equals_length_of_slice() {
        for text in ["", "red fox", "žlutý kůň", "日本"] {
            let characters = Characters::new(text);
            for start in [i64::MIN, -1, 0, 1, 3, 9, i64::MAX] {
                for end in [i64::MIN, -1, 0, 2, 7, 9, i64::MAX] {
                    assert_eq!(characters.count(start, end), characters.slice(start, end).chars().count());
                }
            }
        }
    }
}
