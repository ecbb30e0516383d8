//! `to-tensor`: an image → a model's input.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::deadline::{Deadline, DeadlineExceeded, ELEMENTS_PER_CHECK};
use crate::operation::{BuiltinStep, Inputs, Operation};
use crate::ports;
use gpux_core::with_elements;
use gpux_core::{
    BuildError, Builtin, Color, Dim, ElementSet, ElementType, Group, Kind, Layout, Metadata, Port, Signature,
    StepFailure, Tensor, TensorData, TensorElement, TensorKind, Value,
};

/// Options of `to-tensor`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Options {
    /// The order of the axes: `chw` (default), channels first, or `hwc`, channels last.
    layout: Order,
    /// Whether to add a first axis of one for the batch. Default: true.
    batch: bool,
    /// The element type: `float32` (default), `float16`, `bfloat16`, `float64` or `uint8`. Numbers
    /// are cut off, not rounded, where floats become uint8.
    element: Element,
    /// Whether uint8 is divided by 255 and uint16 by 65535, as torchvision's `ToTensor` does; other
    /// types stay as they are. Default: false.
    scale: bool,
    /// The order of the channels: `rgb` or `bgr`. Default: as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    channels: Option<Channels>,
}

impl Default for Options {
    fn default() -> Self {
        Self { layout: Order::Chw, batch: true, element: Element::Float32, scale: false, channels: None }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Order {
    Chw,
    Hwc,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Element {
    Float32,
    Float16,
    Bfloat16,
    Float64,
    Uint8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Channels {
    Rgb,
    Bgr,
}

impl Order {
    const fn layout(self) -> Layout {
        match self {
            Self::Chw => Layout::Chw,
            Self::Hwc => Layout::Hwc,
        }
    }
}

impl Element {
    const fn element(self) -> ElementType {
        match self {
            Self::Float32 => ElementType::Float32,
            Self::Float16 => ElementType::Float16,
            Self::Bfloat16 => ElementType::Bfloat16,
            Self::Float64 => ElementType::Float64,
            Self::Uint8 => ElementType::Uint8,
        }
    }
}

/// Brings an image into the axes, the element type and the order of channels that a model takes.
struct ToTensor {
    options: Options,
}

pub(super) fn builtin() -> Builtin {
    Builtin {
        name: "to-tensor",
        summary: "Turns an image into the axes, element type and channel order of a model",
        group: Group::Image,
        follows: "torchvision: ToTensor, PILToTensor; NumPy: transpose, astype",
        example: "to-tensor: { element: float32, scale: true }",
        schema: || schemars::schema_for!(Options),
        build: |options, _| Ok(Box::new(ToTensor::new(ports::options(options)?)?)),
    }
}

impl ToTensor {
    fn new(options: Options) -> Result<BuiltinStep<Self>, BuildError> {
        if options.scale && options.element == Element::Uint8 {
            return Err(BuildError::option("scale", "`scale` gives 0 to 1, which `element: uint8` cannot hold"));
        }
        let numbers = Kind::Tensor(TensorKind::of_elements(ElementSet::numeric()));
        let mut made = TensorKind::of_elements(options.element.element());
        made.layout = Some(options.layout.layout());
        let signature = Signature::unary(
            Port {
                description: "height × width × channels, or channels first where it is known to be".into(),
                ..Port::new("image", numbers)
            },
            Port { description: "what a model takes".into(), ..Port::new("tensor", Kind::Tensor(made)) },
        );
        Ok(BuiltinStep::new(signature, json!(options), Self { options }))
    }

    /// An axis order after the step; an error if it has not three axes.
    fn shape<T: Clone>(&self, shape: &[T], from: Layout, one: T) -> Result<Vec<T>, String> {
        let [first, second, third] = shape else {
            return Err(format!("an image has 3 axes, but there are {}", shape.len()));
        };
        let (height, width, channels) =
            if from == Layout::Hwc { (first, second, third) } else { (second, third, first) };
        let mut shape = if self.options.batch { vec![one] } else { Vec::new() };
        shape.extend(match self.options.layout {
            Order::Chw => [channels, height, width].map(T::clone),
            Order::Hwc => [height, width, channels].map(T::clone),
        });
        Ok(shape)
    }

    /// The channels in the requested order, and their meaning.
    fn channels(&self, metadata: &Metadata, channels: usize) -> Result<(Vec<usize>, Option<Color>), String> {
        let as_they_are = (0..channels).collect();
        let Some(wanted) = self.options.channels else { return Ok((as_they_are, metadata.color)) };
        if channels != 3 {
            return Err(format!("`channels` orders red, green and blue, but the image has {channels} channels"));
        }
        let wanted = if wanted == Channels::Rgb { Color::Rgb } else { Color::Bgr };
        let given = metadata.color.unwrap_or(Color::Rgb);
        Ok((if given == wanted { as_they_are } else { vec![2, 1, 0] }, Some(wanted)))
    }
}

impl Operation for ToTensor {
    fn infer_tensor(&self, given: &TensorKind, outputs: &mut Vec<Kind>) -> Result<(), String> {
        let (Some(shape), Kind::Tensor(made)) = (&given.shape, &mut outputs[0]) else { return Ok(()) };
        let from = given.layout.unwrap_or(Layout::Hwc);
        made.shape = Some(self.shape(shape, from, Dim::Fixed(1))?);
        if let Some(channels) = ports::fixed(&shape[if from == Layout::Hwc { 2 } else { 0 }]) {
            self.channels(&Metadata::default(), channels)?;
        }
        Ok(())
    }

    fn buffers(&self, inputs: &[Option<Value>]) -> usize {
        let Some(tensor) = ports::given_tensor(inputs) else { return 0 };
        let shape = tensor.shape();
        let channels = if tensor.metadata.layout == Some(Layout::Chw) { shape.first() } else { shape.last() };
        // Moved, as float32 before it is halved or doubled, and the order of the channels.
        let order = channels.map_or(0, |channels| channels.saturating_mul(size_of::<usize>()));
        tensor.byte_len().saturating_add(tensor.len().saturating_mul(4)).saturating_add(order)
    }

    fn run(&self, mut inputs: Inputs<'_>, deadline: &Deadline) -> Result<Vec<Value>, StepFailure> {
        let tensor = inputs.tensor()?;
        if !ElementSet::numeric().contains(tensor.element()) {
            let message = format!("to-tensor takes numbers, but gets {}", tensor.element());
            return Err(StepFailure::InvalidInput(message));
        }
        let mut metadata = tensor.metadata;
        let from = metadata.layout.unwrap_or(Layout::Hwc);
        let shape = self.shape(tensor.shape(), from, 1).map_err(StepFailure::InvalidInput)?;
        let channels = tensor.shape()[if from == Layout::Hwc { 2 } else { 0 }];
        let (order, color) = self.channels(&metadata, channels).map_err(StepFailure::InvalidInput)?;
        metadata.layout = Some(self.options.layout.layout());
        metadata.color = color;
        if let (TensorData::Uint8(data), Layout::Hwc, 1 | 3 | 4) = (tensor.data(), from, channels)
            && self.options.layout == Order::Chw
            && self.options.element == Element::Float32
        {
            let most = if self.options.scale { 255.0 } else { 1.0 };
            let floats = match channels {
                1 => planes::<1>(data, &order, most, deadline)?,
                3 => planes::<3>(data, &order, most, deadline)?,
                _ => planes::<4>(data, &order, most, deadline)?,
            };
            return Ok(vec![Tensor::new(shape, floats)?.with_metadata(metadata).into()]);
        }
        let same = from == self.options.layout.layout() && order.is_sorted();
        let moved = if same || tensor.is_empty() {
            tensor
        } else {
            with_elements!(tensor.data(), data => arrange(data, &order, from, self.options.layout.layout(), deadline))?
        };
        Ok(vec![self.cast(moved.reshape(shape)?, deadline)?.with_metadata(metadata).into()])
    }
}

impl ToTensor {
    fn cast(&self, tensor: Tensor, deadline: &Deadline) -> Result<Tensor, StepFailure> {
        let most = match tensor.element() {
            ElementType::Uint8 if self.options.scale => 255.0,
            ElementType::Uint16 if self.options.scale => 65535.0,
            _ => return Ok(tensor.cast_cancellable(self.options.element.element(), deadline)?),
        };
        let mut floats = tensor.cast_cancellable(ElementType::Float32, deadline)?;
        if let Some(data) = floats.as_mut_slice::<f32>() {
            for block in data.chunks_mut(ELEMENTS_PER_CHECK) {
                deadline.check_after(block.len())?;
                for value in block {
                    *value /= most;
                }
            }
        }
        Ok(floats.cast_cancellable(self.options.element.element(), deadline)?)
    }
}

/// The most common case in one pass: channels first, as floats.
fn planes<const C: usize>(
    data: &[u8],
    order: &[usize],
    most: f32,
    deadline: &Deadline,
) -> Result<Vec<f32>, DeadlineExceeded> {
    let (pixels, _) = data.as_chunks::<C>();
    let mut result = Vec::with_capacity(data.len());
    for channel in order {
        // Always below C; stated so that the loop has no bounds checks.
        let channel = channel % C;
        for block in pixels.chunks(ELEMENTS_PER_CHECK) {
            deadline.check_after(block.len())?;
            result.extend(block.iter().map(|pixel| f32::from(pixel[channel]) / most));
        }
    }
    Ok(result)
}

/// The elements in another order of axes and channels, flat.
fn arrange<T: TensorElement>(
    data: &[T],
    order: &[usize],
    from: Layout,
    to: Layout,
    deadline: &Deadline,
) -> Result<Tensor, StepFailure> {
    let channels = order.len();
    let pixels = data.len() / channels;
    let mut result = Vec::with_capacity(data.len());
    let (step, plane) = if from == Layout::Hwc { (channels, 1) } else { (1, pixels) };
    match to {
        Layout::Chw => {
            for channel in order {
                for pixel in (0..pixels).step_by(ELEMENTS_PER_CHECK) {
                    let count = ELEMENTS_PER_CHECK.min(pixels - pixel);
                    deadline.check_after(count)?;
                    result.extend(data[channel * plane + pixel * step..].iter().step_by(step).take(count).cloned());
                }
            }
        }
        Layout::Hwc => {
            for pixel in 0..pixels {
                deadline.check_after(channels)?;
                result.extend(order.iter().map(|channel| data[pixel * step + channel * plane].clone()));
            }
        }
    }
    Ok(Tensor::new([data.len()], result)?)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use super::*;
    use crate::reference;
    use gpux_core::Context;

    fn run(options: serde_json::Value, tensor: Tensor) -> Result<Tensor, StepFailure> {
        let step = reference::step("to-tensor", options);
        let mut values = step.run(vec![Some(tensor.into())], &mut Context::default())?;
        Ok(values.remove(0).as_tensor().unwrap().clone())
    }

    fn image() -> Tensor {
        let metadata = Metadata { layout: Some(Layout::Hwc), color: Some(Color::Rgb), ..Metadata::default() };
        Tensor::new([1, 2, 3], vec![0_u8, 51, 102, 153, 204, 255]).unwrap().with_metadata(metadata)
    }

    #[test]
    fn rejects_channel_order_of_other_images_when_planned() {
        let infer = |channels| {
            let image = TensorKind::image(ElementType::Uint8, None, None, Some(channels));
            reference::step("to-tensor", json!({"channels": "bgr"}))
                .infer(&[Some(Kind::Tensor(image))])
                .map_err(|why| why.to_string())
        };
        for channels in [1, 4] {
            assert!(infer(channels).unwrap_err().contains("orders red, green and blue"), "{channels}");
        }
        assert!(infer(3).is_ok());
    }

    #[test]
    fn updates_metadata() {
        let tensor = run(json!({"channels": "bgr"}), image()).unwrap();
        assert_eq!(tensor.shape(), [1, 3, 1, 2]);
        assert_eq!(tensor.as_slice::<f32>().unwrap(), [102.0, 255.0, 51.0, 204.0, 0.0, 153.0]);
        assert_eq!((tensor.metadata.layout, tensor.metadata.color), (Some(Layout::Chw), Some(Color::Bgr)));
        let tensor = run(json!({"batch": false, "channels": "bgr", "scale": true}), image()).unwrap();
        let back = json!({"layout": "hwc", "channels": "rgb", "batch": false});
        let back = run(back, tensor).unwrap();
        assert_eq!(back.shape(), [1, 2, 3]);
        for (value, expected) in back.as_slice::<f32>().unwrap().iter().zip([0.0, 0.2, 0.4, 0.6, 0.8, 1.0]) {
            assert!((value - expected).abs() < 1e-7);
        }
        assert_eq!(back.metadata, image().metadata);
    }

    #[test]
    fn infers_type_and_shape() {
        let infer = |options, layout, shape: &[Dim]| {
            let kind = TensorKind { layout, ..TensorKind::shaped(ElementType::Uint8, shape) };
            let step = reference::step("to-tensor", options);
            step.infer(&[Some(Kind::Tensor(kind))]).map(|kinds| kinds[0].to_string())
        };
        let shape = [Dim::Fixed(4), Dim::Dynamic, Dim::Fixed(3)];
        assert_eq!(infer(json!({}), None, &shape).unwrap(), "tensor float32[1, 3, 4, ?] CHW");
        let options = json!({"layout": "hwc", "batch": false, "element": "float16"});
        assert_eq!(infer(options, Some(Layout::Chw), &shape).unwrap(), "tensor float16[?, 3, 4] HWC");
        assert!(infer(json!({}), None, &shape[..2]).unwrap_err().to_string().contains("3 axes"));
    }

    #[test]
    fn handles_empty_and_invalid_inputs() {
        for tensor in [
            Tensor::new([0, 3], Vec::<u8>::new()).unwrap(),
            Tensor::new([1, 1, 1], vec![true]).unwrap(),
            Tensor::new([1, 1, 1], vec![String::new()]).unwrap(),
            Tensor::new([1, 1, 1, 1], vec![0_u8]).unwrap(),
        ] {
            assert!(matches!(run(json!({}), tensor), Err(StepFailure::InvalidInput(_))));
        }
        let gray = Tensor::new([1, 1, 1], vec![0_u8]).unwrap();
        assert!(matches!(run(json!({"channels": "bgr"}), gray), Err(StepFailure::InvalidInput(_))));
        assert_eq!(run(json!({}), Tensor::new([0, 4, 3], Vec::<u8>::new()).unwrap()).unwrap().shape(), [1, 3, 0, 4]);
        assert_eq!(run(json!({}), Tensor::new([4, 4, 0], Vec::<u8>::new()).unwrap()).unwrap().shape(), [1, 0, 4, 4]);
        for options in
            [json!({"element": "string"}), json!({"scale": true, "element": "uint8"}), json!({"layout": "nchw"})]
        {
            assert!(reference::build(builtin(), options.clone()).is_err(), "{options}");
        }
    }
}
