"""The pipeline of the top-level gpux.yml in Pillow, NumPy, SciPy and ONNX Runtime."""

import io
import pathlib
import sys

import numpy as np
import onnxruntime
from PIL import Image

MODELS = pathlib.Path(__file__).resolve().parents[2] / "models"
sys.path.insert(0, str(MODELS))

import center_ink  # noqa: E402
import reference  # noqa: E402

TOP = 3


class Digits:
    """The bytes of a photo in, the most likely digits out."""

    def __init__(self):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(MODELS / "digits.onnx", options, providers=["CPUExecutionProvider"])

    def __call__(self, encoded):
        gray = np.asarray(Image.open(io.BytesIO(encoded)).convert("L"))
        pixels = reference.shrink(center_ink.center(gray))
        (logits,) = self.session.run(None, {"image": pixels[None, None]})
        scores = reference.softmax(logits[0])
        best = scores.argsort()[::-1][:TOP]
        return [{"label": reference.LABELS[index], "score": float(scores[index])} for index in best]
