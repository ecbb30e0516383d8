"""Makes the pipelines that the protocol's clients are tried on: an identity for each element type, an
identity of two axes, a sum of two inputs, and scores with labels. Needs onnx==1.23.2."""

from pathlib import Path

from onnx import TensorProto, checker, helper

HERE = Path(__file__).parent / "models"

DATATYPES = {
    "bool": TensorProto.BOOL, "uint8": TensorProto.UINT8, "uint16": TensorProto.UINT16,
    "uint32": TensorProto.UINT32, "uint64": TensorProto.UINT64, "int8": TensorProto.INT8,
    "int16": TensorProto.INT16, "int32": TensorProto.INT32, "int64": TensorProto.INT64,
    "fp16": TensorProto.FLOAT16, "bf16": TensorProto.BFLOAT16, "fp32": TensorProto.FLOAT,
    "fp64": TensorProto.DOUBLE, "bytes": TensorProto.STRING,
}


def write(name, nodes, inputs, outputs, more=""):
    graph = helper.make_graph(nodes, name, inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    checker.check_model(model)
    folder = HERE / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    (folder / "gpux.yml").write_text(
        f"name: {name}\nversion: 1.2.0\nmodel: {{ source: model.onnx }}\n{more}pipeline: [model]\n")


def value(name, element, shape):
    return helper.make_tensor_value_info(name, element, shape)


def main():
    for name, element in DATATYPES.items():
        identity = helper.make_node("Identity", ["x"], ["y"])
        write(f"identity_{name}", [identity], [value("x", element, ["n"])], [value("y", element, ["n"])])
    floats = TensorProto.FLOAT
    write("matrix", [helper.make_node("Identity", ["x"], ["y"])],
          [value("x", floats, ["n", 3])], [value("y", floats, ["n", 3])])
    write("sums", [helper.make_node("Add", ["a", "b"], ["sum"]), helper.make_node("Sub", ["a", "b"], ["difference"])],
          [value("a", floats, ["n"]), value("b", floats, ["n"])],
          [value("sum", floats, ["n"]), value("difference", floats, ["n"])])
    write("scores", [helper.make_node("Identity", ["x"], ["y"])],
          [value("x", floats, ["n", 3])], [value("y", floats, ["n", 3])],
          "outputs: { y: { type: float32, labels: [cat, dog, fox] } }\n")
    # Long enough that a request can be late, or be taken back, while it runs.
    steps = [helper.make_node("MatMul", ["x", "x"], ["x0"])]
    steps += [helper.make_node("MatMul", [f"x{i}", "x"], [f"x{i + 1}"]) for i in range(400)]
    write("slow", steps + [helper.make_node("Identity", ["x400"], ["y"])],
          [value("x", floats, ["n", "n"])], [value("y", floats, ["n", "n"])])


if __name__ == "__main__":
    main()
