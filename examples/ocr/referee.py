"""Compares with the Python package rapidocr itself, reading a line at a time, on pages or pictures.

    examples/ocr/referee.py [GPUX] [PICTURE…]
    examples/ocr/referee.py [GPUX] --large | --strips

Without pictures it draws 60 pages with make_pages.py, or 12 of 2400 to 4000 pixels, or single lines. Texts must be equal for 99.5 % of the lines and scores to 1e-3
for as many, corners to 1 pixel. Needs rapidocr 3.10.0, onnxruntime, and what make_pages.py needs.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from rapidocr import RapidOCR

HERE = Path(__file__).resolve().parent


def main():
    gpux, *pictures = sys.argv[1:] or ["gpux"]
    with tempfile.TemporaryDirectory() as folder:
        if not pictures or pictures[0].startswith("--"):
            subprocess.run([sys.executable, HERE / "make_pages.py", *pictures[:1], folder], check=True)
            pictures = sorted(str(path) for path in Path(folder).glob("*.png"))
        sys.exit(compare(gpux, pictures))


def compare(gpux, pictures):
    found = {}
    for picture in pictures:
        output = subprocess.run([gpux, "run", HERE, picture, "--json"], capture_output=True, check=True).stdout
        found[picture] = json.loads(output)["lines"]
    reader = RapidOCR(params={"Rec.rec_batch_num": 1, "Global.log_level": "critical"})
    lines = equal = 0
    corners, scores = [], []
    for picture in pictures:
        try:
            wanted = reader(picture)
        except Exception as error:
            print(f"{Path(picture).name}: rapidocr fails ({type(error).__name__}), here {len(found[picture])} lines")
            continue
        theirs = list(zip(wanted.txts or [], wanted.scores or [], wanted.boxes if wanted.boxes is not None else []))
        ours = found[picture]
        if len(ours) != len(theirs):
            print(f"{Path(picture).name}: {len(theirs)} lines, here {len(ours)}")
        lines += max(len(ours), len(theirs))
        for (text, score, box), line in zip(theirs, ours):
            is_equal = text == line["text"]
            equal += is_equal
            corner = float(np.abs(np.array(box) - np.array(line["points"])).max())
            corners.append(corner)
            scores.append(abs(score - line["score"]))
            if not is_equal or corner > 1 or scores[-1] > 1e-3:
                print(f"{Path(picture).name}: {text!r} {score:.4f}, here {line['text']!r} {line['score']:.4f}; corners off by {corner:.2f}")
    print(f"{len(pictures)} pictures, {lines} lines: {equal} texts equal; corners off by at most {max(corners, default=0):.2f} pixels, {sum(corner > 1 for corner in corners)} by more than 1; scores by at most {max(scores, default=0):.1e}, {sum(score > 1e-3 for score in scores)} by more than 1e-3")
    return min(equal, sum(score <= 1e-3 for score in scores)) < 0.995 * lines or max(corners, default=0) > 1


if __name__ == "__main__":
    main()
