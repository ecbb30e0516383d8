"""Makes the model and the sounds of this example, and records what the same chain gives in Python.

    python -m venv venv && venv/bin/pip install -r ../requirements.txt && venv/bin/python make.py

The model is a small convolutional network over mel bands with random weights: what it hears means
nothing, that gpux says the same does.
"""

import json
import wave
from pathlib import Path

import librosa
import numpy as np
import onnxruntime
import torch
from scipy.signal import resample_poly
from scipy.special import expit

HERE = Path(__file__).parent
LABELS = ["bell", "bird", "dog", "door", "engine", "music", "rain", "siren", "speech", "steps", "water", "wind"]
RATE, HEARD, LENGTH, BANDS = 24000, 16000, 16000, 40


def sound(name, left, right):
    with wave.open(str(HERE / name), "wb") as file:
        file.setnchannels(2)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes((np.stack([left, right], axis=1) * 32767).round().astype("<i2").tobytes())


def sounds():
    time, rng = np.arange(int(0.8 * RATE)) / RATE, np.random.default_rng(11)
    bell = sum(np.sin(2 * np.pi * tone * time) * np.exp(-time * fade) for tone, fade in [(620, 3), (1480, 5), (2790, 8)])
    sound("bell.wav", 0.25 * bell, 0.15 * bell)
    siren = 0.4 * np.sin(2 * np.pi * 900 * time + 120 * np.sin(2 * np.pi * 1.5 * time))
    rain = 0.05 * rng.normal(size=len(time)).clip(-3, 3)
    sound("siren-in-the-rain.wav", siren + rain, 0.5 * siren + rain)


class Tagger(torch.nn.Module):
    def __init__(self):
        super().__init__()
        widths, layers = [1, 8, 16, 32], []
        for before, width in zip(widths, widths[1:]):
            layers += [torch.nn.Conv2d(before, width, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2)]
        self.layers, self.scores = torch.nn.Sequential(*layers), torch.nn.Linear(widths[-1], len(LABELS))

    def forward(self, bands):
        heard = self.layers(bands.unsqueeze(1) / 40 + 1)
        return self.scores(heard.mean(dim=(2, 3)))


def export():
    torch.manual_seed(3)
    model = Tagger().eval()
    with torch.no_grad():
        model.scores.weight *= 20
    frames = LENGTH // 256 + 1
    torch.onnx.export(
        model, torch.zeros(1, BANDS, frames), HERE / "model.onnx", input_names=["bands"], output_names=["scores"], dynamo=False)


def tags(session, name):
    samples, rate = librosa.load(HERE / name, sr=None)
    samples = resample_poly(samples, HEARD, rate).astype(np.float32)
    samples = np.pad(samples, (0, max(0, LENGTH - len(samples))))[:LENGTH]
    energies = librosa.feature.melspectrogram(y=samples, sr=HEARD, n_mels=BANDS, n_fft=512, hop_length=256)
    bands = librosa.power_to_db(energies, ref=np.max)
    (scores,) = session.run(None, {"bands": bands[None]})
    scores = expit(scores[0])
    print(name, scores.round(3))
    assert np.abs(scores - 0.5).min() > 1e-3, "a score is so near to the threshold that engines may differ"
    return [{"label": LABELS[i], "index": int(i), "score": float(scores[i])} for i in np.argsort(-scores) if scores[i] > 0.5]


sounds()
export()
(HERE / "labels.txt").write_text("\n".join(LABELS) + "\n")
session = onnxruntime.InferenceSession(HERE / "model.onnx")
cases = [{"args": ["--file", name], "output": {"tags": tags(session, name)}, "tolerance": 1e-4}
         for name in ("bell.wav", "siren-in-the-rain.wav")]
(HERE / "expected.json").write_text(json.dumps(cases, indent=1) + "\n")
