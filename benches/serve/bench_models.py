"""Models for benches of load, with random weights. Needs onnx and NumPy."""

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper


class Graph:
    """The nodes and weights of a model while it is made."""

    def __init__(self):
        self.nodes, self.weights, self.draw = [], [], numpy.random.default_rng(0)

    def weight(self, value):
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(numpy.asarray(value), name))
        return name

    def random(self, *shape):
        return self.weight((self.draw.standard_normal(shape) / numpy.sqrt(shape[0])).astype(numpy.float32))

    def add(self, operator, *inputs, **attributes):
        output = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(inputs), [output], **attributes))
        return output

    def save(self, path, inputs, output, name, shape):
        self.nodes.append(helper.make_node("Identity", [output], [name]))
        given = [helper.make_tensor_value_info(*one) for one in inputs]
        result = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)]
        graph = helper.make_graph(self.nodes, "bench", given, result, self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.checker.check_model(model)
        onnx.save(model, path)


def make_dense(path, size=512, rows=256, layers=12):
    """x float32[N, 4] → y float32[N, 4]: some milliseconds of matrix products for each row."""
    graph = Graph()
    weights = [graph.random(size, size) for _ in range(2)]
    value = graph.add("MatMul", "x", graph.random(4, rows * size))
    value = graph.add("Reshape", value, graph.weight(numpy.array([-1, rows, size])))
    for layer in range(layers):
        value = graph.add("Tanh", graph.add("MatMul", value, weights[layer % 2]))
    value = graph.add("ReduceMean", value, axes=[1], keepdims=0)
    value = graph.add("MatMul", value, graph.random(size, 4))
    graph.save(path, [("x", TensorProto.FLOAT, ["N", 4])], value, "y", ["N", 4])


def make_encoder(path, size=384, heads=12, layers=6, words=1000, longest=512):
    """input_ids and attention_mask int64[N, length] → tokens float32[N, length, size]: a text encoder as MiniLM is one."""
    graph = Graph()
    number = lambda value: graph.weight(numpy.float32(value))  # noqa: E731
    dense = lambda value, *shape: graph.add("Add", graph.add("MatMul", value, graph.random(*shape)), graph.random(shape[1]))  # noqa: E731
    ones, zeros = graph.weight(numpy.ones(size, numpy.float32)), graph.weight(numpy.zeros(size, numpy.float32))
    norm = lambda value: graph.add("LayerNormalization", value, ones, zeros, axis=-1)  # noqa: E731
    apart, whole = graph.weight(numpy.array([0, 0, heads, size // heads])), graph.weight(numpy.array([0, 0, size]))
    length = graph.add("Gather", graph.add("Shape", "input_ids"), graph.weight(numpy.array([1])))
    positions = graph.add("Slice", graph.random(longest, size), graph.weight(numpy.array([0])), length)
    value = norm(graph.add("Add", graph.add("Gather", graph.random(words, size), "input_ids"), positions))
    mask = graph.add("Unsqueeze", graph.add("Cast", "attention_mask", to=TensorProto.FLOAT), graph.weight(numpy.array([1, 2])))
    mask = graph.add("Mul", graph.add("Sub", number(1), mask), number(-1e4))
    for _ in range(layers):
        head = lambda turn: graph.add("Transpose", graph.add("Reshape", dense(value, size, size), apart), perm=turn)  # noqa: B023, E731
        scores = graph.add("MatMul", head([0, 2, 1, 3]), head([0, 2, 3, 1]))
        scores = graph.add("Add", graph.add("Mul", scores, number((size / heads) ** -0.5)), mask)
        mixed = graph.add("MatMul", graph.add("Softmax", scores, axis=-1), head([0, 2, 1, 3]))
        mixed = graph.add("Reshape", graph.add("Transpose", mixed, perm=[0, 2, 1, 3]), whole)
        value = norm(graph.add("Add", value, dense(mixed, size, size)))
        inner = dense(value, size, 4 * size)
        gelu = graph.add("Add", graph.add("Erf", graph.add("Mul", inner, number(0.5**0.5))), number(1))
        inner = graph.add("Mul", graph.add("Mul", inner, number(0.5)), gelu)
        value = norm(graph.add("Add", value, dense(inner, 4 * size, size)))
    both = ["N", "length"]
    inputs = [("input_ids", TensorProto.INT64, both), ("attention_mask", TensorProto.INT64, both)]
    graph.save(path, inputs, value, "tokens", ["N", "length", size])
