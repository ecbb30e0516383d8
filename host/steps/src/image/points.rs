//! Points of an image, as steps pass them on.

use serde_json::Value as Json;

use gpux_core::{ElementType, Kind, Mismatch, StepFailure, Tensor, Value};

/// Most points that are read.
const MAX: usize = 1000;

/// Coordinates beyond this are none of an image.
const FARTHEST: f64 = 1e7;

/// Fields of an object that hold points: of `find-boxes`, and of `nms` for poses and oriented boxes.
const FIELDS: [&str; 3] = ["points", "keypoints", "corners"];

/// What a port of points takes, for its description.
pub(super) const DESCRIPTION: &str = "a tensor [points, 2], or a JSON list of [x, y] or {x, y}; also an object that \
                                      has such a list as `points`, `keypoints` or `corners`";

/// The points of a value. A third number of a row, how visible a point is, is skipped.
pub(super) fn read(value: &Value) -> Result<Vec<[f64; 2]>, StepFailure> {
    let points = match value {
        Value::Json(json) => from_json(json),
        Value::Tensor(tensor) => from_tensor(tensor),
        other => Err(format!("`points` takes JSON or a tensor, but gets {}", other.kind())),
    };
    points.and_then(check).map_err(StepFailure::InvalidInput)
}

/// The points in JSON.
pub(super) fn read_json(json: &Json) -> Result<Vec<[f64; 2]>, String> {
    from_json(json).and_then(check)
}

/// The points, if all of them may be those of an image.
fn check(points: Vec<[f64; 2]>) -> Result<Vec<[f64; 2]>, String> {
    let is_within = |number: &f64| (-FARTHEST..=FARTHEST).contains(number);
    match points.iter().position(|point| !point.iter().all(is_within)) {
        Some(index) => {
            let [x, y] = points[index];
            Err(format!("point {index} is ({x}, {y}), which is not within {FARTHEST} pixels of an image"))
        }
        None => Ok(points),
    }
}

/// Whether a value of this kind may be points.
pub(super) fn accepts(given: &Kind) -> Result<(), Mismatch> {
    if matches!(given, Kind::Text | Kind::Bytes) {
        let because = Some("points are a JSON list, or a tensor".to_owned());
        return Err(Mismatch { expected: Kind::Json, given: given.clone(), because });
    }
    Ok(())
}

fn count(count: usize) -> Result<(), String> {
    if count > MAX {
        return Err(format!("there are {count} points; at most {MAX} are taken"));
    }
    Ok(())
}

fn from_json(json: &Json) -> Result<Vec<[f64; 2]>, String> {
    let json = FIELDS.iter().find_map(|field| json.get(field)).unwrap_or(json);
    let list = json.as_array().ok_or("`points` is not a list of [x, y] or {x, y}")?;
    count(list.len())?;
    let point = |(index, item): (usize, &Json)| {
        let pair = match item {
            Json::Array(numbers) if (2..=3).contains(&numbers.len()) => [numbers.first(), numbers.get(1)],
            Json::Object(fields) => ["x", "y"].map(|name| fields.get(name)),
            _ => [None, None],
        };
        let [x, y] = pair.map(|number| number.and_then(Json::as_f64));
        x.zip(y).map(|(x, y)| [x, y]).ok_or_else(|| format!("point {index} is neither [x, y] nor {{x, y}}"))
    };
    list.iter().enumerate().map(point).collect()
}

fn from_tensor(tensor: &Tensor) -> Result<Vec<[f64; 2]>, String> {
    let [rows, columns] = match tensor.shape() {
        [1, rows, columns] | [rows, columns] => [*rows, *columns],
        _ => [0, 0],
    };
    if !(2..=3).contains(&columns) {
        return Err(format!("a tensor of points is [points, 2], but its shape is {:?}", tensor.shape()));
    }
    count(rows)?;
    let numbers = tensor.cast(ElementType::Float64).map_err(|error| error.to_string())?;
    let numbers = numbers.as_slice::<f64>().unwrap_or_default();
    Ok(numbers.chunks_exact(columns).map(|row| [row[0], row[1]]).collect())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn reads_lists_objects_and_tensors() {
        let expected = [[1.0, 2.0], [3.5, -4.0]];
        for points in [
            json!([[1, 2], [3.5, -4]]),
            json!([{"x": 1, "y": 2}, {"x": 3.5, "y": -4}]),
            json!({"points": [[1, 2], [3.5, -4]], "score": 0.9}),
            json!({"box": [0, 0, 1, 1], "keypoints": [[1, 2, 0.5], [3.5, -4, 0.9]]}),
        ] {
            assert_eq!(read(&points.into()).unwrap(), expected);
        }
        let rows = vec![1_f32, 2.0, 3.5, -4.0];
        assert_eq!(read(&Tensor::new([2, 2], rows.clone()).unwrap().into()).unwrap(), expected);
        assert_eq!(read(&Tensor::new([1, 2, 2], rows).unwrap().into()).unwrap(), expected);
    }

    #[test]
    fn rejects_invalid_points() {
        let refused = |value: Value| match read(&value) {
            Err(StepFailure::InvalidInput(message)) => message,
            other => panic!("{other:?}"),
        };
        assert!(refused(json!({}).into()).contains("not a list"));
        assert!(refused(json!([[1, 2], [3]]).into()).contains("point 1 is neither"));
        assert!(refused(json!([[1, "2"]]).into()).contains("point 0 is neither"));
        assert!(refused(json!([[1, 1e300]]).into()).contains("not within"));
        assert!(refused(json!(vec![[0, 0]; MAX + 1]).into()).contains("at most 1000"));
        assert!(refused("text".into()).contains("takes JSON or a tensor"));
        assert!(refused(Tensor::new([4], vec![0_f32; 4]).unwrap().into()).contains("[points, 2]"));
        assert!(refused(Tensor::new([1, 2], vec![f32::NAN; 2]).unwrap().into()).contains("not within"));
        assert!(refused(Tensor::new([1, 2], vec![String::new(); 2]).unwrap().into()).contains("cast"));
    }
}
