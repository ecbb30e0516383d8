"""Makes the two sounds: eleven seconds that eSpeak NG speaks, clean and in noise. Needs espeakng-loader, numpy and soundfile.
"""

import ctypes
from pathlib import Path

import espeakng_loader
import numpy as np
import soundfile

HERE = Path(__file__).parent
RATE = 16_000
TEXT = (
    "A model is a file of numbers. Before it, a recording becomes samples, and samples become bands. "
    "Behind it, scores become an answer that a person can read. All of that is written down in one file."
)


def spoken(text):
    espeak = ctypes.CDLL(espeakng_loader.get_library_path())
    rate = espeak.espeak_Initialize(2, 0, espeakng_loader.get_data_path().encode(), 0)
    heard = []

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)
    def hear(samples, count, _):
        heard.extend(samples[:count] if samples else [])
        return 0

    espeak.espeak_SetSynthCallback(hear)
    espeak.espeak_SetVoiceByName(b"en-us")
    data = text.encode()
    espeak.espeak_Synth(data, len(data) + 1, 0, 0, 0, 1, None, None)
    espeak.espeak_Synchronize()
    sound = np.array(heard, np.float64) / 32768
    places = np.arange(0, len(sound), rate / RATE)
    return np.interp(places, np.arange(len(sound)), sound)


def main():
    clean = 0.7 * spoken(TEXT)
    noise = np.random.default_rng(1).normal(0, 0.05, len(clean))
    for name, sound in [("clean", clean), ("noisy", clean + noise)]:
        soundfile.write(HERE / f"tests/{name}/{name}.flac", np.clip(sound, -1, 1), RATE, subtype="PCM_16")
        print(name, f"{len(sound) / RATE:.2f} s")


if __name__ == "__main__":
    main()
