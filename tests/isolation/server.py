"""A live `gpux serve --isolation pipeline`, the models that it serves, and neighbours that keep it busy."""

import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save

ROOT = Path(__file__).resolve().parent.parent.parent
CACHE = Path(os.environ.get("GPUX_CACHE", Path.home() / ".cache/gpux"))
KILL_AFTER = 0.5
# A row of this many float32 is a mebibyte.
ROW = 1 << 18


def write_model(folder, name, nodes, inputs, outputs, constants=()):
    """Each model lies in a folder of its own, since a worker may read the folder of its model."""
    values = [[helper.make_tensor_value_info(n, kind, shape) for n, kind, shape in side] for side in (inputs, outputs)]
    initializers = [numpy_helper.from_array(np.asarray(array), n) for n, array in constants]
    graph = helper.make_graph([helper.make_node(*n[:3], **n[3]) for n in nodes], name, *values, initializers)
    (folder / name).mkdir()
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    save(model, folder / name / "model.onnx")
    return write_pipeline(folder, name)


def write_pipeline(folder, name):
    path = folder / name / "gpux.yml"
    # Memory is taken slowly on some machines: that must not end by the default timeout.
    lines = [f"name: {name}", "version: 1.0.0", "model: ./model.onnx", "pipeline: [model]", "serving: { timeout: 30s }"]
    path.write_text("\n".join(lines))
    return path


def write_memory_models(folder):
    """Models that take as many mebibytes as `n` says, and answer with one number."""
    int64, float32 = TensorProto.INT64, TensorProto.FLOAT
    one, row = ("one", np.ones(1, np.float32)), ("row", np.array([ROW], np.int64))
    shape = ("Concat", ["n", "row"], ["shape"], {"axis": 0})
    scalar = ("Squeeze", ["n"], ["count"], {})
    operators = {
        "constant-of-shape": ([shape, ("ConstantOfShape", ["shape"], ["big"], {})], [row]),
        "expand": ([shape, ("Expand", ["one", "shape"], ["big"], {})], [row, one]),
        "tile": ([("Tile", ["line", "n"], ["big"], {})], [("line", np.ones(ROW, np.float32))]),
        "range": (
            [scalar, ("Cast", ["count"], ["real"], {"to": float32}), ("Mul", ["real", "width"], ["end"], {}),
             ("Range", ["zero", "end", "step"], ["big"], {})],
            # A float32 counts exactly to 16 777 216 only: the step keeps the numbers small.
            [("width", np.float32(1)), ("zero", np.float32(0)), ("step", np.float32(1 / ROW))],
        ),
        "resize": (
            [("Concat", ["ones", "n", "row"], ["shape"], {"axis": 0}),
             ("Resize", ["pixel", "", "", "shape"], ["big"], {"mode": "nearest"})],
            [row, ("ones", np.ones(2, np.int64)), ("pixel", np.ones((1, 1, 1, 1), np.float32))],
        ),
        "einsum": (
            [("ConstantOfShape", ["n"], ["column"], {}),
             ("Einsum", ["column", "line"], ["big"], {"equation": "i,j->ij"})],
            [("line", np.ones(ROW, np.float32))],
        ),
        "one-hot": (
            [("Mul", ["n", "row"], ["depth"], {}), ("OneHot", ["index", "depth", "values"], ["big"], {})],
            [row, ("index", np.zeros(1, np.int64)), ("values", np.array([0, 1], np.float32))],
        ),
        "pad": (
            [("Mul", ["n", "row"], ["end"], {}), ("Concat", ["zero", "end"], ["pads"], {"axis": 0}),
             ("Pad", ["one", "pads"], ["big"], {})],
            [row, one, ("zero", np.zeros(1, np.int64))],
        ),
    }
    for name, (nodes, constants) in operators.items():
        nodes.append(("ReduceMax", ["big"], ["result"], {"keepdims": 0}))
        yield write_model(folder, name, nodes, [("n", int64, [1])], [("result", float32, [])], constants)


def write_victims(folder):
    """Models that harm their process: with the library of misdeeds.c, by operators, and by memory."""
    pair = [("a", TensorProto.INT32, ["N"]), ("b", TensorProto.INT32, ["N"])]
    yield write_model(
        folder, "native", [("Neg", ["misdeed"], ["result"], {})],
        [("misdeed", TensorProto.INT64, [2])], [("result", TensorProto.INT64, [2])],
    )
    yield write_model(folder, "remainder", [("Mod", ["a", "b"], ["y"], {})], pair, [("y", TensorProto.INT32, ["N"])])
    (folder / "divide").mkdir()
    shutil.copy(ROOT / "tests/models/divide.onnx", folder / "divide/model.onnx")
    yield write_pipeline(folder, "divide")
    yield from write_memory_models(folder)
    yield write_tokenizer(folder)


def write_tokenizer(folder):
    """A native step: its tokenizer makes a billion letters of one."""
    (folder / "tokenizer").mkdir()
    grow = [{"type": "Replace", "pattern": {"String": "ß"}, "content": "ß" * 1000}] * 3
    tokenizer = {
        "version": "1.0", "added_tokens": [], "normalizer": {"type": "Sequence", "normalizers": grow},
        "model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"},
    }
    (folder / "tokenizer/tokenizer.json").write_text(json.dumps(tokenizer))
    text = "name: tokenizer\nversion: 1\ninputs: { text: text }\npipeline:\n  - tokenize: { tokenizer: ./tokenizer.json }\n"
    (folder / "tokenizer/gpux.yml").write_text(text)
    return folder / "tokenizer"


def neighbours(folder):
    """Three pipelines with what is asked of them: path, name, headers, body."""
    for name in ("adds", "two"):
        (folder / "neighbours" / name).mkdir(parents=True)
        shutil.copy(ROOT / f"tests/models/{name}.onnx", folder / "neighbours" / name)
    numbers, rows = {"x": [[1.5] * 16]}, {"a": [[1, 2, 3, 4]], "b": [[4, 3, 2, 1]]}
    photo = (ROOT / "models/samples/seven.png").read_bytes()
    yield ROOT / "gpux.yml", "digits", "image/png", photo
    yield folder / "neighbours/adds/adds.onnx", "adds", "application/json", json.dumps(numbers)
    yield folder / "neighbours/two/two.onnx", "two", "application/json", json.dumps(rows)


def quoted(value):
    return f'"{value}"'


def build_library(folder, definitions):
    """Compiles misdeeds.c beside a copy of ONNX Runtime, to which it forwards."""
    found = sorted(CACHE.glob("engines/onnxruntime-*-cpu/libonnxruntime.so.*"))
    if not found:
        raise SystemExit(f"no ONNX Runtime in {CACHE}: run `gpux engine install cpu`")
    (folder / "engine").mkdir()
    real = Path(shutil.copy(found[-1], folder / "engine/real.so"))
    built = folder / "engine/libonnxruntime.so"
    definitions |= {"REAL_LIBRARY": real, "ENGINE": real.parent}
    defined = [f"-D{name}={value if isinstance(value, int) else quoted(value)}" for name, value in definitions.items()]
    sources = [Path(__file__).with_name(f"{name}.c") for name in ("library", "misdeeds", "channel")]
    subprocess.run(["cc", "-O1", "-w", "-shared", "-fPIC", "-pthread", *defined, "-o", built, *sources], check=True)
    return built


class Answer:
    """The answer to a request, and when it began and ended (CLOCK_MONOTONIC)."""

    def __init__(self, begun, status, body):
        self.begun, self.ended, self.status, self.size = begun, time.monotonic(), status, len(body)
        self.json = {}
        with contextlib.suppress(ValueError):
            self.json = json.loads(body) if len(body) < 1 << 20 else {}


class Client:
    """A connection to the server, made anew after an error."""

    def __init__(self, port):
        self.port, self.connection = port, None

    def ask(self, method, path, body=None, kind="application/json"):
        begun = time.monotonic()
        try:
            if self.connection is None:
                self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
            self.connection.request(method, path, body, {"content-type": kind, "accept": "application/json"})
            response = self.connection.getresponse()
            return Answer(begun, response.status, response.read())
        except (OSError, http.client.HTTPException) as error:
            self.connection = None
            return Answer(begun, 0, json.dumps({"error": repr(error)}))

    def predict(self, pipeline, inputs, timeout=None):
        query = f"?timeout={timeout}" if timeout else ""
        return self.ask("POST", f"/pipelines/{pipeline}/predict{query}", json.dumps(inputs))


class Server:
    """`gpux serve --isolation pipeline`, with its log."""

    def __init__(self, gpux, pipelines, arguments, wrapper=()):
        command = [*wrapper, gpux, "serve", *pipelines, "--host", "127.0.0.1", "--port", "0", "--isolation", "pipeline"]
        command += ["--kill-after", f"{int(KILL_AFTER * 1000)}ms", "--model-control", "--engine", "onnxruntime"]
        self.log, self.ready, self.pid = [], threading.Event(), 0
        self.process = subprocess.Popen(
            [str(part) for part in [*command, *arguments]], cwd=ROOT, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL
        )
        threading.Thread(target=self._read_log, daemon=True).start()
        if not self.ready.wait(120) or not self.is_alive():
            raise SystemExit("the server has ended:\n" + "\n".join(self.log))
        found = [re.search(r"ready on http://\S+:(\d+)", line) for line in self.log]
        self.port = next(int(match[1]) for match in found if match)
        # The child of its supervisor.
        [self.pid] = children(self.process.pid)

    def _read_log(self):
        for line in self.process.stderr:
            self.log.append(line.decode(errors="replace").rstrip("\n"))
            if "ready on http" in self.log[-1]:
                self.ready.set()
        self.ready.set()

    def is_alive(self):
        """Whether it has never ended: its supervisor would start it again."""
        return self.process.poll() is None and self.pid in (0, *children(self.process.pid))

    def line(self, pattern, since, seconds=10):
        """The first match among the lines of the log from `since` on, once it is there."""
        end = time.monotonic() + seconds
        while True:
            for line in self.log[since:]:
                if match := re.search(pattern, line):
                    return match
            if time.monotonic() > end:
                return None
            time.sleep(0.005)

    def worker(self, source):
        """The process id of the worker of this pipeline."""
        own = children(self.pid)
        # Most are copied from a template, whose children they are.
        for child in [*own, *(copy for child in own for copy in children(child))]:
            with contextlib.suppress(OSError):
                if Path(f"/proc/{child}/cmdline").read_bytes().rstrip(b"\0").endswith(str(source).encode()):
                    return child
        return 0

    def status(self, field):
        """A number of /proc/PID/status: mebibytes, or a count."""
        found = re.search(rf"^{field}:\s*(\d+)( kB)?", Path(f"/proc/{self.pid}/status").read_text(), re.M)
        return int(found[1]) >> 10 if found[2] else int(found[1])

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def stop(self):
        """The exit code; `None` if it does not end when asked to."""
        if self.is_alive():
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return None


def children(process):
    tasks = Path(f"/proc/{process}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text().split()]


class Neighbours:
    """Threads that ask other pipelines until `stop`. A sample: when it began, seconds, status, pipeline with a failure."""

    def __init__(self, port, asked, pause=0.02):
        self.samples, self.ends = [], threading.Event()
        # Two clients of each.
        wanted = [(*one, port, pause) for one in asked for _ in range(2)]
        self.threads = [threading.Thread(target=self._ask, args=one, daemon=True) for one in wanted]
        for thread in self.threads:
            thread.start()

    def _ask(self, _source, pipeline, kind, body, port, pause):
        client = Client(port)
        while not self.ends.wait(pause):
            answer = client.ask("POST", f"/pipelines/{pipeline}/predict", body, kind)
            what = pipeline if answer.status == 200 else f"{pipeline}: {answer.json}"
            self.samples.append((answer.begun, answer.ended - answer.begun, answer.status, what))

    def between(self, begin, end):
        """Those that were under way at some time between."""
        return [sample for sample in list(self.samples) if sample[0] <= end and sample[0] + sample[1] >= begin]

    def stop(self):
        self.ends.set()
        for thread in self.threads:
            thread.join(90)


def percentile(times, share):
    ordered = sorted(times)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)] if ordered else 0.0
