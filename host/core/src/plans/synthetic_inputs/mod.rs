//! Inputs that nobody sent, by kind and media type: for warm-up, measurements, examples and trials of models.

use super::plan::{PlanInput, PlanSignature};
use super::request::Request;
use crate::values::element::ElementType;
use crate::values::signature::{Dim, Kind, Port, TensorKind};
use crate::values::tensor::{Tensor, element_count};
use crate::values::value::Value;

/// The most elements of a tensor.
const MAX_ELEMENTS: usize = 1 << 26;

/// Sizes of first axes and of other axes that models accept: a few, one, and those of images, texts and sounds.
const COMMON_SIZES: [(usize, usize); 7] = [(1, 8), (1, 1), (2, 32), (1, 128), (1, 224), (1, 512), (1, 16_000)];

const TEXT: &str = "The quick brown fox jumps over the lazy dog.";

/// A dark disc on a light gradient: 640 × 480 pixels, RGB.
const IMAGE: &[u8] = include_bytes!("image.png");
/// A black disc on white: 32 × 32 pixels, RGB, in few bytes.
const SMALL_IMAGE: &[u8] = include_bytes!("small_image.png");

/// Makes inputs. Equal makers make equal inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyntheticInputs {
    /// the size of an open first axis, which counts the items
    pub items: usize,
    /// the size of other open axes
    pub open: usize,
    /// the seed of the numbers; without one they are zeros, and images are small
    pub seed: Option<u64>,
}

impl Default for SyntheticInputs {
    fn default() -> Self {
        Self { items: 1, open: 8, seed: Some(0) }
    }
}

impl SyntheticInputs {
    /// Zeros, with these sizes of open axes.
    pub const fn zeros(items: usize, open: usize) -> Self {
        Self { items, open, seed: None }
    }

    /// Makers for inputs whose open axes do not accept every size, to try one after the other. The first is the
    /// default.
    pub fn attempts() -> impl Iterator<Item = Self> {
        COMMON_SIZES.into_iter().map(|(items, open)| Self { items, open, ..Self::default() })
    }

    /// A value for each input that a request must give, or the first input for which none can be made.
    pub fn request<'s>(
        self,
        signature: &'s PlanSignature,
        media_type: impl Fn(&'s Port) -> Option<&'s str>,
    ) -> Result<Request, &'s Port> {
        let required = signature.inputs().iter().filter(|input| input.is_required());
        let value = |PlanInput { port, .. }: &'s PlanInput| {
            let value = self.value(&port.kind, media_type(port)).ok_or(port)?;
            Ok((port.name.clone(), value))
        };
        required.map(value).collect()
    }

    /// A value of this kind. `None` if its form is unknown (JSON, and bytes without a media type), or if it would be too
    /// large.
    pub fn value(self, kind: &Kind, media_type: Option<&str>) -> Option<Value> {
        match (kind, media_type) {
            (Kind::Tensor(kind), _) => self.tensor(kind).map(Value::from),
            (Kind::Text | Kind::Any, _) => Some(Value::from(TEXT)),
            (Kind::Bytes, Some("image/*")) => Some(Value::from(self.image())),
            (Kind::Bytes, Some("audio/*")) => Some(Value::from(Self::audio())),
            (Kind::Bytes | Kind::Json, _) => None,
        }
    }

    /// The shape of a tensor of this kind. One whose rank is open has no axes.
    pub fn shape(self, kind: &TensorKind) -> Vec<usize> {
        let size = |(axis, dim): (usize, &Dim)| match (dim, axis) {
            (Dim::Fixed(size), _) => *size,
            (_, 0) => self.items,
            _ => self.open,
        };
        kind.shape.iter().flatten().enumerate().map(size).collect()
    }

    /// A tensor of this kind, of `float32` if that is among several element types. `None` if it would be too large.
    pub fn tensor(self, kind: &TensorKind) -> Option<Tensor> {
        let other = kind.elements.iter().next().filter(|_| !kind.elements.contains(ElementType::Float32));
        let element = kind.element().or(other).unwrap_or(ElementType::Float32);
        self.tensor_of_shape(element, self.shape(kind))
    }

    /// A tensor of pseudo-random numbers between -1 and 1, of integers that are 0 or 1, or of texts. `None` if it would
    /// be too large.
    pub fn tensor_of_shape(self, element: ElementType, shape: Vec<usize>) -> Option<Tensor> {
        let count = element_count(&shape).filter(|count| *count <= MAX_ELEMENTS)?;
        let Some(seed) = self.seed else { return Tensor::zeros(element, shape).ok() };
        if element == ElementType::String {
            return Tensor::new(shape, vec!["text".to_owned(); count]).ok();
        }
        let number = |at: usize| {
            let mixed = (at as u64).wrapping_add(seed << 32).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
            if element.is_float() { mixed as f64 / f64::from(1_u32 << 23) - 1.0 } else { (mixed % 2) as f64 }
        };
        Tensor::new(shape, (0..count).map(number).collect::<Vec<f64>>()).ok()?.cast(element).ok()
    }

    fn image(self) -> Vec<u8> {
        if self.seed.is_some() { IMAGE.to_vec() } else { SMALL_IMAGE.to_vec() }
    }

    /// A second of a tone of 440 Hz as WAV: 16 kHz, mono, 16 bits.
    /// <https://www.mmsp.ece.mcgill.ca/Documents/AudioFormats/WAVE/WAVE.html>
    pub fn audio() -> Vec<u8> {
        const RATE: u32 = 16_000;
        /// Bytes of the headers after the first field, and of the description of the format.
        const HEADERS: u32 = 36;
        const FORMAT: u32 = 16;
        let words = |numbers: &[u32]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<_>>();
        let mut file = b"RIFF".to_vec();
        file.extend(words(&[HEADERS + 2 * RATE]));
        file.extend(b"WAVEfmt ");
        // PCM with one channel; its rate, bytes a second, and bytes and bits a sample.
        file.extend(words(&[FORMAT, 1 | 1 << 16, RATE, 2 * RATE, 2 | 16 << 16]));
        file.extend(b"data");
        file.extend(words(&[2 * RATE]));
        let sample = |at: u32| (f64::from(at) / f64::from(RATE) * 440.0 * std::f64::consts::TAU).sin();
        file.extend((0..RATE).flat_map(|at| ((sample(at) * 16_000.0) as i16).to_le_bytes()));
        file
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn tensors_depend_on_the_seed_only() {
        let tensor = |seed| {
            let inputs = SyntheticInputs { seed: Some(seed), ..SyntheticInputs::default() };
            inputs.tensor_of_shape(ElementType::Float32, vec![2, 50]).unwrap()
        };
        assert_eq!(tensor(0), tensor(0));
        assert_ne!(tensor(0), tensor(1));
        let tensor = tensor(3);
        let numbers = tensor.as_slice::<f32>().unwrap();
        assert!(numbers.iter().all(|number| (-1.0..=1.0).contains(number)));
        let mean = numbers.iter().sum::<f32>() / 100.0;
        assert!(mean.abs() < 0.3, "{mean}");
        assert!(SyntheticInputs::default().tensor_of_shape(ElementType::Uint8, vec![1 << 30]).is_none());
    }

    #[test]
    fn files_have_their_media_type() {
        let file = |inputs: SyntheticInputs, media_type| inputs.value(&Kind::Bytes, media_type);
        let head = |value: Option<Value>| match value {
            Some(Value::Bytes(bytes)) => crate::media_file(&bytes),
            _ => None,
        };
        for inputs in [SyntheticInputs::default(), SyntheticInputs::zeros(1, 1)] {
            assert_eq!(head(file(inputs, Some("image/*"))), Some("a PNG image"));
            assert_eq!(head(file(inputs, Some("audio/*"))), Some("a WAV file"));
            assert_eq!(file(inputs, None), None);
        }
    }

    #[test]
    fn open_axes_have_the_size_of_the_maker() {
        let kind = TensorKind::shaped(
            ElementType::Int64,
            [Dim::Named("n".to_owned()), Dim::Fixed(3), Dim::Dynamic, Dim::Named("n".to_owned())],
        );
        assert_eq!(SyntheticInputs::default().shape(&kind), [1, 3, 8, 8]);
        assert_eq!(SyntheticInputs::zeros(2, 5).shape(&kind), [2, 3, 5, 5]);
        let tensor = SyntheticInputs::default().tensor(&kind).unwrap();
        assert!(tensor.as_slice::<i64>().unwrap().iter().all(|number| [0, 1].contains(number)));
    }
}
