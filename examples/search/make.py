"""Writes model.onnx from the weights of all-MiniLM-L6-v2, with onnx and numpy alone.

    examples/search/make.py SAFETENSORS MODEL [--scores]

The graph is that of transformers' `BertModel`: the last layer's vectors of the tokens. With `--scores` it is a
cross-encoder of the same size for measurements (benches/serve/rerank.py): the pooler, then a head of fixed weights that
nobody has trained, so its scores mean nothing.
"""

import json
import struct
import sys
from pathlib import Path

import numpy as np
from onnx import TensorProto, checker, helper, numpy_helper

LAYERS, HEADS, WIDTH, EPSILON = 6, 12, 384, 1e-12


def weights(path):
    """The tensors of a safetensors file, by name."""
    data = Path(path).read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    start = 8 + length
    for name, about in json.loads(data[8:start]).items():
        if about.get("dtype") == "F32":
            begin, end = about["data_offsets"]
            yield name, np.frombuffer(data[start + begin : start + end], "<f4").reshape(about["shape"])


class Graph:
    def __init__(self, tensors):
        self.tensors, self.nodes, self.initializers, self.known = tensors, [], [], set()

    def add(self, operator, *inputs, **attributes):
        output = f"{operator.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [output], **attributes))
        return output

    def constant(self, name, value):
        if name not in self.known:
            self.known.add(name)
            self.initializers.append(numpy_helper.from_array(np.array(value, order="C"), name))
        return name

    def weight(self, name, transposed=False):
        value = self.tensors[name]
        return self.constant(name, value.T if transposed else value)

    def dense(self, value, name):
        product = self.add("MatMul", value, self.weight(f"{name}.weight", transposed=True))
        return self.add("Add", product, self.weight(f"{name}.bias"))

    def norm(self, value, name):
        scale, bias = self.weight(f"{name}.weight"), self.weight(f"{name}.bias")
        return self.add("LayerNormalization", value, scale, bias, axis=-1, epsilon=EPSILON)

    def heads(self, value, order):
        """batch × length × width as batch × head × length × part, or with the last two the other way round."""
        shape = self.constant("heads", np.array([0, 0, HEADS, WIDTH // HEADS], np.int64))
        return self.add("Transpose", self.add("Reshape", value, shape), perm=order)

    def layer(self, value, mask, name):
        attention = f"{name}.attention"
        query = self.heads(self.dense(value, f"{attention}.self.query"), [0, 2, 1, 3])
        key = self.heads(self.dense(value, f"{attention}.self.key"), [0, 2, 3, 1])
        values = self.heads(self.dense(value, f"{attention}.self.value"), [0, 2, 1, 3])
        scale = self.constant("scale", np.float32((WIDTH // HEADS) ** 0.5))
        scores = self.add("Add", self.add("Div", self.add("MatMul", query, key), scale), mask)
        mixed = self.add("MatMul", self.add("Softmax", scores, axis=-1), values)
        shape = self.constant("width", np.array([0, 0, WIDTH], np.int64))
        mixed = self.add("Reshape", self.add("Transpose", mixed, perm=[0, 2, 1, 3]), shape)
        mixed = self.add("Add", self.dense(mixed, f"{attention}.output.dense"), value)
        mixed = self.norm(mixed, f"{attention}.output.LayerNorm")
        inner = self.add("Gelu", self.dense(mixed, f"{name}.intermediate.dense"))
        return self.norm(self.add("Add", self.dense(inner, f"{name}.output.dense"), mixed), f"{name}.output.LayerNorm")

    def bert(self):
        words = self.add("Gather", self.weight("embeddings.word_embeddings.weight"), "input_ids")
        types = self.add("Gather", self.weight("embeddings.token_type_embeddings.weight"), "token_type_ids")
        one, zero = self.constant("one", np.array([1], np.int64)), self.constant("zero", np.array([0], np.int64))
        length = self.add("Shape", "input_ids", start=1, end=2)
        places = self.add("Slice", self.weight("embeddings.position_embeddings.weight"), zero, length, zero, one)
        value = self.norm(self.add("Add", self.add("Add", words, types), places), "embeddings.LayerNorm")

        # As transformers masks: the least float where there is padding.
        axes = self.constant("axes", np.array([1, 2], np.int64))
        mask = self.add("Cast", self.add("Unsqueeze", "attention_mask", axes), to=TensorProto.FLOAT)
        gone = self.add("Sub", self.constant("present", np.float32(1)), mask)
        mask = self.add("Mul", gone, self.constant("least", np.finfo(np.float32).min))
        for layer in range(LAYERS):
            value = self.layer(value, mask, f"encoder.layer.{layer}")
        return value

    def scores(self, value):
        first = self.add("Gather", value, self.constant("first", np.int64(0)), axis=1)
        pooled = self.add("Tanh", self.dense(first, "pooler.dense"))
        head = np.random.default_rng(1).normal(0, 0.05, (WIDTH, 1)).astype(np.float32)
        return self.add("MatMul", pooled, self.constant("head", head))

    def model(self, output, name, shape):
        self.nodes.append(helper.make_node("Identity", [output], [name]))
        inputs = ["input_ids", "attention_mask", "token_type_ids"]
        inputs = [helper.make_tensor_value_info(port, TensorProto.INT64, ["batch", "sequence"]) for port in inputs]
        outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)]
        graph = helper.make_graph(self.nodes, "all-MiniLM-L6-v2", inputs, outputs, self.initializers)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
        checker.check_model(model)
        return model


def main():
    source, target, *more = sys.argv[1:]
    graph = Graph(dict(weights(source)))
    value = graph.bert()
    if more == ["--scores"]:
        model = graph.model(graph.scores(value), "scores", ["batch", 1])
    else:
        model = graph.model(value, "last_hidden_state", ["batch", "sequence", WIDTH])
    Path(target).write_bytes(model.SerializeToString())


if __name__ == "__main__":
    main()
