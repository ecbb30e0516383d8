//! Steps from one image to another: an [`ImageOperation`] is what differs.

use serde::Serialize;
use serde_json::json;

use super::dims::{ImageDims, check_limits, supports_channels};
use crate::deadline::Deadline;
use crate::operation::{BuiltinStep, Inputs, Operation};
use crate::ports;
use gpux_core::{BuildError, ElementSet, Kind, Layout, Port, Signature, Step, StepFailure, Tensor, TensorKind, Value};

/// The options of a step that makes an image, height × width × channels, of another.
pub(super) trait ImageOperation: Serialize + Send + Sync + 'static {
    /// The step's name, for errors.
    const NAME: &'static str;
    /// One line about what comes out.
    const GIVES: &'static str;

    /// The element types that it takes and keeps.
    fn elements(&self) -> ElementSet {
        ElementSet::numeric()
    }

    /// Height and width of what becomes of an image of these sides, as far as they are known.
    fn target(&self, sides: [Option<usize>; 2]) -> Result<[Option<usize>; 2], String>;

    /// Whether it takes any number of channels, not 1, 3 or 4 only.
    fn takes_any_channels(&self) -> bool {
        false
    }

    /// The channels of the result for an image with this many; an error if they do not fit.
    fn channels(&self, channels: usize) -> Result<usize, String> {
        Ok(channels)
    }

    /// How many channels the result has whatever comes in.
    fn known_channels(&self) -> Option<usize> {
        None
    }

    /// Bytes taken for a while, beside the result.
    fn buffers(&self, tensor: &Tensor, dims: ImageDims) -> usize {
        let _ = (tensor, dims);
        0
    }

    /// The result, with its metadata. `target` was checked. Long work checks `deadline`.
    fn make(
        &self,
        tensor: Tensor,
        dims: ImageDims,
        target: ImageDims,
        deadline: &Deadline,
    ) -> Result<Tensor, StepFailure>;
}

/// A step with these options; an error where they cannot work on any image.
pub(super) fn image_step<T: ImageOperation>(options: T) -> Result<Box<dyn Step>, BuildError> {
    let error = |message| BuildError { option: Vec::new(), message, hint: None };
    let [height, width] = options.target([None, None]).map_err(error)?;
    if let (Some(height), Some(width)) = (height, width) {
        check_limits(height, width).map_err(error)?;
    }
    let image = |height, width, channels| Kind::Tensor(TensorKind::image(options.elements(), height, width, channels));
    let signature = Signature::unary(
        Port {
            description: if options.takes_any_channels() {
                "height × width × channels".into()
            } else {
                "height × width × channels, 1, 3 or 4 channels".into()
            },
            ..Port::new("image", image(None, None, None))
        },
        Port { description: T::GIVES.into(), ..Port::new("image", image(height, width, options.known_channels())) },
    );
    Ok(Box::new(BuiltinStep::new(signature, json!(options), ImageStep(options))))
}

struct ImageStep<T>(T);

impl<T: ImageOperation> Operation for ImageStep<T> {
    fn infer_tensor(&self, given: &TensorKind, outputs: &mut Vec<Kind>) -> Result<(), String> {
        let known = |axis: usize| given.shape.as_ref().and_then(|shape| shape.get(axis)).and_then(ports::fixed);
        let channels = match known(2) {
            Some(channels) if !supports_channels(channels) && !self.0.takes_any_channels() => {
                return Err(format!("there are {channels} channels on the last axis, not 1, 3 or 4"));
            }
            Some(channels) => Some(self.0.channels(channels)?),
            None => self.0.known_channels(),
        };
        let [height, width] = self.0.target([known(0), known(1)])?;
        if let (Some(height), Some(width)) = (height, width) {
            check_limits(height, width)?;
        }
        let elements = given.elements.intersection(self.0.elements());
        outputs[0] = Kind::Tensor(TensorKind::image(elements, height, width, channels));
        Ok(())
    }

    fn buffers(&self, inputs: &[Option<Value>]) -> usize {
        let given = ports::given_tensor(inputs).and_then(|tensor| Some((tensor, self.dims(tensor).ok()?)));
        given.map_or(0, |(tensor, dims)| self.0.buffers(tensor, dims))
    }

    fn run(&self, mut inputs: Inputs<'_>, deadline: &Deadline) -> Result<Vec<Value>, StepFailure> {
        let mut tensor = inputs.tensor()?;
        let dims = self.dims(&tensor)?;
        if !self.0.elements().contains(tensor.element()) {
            let message = format!("{} takes {}, but gets {}", T::NAME, self.0.elements(), tensor.element());
            return Err(StepFailure::InvalidInput(message));
        }
        let target = self.target(dims).map_err(StepFailure::InvalidInput)?;
        tensor.metadata.layout = Some(Layout::Hwc);
        Ok(vec![self.0.make(tensor, dims, target, deadline)?.into()])
    }
}

impl<T: ImageOperation> ImageStep<T> {
    fn dims(&self, tensor: &Tensor) -> Result<ImageDims, StepFailure> {
        if self.0.takes_any_channels() { ImageDims::with_any_channels(tensor) } else { ImageDims::from_tensor(tensor) }
    }

    fn target(&self, dims: ImageDims) -> Result<ImageDims, String> {
        let channels = self.0.channels(dims.channels)?;
        let [height, width] = self.0.target([Some(dims.height), Some(dims.width)])?;
        let target = ImageDims { height: height.unwrap_or(dims.height), width: width.unwrap_or(dims.width), channels };
        check_limits(target.height, target.width)?;
        target.check_samples()?;
        Ok(target)
    }
}
