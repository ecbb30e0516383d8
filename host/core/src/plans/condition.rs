//! Conditions on values: `flag`, or `score >= 0.5`.

use std::fmt;

use serde::{Serialize, Serializer};
use serde_json::Value as Json;

use super::step::StepFailure;
use crate::values::element::ElementType;
use crate::values::signature::{Dim, Kind, TensorKind};
use crate::values::tensor::Tensor;
use crate::values::value::Value;

/// How a value is compared with a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Equal,
    NotEqual,
}

impl Comparison {
    const ALL: [Self; 6] =
        [Self::Less, Self::LessOrEqual, Self::Greater, Self::GreaterOrEqual, Self::Equal, Self::NotEqual];

    const fn sign(self) -> &'static str {
        match self {
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
            Self::Equal => "==",
            Self::NotEqual => "!=",
        }
    }

    #[expect(clippy::float_cmp, reason = "equal numbers are asked for")]
    fn holds(self, number: f64, limit: f64) -> bool {
        match self {
            Self::Less => number < limit,
            Self::LessOrEqual => number <= limit,
            Self::Greater => number > limit,
            Self::GreaterOrEqual => number >= limit,
            Self::Equal => number == limit,
            Self::NotEqual => number != limit,
        }
    }
}

/// A condition on a value: that it is not false, 0, null or empty; or how it compares with a number.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    /// the name of the value
    pub value: String,
    comparison: Option<(Comparison, f64)>,
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.value)?;
        match self.comparison {
            Some((comparison, limit)) => write!(f, " {} {limit}", comparison.sign()),
            None => Ok(()),
        }
    }
}

impl Serialize for Condition {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Condition {
    /// Reads `NAME`, or `NAME < 5` with any of `<`, `<=`, `>`, `>=`, `==` and `!=`. `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let parts: Vec<_> = text.split_whitespace().collect();
        let (value, comparison) = match parts[..] {
            [name] => (name, None),
            [name, sign, number] => {
                let comparison = Comparison::ALL.into_iter().find(|comparison| comparison.sign() == sign)?;
                let limit = number.parse::<f64>().ok().filter(|limit| limit.is_finite())?;
                (name, Some((comparison, limit)))
            }
            _ => return None,
        };
        (value.len() <= 128).then(|| Self { value: value.to_owned(), comparison })
    }

    /// It without the name of the value: `>= 0.5`; empty where the value itself decides.
    pub fn comparison(&self) -> String {
        self.comparison.map(|(comparison, limit)| format!("{} {limit}", comparison.sign())).unwrap_or_default()
    }

    /// Whether values of this kind can decide it, or why not.
    pub(crate) fn check_kind(&self, kind: &Kind) -> Result<(), String> {
        let fits = match kind {
            Kind::Any | Kind::Json => true,
            Kind::Text | Kind::Bytes => self.comparison.is_none(),
            Kind::Tensor(tensor) => {
                // None makes it empty, and so false; several say nothing.
                let is_several = |dim: &Dim| matches!(dim, Dim::Fixed(size) if *size > 1);
                let is_text = tensor.element() == Some(ElementType::String);
                !(tensor.shape.iter().flatten().any(is_several) || is_text && self.comparison.is_some())
            }
        };
        let wanted = if self.comparison.is_some() { "one number" } else { "one value" };
        if fits { Ok(()) } else { Err(format!("a condition is about {wanted}, but `{}` is {kind}", self.value)) }
    }

    /// Whether it holds for this value.
    pub(crate) fn holds(&self, value: &Value) -> Result<bool, StepFailure> {
        let Some((comparison, limit)) = self.comparison else { return self.is_true(value) };
        let number = match value {
            Value::Json(json) => json.as_f64(),
            Value::Tensor(tensor) if tensor.len() == 1 && tensor.element() != ElementType::String => number(tensor),
            _ => None,
        };
        let number = number.ok_or_else(|| self.unfit("one number", value))?;
        Ok(comparison.holds(number, limit))
    }

    fn is_true(&self, value: &Value) -> Result<bool, StepFailure> {
        match value {
            Value::Json(json) => Ok(match &**json {
                Json::Null => false,
                Json::Bool(holds) => *holds,
                Json::Number(number) => number.as_f64() != Some(0.0),
                Json::String(text) => !text.is_empty(),
                Json::Array(items) => !items.is_empty(),
                Json::Object(fields) => !fields.is_empty(),
            }),
            Value::Text(text) => Ok(!text.is_empty()),
            Value::Bytes(bytes) => Ok(!bytes.is_empty()),
            Value::Tensor(tensor) if tensor.len() > 1 => Err(self.unfit("one value", value)),
            Value::Tensor(tensor) => Ok(match tensor.as_slice::<String>() {
                Some(texts) => texts.iter().any(|text| !text.is_empty()),
                None => number(tensor).is_some_and(|number| number != 0.0),
            }),
        }
    }

    fn unfit(&self, wanted: &str, value: &Value) -> StepFailure {
        let kind = match value {
            Value::Tensor(tensor) => TensorKind::of(tensor).to_string(),
            other => other.kind().to_string(),
        };
        StepFailure::InvalidInput(format!("the condition `{self}` is about {wanted}, but gets {kind}"))
    }
}

/// The first number of a tensor.
fn number(tensor: &Tensor) -> Option<f64> {
    tensor.cast(ElementType::Float64).ok()?.as_slice::<f64>()?.first().copied()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn reads_names_and_comparisons() {
        for text in ["flag", "score >= 0.5", "a < -1", "a <= 2", "a > 3", "a == 0", "a != 0"] {
            assert_eq!(Condition::parse(text).unwrap().to_string(), text);
        }
        for text in ["", "a >", "a > b", "> 1", "a >> 1", "a > 1 b", "a > inf", "a > nan"] {
            assert_eq!(Condition::parse(text), None, "{text}");
        }
    }

    #[test]
    fn compares_one_number() {
        let holds = |condition: &str, value: Value| Condition::parse(condition).unwrap().holds(&value);
        for (condition, number, expected) in [
            ("x > 0.5", 0.5, false),
            ("x >= 0.5", 0.5, true),
            ("x < 0.5", f64::NAN, false),
            ("x != 1", f64::NAN, true),
            ("x == 1", 1.0, true),
            ("x <= 0", 1.0, false),
        ] {
            assert_eq!(
                holds(condition, Tensor::new([1, 1], vec![number]).unwrap().into()),
                Ok(expected),
                "{condition}"
            );
            if !number.is_nan() {
                assert_eq!(holds(condition, json!(number).into()), Ok(expected), "{condition}");
            }
        }
        for value in [json!("1").into(), json!([1]).into(), "1".into(), Tensor::new([2], vec![1, 2]).unwrap().into()] {
            assert!(
                holds("x > 0", value).unwrap_err().to_string().contains("the condition `x > 0` is about one number")
            );
        }
    }
}
