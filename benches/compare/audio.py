"""Times audio pipelines of gpux beside the same chains in Python, one thread each.

    cargo build --release && python benches/compare/audio.py [--gpux target/release/gpux]

Needs the packages of tests/reference/builtin/requirements-audio.txt. Both sides take turns in one
run; what is printed are medians of all rounds, in milliseconds, and Python's over gpux's. With
`--least` they are the fastest runs of either side: on a busy machine the others measure its load.
"""

import argparse
import io
import json
import os
import statistics
import subprocess
import tempfile
import time
import warnings
from pathlib import Path

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[variable] = "1"

import librosa
import numpy as np
import scipy.signal
import soundfile
import torch

# torchaudio refuses to load beside a PyTorch built for another CUDA; its resampler needs none.
torch.version.cuda = None
import torchaudio
from transformers import WhisperFeatureExtractor

torch.set_num_threads(1)
warnings.simplefilter("ignore")

ROUNDS = 5
EXTRACTOR = WhisperFeatureExtractor()


def voice(rate, seconds):
    time = np.arange(int(rate * seconds)) / rate
    phase = 2 * np.pi * np.cumsum(120 + 30 * np.sin(2 * np.pi * 2.3 * time)) / rate
    noise = np.random.default_rng(1).normal(0, 0.005, len(time))
    return (0.2 * sum(np.sin(k * phase) / k for k in range(1, 12)) + noise).astype(np.float32)


def encoded(rate, seconds, format, subtype, channels=1):
    samples = voice(rate, seconds)
    buffer = io.BytesIO()
    soundfile.write(buffer, np.stack([samples] * channels, -1), rate, format=format, subtype=subtype)
    return buffer.getvalue()


def decode(data):
    return librosa.load(io.BytesIO(data), sr=None, mono=True)


def sinc(sound):
    samples, rate = sound
    return torchaudio.functional.resample(torch.from_numpy(samples), rate, 16000).numpy(), 16000


def polyphase(sound):
    samples, rate = sound
    return scipy.signal.resample_poly(samples, 16000, rate), 16000


def mel(sound):
    return librosa.feature.melspectrogram(y=sound[0], sr=sound[1])


def log_mel(sound):
    return librosa.power_to_db(mel(sound))


def log_mel_of_speech(sound):
    return librosa.power_to_db(librosa.feature.melspectrogram(y=sound[0], sr=sound[1], n_fft=400, hop_length=160, n_mels=80))


def whisper(sound):
    return EXTRACTOR(sound[0], sampling_rate=sound[1], return_tensors="np")["input_features"]


def mfcc(bands):
    return librosa.feature.mfcc(S=bands)


SPEECH = {"n_fft": 400, "hop_length": 160, "n_mels": 80, "db": True}
DECODE = ("decode-audio", decode, {})
SINC = ("resample", sinc, {"to": 16000})
WAV_1, WAV_30 = encoded(16000, 1, "WAV", "PCM_16"), encoded(16000, 30, "WAV", "PCM_16")
CHAINS = {
    "Whisper's log-mel, 30 s at 16 kHz": (WAV_30, [DECODE, ("mel-spectrogram", whisper, {"method": "whisper"})]),
    "Whisper's log-mel, 1 s, padded to 30": (WAV_1, [DECODE, ("mel-spectrogram", whisper, {"method": "whisper"})]),
    "log-mel, 30 s at 16 kHz": (WAV_30, [DECODE, ("mel-spectrogram", log_mel_of_speech, SPEECH)]),
    "log-mel, 1 s at 16 kHz": (WAV_1, [DECODE, ("mel-spectrogram", log_mel_of_speech, SPEECH)]),
    "mel, librosa's defaults, 30 s at 22 kHz": (
        encoded(22050, 30, "WAV", "PCM_16"), [DECODE, ("mel-spectrogram", mel, {})],
    ),
    "MFCC, librosa's defaults, 30 s at 22 kHz": (
        encoded(22050, 30, "WAV", "PCM_16"), [DECODE, ("mel-spectrogram", log_mel, {"db": True}), ("mfcc", mfcc, {})],
    ),
    "30 s at 44.1 kHz to 16 kHz": (encoded(44100, 30, "WAV", "PCM_16"), [DECODE, SINC]),
    "1 s at 44.1 kHz to 16 kHz": (encoded(44100, 1, "WAV", "PCM_16"), [DECODE, SINC]),
    "30 s at 48 kHz to 16 kHz, polyphase": (
        encoded(48000, 30, "WAV", "PCM_16"), [DECODE, ("resample", polyphase, {"to": 16000, "method": "polyphase"})],
    ),
    "WAV, 30 s at 44.1 kHz, stereo": (encoded(44100, 30, "WAV", "PCM_16", 2), [DECODE]),
    "FLAC, 30 s at 44.1 kHz, stereo": (encoded(44100, 30, "FLAC", "PCM_16", 2), [DECODE]),
    "MP3, 30 s at 44.1 kHz, stereo": (encoded(44100, 30, "MP3", "MPEG_LAYER_III", 2), [DECODE]),
    "Ogg Vorbis, 30 s at 44.1 kHz, stereo": (encoded(44100, 30, "OGG", "VORBIS", 2), [DECODE]),
}  # fmt: skip


def timed_python(data, steps, runs):
    """Milliseconds of each step and of the whole, a list for each."""
    times = [[] for _ in range(len(steps) + 1)]
    for _ in range(runs):
        value, begin = data, time.perf_counter()
        for index, (_, step, _) in enumerate(steps):
            start = time.perf_counter()
            value = step(value)
            times[index].append((time.perf_counter() - start) * 1e3)
        times[-1].append((time.perf_counter() - begin) * 1e3)
    return times


def timed_gpux(gpux, folder, data, steps, runs, number):
    """A number of one run of `gpux run --benchmark`, of each step and of the whole."""
    pipeline = {
        "name": "compare", "version": "1.0.0", "inputs": {"sound": "audio"},
        "pipeline": [{name: options} for name, _, options in steps],
    }  # fmt: skip
    (folder / "gpux.yml").write_text(json.dumps(pipeline))
    (folder / "sound.bin").write_bytes(data)
    command = [gpux, "run", folder, "--file", folder / "sound.bin", "--benchmark", "--json", "--runs", str(runs)]
    report = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return [step["times_ms"][number] for step in report["steps"]] + [report[number]]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpux", default=Path(__file__).parents[2] / "target/release/gpux")
    parser.add_argument("--least", action="store_true")
    arguments = parser.parse_args()
    gpux = arguments.gpux
    typical, number = (min, "min_inference_time") if arguments.least else (statistics.median, "p50")
    print(f"{'':42} {'Python':>9} {'gpux':>9} {'ratio':>6}")
    for title, (data, steps) in CHAINS.items():
        ours = [[] for _ in range(len(steps) + 1)]
        theirs = [[] for _ in range(len(steps) + 1)]
        runs = 60 if "1 s" in title else 8
        timed_python(data, steps, 2)
        with tempfile.TemporaryDirectory() as folder:
            for _ in range(ROUNDS):
                for all_times, times in zip(theirs, timed_python(data, steps, runs)):
                    all_times.append(typical(times))
                for all_times, median in zip(ours, timed_gpux(gpux, Path(folder), data, steps, runs, number)):
                    all_times.append(median)
        names = [f"  {name}" for name, _, _ in steps] + [title]
        rows = list(zip(names, theirs, ours))
        for name, python, native in rows[-1:] + (rows[:-1] if len(steps) > 1 else []):
            python, native = typical(python), typical(native)
            print(f"{name:42} {python:9.3f} {native:9.3f} {python / native:6.2f}", flush=True)


if __name__ == "__main__":
    main()
