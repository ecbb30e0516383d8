"""Compares with the Python package itself: classes must be equal, boxes to a pixel, scores to 1e-3. Needs rapid-layout
1.2.1 with onnxruntime.

    examples/page-layout/referee.py [GPUX] [PICTURE…]
"""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
from rapid_layout import RapidLayout

HERE = Path(__file__).resolve().parent


def main():
    gpux, *pictures = sys.argv[1:] or ["gpux"]
    reader = RapidLayout(model_type="pp_layout_cdla", model_dir_or_path=str(HERE / "layout_cdla.onnx"))
    is_wrong = False
    for picture in pictures or [HERE / "tests/page/page.png"]:
        result = reader(str(picture))
        wanted = sorted(zip(result.class_names, result.scores, result.boxes), key=lambda box: (box[0], -box[1]))
        command = [gpux, "run", HERE, picture, "--json"]
        answer = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)["detections"]
        found = sorted(((box["label"], box["score"], box["box"]) for box in answer), key=lambda box: (box[0], -box[1]))
        is_same = [box[0] for box in wanted] == [box[0] for box in found]
        pixels = scores = np.inf
        if is_same:
            pixels = max((np.abs(np.subtract(a[2], b[2])).max() for a, b in zip(wanted, found)), default=0)
            scores = max((abs(a[1] - b[1]) for a, b in zip(wanted, found)), default=0)
        print(f"{Path(picture).name}: {len(wanted)} and {len(found)} boxes, off by {pixels:.2g} pixels, scores by {scores:.1e}")
        is_wrong |= not is_same or pixels > 1 or scores > 1e-3
    sys.exit(is_wrong)


if __name__ == "__main__":
    main()
