"""Models in other precisions, as `gpux build --precision` makes them, timed and compared by gpux and by Python's
ONNX Runtime in one run.

    python benches/compare/precision.py     (needs onnx, onnxruntime, a gpux build, and benches/models.py's models)

GPUX names another program than target/release/gpux. Prints Markdown; the result is benches/results/precision.json.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy
import onnxruntime

ROOT = Path(__file__).parent.parent.parent
GPUX = os.environ.get("GPUX", str(ROOT / "target/release/gpux"))
SECONDS = 2


def samples(model, folder):
    """Files of made-up inputs for models of one: convolutions take their ranges from samples."""
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    if len(session.get_inputs()) > 1:
        return []
    files = [Path(folder) / f"{model.stem}-{seed}.npy" for seed in range(8)]
    for seed, file in enumerate(files):
        numpy.save(file, *inputs(session, seed).values())
    return ["--sample", *files]


def inputs(session, seed):
    random = numpy.random.default_rng(seed)
    made = {}
    for port in session.get_inputs():
        shape = [size if isinstance(size, int) else (1 if axis == 0 else 8) for axis, size in enumerate(port.shape)]
        numbers = random.uniform(-1, 1, shape) if "float" in port.type else random.integers(0, 2, shape)
        made[port.name] = numbers.astype(numpy.float32 if "float" in port.type else numpy.int64)
    return made


def in_python(original, changed):
    """Medians of the times of a run of both, in turns, and the largest difference as a part of the largest number."""
    sessions = [onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]) for path in [original, changed]]
    error = 0.0
    for seed in range(8):
        given = inputs(sessions[0], seed)
        for one, other in zip(*(session.run(None, given) for session in sessions)):
            error = max(error, float(numpy.abs(one - other).max() / numpy.abs(one).max()))
    given = inputs(sessions[0], 0)
    times = [[], []]
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end or len(times[0]) < 5:
        for session, list_ in zip(sessions, times):
            start = time.perf_counter()
            session.run(None, given)
            list_.append(time.perf_counter() - start)
    return [statistics.median(list_) * 1e3 for list_ in times], error


def main():
    print(f"Python's ONNX Runtime {onnxruntime.__version__}, {os.cpu_count()} cores\n")
    print("| model | precision | size | gpux: ms before → after | off by | Python: ms before → after | off by |")
    print("| --- | --- | --: | --: | --: | --: | --: |")
    models = [ROOT / "models/digits.onnx"]
    models += [ROOT / f"target/bench-models/{name}.onnx" for name in ["mobilenet", "resnet50", "minilm"]]
    with tempfile.TemporaryDirectory() as folder:
        for model in models:
            for precision in ["fp16", "int8"]:
                words = [GPUX, "build", model, "--precision", precision, "--output", folder, "--python", sys.executable]
                words += samples(model, folder)
                # Differences are what is measured here, not held against anything.
                asked = subprocess.run([*words, "--tolerance", "1", "--json"], capture_output=True, text=True, check=True)
                report = json.loads(asked.stdout)["models"][0]
                (before, after), error = in_python(model, report["written"])
                times, bytes_ = report["time_ms"], report["bytes"]
                worst = max(output["error"] for output in report["outputs"])
                print(
                    f"| {model.stem} | {precision} | {bytes_['after'] / bytes_['before']:.2f} "
                    f"| {times['before']:.3g} → {times['after']:.3g} ({times['before'] / times['after']:.2f}×) | {worst:.1e} "
                    f"| {before:.3g} → {after:.3g} ({before / after:.2f}×) | {error:.1e} |",
                    flush=True,
                )


main()
