"""Writes reference.json: what ONNX Runtime's NonMaxSuppression keeps. Needs numpy, onnx and onnxruntime.

Each case is checked against the textbook's loop in NumPy too, and drawn again where an overlap is so near the
threshold that the last bit decides.
"""

import json
from pathlib import Path

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper

info = helper.make_tensor_value_info


def model():
    inputs = [info("boxes", TensorProto.FLOAT, [1, None, 4]), info("scores", TensorProto.FLOAT, [1, None, None]),
              info("most", TensorProto.INT64, [1]), info("iou", TensorProto.FLOAT, [1]), info("score", TensorProto.FLOAT, [1])]
    node = helper.make_node("NonMaxSuppression", ["boxes", "scores", "most", "iou", "score"], ["kept"])
    graph = helper.make_graph([node], "nms", inputs, [info("kept", TensorProto.INT64, [None, 3])])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return ort.InferenceSession(made.SerializeToString())


def overlaps(boxes):
    left, top, right, bottom = boxes.T
    width = np.maximum(np.minimum.outer(right, right) - np.maximum.outer(left, left), 0)
    height = np.maximum(np.minimum.outer(bottom, bottom) - np.maximum.outer(top, top), 0)
    area = (right - left) * (bottom - top)
    return width * height / (np.add.outer(area, area) - width * height)


def textbook(boxes, scores, iou, score):
    """Box and class of what stays, best first, each class for itself."""
    overlap, kept = overlaps(boxes), []
    for label in range(scores.shape[1]):
        mine = []
        for box in np.argsort(-scores[:, label], kind="stable"):
            if scores[box, label] > score and all(overlap[box, other] <= iou for other in mine):
                mine.append(int(box))
        kept += [[box, label] for box in mine]
    return sorted(kept, key=lambda pair: -scores[pair[0], pair[1]])


rng = np.random.default_rng(11)
session, cases = model(), []
for count, classes, iou, score in [(1, 1, 0.5, 0.0), (30, 1, 0.5, 0.1), (60, 1, 0.2, 0.5), (60, 3, 0.45, 0.25),
                                   (40, 5, 0.7, 0.6), (50, 2, 0.0, 0.25), (50, 1, 1.0, 0.25)]:
    while True:
        corner = rng.uniform(0, 60, (count, 2)).astype(np.float32)
        boxes = np.concatenate([corner, corner + rng.uniform(2, 40, (count, 2)).astype(np.float32)], 1).round(2)
        boxes = boxes.astype(np.float32)
        scores = rng.permutation(np.linspace(0, 0.99, count * classes)).astype(np.float32).round(4).reshape(count, classes)
        if (np.abs(overlaps(boxes) - np.float32(iou)) > 1e-5).all() or iou in (0.0, 1.0):
            break
    kept = session.run(None, {"boxes": boxes[None], "scores": scores.T[None], "most": np.array([count]),
                              "iou": np.array([iou], np.float32), "score": np.array([score], np.float32)})[0]
    kept = sorted(([int(box), int(label)] for _, label, box in kept), key=lambda pair: -scores[pair[0], pair[1]])
    assert kept == textbook(boxes, scores, np.float32(iou), np.float32(score))
    assert len(set(scores.ravel().tolist())) == scores.size
    numbers = lambda array: [float(str(x)) for x in array.ravel()]
    cases.append({"options": {"iou": iou, "score": score}, "classes": classes, "boxes": numbers(boxes),
                  "scores": numbers(scores), "kept": kept})
Path(__file__).with_name("reference.json").write_text(
    "[\n" + ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases) + "\n]\n")
