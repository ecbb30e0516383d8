//! The step `center-ink`: finds the ink in a photo of one character and centres it.
//!
//! [`ink`] is the work, plain Rust that knows nothing of gpux; this file is the step around it.

#![forbid(unsafe_code)]

pub mod ink;

use gpux_step::{Color, Error, Layout, Port, Signature, Step, Tensor, Values};
use schemars::JsonSchema;
use serde::Deserialize;

#[derive(Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Options {
    /// free space on each side, as a fraction of the ink's longer side
    #[schemars(range(min = 0, max = 1))]
    margin: f64,
}

impl Default for Options {
    fn default() -> Self {
        Self { margin: 0.15 }
    }
}

struct CenterInk {
    options: ink::Options,
}

impl Step for CenterInk {
    type Options = Options;
    const SUMMARY: &str = "finds the ink in a photo of one character: bright on black, cropped, centred in a square";
    const OPTIONS_SCHEMA: Option<&str> = Some(include_str!("../options.schema.json"));

    fn configure(options: Options) -> Result<(Self, Signature), Error> {
        let signature = Signature::new()
            .input(Port::image::<u8>("image", 1).about("a gray photo of one character"))
            .output(Port::image::<u8>("image", 1).about("a square: 0 is paper, 255 is ink"));
        Ok((Self { options: ink::Options { margin: options.margin as f32 } }, signature))
    }

    fn process(&self, inputs: Values) -> Result<Values, Error> {
        let image = inputs.tensor("image")?;
        let [height, width, channels] = image.dims()?;
        if channels != 1 {
            return Err(Error::invalid(
                "it takes a gray image, but this one has colours; use `decode-image: { channels: gray }`",
            ));
        }
        let centered = ink::center(&image.view()?, width, height, &self.options)
            .map_err(|_| Error::invalid("no ink found: nothing in the image stands out from its background"))?;
        let side = centered.side as u32;
        let mut output = Tensor::of([side, side, 1], &centered.pixels)?;
        output.set_layout(Some(Layout::Hwc));
        output.set_color(Some(Color::Gray));
        Ok(Values::from([("image", output)]))
    }
}

gpux_step::export!(CenterInk);

#[cfg(test)]
mod tests {
    use gpux_step::{Error, Tensor, Values, testing};

    use super::*;

    #[test]
    fn the_schema_is_that_of_the_options() {
        testing::check_schema::<CenterInk>("options.schema.json");
    }

    #[test]
    fn the_default_margin_is_that_of_the_work() {
        assert_eq!(ink::Options { margin: Options::default().margin as f32 }, ink::Options::default());
    }

    #[test]
    fn a_bar_of_ink_is_centred() {
        let mut paper = vec![200_u8; 64 * 48];
        for y in 8..24 {
            paper[y * 64 + 40..y * 64 + 48].fill(20);
        }
        let run = |shape: [u32; 3]| {
            testing::run::<CenterInk>("{}", [("image", Tensor::of(shape, &paper)?)])?.take_tensor("image")
        };
        let image = run([48, 64, 1]).unwrap();
        let [height, width, 1] = image.dims().unwrap() else { panic!("{image:?}") };
        assert_eq!((height, image.layout(), image.color()), (width, Some(Layout::Hwc), Some(Color::Gray)));
        assert!(image.view::<u8>().unwrap()[(height / 2) * width + width / 2] > 200);

        let error = testing::configure::<CenterInk>("{}")
            .and_then(|(step, _)| step.process(Values::from([("image", Tensor::of([16, 64, 3], &paper)?)])));
        assert!(matches!(error, Err(Error::InvalidInput(why)) if why.contains("`decode-image: { channels: gray }`")));
    }
}
