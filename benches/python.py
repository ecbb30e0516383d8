"""Times the Python package beside ONNX Runtime's own, one thread each, in turns.

    just wheel && pip install target/wheels/gpux-*.whl onnxruntime==1.32.0 onnx pillow
    python benches/python.py [--write]

Both use the library of the package onnxruntime. Prints a table; with --write, also into benches/results/python.json.
"""

import argparse
import datetime
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"

import numpy as np
import onnx
import onnxruntime
from PIL import Image

import gpux

ROOT = Path(__file__).resolve().parent.parent
ROUNDS = 9
LIBRARY = next(Path(onnxruntime.__file__).parent.glob("capi/libonnxruntime.so.*"))


def identity(folder, shape):
    element = onnx.TensorProto.FLOAT
    ports = [onnx.helper.make_tensor_value_info(name, element, shape) for name in "xy"]
    graph = onnx.helper.make_graph([onnx.helper.make_node("Identity", ["x"], ["y"])], "identity", ports[:1], ports[1:])
    path = folder / f"identity-{len(shape)}.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10), path)
    return path


def session(path):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def microseconds(work, runs):
    start = time.perf_counter()
    for _ in range(runs):
        work()
    return (time.perf_counter() - start) / runs * 1e6


def by_turns(theirs, ours, runs):
    """The medians of the rounds, in microseconds, and of the rounds' ratios of ours to theirs."""
    pairs = [(microseconds(theirs, runs), microseconds(ours, runs)) for _ in range(ROUNDS)]
    return *(statistics.median(side) for side in zip(*pairs)), statistics.median(b / a for a, b in pairs)


def tiny(folder):
    """16 floats through an identity model."""
    path = identity(folder, [1, 16])
    array = np.ones((1, 16), "f4")
    theirs = session(path)
    ours = gpux.GPUXRuntime(path, provider="cpu", engine_library=LIBRARY)
    return by_turns(lambda: theirs.run(None, {"x": array}), lambda: ours.infer({"x": array}), 20_000)


def photo(_):
    """examples/image-classification, and the same in Pillow, NumPy and ONNX Runtime."""
    folder = ROOT / "examples/image-classification"
    data = (folder / "china.jpg").read_bytes()
    labels = (folder / "labels.txt").read_text().splitlines()
    model = session(folder / "model.onnx")
    (name,) = [port.name for port in model.get_inputs()]
    mean = np.array([0.485, 0.456, 0.406], np.float32)
    std = np.array([0.229, 0.224, 0.225], np.float32)

    def theirs():
        image = Image.open(io.BytesIO(data)).convert("RGB")
        short = min(image.size)
        size = tuple(side * 256 // short for side in image.size)
        image = image.resize(size, Image.Resampling.BILINEAR)
        left, top = (round((side - 224) / 2) for side in size)
        pixels = np.asarray(image.crop((left, top, left + 224, top + 224)), dtype=np.float32) / np.float32(255)
        batch = ((pixels - mean) / std).transpose(2, 0, 1)[None]
        (logits,) = model.run(None, {name: batch})
        powers = np.exp(logits[0] - logits[0].max())
        scores = powers / powers.sum()
        best = np.argsort(-scores)[:3]
        return [{"label": labels[index], "index": int(index), "score": float(scores[index])} for index in best]

    ours = gpux.Pipeline(folder, provider="cpu", engine_library=LIBRARY)
    expected, given = theirs(), ours(data)["top"]
    assert [top["index"] for top in expected] == [top["index"] for top in given], (expected, given)
    return by_turns(theirs, lambda: ours(data), 20)


def scaling():
    """Photos a second of one thread and of as many as there are cores, through one pipeline."""
    folder = ROOT / "examples/image-classification"
    data = (folder / "china.jpg").read_bytes()
    pipeline = gpux.Pipeline(folder, provider="cpu", engine_library=LIBRARY)
    pipeline(data)

    def a_second(threads, runs=100):
        def work():
            for _ in range(runs):
                pipeline(data)

        workers = [threading.Thread(target=work) for _ in range(threads)]
        start = time.perf_counter()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return runs * threads / (time.perf_counter() - start)

    cores = len(os.sched_getaffinity(0))
    rounds = [(a_second(1), a_second(cores), a_second(8)) for _ in range(5)]
    return cores, *(statistics.median(side) for side in zip(*rounds))


def start():
    """Milliseconds of `import gpux` over those of an empty program."""

    def run(script):
        begin = time.perf_counter()
        subprocess.run([sys.executable, "-c", script], check=True)
        return (time.perf_counter() - begin) * 1e3

    for script in ("import gpux", "import onnxruntime"):
        run(script)
    rounds = [(run("pass"), run("import gpux"), run("import onnxruntime")) for _ in range(15)]
    return statistics.median(b - a for a, b, _ in rounds), statistics.median(c - a for a, _, c in rounds)


def large(folder):
    """Peak memory that 100 MB through an identity model add, in MiB, in processes of their own."""
    path = identity(folder, ["n"])
    script = """
import resource, sys
import numpy as np
array = np.ones(25_000_000, "f4")
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
if sys.argv[2] == "gpux":
    import gpux
    runtime = gpux.GPUXRuntime(sys.argv[1], provider="cpu", engine_library=sys.argv[3])
    before = peak()
    result = runtime.infer({"x": array})["y"]
else:
    import onnxruntime
    session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
    before = peak()
    (result,) = session.run(None, {"x": array})
print(peak() - before)
"""
    grown = [
        subprocess.run([sys.executable, "-c", script, path, who, LIBRARY], capture_output=True, text=True, check=True)
        for who in ("onnxruntime", "gpux")
    ]
    theirs, ours = (float(done.stdout) for done in grown)
    return theirs, ours, ours / theirs


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="into benches/results/python.json")
    parser.add_argument("--machine", default="unknown")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = []
        for what, work, unit in [
            ("16 floats through an identity model, µs", tiny, 1),
            ("photo of 640 × 427 → model → top 3, ms", photo, 1e3),
            ("100 MB through an identity model, MiB more at the peak", large, 1),
        ]:
            theirs, ours, ratio = work(folder)
            rows.append([what, f"{theirs / unit:.2f}", f"{ours / unit:.2f}", f"{ratio:.2f}"])
        ours, theirs = start()
        rows.append(["import, ms more than Python", f"{theirs:.0f}", f"{ours:.0f}", f"{ours / theirs:.2f}"])
        cores, one, all_cores, eight = scaling()
        rows.append([f"photos a second: 1 thread, {cores}, 8", None, f"{one:.0f}, {all_cores:.0f}, {eight:.0f}", None])
    for row in rows:
        print(" | ".join(str(cell) for cell in row))
    if arguments.write:
        commit = subprocess.run(["git", "rev-parse", "--short=8", "HEAD"], capture_output=True, text=True, cwd=ROOT)
        result = {
            "theme": "From Python",
            "about": "The package beside onnxruntime's own Python API, on its library, one thread; medians of 9 rounds. The photo: "
            "examples/image-classification beside Pillow and NumPy. Of 100 MB, gpux reads the array and "
            "gives ONNX Runtime's result in place.",
            "command": "python benches/python.py",
            "date": datetime.date.today().isoformat(),
            "machine": arguments.machine,
            "commit": commit.stdout.strip(),
            "versions": f"Python {sys.version.split()[0]}; ONNX Runtime {onnxruntime.__version__}; NumPy {np.__version__}",
            "columns": ["", "onnxruntime in Python", "gpux in Python", "ratio"],
            "rows": rows,
        }
        target = ROOT / "benches/results/python.json"
        target.write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
