//! `chunk` without a tokenizer: a long tensor → its overlapping windows.

use serde_json::json;

use super::options::{Options, window_of};
use crate::deadline::Deadline;
use crate::operation::{BuiltinStep, Inputs, Operation};
use crate::ports;
use crate::text::batch_padder::{MAX_TOKENS, Padding, too_many};
use gpux_core::with_elements;
use gpux_core::{
    Dim, ElementSet, ElementType, Kind, Port, Signature, StepFailure, Tensor, TensorData, TensorElement, TensorKind,
    Value,
};

/// Cuts a tensor of one axis (or 1 × length) into windows, and pads the last: the rule of `Encoding.truncate` of the
/// package `tokenizers`.
pub(super) struct ChunkTokens {
    options: Options,
}

impl ChunkTokens {
    pub(super) fn new(options: Options) -> BuiltinStep<Self> {
        let length = match options.padding {
            Padding::MaxLength => Dim::Fixed(options.max_length),
            Padding::None | Padding::Longest => Dim::Dynamic,
        };
        let numbers = |shape: Option<Vec<Dim>>| {
            Kind::Tensor(TensorKind { shape, ..TensorKind::of_elements(ElementSet::numeric()) })
        };
        let mask = TensorKind::shaped(ElementType::Int64, [Dim::Dynamic, length.clone()]);
        let mask = Port {
            description: "1 for a token, 0 for padding".into(),
            ..Port::new("attention_mask", Kind::Tensor(mask))
        };
        let windows = Port {
            description: "a row for each window".into(),
            ..Port::new("input_ids", numbers(Some(vec![Dim::Dynamic, length])))
        };
        let tokens =
            Port { description: "tokens or samples, of one axis".into(), ..Port::new("tokens", numbers(None)) };
        let signature = Signature { inputs: vec![tokens], outputs: vec![windows, mask, window_of()] };
        BuiltinStep::new(signature, json!(options), Self { options })
    }

    /// How far windows are apart.
    const fn step(&self) -> usize {
        self.options.max_length - self.options.stride
    }

    /// The number of windows of this many tokens.
    const fn count(&self, length: usize) -> usize {
        let most = self.options.max_length;
        if length <= most { 1 } else { 1 + (length - most).div_ceil(self.step()) }
    }

    fn cut<T: TensorElement>(&self, data: &[T], pad: &T, deadline: &Deadline) -> Result<Vec<Value>, StepFailure> {
        let most = self.options.max_length;
        let count = self.count(data.len());
        let width = match self.options.padding {
            Padding::MaxLength => most,
            Padding::None | Padding::Longest => data.len().min(most),
        };
        if count.saturating_mul(width) > MAX_TOKENS {
            return Err(too_many());
        }
        let (mut windows, mut mask) = (Vec::with_capacity(count * width), Vec::with_capacity(count * width));
        for start in (0..count).map(|index| index * self.step()) {
            deadline.check_after(width + 1)?;
            let window = &data[start..data.len().min(start + most)];
            if self.options.padding == Padding::None && window.len() < width {
                let message = "the last window is shorter than the others; set `padding: longest`";
                return Err(StepFailure::InvalidInput(message.into()));
            }
            windows.extend_from_slice(window);
            windows.extend(std::iter::repeat_n(pad.clone(), width - window.len()));
            mask.extend(std::iter::repeat_n(1_i64, window.len()));
            mask.extend(std::iter::repeat_n(0_i64, width - window.len()));
        }
        let window_of = Tensor::zeros(ElementType::Int64, [count])?;
        Ok(vec![
            Tensor::new([count, width], windows)?.into(),
            Tensor::new([count, width], mask)?.into(),
            window_of.into(),
        ])
    }
}

impl Operation for ChunkTokens {
    fn infer_tensor(&self, given: &TensorKind, outputs: &mut Vec<Kind>) -> Result<(), String> {
        let length = match given.shape.as_deref() {
            None => None,
            Some([length]) => ports::fixed(length),
            Some([batch, length]) if ports::fixed(batch).is_none_or(|batch| batch == 1) => ports::fixed(length),
            Some(_) => return Err("tokens have one axis, or 1 × length".into()),
        };
        let [Kind::Tensor(windows), Kind::Tensor(mask), Kind::Tensor(window_of)] = outputs.as_mut_slice() else {
            return Ok(());
        };
        if let Some(length) = length {
            let width = if self.options.padding == Padding::MaxLength {
                self.options.max_length
            } else {
                length.min(self.options.max_length)
            };
            windows.shape = Some(vec![Dim::Fixed(self.count(length)), Dim::Fixed(width)]);
        }
        windows.elements = windows.elements.intersection(given.elements);
        mask.shape.clone_from(&windows.shape);
        window_of.shape = windows.shape.as_ref().map(|shape| shape[..1].to_vec());
        Ok(())
    }

    fn run(&self, mut inputs: Inputs<'_>, deadline: &Deadline) -> Result<Vec<Value>, StepFailure> {
        let tensor = inputs.tensor()?;
        if !matches!(tensor.shape(), [_] | [1, _]) {
            let message = format!("tokens have one axis, or 1 × length, not the shape {:?}", tensor.shape());
            return Err(StepFailure::InvalidInput(message));
        }
        if matches!(tensor.data(), TensorData::Bool(_) | TensorData::String(_)) {
            let message = format!("chunk takes numbers or, with a tokenizer, text, but gets {}", tensor.element());
            return Err(StepFailure::InvalidInput(message));
        }
        let pad = Tensor::scalar(i64::from(self.options.pad_id.unwrap_or(0))).cast(tensor.element())?;
        with_elements!(tensor.data(), data => {
            match TensorElement::slice(pad.data()).and_then(|pad| pad.first()) {
                Some(pad) => self.cut(data, pad, deadline),
                None => Err(StepFailure::Failed("the padding has another type".into())),
            }
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use super::*;
    use crate::reference;
    use gpux_core::{Context, OptionOrigin, Step};

    fn step(options: serde_json::Value) -> Box<dyn Step> {
        crate::text::chunk::build(options, &OptionOrigin::Component).unwrap()
    }

    #[test]
    fn windows_overlap_and_the_last_is_padded() {
        let step = step(json!({"max_length": 4, "stride": 1, "pad_id": 9}));
        let values = reference::run(&*step, vec![Tensor::new([6], vec![1_i32, 2, 3, 4, 5, 6]).unwrap().into()]);
        let windows = values[0].as_tensor().unwrap();
        assert_eq!((windows.shape(), windows.as_slice::<i32>().unwrap()), (&[2, 4][..], &[1, 2, 3, 4, 4, 5, 6, 9][..]));
        assert_eq!(values[1].as_tensor().unwrap().as_slice::<i64>().unwrap(), [1, 1, 1, 1, 1, 1, 1, 0]);
        let short = reference::run(&*step, vec![Tensor::new([1, 2], vec![0.5_f32, 1.0]).unwrap().into()]);
        assert_eq!(short[0].as_tensor().unwrap().shape(), [1, 2]);
    }

    #[test]
    fn handles_empty_and_invalid_inputs() {
        let step = step(json!({"max_length": 4096, "stride": 4095, "padding": "none"}));
        let run = |tensor: Tensor| step.run(vec![Some(tensor.into())], &mut Context::default());
        assert!(run(Tensor::zeros(ElementType::Int64, [0]).unwrap()).is_ok());
        for tensor in [
            Tensor::zeros(ElementType::Int64, [20_000]).unwrap(),
            Tensor::zeros(ElementType::Int64, [2, 3]).unwrap(),
            Tensor::scalar(1_i64),
            Tensor::new([1], vec![true]).unwrap(),
            Tensor::new([1], vec!["text".to_owned()]).unwrap(),
        ] {
            assert!(matches!(run(tensor), Err(StepFailure::InvalidInput(_))));
        }
        assert!(step.run(vec![Some("text".into())], &mut Context::default()).is_err());
    }
}
