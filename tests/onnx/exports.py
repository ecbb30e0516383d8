#!/usr/bin/env python3
"""Exports models of Ultralytics with random weights, makes a pipeline around each with `gpux new pipeline`, and compares
its answers with those of Ultralytics' own predictor.

    tests/onnx/exports.py [--gpux target/release/gpux] [--only REGEX]

Needs ultralytics (8.4 was run), onnx, onnxslim and onnxruntime. Boxes whose mask has no pixel are not compared:
Ultralytics drops them.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import ultralytics
import yaml
from PIL import Image
from ultralytics import YOLO

ROOT = Path(__file__).resolve().parent.parent.parent
SIDES = (96, 160)
TOLERANCE = 1e-3
# By name: Ultralytics' description of the model, and options of the export.
MODELS = {
    "v5": ("yolov5", {}), "v8": ("yolov8", {}), "v10": ("yolov10n", {}), "v11": ("yolo11", {}), "v26": ("yolo26", {}),
    "v8-pose": ("yolov8-pose", {}), "v11-pose": ("yolo11-pose", {}), "v26-pose": ("yolo26-pose", {}),
    "v8-segment": ("yolov8-seg", {}), "v11-segment": ("yolo11-seg", {}), "v26-segment": ("yolo26-seg", {}),
    "v8-obb": ("yolov8-obb", {}), "v26-obb": ("yolo26-obb", {}),
    "v8-classify": ("yolov8-cls", {}), "v26-classify": ("yolo26-cls", {}),
    "v10-end": ("yolov10n", {"end2end": True}), "v26-end": ("yolo26", {"end2end": True}),
    "v26-pose-end": ("yolo26-pose", {"end2end": True}), "v26-segment-end": ("yolo26-seg", {"end2end": True}),
    "v26-obb-end": ("yolo26-obb", {"end2end": True}),
    "v8-nms": ("yolov8", {"nms": True}), "v8-pose-nms": ("yolov8-pose", {"nms": True}),
    "v8-segment-nms": ("yolov8-seg", {"nms": True}), "v8-obb-nms": ("yolov8-obb", {"nms": True}),
}


def task_of(name):
    return next((task for task in ("pose", "segment", "obb", "classify") if task in name), "detect")


def export(name, description, options):
    """A narrow model with weights from a seed, whose scores lie around the threshold."""
    file = next((Path(ultralytics.__file__).parent / "cfg/models").rglob(f"{description}.yaml"))
    content = yaml.safe_load(file.read_text()) | {"nc": 5}
    if "scales" in content:
        content["scales"] = {"n": [0.33, 0.0625, 1024]}
    # The letter before the dash is the scale.
    path = Path(f"{description.removesuffix('n').split('-')[0]}n-{name}.yaml")
    path.write_text(yaml.safe_dump(content))
    torch.manual_seed(0)
    model, generator = YOLO(str(path), task=task_of(name)), torch.Generator().manual_seed(1)
    random = lambda tensor: torch.randn(tensor.shape, generator=generator)
    with torch.no_grad():
        for module in model.model.modules():
            if isinstance(module, torch.nn.BatchNorm2d):
                module.running_mean.copy_(0.2 * random(module.running_mean))
                module.running_var.copy_(0.2 + torch.rand(module.running_var.shape, generator=generator))
                module.bias.copy_(0.3 * random(module.bias))
        for heads in ("cv3", "one2one_cv3"):
            for sequence in getattr(model.model.model[-1], heads, None) or []:
                sequence[-1].bias.copy_(random(sequence[-1].bias) - 1)
                sequence[-1].weight.mul_(3)
    sides = SIDES[0] if task_of(name) == "classify" else SIDES
    exported = Path(model.export(format="onnx", imgsz=sides, verbose=False, **options))
    return exported.rename(f"{name}.onnx")


def of_ultralytics(task, model):
    sides = SIDES[0] if task == "classify" else SIDES
    (result,) = YOLO(str(model), task=task).predict("picture.png", conf=0.25, iou=0.45, imgsz=sides, verbose=False)
    if task == "classify":
        return [np.array([index, result.probs.data[index]]) for index in result.probs.top5]
    boxes = result.obb if task == "obb" else result.boxes
    places = (boxes.xyxyxyxy if task == "obb" else boxes.xyxy).numpy()
    rows = [np.r_[score, kind, place.ravel()] for score, kind, place in zip(boxes.conf, boxes.cls, places)]
    return [np.r_[row, points.ravel()] for row, points in zip(rows, result.keypoints.data)] if task == "pose" else rows


def of_gpux(gpux, task, folder):
    answer = json.loads(subprocess.run([gpux, "run", folder, "picture.png"], capture_output=True, check=True).stdout)
    if task == "classify":
        return [np.array([entry["index"], entry["score"]]) for entry in answer["top"]]
    places = ["corners"] if task == "obb" else ["box", "keypoints"] if task == "pose" else ["box"]
    row = lambda entry: np.concatenate([np.ravel(entry[key]) for key in ("score", "class", *places)])
    return [row(entry) for entry in answer["detections"]]


def difference(task, wanted, found):
    """Corners may begin with another one."""
    turns = range(4) if task == "obb" else [0]
    turned = lambda turn: np.r_[found[:2], np.roll(found[2:], 2 * turn)]
    return min(np.abs(turned(turn) - wanted).max() for turn in turns)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpux", default=ROOT / "target/release/gpux", type=Path)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    gpux, wrong = arguments.gpux.resolve(), 0
    os.chdir(tempfile.mkdtemp())
    Path("pipelines").mkdir()
    Image.open(ROOT / "examples/image-classification/china.jpg").resize(SIDES[::-1]).save("picture.png")
    for name, (description, options) in MODELS.items():
        if not re.search(arguments.only, name):
            continue
        task, model = task_of(name), export(name, description, options)
        subprocess.run([gpux, "new", "pipeline", f"pipelines/{name}", "--model", model], capture_output=True, check=True)
        wanted, found = of_ultralytics(task, model), of_gpux(gpux, task, f"pipelines/{name}")
        is_complete = len(wanted) == len(found) > 0 or task == "segment" and len(wanted) < len(found)
        largest = max((min(difference(task, row, other) for other in found) for row in wanted), default=0.0) if is_complete else np.inf
        wrong += largest > TOLERANCE
        print(f"{name:18} {len(wanted):4} and {len(found):4} answers, largest difference {largest:.1e}", flush=True)
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
