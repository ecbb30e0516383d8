//! `find-boxes`: a map of probabilities → the turned boxes around what stands out in it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use self::contours::{Bitmap, Border};
use self::rectangle::OutlinePoint;
use self::score::{BorderMask, Map};
use self::source::BoxPlacement;
use super::dims::check_limits;
use crate::deadline::{Deadline, DeadlineExceeded};
use crate::operation::{BuiltinStep, Inputs, Operation};
use crate::ports;
use gpux_core::{
    Builtin, Dim, ElementSet, ElementType, Group, Kind, Port, Signature, StepFailure, Tensor, TensorKind, Value,
    float32_to_json,
};

mod contours;
mod rectangle;
mod score;
mod source;
mod unclip;

/// Bytes of a box in the answer: an object of a score and four points.
const ENTRY: usize = 2048;

/// Options of `find-boxes`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Options {
    /// Numbers of the map above it belong to a box, 0 to 1. Default: 0.3.
    #[schemars(range(min = 0.0, max = 1.0))]
    threshold: f64,
    /// Boxes whose mean is below it are dropped, 0 to 1. Default: 0.5.
    #[schemars(range(min = 0.0, max = 1.0))]
    box_threshold: f64,
    /// How much larger a box is made all around: its area by its circumference, times this number; 0 to 10. Default:
    /// 1.6.
    #[schemars(range(min = 0.0, max = 10.0))]
    unclip_ratio: f64,
    /// What the mean is taken of: `fast` (default), the box before it is made larger; or `slow`, the area itself.
    score_mode: ScoreMode,
    /// Whether areas first grow by a pixel to the right and below, which joins what nearly touches. Default: false.
    dilation: bool,
    /// Boxes with a shorter side than this, in pixels, are dropped. Default: 3.
    #[schemars(range(min = 0.0, max = 1_048_576.0))]
    min_size: f64,
    /// How many areas are looked at, from the bottom of the map up, 1 to 10000. Default: 1000.
    #[schemars(range(min = 1, max = 10_000))]
    max_candidates: usize,
    /// Whose pixels corners are rounded to and lines told apart in: `source` (default), the picture that came in; or
    /// `image`, the input of that name, which RapidOCR does with a page that it first made smaller. The boxes then
    /// are those taken back to the source, and `image_points` are their whole pixels.
    pixels: Pixels,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum ScoreMode {
    #[default]
    Fast,
    Slow,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Pixels {
    #[default]
    Source,
    Image,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            threshold: 0.3,
            box_threshold: 0.5,
            unclip_ratio: 1.6,
            score_mode: ScoreMode::Fast,
            dilation: false,
            min_size: 3.0,
            max_candidates: 1000,
            pixels: Pixels::Source,
        }
    }
}

/// Finds boxes in the map of a model such as DBNet. They are listed as they are read: line after line, from left to
/// right.
///
/// Follows `DBPostProcess` and `sorted_boxes` of RapidOCR 3.10, after PaddleOCR.
struct FindBoxes(Options);

/// A box that was found: its corners from the top left clockwise.
struct FoundBox {
    corners: [[f32; 2]; 4],
    score: f32,
}

pub(super) fn builtin() -> Builtin {
    Builtin {
        name: "find-boxes",
        summary: "Finds turned boxes in a map of probabilities, such as lines of text",
        group: Group::Image,
        follows: "RapidOCR: DBPostProcess (OpenCV: cv2.findContours, cv2.minAreaRect; pyclipper)",
        example: "find-boxes: { threshold: 0.3, box_threshold: 0.5, unclip_ratio: 1.6 }",
        schema: || schemars::schema_for!(Options),
        build: |options, _| Ok(Box::new(FindBoxes::step(ports::options(options)?))),
    }
}

/// Height and width of a map of this shape, as far as they are known.
fn sides<T: Copy + PartialEq + Into<usize>>(shape: &[Option<T>]) -> Result<[Option<usize>; 2], String> {
    let (outer, inner) = shape.split_at(shape.len().saturating_sub(2));
    let is_one = |size: &Option<T>| size.is_none_or(|size| size.into() == 1);
    match inner {
        [height, width] if outer.len() <= 2 && outer.iter().all(is_one) => {
            Ok([height.map(Into::into), width.map(Into::into)])
        }
        _ => Err("a map is [height, width], before it at most a batch axis and a channel axis of size 1".into()),
    }
}

fn map_sides(tensor: &Tensor) -> Result<[usize; 2], String> {
    let shape: Vec<_> = tensor.shape().iter().copied().map(Some).collect();
    let sides = sides(&shape).map_err(|why| format!("{why}, but its shape is {:?}", tensor.shape()))?;
    let [height, width] = sides.map(|side| side.unwrap_or(0));
    check_limits(height, width)?;
    Ok([height, width])
}

impl FindBoxes {
    fn step(options: Options) -> BuiltinStep<Self> {
        let floats = |shape: &[Dim]| Kind::Tensor(TensorKind::shaped(ElementType::Float32, shape));
        let mut signature = Signature {
            inputs: vec![
                Port {
                    description: "probabilities, [height, width], [1, height, width] or [1, 1, height, width]".into(),
                    ..Port::new("map", Kind::Tensor(TensorKind::of_elements(ElementSet::floats())))
                },
                Port {
                    description: "the picture that the model saw, to place the boxes in the one that came in".into(),
                    ..Port::optional("image", Kind::Tensor(TensorKind::of_elements(ElementSet::ANY)))
                },
            ],
            outputs: vec![
                Port {
                    description: "a list of {points, score}, the points from the top left clockwise".into(),
                    ..Port::new("boxes", Kind::Json)
                },
                Port {
                    description: "the same points".into(),
                    ..Port::new("points", floats(&[Dim::Dynamic, Dim::Fixed(4), Dim::Fixed(2)]))
                },
                Port { description: "the same scores".into(), ..Port::new("scores", floats(&[Dim::Dynamic])) },
            ],
        };
        if options.pixels == Pixels::Image {
            signature.inputs[1].optional = false;
            signature.outputs.push(Port {
                description: "the same points in whole pixels of `image`".into(),
                ..Port::new("image_points", floats(&[Dim::Dynamic, Dim::Fixed(4), Dim::Fixed(2)]))
            });
        }
        let details = json!(options);
        BuiltinStep::new(signature, details, Self(options))
    }

    fn find(&self, map: Map<'_>, placement: &BoxPlacement, deadline: &Deadline) -> Result<Vec<FoundBox>, StepFailure> {
        let options = &self.0;
        if map.data.is_empty() {
            return Ok(Vec::new());
        }
        let sides = [map.height, map.width];
        let mut bitmap = Bitmap::new(map.data, sides, options.threshold as f32, options.dilation, deadline)?;
        let borders = bitmap.borders(options.max_candidates, deadline)?;

        let mut outline = Outline::new(map.height);
        let mut found = Vec::new();
        for border in borders {
            let mut points = outline.points(&mut bitmap, border, deadline)?;
            let [columns, rows] = ranges(&points);
            let Some(rectangle) = rectangle::smallest(&mut points) else { continue };
            if f64::from(rectangle.shorter) < options.min_size {
                continue;
            }

            let score = match options.score_mode {
                ScoreMode::Fast => map.mean_within(rectangle.corners, deadline)?,
                ScoreMode::Slow => {
                    let mut mask = BorderMask::new(columns, rows);
                    bitmap.follow(border, deadline, |point| mask.mark(point))?;
                    map.mean_within_border(mask, deadline)?
                }
            };
            if score < options.box_threshold || !score.is_finite() {
                continue;
            }

            let distance = unclip::distance(rectangle.corners, options.unclip_ratio);
            let Some(mut larger) = unclip::offset(rectangle.corners, distance) else { continue };
            let Some(rectangle) = rectangle::smallest(&mut larger) else { continue };
            if f64::from(rectangle.shorter) < options.min_size + 2.0 {
                continue;
            }
            let corners = placement.place(rectangle.corners);
            let edge = |a: usize, b: usize| {
                let [dx, dy] = [0, 1].map(|axis| corners[a][axis] - corners[b][axis]);
                f64::from(dx.hypot(dy)).trunc()
            };
            if edge(0, 1) > options.min_size && edge(0, 3) > options.min_size {
                found.push(FoundBox { corners, score: score as f32 });
            }
        }
        sort_by_lines(&mut found);
        Ok(found)
    }
}

/// The first and last column, and the first and last row, of points.
fn ranges(points: &[OutlinePoint]) -> [[usize; 2]; 2] {
    let range = |of: fn(&OutlinePoint) -> i64| {
        let numbers = points.iter().map(of);
        [numbers.clone().min().unwrap_or(0), numbers.max().unwrap_or(0)].map(|number| number.max(0) as usize)
    };
    [range(|point| point.x), range(|point| point.y)]
}

/// Sorts boxes by lines, and within a line from left to right. A line ends where the next box begins 10 pixels below
/// the one before it, or more.
fn sort_by_lines(boxes: &mut [FoundBox]) {
    const LINE: f32 = 10.0;
    boxes.sort_by(|a, b| a.corners[0][1].total_cmp(&b.corners[0][1]));
    for line in boxes.chunk_by_mut(|above, below| below.corners[0][1] - above.corners[0][1] < LINE) {
        line.sort_by(|a, b| a.corners[0][0].total_cmp(&b.corners[0][0]));
    }
}

/// The first and the last column of each row of a border, which are all that its hull needs.
struct Outline {
    rows: Vec<Option<[OutlinePoint; 2]>>,
}

impl Outline {
    fn new(height: usize) -> Self {
        Self { rows: vec![None; height] }
    }

    fn points(
        &mut self,
        bitmap: &mut Bitmap,
        border: Border,
        deadline: &Deadline,
    ) -> Result<Vec<OutlinePoint>, DeadlineExceeded> {
        let mut index = 0;
        let (mut first, mut last) = (usize::MAX, 0);
        bitmap.follow(border, deadline, |[x, y]| {
            let point = OutlinePoint { x: x as i64, y: y as i64, index };
            index += 1;
            (first, last) = (first.min(y), last.max(y));
            if let Some(row) = self.rows.get_mut(y) {
                let [left, right] = row.unwrap_or([point; 2]);
                *row =
                    Some([if point.x < left.x { point } else { left }, if point.x > right.x { point } else { right }]);
            }
        })?;
        let rows = self.rows.get_mut(first..=last).unwrap_or_default();
        Ok(rows.iter_mut().filter_map(Option::take).flatten().collect())
    }
}

impl Operation for FindBoxes {
    fn infer_tensor(&self, given: &TensorKind, _: &mut Vec<Kind>) -> Result<(), String> {
        match &given.shape {
            Some(shape) => sides(&shape.iter().map(ports::fixed).collect::<Vec<_>>()).map(|_| ()),
            None => Ok(()),
        }
    }

    fn buffers(&self, inputs: &[Option<Value>]) -> usize {
        let Some(tensor) = ports::given_tensor(inputs) else { return 0 };
        let Ok([height, width]) = map_sides(tensor) else { return 0 };
        // The map in float32, its bitmap, the rows of a border and its hull, and a mask of a border.
        let copy = if tensor.element() == ElementType::Float32 { 0 } else { 4 };
        let bitmap = (height + 2).saturating_mul(width + 2);
        let outline = height.saturating_mul(4 * size_of::<Option<[OutlinePoint; 2]>>());
        let boxes = self.0.max_candidates.min(height.saturating_mul(width)).saturating_mul(ENTRY);
        let slow = match self.0.score_mode {
            ScoreMode::Fast => 0,
            ScoreMode::Slow => height.saturating_mul(width),
        };
        [height.saturating_mul(width).saturating_mul(copy), bitmap, outline, boxes, slow]
            .into_iter()
            .fold(0, usize::saturating_add)
    }

    fn run(&self, mut inputs: Inputs<'_>, deadline: &Deadline) -> Result<Vec<Value>, StepFailure> {
        let invalid = |why: String| StepFailure::InvalidInput(format!("find-boxes: {why}"));
        let tensor = inputs.tensor()?;
        let image = match inputs.optional() {
            Some(value) => Some(crate::operation::expect_tensor("image", value)?),
            None => None,
        };
        let [height, width] = map_sides(&tensor).map_err(invalid)?;
        if !tensor.element().is_float() {
            return Err(invalid(format!("a map is of floats, but gets {}", tensor.element())));
        }
        let tensor = tensor.cast(ElementType::Float32)?;
        let map = Map { data: tensor.as_slice::<f32>().unwrap_or_default(), height, width };
        let placement = match &image {
            Some(image) if self.0.pixels == Pixels::Image => BoxPlacement::in_image([height, width], image),
            image => BoxPlacement::new([height, width], image.as_ref()),
        };
        let mut found = self.find(map, &placement.map_err(invalid)?, deadline)?;

        let points = |found: &[FoundBox]| {
            let points: Vec<f32> = found.iter().flat_map(|found| found.corners).flatten().collect();
            Tensor::new([found.len(), 4, 2], points)
        };
        let mut image_points = None;
        if let Some(image) = image.filter(|_| self.0.pixels == Pixels::Image) {
            image_points = Some(points(&found)?.into());
            for found in &mut found {
                found.corners = source::to_source(found.corners, &image);
            }
        }

        let entry = |found: &FoundBox| {
            let points = found.corners.map(|point| point.map(float32_to_json));
            json!({"points": points, "score": float32_to_json(found.score)})
        };
        let boxes: serde_json::Value = found.iter().map(entry).collect();
        let scores: Vec<f32> = found.iter().map(|found| found.score).collect();
        let outputs = [boxes.into(), points(&found)?.into(), Tensor::new([found.len()], scores)?.into()];
        Ok(outputs.into_iter().chain(image_points).collect())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests;
