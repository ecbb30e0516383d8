//! The step `nms`: keeps the best of a detector's overlapping boxes, in the source image's pixels.
//!
//! [`suppress`] is the work, plain Rust that knows nothing of gpux; this file is the step around it.

#![forbid(unsafe_code)]

pub mod suppress;

use gpux_step::{Dim, Error, Geometry, Port, Signature, Step, Tensor, Values, chunks, stream};
use schemars::JsonSchema;
use serde::Deserialize;

use self::suppress::{Detection, Rect};

#[derive(Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Options {
    /// a box goes if a better one covers more than this share of their union
    #[schemars(range(min = 0, max = 1))]
    iou: f64,
    /// a box goes unless its score is above this
    score: f64,
    /// most boxes that are kept
    #[schemars(range(min = 1, max = 100_000))]
    limit: u32,
    /// most boxes that are compared, the best: bounds the time
    #[schemars(range(min = 1, max = 100_000))]
    candidates: u32,
    /// whether only boxes of one class are in each other's way
    per_class: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { iou: 0.45, score: 0.25, limit: 300, candidates: 3000, per_class: true }
    }
}

struct Nms {
    options: Options,
}

impl Step for Nms {
    type Options = Options;
    const SUMMARY: &str = "keeps the best of a detector's overlapping boxes (non-maximum suppression)";
    const OPTIONS_SCHEMA: Option<&str> = Some(include_str!("../options.schema.json"));

    fn configure(options: Options) -> Result<(Self, Signature), Error> {
        let kept = || Dim::named("kept");
        let signature = Signature::new()
            .input(
                Port::tensor::<f32>("boxes").shape([Dim::named("boxes"), 4.into()]).about("left, top, right, bottom"),
            )
            .input(Port::tensor::<f32>("scores").about("for each box one, or one for each class"))
            .input(Port::tensor_of("image", []).optional().about(
                "what the model saw: where it has the place of a \
                    source image, boxes are given in that image's pixels",
            ))
            .output(Port::tensor::<f32>("boxes").shape([kept(), 4.into()]).about("best first"))
            .output(Port::tensor::<f32>("scores").shape([kept()]))
            .output(Port::tensor::<i64>("classes").shape([kept()]).about("0 where scores have no classes"));
        Ok((Self { options }, signature))
    }

    fn process(&self, inputs: Values) -> Result<Values, Error> {
        let boxes = inputs.tensor("boxes")?;
        let image = inputs.get("image").map(|_| inputs.tensor("image")).transpose()?;
        let geometry = boxes.geometry().or_else(|| image?.geometry());
        let [count, 4] = boxes.dims()? else { return Err(Error::invalid("a box is four numbers")) };
        let elements = boxes.view::<f32>()?;
        let (rects, _) = elements.as_chunks::<4>();
        let candidates = self.candidates(inputs.tensor("scores")?, count, rects)?;
        let Options { iou, limit, per_class, .. } = self.options;
        let kept = suppress::suppress(rects, candidates, iou as f32, per_class, limit as usize);

        let places: Vec<f32> = kept.iter().flat_map(|detection| placed(&rects[detection.index], geometry)).collect();
        let scores: Vec<f32> = kept.iter().map(|detection| detection.score).collect();
        let classes: Vec<i64> = kept.iter().map(|detection| detection.class as i64).collect();
        let count = kept.len() as u32;
        Ok(Values::new()
            .with("boxes", Tensor::of([count, 4], &places)?)
            .with("scores", Tensor::of([count], &scores)?)
            .with("classes", Tensor::of([count], &classes)?))
    }
}

impl Nms {
    /// The best boxes above the score, not more than are compared.
    fn candidates(&self, scores: &Tensor, boxes: usize, rects: &[Rect]) -> Result<Vec<Detection>, Error> {
        let shape = scores.shape();
        let classes = match shape.as_slice() {
            [count] if *count as usize == boxes => 1,
            [count, classes] if *count as usize == boxes => *classes as usize,
            _ => return Err(Error::InvalidInput(format!("scores of shape {shape:?} do not fit {boxes} boxes"))),
        };
        let least = self.options.score as f32;
        let most = self.options.candidates as usize;
        let higher = |a: f32, b: f32| if b > a { b } else { a };
        let mut found = Vec::new();
        stream::read(scores, |start, scores: &[f32]| {
            for (chunk, scores) in scores.chunks(chunks::LANES).enumerate() {
                // Nearly all scores are low, so most chunks end here.
                if chunks::fold(scores, f32::NEG_INFINITY, higher, higher) <= least {
                    continue;
                }
                for (place, score) in scores.iter().enumerate() {
                    let place = start + chunk * chunks::LANES + place;
                    let (index, class) = (place / classes, place % classes);
                    if *score > least && score.is_finite() && suppress::is_box(&rects[index]) {
                        found.push(Detection { index, class, score: *score });
                    }
                }
            }
            // Twice as many as wanted are held at most, however many there are.
            if found.len() > 2 * most {
                keep_best(&mut found, most);
            }
        })?;
        keep_best(&mut found, most);
        Ok(found)
    }
}

fn keep_best(found: &mut Vec<Detection>, most: usize) {
    if found.len() > most {
        found.select_nth_unstable_by(most, suppress::best_first);
        found.truncate(most);
    }
}

/// A box in the pixels of the source image, within it.
fn placed(rect: &Rect, geometry: Option<Geometry>) -> Rect {
    let Some(geometry) = geometry else { return *rect };
    let (width, height) = (geometry.source_width as f32, geometry.source_height as f32);
    let (left, top) = geometry.to_source(rect[0], rect[1]);
    let (right, bottom) = geometry.to_source(rect[2], rect[3]);
    let within = |place: f32, end: f32| place.max(0.0).min(end);
    [within(left, width), within(top, height), within(right, width), within(bottom, height)]
}

gpux_step::export!(Nms);

#[cfg(test)]
mod tests;
