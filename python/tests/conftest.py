"""What the tests share. They run against the installed wheel, never against the source tree."""

from pathlib import Path

import numpy
import onnx
import pytest

import gpux

ROOT = Path(__file__).resolve().parents[2]

assert ROOT / "python" not in Path(gpux.__file__).parents, "install the wheel; this is the source tree"


@pytest.fixture(scope="session")
def digits():
    """The pipeline of the README, with its component."""
    return gpux.Pipeline(ROOT)


@pytest.fixture(scope="session")
def photo():
    return ROOT / "models/samples/seven.png"


@pytest.fixture
def identity(tmp_path):
    """Makes a model that gives back what it gets, for an element type (bfloat16 by that name) and a shape."""

    def make(dtype, shape):
        types = {"bfloat16": onnx.TensorProto.BFLOAT16, "str": onnx.TensorProto.STRING}
        element = types.get(str(dtype)) or onnx.helper.np_dtype_to_tensor_dtype(numpy.dtype(dtype))
        ports = [onnx.helper.make_tensor_value_info(name, element, shape) for name in "xy"]
        node = onnx.helper.make_node("Identity", ["x"], ["y"])
        graph = onnx.helper.make_graph([node], "identity", ports[:1], ports[1:])
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)
        path = tmp_path / f"{dtype}-{'x'.join(map(str, shape))}.onnx"
        onnx.save(model, path)
        return path

    return make
