//! `normalize`: pixel values → the float32 numbers that a model was trained on.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::min_max::{StretchGroups, stretch};
use crate::deadline::{Deadline, DeadlineExceeded, ELEMENTS_PER_CHECK, rows_per_check};
use crate::operation::{BuiltinStep, Inputs, Operation};
use crate::ports;
use gpux_core::{
    BuildError, Builtin, ElementSet, ElementType, Group, Kind, Layout, Port, Signature, StepFailure, Tensor,
    TensorData, TensorElement, TensorKind, Value,
};

/// Most channels that `mean` and `std` may list.
const MAX_CHANNELS: usize = 4096;

/// Elements that are worked on at a stretch, so that the loop is vectorized whatever the channels.
const STRETCH: usize = 96;

/// Options of `normalize`: `method`, or any of the others. Each value x becomes
/// `(x × scale + offset - mean) / std`.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Options {
    /// A convention, for values of 0 to 255: `imagenet` (to 0..1, then the mean and deviation of
    /// `ImageNet` per RGB channel, as torchvision), `clip` (the same with CLIP's numbers), `unit` or `0-1`
    /// (x / 255), `tf` or `-1-1` (x / 127.5 - 1). Or, for values of any range, `min-max`: to 0..1 by
    /// the least and the largest value of the image itself. No default.
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<Method>,
    /// With `min-max`, what has a least and a largest value of its own: each `image` (default; of a
    /// batch, four axes, each one) or each `channel` of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    per: Option<Per>,
    /// What each value is multiplied by first. Default: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    scale: Option<f64>,
    /// What is added after `scale`. Default: 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<f64>,
    /// What is subtracted then: one number, or one for each channel. Default: 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    mean: Option<PerChannel>,
    /// What is divided by last: one number, or one for each channel; not 0. Default: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    std: Option<PerChannel>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(inline)]
enum Method {
    #[serde(rename = "imagenet")]
    Imagenet,
    #[serde(rename = "clip")]
    Clip,
    #[serde(rename = "unit")]
    Unit,
    #[serde(rename = "0-1")]
    ZeroToOne,
    #[serde(rename = "tf")]
    Tf,
    #[serde(rename = "-1-1")]
    MinusOneToOne,
    #[serde(rename = "min-max")]
    MinMax,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Per {
    Image,
    Channel,
}

#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
enum PerChannel {
    All(f64),
    Each(Vec<f64>),
}

impl PerChannel {
    fn values(&self) -> &[f64] {
        match self {
            Self::All(value) => std::slice::from_ref(value),
            Self::Each(values) => values,
        }
    }
}

/// Scales and shifts numbers: `(x × scale + offset - mean) / std`, to float32.
///
/// Follows torchvision's `ToTensor` + `Normalize` (`NumPy` in float32), up to the last bit or two: the
/// four numbers are folded into one multiplication and one addition. A float32 tensor without other
/// owners is changed in place. The tensor's layout tells the axis of the channels; without one, it is
/// the last axis if that has as many entries as `mean` or `std`, else on the third from the end.
struct Normalize {
    options: Options,
    /// one multiplier and one addend for each channel, or for all; none for `min-max`
    factors: Vec<Factor>,
}

#[derive(Clone, Copy, Debug)]
struct Factor {
    multiply: f32,
    add: f32,
}

pub(super) fn builtin() -> Builtin {
    Builtin {
        name: "normalize",
        summary: "Scales and shifts numbers to what the model was trained on, as float32",
        group: Group::Image,
        follows: "NumPy: (x × scale + offset - mean) / std; scikit-learn: minmax_scale",
        example: "normalize: { method: imagenet }",
        schema: || schemars::schema_for!(Options),
        build: |options, _| Ok(Box::new(Normalize::new(ports::options(options)?)?)),
    }
}

impl Normalize {
    fn new(options: Options) -> Result<BuiltinStep<Self>, BuildError> {
        let min_max = options.method == Some(Method::MinMax);
        if options.per.is_some() && !min_max {
            return Err(BuildError::option("per", "`per` is for `method: min-max`"));
        }
        let factors = if min_max && !others(&options) { Vec::new() } else { factors(&options)? };
        let signature = Signature::unary(
            Port {
                description: "numbers, such as the pixels of an image".into(),
                ..Port::new("tensor", Kind::Tensor(TensorKind::of_elements(ElementSet::numeric())))
            },
            Port {
                description: "the same, normalized".into(),
                ..Port::new("tensor", Kind::Tensor(TensorKind::of_elements(ElementType::Float32)))
            },
        );
        Ok(BuiltinStep::new(signature, json!(options), Self { options, factors }))
    }

    /// How many elements of one channel lie side by side in a tensor of this shape; an error if the
    /// channels do not fit. `shape` holds `None` where the plan does not know.
    fn run_length(&self, shape: &[Option<usize>], layout: Option<Layout>) -> Result<Option<usize>, String> {
        let channels = self.factors.len();
        if channels <= 1 {
            return Ok(shape.iter().copied().product());
        }
        let last = shape.len().checked_sub(1);
        let third = shape.len().checked_sub(3);
        let axis = match layout {
            Some(Layout::Hwc) => last,
            Some(Layout::Chw) => third,
            None => last.filter(|axis| shape[*axis].is_none_or(|size| size == channels)).or(third).or(last),
        };
        let Some(axis) = axis else { return Err(format!("there are {} axes", shape.len())) };
        match shape[axis] {
            Some(size) if size != channels => {
                let name = if self.options.method.is_some() { "the method has" } else { "`mean` and `std` have" };
                Err(format!("{name} {channels} channels, but axis {axis} is {size}"))
            }
            _ => Ok(shape[axis + 1..].iter().copied().product()),
        }
    }
}

impl Normalize {
    /// The groups that are stretched together in a tensor of this shape.
    fn groups(&self, shape: &[usize], layout: Option<Layout>) -> Result<StretchGroups, String> {
        let image = if shape.len() > 3 { &shape[shape.len() - 3..] } else { shape };
        let size = image.iter().product();
        if self.options.per != Some(Per::Channel) {
            return Ok(StretchGroups { image: size, channels: 1, run: size });
        }
        let [first, second, third] = *image else {
            return Err(format!("a channel of its own needs 3 axes, but there are {}", shape.len()));
        };
        let last = layout.map_or(matches!(third, 1 | 3 | 4), |layout| layout == Layout::Hwc);
        let (channels, run) = if last { (third, 1) } else { (first, second * third) };
        Ok(StretchGroups { image: size, channels, run })
    }
}

impl Operation for Normalize {
    fn infer_tensor(&self, given: &TensorKind, outputs: &mut Vec<Kind>) -> Result<(), String> {
        if let Some(shape) = &given.shape {
            let shape: Vec<_> = shape.iter().map(ports::fixed).collect();
            self.run_length(&shape, given.layout)?;
            // The sizes do not matter, the number of axes does.
            let sizes: Vec<_> = shape.iter().map(|size| size.unwrap_or(1)).collect();
            self.groups(&sizes, given.layout)?;
        }
        outputs[0] = Kind::Tensor(TensorKind { elements: ElementType::Float32.into(), ..given.clone() });
        Ok(())
    }

    fn run(&self, mut inputs: Inputs<'_>, deadline: &Deadline) -> Result<Vec<Value>, StepFailure> {
        let mut tensor = inputs.tensor()?;
        if !ElementSet::numeric().contains(tensor.element()) {
            let message = format!("normalize takes numbers, but gets {}", tensor.element());
            return Err(StepFailure::InvalidInput(message));
        }
        let shape: Vec<_> = tensor.shape().iter().copied().map(Some).collect();
        let run = self.run_length(&shape, tensor.metadata.layout).map_err(StepFailure::InvalidInput)?.unwrap_or(0);
        if tensor.is_empty() {
            return Ok(vec![tensor.cast(ElementType::Float32)?.into()]);
        }
        if self.factors.is_empty() {
            let groups = self.groups(tensor.shape(), tensor.metadata.layout).map_err(StepFailure::InvalidInput)?;
            let mut tensor = tensor.cast_cancellable(ElementType::Float32, deadline)?;
            if let Some(data) = tensor.as_mut_slice::<f32>() {
                stretch(data, groups, deadline)?;
            }
            return Ok(vec![tensor.into()]);
        }
        if let TensorData::Uint8(data) = tensor.data() {
            let normalized = normalize_elements(data, run, &self.factors, deadline)?;
            return Ok(vec![Tensor::new(tensor.shape(), normalized)?.with_metadata(tensor.metadata).into()]);
        }
        if let TensorData::Float32(data) = tensor.data()
            && data.is_shared()
        {
            let normalized = normalize_elements(data, run, &self.factors, deadline)?;
            return Ok(vec![Tensor::new(tensor.shape(), normalized)?.with_metadata(tensor.metadata).into()]);
        }
        if tensor.element() != ElementType::Float32 {
            tensor = tensor.cast_cancellable(ElementType::Float32, deadline)?;
        }
        if let Some(data) = tensor.as_mut_slice::<f32>() {
            normalize(data, run, &self.factors, deadline)?;
        }
        Ok(vec![tensor.into()])
    }
}

/// Scale, mean and deviation of a convention; for values of 0 to 255.
const fn preset(method: Method) -> (f64, &'static [f64], &'static [f64]) {
    match method {
        Method::Imagenet => (1.0 / 255.0, &[0.485, 0.456, 0.406], &[0.229, 0.224, 0.225]),
        Method::Clip => {
            (1.0 / 255.0, &[0.481_454_66, 0.457_827_5, 0.408_210_73], &[0.268_629_54, 0.261_302_58, 0.275_777_11])
        }
        Method::Unit | Method::ZeroToOne => (1.0 / 255.0, &[0.0], &[1.0]),
        Method::Tf | Method::MinusOneToOne => (1.0 / 127.5, &[1.0], &[1.0]),
        Method::MinMax => (1.0, &[0.0], &[1.0]),
    }
}

/// Whether the numbers are said beside, or instead of, a method.
const fn others(options: &Options) -> bool {
    options.scale.is_some() || options.offset.is_some() || options.mean.is_some() || options.std.is_some()
}

fn factors(options: &Options) -> Result<Vec<Factor>, BuildError> {
    let others = others(options);
    let (scale, offset, mean, std) = match options.method {
        Some(_) if others => {
            return Err(BuildError::option("method", "`method` already says scale, offset, mean and std")
                .with_hint("write `method`, or the numbers, not both"));
        }
        Some(method) => {
            let (scale, mean, std) = preset(method);
            (scale, 0.0, mean.to_vec(), std.to_vec())
        }
        None if !others => {
            return Err(BuildError { option: Vec::new(), message: "normalize needs to know how".into(), hint: None }
                .with_hint("for example `normalize: { method: imagenet }` or `normalize: { scale: 0.00392 }`"));
        }
        None => {
            let list = |values: &Option<PerChannel>, default| {
                values.as_ref().map_or_else(|| vec![default], |values| values.values().to_vec())
            };
            let (mean, std) = (list(&options.mean, 0.0), list(&options.std, 1.0));
            (options.scale.unwrap_or(1.0), options.offset.unwrap_or(0.0), mean, std)
        }
    };
    for (name, values) in [("mean", &mean), ("std", &std)] {
        if !(1..=MAX_CHANNELS).contains(&values.len()) {
            let message = format!("`{name}` lists {} numbers, not 1 to {MAX_CHANNELS}", values.len());
            return Err(BuildError::option(name, message));
        }
    }
    if mean.len() != std.len() && mean.len() != 1 && std.len() != 1 {
        let message = format!("`mean` has {} channels, but `std` has {}", mean.len(), std.len());
        return Err(BuildError::option("std", message));
    }
    let channels = mean.len().max(std.len());
    let nth = |values: &[f64], index: usize| values[if values.len() == 1 { 0 } else { index }];
    let factor = |index: usize| {
        let std = nth(&std, index);
        let multiply = (scale / std) as f32;
        let add = ((offset - nth(&mean, index)) / std) as f32;
        if std == 0.0 {
            return Err(BuildError::option("std", "`std` must not be 0: it is divided by"));
        }
        if !multiply.is_finite() || !add.is_finite() {
            let message = format!("channel {index} would be multiplied by {multiply} and moved by {add}");
            return Err(BuildError { option: Vec::new(), message, hint: None });
        }
        Ok(Factor { multiply, add })
    };
    (0..channels).map(factor).collect()
}

/// A number that becomes a float32 in one instruction.
trait ToF32: TensorElement + Copy {
    fn to_f32(self) -> f32;
}
impl ToF32 for u8 {
    fn to_f32(self) -> f32 {
        f32::from(self)
    }
}
impl ToF32 for f32 {
    fn to_f32(self) -> f32 {
        self
    }
}

/// The factors in the order of a channels-last row, repeated to about [`STRETCH`] elements.
fn repeat_factors(factors: &[Factor]) -> Vec<Factor> {
    let repeats = (STRETCH / factors.len()).max(1);
    factors.iter().copied().cycle().take(repeats * factors.len()).collect()
}

fn normalize_elements<T: ToF32>(
    data: &[T],
    run: usize,
    factors: &[Factor],
    deadline: &Deadline,
) -> Result<Vec<f32>, DeadlineExceeded> {
    let mut result = Vec::with_capacity(data.len());
    if run == 1 {
        let factors = repeat_factors(factors);
        for block in data.chunks(rows_per_check(factors.len()) * factors.len()) {
            deadline.check_after(block.len())?;
            for part in block.chunks(factors.len()) {
                result.extend(part.iter().zip(&factors).map(|(x, by)| x.to_f32() * by.multiply + by.add));
            }
        }
    } else {
        for (part, by) in data.chunks(run).zip(factors.iter().cycle()) {
            for block in part.chunks(ELEMENTS_PER_CHECK) {
                deadline.check_after(block.len())?;
                result.extend(block.iter().map(|x| x.to_f32() * by.multiply + by.add));
            }
        }
    }
    Ok(result)
}

fn normalize(data: &mut [f32], run: usize, factors: &[Factor], deadline: &Deadline) -> Result<(), DeadlineExceeded> {
    if run == 1 {
        let factors = repeat_factors(factors);
        for block in data.chunks_mut(rows_per_check(factors.len()) * factors.len()) {
            deadline.check_after(block.len())?;
            for part in block.chunks_mut(factors.len()) {
                for (x, by) in part.iter_mut().zip(&factors) {
                    *x = *x * by.multiply + by.add;
                }
            }
        }
    } else {
        for (part, by) in data.chunks_mut(run).zip(factors.iter().cycle()) {
            for block in part.chunks_mut(ELEMENTS_PER_CHECK) {
                deadline.check_after(block.len())?;
                for x in block {
                    *x = *x * by.multiply + by.add;
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use super::*;
    use gpux_core::{Context, Dim, Metadata, Step};

    fn step(options: serde_json::Value) -> Result<Box<dyn Step>, BuildError> {
        crate::reference::build(builtin(), options)
    }

    fn run(options: serde_json::Value, tensor: Tensor) -> Result<Tensor, StepFailure> {
        let mut values = step(options).unwrap().run(vec![Some(tensor.into())], &mut Context::default())?;
        Ok(values.remove(0).as_tensor().unwrap().clone())
    }

    #[test]
    fn unshared_tensors_are_changed_in_place() {
        let tensor = Tensor::new([2, 3], vec![1_f32; 6]).unwrap();
        let before = tensor.as_slice::<f32>().unwrap().as_ptr();
        let result = run(json!({"scale": 2}), tensor).unwrap();
        assert_eq!(result.as_slice::<f32>().unwrap().as_ptr(), before);
        let shared = result.clone();
        assert_eq!(run(json!({"scale": 2}), shared).unwrap().as_slice::<f32>().unwrap(), [4.0; 6]);
        assert_eq!(result.as_slice::<f32>().unwrap(), [2.0; 6]);
    }

    #[test]
    fn stops_at_the_deadline() {
        let factors = [Factor { multiply: 2.0, add: 1.0 }; 3];
        let mut data = vec![1_f32; 3 << 20];
        for run in [1, 1 << 20] {
            let whole = normalize_elements(&data, run, &factors, &Deadline::exceeded_after(9)).unwrap();
            assert_eq!((whole.len(), whole[0], whole.last()), (3 << 20, 3.0, Some(&3.0)));
            assert_eq!(normalize_elements(&data, run, &factors, &Deadline::exceeded_after(1)), Err(DeadlineExceeded));
            assert_eq!(
                normalize(&mut data.clone(), run, &factors, &Deadline::exceeded_after(1)),
                Err(DeadlineExceeded)
            );
        }
        for (channels, run) in [(1, 3 << 20), (3, 1), (3, 1 << 20)] {
            let groups = StretchGroups { image: 3 << 20, channels, run };
            assert_eq!(
                stretch(&mut data.clone(), groups, &Deadline::exceeded_after(1)),
                Err(DeadlineExceeded),
                "{groups:?}"
            );
            assert_eq!(stretch(&mut data, groups, &Deadline::exceeded_after(99)), Ok(()));
        }
    }

    #[test]
    fn rejects_channels_without_axes_when_planned() {
        let step = |per| crate::reference::step("normalize", json!({"method": "min-max", "per": per}));
        let kind = |axes: usize| Kind::Tensor(TensorKind::shaped(ElementType::Uint8, vec![Dim::Dynamic; axes]));
        for axes in [1, 2] {
            let why = step("channel").infer(&[Some(kind(axes))]).unwrap_err().to_string();
            assert!(why.contains("a channel of its own needs 3 axes"), "{why}");
            assert!(step("image").infer(&[Some(kind(axes))]).is_ok());
        }
        assert!(step("channel").infer(&[Some(kind(3))]).is_ok() && step("channel").infer(&[Some(kind(4))]).is_ok());
    }

    #[test]
    fn applies_scale_offset_mean_std_in_order() {
        let tensor = Tensor::new([1], vec![10_i32]).unwrap();
        let result = run(json!({"scale": 3, "offset": 5, "mean": 1, "std": 2}), tensor).unwrap();
        assert_eq!(result.as_slice::<f32>().unwrap(), [17.0]);
    }

    #[test]
    fn long_rows_of_any_channels_agree() {
        for channels in [2, 3, 5, 97] {
            let mean: Vec<f64> = (0..channels).map(f64::from).collect();
            let pixels: Vec<u8> = (0..channels * 101).map(|index| (index % 251) as u8).collect();
            let expected: Vec<f32> = pixels
                .iter()
                .enumerate()
                .map(|(index, x)| f32::from(*x) - (index % channels as usize) as f32)
                .collect();
            let tensor = Tensor::new([101, 1, channels as usize], pixels).unwrap();
            let result = run(json!({"mean": mean}), tensor).unwrap();
            assert_eq!(result.as_slice::<f32>().unwrap(), expected);
        }
    }

    #[test]
    fn rejects_unexpected_channel_counts() {
        use Dim::{Dynamic, Fixed};

        let imagenet = step(json!({"method": "imagenet"})).unwrap();
        let infer = |layout, shape: &[Dim]| {
            let kind = TensorKind { layout, ..TensorKind::shaped(ElementType::Uint8, shape) };
            imagenet.infer(&[Some(Kind::Tensor(kind))]).map(|kinds| kinds[0].to_string())
        };
        assert_eq!(infer(Some(Layout::Hwc), &[Dynamic, Fixed(4), Fixed(3)]).unwrap(), "tensor float32[?, 4, 3] HWC");
        assert_eq!(infer(None, &[Fixed(1), Fixed(3), Dynamic, Fixed(9)]).unwrap(), "tensor float32[1, 3, ?, 9]");
        let error = infer(Some(Layout::Hwc), &[Fixed(8), Fixed(8), Fixed(1)]).unwrap_err().to_string();
        assert!(error.contains("the method has 3 channels, but axis 2 is 1"), "{error}");
        assert!(infer(Some(Layout::Chw), &[Fixed(1), Fixed(8), Fixed(8)]).is_err());
        assert!(infer(None, &[]).is_err());
        let gray = Tensor::new([2, 2, 1], vec![0_u8; 4]).unwrap();
        let gray = gray.with_metadata(Metadata { layout: Some(Layout::Hwc), ..Metadata::default() });
        assert!(matches!(run(json!({"method": "imagenet"}), gray), Err(StepFailure::InvalidInput(_))));
        assert!(run(json!({"method": "imagenet"}), Tensor::scalar(1_u8)).is_err());
        for tensor in [Tensor::new([1], vec![true]).unwrap(), Tensor::new([1], vec![String::new()]).unwrap()] {
            assert!(matches!(run(json!({"scale": 1}), tensor), Err(StepFailure::InvalidInput(_))));
        }
        let none = Tensor::new([0, 4, 3], Vec::<u8>::new()).unwrap();
        assert_eq!(run(json!({"method": "imagenet"}), none).unwrap().element(), ElementType::Float32);
    }

    #[test]
    fn stretches_special_values_as_numpy_does() {
        let stretched = |options: serde_json::Value, shape: &[usize], data: Vec<f32>| {
            run(options, Tensor::new(shape, data).unwrap()).unwrap().as_slice::<f32>().unwrap().to_vec()
        };
        let whole = || json!({"method": "min-max"});
        assert_eq!(stretched(whole(), &[3], vec![-2.0, 0.0, 2.0]), [0.0, 0.5, 1.0]);
        assert_eq!(stretched(whole(), &[2], vec![7.0, 7.0]), [0.0, 0.0], "all equal");
        assert!(stretched(whole(), &[3], vec![1.0, f32::NAN, 2.0]).iter().all(|x| x.is_nan()));
        let batch = stretched(whole(), &[2, 1, 1, 2], vec![0.0, 4.0, 10.0, 30.0]);
        assert_eq!(batch, [0.0, 1.0, 0.0, 1.0], "each image of a batch by itself");
        let channels = json!({"method": "min-max", "per": "channel"});
        assert_eq!(
            stretched(channels.clone(), &[2, 1, 3], vec![0.0, 1.0, 5.0, 2.0, 3.0, 5.0]),
            [0.0, 0.0, 0.0, 1.0, 1.0, 0.0]
        );
        assert_eq!(stretched(channels.clone(), &[2, 1, 2], vec![0.0, 2.0, 10.0, 30.0]), [0.0, 1.0, 0.0, 1.0]);
        assert!(run(channels, Tensor::new([2], vec![0_f32; 2]).unwrap()).is_err());
    }

    #[test]
    fn rejects_invalid_options() {
        for options in [
            json!({}),
            json!(null),
            json!({"method": "imagenet", "scale": 2}),
            json!({"method": "Imagenet"}),
            json!({"std": 0}),
            json!({"std": [1, 0, 1]}),
            json!({"mean": []}),
            json!({"mean": [1, 2], "std": [1, 2, 3]}),
            json!({"scale": 1e308, "std": 1e-308}),
            json!({"mean": vec![0; 5000]}),
            json!({"method": "min-max", "scale": 2}),
            json!({"method": "unit", "per": "channel"}),
        ] {
            assert!(step(options.clone()).is_err(), "{options}");
        }
    }
}
