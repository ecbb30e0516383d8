//! The step `music-notes`: the notes of a recording, by the model of Spotify's basic-pitch, as the Python package
//! `basic-pitch` computes them: windows of two seconds go through the model, and what it gives is read by `notes`.

#![forbid(unsafe_code)]

mod notes;

use gpux_step::{Dim, Error, NoOptions, Port, Signature, Step, Tensor, Values, models};
use serde_json::json;

use self::notes::Activations;

/// Samples a second.
const RATE: f64 = 22_050.0;

/// Samples from a frame to the next.
const HOP: usize = 256;

/// Samples of a window, and frames that the model gives for it.
const WINDOW: usize = 43_844;
const FRAMES: usize = 172;

/// Frames at each end of a window that its neighbour has, too.
const MARGIN: usize = 15;

/// Frames a second, as the package counts them.
const FRAMES_PER_SECOND: f64 = 86.0;

/// The model's input, and its outputs of notes, of onsets and of contours.
const INPUT: &str = "serving_default_input_2:0";
const OUTPUTS: [&str; 3] = ["StatefulPartitionedCall:1", "StatefulPartitionedCall:2", "StatefulPartitionedCall:0"];

struct MusicNotes;

impl Step for MusicNotes {
    type Options = NoOptions;
    const SUMMARY: &str = "writes down the notes of a recording with basic-pitch";
    const OPTIONS_SCHEMA: Option<&str> = Some(NoOptions::SCHEMA);

    fn configure(_: NoOptions) -> Result<(Self, Signature), Error> {
        let signature = Signature::new()
            .input(Port::tensor::<f32>("audio").shape([Dim::named("samples")]).about("at 22050 Hz"))
            .output(Port::json("notes").about(
                "by their beginning: `start` and `end` in seconds, `pitch` as in MIDI, \
                                               `name`, `amplitude` from 0 to 1, `bends` in thirds of a semitone",
            ));
        Ok((Self, signature))
    }

    fn process(&self, inputs: Values) -> Result<Values, Error> {
        let activations = activations(inputs.tensor("audio")?)?;
        let mut found = activations.notes();
        found.sort_by_key(|note| (note.start, note.pitch));
        let notes: Vec<_> = found
            .iter()
            .map(|note| {
                json!({
                    "start": seconds(note.start),
                    "end": seconds(note.end),
                    "pitch": note.pitch,
                    "name": name(note.pitch),
                    "amplitude": note.amplitude,
                    "bends": activations.bends(note),
                })
            })
            .collect();
        Values::new().with_json("notes", &notes)
    }
}

/// What the model gives for the whole sound, window by window.
fn activations(audio: &Tensor) -> Result<Activations, Error> {
    let samples = audio.len();
    let frames = (samples as f64 * (FRAMES_PER_SECOND / RATE)) as usize;
    let mut all = Activations::new(frames);
    // Silence before the sound, so that its first frames have a neighbour, too.
    let before = MARGIN * HOP;
    for start in (0..before + samples).step_by(WINDOW - 2 * before) {
        let mut window = vec![0.0_f32; WINDOW];
        let skipped = before.saturating_sub(start);
        let place = start.saturating_sub(before);
        let count = samples.saturating_sub(place).min(WINDOW - skipped);
        audio.read_into(place, &mut window[skipped..skipped + count])?;

        let window = Tensor::of([1, WINDOW as u32, 1], &window)?;
        let mut results = models::run("model", [(INPUT, &window)])?;
        for (name, into) in OUTPUTS.into_iter().zip(all.tables()) {
            let table = results.take_tensor(name)?;
            let [1, FRAMES, width] = table.dims()? else {
                return Err(Error::failed(format!("the model's output `{name}` has shape {:?}", table.shape())));
            };
            if width != into.width {
                return Err(Error::failed(format!("the model's output `{name}` has {width} bins")));
            }
            into.append(&table.read::<f32>(MARGIN * width, (FRAMES - 2 * MARGIN) * width)?);
        }
    }
    Ok(all)
}

/// When a frame begins, with what the package adds for the seams of windows.
fn seconds(frame: usize) -> f64 {
    let hop = HOP as f64;
    let seam = hop / RATE * (FRAMES as f64 - WINDOW as f64 / hop) + 0.0018;
    (frame as f64 * hop) / RATE - seam * (frame / FRAMES) as f64
}

/// The name of a pitch of MIDI: 60 is C4.
fn name(pitch: usize) -> String {
    const NAMES: [&str; 12] = ["C", "C#", "D", "D#", "E", "F", "F#", "G", "G#", "A", "A#", "B"];
    format!("{}{}", NAMES[pitch % 12], (pitch / 12) as i64 - 1)
}

gpux_step::export!(MusicNotes);

#[cfg(test)]
mod tests {
    use gpux_step::testing;

    use super::notes::PITCHES;
    use super::*;

    #[test]
    fn notes_are_named() {
        assert_eq!([21, 60, 69, 108].map(name), ["A0", "C4", "A4", "C8"]);
    }

    #[test]
    fn windows_overlap() {
        testing::model("model", |inputs| {
            let window = inputs.tensor(INPUT)?.view::<f32>()?.to_vec();
            let first = window[MARGIN * HOP];
            let filled = |width: usize| Tensor::of([1, FRAMES as u32, width as u32], &vec![first; FRAMES * width]);
            Ok(Values::new()
                .with(OUTPUTS[0], filled(PITCHES)?)
                .with(OUTPUTS[1], filled(PITCHES)?)
                .with(OUTPUTS[2], filled(3 * PITCHES)?))
        });
        let samples: Vec<f32> = (0..50_000).map(|sample| sample as f32).collect();
        let mut all = activations(&Tensor::of([50_000], &samples).unwrap()).unwrap();
        let [notes, _, contours] = all.tables();
        assert_eq!((notes.cells.len() / PITCHES, contours.cells.len() / (3 * PITCHES)), (195, 195));
        let seam = FRAMES - 2 * MARGIN;
        assert_eq!((notes.at(0, 0), notes.at(seam - 1, 0), notes.at(seam, 0)), (0.0, 0.0, 36_164.0));
        assert_eq!(testing::run::<MusicNotes>("{}", [("audio", Tensor::zeros::<f32>([0]).unwrap())]).unwrap().len(), 1);
    }
}
