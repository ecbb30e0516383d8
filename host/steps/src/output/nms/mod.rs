//! `nms`: a detector's outputs → the selected boxes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, json};

use self::box_mapping::BoxMapping;
use self::candidates::{AnchorTable, BoxFormat, CandidateReader};
use self::extra::Extra;
use self::layout::DetectorLayout;
use self::oriented::OrientedBox;
use self::suppress::{Candidate, Rule};
use super::label_names::LabelSource;
use super::ranking::MAX_ANSWER;
use crate::deadline::Deadline;
use crate::operation::{self, BuiltinStep, Inputs, Operation};
use crate::ports;
use gpux_core::{
    BuildError, Builtin, ElementSet, ElementType, Group, Kind, Mismatch, OptionOrigin, Port, Signature, StepFailure,
    Tensor, TensorKind, Value, float32_to_json,
};

mod box_mapping;
mod candidates;
mod extra;
mod layout;
mod oriented;
mod suppress;

/// Bytes of a box in the answer, beside its label: an object of four fields, one of them a list.
const ENTRY: usize = 1024;

/// Default of `iou_threshold`.
const IOU_THRESHOLD: f64 = 0.45;

/// How many times as long as an addition it takes to read a score, about.
const CANDIDATE: usize = 4;

/// Options of `nms`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of gpux.yml")]
struct Options {
    /// What the model gives: `yolov8` (`[4 + classes, anchors]`; YOLOv8 to YOLO11, YOLOv12), `yolov5`
    /// (`[anchors, 5 + classes]`, the fifth number says whether there is an object; YOLOv5, YOLOv7, YOLOX),
    /// `transposed` (`[anchors, 4 + classes]`; RT-DETR), `end-to-end` (`[boxes, 6]`: two corners, score, class;
    /// YOLOv10, YOLO26, exports with `nms=True`), `separate` (`boxes` `[anchors, 4]` and `scores`,
    /// `[anchors, classes]`, or `[anchors]` with `classes`). Before them a batch axis. `auto` takes one of the first
    /// four, where the shape and the number of `labels` leave no doubt and class scores lie from 0 to 1; else the
    /// request, or the build, fails. Default: auto.
    layout: DetectorLayout,
    /// What the four numbers of a box are: `cxcywh` (centre, width, height), `xywh` (left, top, width, height),
    /// `xyxy` (two corners). Default: cxcywh, and xyxy for `separate`, and for `end-to-end` without `angle`.
    #[serde(skip_serializing_if = "Option::is_none")]
    format: Option<BoxFormat>,
    /// Whether boxes are in fractions of the picture's width and height, 0 to 1, not in its pixels. Default: false.
    relative: bool,
    /// Scores that are not above it are dropped, 0 to 1. Default: 0.25.
    #[schemars(range(min = 0.0, max = 1.0))]
    score_threshold: f64,
    /// Of two boxes whose intersection over union is above it, the better stays, 0 to 1. Default: 0.45; for
    /// `end-to-end`, whose model has chosen already, all stay.
    #[schemars(range(min = 0.0, max = 1.0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    iou_threshold: Option<f64>,
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
    /// After the classes come keypoints: how many, and 2 or 3 numbers for each (x, y, how visible), as `kpt_shape` in
    /// the metadata of Ultralytics' pose models; a box gets `keypoints`. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    keypoints: Option<[usize; 2]>,
    /// After the classes come so many coefficients of masks (32 in Ultralytics' segmentation models); a box gets
    /// `mask_coefficients`. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    mask_coefficients: Option<usize>,
    /// Whether an angle in radians comes after the classes, as in Ultralytics' OBB models; a box gets `angle` and its
    /// four `corners`, `box` is the upright one around them, and boxes are compared by their probabilistic
    /// intersection over union. Default: false.
    angle: bool,
    /// The name of each class: a list, the path of a text file with one label a line, or
    /// `{ model: NAME, key: KEY }`, a key of a model's metadata. Default: none, boxes then have no
    /// `label`.
    #[serde(skip_serializing_if = "Option::is_none")]
    labels: Option<LabelSource>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            layout: DetectorLayout::Auto,
            format: None,
            relative: false,
            score_threshold: 0.25,
            iou_threshold: None,
            max_detections: 300,
            max_candidates: 30_000,
            class_agnostic: false,
            multi_label: false,
            keypoints: None,
            mask_coefficients: None,
            angle: false,
            labels: None,
        }
    }
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
    extra: Extra,
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
    layout: DetectorLayout,
    batch: usize,
    anchors: usize,
    /// scores for each anchor, or 1
    classes: usize,
}

/// What shapes that may not be wholly known say.
struct PartialShape {
    layout: DetectorLayout,
    anchors: Option<usize>,
    classes: Option<usize>,
}

impl Nms {
    fn new(options: Options, site: &OptionOrigin<'_>) -> Result<BuiltinStep<Self>, BuildError> {
        let labels = options.labels.as_ref().map(|labels| labels.read(site)).transpose()?;
        let longest_label = labels.iter().flatten().map(String::len).max().unwrap_or(0);
        let extra = Extra::new(options.keypoints, options.mask_coefficients, options.angle);
        let extra = extra.map_err(|(option, why)| BuildError::option(option, why))?;
        let wrong = match (extra, options.layout) {
            (Extra::Nothing, _) => None,
            (_, DetectorLayout::Separate) => {
                Some("`separate` has no numbers after the classes: they are a tensor more")
            }
            (Extra::Angle, _) if options.relative => Some("an angle needs pixels, but `relative` boxes are stretched"),
            (Extra::Angle, _) if options.format.is_some_and(|format| format != BoxFormat::Cxcywh) => {
                Some("a box with an angle is `cxcywh`")
            }
            _ => None,
        };
        if let Some(wrong) = wrong {
            return Err(BuildError::option("layout", wrong));
        }
        let signature = signature(&options);
        let mut details = json!(options);
        if let Some(labels) = &labels {
            details["labels"] = labels.len().into();
        }
        if options.layout != DetectorLayout::EndToEnd {
            details["iou_threshold"] = options.iou_threshold.unwrap_or(IOU_THRESHOLD).into();
        }
        Ok(BuiltinStep::new(signature, details, Self { options, extra, labels, longest_label }))
    }

    fn is_separate(&self) -> bool {
        self.options.layout == DetectorLayout::Separate
    }

    /// What the first tensor is, and for `separate` the second; sizes that are not known yet are `None`. `None` if the
    /// layout will be known by the whole shape only.
    fn sizes(&self, first: &[Option<usize>], scores: Option<&[Option<usize>]>) -> Result<Option<PartialShape>, String> {
        let shape = match first {
            [rest @ .., rows, columns] if rest.len() <= 1 => [*rows, *columns],
            _ => {
                return Err(format!(
                    "it has {} axes; {} has 2, or 3 with a batch",
                    first.len(),
                    self.options.layout.shape()
                ));
            }
        };

        let (labels, extra) = (self.labels.as_ref().map(Vec::len), self.extra.width());
        let layout = match (self.options.layout, shape) {
            (DetectorLayout::Auto, [_, Some(4)]) => {
                let why = "boxes without scores; with the scores beside them, say `layout: separate`";
                return Err(format!("an axis of size 4 has {why}"));
            }
            (DetectorLayout::Auto, [Some(rows), Some(columns)]) => {
                DetectorLayout::of_shape([rows, columns], labels, extra)?
            }
            (DetectorLayout::Auto, [None, Some(columns)]) if columns > 4 + extra => {
                return Err(format!("its shape [?, {columns}] {}", DetectorLayout::advice(columns, extra)));
            }
            (DetectorLayout::Auto, _) => return Ok(None),
            (layout, _) => layout,
        };

        let least = layout.fixed_columns() + extra;
        let classes = |size: Option<usize>| match size {
            Some(size) if size <= least => {
                let after = if extra == 0 { String::new() } else { format!(" and the {extra} after the classes") };
                let shape = layout.shape();
                Err(format!("an axis of size {size} has no room for {shape}{after}; is `layout` right?"))
            }
            size => Ok(size.map(|size| size - least)),
        };

        let [anchors, classes] = match layout {
            DetectorLayout::Auto | DetectorLayout::Yolov8 => [shape[1], classes(shape[0])?],
            DetectorLayout::Yolov5 | DetectorLayout::Transposed => [shape[0], classes(shape[1])?],
            DetectorLayout::EndToEnd => {
                if let Some(size) = shape[1].filter(|size| *size != least) {
                    let more = "numbers after the class are `keypoints`, `mask_coefficients` or an `angle`";
                    return Err(format!("a box has {least} numbers, but the last axis has size {size}; {more}"));
                }
                [shape[0], Some(1)]
            }
            DetectorLayout::Separate => {
                if shape[1].is_some_and(|size| size != 4) {
                    return Err(format!("a box has 4 numbers, but the last axis of `boxes` has size {:?}", shape[1]));
                }
                [shape[0], classes_of(first, scores)?]
            }
        };

        let has_class_numbers = layout == DetectorLayout::EndToEnd || self.is_separate() && classes == Some(1);
        if let (Some(labels), Some(classes), false) = (labels, classes, has_class_numbers)
            && labels != classes
        {
            return Err(format!("there are {labels} labels, but {classes} classes; {}", self.advice_on_classes()));
        }
        Ok(Some(PartialShape { layout, anchors, classes }))
    }

    /// What to do where some classes are none.
    fn advice_on_classes(&self) -> &'static str {
        match self.extra {
            Extra::Nothing => {
                "is `layout` right? What follows the classes is said by `keypoints: [17, 3]`, `mask_coefficients: 32` \
                 or `angle: true`"
            }
            _ => "are `layout` and what follows the classes right?",
        }
    }

    fn detector_shape(&self, first: &Tensor, scores: Option<&Tensor>) -> Result<DetectorShape, String> {
        let known = |tensor: &Tensor| tensor.shape().iter().copied().map(Some).collect::<Vec<_>>();
        let scores = scores.map(known);
        let found = self.sizes(&known(first), scores.as_deref())?.ok_or("the layout cannot be told")?;
        let batch = if first.rank() == 3 { first.shape()[0] } else { 1 };
        let PartialShape { layout, anchors, classes } = found;
        Ok(DetectorShape { layout, batch, anchors: anchors.unwrap_or(0), classes: classes.unwrap_or(0) })
    }

    /// Candidates of one picture at most.
    fn most_candidates(&self, given: &DetectorShape) -> usize {
        given.anchors.saturating_mul(if self.options.multi_label { given.classes } else { 1 })
    }

    /// Bytes that the answer takes at most.
    fn output_bytes(&self, given: &DetectorShape) -> usize {
        let boxes = self.most_candidates(given).min(self.options.max_detections);
        let each = ENTRY + self.extra.bytes() + self.longest_label;
        boxes.saturating_add(1).saturating_mul(given.batch).saturating_mul(each)
    }

    fn entry(
        &self,
        candidate: &Candidate,
        numbers: &[f32],
        oriented: Option<&OrientedBox>,
        place: &BoxMapping,
    ) -> Result<serde_json::Value, String> {
        let class = candidate.class;
        let mut fields = Map::new();
        fields.insert("box".into(), json!(place.to_source(candidate.corners).map(float32_to_json)));
        fields.insert("score".into(), float32_to_json(candidate.score));
        fields.insert("class".into(), class.into());
        if let Some(labels) = &self.labels {
            let label = usize::try_from(class).ok().and_then(|class| labels.get(class));
            let label = label.ok_or_else(|| format!("class {class} has no label: there are {}", labels.len()))?;
            fields.insert("label".into(), label.as_str().into());
        }
        self.extra.add_fields(&mut fields, numbers, oriented, place);
        Ok(fields.into())
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
        let usual = if given.layout == DetectorLayout::EndToEnd { None } else { Some(IOU_THRESHOLD) };
        let rule = Rule {
            iou_threshold: self.options.iou_threshold.or(usual),
            class_agnostic: self.options.class_agnostic,
            most_candidates: self.options.max_candidates,
            most: self.options.max_detections,
        };

        let mut pictures = Vec::with_capacity(given.batch);
        for number in 0..given.batch {
            deadline.check_after(CANDIDATE * given.anchors.saturating_mul(given.classes))?;
            let (table, mut candidates) = self.candidates(inputs, &given, number).map_err(invalid)?;

            let mut oriented = Vec::new();
            if self.extra == Extra::Angle {
                let turned = |candidate: &Candidate| {
                    let angle = table.number(candidate.anchor, table.columns - 1).unwrap_or(f32::NAN);
                    OrientedBox::new(table.centre_and_size(candidate.anchor), angle)
                };
                oriented = candidates.iter().map(turned).collect();
                for (candidate, oriented) in candidates.iter_mut().zip(&oriented) {
                    candidate.corners = oriented.enclosing();
                }
            }

            for candidate in &mut candidates {
                candidate.corners = place.pixels(candidate.corners);
            }
            let kept = if self.extra == Extra::Angle {
                suppress::keep_oriented(&candidates, &oriented, rule, deadline)?
            } else {
                suppress::keep(&candidates, rule, deadline)?
            };

            let entry = |index: usize| {
                deadline.check_after(ENTRY + self.extra.bytes())?;
                let candidate = &candidates[index];
                let first = table.columns.saturating_sub(self.extra.width());
                let numbers = table.numbers(candidate.anchor, first..table.columns);
                self.entry(candidate, &numbers, oriented.get(index), &place).map_err(invalid)
            };
            pictures.push(kept.into_iter().map(entry).collect::<Result<serde_json::Value, StepFailure>>()?);
        }

        let only = pictures.pop_if(|_| given.batch == 1);
        Ok(only.unwrap_or(serde_json::Value::Array(pictures)))
    }

    /// The numbers of the picture's anchors, and those that may be boxes.
    fn candidates<'a>(
        &self,
        inputs: &'a NmsInputs,
        given: &DetectorShape,
        number: usize,
    ) -> Result<(AnchorTable<'a>, Vec<Candidate>), String> {
        let DetectorShape { layout, anchors, classes, .. } = *given;
        let has_corners =
            layout == DetectorLayout::Separate || layout == DetectorLayout::EndToEnd && self.extra != Extra::Angle;
        let reading = CandidateReader {
            format: self.options.format.unwrap_or(if has_corners { BoxFormat::Xyxy } else { BoxFormat::Cxcywh }),
            score_threshold: self.options.score_threshold as f32,
            multi_label: self.options.multi_label,
        };

        let first = inputs.first.as_slice::<f32>().unwrap_or_default();
        if layout == DetectorLayout::Separate {
            let boxes = part(first, 4 * anchors, number)?;
            let table = AnchorTable { data: boxes, anchors, columns: 4, is_transposed: false };
            if anchors == 0 {
                return Ok((table, Vec::new()));
            }
            let scores = inputs.scores.as_ref().and_then(Tensor::as_slice::<f32>).unwrap_or_default();
            let scores = part(scores, classes * anchors, number)?;
            let found = match inputs.classes.as_ref().and_then(Tensor::as_slice::<i64>) {
                Some(_) if classes != 1 => {
                    return Err(format!("with `classes`, a box has one score, but `scores` has {classes}"));
                }
                Some(named) => reading.classified(boxes, scores, part(named, anchors, number)?),
                None => reading.separate(boxes, scores, classes),
            };
            return Ok((table, found));
        }

        let is_end_to_end = layout == DetectorLayout::EndToEnd;
        let columns = layout.fixed_columns() + self.extra.width() + if is_end_to_end { 0 } else { classes };
        let data = part(first, columns * anchors, number)?;
        let is_transposed = layout == DetectorLayout::Yolov8;
        let table = AnchorTable { data, anchors, columns, is_transposed };
        if anchors == 0 {
            return Ok((table, Vec::new()));
        }

        if self.options.layout == DetectorLayout::Auto {
            // The scores, and what says whether there is an object.
            let scores = if is_end_to_end { 4..5 } else { 4..layout.fixed_columns() + classes };
            let score = table.implausible_score(scores);
            let class = if is_end_to_end { table.fractional(5) } else { None };
            if let Some(number) = score.or(class) {
                let what = if score.is_some() { "scores lie from 0 to 1" } else { "a class is a whole number" };
                return Err(format!("{what}, but {number} is among them; {}", self.advice_on_classes()));
            }
        }

        let found = match layout {
            DetectorLayout::Yolov5 => reading.rows_with_objectness(data, columns, classes),
            DetectorLayout::Transposed => reading.rows(data, columns, classes),
            DetectorLayout::EndToEnd => reading.end_to_end(data, columns)?,
            _ => reading.columns(data, anchors, classes),
        };
        Ok((table, found))
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
