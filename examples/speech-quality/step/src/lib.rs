//! The step `speech-quality`: how good recorded speech sounds, by the two models of DNSMOS, as the Python package
//! `speechmos` computes it: the mean over windows of nine seconds, a second apart.

#![forbid(unsafe_code)]

use gpux_step::{Dim, Error, NoOptions, Port, Signature, Step, Tensor, Values, builtins, models};
use serde::Serialize;
use serde_json::json;

/// Samples a second.
const RATE: usize = 16_000;

/// Seconds of a window.
const SECONDS: f64 = 9.01;

/// Samples of a window.
const WINDOW: usize = 144_160;

/// Samples at the end of a window that the mel bands leave out.
const CUT: usize = 160;

/// Mel bands.
const BANDS: u32 = 120;

/// Options of `mel-spectrogram`.
#[derive(Serialize)]
struct MelOptions {
    sample_rate: usize,
    n_fft: u32,
    hop_length: u32,
    n_mels: u32,
    db: bool,
    r#ref: &'static str,
}

struct SpeechQuality {
    mel: String,
}

impl Step for SpeechQuality {
    type Options = NoOptions;
    const SUMMARY: &str = "rates recorded speech with the two models of DNSMOS";
    const OPTIONS_SCHEMA: Option<&str> = Some(NoOptions::SCHEMA);

    fn configure(_: NoOptions) -> Result<(Self, Signature), Error> {
        let options =
            MelOptions { sample_rate: RATE, n_fft: 321, hop_length: 160, n_mels: BANDS, db: true, r#ref: "max" };
        let signature = Signature::new()
            .input(Port::tensor::<f32>("audio").shape([Dim::named("samples")]).about("at 16 kHz"))
            .output(Port::json("quality").about("from 1 to 5: `ovrl_mos`, `sig_mos`, `bak_mos`, `p808_mos`"));
        Ok((Self { mel: builtins::options(&options)? }, signature))
    }

    fn process(&self, inputs: Values) -> Result<Values, Error> {
        let audio = inputs.tensor("audio")?;
        if audio.is_empty() {
            return Err(Error::invalid("the sound has no samples"));
        }
        let mut sums = [0.0; 4];
        let mut count = 0.0;
        for start in window_starts(audio.len()) {
            let window = read_window(audio, start)?;
            for (sum, score) in sums.iter_mut().zip(self.rate(&window)?) {
                *sum += score;
            }
            count += 1.0;
        }
        let [signal, background, overall, p808] = sums.map(|sum| sum / count);
        let quality = json!({ "ovrl_mos": overall, "sig_mos": signal, "bak_mos": background, "p808_mos": p808 });
        Values::new().with_json("quality", &quality)
    }
}

/// Where windows begin in a sound of so many samples, which is doubled until it fills one.
fn window_starts(samples: usize) -> impl Iterator<Item = usize> {
    let mut length = samples;
    while length < WINDOW {
        length *= 2;
    }
    let count = (length / RATE).saturating_sub(SECONDS as usize).max(1);
    // The package leaves out windows whose end is rounded down.
    let is_whole = |second: &usize| ((*second as f64 + SECONDS) * RATE as f64) as usize - second * RATE >= WINDOW;
    (0..count).filter(is_whole).map(|second| second * RATE)
}

/// The window from `start` of the sound, which is repeated behind its end.
fn read_window(audio: &Tensor, start: usize) -> Result<Vec<f32>, Error> {
    let mut window = vec![0.0; WINDOW];
    let mut filled = 0;
    while filled < WINDOW {
        let place = (start + filled) % audio.len();
        let count = (audio.len() - place).min(WINDOW - filled);
        audio.read_into(place, &mut window[filled..filled + count])?;
        filled += count;
    }
    Ok(window)
}

impl SpeechQuality {
    /// Signal, background, overall and P.808 of a window.
    fn rate(&self, window: &[f32]) -> Result<[f64; 4], Error> {
        let samples = Tensor::of([1, WINDOW as u32], window)?;
        let raw = models::run("quality", &samples)?.take_first_tensor()?.view::<f32>()?.to_vec();
        let &[signal, background, overall] = raw.as_slice() else {
            return Err(Error::failed("the model `quality` did not give three scores"));
        };

        let heard = Tensor::of([(WINDOW - CUT) as u32], &window[..WINDOW - CUT])?;
        let mel = builtins::run_with("mel-spectrogram", &self.mel, &heard)?.take_first_tensor()?;
        let [_, frames] = mel.dims()?;
        // From decibels, frame by frame.
        let scaled = json!({ "factor": 1.0 / 40.0, "offset": 1.0 });
        let scaled = builtins::run("scale", &scaled, &mel)?.take_first_tensor()?;
        let turned = builtins::run("transpose", &json!({ "axes": [1, 0] }), &scaled)?.take_first_tensor()?;
        let shape = json!({ "shape": [1, frames, BANDS] });
        let features = builtins::run("reshape", &shape, &turned)?.take_first_tensor()?;
        let p808 = models::run("p808", &features)?.take_first_tensor()?.view::<f32>()?.to_vec();
        let &[p808] = p808.as_slice() else {
            return Err(Error::failed("the model `p808` did not give one score"));
        };

        // From the models' numbers to those of the listeners.
        let fitted = |x: f32, [square, linear, constant]: [f64; 3]| {
            let x = f64::from(x);
            (square * x + linear) * x + constant
        };
        Ok([
            fitted(signal, [-0.083_972_78, 1.220_839_53, 0.005_243_9]),
            fitted(background, [-0.131_668_88, 1.609_155_14, -0.396_045_46]),
            fitted(overall, [-0.067_662_83, 1.115_464_68, 0.046_025_35]),
            f64::from(p808),
        ])
    }
}

gpux_step::export!(SpeechQuality);

#[cfg(test)]
mod tests {
    use gpux_step::testing;

    use super::*;

    #[test]
    fn windows_are_a_second_apart() {
        let starts = |samples| window_starts(samples).map(|start| start / RATE).collect::<Vec<_>>();
        assert_eq!(starts(1), [0, 1, 2, 3, 4, 5, 6], "of 16.4 s");
        assert_eq!(starts(WINDOW), [0]);
        assert_eq!(starts(RATE * 10 + 9_000), [0]);
        assert_eq!(starts(RATE * 12), [0, 1, 2]);
        assert_eq!(starts(RATE * 6), [0, 1, 2], "of twice as many");
    }

    #[test]
    fn short_sounds_are_repeated() {
        let audio = Tensor::of([3], &[1_f32, 2.0, 3.0]).unwrap();
        let window = read_window(&audio, RATE).unwrap();
        assert_eq!((window.len(), &window[..4]), (WINDOW, &[2_f32, 3.0, 1.0, 2.0][..]));
    }

    #[test]
    fn empty_sounds_are_refused() {
        let audio = Tensor::zeros::<f32>([0]).unwrap();
        let error = testing::run::<SpeechQuality>("{}", [("audio", audio)]).unwrap_err();
        assert_eq!(error, Error::invalid("the sound has no samples"));
    }
}
