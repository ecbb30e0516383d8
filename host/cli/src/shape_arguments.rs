//! Sizes for dimensions that a model leaves open, as the command line gives them.

use clap::Args;

use gpux_inference::{FixedShapes, ModelInfo, ShapeError};

/// The sizes.
#[derive(Debug, Args)]
pub(super) struct ShapeArguments {
    /// The shape of a model's input (`?` leaves an axis as it is); may be repeated. With `build`, a
    /// model is made that has it; with `inspect --nodes`, the model is run with it
    #[arg(long, value_name = "INPUT=1,3,224,224", value_parser = shape)]
    shape: Vec<(String, Vec<Option<usize>>)>,

    /// The size of a model's open dimension NAME, wherever it stands; may be repeated
    #[arg(long, value_name = "NAME=SIZE", value_parser = dim)]
    dim: Vec<(String, usize)>,
}

impl ShapeArguments {
    /// Whether no shape is given.
    pub(super) const fn is_empty(&self) -> bool {
        self.shape.is_empty() && self.dim.is_empty()
    }

    /// The sizes, for this model.
    pub(super) fn resolve(&self, info: &ModelInfo) -> Result<FixedShapes, ShapeError> {
        let mut shapes = FixedShapes::default();
        for (name, size) in &self.dim {
            shapes.fix(info, name, *size)?;
        }
        for (input, sizes) in &self.shape {
            shapes.fix_input(info, input, sizes)?;
        }
        Ok(shapes)
    }
}

fn shape(text: &str) -> Result<(String, Vec<Option<usize>>), String> {
    let wrong = || "write INPUT=SIZES, for example `image=1,3,224,224`; `?` leaves an axis as it is".to_owned();
    let (input, sizes) = text.rsplit_once('=').filter(|(input, _)| !input.is_empty()).ok_or_else(wrong)?;
    let size = |size: &str| match size.trim() {
        "?" | "-1" => Ok(None),
        size => size.parse().map(Some).map_err(|_| wrong()),
    };
    Ok((input.to_owned(), sizes.split([',', 'x']).map(size).collect::<Result<_, _>>()?))
}

fn dim(text: &str) -> Result<(String, usize), String> {
    let wrong = || "write NAME=SIZE, for example `batch=1`".to_owned();
    let (name, size) = text.rsplit_once('=').filter(|(name, _)| !name.is_empty()).ok_or_else(wrong)?;
    Ok((name.to_owned(), size.parse().map_err(|_| wrong())?))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn parses_shapes_and_dimensions() {
        assert_eq!(shape("image=1,3,?,-1").unwrap(), ("image".to_owned(), vec![Some(1), Some(3), None, None]));
        assert_eq!(shape("a=b=1x8").unwrap(), ("a=b".to_owned(), vec![Some(1), Some(8)]));
        assert_eq!(dim("batch=4").unwrap(), ("batch".to_owned(), 4));
        for wrong in ["image", "=1,2", "image=1,two", "image="] {
            assert!(shape(wrong).is_err(), "{wrong}");
        }
        assert!(dim("batch=-1").is_err() && dim("=1").is_err() && dim("batch").is_err());
    }
}
