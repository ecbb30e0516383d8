"""Times steps on tensors and after a model beside the same work in Python, one thread each.

    cargo build --release && python benches/compare/tensor.py [--gpux target/release/gpux]

Needs the packages of tests/reference/builtin/requirements-tensor.txt. Both sides take turns in one run; what is
printed are medians of all rounds, in milliseconds, and Python's over gpux's.
"""

import argparse
import base64
import json
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"

import numpy as np
import torch
import torchvision
from scipy.special import expit

torch.set_num_threads(1)

ROUNDS = 7
RNG = np.random.default_rng(5)


def predictions(objects, neighbours):
    """What YOLOv8 gives for a picture of 640 × 640: `neighbours` anchors for each of `objects`."""
    given = np.zeros((1, 84, 8400), dtype=np.float32)
    given[0, :2] = RNG.uniform(0, 640, (2, 8400))
    given[0, 2:4] = RNG.uniform(10, 200, (2, 8400))
    given[0, 4:] = RNG.random((80, 8400)) * 0.2
    for number in range(objects):
        at = slice(number * neighbours, (number + 1) * neighbours)
        given[0, :4, at] = RNG.uniform(50, 590, (4, 1)) + RNG.normal(0, 3, (4, neighbours))
        given[0, 4 + RNG.integers(0, 80), at] = RNG.uniform(0.3, 0.95, neighbours)
    return given


def nms(given):
    """Ultralytics' `non_max_suppression`, and its result as the lists that a caller gets."""
    given = given[0]
    candidates = given[:, given[4:].max(0) > 0.25].T
    boxes, scores = candidates[:, :4], candidates[:, 4:]
    corners = np.concatenate([boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, :2] + boxes[:, 2:] / 2], 1)
    classes = scores.argmax(1)
    scores = scores[np.arange(len(scores)), classes]
    kept = torchvision.ops.batched_nms(torch.from_numpy(corners), torch.from_numpy(scores), torch.from_numpy(classes), 0.45)
    kept = kept[:300].numpy()
    return [{"box": box, "score": score, "class": name}
            for box, score, name in zip(corners[kept].tolist(), scores[kept].tolist(), classes[kept].tolist())]


def ctc(logits):
    best = logits.argmax(-1)
    kept = best[np.concatenate([[True], best[1:] != best[:-1]])]
    return "".join(LETTERS[token] for token in kept if token).replace("|", " ").strip()


LETTERS = ["<pad>", "|", *"abcdefghijklmnopqrstuvwxyz'-.,"]
PHOTO = RNG.integers(0, 256, (640, 640, 3), dtype=np.uint8)
FLOATS = RNG.normal(0, 2, (640, 640, 3)).astype(np.float32)
COLUMNS = RNG.normal(0, 2, (84, 8400)).astype(np.float32)
SCORES = RNG.normal(0, 4, (1, 80, 8400)).astype(np.float32)
CLASSES = RNG.normal(0, 4, (1, 21, 512, 512)).astype(np.float32)
TABLE = {
    "nms, 84 × 8400, 20 objects, 120 candidates": ("nms", {}, [predictions(20, 6)], nms),
    "nms, 84 × 8400, 200 objects, 3000 candidates": ("nms", {}, [predictions(200, 15)], nms),
    "sigmoid, 80 × 8400, beside SciPy": ("sigmoid", {}, [SCORES], expit),
    "sigmoid, 80 × 8400, beside PyTorch": ("sigmoid", {}, [SCORES], lambda x: torch.sigmoid(torch.from_numpy(x)).numpy()),
    "argmax, 21 × 512 × 512, first axis": ("argmax", {"axis": 1}, [CLASSES], lambda x: x.argmax(1)),
    "argmax, 8400 × 84, last axis": ("argmax", {}, [COLUMNS.reshape(8400, 84)], lambda x: x.argmax(-1)),
    "threshold to a mask, 80 × 8400": ("threshold", {"gives": "mask"}, [SCORES], lambda x: x > np.float32(0.5)),
    "ctc-greedy-decode, 1000 frames of 32": ("ctc-greedy-decode", {"vocabulary": LETTERS}, [RNG.normal(0, 1, (1000, 32)).astype(np.float32)], ctc),
    "transpose, 640 × 640 × 3 bytes to planes": ("transpose", {"axes": [2, 0, 1]}, [PHOTO], lambda x: np.ascontiguousarray(x.transpose(2, 0, 1))),
    "transpose, 640 × 640 × 3 floats to planes": ("transpose", {"axes": [2, 0, 1]}, [FLOATS], lambda x: np.ascontiguousarray(x.transpose(2, 0, 1))),
    "transpose, 84 × 8400 floats": ("transpose", {}, [COLUMNS], lambda x: np.ascontiguousarray(x.T)),
    "cast, 640 × 640 × 3 bytes to floats": ("cast", {"to": "float32"}, [PHOTO], lambda x: x.astype(np.float32)),
    "cast, 640 × 640 × 3 floats to float16": ("cast", {"to": "float16"}, [FLOATS], lambda x: x.astype(np.float16)),
    "scale, 640 × 640 × 3 floats": ("scale", {"factor": 0.5, "offset": 1}, [FLOATS], lambda x: x * np.float32(0.5) + np.float32(1)),
    "clip, 640 × 640 × 3 floats": ("clip", {"min": 0, "max": 1}, [FLOATS], lambda x: np.clip(x, 0, 1)),
    "slice, the middle 320 × 320": ("slice", {"index": "160:480, 160:480"}, [FLOATS], lambda x: np.ascontiguousarray(x[160:480, 160:480])),
    "pad-tensor, reflect by 16": ("pad-tensor", {"pads": [[16, 16], [16, 16], [0, 0]], "mode": "reflect"}, [FLOATS], lambda x: np.pad(x, [(16, 16), (16, 16), (0, 0)], "reflect")),
    "concat, 640 × 640 × 3 floats twice, last axis": ("concat", {"axis": -1}, [FLOATS, FLOATS], lambda x, y: np.concatenate([x, y], -1)),
    "stack, 640 × 640 × 3 floats twice": ("stack", {}, [FLOATS, FLOATS], lambda x, y: np.stack([x, y])),
    "one-hot, 512 × 512 of 21": ("one-hot", {"classes": 21}, [CLASSES[0].argmax(0)], lambda x: np.eye(21, dtype=np.float32)[x]),
    "reshape": ("reshape", {"shape": [-1]}, [FLOATS], lambda x: x.reshape(-1)),
    "json-template": ("json-template", {"template": {"answer": {"mean": "{{x0[0]}}", "text": "it is {{x0[1]}}"}}}, [np.array([1.5, 2.5], np.float32)],
                      lambda x: (lambda values: {"answer": {"mean": values[0], "text": f"it is {values[1]}"}})(x.tolist())),
}


def prepared(folder, step, options, inputs):
    """Writes a pipeline of one step; gives the arguments that run it."""
    names = [f"x{number}" for number in range(len(inputs))]
    ports = {name: {"type": str(given.dtype), "shape": given.shape} for name, given in zip(names, inputs)}
    pipeline = {"name": "compare", "version": "1.0.0", "inputs": ports, "pipeline": [{step: {**options, "in": names}}]}
    (folder / "gpux.yml").write_text(json.dumps(pipeline))
    request = {name: {"type": str(given.dtype), "shape": given.shape, "data": base64.b64encode(given.tobytes()).decode()}
               for name, given in zip(names, inputs)}
    (folder / "request.json").write_text(json.dumps(request))
    return ["run", folder, "--input", f"@{folder / 'request.json'}", "--benchmark", "--json"]


def timed(work, inputs, runs):
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        work(*inputs)
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpux", default=Path(__file__).parents[2] / "target/release/gpux")
    parser.add_argument("only", nargs="*", help="words that a row's name must contain")
    arguments = parser.parse_args()
    print(f"{'':48} {'Python':>9} {'gpux':>9} {'ratio':>6}")
    for title, (step, options, inputs, work) in TABLE.items():
        if not all(word in title for word in arguments.only):
            continue
        runs = 10 if sum(given.size for given in inputs) > 3_000_000 else 50
        with tempfile.TemporaryDirectory() as folder:
            command = [arguments.gpux, *prepared(Path(folder), step, options, inputs), "--runs", str(runs)]
            theirs, ours = [], []
            for _ in range(ROUNDS):
                theirs.append(timed(work, inputs, runs))
                ours.append(json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["p50"])
        python, native = statistics.median(theirs), statistics.median(ours)
        print(f"{title:48} {python:9.3f} {native:9.3f} {python / native:6.2f}")


if __name__ == "__main__":
    main()
