"""Compares with the package's own steps: boxes and points must be equal to a pixel. The package runs in Unity, so its two
compute shaders (Shaders/Postprocess1Kernel.hlsl, Postprocess2.compute) are written here in NumPy, line by line, around
ONNX Runtime and OpenCV; faces are looked at in the order of their scores, where the shader has no order. Needs numpy,
onnxruntime, opencv-python.

    examples/faces/referee.py [GPUX] [PICTURE…]
"""

import json
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import onnxruntime

HERE = Path(__file__).resolve().parent
SIZE, THRESHOLD, IOU_THRESHOLD = 256, 0.75, 0.3
NAMES = ["right_eye", "left_eye", "nose_tip", "mouth", "right_ear", "left_ear"]


def fitted(picture):
    """The picture in the middle of a square, and how it got there."""
    height, width = picture.shape[:2]
    scale = SIZE / max(height, width)
    sides = round(width * scale), round(height * scale)
    left, top = (SIZE - sides[0]) // 2, (SIZE - sides[1]) // 2
    square = np.zeros((SIZE, SIZE, 3), np.uint8)
    square[top : top + sides[1], left : left + sides[0]] = cv2.resize(picture, sides)
    return square, scale, (left, top)


def candidates(scores, boxes, cells, anchors):
    scores, boxes = 1 / (1 + np.exp(-scores.reshape(-1))), boxes.reshape(-1, 8, 2) / SIZE
    for index in np.flatnonzero(scores > THRESHOLD):
        cell = index // anchors
        anchor = (np.array([cell % cells, cell // cells]) + 0.5) / cells
        center, extent, points = anchor + boxes[index, 0], boxes[index, 1], anchor + boxes[index, 2:]
        yield scores[index], np.vstack([center[None], extent[None], points])


def iou(a, b):
    low, high = (np.array([box[0] + sign * box[1] / 2 for box in (a, b)]) for sign in (-1, 1))
    inner = np.prod(np.maximum(0, high.min(0) - low.max(0)))
    return inner / (np.prod(a[1]) + np.prod(b[1]) - inner)


def blended(entries):
    entries = sorted(entries, key=lambda entry: -entry[0])
    while entries:
        best = entries[0]
        same = [entry for entry in entries if iou(best[1], entry[1]) >= IOU_THRESHOLD]
        yield best[0], sum(score * matrix for score, matrix in same) / sum(score for score, _ in same)
        entries = [entry for entry in entries if iou(best[1], entry[1]) < IOU_THRESHOLD]


def main():
    gpux, *pictures = sys.argv[1:] or ["gpux"]
    session = onnxruntime.InferenceSession(HERE / "blazeface.onnx")
    is_wrong = False
    for picture in pictures or [HERE / "tests/astronaut/astronaut.jpg"]:
        square, scale, offset = fitted(cv2.cvtColor(cv2.imread(str(picture)), cv2.COLOR_BGR2RGB))
        results = session.run(None, {"input:0": square[None].astype(np.float32) / 127.5 - 1})
        found = [*candidates(results[0], results[2], 16, 2), *candidates(results[1], results[3], 8, 6)]
        wanted = []
        for score, matrix in blended(found):
            center, extent, points = matrix[0], matrix[1], matrix[2:]
            places = np.vstack([center - extent / 2, center + extent / 2, points]) * SIZE
            wanted.append((score, (places - offset) / scale))
        command = [gpux, "run", HERE, picture, "--json"]
        faces = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)["faces"]
        places = lambda face: np.array([*np.reshape(face["box"], (2, 2)), *(face["landmarks"][name] for name in NAMES)])
        pixels = scores = np.inf
        if len(faces) == len(wanted):
            pixels = max((np.abs(places(face) - points).max() for face, (_, points) in zip(faces, wanted)), default=0)
            scores = max((abs(face["score"] - score) for face, (score, _) in zip(faces, wanted)), default=0)
        print(f"{Path(picture).name}: {len(wanted)} and {len(faces)} faces, off by {pixels:.2g} pixels, scores by {scores:.1e}")
        is_wrong |= pixels > 1 or scores > 1e-3
    sys.exit(is_wrong)


if __name__ == "__main__":
    main()
