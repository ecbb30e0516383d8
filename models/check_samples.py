"""Runs the reference pipeline over the sample photos, with and without the centring step.

    python models/check_samples.py            # a table; fails unless the step makes the difference
    python models/check_samples.py --write    # also writes samples/expected.json for the parity tests
"""

import argparse
import json
from pathlib import Path

import numpy as np
from PIL import Image

from center_ink import DEFAULT_MARGIN
from reference import SCALE, Pipeline, truth

HERE = Path(__file__).parent


def main():
    parser = argparse.ArgumentParser(description="Check the sample photos against the reference pipeline.")
    parser.add_argument("--write", action="store_true", help="write samples/expected.json")
    parser.add_argument("--margin", type=float, default=DEFAULT_MARGIN)
    options = parser.parse_args()

    pipeline = Pipeline(HERE / "digits.onnx")
    paths = sorted(path for path in (HERE / "samples").iterdir() if path.suffix in {".png", ".jpg"})
    expected, right_with, right_without = {}, 0, 0
    print(f"{'sample':18} {'size':>8} {'mode':4}  {'with the step':18}  without")
    for path in paths:
        picture = Image.open(path)
        gray = np.asarray(picture.convert("L"))
        centered = pipeline.run(gray, options.margin)
        plain = pipeline.run(gray, None)
        right_with += centered.label == truth(path.name)
        right_without += plain.label == truth(path.name)
        size = f"{picture.width}x{picture.height}"
        print(
            f"{path.name:18} {size:>8} {picture.mode:4}  "
            f"{mark(centered, path)} {centered.label:6} {centered.probability:.4f}     "
            f"{mark(plain, path)} {plain.label:6} {plain.probability:.4f}"
        )
        expected[path.name] = {
            "label": centered.label,
            "probability": round(centered.probability, 6),
            "logits": [round(float(logit), 5) for logit in centered.logits],
        }
    with_step, without_step = right_with / len(paths), right_without / len(paths)
    print(f"right: {with_step:.0%} with the step, {without_step:.0%} without")
    if options.write:
        record = {"margin": options.margin, "scale": round(float(SCALE), 6), "samples": expected}
        (HERE / "samples" / "expected.json").write_text(as_json(record))
    if with_step < 1 or without_step > 0.5:
        raise SystemExit("the samples should all be right with the step, and at most half of them without")


def mark(answer, path):
    return "+" if answer.label == truth(path.name) else "-"


def as_json(record):
    """JSON with a sample a line."""
    samples = ",\n".join(f"    {json.dumps(name)}: {json.dumps(sample)}" for name, sample in record["samples"].items())
    head = ",\n".join(f"  {json.dumps(key)}: {json.dumps(record[key])}" for key in ("margin", "scale"))
    return f'{{\n{head},\n  "samples": {{\n{samples}\n  }}\n}}\n'


if __name__ == "__main__":
    main()
