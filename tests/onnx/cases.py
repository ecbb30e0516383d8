"""Models with inputs through the gpux program and through Python's ONNX Runtime, side by side."""

import json
import math
import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, numpy_helper

ROOT = Path(__file__).resolve().parent.parent.parent

onnxruntime.set_default_logger_severity(4)

# ONNX's element types under gpux's names, where lists of JSON need one.
ELEMENTS = {
    TensorProto.FLOAT: "float32", TensorProto.DOUBLE: "float64", TensorProto.FLOAT16: "float16",
    TensorProto.BFLOAT16: "bfloat16", TensorProto.INT8: "int8", TensorProto.INT16: "int16", TensorProto.INT32: "int32",
    TensorProto.INT64: "int64", TensorProto.UINT8: "uint8", TensorProto.UINT16: "uint16", TensorProto.UINT32: "uint32",
    TensorProto.UINT64: "uint64", TensorProto.BOOL: "bool", TensorProto.STRING: "string",
}

# Element types that gpux carries as another.
CARRIED = {
    TensorProto.INT4: np.int8, TensorProto.UINT4: np.uint8, TensorProto.INT2: np.int8, TensorProto.UINT2: np.uint8,
    TensorProto.FLOAT8E4M3FN: np.float32, TensorProto.FLOAT8E4M3FNUZ: np.float32, TensorProto.FLOAT8E5M2: np.float32,
    TensorProto.FLOAT8E5M2FNUZ: np.float32, TensorProto.FLOAT8E8M0: np.float32,
}


def is_numpy(array):
    """Whether NumPy itself has its element type."""
    return array.dtype.type.__module__ == "numpy"


def wide(array):
    """An array of a type that NumPy itself has, with the same numbers."""
    if is_numpy(array):
        return array
    name = array.dtype.name
    return array.astype(np.int16 if "int" in name else np.float32)


def leaf(item):
    """One element as JSON, by gpux's rule for what JSON has no number for."""
    if isinstance(item, bytes):
        return item.decode()
    if isinstance(item, float) and not math.isfinite(item):
        return "NaN" if math.isnan(item) else "Infinity" if item > 0 else "-Infinity"
    return item


def tensor_json(array, element):
    array = np.asarray(array)
    flat = [leaf(item) for item in wide(array).reshape(-1).tolist()]
    name = ELEMENTS.get(element) or np.dtype(CARRIED[element]).name
    return {"type": name, "shape": list(array.shape), "data": flat}


def value_json(value, kind):
    """A value of an ONNX type as gpux reads it."""
    if kind.HasField("optional_type"):
        return None if value is None else value_json(value, kind.optional_type.elem_type)
    if kind.HasField("sequence_type"):
        return [value_json(item, kind.sequence_type.elem_type) for item in value]
    if kind.HasField("map_type"):
        return {str(key): leaf(np.asarray(item).item()) for key, item in value.items()}
    return tensor_json(value, kind.tensor_type.elem_type)


class Refused(RuntimeError):
    """The engine has not what the model needs: exit code 3."""


class Gpux:
    """The program, as its users start it."""

    def __init__(self, program, folder, engine="onnxruntime", arguments=()):
        self.program, self.folder, self.arguments = program, Path(folder), ["--engine", engine, *arguments]

    def run(self, model, feeds, proto):
        """The outputs of a model, in its order. RuntimeError with the program's message if it fails, Refused with it
        where another engine is needed."""
        shutil.rmtree(self.folder, ignore_errors=True)
        (self.folder / "in").mkdir(parents=True)
        types = {port.name: port.type for port in proto.graph.input}
        command = [self.program, "run", model, *self.arguments, "--json", "--format", "npy",
                   "--output", self.folder / "out"]
        for index, (name, value) in enumerate(feeds.items()):
            path = self.give(self.folder / "in" / str(index), value, types[name])
            command += ["--input", f"{name}=@{path}"]
        if not feeds:
            command += ["--input", "{}"]
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=300)
        if done.returncode:
            kind = Refused if done.returncode == 3 else RuntimeError
            raise kind(f"exit {done.returncode}: {message(done)}")
        return [self.take(port) for port in proto.graph.output]

    @staticmethod
    def give(path, value, kind):
        element = kind.tensor_type.elem_type if kind.HasField("tensor_type") else None
        if element is not None and element != TensorProto.STRING:
            value = np.asarray(value)
            value = value.astype(CARRIED[element]) if element in CARRIED else value
            path = path.with_suffix(".npy")
            np.save(path, value)
        else:
            path = path.with_suffix(".json")
            path.write_text(json.dumps(value_json(value, kind)))
        return path

    def take(self, port):
        """An output as nested lists and dicts of arrays, by its type."""
        safe = "".join(c if c.isalnum() and c.isascii() or c in "_-" or c == "." and i else
                       "".join(f"%{byte:02x}" for byte in c.encode()) for i, c in enumerate(port.name))
        path = self.folder / "out" / f"{safe}.npy"
        if path.exists():
            array = np.load(path)
            bfloat16 = port.type.tensor_type.elem_type == TensorProto.BFLOAT16
            return (array.view(np.uint16).astype(np.uint32) << 16).view(np.float32) if bfloat16 else array
        return from_json(json.loads(path.with_suffix(".json").read_text()), port.type)


def message(done):
    try:
        return json.loads(done.stdout or done.stderr)["message"]
    except (ValueError, KeyError, TypeError):
        return (done.stderr or done.stdout).strip()[-400:]


def from_json(value, kind):
    if kind.HasField("optional_type"):
        return None if value is None else from_json(value, kind.optional_type.elem_type)
    if kind.HasField("sequence_type"):
        return [from_json(item, kind.sequence_type.elem_type) for item in value]
    if kind.HasField("map_type"):
        as_key = str if kind.map_type.key_type == TensorProto.STRING else int
        return {as_key(key): from_json(item, kind.map_type.value_type) for key, item in value.items()}
    shape, data = (value["shape"], value["data"]) if isinstance(value, dict) else (None, value)
    element = kind.tensor_type.elem_type
    if element == TensorProto.STRING:
        array = np.array(data, dtype=object)
    else:
        named = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}

        def read(item):
            return [read(each) for each in item] if isinstance(item, list) else named.get(item, item)

        array = np.array(read(data), dtype=np.dtype(ELEMENTS[element] if element != TensorProto.BFLOAT16 else "float32"))
    return array if shape is None else array.reshape(shape)


def python(session, feeds):
    """The outputs of Python's ONNX Runtime."""
    if all(not isinstance(value, np.ndarray) or is_numpy(value) for value in feeds.values()):
        return session.run(None, feeds)
    given = {name: ort_value(value) for name, value in feeds.items() if value is not None}
    return [value.numpy() for value in session.run_with_ort_values(None, given)]


def ort_value(array):
    """An array as ONNX Runtime holds it, with elements that NumPy itself has not as their bits."""
    if is_numpy(array):
        return onnxruntime.OrtValue.ortvalue_from_numpy(array)
    element = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
    bits = np.frombuffer(numpy_helper.from_array(array).raw_data, np.uint8)
    whole = np.zeros(array.size * array.dtype.itemsize, np.uint8)
    whole[:bits.size] = bits
    whole = whole.view(np.uint16 if array.dtype.itemsize == 2 else np.uint8).reshape(array.shape)
    return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(whole, element)


def differs(ours, theirs, rtol, atol):
    """Why two values are not the same within the tolerances; None if they are."""
    if theirs is None or ours is None:
        return None if theirs is ours else f"{describe(ours)} instead of {describe(theirs)}"
    if isinstance(theirs, (list, tuple)) and isinstance(ours, (list, tuple)):
        if len(ours) != len(theirs):
            return f"{len(ours)} values instead of {len(theirs)}"
        return next((why for pair in zip(ours, theirs) if (why := differs(*pair, rtol, atol))), None)
    if isinstance(theirs, dict) and isinstance(ours, dict):
        if list(map(str, sorted(ours))) != list(map(str, sorted(theirs))):
            return f"keys {sorted(ours)} instead of {sorted(theirs)}"
        return next((why for key in theirs if (why := differs(ours[key], theirs[key], rtol, atol))), None)
    # Numbers of Python have no width.
    has_width = isinstance(theirs, (np.ndarray, np.generic))
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    has_width = has_width and is_numpy(theirs)
    if not is_numpy(theirs) and ours.dtype.kind == "u" and ours.dtype.itemsize == theirs.dtype.itemsize == 1 and (
            "float" in theirs.dtype.name):
        # Python's ONNX Runtime gives such elements as their bits.
        ours = ours.view(theirs.dtype)
    ours, theirs = wide(ours), wide(theirs)
    if ours.shape != theirs.shape:
        return f"shape {ours.shape} instead of {theirs.shape}"
    if theirs.dtype.kind in "OUS":
        ours, theirs = ours.astype(str), theirs.astype(str)
        return None if np.array_equal(ours, theirs) else f"{ours.reshape(-1)[:4]} instead of {theirs.reshape(-1)[:4]}"
    kinds = {ours.dtype.kind, theirs.dtype.kind}
    if ours.dtype != theirs.dtype if has_width else len(kinds) > 1 and kinds != {"i", "u"}:
        return f"{ours.dtype} instead of {theirs.dtype}"
    if theirs.dtype.kind in "biu":
        return None if np.array_equal(ours, theirs) else "other integers"
    with np.errstate(all="ignore"):
        close = np.allclose(ours.astype(np.float64), theirs.astype(np.float64), rtol, atol, equal_nan=True)
    return None if close else f"{ours.reshape(-1)[:4]} instead of {theirs.reshape(-1)[:4]}"


def describe(value):
    return "none" if value is None else type(value).__name__
