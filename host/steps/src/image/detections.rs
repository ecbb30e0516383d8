//! Detections, as steps pass them on.

use serde_json::Value as Json;

use super::points;
use gpux_core::{ElementType, StepFailure, Tensor, Value};

/// Most detections that are drawn.
pub(super) const MAX: usize = 1000;

/// Most letters of a label.
const MAX_LABEL: usize = 64;

/// A box in pixels of the source image, with its class and score.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Detection {
    /// left, top, right, bottom
    pub(super) corners: [f64; 4],
    /// the corners of one that is no upright box; else empty
    pub(super) outline: Vec<[f64; 2]>,
    pub(super) label: Option<String>,
    pub(super) score: Option<f64>,
}

impl Detection {
    /// With the corners of the upright box around `outline`.
    pub(super) fn surround(mut self) -> Self {
        let around = [f64::MAX, f64::MAX, f64::MIN, f64::MIN];
        self.corners = self.outline.iter().fold(around, |[left, top, right, bottom], [x, y]| {
            [left.min(*x), top.min(*y), right.max(*x), bottom.max(*y)]
        });
        self
    }

    /// The label and the score, as they are written on a picture.
    pub(super) fn caption(&self) -> String {
        let score = self.score.map(|score| format!("{score:.2}"));
        [self.label.clone(), score].into_iter().flatten().collect::<Vec<_>>().join(" ")
    }
}

/// The detections of a value: a JSON list, or a tensor with a row for each.
pub(super) fn read(value: &Value) -> Result<Vec<Detection>, StepFailure> {
    match value {
        Value::Json(json) => from_json(json),
        Value::Tensor(tensor) => from_tensor(tensor),
        other => Err(format!("`detections` takes JSON or a tensor, but gets {}", other.kind())),
    }
    .map_err(StepFailure::InvalidInput)
}

fn count(count: usize) -> Result<(), String> {
    if count > MAX {
        return Err(format!("there are {count} detections; at most {MAX} are drawn"));
    }
    Ok(())
}

fn from_json(json: &Json) -> Result<Vec<Detection>, String> {
    let list = json.as_array().ok_or("`detections` is not a list of `{box, score, label}` or `{points, score}`")?;
    count(list.len())?;
    list.iter().enumerate().map(|(index, item)| one(item).map_err(|why| format!("detection {index}: {why}"))).collect()
}

fn one(item: &Json) -> Result<Detection, String> {
    let numbers: Vec<f64> =
        item["box"].as_array().into_iter().flatten().filter_map(Json::as_f64).filter(|x| x.is_finite()).collect();
    let has_points = item["box"].is_null() && !item["points"].is_null();
    let outline = if has_points { points::read_json(&item["points"])? } else { Vec::new() };
    let corners: [f64; 4] = match numbers.try_into() {
        Ok(corners) => corners,
        Err(_) if !outline.is_empty() => [0.0; 4],
        Err(_) => return Err("`box` is not four numbers: left, top, right, bottom".to_owned()),
    };
    let label = if item["label"].is_null() { &item["class"] } else { &item["label"] };
    let label = match label {
        Json::Null => None,
        Json::String(text) => Some(text.chars().take(MAX_LABEL).collect()),
        Json::Number(number) => Some(number.to_string()),
        _ => return Err("its label is neither text nor a number".to_owned()),
    };
    let score = match &item["score"] {
        Json::Null => None,
        score => Some(score.as_f64().ok_or("`score` is not a number")?),
    };
    let found = Detection { corners, outline, label, score };
    Ok(if found.outline.is_empty() { found } else { found.surround() })
}

fn from_tensor(tensor: &Tensor) -> Result<Vec<Detection>, String> {
    let shape = match tensor.shape() {
        [1, rows, columns] => [*rows, *columns],
        [rows, columns] => [*rows, *columns],
        _ => [0, 0],
    };
    if !(4..=6).contains(&shape[1]) {
        let shape = tensor.shape();
        return Err(format!(
            "a tensor of detections has 4 to 6 columns (box, then score, then class), but its shape is {shape:?}"
        ));
    }
    count(shape[0])?;
    let numbers = tensor.cast(ElementType::Float64).map_err(|error| error.to_string())?;
    let rows = numbers.as_slice::<f64>().unwrap_or_default().chunks_exact(shape[1]);
    rows.enumerate()
        .map(|(index, row)| {
            if row[..4].iter().any(|x| !x.is_finite()) {
                return Err(format!("detection {index}: its box is not four finite numbers"));
            }
            let label = row.get(5).map(ToString::to_string);
            let corners = [row[0], row[1], row[2], row[3]];
            Ok(Detection { corners, outline: Vec::new(), label, score: row.get(4).copied() })
        })
        .collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn reads_lists_and_tensors() {
        let list = json!([
            {"box": [1, 2, 3.5, 4], "score": 0.876, "class": 5, "label": "cat"},
            {"box": [0, 0, 1, 1], "class": 3},
        ]);
        let found = read(&list.into()).unwrap();
        assert_eq!(found[0].corners.map(|x| x.to_string()), ["1", "2", "3.5", "4"]);
        assert_eq!(found.iter().map(Detection::caption).collect::<Vec<_>>(), ["cat 0.88", "3"]);
        let turned = read(&json!([{"points": [[1, 5], [4, 2], [6, 4], [3, 7]], "score": 1}]).into()).unwrap().remove(0);
        assert_eq!(turned.corners.map(|x| x as i32), [1, 2, 6, 7]);
        assert_eq!((turned.outline.len(), turned.caption().as_str()), (4, "1.00"));
        let rows = Tensor::new([2, 6], vec![1_f32, 2.0, 3.0, 4.0, 0.5, 7.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.0]).unwrap();
        assert_eq!(read(&rows.into()).unwrap()[0].caption(), "7 0.50");
        assert_eq!(read(&Tensor::new([0, 4], Vec::<f32>::new()).unwrap().into()).unwrap(), []);
    }

    #[test]
    fn rejects_invalid_detections() {
        let refused = |value: Value| match read(&value) {
            Err(StepFailure::InvalidInput(message)) => message,
            other => panic!("{other:?}"),
        };
        assert!(refused(json!({}).into()).contains("not a list"));
        assert!(refused(json!([1]).into()).contains("detection 0: `box`"));
        assert!(refused(json!([{"box": [1, 2, 3]}]).into()).contains("not four numbers"));
        assert!(refused(json!([{"points": []}]).into()).contains("not four numbers"));
        assert!(refused(json!([{"points": [[1]]}]).into()).contains("point 0 is neither"));
        assert!(refused(json!([{"box": [1, 2, 3, 4], "score": "x"}]).into()).contains("`score`"));
        assert!(refused(json!([{"box": [1, 2, 3, 4], "label": []}]).into()).contains("its label"));
        assert!(refused(json!(vec![json!({"box": [1, 2, 3, 4]}); MAX + 1]).into()).contains("at most 1000"));
        assert!(refused(Value::from("text")).contains("takes JSON or a tensor"));
        assert!(refused(Tensor::new([4], vec![0_f32; 4]).unwrap().into()).contains("4 to 6 columns"));
        assert!(refused(Tensor::new([1, 4], vec![f32::NAN; 4]).unwrap().into()).contains("finite"));
        assert!(refused(Tensor::new([1, 4], vec![String::new(); 4]).unwrap().into()).contains("cast"));
    }
}
