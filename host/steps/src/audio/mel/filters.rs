//! The triangular filters between a spectrum and its mel bands.

use crate::simd::vectorize;

/// Which bands there are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::audio) struct Scale {
    pub(in crate::audio) n_mels: usize,
    pub(in crate::audio) n_fft: usize,
    /// hertz
    pub(in crate::audio) fmin: f64,
    /// hertz; `None` for half the rate
    pub(in crate::audio) fmax: Option<f64>,
    /// HTK's formula instead of Slaney's
    pub(in crate::audio) htk: bool,
    /// whether each band is divided by its width
    pub(in crate::audio) slaney_norm: bool,
}

/// `librosa.filters.mel`, without the zeros: most of a band's weights are.
#[derive(Debug)]
pub(in crate::audio) struct Filters {
    /// the first bin of each band, and how many there are
    bands: Vec<(usize, usize)>,
    /// band after band
    weights: Vec<f32>,
}

impl Filters {
    /// Bytes that these filters hold.
    pub(in crate::audio) fn bytes(&self) -> usize {
        self.weights.capacity() * size_of::<f32>() + self.bands.capacity() * size_of::<(usize, usize)>()
    }

    pub(in crate::audio) fn new(scale: Scale, rate: u32) -> Self {
        let bins = scale.n_fft / 2 + 1;
        let rate = f64::from(rate);
        let frequency = |bin: usize| bin as f64 * (rate / scale.n_fft as f64);
        let [low, high] = [scale.fmin, scale.fmax.unwrap_or(rate / 2.0)].map(|hertz| to_mel(hertz, scale.htk));
        let step = (high - low) / (scale.n_mels + 1) as f64;
        let edge = |index: usize| {
            let mel = if index == scale.n_mels + 1 { high } else { low + step * index as f64 };
            from_mel(mel, scale.htk)
        };
        let (mut bands, mut weights) = (Vec::with_capacity(scale.n_mels), Vec::new());
        for band in 0..scale.n_mels {
            let [left, middle, right] = [edge(band), edge(band + 1), edge(band + 2)];
            let height = if scale.slaney_norm { 2.0 / (right - left) } else { 1.0 };
            let weight = |bin: usize| {
                let rising = (frequency(bin) - left) / (middle - left);
                let falling = (right - frequency(bin)) / (right - middle);
                (f64::from(rising.min(falling).max(0.0) as f32) * height) as f32
            };
            let place = |hertz: f64| (hertz * scale.n_fft as f64 / rate).floor().clamp(0.0, bins as f64) as usize;
            let (first, end) = (place(left).min(bins), (place(right) + 2).min(bins));
            // Without the bins at its ends that weigh nothing.
            let weighs = |bin: &usize| weight(*bin) != 0.0;
            let first = (first..end).find(weighs).unwrap_or(end);
            let end = (first..end).rfind(weighs).map_or(first, |last| last + 1);
            bands.push((first, end - first));
            weights.extend((first..end).map(weight));
        }
        Self { bands, weights }
    }

    /// Calls `put` with each band and its strength in each of several spectra, which lie bin after bin.
    pub(in crate::audio) fn apply<const L: usize>(&self, spectra: &[[f32; L]], mut put: impl FnMut(usize, [f32; L])) {
        vectorize(
            #[inline(always)]
            || {
                let mut weights = self.weights.as_slice();
                for (band, (first, count)) in self.bands.iter().enumerate() {
                    let (own, rest) = weights.split_at(*count);
                    weights = rest;
                    let mut sums = [0.0; L];
                    for (bin, weight) in spectra[*first..first + count].iter().zip(own) {
                        for (sum, energy) in sums.iter_mut().zip(bin) {
                            *sum += energy * weight;
                        }
                    }
                    put(band, sums);
                }
            },
        );
    }
}

/// Slaney's scale is linear up to here, in hertz, and logarithmic above.
const LINEAR_TO: f64 = 1000.0;
/// Hertz of a mel in the linear part.
const LINEAR_STEP: f64 = 200.0 / 3.0;

/// Slaney's step above, of the logarithm.
fn logarithmic_step() -> f64 {
    6.4_f64.ln() / 27.0
}

fn to_mel(hertz: f64, htk: bool) -> f64 {
    if htk {
        2595.0 * (1.0 + hertz / 700.0).log10()
    } else if hertz >= LINEAR_TO {
        LINEAR_TO / LINEAR_STEP + (hertz / LINEAR_TO).ln() / logarithmic_step()
    } else {
        hertz / LINEAR_STEP
    }
}

fn from_mel(mel: f64, htk: bool) -> f64 {
    if htk {
        700.0 * (10_f64.powf(mel / 2595.0) - 1.0)
    } else if mel >= LINEAR_TO / LINEAR_STEP {
        LINEAR_TO * (logarithmic_step() * (mel - LINEAR_TO / LINEAR_STEP)).exp()
    } else {
        mel * LINEAR_STEP
    }
}
