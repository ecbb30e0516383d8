"""Compares with the Python package itself: the notes with their beginnings, ends and bends must be equal, amplitudes to
1e-4. Needs basic-pitch 0.4.0 (without its dependency TensorFlow: pip install --no-deps) and librosa, mir_eval,
onnxruntime, pretty_midi, resampy, scipy.

    examples/music-notes/referee.py [GPUX] [SOUND…]
"""

import json
import subprocess
import sys
from pathlib import Path

from basic_pitch.inference import predict

HERE = Path(__file__).resolve().parent


def main():
    gpux, *sounds = sys.argv[1:] or ["gpux"]
    is_wrong = False
    for sound in sounds or [HERE / "tests/strings/strings.flac"]:
        _, _, events = predict(sound, HERE / "basic-pitch.onnx")
        wanted = sorted(events, key=lambda event: (event[0], event[2]))
        command = [gpux, "run", HERE, sound, "--json"]
        found = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)["notes"]
        is_same = len(wanted) == len(found)
        off = 0
        for (start, end, pitch, amplitude, bends), note in zip(wanted, found):
            times = max(abs(start - note["start"]), abs(end - note["end"]))
            is_same &= times < 1e-6 and pitch == note["pitch"] and list(map(int, bends)) == note["bends"]
            off = max(off, abs(amplitude - note["amplitude"]))
        print(f"{Path(sound).name}: {len(wanted)} and {len(found)} notes, {'' if is_same else 'NOT '}equal, amplitudes off by {off:.1e}")
        is_wrong |= not is_same or off > 1e-4
    sys.exit(is_wrong)


if __name__ == "__main__":
    main()
