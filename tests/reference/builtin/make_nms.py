"""What Ultralytics' `non_max_suppression` keeps of predictions in the layouts of its exports: boxes, keypoints, mask
coefficients, oriented boxes, end-to-end. Writes nms-layouts.json. Needs ultralytics and torch."""

import json
from pathlib import Path

import numpy as np
import torch
from ultralytics.utils.nms import non_max_suppression
from ultralytics.utils.ops import xywhr2xyxyxyxy

HERE = Path(__file__).parent
RNG = np.random.default_rng(45)
ANCHORS, CLASSES = 36, 3


def predictions(extra):
    """Clusters of boxes, `[4 + classes + extra, anchors]`."""
    centres = RNG.uniform(40, 280, (4, 2))[RNG.integers(0, 4, ANCHORS)] + RNG.normal(0, 5, (ANCHORS, 2))
    boxes = np.concatenate([centres, RNG.uniform(10, 70, (ANCHORS, 2))], 1).round(1)
    scores = RNG.permutation(ANCHORS * CLASSES).reshape(ANCHORS, CLASSES) / (ANCHORS * CLASSES)
    return np.concatenate([boxes, (scores**2).round(4), extra], 1).T[None].astype(np.float32)


def case(name, options, given, kept):
    return {"name": name, "options": options, "shape": list(given.shape),
            "predictions": [float(str(number)) for number in given.ravel()], "kept": kept}


def main():
    def keypoints():
        points = RNG.uniform(0, 320, (ANCHORS, 2, 3))
        points[:, :, 2] /= 320
        return points.reshape(ANCHORS, 6).round(2)

    cases = []
    for name, extra, options in [
        ("detect", np.zeros((ANCHORS, 0)), {}),
        ("pose", keypoints(), {"keypoints": [2, 3]}),
        ("segment", RNG.normal(0, 0.5, (ANCHORS, 4)).round(3), {"mask_coefficients": 4}),
        ("obb", RNG.uniform(-0.78, 2.35, (ANCHORS, 1)).round(3), {"angle": True}),
    ]:
        given = predictions(extra)
        rotated = name == "obb"
        rows = non_max_suppression(torch.tensor(given), 0.25, 0.45, nc=CLASSES, rotated=rotated)[0].numpy()
        cases.append(case(name, options, given, fields(name, rows)))
        # The rows as a model with NMS gives them: nothing is suppressed.
        end_to_end = np.zeros((1, 100, rows.shape[1]), np.float32)
        end_to_end[0, : len(rows)] = rows
        again = non_max_suppression(torch.tensor(end_to_end), 0.4, end2end=True)[0].numpy()
        options = {**options, "layout": "end-to-end", "score_threshold": 0.4}
        cases.append(case(f"{name}, end to end", options, end_to_end[:, : len(rows) + 2], fields(name, again)))
    (HERE / "nms-layouts.json").write_text(json.dumps(cases, separators=(",", ":")) + "\n")


def fields(name, rows):
    kept = []
    for row in rows:
        box, rest = row[:4], row[6:]
        found = {"score": row[4], "class": int(row[5])}
        if name == "obb":
            corners = xywhr2xyxyxyxy(np.concatenate([box, rest])[None])[0]
            box = np.concatenate([corners.min(0), corners.max(0)])
            found |= {"corners": corners, "angle": rest[0]}
        elif name == "pose":
            found["keypoints"] = rest.reshape(2, 3)
        elif name == "segment":
            found["mask_coefficients"] = rest
        kept.append({"box": box, **found})
    return [{key: shortest(value) for key, value in box.items()} for box in kept]


def shortest(value):
    """Its numbers with as few digits as tell them from other float32."""
    if isinstance(value, int):
        return value
    return float(str(np.float32(value))) if np.ndim(value) == 0 else [shortest(one) for one in value]


if __name__ == "__main__":
    main()
