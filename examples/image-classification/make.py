"""Makes the model and the photo of this example, and records what the same pipeline gives in Python.

    python -m venv venv && venv/bin/pip install -r ../requirements.txt && venv/bin/python make.py

The model has the shape of ResNet-18 (torchvision), an eighth to a sixteenth as wide, with random
weights: what it says about the photo means nothing, that gpux says the same does. Any torchvision
model exported to ONNX takes its place.
"""

import json
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from PIL import Image
from sklearn.datasets import load_sample_image
from torchvision.models.resnet import BasicBlock, ResNet
from torchvision.transforms import v2 as transforms

HERE = Path(__file__).parent
LABELS = ["bird", "boat", "bridge", "building", "cat", "dog", "flower", "mountain", "street", "tree"]


class Narrow(ResNet):
    """ResNet-18 with `width` channels after the first layer instead of 64."""

    def __init__(self, width, classes):
        super().__init__(BasicBlock, [2, 2, 2, 2], num_classes=classes)
        self.inplanes = width
        self.conv1 = torch.nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False)
        self.bn1 = torch.nn.BatchNorm2d(width)
        for i, layer in enumerate(["layer1", "layer2", "layer3", "layer4"]):
            setattr(self, layer, self._make_layer(BasicBlock, width << i, 2, stride=1 if i == 0 else 2))
        self.fc = torch.nn.Linear(width << 3, classes)


torch.manual_seed(7)
model = Narrow(4, len(LABELS)).eval()
with torch.no_grad():
    model.fc.weight *= 20
torch.onnx.export(
    model,
    torch.zeros(1, 3, 224, 224),
    HERE / "model.onnx",
    input_names=["pixels"],
    output_names=["logits"],
    dynamic_axes={"pixels": {0: "batch"}, "logits": {0: "batch"}},
    dynamo=False,
)
(HERE / "labels.txt").write_text("\n".join(LABELS) + "\n")
Image.fromarray(load_sample_image("china.jpg")).save(HERE / "china.jpg", quality=80)

prepare = transforms.Compose(
    [
        transforms.Resize(256),
        transforms.CenterCrop(224),
        transforms.ToImage(),
        transforms.ToDtype(torch.float32, scale=True),
        transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
    ]
)
pixels = prepare(Image.open(HERE / "china.jpg").convert("RGB"))[None].numpy()
(logits,) = onnxruntime.InferenceSession(HERE / "model.onnx").run(None, {"pixels": pixels})
scores = np.exp(logits[0] - logits[0].max())
scores /= scores.sum()
best = np.argsort(-scores)[:3]
output = [{"label": LABELS[i], "index": int(i), "score": float(scores[i])} for i in best]
cases = [{"args": ["--file", "china.jpg"], "output": {"top": output}, "tolerance": 2e-3}]
(HERE / "expected.json").write_text(json.dumps(cases, indent=1) + "\n")
print(output)
