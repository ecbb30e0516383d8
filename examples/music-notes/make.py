"""Makes the sound: a broken chord, a chord and a note that bends, of a plucked string. Needs numpy and soundfile."""

from pathlib import Path

import numpy as np
import soundfile

HERE = Path(__file__).parent
RATE = 22_050
# Pitch as in MIDI, beginning and length in seconds, semitones that it rises.
NOTES = [
    (60, 0.25, 0.6, 0), (64, 0.75, 0.6, 0), (67, 1.25, 0.6, 0), (72, 1.75, 0.9, 0),
    (57, 2.75, 1.2, 0), (60, 2.75, 1.2, 0), (64, 2.75, 1.2, 0),
    (69, 4.25, 1.0, 1),
]


def main():
    sound = np.zeros(int(5.5 * RATE))
    for pitch, start, length, rise in NOTES:
        time = np.arange(int(length * RATE)) / RATE
        frequency = 440 * 2 ** ((pitch - 69 + rise * np.clip(time - 0.3, 0, 0.4) / 0.4) / 12)
        phase = 2 * np.pi * np.cumsum(frequency) / RATE
        tone = sum(np.sin(partial * phase) / partial**1.5 * np.exp(-partial * time) for partial in range(1, 7))
        tone *= np.minimum(1, time / 0.005) * np.minimum(1, (length - time) / 0.05)
        begin = int(start * RATE)
        sound[begin : begin + len(tone)] += 0.25 * tone
    folder = HERE / "tests/strings"
    folder.mkdir(parents=True, exist_ok=True)
    soundfile.write(folder / "strings.flac", np.clip(sound, -1, 1), RATE, subtype="PCM_16")


if __name__ == "__main__":
    main()
