//! The step `to-floats`: the pixels of an image as normalized floats.
//!
//! It does the same in three ways, to be measured beside each other: `cargo bench --bench
//! guest_floats`. [`floats`] is the work; this file is the step around it.

#![forbid(unsafe_code)]

pub mod floats;

use gpux_step::builtins::{self, Prepared};
use gpux_step::{Error, Layout, Port, Signature, Step, Tensor, Values, stream};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::floats::Factors;

#[derive(Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Options {
    /// how it is done; the results are the same
    way: Way,
    /// the order of the result's axes
    layout: Order,
    /// the mean of each channel, from 0 to 1
    mean: [f64; 3],
    /// the deviation of each channel
    #[schemars(inner(range(min = 0.001)))]
    std: [f64; 3],
}

impl Default for Options {
    fn default() -> Self {
        let (mean, std) = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]);
        Self { way: Way::Stream, layout: Order::Hwc, mean, std }
    }
}

#[derive(Clone, Copy, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Way {
    /// through a small buffer: little memory, and so a fast start
    Stream,
    /// the whole image at once
    Whole,
    /// by the built-in step `normalize`, which gives `hwc` only
    Builtin,
}

#[derive(Clone, Copy, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Order {
    /// height, width, channels
    Hwc,
    /// channels, height, width
    Chw,
}

/// Options of the built-in step.
#[derive(Serialize)]
struct Normalize {
    scale: f64,
    mean: [f64; 3],
    std: [f64; 3],
}

struct ToFloats {
    way: Way,
    layout: Order,
    factors: Factors,
    /// The built-in step, for `way: builtin`.
    normalize: Option<Prepared>,
}

impl Step for ToFloats {
    type Options = Options;
    const SUMMARY: &str = "turns the pixels of an image into normalized floats";
    const OPTIONS_SCHEMA: Option<&str> = Some(include_str!("../options.schema.json"));

    fn configure(options: Options) -> Result<(Self, Signature), Error> {
        let Options { way, layout, mean, std } = options;
        let output = match layout {
            Order::Hwc => Port::image::<f32>("image", 3),
            Order::Chw if way == Way::Builtin => {
                return Err(Error::invalid("`way: builtin` gives `layout: hwc`; use another way for `chw`"));
            }
            Order::Chw => Port::image::<f32>("image", 3)
                .shape([3.into(), gpux_step::Dim::Any, gpux_step::Dim::Any])
                .layout(Layout::Chw),
        };
        let signature = Signature::new()
            .input(Port::image::<u8>("image", 3).about("red, green, blue from 0 to 255"))
            .output(output.about("(x / 255 - mean) / std"));
        let normalize = match way {
            Way::Builtin => Some(builtins::prepare("normalize", &Normalize { scale: 1.0 / 255.0, mean, std })?),
            _ => None,
        };
        Ok((Self { way, layout, factors: Factors::new(mean, std), normalize }, signature))
    }

    fn process(&self, inputs: Values) -> Result<Values, Error> {
        let image = inputs.tensor("image")?;
        if let Some(normalize) = self.normalize {
            let floats = normalize.run(image)?.take_first_tensor()?;
            return Ok(Values::from([("image", floats)]));
        }
        let [height, width, 3] = image.dims()? else { return Err(Error::invalid("it takes an image of 3 channels")) };
        let (height, width) = (height as u32, width as u32);
        let shape = match self.layout {
            Order::Hwc => [height, width, 3],
            Order::Chw => [3, height, width],
        };
        let mut floats = match self.way {
            Way::Whole => self.whole(image, shape)?,
            _ => self.stream(image, shape)?,
        };
        floats.copy_metadata(image);
        floats.set_layout(Some(match self.layout {
            Order::Hwc => Layout::Hwc,
            Order::Chw => Layout::Chw,
        }));
        Ok(Values::from([("image", floats)]))
    }
}

impl ToFloats {
    fn whole(&self, image: &Tensor, shape: [u32; 3]) -> Result<Tensor, Error> {
        let bytes = image.view::<u8>()?;
        let mut floats = vec![0.0; bytes.len()];
        match self.layout {
            Order::Hwc => self.factors.interleaved(&bytes, &mut floats),
            Order::Chw => {
                for (channel, plane) in floats.chunks_exact_mut((bytes.len() / 3).max(1)).enumerate() {
                    self.factors.plane(channel, &bytes, plane);
                }
            }
        }
        Tensor::of(shape, &floats)
    }

    fn stream(&self, image: &Tensor, shape: [u32; 3]) -> Result<Tensor, Error> {
        let mut floats = Tensor::zeros::<f32>(shape)?;
        match self.layout {
            Order::Hwc => stream::convert(image, &mut floats, |_, bytes, floats| {
                self.factors.interleaved(bytes, floats);
            })?,
            Order::Chw => {
                let plane = image.len() / 3;
                let mut buffer = vec![0.0; stream::BUFFER / 3];
                stream::try_read(image, |start, bytes: &[u8]| {
                    let part = &mut buffer[..bytes.len() / 3];
                    for channel in 0..3 {
                        self.factors.plane(channel, bytes, part);
                        floats.write(channel * plane + start / 3, part)?;
                    }
                    Ok(())
                })?;
            }
        }
        Ok(floats)
    }
}

gpux_step::export!(ToFloats);

#[cfg(test)]
mod tests {
    use gpux_step::testing;

    use super::*;

    fn image(height: u32, width: u32) -> (Vec<u8>, Tensor) {
        let pixels: Vec<u8> = (0..height * width * 3).map(|i| (i * 37 % 256) as u8).collect();
        let mut image = Tensor::of([height, width, 3], &pixels).unwrap();
        image.set_layout(Some(Layout::Hwc));
        image.set_sample_rate(Some(1));
        (pixels, image)
    }

    #[test]
    fn every_way_gives_what_the_formula_says() {
        let mean_std = r#""mean": [0.1, 0.2, 0.3], "std": [0.5, 0.25, 2]"#;
        for (height, width) in [(1, 1), (5, 7), (224, 224)] {
            for way in ["stream", "whole"] {
                for layout in ["hwc", "chw"] {
                    let (pixels, image) = image(height, width);
                    let options = format!(r#"{{"way": "{way}", "layout": "{layout}", {mean_std}}}"#);
                    let result =
                        testing::run::<ToFloats>(&options, [("image", image)]).unwrap().take_tensor("image").unwrap();
                    let floats = result.view::<f32>().unwrap();
                    let plane = (height * width) as usize;
                    for (place, byte) in pixels.iter().enumerate() {
                        let (pixel, channel) = (place / 3, place % 3);
                        let expected =
                            (f32::from(*byte) / 255.0 - [0.1, 0.2, 0.3][channel]) / [0.5, 0.25, 2.0][channel];
                        let float = if layout == "hwc" { floats[place] } else { floats[channel * plane + pixel] };
                        assert!((float - expected).abs() < 1e-5, "{way} {layout} {place}: {float} {expected}");
                    }
                    let expected = if layout == "hwc" { Layout::Hwc } else { Layout::Chw };
                    assert_eq!((result.layout(), result.sample_rate()), (Some(expected), Some(1)));
                }
            }
        }
    }

    #[test]
    fn the_builtin_gets_the_options_it_knows() {
        testing::builtin("normalize", |options, mut inputs| {
            assert!(options.starts_with(r#"{"scale":0.00392156862745098,"mean":[0.485,0.456,0.406],"#), "{options}");
            let image = inputs.take_first_tensor()?;
            Ok(Values::from([("tensor", Tensor::zeros::<f32>(image.shape())?)]))
        });
        let result = testing::run::<ToFloats>(r#"{"way": "builtin"}"#, [("image", image(2, 2).1)]).unwrap();
        assert_eq!(result.tensor("image").unwrap().shape(), [2, 2, 3]);
        let error = testing::configure::<ToFloats>(r#"{"way": "builtin", "layout": "chw"}"#).err().unwrap();
        assert!(error.message().contains("`layout: hwc`"));
    }

    #[test]
    fn the_schema_is_that_of_the_options() {
        testing::check_schema::<ToFloats>("options.schema.json");
    }
}
