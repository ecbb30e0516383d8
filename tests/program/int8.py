"""Random models for `gpux build --precision int8`, and what Python's ONNX Runtime makes of the results.

    int8.py make FOLDER SEED      writes convolutions.onnx with samples, and products.onnx
    int8.py compare FOLDER SEED   prints differences to the originals as JSON
"""

import json
import sys
from pathlib import Path

import numpy
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

FOLDER = Path(sys.argv[2])
RANDOM = numpy.random.default_rng(int(sys.argv[3]))
SAMPLES = 12


class Graph:
    def __init__(self):
        self.nodes, self.weights = [], []

    def constant(self, values):
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(numpy.float32(values), name))
        return name

    def weight(self, *shape, around=0.0, spread=1.0):
        # Channels of different sizes, as trained ones have.
        sizes = RANDOM.uniform(0.2, 2, (shape[0],) + (1,) * (len(shape) - 1))
        return self.constant(around + spread * sizes * RANDOM.standard_normal(shape))

    def node(self, kind, *inputs, **attributes):
        name = f"{kind.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], **attributes))
        return name

    def save(self, name, inputs, outputs, opset):
        value = helper.make_tensor_value_info
        graph = helper.make_graph(
            self.nodes, name, [value("x", TensorProto.FLOAT, inputs)],
            [value(output, TensorProto.FLOAT, None) for output in outputs], self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
        onnx.save(onnx.shape_inference.infer_shapes(model), FOLDER / f"{name}.onnx")


def image(side, channels):
    return (RANDOM.standard_normal((1, channels, side, side)) * RANDOM.uniform(0.5, 1) + RANDOM.uniform(-0.5, 0.5)).astype(numpy.float32)


def convolutions():
    graph, at = Graph(), "x"
    channels, side = int(RANDOM.integers(1, 5)), int(RANDOM.integers(12, 24))
    given = channels
    for _ in range(RANDOM.integers(2, 5)):
        before = at
        depthwise = RANDOM.random() < 0.3
        wide = channels if depthwise or RANDOM.random() < 0.4 else int(RANDOM.integers(4, 12))
        kernel = int(RANDOM.choice([1, 3, 5]))
        kept = channels // (channels if depthwise else 1)
        weights = graph.weight(wide, kept, kernel, kernel, spread=1 / numpy.sqrt(kept * kernel * kernel))
        bias = [graph.weight(wide, spread=0.3)] if RANDOM.random() < 0.5 else []
        at = graph.node("Conv", at, weights, *bias, group=channels if depthwise else 1, pads=[kernel // 2] * 4)
        if RANDOM.random() < 0.5:
            parts = [graph.weight(wide, around=1, spread=0.1), graph.weight(wide, spread=0.2), graph.weight(wide, spread=0.2)]
            at = graph.node("BatchNormalization", at, *parts, graph.constant(RANDOM.uniform(0.5, 2, wide)))
        at = graph.node(str(RANDOM.choice(["Relu", "LeakyRelu", "Sigmoid", "Tanh"])), at)
        if wide == channels and RANDOM.random() < 0.5:
            at = graph.node("Add", at, before)
        channels = wide
    if RANDOM.random() < 0.5:
        pooled = graph.node("Flatten", graph.node("GlobalAveragePool", at))
        outputs = [graph.node("Gemm", pooled, graph.weight(10, channels), graph.weight(10), transB=1)]
    else:
        # Boxes of hundreds of pixels beside scores below one, in one tensor.
        boxes = graph.node("Conv", at, graph.weight(4, channels, 1, 1, spread=100))
        scores = graph.node("Sigmoid", graph.node("Conv", at, graph.weight(3, channels, 1, 1)))
        outputs = [graph.node("Concat", boxes, scores, axis=1)]
    graph.save("convolutions", ["N", given, side, side], outputs, int(RANDOM.choice([11, 13, 17])))
    for number in range(SAMPLES):
        numpy.save(FOLDER / f"sample{number}.npy", image(side, given))


def products():
    graph, at, opset = Graph(), "x", int(RANDOM.choice([11, 13, 17, 18]))
    inner = first = int(RANDOM.integers(8, 40))
    for _ in range(RANDOM.integers(1, 4)):
        outer = int(RANDOM.integers(8, 40))
        at = graph.node("MatMul", at, graph.weight(inner, outer, spread=1 / numpy.sqrt(inner)))
        if RANDOM.random() < 0.7:
            at = graph.node("Add", at, graph.weight(outer, spread=0.2))
        at = graph.node(str(RANDOM.choice(["Relu", "Tanh", "Erf"])), at)
        # What the tokens of one text say to each other.
        if RANDOM.random() < 0.5:
            pairs = graph.node("MatMul", at, graph.node("Transpose", at, perm=[0, 2, 1]))
            pairs = graph.node("Mul", pairs, graph.constant(0.1))
            at = graph.node("MatMul", graph.node("Softmax", pairs, axis=-1), at)
        inner = outer
    graph.save("products", ["N", "length", first], [at], opset)


def run(name, value):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    if "vnni" not in Path("/proc/cpuinfo").read_text():
        # Without such instructions, sums of signed weights overflow: gpux asks for unsigned ones, too.
        options.add_session_config_entry("session.x64quantprecision", "1")
    return onnxruntime.InferenceSession(FOLDER / name, options, providers=["CPUExecutionProvider"]).run(None, {"x": value})[0]


def error(one, other):
    return float(numpy.abs(one - other).max() / numpy.abs(one).max())


def compare():
    samples = [numpy.load(FOLDER / f"sample{number}.npy") for number in range(SAMPLES)]
    pairs = [[run(name, value) for name in ("convolutions.onnx", "convolutions.int8.onnx")] for value in samples]
    # Scores are measured beside each other, not beside the boxes.
    parts = [[slice(None)]] if pairs[0][0].ndim == 2 else [[slice(None), slice(0, 4)], [slice(None), slice(4, 7)]]
    width = onnx.load(FOLDER / "products.onnx").graph.input[0].type.tensor_type.shape.dim[2].dim_value
    rows = RANDOM.standard_normal((int(RANDOM.integers(1, 9)), int(RANDOM.integers(1, 12)), width)).astype(numpy.float32)
    print(json.dumps({
        "convolutions": max(error(*(side[tuple(part)] for side in pair)) for part in parts for pair in pairs),
        "products": error(*(run(name, rows) for name in ("products.onnx", "products.int8.onnx"))),
    }))


if sys.argv[1] == "make":
    convolutions()
    products()
    print("null")
else:
    compare()
