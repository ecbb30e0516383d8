//! The step `center-ink`: finds the ink in a photo of one character and centres it.
//!
//! [`ink`] is the work, plain Rust that knows nothing of gpux; this file is the step around it.

pub mod ink;

use std::cell::Cell;

use serde::Deserialize;

use self::exports::gpux::pipeline::step::{Description, Dimension, Guest, Kind, Port, Signature, TensorKind};
use self::gpux::pipeline::types::{Color, ElementType, Error, Layout, NamedValue, Tensor, Value};

wit_bindgen::generate!({ path: "../../../wit", world: "pipeline-step" });

/// The schema of the options; gpux checks them against it before `configure`.
pub const OPTIONS_SCHEMA: &str = r#"{
  "type": "object",
  "additionalProperties": false,
  "properties": {
    "margin": {
      "description": "free space on each side, as a fraction of the ink's longer side",
      "type": "number",
      "minimum": 0,
      "maximum": 1,
      "default": 0.15
    }
  }
}"#;

#[derive(Deserialize)]
struct Options {
    margin: Option<f32>,
}

thread_local! {
    static MARGIN: Cell<Option<f32>> = const { Cell::new(None) };
}

struct CenterInk;

impl Guest for CenterInk {
    fn describe() -> Description {
        Description {
            summary: "finds the ink in a photo of one character: bright on black, cropped, centred in a square".into(),
            options_schema: OPTIONS_SCHEMA.into(),
        }
    }

    fn configure(options: String) -> Result<Signature, Error> {
        let options = serde_json_core::from_str(&options)
            .map(|(options, _): (Options, usize)| options)
            .map_err(|_| Error::InvalidInput("the options are not a JSON object with a number `margin`".into()))?;
        MARGIN.set(options.margin);
        let port = |description: &str| Port {
            name: "image".into(),
            kind: Kind::Tensor(TensorKind {
                elements: vec![ElementType::Uint8],
                shape: Some(vec![Dimension::Dynamic, Dimension::Dynamic, Dimension::Fixed(1)]),
                layout: Some(Layout::Hwc),
            }),
            optional: false,
            description: description.into(),
        };
        Ok(Signature {
            inputs: vec![port("a gray photo of one character")],
            outputs: vec![port("a square: 0 is paper, 255 is ink")],
        })
    }

    fn process(inputs: Vec<NamedValue>) -> Result<Vec<NamedValue>, Error> {
        let invalid = |message: &str| Error::InvalidInput(message.into());
        let [NamedValue { value: Value::Tensor(image), .. }] = inputs.as_slice() else {
            return Err(invalid("it takes one image"));
        };
        let shape = image.shape();
        let &[height, width, channels] = shape.as_slice() else {
            return Err(invalid("it takes an image with three axes: height, width, channels"));
        };
        if channels != 1 {
            return Err(invalid(
                "it takes a gray image, but this one has colours; use `decode-image: { channels: gray }`",
            ));
        }
        if image.element() != ElementType::Uint8 {
            return Err(invalid("it takes an image of uint8; put it before `normalize`"));
        }
        let mut options = ink::Options::default();
        if let Some(margin) = MARGIN.get() {
            options.margin = margin;
        }
        let centered = ink::center(&image.data(), width as usize, height as usize, &options)
            .map_err(|_| invalid("no ink found: nothing in the image stands out from its background"))?;
        let side = centered.side as u32;
        let output = Tensor::create(ElementType::Uint8, &[side, side, 1], &centered.pixels).map_err(Error::Failed)?;
        output.set_layout(Some(Layout::Hwc));
        output.set_color(Some(Color::Gray));
        Ok(vec![NamedValue { name: "image".into(), value: Value::Tensor(output) }])
    }
}

export!(CenterInk);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_names_the_real_default() {
        let default = format!("\"default\": {}\n", ink::Options::default().margin);
        assert!(OPTIONS_SCHEMA.contains(&default), "{default}");
    }
}
