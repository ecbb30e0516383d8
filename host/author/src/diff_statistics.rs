//! The differences between two results, as numbers.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value as Json;

use gpux_core::{ElementType, Tensor, Value, to_json};

/// Characters of a value that are shown.
const SHOWN: usize = 60;

/// The differences between two results of one computation.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DiffStatistics {
    /// numbers that were compared
    pub compared: usize,
    /// different elements
    pub different: usize,
    /// the largest absolute difference
    pub absolute: f64,
    /// the largest difference as a part of the larger of the two numbers
    pub relative: f64,
    /// elements that differ by more than the tolerance
    pub beyond: usize,
    /// what cannot be put into numbers: another shape, another text
    #[serde(rename = "otherwise")]
    pub mismatch: Option<String>,
}

impl DiffStatistics {
    /// Compares `given` with `reference`. A number is accepted if it differs by no more than
    /// `absolute` + `relative` × |reference|, as NumPy's `allclose` has it.
    pub fn compare(reference: &Value, given: &Value, absolute: f64, relative: f64) -> Self {
        let mut statistics = Self::default();
        match (reference, given) {
            (Value::Tensor(reference), Value::Tensor(given)) => {
                statistics.tensors(reference, given, absolute, relative);
            }
            (reference, given) => statistics.json(&to_json(reference), &to_json(given), absolute, relative),
        }
        statistics
    }

    /// Whether everything that was compared is accepted.
    pub const fn is_accepted(&self) -> bool {
        self.beyond == 0 && self.mismatch.is_none()
    }

    /// This and another together.
    #[must_use]
    pub fn merge(mut self, other: Self) -> Self {
        self.compared += other.compared;
        self.different += other.different;
        self.absolute = self.absolute.max(other.absolute);
        self.relative = self.relative.max(other.relative);
        self.beyond += other.beyond;
        self.mismatch = self.mismatch.or(other.mismatch);
        self
    }

    fn tensors(&mut self, reference: &Tensor, given: &Tensor, absolute: f64, relative: f64) {
        if reference.shape() != given.shape() || reference.element() != given.element() {
            let shown = |tensor: &Tensor| format!("{}{:?}", tensor.element(), tensor.shape());
            self.mismatch = Some(format!("{} instead of {}", shown(given), shown(reference)));
            return;
        }
        let wide = |tensor: &Tensor| tensor.cast(ElementType::Float64).ok();
        let (Some(a), Some(b)) = (wide(reference), wide(given)) else {
            self.compared += reference.len();
            if reference.data() != given.data() {
                self.mismatch = Some("other texts".to_owned());
            }
            return;
        };
        let (a, b) = (a.as_slice::<f64>().unwrap_or_default(), b.as_slice::<f64>().unwrap_or_default());
        a.iter().zip(b).for_each(|(a, b)| self.number(*a, *b, absolute, relative));
        // Large integers that are the same as float64 may still not be the same.
        if self.different == 0 && reference.bytes() != given.bytes() && !reference.element().is_float() {
            self.mismatch = Some("integers that float64 cannot tell apart differ".to_owned());
        }
    }

    #[expect(clippy::float_cmp, reason = "the same number is the same, infinities too")]
    fn number(&mut self, reference: f64, given: f64, absolute: f64, relative: f64) {
        self.compared += 1;
        if reference == given || (reference.is_nan() && given.is_nan()) {
            return;
        }
        self.different += 1;
        let difference = (reference - given).abs();
        if !difference.is_finite() {
            self.absolute = f64::INFINITY;
            self.relative = f64::INFINITY;
            self.beyond += 1;
            return;
        }
        self.absolute = self.absolute.max(difference);
        self.relative = self.relative.max(difference / reference.abs().max(given.abs()));
        self.beyond += usize::from(difference > absolute + relative * reference.abs());
    }

    /// The first class must be the same, any other may have changed places with one of nearly its score: a class
    /// that is in one ranking only has at most the last score of the other there.
    fn rankings(&mut self, reference: &Ranking, given: &Ranking, absolute: f64, relative: f64) {
        if reference.first != given.first {
            let shown = |class: &str| class.chars().take(SHOWN).collect::<String>();
            self.mismatch.get_or_insert(format!("{} instead of {}", shown(&given.first), shown(&reference.first)));
            return;
        }
        for (class, score) in &reference.scores {
            self.number(*score, given.score(class, *score), absolute, relative);
        }
        for (class, score) in given.scores.iter().filter(|(class, _)| !reference.scores.contains_key(*class)) {
            self.number(reference.score(class, *score), *score, absolute, relative);
        }
    }

    fn json(&mut self, reference: &Json, given: &Json, absolute: f64, relative: f64) {
        match (reference, given) {
            // A class, an identifier: near is not the same.
            (Json::Number(a), Json::Number(b)) if a.is_f64() || b.is_f64() || a == b => {
                self.number(a.as_f64().unwrap_or(f64::NAN), b.as_f64().unwrap_or(f64::NAN), absolute, relative);
            }
            (Json::Array(a), Json::Array(b)) if a.len() == b.len() => match (Ranking::read(a), Ranking::read(b)) {
                (Some(a), Some(b)) => self.rankings(&a, &b, absolute, relative),
                _ => a.iter().zip(b).for_each(|(a, b)| self.json(a, b, absolute, relative)),
            },
            (Json::Object(a), Json::Object(b)) if a.keys().eq(b.keys()) => {
                a.values().zip(b.values()).for_each(|(a, b)| self.json(a, b, absolute, relative));
            }
            (a, b) if a == b => {}
            (a, b) => {
                let shown = |json: &Json| json.to_string().chars().take(SHOWN).collect::<String>();
                self.mismatch.get_or_insert(format!("{} instead of {}", shown(b), shown(a)));
            }
        }
    }
}

/// Classes by falling score, as `top-k` gives them.
struct Ranking {
    first: String,
    /// by class: the object without its score, as JSON
    scores: BTreeMap<String, f64>,
    least: f64,
}

impl Ranking {
    /// Reads a list of objects with falling scores whose other values are texts and whole numbers, no class
    /// twice. `None` for any other list.
    fn read(items: &[Json]) -> Option<Self> {
        let exact = |value: &Json| value.is_string() || value.is_i64() || value.is_u64();
        let mut ranking: Option<Self> = None;
        for item in items {
            let mut class = item.as_object()?.clone();
            let score = class.remove("score")?.as_f64()?;
            if class.is_empty() || !class.values().all(exact) {
                return None;
            }
            let class = Json::Object(class).to_string();
            let ranking =
                ranking.get_or_insert_with(|| Self { first: class.clone(), scores: BTreeMap::new(), least: score });
            if score > ranking.least || ranking.scores.insert(class, score).is_some() {
                return None;
            }
            ranking.least = score;
        }
        ranking
    }

    /// The score of this class; of one that is not here, the most that it can be, if that is below `other`.
    fn score(&self, class: &str, other: f64) -> f64 {
        self.scores.get(class).copied().unwrap_or_else(|| self.least.min(other))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::float_cmp, reason = "tests")]
mod tests {
    use serde_json::json;

    use super::*;

    fn tensor(data: [f32; 3]) -> Value {
        Value::Tensor(Tensor::new([3], data.to_vec()).unwrap())
    }

    #[test]
    fn measures_differences_of_tensors() {
        let statistics =
            DiffStatistics::compare(&tensor([1.0, 2.0, f32::NAN]), &tensor([1.0, 2.5, f32::NAN]), 0.1, 0.1);
        assert_eq!((statistics.compared, statistics.different, statistics.beyond), (3, 1, 1));
        assert_eq!((statistics.absolute, statistics.relative), (0.5, 0.2));
        assert!(!statistics.is_accepted());
        assert!(DiffStatistics::compare(&tensor([1.0, 2.0, 3.0]), &tensor([1.0, 2.5, 3.0]), 0.1, 0.2).is_accepted());
        let infinite = DiffStatistics::compare(&tensor([1.0; 3]), &tensor([f32::INFINITY, 1.0, f32::NAN]), 9.0, 9.0);
        assert_eq!((infinite.beyond, infinite.absolute), (2, f64::INFINITY));
        let other = Value::Tensor(Tensor::new([1], vec![1_i64]).unwrap());
        let statistics = DiffStatistics::compare(&tensor([1.0; 3]), &other, 9.0, 9.0);
        assert_eq!(statistics.mismatch.unwrap(), "int64[1] instead of float32[3]");
        let large = |value: i64| Value::Tensor(Tensor::scalar(value));
        assert!(!DiffStatistics::compare(&large(i64::MAX), &large(i64::MAX - 1), 0.0, 0.0).is_accepted());
    }

    #[test]
    fn measures_differences_of_json() {
        let top = |label: &str, score: f64| Value::from(json!([{ "label": label, "score": score }]));
        let statistics = DiffStatistics::compare(&top("a", 0.5), &top("a", 0.25), 0.0, 0.5);
        assert_eq!((statistics.compared, statistics.absolute), (1, 0.25));
        assert!(statistics.is_accepted());
        let statistics = DiffStatistics::compare(&top("a", 0.5), &top("b", 0.5), 1.0, 1.0);
        assert_eq!(statistics.mismatch.unwrap(), r#"{"label":"b"} instead of {"label":"a"}"#);
        let ids = |id: i64| Value::from(json!({ "id": id, "box": [1.5, 2.0] }));
        assert_eq!(
            DiffStatistics::compare(&ids(7), &ids(7), 0.0, 0.0),
            DiffStatistics { compared: 3, ..Default::default() }
        );
        assert_eq!(DiffStatistics::compare(&ids(7), &ids(8), 9.0, 9.0).mismatch.unwrap(), "8 instead of 7");
    }

    #[test]
    fn compares_rankings_by_class() {
        let top = |classes: &[(i64, f64)]| {
            let items: Vec<_> =
                classes.iter().map(|(index, score)| json!({ "index": index, "score": score })).collect();
            Value::from(json!(items))
        };
        let reference = top(&[(618, 0.5), (3, 0.25), (350, 0.125)]);
        let difference = |given: &[(i64, f64)]| DiffStatistics::compare(&reference, &top(given), 0.0, 0.0);
        assert_eq!(difference(&[(618, 0.5), (3, 0.25), (350, 0.125)]).different, 0);
        // Two that changed places.
        assert_eq!(difference(&[(618, 0.5), (350, 0.25), (3, 0.125)]).absolute, 0.125);
        // 350 has at most 0.1 there; 985 has at most 0.125 here.
        let statistics = difference(&[(618, 0.5), (3, 0.25), (985, 0.1)]);
        assert!((statistics.absolute - 0.025).abs() < 1e-12 && statistics.mismatch.is_none(), "{statistics:?}");
        assert_eq!(difference(&[(618, 0.5), (3, 0.25), (985, 0.2)]).absolute, 0.2 - 0.125);
        assert_eq!(
            difference(&[(3, 0.5), (618, 0.25), (350, 0.125)]).mismatch.unwrap(),
            r#"{"index":3} instead of {"index":618}"#
        );
        // Boxes of one class are no ranking of classes.
        let boxes = |x: f64| Value::from(json!([{ "label": "a", "score": 0.5 }, { "label": "a", "score": x }]));
        assert_eq!(DiffStatistics::compare(&boxes(0.5), &boxes(0.25), 0.0, 0.0).absolute, 0.25);
    }
}
