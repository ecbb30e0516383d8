//! The step `thumbnail`: an image that fits a square, never enlarged. The pixels are the built-in
//! step's work, at native speed; what is decided here is the size.

#![forbid(unsafe_code)]

use gpux_step::{Error, Port, Signature, Step, Values, builtins};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Options {
    /// most pixels along each side
    #[schemars(range(min = 1, max = 8192))]
    side: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self { side: 224 }
    }
}

/// Options of the built-in step.
#[derive(Serialize)]
struct Resize {
    /// height, width
    size: [u32; 2],
}

struct Thumbnail {
    side: u32,
}

impl Step for Thumbnail {
    type Options = Options;
    const SUMMARY: &str = "makes an image fit a square, never larger than it was";
    const OPTIONS_SCHEMA: Option<&str> = Some(include_str!("../options.schema.json"));

    fn configure(options: Options) -> Result<(Self, Signature), Error> {
        let image = || Port::image::<u8>("image", gpux_step::Dim::Any);
        Ok((Self { side: options.side }, Signature::new().input(image()).output(image().about("fits the square"))))
    }

    fn process(&self, mut inputs: Values) -> Result<Values, Error> {
        let image = inputs.take_tensor("image")?;
        let [height, width, _] = image.dims()?;
        let fitted = match fit(height, width, self.side as usize) {
            Some(size) => builtins::run("resize", &Resize { size }, &image)?.take_first_tensor()?,
            None => image,
        };
        Ok(Values::from([("image", fitted)]))
    }
}

/// The size at which a `height` × `width` image fits a square; `None` where it does.
fn fit(height: usize, width: usize, side: usize) -> Option<[u32; 2]> {
    let longer = height.max(width);
    if longer <= side {
        return None;
    }
    let scaled = |length: usize| ((length * side + longer / 2) / longer).max(1) as u32;
    Some([scaled(height), scaled(width)])
}

gpux_step::export!(Thumbnail);

#[cfg(test)]
mod tests {
    use gpux_step::{Tensor, testing};

    use super::*;

    #[test]
    fn the_longer_side_fits_and_the_other_keeps_the_proportion() {
        assert_eq!(fit(480, 640, 224), Some([168, 224]));
        assert_eq!(fit(3000, 1, 10), Some([10, 1]));
        assert_eq!(fit(224, 224, 224), None);
        assert_eq!(fit(0, 0, 1), None);
    }

    #[test]
    fn a_large_image_goes_through_resize() {
        testing::builtin("resize", |options, _| {
            assert_eq!(options, r#"{"size":[2,4]}"#);
            Ok(Values::from([("image", Tensor::zeros::<u8>([2, 4, 3])?)]))
        });
        let image = Tensor::zeros::<u8>([10, 20, 3]).unwrap();
        let result = testing::run::<Thumbnail>(r#"{"side": 4}"#, [("image", image)]).unwrap();
        assert_eq!(result.tensor("image").unwrap().shape(), [2, 4, 3]);
    }

    #[test]
    fn a_small_image_is_given_back_as_it_is() {
        let image = Tensor::of([1, 2, 1], &[7_u8, 8]).unwrap();
        let result = testing::run::<Thumbnail>("{}", [("image", image)]).unwrap();
        assert_eq!(result.tensor("image").unwrap().view::<u8>().unwrap().to_vec(), [7, 8]);
    }

    #[test]
    fn the_schema_is_that_of_the_options() {
        testing::check_schema::<Thumbnail>("options.schema.json");
    }
}
