"""Makes the example: a small detector shaped like YOLOv8, a picture, and what the usual Python chain finds in it.
Needs numpy, onnx, onnxruntime, opencv-python-headless, pillow, torch and torchvision.

The detector is not trained: its weights say that a disc is red, green or blue, and about 56 pixels wide. Around it
everything is as with a real one: a picture of another shape than the model's input, 4 + classes rows for each of
1600 anchors, many boxes for each disc.
"""

import json
from pathlib import Path

import cv2
import numpy as np
import onnxruntime as ort
import torch
import torchvision
from onnx import TensorProto, checker, helper, numpy_helper, save
from PIL import Image, ImageDraw

HERE = Path(__file__).parent
SIDE, STRIDE, CLASSES = 320, 8, ["red", "green", "blue"]
CELLS = SIDE // STRIDE
WIDTH = 56
SCORE, IOU = 0.5, 0.2


def picture():
    image = Image.new("RGB", (480, 300))
    image.putdata([(90 + x // 8, 110 + y // 10, 120) for y in range(300) for x in range(480)])
    draw = ImageDraw.Draw(image)
    for x, y, colour in [(70, 80, (220, 40, 30)), (105, 130, (30, 50, 210)), (250, 60, (40, 190, 60)),
                         (330, 210, (200, 30, 60)), (430, 255, (50, 40, 230)), (455, 40, (40, 200, 90)), (180, 220, (150, 150, 150))]:
        draw.ellipse([x - 42, y - 42, x + 42, y + 42], fill=colour)
    image.save(HERE / "discs.png", optimize=True)


def model():
    # How much of each colour there is around a cell, seen from further and further away.
    smooth = np.zeros((3, 3, 7, 7), np.float32)
    for channel in range(3):
        smooth[channel, channel] = 1 / 49
    # Red is red without green and blue, and so on.
    scores = np.full((3, 3, 1, 1), -20, np.float32)
    for channel in range(3):
        scores[channel, channel] = 40
    middle = np.stack(np.meshgrid(np.arange(CELLS), np.arange(CELLS))).reshape(1, 2, -1) * STRIDE + STRIDE / 2
    boxes = np.concatenate([middle, np.full((1, 2, CELLS * CELLS), WIDTH)], 1).astype(np.float32)
    constants = {"smooth": smooth, "scores": scores, "bias": np.full(3, -13, np.float32), "boxes": boxes,
                 "flat": np.array([1, len(CLASSES), CELLS * CELLS])}
    nodes = [
        helper.make_node("AveragePool", ["images"], ["cells"], kernel_shape=[STRIDE] * 2, strides=[STRIDE] * 2),
        helper.make_node("Conv", ["cells", "smooth"], ["wide"], pads=[3] * 4),
        helper.make_node("Conv", ["wide", "scores", "bias"], ["colours"]),
        helper.make_node("Sigmoid", ["colours"], ["likely"]),
        helper.make_node("Reshape", ["likely", "flat"], ["classes"]),
        helper.make_node("Concat", ["boxes", "classes"], ["output0"], axis=1),
    ]
    graph = helper.make_graph(
        nodes, "discs",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, [1, 3, SIDE, SIDE])],
        [helper.make_tensor_value_info("output0", TensorProto.FLOAT, [1, 4 + len(CLASSES), CELLS * CELLS])],
        [numpy_helper.from_array(value, name) for name, value in constants.items()])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    checker.check_model(made)
    save(made, HERE / "discs.onnx")


def found():
    """Ultralytics' chain: LetterBox, the model, non_max_suppression, scale_boxes."""
    image = cv2.cvtColor(cv2.imread(str(HERE / "discs.png")), cv2.COLOR_BGR2RGB)
    height, width = image.shape[:2]
    scale = min(SIDE / height, SIDE / width)
    wide, high = round(width * scale), round(height * scale)
    left, top = (SIDE - wide) / 2, (SIDE - high) / 2
    fitted = cv2.resize(image, (wide, high), interpolation=cv2.INTER_LINEAR)
    fitted = cv2.copyMakeBorder(fitted, round(top - 0.1), round(top + 0.1), round(left - 0.1), round(left + 0.1),
                                cv2.BORDER_CONSTANT, value=(114, 114, 114))
    given = np.ascontiguousarray(fitted.transpose(2, 0, 1)[None]).astype(np.float32) / np.float32(255)
    rows = ort.InferenceSession(HERE / "discs.onnx").run(None, {"images": given})[0][0].T
    rows = rows[rows[:, 4:].max(1) > SCORE]
    boxes = np.concatenate([rows[:, :2] - rows[:, 2:4] / 2, rows[:, :2] + rows[:, 2:4] / 2], 1)
    scores, classes = rows[:, 4:].max(1), rows[:, 4:].argmax(1)
    kept = torchvision.ops.batched_nms(torch.tensor(boxes), torch.tensor(scores), torch.tensor(classes), IOU).numpy()
    print(f"{len(rows)} boxes, {len(kept)} kept")
    boxes = (boxes[kept] - np.array([round(left - 0.1), round(top - 0.1)] * 2, np.float32)) / np.float32(scale)
    boxes = np.clip(boxes, 0, [width, height, width, height])
    return [{"box": box, "score": score, "class": name, "label": CLASSES[name]}
            for box, score, name in zip(boxes.tolist(), scores[kept].tolist(), classes[kept].tolist())]


if __name__ == "__main__":
    picture()
    model()
    (HERE / "expected.json").write_text(json.dumps(found(), indent=1) + "\n")
