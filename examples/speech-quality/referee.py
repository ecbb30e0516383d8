"""Compares with the Python package itself: scores must be equal to 1e-3. Needs speechmos, librosa and `./fetch.sh`.

    examples/speech-quality/referee.py [GPUX] [SOUND…]
"""

import json
import subprocess
import sys
from pathlib import Path

import librosa
from speechmos import dnsmos

HERE = Path(__file__).resolve().parent


def main():
    gpux, *sounds = sys.argv[1:] or ["gpux"]
    worst = 0
    for sound in sounds or [HERE / "tests/clean/clean.flac", HERE / "tests/noisy/noisy.flac", HERE / "../speech/low.wav"]:
        samples, _ = librosa.load(sound, sr=16000)
        wanted = dnsmos.run(samples, 16000)
        command = [gpux, "run", HERE, sound, "--json"]
        found = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)["quality"]
        off = max(abs(found[name] - score) for name, score in wanted.items())
        worst = max(worst, off)
        print(Path(sound).name, {name: round(float(score), 4) for name, score in wanted.items()}, f"off by {off:.1e}")
    sys.exit(worst > 1e-3)


if __name__ == "__main__":
    main()
