//! The step `page-layout`: what a PicoDet model gives at four strides → boxes and scores, for `nms`. A side of a box is
//! the mean of a distribution over distances from the middle of a cell.

#![forbid(unsafe_code)]

use gpux_step::{Dim, Error, Port, Signature, Step, Tensor, Values};
use schemars::JsonSchema;
use serde::Deserialize;

/// Pixels between the cells of each of the model's levels.
const STRIDES: [u32; 4] = [8, 16, 32, 64];

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Options {
    /// height and width of the pictures that the model takes
    size: [u32; 2],
}

struct PageLayout {
    size: [u32; 2],
}

impl Step for PageLayout {
    type Options = Options;
    const SUMMARY: &str = "turns what a PicoDet model gives into boxes and scores";
    const OPTIONS_SCHEMA: Option<&str> = Some(include_str!("../options.schema.json"));

    fn configure(options: Options) -> Result<(Self, Signature), Error> {
        if options.size.iter().any(|side| !(1..=4096).contains(side)) {
            return Err(Error::invalid("`size` is a height and a width from 1 to 4096"));
        }
        let table = |name: String, width: Dim| Port::tensor::<f32>(name).shape([1.into(), Dim::Any, width]);
        let mut signature = Signature::new();
        for stride in STRIDES {
            signature = signature.input(table(format!("scores{stride}"), Dim::named("classes")));
        }
        for stride in STRIDES {
            signature = signature.input(table(format!("sides{stride}"), Dim::named("distances")));
        }
        let boxes = Port::tensor::<f32>("boxes").shape([Dim::named("cells"), 4.into()]);
        let scores = Port::tensor::<f32>("scores").shape([Dim::named("cells"), Dim::named("classes")]);
        let signature = signature.output(boxes.about("two corners, in pixels of the model's picture")).output(scores);
        Ok((Self { size: options.size }, signature))
    }

    fn process(&self, inputs: Values) -> Result<Values, Error> {
        let (mut boxes, mut scores, mut classes) = (Vec::new(), Vec::new(), None);
        for stride in STRIDES {
            let [rows, columns] = self.size.map(|side| side.div_ceil(stride) as usize);
            let [level, sides] = [format!("scores{stride}"), format!("sides{stride}")];
            let (level, sides) = (inputs.tensor(&level)?, inputs.tensor(&sides)?);
            let ([_, cells, width], [_, others, numbers]) = (level.dims()?, sides.dims()?);
            if [cells, others] != [rows * columns; 2] || *classes.get_or_insert(width) != width {
                return Err(Error::invalid(format!(
                    "at stride {stride}, a model for this `size` has {rows} × {columns} cells"
                )));
            }
            if numbers == 0 || numbers % 4 != 0 {
                return Err(Error::invalid(format!("{numbers} numbers are no four distributions")));
            }
            scores.extend_from_slice(&level.view::<f32>()?);
            let sides = sides.view::<f32>()?;
            for (cell, sides) in sides.chunks_exact(numbers).enumerate() {
                let middle = |place: usize| (place as f32 + 0.5) * stride as f32;
                let (x, y) = (middle(cell % columns), middle(cell / columns));
                let mut away = sides.chunks_exact(numbers / 4).map(|side| mean_distance(side) * stride as f32);
                let mut next = || away.next().unwrap_or(0.0);
                boxes.extend([x - next(), y - next(), x + next(), y + next()]);
            }
        }
        let cells = (boxes.len() / 4) as u32;
        Ok(Values::new()
            .with("boxes", Tensor::of([cells, 4], &boxes)?)
            .with("scores", Tensor::of([cells, classes.unwrap_or(0) as u32], &scores)?))
    }
}

/// The mean of 0, 1, 2, … under the softmax of these numbers.
fn mean_distance(numbers: &[f32]) -> f32 {
    let highest = numbers.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let (mut sum, mut weights) = (0.0, 0.0);
    for (distance, number) in numbers.iter().enumerate() {
        let weight = (number - highest).exp();
        sum += weight * distance as f32;
        weights += weight;
    }
    sum / weights
}

gpux_step::export!(PageLayout);

#[cfg(test)]
mod tests {
    use gpux_step::testing;

    use super::*;

    #[test]
    fn boxes_lie_around_their_cells() {
        let zeros = |cells: u32, width: u32| Tensor::zeros::<f32>([1, cells, width]).unwrap();
        // Distances 0 and 1 with the same weight: half a stride to each side.
        let run = |scores: u32| {
            let mut inputs = Vec::new();
            for (stride, cells) in STRIDES.into_iter().zip([6, 2, 1, 1]) {
                inputs.push((format!("scores{stride}"), zeros(cells, scores)));
                inputs.push((format!("sides{stride}"), zeros(cells, 8)));
            }
            let inputs = inputs.into_iter().fold(Values::new(), |values, (name, value)| values.with(name, value));
            testing::run::<PageLayout>(r#"{"size": [16, 20]}"#, inputs)
        };
        let results = run(3).unwrap();
        let boxes = results.tensor("boxes").unwrap().view::<f32>().unwrap().to_vec();
        assert_eq!(boxes[..8], [0.0, 0.0, 8.0, 8.0, 8.0, 0.0, 16.0, 8.0]);
        assert_eq!(boxes[24..28], [0.0, 0.0, 16.0, 16.0]);
        assert_eq!(results.tensor("scores").unwrap().shape(), [10, 3]);
    }

    #[test]
    fn the_schema_is_that_of_the_options() {
        testing::check_schema::<PageLayout>("options.schema.json");
    }
}
