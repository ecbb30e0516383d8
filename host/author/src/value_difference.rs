//! The first difference between an expected and an actual value, in words.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value as Json;

use gpux_core::{ElementType, Tensor, Value, to_json};

/// How far a number may be from what is expected: by `absolute`, and by `relative` times the
/// expected number more. Default: not at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Tolerance {
    /// By how much a number may be off
    #[schemars(range(min = 0))]
    pub absolute: f64,
    /// By what part of the expected number it may be off besides
    #[schemars(range(min = 0))]
    pub relative: f64,
}

impl Tolerance {
    fn accepts(self, expected: f64, given: f64) -> bool {
        // The same, infinities too.
        expected.to_bits() == given.to_bits()
            || (expected.is_nan() && given.is_nan())
            || (expected.is_finite() && (given - expected).abs() <= self.absolute + self.relative * expected.abs())
    }
}

/// How `given` differs from `expected`; `None` if it does not. `metadata` says whether a tensor's
/// metadata must be the same too.
pub(super) fn difference(expected: &Value, given: &Value, tolerance: Tolerance, metadata: bool) -> Option<String> {
    match (expected, given) {
        (Value::Tensor(expected), Value::Tensor(given)) => tensors(expected, given, tolerance, metadata),
        (Value::Text(expected), Value::Text(given)) => texts(expected, given),
        (Value::Bytes(expected), Value::Bytes(given)) => bytes(expected, given),
        (Value::Json(expected), Value::Json(given)) => json(expected, given, tolerance, &mut String::new()),
        (expected, given) => Some(format!("expected {}, but it is {}", expected.kind(), given.kind())),
    }
}

fn tensors(expected: &Tensor, given: &Tensor, tolerance: Tolerance, metadata: bool) -> Option<String> {
    if expected.element() != given.element() || expected.shape() != given.shape() {
        let kind = |tensor: &Tensor| format!("{}{:?}", tensor.element(), tensor.shape());
        return Some(format!("expected a tensor {}, but it is {}", kind(expected), kind(given)));
    }
    if expected.data() != given.data()
        && let Some(found) = elements(expected, given, tolerance)
    {
        return Some(found);
    }
    (metadata && expected.metadata != given.metadata)
        .then(|| format!("expected the metadata {:?}, but it is {:?}", expected.metadata, given.metadata))
}

fn elements(expected: &Tensor, given: &Tensor, tolerance: Tolerance) -> Option<String> {
    let differences = distances(expected, given, tolerance);
    let (first, _) = differences.first()?;
    let element = |tensor: &Tensor, index: usize| one(tensor, index).to_string();
    let mut text = format!(
        "{} of {} elements differ; the first at {:?}: expected {}, but it is {}",
        differences.len(),
        expected.len(),
        coordinates(expected.shape(), *first),
        element(expected, *first),
        element(given, *first)
    );
    let largest = differences.iter().filter(|(_, distance)| distance.is_finite()).max_by(|a, b| a.1.total_cmp(&b.1));
    if let Some((index, distance)) = largest.filter(|_| differences.len() > 1) {
        text += &format!("; the largest difference is {distance} at {:?}", coordinates(expected.shape(), *index));
    }
    Some(text)
}

/// The elements that differ by more than they may, with how much.
fn distances(expected: &Tensor, given: &Tensor, tolerance: Tolerance) -> Vec<(usize, f64)> {
    fn collect<T>(expected: &[T], given: &[T], distance: impl Fn(&T, &T) -> Option<f64>) -> Vec<(usize, f64)> {
        let pairs = expected.iter().zip(given).enumerate();
        pairs.filter_map(|(index, (expected, given))| Some((index, distance(expected, given)?))).collect()
    }
    let numbers = |expected: f64, given: f64| (!tolerance.accepts(expected, given)).then(|| (given - expected).abs());
    // 64-bit integers are more exact than the numbers that the others become.
    if let (Some(expected), Some(given)) = (expected.as_slice::<i64>(), given.as_slice::<i64>()) {
        return collect(expected, given, |a, b| {
            (a != b).then(|| numbers(*a as f64, *b as f64).or_else(|| exact(tolerance, a.abs_diff(*b))))?
        });
    }
    if let (Some(expected), Some(given)) = (expected.as_slice::<u64>(), given.as_slice::<u64>()) {
        return collect(expected, given, |a, b| {
            (a != b).then(|| numbers(*a as f64, *b as f64).or_else(|| exact(tolerance, a.abs_diff(*b))))?
        });
    }
    if let (Some(expected), Some(given)) = (expected.as_slice::<String>(), given.as_slice::<String>()) {
        return collect(expected, given, |a, b| (a != b).then_some(f64::INFINITY));
    }
    match (expected.cast(ElementType::Float64), given.cast(ElementType::Float64)) {
        (Ok(expected), Ok(given)) => {
            let (expected, given) = (expected.as_slice::<f64>(), given.as_slice::<f64>());
            collect(expected.unwrap_or_default(), given.unwrap_or_default(), |a, b| numbers(*a, *b))
        }
        _ => Vec::new(),
    }
}

/// Two integers that are the same as floats, but not the same.
fn exact(tolerance: Tolerance, distance: u64) -> Option<f64> {
    let distance = distance as f64;
    (tolerance == Tolerance::default()).then_some(distance)
}

/// One element, as JSON shows it.
fn one(tensor: &Tensor, index: usize) -> Json {
    let alone = match (tensor.bytes(), tensor.element().size()) {
        (Some(bytes), Some(size)) => {
            let element = bytes.get(index * size..(index + 1) * size).unwrap_or_default();
            Tensor::from_bytes(tensor.element(), [], element).ok()
        }
        _ => tensor.as_slice::<String>().and_then(|texts| texts.get(index).cloned()).map(Tensor::scalar),
    };
    alone.map(|alone| to_json(&Value::Tensor(alone))).unwrap_or_default()
}

/// The position of the element number `index`.
fn coordinates(shape: &[usize], index: usize) -> Vec<usize> {
    let mut rest = index;
    let mut coordinates: Vec<_> = shape
        .iter()
        .rev()
        .map(|size| {
            let here = rest % (*size).max(1);
            rest /= (*size).max(1);
            here
        })
        .collect();
    coordinates.reverse();
    coordinates
}

fn texts(expected: &str, given: &str) -> Option<String> {
    if expected == given {
        return None;
    }
    let (mut expected_lines, mut given_lines) = (expected.split('\n'), given.split('\n'));
    let mut line = 1;
    loop {
        match (expected_lines.next(), given_lines.next()) {
            (Some(expected), Some(given)) if expected == given => line += 1,
            (expected, given) => {
                let shown = |text: Option<&str>| text.map_or("the end".to_owned(), |text| format!("{:?}", cut(text)));
                return Some(format!("line {line}: expected {}, but it is {}", shown(expected), shown(given)));
            }
        }
    }
}

/// A text that is not too long to be shown.
fn cut(text: &str) -> String {
    if text.chars().count() > 120 { text.chars().take(120).chain(['…']).collect() } else { text.to_owned() }
}

fn bytes(expected: &[u8], given: &[u8]) -> Option<String> {
    let at = expected.iter().zip(given).position(|(expected, given)| expected != given);
    match at {
        Some(at) => Some(format!("byte {at}: expected {:#04x}, but it is {:#04x}", expected[at], given[at])),
        None if expected.len() == given.len() => None,
        None => Some(format!("expected {} bytes, but there are {}", expected.len(), given.len())),
    }
}

fn json(expected: &Json, given: &Json, tolerance: Tolerance, path: &mut String) -> Option<String> {
    let here = |path: &str, what: String| Some(if path.is_empty() { what } else { format!("at `{path}`: {what}") });
    let length = path.len();
    match (expected, given) {
        (Json::Number(a), Json::Number(b)) => {
            let near = match (a.as_f64(), b.as_f64()) {
                (Some(a), Some(b)) => tolerance.accepts(a, b),
                _ => false,
            };
            let same = a == b || (near && (tolerance != Tolerance::default() || a.is_f64() || b.is_f64()));
            if same { None } else { here(path, format!("expected {a}, but it is {b}")) }
        }
        (Json::Array(a), Json::Array(b)) => {
            for (index, (a, b)) in a.iter().zip(b).enumerate() {
                path.push_str(&format!("[{index}]"));
                if let Some(found) = json(a, b, tolerance, path) {
                    return Some(found);
                }
                path.truncate(length);
            }
            if a.len() == b.len() {
                return None;
            }
            here(path, format!("expected a list of {}, but it has {}", a.len(), b.len()))
        }
        (Json::Object(a), Json::Object(b)) => {
            for (name, a) in a {
                let Some(b) = b.get(name) else { return here(path, format!("expected `{name}`, which is missing")) };
                path.push_str(if path.is_empty() { "" } else { "." });
                path.push_str(name);
                if let Some(found) = json(a, b, tolerance, path) {
                    return Some(found);
                }
                path.truncate(length);
            }
            let more = b.keys().find(|name| !a.contains_key(*name))?;
            here(path, format!("there is `{more}`, which is not expected"))
        }
        (a, b) if a == b => None,
        (a, b) => here(path, format!("expected {}, but it is {}", cut(&a.to_string()), cut(&b.to_string()))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tolerance(absolute: f64) -> Tolerance {
        Tolerance { absolute, relative: 0.0 }
    }

    fn compare(expected: impl Into<Value>, given: impl Into<Value>, absolute: f64) -> Option<String> {
        difference(&expected.into(), &given.into(), tolerance(absolute), false)
    }

    #[test]
    fn locates_the_first_difference_of_tensors() {
        let tensor = |data: [f32; 4]| Tensor::new([2, 2], data.to_vec()).unwrap();
        let expected = tensor([1.0, 2.0, f32::NAN, f32::INFINITY]);
        assert_eq!(compare(expected.clone(), expected.clone(), 0.0), None);
        let given = tensor([1.0, 2.5, f32::NAN, 4.0]);
        assert_eq!(
            compare(expected.clone(), given, 0.0).unwrap(),
            "2 of 4 elements differ; the first at [0, 1]: expected 2.0, but it is 2.5; the largest difference is 0.5 at [0, 1]"
        );
        assert_eq!(compare(tensor([1.0; 4]), tensor([1.01; 4]), 0.02), None);
        assert!(compare(tensor([1.0; 4]), tensor([f32::NAN; 4]), 9.0).is_some());
        let other = Tensor::new([4], vec![1_u8; 4]).unwrap();
        assert_eq!(compare(expected, other, 0.0).unwrap(), "expected a tensor float32[2, 2], but it is uint8[4]");
        let relative = Tolerance { absolute: 0.0, relative: 0.1 };
        let (a, b) = (Value::from(tensor([100.0; 4])), Value::from(tensor([109.0; 4])));
        assert_eq!(difference(&a, &b, relative, false), None);
        let infinite = Value::from(tensor([f32::INFINITY; 4]));
        assert!(difference(&infinite, &a, relative, false).is_some());
    }

    #[test]
    fn shows_single_elements_exactly() {
        let text = Tensor::new([2], vec!["a".to_owned(), "b".to_owned()]).unwrap();
        let half = Tensor::new([2], vec![half::f16::ONE, half::f16::NAN]).unwrap();
        let yes = Tensor::new([2], vec![false, true]).unwrap();
        let shown = |tensor: &Tensor| one(tensor, 1).to_string();
        assert_eq!([shown(&text), shown(&half), shown(&yes)], ["\"b\"", "\"NaN\"", "true"]);
    }

    #[test]
    fn compares_large_integers_exactly() {
        let (a, b) = (Tensor::scalar(i64::MAX), Tensor::scalar(i64::MAX - 1));
        assert_eq!(
            compare(a.clone(), b.clone(), 0.0).unwrap(),
            "1 of 1 elements differ; the first at []: expected 9223372036854775807, but it is 9223372036854775806"
        );
        assert_eq!(compare(a, b, 1.0), None);
        assert!(compare(json!(u64::MAX), json!(u64::MAX - 1), 0.0).is_some());
    }

    #[test]
    fn compares_metadata_if_requested() {
        let plain = Tensor::scalar(1_u8);
        let mut sound = plain.clone();
        sound.metadata.sample_rate = Some(16_000);
        let (plain, sound) = (Value::from(plain), Value::from(sound));
        assert_eq!(difference(&plain, &sound, Tolerance::default(), false), None);
        assert!(difference(&plain, &sound, Tolerance::default(), true).unwrap().contains("16000"));
    }

    #[test]
    fn locates_json_differences_by_path() {
        let expected = json!({ "top": [{ "label": "seven", "score": 0.99 }] });
        let given = |label: &str, score: f64| json!({ "top": [{ "label": label, "score": score }] });
        assert_eq!(compare(expected.clone(), given("seven", 0.985), 0.01), None);
        assert_eq!(
            compare(expected.clone(), given("seven", 0.5), 0.01).unwrap(),
            "at `top[0].score`: expected 0.99, but it is 0.5"
        );
        assert_eq!(
            compare(expected.clone(), given("two", 0.99), 0.0).unwrap(),
            "at `top[0].label`: expected \"seven\", but it is \"two\""
        );
        assert_eq!(compare(expected.clone(), json!({}), 0.0).unwrap(), "expected `top`, which is missing");
        assert_eq!(
            compare(expected, json!({ "top": [] }), 0.0).unwrap(),
            "at `top`: expected a list of 1, but it has 0"
        );
        assert_eq!(compare(json!({}), json!({ "a": 1 }), 0.0).unwrap(), "there is `a`, which is not expected");
        assert_eq!(compare(json!(1), json!(1.0), 0.0), None);
    }

    #[test]
    fn compares_texts_bytes_and_kinds() {
        assert_eq!(compare("a\nb", "a\nb", 0.0), None);
        assert_eq!(compare("a\nb", "a\nc", 0.0).unwrap(), "line 2: expected \"b\", but it is \"c\"");
        assert_eq!(compare("a", "a\nc", 0.0).unwrap(), "line 2: expected the end, but it is \"c\"");
        assert_eq!(compare(vec![1_u8, 2], vec![1_u8, 3], 0.0).unwrap(), "byte 1: expected 0x02, but it is 0x03");
        assert_eq!(compare(vec![1_u8, 2], vec![1_u8], 0.0).unwrap(), "expected 2 bytes, but there are 1");
        assert_eq!(compare("a", json!("a"), 0.0).unwrap(), "expected text, but it is JSON");
    }
}
