"""Writes the numbers that the steps of the groups `tensor` and `output` are compared with
(`host/steps/src/tensor/reference.rs`, `host/steps/src/output/reference.rs`).

    python -m venv venv && venv/bin/pip install -r requirements-tensor.txt && venv/bin/python make_tensor.py

A second run writes the same bytes.
"""

import json
import tempfile
from pathlib import Path

import numpy as np
import torch
import torchvision
from PIL import Image
from scipy.special import expit
from transformers import Wav2Vec2CTCTokenizer

HERE = Path(__file__).parent
RNG = np.random.default_rng(11)
INTEGERS = ["uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"]
NUMBERS = INTEGERS + ["float16", "float32", "float64"]


def write_bytes(path, data):
    """Bytes as a gray PNG, 512 to a row: compressed, and read by the decoder that is there anyway."""
    rows = -(-len(data) // 512)
    padded = np.frombuffer(data.ljust(rows * 512, b"\0"), dtype=np.uint8).reshape(rows, 512)
    Image.fromarray(padded).save(path, optimize=True)


def write_json(path, value):
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value, ensure_ascii=True, separators=(",", ":")) + "\n")


def tensor(array):
    """A tensor as JSON that loses nothing: strings as they are, everything else as its bytes in hexadecimal."""
    array = np.asarray(array)
    if array.dtype.kind in "UT":
        return {"element": "string", "shape": array.shape, "data": array.ravel().tolist()}
    return {"element": str(array.dtype), "shape": array.shape, "data": np.ascontiguousarray(array).tobytes().hex()}


def some(element, shape, low=-100, high=100):
    """Random elements of any type."""
    size = int(np.prod(shape))
    if element == "string":
        return np.array([f"text {number}" for number in RNG.integers(0, 1000, size)], dtype="U12").reshape(shape)
    if element == "bool":
        return RNG.integers(0, 2, shape).astype(bool)
    if element.startswith("float"):
        return RNG.normal(0, 30, shape).astype(element)
    return RNG.integers(0 if element.startswith("u") else low, high, shape).astype(element)


CASES = []


def case(step, options, inputs, outputs):
    """`inputs` → `outputs`; a list for several."""
    many = lambda value: [tensor(one) for one in (value if isinstance(value, (list, tuple)) else [value])]
    CASES.append({"step": step, "options": options, "inputs": many(inputs), "outputs": many(outputs)})


ELEMENTS = NUMBERS + ["bool", "string"]
SHAPES = [(), (1,), (0,), (7,), (2, 3), (1, 5), (3, 0, 2), (2, 3, 4), (1, 1, 1), (2, 1, 3, 2)]


def casts():
    values = np.array([0, 1, -1, 1.5, -1.5, 2.5, 127, 128, 255, 256, 300, -129, 32768, 65535, 65536, 1e-8, 0.1, 3e38, 65519, 65520])
    # What does not fit becomes infinite, in NumPy with a warning.
    wide = np.array([0, 1, -1, 127, 128, 255, 256, -129, 65535, 65536, 2**31 - 1, -(2**31), 2**62 + 1, -(2**63)], dtype=np.int64)
    for to in NUMBERS + ["bool"]:
        case("cast", {"to": to}, wide, wide.astype(to))
        unsigned = wide.astype(np.uint64)
        case("cast", {"to": to}, unsigned, unsigned.astype(to))
        case("cast", {"to": to}, np.array([True, False]), np.array([True, False]).astype(to))
        for of in ["float16", "float32", "float64"]:
            given = values.astype(of)
            if not to.startswith("float") and to != "bool":
                # Outside of the range NumPy leaves the result to the processor.
                bounds = np.iinfo(to)
                wide_enough = given.astype(np.float64)
                given = given[(np.trunc(wide_enough) >= bounds.min) & (wide_enough <= bounds.max)]
            case("cast", {"to": to}, given, given.astype(to))
    texts = np.array(["0", "1", " 2 ", "100", "+7"])
    for to in NUMBERS:
        case("cast", {"to": to}, texts, texts.astype(to))
    texts = np.array(["-1.5", "1e3", ".5", "5.", "nan", "inf", "-Infinity", "3.4e38", "0.1", "1e-45", "123456789.123"])
    for to in ["float32", "float64"]:
        case("cast", {"to": to}, texts, texts.astype(to))
    for of in INTEGERS + ["bool"]:
        given = some(of, (6,))
        case("cast", {"to": "string"}, given, given.astype(str))
    odd = [0.0, -0.0, 1.0, -1.5, 0.1, 1e-4, 1e-5, 123456.789, 1e15, 1e16, 1e17, 1e22, 3.4e38, 5e-324, np.nan, np.inf, -np.inf]
    # Narrower floats are written differently from one version of NumPy to the next.
    given = np.concatenate([odd, RNG.normal(0, 1, 60) * 10.0 ** RNG.integers(-20, 20, 60)])
    case("cast", {"to": "string"}, given, np.array([str(value) for value in given]))


def arithmetic():
    for element in ["float16", "float32", "float64"]:
        for shape in SHAPES:
            given = some(element, shape)
            for factor, offset in [(1 / 255, 0), (2.5, -1), (-0.1, 1e3)]:
                case("scale", {"factor": factor, "offset": offset}, given, np.asarray(given * np.dtype(element).type(factor) + np.dtype(element).type(offset)))
    for element in INTEGERS + ["bool"]:
        given = some(element, (2, 3))
        case("scale", {"factor": 0.1, "offset": 1}, given, given.astype(np.float32) * np.float32(0.1) + np.float32(1))
    odd = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-40, 3e38], dtype=np.float32)
    with np.errstate(all="ignore"):
        case("scale", {"factor": 10, "offset": -1}, odd, odd * np.float32(10) + np.float32(-1))
        case("scale", {"factor": 0}, odd, odd * np.float32(0) + np.float32(0))
    for element in NUMBERS:
        for shape in [(), (0,), (4, 5)]:
            given = some(element, shape)
            case("clip", {"min": 3, "max": 50}, given, np.asarray(np.clip(given, 3, 50)))
            case("clip", {"max": 10}, given, np.asarray(np.clip(given, None, 10)))
            case("clip", {"min": 10}, given, np.asarray(np.clip(given, 10, None)))
    case("clip", {"min": -1, "max": 1}, odd, np.clip(odd, -1, 1))


def shapes():
    for element in ELEMENTS:
        given = some(element, (2, 3, 4))
        case("reshape", {"shape": [0, -1]}, given, given.reshape(2, -1))
        case("transpose", {"axes": [2, 0, 1]}, given, given.transpose(2, 0, 1))
        case("expand", {"axes": [0, -1]}, given, np.expand_dims(given, (0, -1)))
        case("expand", {"broadcast": [2, 2, 3, 4]}, given, np.broadcast_to(given, (2, 2, 3, 4)))
        case("slice", {"index": "1, ::-2, 1:3"}, given, given[1, ::-2, 1:3])
        case("split", {"axis": 1, "sizes": [1, -1]}, given, np.split(given, [1], axis=1))
        case("concat", {"axis": 1}, [given, given[:, :1], given], np.concatenate([given, given[:, :1], given], axis=1))
        case("stack", {"axis": 1}, [given, given], np.stack([given, given], axis=1))
        case("pad-tensor", {"pads": [[0, 0], [1, 2], [3, 0]], "mode": "reflect"}, given, np.pad(given, [(0, 0), (1, 2), (3, 0)], "reflect"))
        if element != "string":
            case("pad-tensor", {"pads": 1}, given, np.pad(given, 1))
    for shape in SHAPES:
        given = some("float32", shape)
        case("reshape", {"shape": [-1] if given.size else list(shape)}, given, given.reshape(-1) if given.size else given)
        case("transpose", {}, given, given.T)
        for _ in range(3):
            axes = RNG.permutation(len(shape)).tolist()
            named = [axis - len(shape) if RNG.integers(0, 2) else axis for axis in axes]
            case("transpose", {"axes": named}, given, np.transpose(given, axes))
        case("squeeze", {}, given, np.squeeze(given))
        for axis, size in enumerate(shape):
            if size == 1:
                case("squeeze", {"axes": axis - len(shape)}, given, np.squeeze(given, axis))
        for axis in range(-len(shape) - 1, len(shape) + 1):
            case("expand", {"axes": axis}, given, np.expand_dims(given, axis))
        case("expand", {"broadcast": [2, *(-1 if size != 1 else 3 for size in shape)]}, given,
             np.broadcast_to(given, [2, *(size if size != 1 else 3 for size in shape)]))
        for axis in range(-len(shape), len(shape)):
            case("concat", {"axis": axis}, [given, given], np.concatenate([given, given], axis=axis))
            if shape[axis] % 2 == 0:
                case("split", {"axis": axis, "parts": 2}, given, np.split(given, 2, axis=axis))
        for axis in range(-len(shape) - 1, len(shape) + 1):
            case("stack", {"axis": axis}, [given, given, given], np.stack([given] * 3, axis=axis))
        for mode in ["constant", "edge", "reflect"]:
            for _ in range(3):
                pads = RNG.integers(0, 6, (len(shape), 2)).tolist()
                if mode != "constant":
                    pads = [[0, 0] if size == 0 else pad for size, pad in zip(shape, pads)]
                options = {"constant_values": 7} if mode == "constant" else {}
                said = {"value": 7} if mode == "constant" else {"mode": mode}
                case("pad-tensor", {"pads": pads, **said}, given, np.pad(given, pads, mode, **options) if pads else given)
    large = some("uint8", (37, 53, 3))
    for axes in [(2, 0, 1), (1, 0, 2), (2, 1, 0), (0, 2, 1), (1, 2, 0)]:
        case("transpose", {"axes": list(axes)}, large, large.transpose(axes))
    given = some("int32", (6, 5, 4))
    for _ in range(120):
        bound = lambda: "" if RNG.integers(0, 3) == 0 else str(RNG.integers(-8, 9))
        step = lambda: "" if RNG.integers(0, 2) == 0 else f":{RNG.choice([-3, -2, -1, 1, 2, 3])}"
        parts = [str(RNG.integers(-4, 4)) if RNG.integers(0, 4) == 0 else f"{bound()}:{bound()}{step()}" for _ in range(RNG.integers(1, 4))]
        if RNG.integers(0, 3) == 0:
            parts.insert(RNG.integers(0, len(parts) + 1), "...")
        index = ", ".join(parts)
        case("slice", {"index": index}, given, np.asarray(eval(f"given[{index}]", {"given": given})))


def one_hots():
    for element in INTEGERS:
        for shape in [(), (0,), (5,), (2, 3)]:
            given = RNG.integers(0, 6, shape).astype(element)
            case("one-hot", {"classes": 6}, given, np.eye(6, dtype=np.float32)[given])
    given = RNG.integers(-6, 6, (2, 3))
    for to in NUMBERS + ["bool"]:
        for axis in [0, 1, -1]:
            case("one-hot", {"classes": 6, "axis": axis, "element": to}, given, np.moveaxis(np.eye(6, dtype=to)[given], -1, axis))


def scores():
    odd = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-40, 100, -100, 17, 88.8, -88.8, -104])
    for element in ["float16", "float32", "float64"]:
        with np.errstate(over="ignore"):
            case("sigmoid", {}, odd.astype(element), expit(odd.astype(element)).astype(element))
        for shape in SHAPES:
            given = (some(element, shape) / 5).astype(element)
            case("sigmoid", {}, given, np.asarray(expit(given)).astype(element))
    for element in NUMBERS + ["bool"]:
        for shape in [(1,), (9,), (4, 5), (2, 3, 4), (0, 3)]:
            given = np.round(some(element, shape) / 10).astype(element)
            if element.startswith("float") and given.size > 8:
                given.ravel()[RNG.integers(0, given.size, 2)] = np.nan
            for axis in range(-len(shape), len(shape)):
                if shape[axis]:
                    case("argmax", {"axis": axis}, given, np.asarray(np.argmax(given, axis)))
                    case("argmax", {"axis": axis, "keepdims": True}, given, np.argmax(given, axis, keepdims=True))
    for element in ["float16", "float32", "float64"]:
        given = np.round(RNG.random((6, 7)), 1).astype(element)
        given[0, 0] = np.nan
        for bound in [0.3, 0.5, [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]]:
            case("threshold", {"gives": "mask", "threshold": bound}, given, given > np.array(bound, dtype=element))


DETECTIONS = []


def boxes_like(count, fine):
    """Clusters of boxes, corners on quarters of a pixel, or anywhere if `fine`."""
    centres = RNG.uniform(0, 640, (max(count // 12, 1), 2))[RNG.integers(0, max(count // 12, 1), count)]
    centres = centres + RNG.normal(0, 6, (count, 2))
    size = RNG.uniform(8, 90, (count, 2))
    boxes = np.concatenate([centres - size / 2, centres + size / 2], 1)
    return (boxes if fine else np.round(boxes * 4) / 4).astype(np.float32)


def detection(options, inputs, boxes, scores, classes, kept, most=300):
    kept = np.asarray(kept)[:most]
    expected = [boxes[kept], scores[kept], np.asarray(classes)[kept]]
    # Without inputs, those of the case before.
    DETECTIONS.append({"options": options, "inputs": [tensor(one) for one in inputs or []], "expected": [tensor(one) for one in expected]})


def by_class(boxes, scores, classes, iou):
    """`batched_nms`, as it is for more than 1000 boxes whatever their number: for fewer it moves the boxes of each class
    away from the others', which costs digits and so a few decisions that lie at the threshold. It leaves the order of
    equal scores to an unstable sort; here it is that of the boxes, as in `nms`."""
    arguments = torch.tensor(boxes), torch.tensor(scores), torch.tensor(classes), iou
    kept = torchvision.ops.boxes._batched_nms_vanilla(*arguments)
    if len(boxes) > 1000:
        assert torch.equal(kept, torchvision.ops.batched_nms(*arguments))
    kept = kept.sort()[0]
    return kept[torch.tensor(scores)[kept].sort(descending=True, stable=True)[1]].numpy()


def odd_boxes(boxes):
    """With boxes that are none."""
    odd = [[np.nan] * 4, [10, 10, np.nan, 20], [np.nan, 10, 20, 20], [np.inf, 0, np.inf, 5], [-np.inf, 0, np.inf, 5],
           [5, 5, 5, 5], [5, 5, 5, 9], [20, 20, 10, 10], [0, 0, 3e38, 3e38], [-3e38, -3e38, 3e38, 3e38], [1e-40, 0, 2e-40, 1]]
    places = RNG.permutation(len(boxes))[: 2 * len(odd)]
    boxes[places] = np.array(odd * 2, dtype=np.float32)
    return boxes


def detections():
    for count, fine, odd, iou in [(1500, False, False, 0.45), (1500, True, False, 0.5), (1200, False, True, 0.7),
                                  (300, False, True, 0.3), (300, True, False, 0.0), (200, False, True, 1.0), (1, False, False, 0.5)]:
        boxes = boxes_like(count, fine)
        boxes = odd_boxes(boxes) if odd else boxes
        # Many scores are the same.
        scores = (np.round(RNG.random(count) * 50) / 50).astype(np.float32)
        classes = RNG.integers(0, 5, count)
        above = scores > np.float32(0.25)
        options = {"layout": "separate", "iou_threshold": iou, "max_detections": 30000}
        kept = by_class(boxes[above], scores[above], classes[above], iou)
        detection(options, [boxes, scores, classes], boxes[above], scores[above], classes[above], kept, None)
        kept = torchvision.ops.nms(torch.tensor(boxes[above]), torch.tensor(scores[above]), iou).numpy()
        options = {**options, "class_agnostic": True, "max_detections": 50}
        detection(options, None, boxes[above], scores[above], classes[above], kept, 50)
    for layout in ["yolov8", "yolov5"]:
        for multi_label in [False, True]:
            anchors, classes = 700, 4
            corners = boxes_like(anchors, False)
            middle = np.concatenate([(corners[:, :2] + corners[:, 2:]) / 2, corners[:, 2:] - corners[:, :2]], 1)
            probabilities = (np.round(RNG.random((anchors, classes)) ** 3 * 100) / 100).astype(np.float32)
            probabilities[:3, 1] = np.nan
            objects = (np.round(RNG.random((anchors, 1)) * 20) / 20).astype(np.float32)
            if layout == "yolov8":
                given = np.concatenate([middle, probabilities], 1).T[None]
            else:
                given = np.concatenate([middle, objects, probabilities], 1)[None]
                probabilities = np.where(objects > np.float32(0.25), probabilities * objects, np.float32(0))
            # Ultralytics: centre and size to corners, the best class or each, what is above the threshold.
            boxes = np.concatenate([middle[:, :2] - middle[:, 2:] / 2, middle[:, :2] + middle[:, 2:] / 2], 1)
            best = torch.tensor(probabilities).amax(1).numpy()
            candidates = best > np.float32(0.25)
            boxes, probabilities = boxes[candidates], probabilities[candidates]
            if multi_label:
                anchor, named = np.nonzero(probabilities > np.float32(0.25))
                boxes, scores = boxes[anchor], probabilities[anchor, named]
            else:
                scores, named = (found.numpy() for found in torch.tensor(probabilities).max(1))
            kept = by_class(boxes, scores, named, 0.45)
            detection({"layout": layout, "multi_label": multi_label}, [given], boxes, scores, named, kept)


def ctc():
    tokens = ["<pad>", "<s>", "</s>", "<unk>", "|", *"ETAONIHSRDLUMWCFGYPBVK'XJQZ"]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "vocab.json"
        path.write_text(json.dumps({token: number for number, token in enumerate(tokens)}))
        tokenizer = Wav2Vec2CTCTokenizer(str(path))
    out = HERE / "ctc"
    out.mkdir(exist_ok=True)
    (out / "vocab.json").write_text(json.dumps({token: number for number, token in enumerate(tokens)}) + "\n")
    cases = []
    for frames in [0, 1, 2, 7, 50, 200]:
        for _ in range(3):
            best = np.repeat(RNG.choice(len(tokens), frames, p=[0.4, 0, 0, 0, 0.1] + [0.5 / 27] * 27), RNG.integers(1, 4, frames))[:frames]
            logits = RNG.integers(-9, 9, (frames, len(tokens))).astype(np.float32)
            logits[np.arange(frames), best] += 9
            text = tokenizer.decode(logits.argmax(-1).tolist(), clean_up_tokenization_spaces=False)
            # The decoder of torchaudio's tutorials.
            numbers = torch.unique_consecutive(torch.tensor(logits).argmax(-1)).tolist()
            assert text == "".join(tokens[number] for number in numbers if number).replace("|", " ").strip()
            cases.append({"shape": logits.shape, "scores": logits.ravel().astype(int).tolist(), "text": text})
    write_json(out / "cases.json", cases)


def write_cases(name, cases):
    write_bytes(HERE / name, json.dumps(cases, separators=(",", ":")).encode())
    print(f"{len(cases)} cases, {(HERE / name).stat().st_size / 1024:.0f} KiB")


if __name__ == "__main__":
    with np.errstate(over="ignore"):
        casts()
    arithmetic()
    shapes()
    one_hots()
    write_cases("tensor.json.png", CASES)
    CASES.clear()
    scores()
    write_cases("output.json.png", CASES)
    detections()
    write_cases("detections.json.png", DETECTIONS)
    ctc()
