//! `nms`: a detector's outputs → the selected boxes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use self::candidates::{BoxFormat, CandidateReader};
use self::suppress::{Candidate, Rule};
use super::label_names::LabelSource;
use super::ranking::MAX_ANSWER;
use crate::deadline::Deadline;
use crate::operation::{self, BuiltinStep, Inputs, Operation};
use crate::ports;
use gpux_core::{
    BuildError, Builtin, ElementSet, ElementType, Geometry, Group, Kind, Layout, Mismatch, OptionOrigin, Port,
    Signature, StepFailure, Tensor, TensorKind, Value, float32_to_json,
};

mod candidates;
mod suppress;

/// Bytes of a box in the answer, beside its label: an object of four fields, one of them a list.
const ENTRY: usize = 1024;

/// How many times as long as an addition it takes to read a score, about.
const CANDIDATE: usize = 4;

/// Options of `nms`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Options {
    /// What the model gives: `yolov8` (`[4 + classes, anchors]`; YOLOv8 to YOLO11, YOLOv12), `yolov5`
    /// (`[anchors, 5 + classes]`, the fifth number says whether there is an object; YOLOv5, YOLOv7, YOLOX),
    /// `separate` (`boxes` `[anchors, 4]` and `scores`, `[anchors, classes]`, or `[anchors]` with `classes`).
    /// Before them a batch axis. Default: yolov8.
    layout: DetectorLayout,
    /// What the four numbers of a box are: `cxcywh` (centre, width, height), `xywh` (left, top, width, height),
    /// `xyxy` (two corners). Default: cxcywh, and xyxy for `separate`.
    #[serde(skip_serializing_if = "Option::is_none")]
    format: Option<BoxFormat>,
    /// Whether boxes are in fractions of the picture's width and height, 0 to 1, not in its pixels. Default: false.
    relative: bool,
    /// Scores that are not above it are dropped, 0 to 1. Default: 0.25.
    #[schemars(range(min = 0.0, max = 1.0))]
    score_threshold: f64,
    /// Of two boxes whose intersection over union is above it, the better stays, 0 to 1. Default: 0.45.
    #[schemars(range(min = 0.0, max = 1.0))]
    iou_threshold: f64,
    /// How many boxes are kept, 1 to 30000. Default: 300.
    #[schemars(range(min = 1, max = 30_000))]
    max_detections: usize,
    /// How many candidates are looked at, the best first, 1 to 30000. Default: 30000.
    #[schemars(range(min = 1, max = 30_000))]
    max_candidates: usize,
    /// Whether boxes of different classes suppress each other. Default: false.
    class_agnostic: bool,
    /// Whether an anchor gives a box for each class above the threshold, not for its best alone. Default: false.
    multi_label: bool,
    /// The name of each class: a list, or the path of a text file with one label a line. Default: none,
    /// boxes then have no `label`.
    #[serde(skip_serializing_if = "Option::is_none")]
    labels: Option<LabelSource>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            layout: DetectorLayout::Yolov8,
            format: None,
            relative: false,
            score_threshold: 0.25,
            iou_threshold: 0.45,
            max_detections: 300,
            max_candidates: 30_000,
            class_agnostic: false,
            multi_label: false,
            labels: None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum DetectorLayout {
    Yolov8,
    Yolov5,
    Separate,
}

/// Non-maximum suppression: of boxes that overlap, the best one stays. The result is JSON, best first:
/// `[{"box": [x0, y0, x1, y1], "score": 0.9, "class": 2, "label": "car"}, …]`; a batch of several pictures gives
/// a list of such lists.
///
/// With the picture that the model saw as the input `image`, boxes are in pixels of the picture that came in,
/// and end at its edges: `letterbox`, `resize`, `pad` and `crop` leave on a picture how it was placed. Without
/// it, boxes are in pixels of the model's input.
///
/// Follows `torchvision.ops.batched_nms` as it is for many boxes (class by class), and Ultralytics'
/// `non_max_suppression` in what it does before: an anchor is its best class, scores must be above the threshold.
struct Nms {
    options: Options,
    labels: Option<Vec<String>>,
    longest_label: usize,
}

pub(super) fn builtin() -> Builtin {
    Builtin {
        name: "nms",
        summary: "Keeps the best of a detector's overlapping boxes",
        group: Group::Output,
        follows: "torchvision: torchvision.ops.batched_nms",
        example: "nms: { score_threshold: 0.25, labels: ./labels.txt }",
        schema: || schemars::schema_for!(Options),
        build: |options, site| Ok(Box::new(Nms::new(ports::options(options)?, site)?)),
    }
}

/// The tensors of one picture, or of a batch.
struct DetectorShape {
    batch: usize,
    anchors: usize,
    /// scores for each anchor, or 1
    classes: usize,
}

impl Nms {
    fn new(options: Options, site: &OptionOrigin<'_>) -> Result<BuiltinStep<Self>, BuildError> {
        let labels = options.labels.as_ref().map(|labels| labels.read(site)).transpose()?;
        let longest_label = labels.iter().flatten().map(String::len).max().unwrap_or(0);
        let signature = signature(&options);
        let mut details = json!(options);
        if let Some(labels) = &labels {
            details["labels"] = labels.len().into();
        }
        Ok(BuiltinStep::new(signature, details, Self { options, labels, longest_label }))
    }

    fn is_separate(&self) -> bool {
        self.options.layout == DetectorLayout::Separate
    }

    /// The shape of the first tensor, and for `separate` of the second; unknown sizes are `None`.
    fn sizes(&self, first: &[Option<usize>], scores: Option<&[Option<usize>]>) -> Result<[Option<usize>; 2], String> {
        let shape = match first {
            [rest @ .., _, _] if rest.len() <= 1 => &first[rest.len()..],
            _ => {
                return Err(format!(
                    "it has {} axes; {} has 2, or 3 with a batch",
                    first.len(),
                    self.options.layout.shape()
                ));
            }
        };
        let less = |size: Option<usize>, by: usize| match size {
            Some(size) if size <= by => {
                let shape = self.options.layout.shape();
                Err(format!("an axis of size {size} has no room for {shape}; is `layout` right?"))
            }
            size => Ok(size.map(|size| size - by)),
        };
        let (anchors, classes) = match self.options.layout {
            DetectorLayout::Yolov8 => (shape[1], less(shape[0], 4)?),
            DetectorLayout::Yolov5 => (shape[0], less(shape[1], 5)?),
            DetectorLayout::Separate => {
                if shape[1].is_some_and(|size| size != 4) {
                    return Err(format!("a box has 4 numbers, but the last axis of `boxes` has size {:?}", shape[1]));
                }
                (shape[0], classes_of(first, scores)?)
            }
        };
        if let (Some(labels), Some(classes), false) = (&self.labels, classes, classes == Some(1) && self.is_separate())
            && labels.len() != classes
        {
            return Err(format!("there are {} labels, but {classes} classes; is `layout` right?", labels.len()));
        }
        Ok([anchors, classes])
    }

    fn detector_shape(&self, first: &Tensor, scores: Option<&Tensor>) -> Result<DetectorShape, String> {
        let known = |tensor: &Tensor| tensor.shape().iter().copied().map(Some).collect::<Vec<_>>();
        let scores = scores.map(known);
        let [anchors, classes] = self.sizes(&known(first), scores.as_deref())?;
        let batch = if first.rank() == 3 { first.shape()[0] } else { 1 };
        Ok(DetectorShape { batch, anchors: anchors.unwrap_or(0), classes: classes.unwrap_or(0) })
    }

    /// Candidates of one picture at most.
    fn most_candidates(&self, given: &DetectorShape) -> usize {
        given.anchors.saturating_mul(if self.options.multi_label { given.classes } else { 1 })
    }

    /// Bytes that the answer takes at most.
    fn output_bytes(&self, given: &DetectorShape) -> usize {
        let boxes = self.most_candidates(given).min(self.options.max_detections);
        boxes.saturating_add(1).saturating_mul(given.batch).saturating_mul(ENTRY + self.longest_label)
    }

    fn entry(&self, candidate: &Candidate, place: &BoxMapping) -> Result<serde_json::Value, String> {
        let corners = place.to_source(candidate.corners).map(float32_to_json);
        let (score, class) = (float32_to_json(candidate.score), candidate.class);
        let Some(labels) = &self.labels else {
            return Ok(json!({"box": corners, "score": score, "class": class}));
        };
        let label = usize::try_from(class).ok().and_then(|class| labels.get(class));
        let label = label.ok_or_else(|| format!("class {class} has no label: there are {}", labels.len()))?;
        Ok(json!({"box": corners, "score": score, "class": class, "label": label}))
    }

    fn detect(&self, inputs: &NmsInputs, deadline: &Deadline) -> Result<serde_json::Value, StepFailure> {
        let invalid = |why: String| StepFailure::InvalidInput(format!("nms: {why}"));
        let given = self.detector_shape(&inputs.first, inputs.scores.as_ref()).map_err(invalid)?;
        if self.output_bytes(&given) > MAX_ANSWER {
            let why =
                format!("there are {} pictures of {} boxes, more than can be answered", given.batch, given.anchors);
            return Err(invalid(why));
        }
        let place = BoxMapping::new(inputs.image.as_ref(), self.options.relative).map_err(invalid)?;
        let rule = Rule {
            iou_threshold: self.options.iou_threshold,
            class_agnostic: self.options.class_agnostic,
            most_candidates: self.options.max_candidates,
            most: self.options.max_detections,
        };
        let mut pictures = Vec::with_capacity(given.batch);
        for number in 0..given.batch {
            deadline.check_after(CANDIDATE * given.anchors.saturating_mul(given.classes))?;
            let mut candidates = self.candidates(inputs, &given, number).map_err(invalid)?;
            for candidate in &mut candidates {
                candidate.corners = place.pixels(candidate.corners);
            }
            let kept = suppress::keep(&candidates, rule, deadline)?;
            let entry = |index: usize| {
                deadline.check_after(ENTRY)?;
                self.entry(&candidates[index], &place).map_err(invalid)
            };
            pictures.push(kept.into_iter().map(entry).collect::<Result<serde_json::Value, StepFailure>>()?);
        }
        let only = pictures.pop_if(|_| given.batch == 1);
        Ok(only.unwrap_or(serde_json::Value::Array(pictures)))
    }

    fn candidates(&self, inputs: &NmsInputs, given: &DetectorShape, number: usize) -> Result<Vec<Candidate>, String> {
        let reading = CandidateReader {
            format: self.options.format.unwrap_or(if self.is_separate() { BoxFormat::Xyxy } else { BoxFormat::Cxcywh }),
            score_threshold: self.options.score_threshold as f32,
            multi_label: self.options.multi_label,
        };
        let DetectorShape { anchors, classes, .. } = *given;
        let first = inputs.first.as_slice::<f32>().unwrap_or_default();
        Ok(match self.options.layout {
            _ if anchors == 0 => Vec::new(),
            DetectorLayout::Yolov8 => reading.columns(part(first, (4 + classes) * anchors, number)?, anchors),
            DetectorLayout::Yolov5 => reading.rows(part(first, (5 + classes) * anchors, number)?, 5 + classes),
            DetectorLayout::Separate => {
                let boxes = part(first, 4 * anchors, number)?;
                let scores = inputs.scores.as_ref().and_then(Tensor::as_slice::<f32>).unwrap_or_default();
                let scores = part(scores, classes * anchors, number)?;
                match inputs.classes.as_ref().and_then(Tensor::as_slice::<i64>) {
                    Some(_) if classes != 1 => {
                        return Err(format!("with `classes`, a box has one score, but `scores` has {classes}"));
                    }
                    Some(named) => reading.classified(boxes, scores, part(named, anchors, number)?),
                    None => reading.separate(boxes, scores, classes),
                }
            }
        })
    }
}

/// The part of a batch that is about one picture.
fn part<T>(data: &[T], size: usize, number: usize) -> Result<&[T], String> {
    let start = size.saturating_mul(number);
    data.get(start..start.saturating_add(size)).ok_or_else(|| "the tensors are not about the same boxes".into())
}

/// How many classes `scores` has for each of the boxes.
fn classes_of(boxes: &[Option<usize>], scores: Option<&[Option<usize>]>) -> Result<Option<usize>, String> {
    let Some(scores) = scores else { return Ok(None) };
    let outer = boxes.len() - 1;
    let same = scores.iter().zip(&boxes[..outer]).all(|pair| !matches!(pair, (Some(one), Some(other)) if one != other));
    match scores.len() {
        rank if rank == outer && same => Ok(Some(1)),
        rank if rank == outer + 1 && same && scores[outer] != Some(0) => Ok(scores[outer]),
        _ => Err("`scores` needs the axes of `boxes`, with the classes, or nothing, in place of the 4 numbers".into()),
    }
}

impl DetectorLayout {
    const fn shape(self) -> &'static str {
        match self {
            Self::Yolov8 => "[4 + classes, anchors]",
            Self::Yolov5 => "[anchors, 5 + classes]",
            Self::Separate => "[anchors, 4]",
        }
    }
}

fn signature(options: &Options) -> Signature {
    let floats = || Kind::Tensor(TensorKind::of_elements(ElementSet::floats()));
    let mut inputs = match options.layout {
        DetectorLayout::Separate => {
            let classes = Kind::Tensor(TensorKind::of_elements(ElementSet::numeric()));
            vec![
                Port { description: "[anchors, 4]".into(), ..Port::new("boxes", floats()) },
                Port { description: "[anchors, classes] or [anchors]".into(), ..Port::new("scores", floats()) },
                Port { description: "[anchors], the class of each".into(), ..Port::optional("classes", classes) },
            ]
        }
        layout => vec![Port { description: layout.shape().into(), ..Port::new("predictions", floats()) }],
    };
    let image = Kind::Tensor(TensorKind::of_elements(ElementSet::ANY));
    inputs.push(Port {
        description: "the picture that the model saw, to place the boxes in the one that came in".into(),
        optional: !options.relative,
        ..Port::new("image", image)
    });
    let description = "the boxes that stay, as {box, score, class, label}".into();
    Signature { inputs, outputs: vec![Port { description, ..Port::new("detections", Kind::Json) }] }
}

/// The values of the ports, as they are worked on.
struct NmsInputs {
    first: Tensor,
    scores: Option<Tensor>,
    classes: Option<Tensor>,
    image: Option<Tensor>,
}

impl NmsInputs {
    fn take(inputs: Inputs<'_>) -> Result<Self, StepFailure> {
        let mut taken = Self { first: Tensor::scalar(0_f32), scores: None, classes: None, image: None };
        for (port, value) in inputs {
            let tensor = match value {
                None if port.optional => continue,
                Some(Value::Tensor(tensor)) => tensor,
                other => {
                    let given = other.map_or_else(|| "nothing".to_owned(), |value| value.kind().to_string());
                    let why = format!("`{}` takes a tensor, but gets {given}", port.name);
                    return Err(StepFailure::InvalidInput(format!("nms: {why}")));
                }
            };
            port.kind.accepts(&Kind::Tensor(TensorKind::of(&tensor)))?;
            match port.name.as_str() {
                "scores" => taken.scores = Some(tensor.cast(ElementType::Float32)?),
                "classes" => taken.classes = Some(tensor.cast(ElementType::Int64)?),
                "image" => taken.image = Some(tensor),
                _ => taken.first = tensor.cast(ElementType::Float32)?,
            }
        }
        Ok(taken)
    }
}

/// Maps boxes from the model's coordinates to the source image.
struct BoxMapping {
    /// the size of the picture that fractions are of, width first
    size: Option<[f32; 2]>,
    geometry: Option<Geometry>,
}

impl BoxMapping {
    fn new(image: Option<&Tensor>, relative: bool) -> Result<Self, String> {
        let geometry = image.and_then(|image| image.metadata.geometry);
        if !relative {
            return Ok(Self { size: None, geometry });
        }
        let size = image.and_then(|image| match (image.metadata.layout, image.shape()) {
            (Some(Layout::Hwc), [.., height, width, _]) => Some([*width as f32, *height as f32]),
            (Some(Layout::Chw), [.., _, height, width]) => Some([*width as f32, *height as f32]),
            _ => None,
        });
        let size = size.ok_or("`image` is not known to be a picture, so that its size is not known")?;
        Ok(Self { size: Some(size), geometry })
    }

    /// In pixels of the picture that the model saw.
    fn pixels(&self, corners: [f32; 4]) -> [f32; 4] {
        let Some([width, height]) = self.size else { return corners };
        let [left, top, right, bottom] = corners;
        [left * width, top * height, right * width, bottom * height]
    }

    /// In pixels of the picture that came in, and within it.
    fn to_source(&self, corners: [f32; 4]) -> [f32; 4] {
        let Some(at) = self.geometry else { return corners };
        let x = |x: f32| ((x - at.offset_x) / at.scale_x).clamp(0.0, at.source_width as f32);
        let y = |y: f32| ((y - at.offset_y) / at.scale_y).clamp(0.0, at.source_height as f32);
        let [left, top, right, bottom] = corners;
        // In a mirrored picture left and right are swapped.
        let (left, right) = if at.scale_x < 0.0 { (right, left) } else { (left, right) };
        let (top, bottom) = if at.scale_y < 0.0 { (bottom, top) } else { (top, bottom) };
        [x(left), y(top), x(right), y(bottom)]
    }
}

impl Operation for Nms {
    fn infer(&self, signature: &Signature, inputs: &[Option<Kind>]) -> Result<Vec<Kind>, Mismatch> {
        let shape = |index: usize| match inputs.get(index) {
            Some(Some(Kind::Tensor(TensorKind { shape: Some(shape), .. }))) => {
                Some(shape.iter().map(ports::fixed).collect::<Vec<_>>())
            }
            _ => None,
        };
        if let (Some(given), Some(first)) = (operation::known_tensor(inputs), shape(0)) {
            let scores = if self.is_separate() { shape(1) } else { None };
            self.sizes(&first, scores.as_deref()).map_err(|why| operation::mismatch(signature, given, why))?;
        }
        Ok(vec![Kind::Json])
    }

    fn buffers(&self, inputs: &[Option<Value>]) -> usize {
        let tensor = |index: usize| inputs.get(index)?.as_ref()?.as_tensor();
        let Some(first) = tensor(0) else { return 0 };
        let Ok(given) = self.detector_shape(first, tensor(1).filter(|_| self.is_separate())) else { return 0 };
        // Copies in float32, the best of each anchor, candidates with their order, the answer.
        let copies = inputs.iter().flatten().fold(0_usize, |sum, value| {
            sum.saturating_add(value.as_tensor().map_or(0, Tensor::len).saturating_mul(size_of::<f32>()))
        });
        let each = 2 * size_of::<Candidate>() + 3 * size_of::<usize>();
        let candidates = self.most_candidates(&given).saturating_mul(each).saturating_add(given.anchors * 8);
        copies.saturating_add(candidates).saturating_add(self.output_bytes(&given))
    }

    fn run(&self, inputs: Inputs<'_>, deadline: &Deadline) -> Result<Vec<Value>, StepFailure> {
        let inputs = NmsInputs::take(inputs)?;
        Ok(vec![self.detect(&inputs, deadline)?.into()])
    }
}

#[cfg(test)]
mod tests;
