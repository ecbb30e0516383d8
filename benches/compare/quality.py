"""What other precisions change in real answers: the digits model on held-out scans, whose int8 form has the ranges of
the sample photos, and the text models of the examples on held-out texts, one at a time.

    python benches/compare/quality.py [--openvino PYTHON] [--write]
                                        (needs numpy, onnx, onnxruntime, scikit-learn, tokenizers, and a gpux build)

The models of `gpux build --precision` run in this Python's ONNX Runtime. PYTHON is one with numpy and
onnxruntime-openvino, for float32 and bfloat16 in OpenVINO. GPUX names another program than target/release/gpux.
Prints Markdown; --write puts the tables into benches/results/quality-*.json.
"""

import argparse
import datetime
import gzip
import json
import os
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnxruntime

ROOT = Path(__file__).parent.parent.parent
GPUX = os.environ.get("GPUX", str(ROOT / "target/release/gpux"))
sys.path.insert(0, str(ROOT / "models"))
import text_quality  # noqa: E402
from debian import LABELS, Package  # noqa: E402

NAMES = list(LABELS)
EXACT = "float32, CPU"
CLASSIFIER = ["computed in", "size, MB", "accuracy", "changed labels", "largest change of a score"]
ENCODER = ["computed in", "size, MB", "recall@1", "recall@10", "rank correlation", "mean cosine", "least cosine"]
OPENVINO = """
import json, pickle, sys
sys.path.insert(0, sys.argv[1])
import onnxruntime, text_quality
model, precision, function = sys.argv[2:]
config = json.dumps({"CPU": {"INFERENCE_PRECISION_HINT": precision}})
options = {"device_type": "CPU", "load_config": config}
session = onnxruntime.InferenceSession(model, providers=["OpenVINOExecutionProvider"], provider_options=[options])
if session.get_providers()[0] != "OpenVINOExecutionProvider":
    sys.exit("OpenVINO did not start")
made = getattr(text_quality, function)(session, pickle.load(sys.stdin.buffer))
sys.stdout.buffer.write(b"RESULT" + pickle.dumps(made))
"""


def main():
    parser = argparse.ArgumentParser(description="Compare precisions by the text models' answers.")
    parser.add_argument("--openvino", metavar="PYTHON", help="a Python with numpy and onnxruntime-openvino")
    parser.add_argument("--write", action="store_true", help="write benches/results/quality-*.json")
    options = parser.parse_args()
    lines = gzip.decompress((ROOT / "models/held-out-texts.jsonl.gz").read_bytes()).decode().splitlines()
    packages = [Package(**json.loads(line)) for line in lines]
    labelled = [package for package in packages if package.label]
    with tempfile.TemporaryDirectory() as folder:
        truth = np.array([NAMES.index(package.label) for package in labelled])
        texts = [package.text for package in labelled]
        results = answers("text-classification", "classify", texts, Path(folder), options)
        classifier = [classifier_row(truth, *result, results[0]) for result in results]

        pairs = text_quality.graded_pairs(packages)
        texts = sorted({text for package in packages for text in (package.short, package.long)})
        results = answers("sentence-embedding", "embed", texts, Path(folder), options)
        encoder = [encoder_row(packages, pairs, texts, *result, results[0]) for result in results]
    with tempfile.TemporaryDirectory() as folder:
        truth, results = scans(Path(folder))
    digits = [classifier_row(truth, *result, results[0]) for result in results]
    about = f"The digit of {len(truth)} held-out scans by models/digits.onnx. Changes are against the first row."
    report("quality-digits", "Digits in other precisions", about, CLASSIFIER, digits, options)
    about = f"The section of {len(labelled)} held-out packages by examples/text-classification. Changes are against the first row."
    report("quality-classifier", "Labels in other precisions", about, CLASSIFIER, classifier, options)
    about = (
        f"Short and long descriptions of {len(packages)} held-out packages by examples/sentence-embedding: the long one "
        f"found by the short one among {text_quality.SEARCHED}, Spearman's rank correlation of cosine and relation "
        f"(same source, same section, other) of {len(pairs)} pairs, and the cosine of each vector with that of the first row."
    )
    report("quality-encoder", "Vectors in other precisions", about, ENCODER, encoder, options)


def answers(example, function, texts, folder, options):
    """Name, size and result of `function` for the model in each precision; the first is exact."""
    from tokenizers import Tokenizer

    source = ROOT / "examples" / example
    given = text_quality.inputs(Tokenizer.from_file(str(source / "tokenizer.json")), texts, batch=1)
    folder = folder / example
    folder.mkdir()
    exact = folder / "model.onnx"
    exact.write_bytes((source / "model.onnx").read_bytes())
    models = [(EXACT, exact)]
    models += [(f"{precision}, CPU", converted(exact, precision, folder)) for precision in ["fp16", "int8"]]
    results = []
    for name, path in models:
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        results.append((name, path.stat().st_size / 1e6, getattr(text_quality, function)(session, given)))
    for hint, name in [("f32", "float32, OpenVINO"), ("bf16", "bf16, OpenVINO")]:
        if options.openvino:
            words = [options.openvino, "-c", OPENVINO, str(ROOT / "models"), str(exact), hint, function]
            done = subprocess.run(words, input=pickle.dumps(given), stdout=subprocess.PIPE, check=True)
            made = pickle.loads(done.stdout.split(b"RESULT", 1)[1])
            results.append((name, results[0][1], made))
    return results


def converted(pipeline, precision, folder, *more):
    """The file of the model in this precision."""
    words = [GPUX, "build", pipeline, "--precision", precision, "--output", folder, "--python", sys.executable, *more]
    # Differences are what is measured here, not held against anything.
    asked = subprocess.run([*words, "--tolerance", "1", "--json"], capture_output=True, text=True, check=True)
    return Path(json.loads(asked.stdout)["models"][0]["written"])


def scans(folder):
    """The held-out digits, and name, size and logits of the model in each precision; the first is exact."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    scans = load_digits()
    # As in models/make_digits.py.
    _, held_out = train_test_split(np.arange(len(scans.images)), test_size=0.2, stratify=scans.target, random_state=7)
    photos = sorted(path for path in (ROOT / "models" / "samples").iterdir() if path.suffix != ".json")
    models = [(EXACT, ROOT / "models" / "digits.onnx")]
    models += [(f"{precision}, CPU", converted(ROOT, precision, folder, "--sample", *photos)) for precision in ["fp16", "int8"]]
    results = []
    for name, path in models:
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        images = scans.images[held_out, None].astype(np.float32)
        results.append((name, path.stat().st_size / 1e6, session.run(None, {"image": images})[0]))
    return scans.target[held_out], results


def softmax(logits):
    scores = np.exp(logits - logits.max(1, keepdims=True))
    return scores / scores.sum(1, keepdims=True)


def classifier_row(truth, name, size, logits, exact):
    changed = (logits.argmax(1) != exact[2].argmax(1)).mean()
    largest = np.abs(softmax(logits) - softmax(exact[2])).max()
    return [name, f"{size:.2f}", f"{(logits.argmax(1) == truth).mean():.2%}", f"{changed:.2%}", f"{largest:.4f}"]


def encoder_row(packages, pairs, texts, name, size, vectors, exact):
    places = {text: place for place, text in enumerate(texts)}
    run = lambda wanted: vectors[[places[text] for text in wanted]]
    at, _ = text_quality.recall(run, packages)
    related = text_quality.correlation(run, pairs)
    cosines = (vectors * exact[2]).sum(1)
    return [name, f"{size:.2f}", f"{at[1]:.1%}", f"{at[10]:.1%}", f"{related:.4f}", f"{cosines.mean():.5f}", f"{cosines.min():.5f}"]


def report(name, theme, about, columns, rows, options):
    print(f"{about}\n\n| {' | '.join(columns)} |\n| --- |{' --: |' * (len(columns) - 1)}")
    for row in rows:
        print(f"| {' | '.join(row)} |")
    print()
    if options.write:
        result = {
            "theme": theme,
            "about": about,
            "command": "just compare quality --openvino PYTHON" if options.openvino else "just compare quality",
            "date": datetime.date.today().isoformat(),
            "machine": machine(),
            "commit": commit(),
            "versions": f"ONNX Runtime {onnxruntime.__version__}" + openvino_version(options.openvino),
            "columns": columns,
            "rows": rows,
        }
        text = json.dumps(result | {"rows": 0}, indent=2, ensure_ascii=False).removesuffix("0\n}")
        rows = ",\n".join(f"    {json.dumps(row)}" for row in rows)
        (ROOT / f"benches/results/{name}.json").write_text(f"{text}[\n{rows}\n  ]\n}}\n")


def machine():
    info = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    flags = [flag for flag in ["avx512_vnni", "avx512_bf16", "amx_bf16"] if flag in info.split()]
    return f"{os.cpu_count()} cores" + (f" with {', '.join(flags)}" if flags else "")


def commit():
    asked = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return asked.stdout.strip() or "unknown"


def openvino_version(python):
    if not python:
        return ""
    asked = subprocess.run([python, "-c", "import onnxruntime as o; print(o.__version__)"], capture_output=True, text=True)
    return f", onnxruntime-openvino {asked.stdout.strip()}"


if __name__ == "__main__":
    main()
