//! Cells as JSON.

use serde_json::Value as Json;

use crate::{ElementSet, ElementType, Kind};

/// What pandas' `read_csv` takes for a missing number.
const MISSING: [&str; 16] = [
    "", "#n/a", "#n/a n/a", "#na", "-1.#ind", "-1.#qnan", "-nan", "1.#ind", "1.#qnan", "<na>", "n/a", "na", "nan",
    "nat", "none", "null",
];

/// The cells of one column.
#[derive(Clone, Copy, Debug)]
pub(super) struct CellFormat {
    /// whether a number may have a comma before its fraction
    pub(super) decimal_comma: bool,
}

/// Whether nothing is there: for numbers, as pandas has it; a text may be the word.
pub(super) fn is_missing(cell: &str, kind: &Kind) -> bool {
    let cell = cell.trim();
    match kind {
        Kind::Tensor(kind) if kind.element() != Some(ElementType::String) => {
            MISSING.iter().any(|missing| cell.eq_ignore_ascii_case(missing))
        }
        _ => cell.is_empty(),
    }
}

impl CellFormat {
    /// One element of a tensor: `null` for a missing float, which is NaN.
    pub(super) fn element(self, cell: &str, elements: ElementSet) -> Result<Json, String> {
        if elements == ElementSet::from(ElementType::String) {
            return Ok(cell.into());
        }
        let kind = Kind::Tensor(crate::TensorKind::of_elements(elements));
        if !is_missing(cell, &kind) {
            return Ok(self.number(cell));
        }
        let has_nan = ElementType::ALL.iter().any(|element| element.is_float() && elements.contains(*element));
        let written = if cell.trim().is_empty() { "it is empty" } else { cell.trim() };
        if has_nan { Ok(Json::Null) } else { Err(format!("{written}, and {kind} has no value for what is missing")) }
    }

    /// The number, truth value or list in a cell; else its text.
    pub(super) fn number(self, cell: &str) -> Json {
        let cell = cell.trim();
        // Python, R and Java each have their words.
        match cell.to_ascii_lowercase().as_str() {
            "true" => return true.into(),
            "false" => return false.into(),
            "nan" => return "NaN".into(),
            "inf" | "infinity" | "+inf" => return "Infinity".into(),
            "-inf" | "-infinity" => return "-Infinity".into(),
            _ => {}
        }
        if let Ok(json) = serde_json::from_str(cell) {
            return json;
        }
        let with_point = if self.decimal_comma && !cell.contains('.') && cell.matches(',').count() == 1 {
            cell.replacen(',', ".", 1)
        } else {
            cell.to_owned()
        };
        let is_number = with_point.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
        // `+1`, `.5` and `5.` are no JSON.
        let number = with_point.parse().ok().filter(|_| is_number).and_then(serde_json::Number::from_f64);
        number.map_or_else(|| cell.into(), Json::Number)
    }

    /// Whether the cell can stand in a row of numbers.
    pub(super) fn is_number(self, cell: &str) -> bool {
        match self.number(cell) {
            Json::String(text) => matches!(text.as_str(), "NaN" | "Infinity" | "-Infinity"),
            _ => true,
        }
    }
}
