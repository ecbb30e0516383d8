"""Trains the digit model of the examples and makes its sample photos.

    python -m venv .venv
    .venv/bin/pip install -r models/requirements.txt
    .venv/bin/python models/make_digits.py
    .venv/bin/python models/check_samples.py --write

Writes `digits.onnx`, `digits.labels.txt`, the card `digits.md` and `samples/` beside this file. A fifth of the data
set is held out: the accuracies and the samples come from it, training never sees it. A few minutes on one core;
the same seed and versions give the same model.
"""

import argparse
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import TensorProto, helper, numpy_helper
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from center_ink import DEFAULT_MARGIN, NoInk, center
from photo import photo
from reference import LABELS, Pipeline, shrink, truth

HERE = Path(__file__).parent
PHOTO_SIZE = (160, 160)
# File name (the truth up to the first "-" or "."), size, and style: dark paper, tinted (RGB) or plain gray.
SAMPLES = [
    ("zero.png", (640, 480), ""),
    ("one.jpg", (480, 640), "tinted"),
    ("two.jpg", (800, 600), "tinted"),
    ("three.jpg", (640, 480), ""),
    ("four.png", (160, 160), ""),
    ("five.jpg", (480, 640), "tinted"),
    ("six.jpg", (640, 480), ""),
    ("seven.png", (640, 480), ""),
    ("eight.jpg", (800, 600), "tinted"),
    ("nine.png", (480, 640), ""),
    ("zero-dark.jpg", (800, 600), "dark"),
    ("one-small.png", (160, 160), "tinted"),
    ("two-dark.png", (480, 640), "dark"),
    ("three-dark.jpg", (640, 480), "dark tinted"),
    ("four-dark.jpg", (480, 640), "dark tinted"),
    ("five-small.png", (160, 160), "dark"),
    ("six-small.jpg", (160, 160), "tinted"),
    ("seven-dark.jpg", (640, 480), "dark"),
    ("eight-small.png", (160, 160), ""),
    ("nine-dark.jpg", (800, 600), "dark tinted"),
]

CARD = """# digits

Recognizes one handwritten digit in an 8x8 gray image. Made by `models/make_digits.py`.

| | |
| --- | --- |
| input | `image`, float32 `[N, 1, 8, 8]`, 0 (paper) to 16 (ink) |
| output | `logits`, float32 `[N, 10]`; the classes are in `digits.labels.txt` |
| network | two 3x3 convolutions ({channels} channels) with ReLU, 2x2 max pooling, one dense layer: {parameters} parameters |
| data | {dataset} |
| held out | {held_out} of {total} scans, stratified, never trained on |
| accuracy on held-out scans | {accuracy} |
| accuracy on photos of held-out digits | {photo_accuracy} (one synthetic photo of each scan, through the whole pipeline) |
| license | {license} |

**Training.** Scans, and synthetic photos of the training scans (`photo.py`: turned by up to 12 degrees, off-centre,
noisy paper, uneven light, either polarity) taken through the centring step with margins from 0 to 0.2 and shrunk
to 8x8 by area.

**Use.** Photograph one digit on otherwise empty paper, centre it (the component `center-ink`, margin
{margin}), shrink it to 8x8 by area, scale 0-255 to 0-16.

**Limits.** Digits as 43 people wrote them on forms in the 1990s, the same people in the training and the held-out
scans: strangers' digits do worse. A photo turned by much more than 12 degrees, lined
paper, several digits in one frame, or anything but a digit gives a confident wrong answer. The photos are
synthetic, so the accuracy on them says that the pipeline fits together, not how it does in the field.

**Samples.** `samples/` holds photos of held-out digits; the name up to the first `-` or `.` is the truth. They are
illustrations, picked among held-out digits that the pipeline recognizes surely: they measure nothing.
"""


def main():
    options = arguments()
    torch.manual_seed(options.seed)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    rng = np.random.default_rng(options.seed)

    scans = load_digits()
    images = scans.images.astype(np.float32)
    train, held_out = train_test_split(
        np.arange(len(images)), test_size=0.2, stratify=scans.target, random_state=options.seed
    )
    inputs, targets = augmented(images[train], scans.target[train], options.photos, rng)
    print(f"training on {len(inputs)} images", flush=True)
    network = fit(inputs, targets, options)

    model_path = HERE / "digits.onnx"
    model = to_onnx(network)
    onnx.save(model, model_path)
    session = onnxruntime.InferenceSession(model_path, providers=["CPUExecutionProvider"])
    accuracy = scan_accuracy(session, images[held_out], scans.target[held_out])
    photo_accuracy = held_out_photo_accuracy(model_path, images[held_out], scans.target[held_out], rng)
    facts = {
        "description": "Recognizes one handwritten digit in an 8x8 gray image",
        "dataset": "UCI Optical Recognition of Handwritten Digits, as in scikit-learn's load_digits (CC BY 4.0)",
        "license": "Apache-2.0",
        "accuracy": f"{accuracy:.4f}",
        "photo_accuracy": f"{photo_accuracy:.4f}",
        "labels": ",".join(LABELS),
        "source": "models/make_digits.py",
    }
    helper.set_model_props(model, facts)
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, model_path)
    print(f"{model_path}: {model_path.stat().st_size} bytes, scans {accuracy:.4f}, photos {photo_accuracy:.4f}")
    if accuracy < 0.97:
        raise SystemExit("the model is worse than it should be: at least 0.97 on held-out scans")

    (HERE / "digits.labels.txt").write_text("\n".join(LABELS) + "\n")
    card = CARD.format(
        **facts,
        channels=f"{network[0].out_channels} and {network[2].out_channels}",
        parameters=sum(parameter.numel() for parameter in network.parameters()),
        held_out=len(held_out),
        total=len(images),
        margin=DEFAULT_MARGIN,
    )
    (HERE / "digits.md").write_text(card)
    write_samples(model_path, images[held_out], scans.target[held_out], options.seed)


def arguments():
    parser = argparse.ArgumentParser(description="Train the digit model and make its sample photos.")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--photos", type=int, default=24, help="synthetic photos of each training digit")
    parser.add_argument("--epochs", type=int, default=16)
    return parser.parse_args()


def augmented(images, targets, photos, rng):
    """The scans, weighted like a quarter of the photos, and `photos` centred photos of each."""
    copies = max(photos // 4, 1)
    inputs, labels = [np.repeat(images, copies, axis=0)], [np.repeat(targets, copies)]
    for _ in range(photos):
        for image, target in zip(images, targets):
            try:
                crop = center(photo(image, PHOTO_SIZE, rng.random() < 0.5, rng), rng.uniform(0, 0.2))
            except NoInk:
                continue
            inputs.append(shrink(crop)[None])
            labels.append([target])
    return np.concatenate(inputs)[:, None].astype(np.float32), np.concatenate(labels)


def fit(inputs, targets, options):
    network = torch.nn.Sequential(
        torch.nn.Conv2d(1, 16, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.Conv2d(16, 32, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Dropout(0.3),
        torch.nn.Linear(32 * 4 * 4, 10),
    )
    with torch.no_grad():
        network[0].weight /= 16  # The input is 0 to 16.
    inputs, targets = torch.from_numpy(inputs), torch.from_numpy(targets)
    batch = 128
    steps = options.epochs * (len(inputs) // batch)
    optimizer = torch.optim.AdamW(network.parameters(), lr=3e-3, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps)
    loss_of = torch.nn.CrossEntropyLoss(label_smoothing=0.02)
    for epoch in range(options.epochs):
        total = 0.0
        order = torch.randperm(len(inputs))[: len(inputs) // batch * batch]
        for chosen in order.split(batch):
            loss = loss_of(network(inputs[chosen]), targets[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item()
        print(f"epoch {epoch + 1}: loss {total / (len(inputs) // batch):.4f}", flush=True)
    return network.eval()


def to_onnx(network):
    """Plain operators of opset 13, which every engine has."""
    weights = {
        "conv1.weight": network[0].weight,
        "conv1.bias": network[0].bias,
        "conv2.weight": network[2].weight,
        "conv2.bias": network[2].bias,
        "dense.weight": network[7].weight,
        "dense.bias": network[7].bias,
    }
    conv = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    nodes = [
        helper.make_node("Conv", ["image", "conv1.weight", "conv1.bias"], ["conv1"], "conv1", **conv),
        helper.make_node("Relu", ["conv1"], ["relu1"], "relu1"),
        helper.make_node("Conv", ["relu1", "conv2.weight", "conv2.bias"], ["conv2"], "conv2", **conv),
        helper.make_node("Relu", ["conv2"], ["relu2"], "relu2"),
        helper.make_node("MaxPool", ["relu2"], ["pool"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["pool"], ["flat"], "flatten", axis=1),
        helper.make_node("Gemm", ["flat", "dense.weight", "dense.bias"], ["logits"], "dense", transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "digits",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 1, 8, 8])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", 10])],
        [numpy_helper.from_array(weight.detach().numpy(), name) for name, weight in weights.items()],
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8, producer_name="gpux models/make_digits.py"
    )
    onnx.checker.check_model(model, full_check=True)
    return model


def scan_accuracy(session, images, targets):
    (logits,) = session.run(None, {"image": images[:, None]})
    return float(np.mean(logits.argmax(axis=1) == targets))


def held_out_photo_accuracy(model_path, images, targets, rng):
    pipeline = Pipeline(model_path)
    right = 0
    for image, target in zip(images, targets):
        picture = photo(image, PHOTO_SIZE, rng.random() < 0.5, rng)
        right += pipeline.run(picture).label == LABELS[target]
    return right / len(images)


def write_samples(model_path, images, targets, seed):
    folder = HERE / "samples"
    folder.mkdir(exist_ok=True)
    for old in [*folder.glob("*.png"), *folder.glob("*.jpg")]:
        old.unlink()
    pipeline = Pipeline(model_path)
    rng = np.random.default_rng(seed + 1)
    for name, size, style in SAMPLES:
        digit = LABELS.index(truth(name))
        picture = sure_photo(pipeline, images[targets == digit], digit, size, "dark" not in style, rng)
        save(folder / name, picture, "tinted" in style, rng)


def sure_photo(pipeline, images, digit, size, dark_ink, rng):
    """A photo of a held-out digit that the pipeline recognizes surely."""
    for _ in range(100):
        picture = photo(images[rng.integers(len(images))], size, dark_ink, rng)
        answer = pipeline.run(picture)
        if answer.label == LABELS[digit] and answer.probability >= 0.95:
            return picture
    raise SystemExit(f"no photo of a {LABELS[digit]} is recognized surely: the model is not good enough")


def save(path, picture, tinted, rng):
    if path.suffix == ".png" and picture.size > 100_000:
        picture = picture // 8 * 8  # Noise does not compress: a large PNG keeps 32 levels of it.
    if tinted:
        tint = rng.uniform([0.94, 0.92, 0.80], [1.0, 1.0, 1.0])
        picture = np.round(picture[:, :, None] * tint).astype(np.uint8)
    options = {"optimize": True} if path.suffix == ".png" else {"quality": 85}
    Image.fromarray(picture).save(path, **options)


if __name__ == "__main__":
    main()
