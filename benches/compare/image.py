"""Times image pipelines of gpux beside the same chains in Python, one thread each.

    cargo build --release && python benches/compare/image.py [--gpux target/release/gpux] [WORDS]

Needs the packages of tests/reference/builtin/requirements-image.txt. Both sides take turns in one
run; what is printed are milliseconds and Python's over gpux's: the median of the rounds' medians, and
the median of the rounds' least times, which says more on a machine that has other work.
"""

import argparse
import io
import json
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"

import cv2
import numpy as np
from PIL import Image
from sklearn.datasets import load_sample_image

cv2.setNumThreads(1)

ROUNDS = 7
MEAN = np.array([0.485, 0.456, 0.406], np.float32)
STD = np.array([0.229, 0.224, 0.225], np.float32)


def encoded(width, height, kind, **options):
    image = Image.fromarray(load_sample_image("china.jpg")).resize((width, height), Image.Resampling.BICUBIC)
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def pillow_decode(data):
    image = Image.open(io.BytesIO(data))
    image.load()
    return image


def cv2_decode(data):
    return cv2.cvtColor(cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB)


def pillow_resize(image):
    return image.resize((224, 224), Image.Resampling.BILINEAR)


def normalize(image):
    return (np.asarray(image, dtype=np.float32) / np.float32(255) - MEAN) / STD


def letterbox(image):
    height, width = image.shape[:2]
    scale = min(640 / height, 640 / width)
    wide, high = round(width * scale), round(height * scale)
    image = cv2.resize(image, (wide, high), interpolation=cv2.INTER_LINEAR)
    left, top = round((640 - wide) / 2 - 0.1), round((640 - high) / 2 - 0.1)
    return cv2.copyMakeBorder(image, top, 640 - high - top, left, 640 - wide - left, cv2.BORDER_CONSTANT, value=(114,) * 3)


def to_tensor(image):
    return np.ascontiguousarray(image.transpose(2, 0, 1)[None]).astype(np.float32) / np.float32(255)


def array(step):
    return lambda image: step(np.asarray(image))


PHOTO = encoded(1280, 720, "JPEG", quality=90)
# Of high quality a file is mostly coefficients.
DETAILED = encoded(1280, 720, "JPEG", quality=95)
SMALL = encoded(64, 48, "JPEG", quality=90)
USUAL = [("decode-image", pillow_decode, {}), ("resize", pillow_resize, {"size": 224}), ("normalize", normalize, {"method": "imagenet"})]
CHAINS = {
    "photo 1280 × 720, JPEG": (PHOTO, USUAL),
    "photo of high quality, JPEG": (DETAILED, USUAL),
    "small 64 × 48, JPEG": (SMALL, USUAL),
    "photo, as a detector takes it (OpenCV)": (PHOTO, [
        ("decode-image", cv2_decode, {}), ("letterbox", letterbox, {"size": 640}), ("to-tensor", to_tensor, {"scale": True}),
    ]),
    "photo, WebP": (encoded(1280, 720, "WEBP", quality=80), [("decode-image", pillow_decode, {})]),
    "photo, PNG": (encoded(1280, 720, "PNG"), [("decode-image", pillow_decode, {})]),
    "photo, resized as OpenCV does": (PHOTO, [
        ("decode-image", cv2_decode, {}),
        ("resize", lambda image: cv2.resize(image, (224, 224), interpolation=cv2.INTER_LINEAR), {"size": 224, "library": "opencv"}),
    ]),
    "photo, area as OpenCV does": (PHOTO, [
        ("decode-image", cv2_decode, {}),
        ("resize", lambda image: cv2.resize(image, (224, 224), interpolation=cv2.INTER_AREA),
         {"size": 224, "library": "opencv", "filter": "area"}),
    ]),
    "photo, flipped and cut": (PHOTO, [
        ("decode-image", cv2_decode, {}),
        ("flip", lambda image: np.ascontiguousarray(image[:, ::-1]), {}),
        ("center-crop", lambda image: np.ascontiguousarray(image[48:672, 328:952]), {"size": 624}),
        ("color", lambda image: cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), {"to": "gray"}),
    ]),
}


def timed_python(data, steps, runs):
    """Milliseconds of each step and of the whole, a list for each."""
    times = [[] for _ in range(len(steps) + 1)]
    for _ in range(runs):
        value, begin = data, time.perf_counter()
        for index, (_, step, _) in enumerate(steps):
            start = time.perf_counter()
            value = step(value)
            times[index].append((time.perf_counter() - start) * 1e3)
        times[-1].append((time.perf_counter() - begin) * 1e3)
    return times


def timed_gpux(gpux, folder, data, steps, runs):
    """Median and least time of one run of `gpux run --benchmark`, of each step and of the whole."""
    pipeline = {
        "name": "compare", "version": "1.0.0", "inputs": {"image": "image"},
        "pipeline": [{name: options} for name, _, options in steps],
    }
    (folder / "gpux.yml").write_text(json.dumps(pipeline))
    (folder / "image.bin").write_bytes(data)
    command = [gpux, "run", folder, "--file", folder / "image.bin", "--benchmark", "--json", "--runs", str(runs)]
    report = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    every = [step["times_ms"] for step in report["steps"]] + [report]
    return [(times["p50"], times["min_inference_time"]) for times in every]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpux", default=Path(__file__).parents[2] / "target/release/gpux")
    parser.add_argument("words", nargs="*", help="only chains whose titles hold one of these")
    arguments = parser.parse_args()
    gpux, words = arguments.gpux, arguments.words
    print(f"{'':40} {'Python':>9} {'gpux':>9} {'ratio':>6}   {'least':>9} {'least':>9} {'ratio':>6}")
    for title, (data, steps) in CHAINS.items():
        if words and not any(word in title for word in words):
            continue
        ours = [[] for _ in range(len(steps) + 1)]
        theirs = [[] for _ in range(len(steps) + 1)]
        runs = 300 if len(data) < 5000 else 20
        with tempfile.TemporaryDirectory() as folder:
            for _ in range(ROUNDS):
                for rounds, times in zip(theirs, timed_python(data, steps, runs)):
                    rounds.append((statistics.median(times), min(times)))
                for rounds, times in zip(ours, timed_gpux(gpux, Path(folder), data, steps, runs)):
                    rounds.append(times)
        names = [f"  {name}" for name, _, _ in steps] + [title]
        rows = list(zip(names, theirs, ours))
        for name, python, native in rows[-1:] + (rows[:-1] if len(steps) > 1 else []):
            line = f"{name:40}"
            for which in (0, 1):
                python_time, our_time = (statistics.median(times[which] for times in side) for side in (python, native))
                line += f" {python_time:9.3f} {our_time:9.3f} {python_time / our_time:6.2f}  "
            print(line.rstrip(), flush=True)


if __name__ == "__main__":
    main()
