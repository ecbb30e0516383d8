//! From the model's activations to notes: `basic_pitch.note_creation`.

/// Keys of a piano.
pub(crate) const PITCHES: usize = 88;

/// The number of the lowest key in MIDI.
const LOWEST: usize = 21;

const ONSET_THRESHOLD: f64 = 0.5;
const FRAME_THRESHOLD: f64 = 0.3;

/// A note has more frames than this: 127.7 ms.
const SHORTEST: usize = 11;

/// A note ends after so many frames under the threshold.
const TOLERANCE: usize = 11;

/// Bins of a contour to each side of its note.
const BEND: usize = 25;

/// Frames of so many bins.
pub(crate) struct Table {
    pub(crate) width: usize,
    pub(crate) cells: Vec<f32>,
    most: usize,
}

impl Table {
    fn new(width: usize, frames: usize) -> Self {
        Self { width, cells: Vec::new(), most: width * frames }
    }

    /// Appends frames, up to the end of the sound.
    pub(crate) fn append(&mut self, cells: &[f32]) {
        let room = self.most.saturating_sub(self.cells.len());
        self.cells.extend_from_slice(&cells[..cells.len().min(room)]);
    }

    pub(crate) fn at(&self, frame: usize, bin: usize) -> f64 {
        f64::from(self.cells[frame * self.width + bin])
    }

    fn frames(&self) -> usize {
        self.cells.len() / self.width
    }
}

/// What the model gives for a sound.
pub(crate) struct Activations {
    notes: Table,
    onsets: Table,
    /// three bins for each pitch
    contours: Table,
}

/// A note, in frames.
pub(crate) struct Note {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) pitch: usize,
    pub(crate) amplitude: f64,
}

impl Activations {
    /// Of a sound of so many frames.
    pub(crate) fn new(frames: usize) -> Self {
        let [notes, onsets, contours] = [PITCHES, PITCHES, 3 * PITCHES].map(|width| Table::new(width, frames));
        Self { notes, onsets, contours }
    }

    /// Notes, onsets and contours.
    pub(crate) fn tables(&mut self) -> [&mut Table; 3] {
        [&mut self.notes, &mut self.onsets, &mut self.contours]
    }

    /// The notes, those with a clear beginning first.
    pub(crate) fn notes(&self) -> Vec<Note> {
        let frames = self.notes.frames();
        let mut energy: Vec<f64> = self.notes.cells.iter().copied().map(f64::from).collect();
        let mut found = Vec::new();
        for (start, key) in self.onset_peaks().into_iter().rev() {
            if start + 1 >= frames {
                continue;
            }
            let (mut end, mut quiet) = (start + 1, 0);
            while end < frames - 1 && quiet < TOLERANCE {
                quiet = if energy[end * PITCHES + key] < FRAME_THRESHOLD { quiet + 1 } else { 0 };
                end += 1;
            }
            end -= quiet;
            if end - start > SHORTEST {
                (start..end).for_each(|frame| silence(&mut energy, frame, key));
                found.push(self.note(start, end, key));
            }
        }
        self.add_notes_without_onset(&mut energy, &mut found);
        found
    }

    /// Goes on from the strongest frame that no note has, to both sides, until none is left.
    fn add_notes_without_onset(&self, energy: &mut [f64], found: &mut Vec<Note>) {
        let frames = self.notes.frames();
        // What is left only becomes less: one order is enough.
        let mut order: Vec<usize> = (0..energy.len()).filter(|cell| energy[*cell] > FRAME_THRESHOLD).collect();
        order.sort_by(|a, b| energy[*b].total_cmp(&energy[*a]).then(a.cmp(b)));
        for cell in order {
            if energy[cell] <= FRAME_THRESHOLD {
                continue;
            }
            let (middle, key) = (cell / PITCHES, cell % PITCHES);
            energy[cell] = 0.0;
            let mut is_quiet = |frame: usize| {
                let is_quiet = energy[frame * PITCHES + key] < FRAME_THRESHOLD;
                silence(energy, frame, key);
                is_quiet
            };
            let (mut end, mut quiet) = (middle + 1, 0);
            while end + 1 < frames && quiet < TOLERANCE {
                quiet = if is_quiet(end) { quiet + 1 } else { 0 };
                end += 1;
            }
            let end = (end - 1).saturating_sub(quiet);
            // Frame 0 belongs to no note of this kind.
            let (mut start, mut quiet) = (middle, 0);
            while start > 1 && quiet < TOLERANCE {
                start -= 1;
                quiet = if is_quiet(start) { quiet + 1 } else { 0 };
            }
            let start = start + quiet;
            if end.saturating_sub(start) > SHORTEST {
                found.push(self.note(start, end, key));
            }
        }
    }

    fn note(&self, start: usize, end: usize, key: usize) -> Note {
        let sum: f64 = (start..end).map(|frame| self.notes.at(frame, key)).sum();
        Note { start, end, pitch: key + LOWEST, amplitude: sum / (end - start) as f64 }
    }

    /// Frames and keys where the onsets have a peak, in the order of time.
    fn onset_peaks(&self) -> Vec<(usize, usize)> {
        let onsets = self.inferred_onsets();
        let at = |frame: usize, key: usize| onsets[frame * PITCHES + key];
        let is_peak = |frame: usize, key: usize| {
            let onset = at(frame, key);
            onset >= ONSET_THRESHOLD && onset > at(frame - 1, key) && onset > at(frame + 1, key)
        };
        let inner = 1..self.notes.frames().saturating_sub(1).max(1);
        inner
            .flat_map(|frame| (0..PITCHES).map(move |key| (frame, key)))
            .filter(|(frame, key)| is_peak(*frame, *key))
            .collect()
    }

    /// The model's onsets, or where a note rises within two frames.
    fn inferred_onsets(&self) -> Vec<f64> {
        let highest = |cells: &mut dyn Iterator<Item = f64>| cells.fold(0.0, f64::max);
        let rise = |cell: usize| {
            let (frame, key) = (cell / PITCHES, cell % PITCHES);
            if frame < 2 {
                return 0.0;
            }
            let since = |frames: usize| self.notes.at(frame, key) - self.notes.at(frame - frames, key);
            since(1).min(since(2)).max(0.0)
        };
        let cells = self.onsets.cells.len();
        let steepest = highest(&mut (0..cells).map(rise));
        let strongest = highest(&mut self.onsets.cells.iter().copied().map(f64::from));
        let scaled = |cell: usize| if steepest > 0.0 { strongest * rise(cell) / steepest } else { 0.0 };
        (0..cells).map(|cell| f64::from(self.onsets.cells[cell]).max(scaled(cell))).collect()
    }

    /// How far the contour of a note lies beside its pitch in each frame, in thirds of a semitone.
    pub(crate) fn bends(&self, note: &Note) -> Vec<i64> {
        let middle = 3 * (note.pitch - LOWEST);
        let bins = middle.saturating_sub(BEND)..(middle + BEND + 1).min(self.contours.width);
        let weight = |bin: usize| {
            let away = (bin as f64 - middle as f64) / 5.0;
            (-0.5 * away * away).exp()
        };
        let strongest = |frame: usize| {
            let mut best = (f64::NEG_INFINITY, 0);
            for bin in bins.clone() {
                let strength = self.contours.at(frame, bin) * weight(bin);
                if strength > best.0 {
                    best = (strength, bin as i64 - middle as i64);
                }
            }
            best.1
        };
        (note.start..note.end).map(strongest).collect()
    }
}

/// Takes a frame of a key and its neighbours away.
fn silence(energy: &mut [f64], frame: usize, key: usize) {
    let keys = key.saturating_sub(1)..=(key + 1).min(PITCHES - 1);
    keys.for_each(|key| energy[frame * PITCHES + key] = 0.0);
}
