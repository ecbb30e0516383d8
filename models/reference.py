"""The pipeline of the digits example in Pillow, NumPy and ONNX Runtime: what gpux is compared with."""

from dataclasses import dataclass

import numpy as np
import onnxruntime
from PIL import Image

from center_ink import DEFAULT_MARGIN, NoInk, center

LABELS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
# 16/255 as the example's gpux.yml writes it.
SCALE = np.float32(0.0627)


@dataclass
class Answer:
    logits: np.ndarray
    """float32 `[10]`"""

    label: str
    probability: float


class Pipeline:
    def __init__(self, model_path):
        self.session = onnxruntime.InferenceSession(model_path, providers=["CPUExecutionProvider"])

    def run(self, gray: np.ndarray, margin: float | None = DEFAULT_MARGIN) -> Answer:
        """The answer for a gray photo, `uint8 [height, width]`; without the centring step if `margin` is None.

        A photo without ink goes on as it is.
        """
        if margin is not None:
            try:
                gray = center(gray, margin)
            except NoInk:
                pass
        (logits,) = self.session.run(None, {"image": shrink(gray)[None, None]})
        probabilities = softmax(logits[0])
        best = int(probabilities.argmax())
        return Answer(logits[0], LABELS[best], float(probabilities[best]))


def shrink(gray):
    """A `uint8` image as the model's 8x8 input, 0 to 16."""
    small = Image.fromarray(gray).resize((8, 8), Image.Resampling.BOX)
    return np.asarray(small).astype(np.float32) * SCALE


def softmax(logits):
    powers = np.exp(logits - logits.max())
    return powers / powers.sum()


def truth(name):
    """A sample's label: its file name up to the first `-` or `.`."""
    return name.replace("-", ".").split(".")[0]
