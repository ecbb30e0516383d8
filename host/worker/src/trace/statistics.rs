//! Statistics of the numbers of a tensor.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use gpux_core::{ElementType, Tensor};

/// What a tensor's numbers are like.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Statistics {
    /// the least
    min: f64,
    /// the greatest
    max: f64,
    /// their mean
    mean: f64,
    /// their standard deviation
    deviation: f64,
    /// how many are NaN or infinite; those count for nothing else
    not_finite: usize,
    /// whether only some of the numbers were looked at, evenly spread
    sampled: bool,
    /// how many lie in each of equal parts of the range from least to greatest
    histogram: Vec<u32>,
}

/// The most numbers that are sampled.
const SAMPLE: usize = 1 << 16;

/// Exceeds the sample size, so that the sum of the scaled numbers stays finite.
const SCALE: f64 = (1 << 17) as f64;

/// Bins of the histogram.
const BINS: usize = 24;

impl Statistics {
    /// The statistics of a tensor of numbers or bools; `None` without finite numbers.
    pub(crate) fn from_tensor(tensor: &Tensor) -> Option<Self> {
        if tensor.element() == ElementType::String {
            return None;
        }
        let len = tensor.len();
        let step = len.div_ceil(SAMPLE).max(1);
        let sample = tensor.pick(0, &[(len.div_ceil(step), step as isize)]).ok()?.cast(ElementType::Float64).ok()?;
        let numbers = sample.as_slice::<f64>()?;
        let finite = || numbers.iter().copied().filter(|number| number.is_finite());
        let count = finite().count();
        if count == 0 {
            return None;
        }
        let (min, max) = (finite().fold(f64::INFINITY, f64::min), finite().fold(f64::NEG_INFINITY, f64::max));
        // Division by a power of two is exact.
        let mean = finite().map(|number| number / SCALE).sum::<f64>() / count as f64 * SCALE;
        let deviation = (finite().map(|number| (number - mean).powi(2)).sum::<f64>() / count as f64).sqrt();
        let mut histogram = vec![0; BINS];
        for number in finite() {
            let place = (number / 2.0 - min / 2.0) / (max / 2.0 - min / 2.0) * BINS as f64;
            // If all numbers are equal, the place is NaN, which counts as the first bin.
            histogram[(place as usize).min(BINS - 1)] += 1;
        }
        let not_finite = numbers.len() - count;
        Some(Self { min, max, mean, deviation: deviation.min(f64::MAX), not_finite, sampled: step > 1, histogram })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn summarizes_numbers() {
        let statistics =
            Statistics::from_tensor(&Tensor::new([5], vec![0.0_f32, 1.0, 2.0, 3.0, f32::NAN]).unwrap()).unwrap();
        assert_eq!((statistics.min, statistics.max, statistics.mean), (0.0, 3.0, 1.5));
        assert!((statistics.deviation - 1.25_f64.sqrt()).abs() < 1e-12);
        assert_eq!((statistics.not_finite, statistics.sampled), (1, false));
        assert_eq!(statistics.histogram.iter().sum::<u32>(), 4);
        assert_eq!((statistics.histogram[0], statistics.histogram[8], statistics.histogram[23]), (1, 1, 1));
    }

    #[test]
    fn tolerates_extreme_values() {
        let of = |data: Vec<f64>| Statistics::from_tensor(&Tensor::new([data.len()], data).unwrap());
        let wide = of(vec![f64::MIN, f64::MAX]).unwrap();
        assert_eq!((wide.mean, wide.histogram[0], wide.histogram[23]), (0.0, 1, 1));
        assert_eq!(wide.deviation.to_bits(), f64::MAX.to_bits());
        assert_eq!(of(vec![7.0; 3]).unwrap().histogram[0], 3);
        assert_eq!(of(vec![f64::NAN]), None);
        assert_eq!(of(Vec::new()), None);
        assert_eq!(Statistics::from_tensor(&Tensor::new([1], vec!["x".to_owned()]).unwrap()), None);
        let many = Tensor::new([SAMPLE + 1], vec![1_u8; SAMPLE + 1]).unwrap();
        let many = Statistics::from_tensor(&many).unwrap();
        assert!(many.sampled);
        assert_eq!(many.histogram[0] as usize, (SAMPLE + 1).div_ceil(2));
    }
}
