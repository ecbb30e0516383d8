"""Python objects in, Python objects out."""

import io
import json
import subprocess
import sys

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from PIL import Image, ImageCms

import gpux

DTYPES = ["bool", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8"]


def random_array(random, dtype):
    """An array of random shape, values and memory layout."""
    shape = tuple(random.integers(0, 5, random.integers(0, 5)))
    raw = random.integers(0, 256, (int(np.prod(shape)), np.dtype(dtype).itemsize), dtype="u1")
    array = (raw[:, 0] > 127).reshape(shape) if dtype == "bool" else raw.view(dtype).reshape(shape)
    match random.integers(0, 6):
        case 0:
            array = np.asfortranarray(array)
        case 1 if array.ndim:
            array = np.repeat(array, 2, axis=-1)[..., ::2]
        case 2 if array.ndim:
            array = array[::-1]
        case 3:
            array = array.astype(array.dtype.newbyteorder(">"))
        case 4:
            array.flags.writeable = False
        case _:
            pass
    return array


@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_are_those_of_onnxruntime(dtype, identity):
    random = np.random.default_rng(DTYPES.index(dtype))
    for _ in range(40):
        array = random_array(random, dtype)
        path = identity(dtype, array.shape)
        reference = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        (expected,) = reference.run(None, {"x": np.ascontiguousarray(array, dtype).reshape(array.shape)})
        with gpux.GPUXRuntime(path, engine="onnxruntime") as runtime:
            given = runtime.infer({"x": array})["y"]
            nested = array.tolist()
            from_lists = runtime.infer({"x": nested})["y"] if array.size else given
        assert given.dtype == expected.dtype
        assert given.shape == expected.shape == array.shape
        assert given.tobytes() == expected.tobytes()
        # NaNs have many patterns and one name.
        np.testing.assert_array_equal(from_lists, expected)


def test_bfloat16_keeps_its_bits(identity):
    bits = np.arange(0, 1 << 16, 7, dtype="u2")
    runtime = gpux.GPUXRuntime(identity("bfloat16", [bits.size]), engine="onnxruntime")
    result = runtime.infer({"x": bits.view(ml_dtypes.bfloat16)})["y"]
    assert result.dtype == ml_dtypes.bfloat16
    assert (result.view("u2") == bits).all()


def test_bfloat16_is_float32_without_its_package(identity):
    path = identity("bfloat16", [3])
    script = (
        "import sys; sys.modules['ml_dtypes'] = None\n"
        "import gpux; runtime = gpux.GPUXRuntime(sys.argv[1], engine='onnxruntime')\n"
        "result = runtime.infer({'x': [1, -2.5, 3e38]})['y']; print(result.dtype, result[:2].tolist())"
    )
    done = subprocess.run([sys.executable, "-c", script, path], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["float32", "[1.0,", "-2.5]"]


def test_strings(identity):
    runtime = gpux.GPUXRuntime(identity("str", [2, 2]), engine="onnxruntime")
    texts = [["a", "ß"], ["", "日本"]]
    for given in [texts, np.array(texts), np.array(texts, dtype=object)]:
        result = runtime.infer({"x": given})["y"]
        assert result.dtype == object
        assert result.tolist() == texts
    with pytest.raises(gpux.ValidationError, match="nothing but str"):
        runtime.infer({"x": np.array([["a", 1], ["b", None]], dtype=object)})


def test_large_arrays_are_not_copied(identity):
    """100 MB: the result lies in other memory than the argument (the model copies), and each is there once."""
    script = """
import resource, sys
import numpy as np
import gpux
runtime = gpux.GPUXRuntime(sys.argv[1], engine="onnxruntime")
array = np.ones(25_000_000, "f4")
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
before = peak()
result = runtime.infer({"x": array})["y"]
print(peak() - before, result.base is not None, result.flags.writeable, result.sum())
"""
    path = identity("f4", ["n"])
    done = subprocess.run([sys.executable, "-c", script, path], capture_output=True, text=True, check=True)
    grown, is_borrowed, is_writable, total = done.stdout.split()
    # The result has 95 MiB.
    assert float(grown) < 115
    assert (is_borrowed, is_writable, float(total)) == ("True", "True", 25e6)


def test_results_outlive_the_runtime(identity):
    runtime = gpux.GPUXRuntime(identity("i8", ["n"]))
    result = runtime.infer({"x": np.arange(10_000)})["y"]
    runtime.cleanup()
    del runtime
    result += 1
    assert result.sum() == 10_000 * 9_999 // 2 + 10_000


def test_writing_to_a_result_changes_nothing_else(tmp_path):
    """Results lie in ONNX Runtime's memory, where outputs could be inputs, weights or other outputs."""
    rows = 40_000
    weights = np.arange(rows, dtype="f4")
    graph = onnx.helper.make_graph(
        [
            onnx.helper.make_node("Identity", ["x"], ["same"]),
            onnx.helper.make_node("Reshape", ["x", "shape"], ["column"]),
            onnx.helper.make_node("Identity", ["w"], ["weights"]),
            onnx.helper.make_node("Add", ["x", "w"], ["sum"]),
            onnx.helper.make_node("Identity", ["sum"], ["again"]),
            onnx.helper.make_node("If", ["yes"], ["branch"], then_branch=branch("sum"), else_branch=branch("w")),
        ],
        "aliases",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [rows])],
        [
            onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [rows, 1] if name == "column" else [rows])
            for name in ["x", "same", "column", "w", "weights", "sum", "again", "branch"]
        ],
        [
            onnx.numpy_helper.from_array(weights, "w"),
            onnx.numpy_helper.from_array(np.array([-1, 1]), "shape"),
            onnx.numpy_helper.from_array(np.array(True), "yes"),
        ],
    )
    path = tmp_path / "aliases.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10), path)
    runtime = gpux.GPUXRuntime(path, engine="onnxruntime")
    array = np.ones(rows, "f4")
    kept = []
    for _ in range(2):
        results = runtime.infer({"x": array})
        for name, result in results.items():
            number = {"x": 1, "same": 1, "column": 1, "w": weights, "weights": weights}.get(name, weights + 1)
            assert (result.ravel() == number).all(), name
            result += 100
        kept.append(results)
    assert (array == 1).all()
    assert len({result.ctypes.data for results in kept for result in results.values()}) == 16


def branch(name):
    """A subgraph that gives a value of the graph around it."""
    output = onnx.helper.make_tensor_value_info("out", onnx.TensorProto.FLOAT, None)
    return onnx.helper.make_graph([onnx.helper.make_node("Identity", [name], ["out"])], "branch", [], [output])


def test_arrays_of_other_libraries(identity):
    runtime = gpux.GPUXRuntime(identity("f4", [3]))
    array = np.array([1, 2, 3], "f4")

    class WithDlpack:
        __dlpack__ = array.__dlpack__
        __dlpack_device__ = array.__dlpack_device__

    class WithArray:
        def __array__(self, dtype=None, copy=None):
            return array

    for given in [WithDlpack(), WithArray(), memoryview(array).tolist(), tuple(array)]:
        assert runtime.infer({"x": given})["y"].tolist() == [1, 2, 3]


def test_files_bytes_and_pictures(digits, photo):
    data = photo.read_bytes()
    picture = Image.open(io.BytesIO(data))
    expected = digits(image=data)["top"]
    assert expected[0]["label"] == "seven"
    for given in [bytearray(data), memoryview(data), photo, picture, picture.convert("RGB")]:
        top = digits(image=given)["top"]
        assert top[0]["label"] == "seven"
        assert json.dumps(top) == json.dumps(expected) or isinstance(given, Image.Image)


def test_arrays_are_images(digits, photo):
    picture = Image.open(photo)
    for mode in ["1", "L", "LA", "RGB", "RGBA", "P"]:
        expected = digits(image=_png(picture.convert(mode)))
        # 1 and P are packed or indexed: their arrays are of what they show.
        array = np.asarray(picture.convert(mode).convert({"1": "L", "P": "RGB"}.get(mode, mode)))
        for given in [array, array[:, ::-1][:, ::-1], np.asfortranarray(array)]:
            assert digits(image=given) == expected, mode
    assert digits(image=np.fromfile(photo, np.uint8)) == digits(image=photo)
    gray = np.asarray(picture.convert("L"))
    assert digits(image=gray[..., None]) == digits(image=gray)
    rgb = np.asarray(picture.convert("RGB"))
    for wrong, message in [
        (rgb.transpose(2, 0, 1), r"transpose\(1, 2, 0\)"),
        (rgb.astype(np.float32), "array of float32"),
        (rgb[None], r"this is \[1, "),
        (rgb[:0], r"this is \[0, "),
        (np.zeros((4, 4, 5), np.uint8), r"this is \[4, 4, 5\]"),
    ]:
        with pytest.raises(gpux.ValidationError, match=message):
            digits(image=wrong)


def test_pillow_images_of_every_mode(digits, photo):
    picture = Image.open(photo).convert("RGB")
    for mode in ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr", "HSV", "LAB", "RGBX", "PA", "La", "RGBa"]:
        via = {"LAB": "RGB", "PA": "P", "La": "LA", "RGBa": "RGBA"}.get(mode, mode)
        if mode == "LAB":
            given = ImageCms.profileToProfile(picture, _srgb(), ImageCms.createProfile("LAB"), outputMode="LAB")
        else:
            given = picture.convert(via).convert(mode)
        shown = {"La": "LA", "PA": "RGBA", "RGBa": "RGBA"}.get(mode, "RGB")
        expected = given if mode in ("1", "L", "LA", "P", "RGB", "RGBA") else given.convert(shown)
        assert digits(image=given) == digits(image=_png(expected)), mode
    for mode in ["F", "I"]:
        with pytest.raises(gpux.ValidationError, match=f"mode {mode} has no 8 bits a channel"):
            digits(image=picture.convert(mode))


def _srgb():
    return ImageCms.createProfile("sRGB")


def _png(picture):
    file = io.BytesIO()
    picture.save(file, "PNG")
    return file.getvalue()


def test_what_does_not_fit_names_the_input(digits, photo, tmp_path):
    cases = [
        ({"image": str(photo)}, gpux.ValidationError, "input `image`: takes bytes, but this is a str"),
        ({"image": 3}, gpux.ValidationError, "input `image`"),
        ({"image": object()}, gpux.ValidationError, "input `image`.*`object`"),
        ({"image": np.zeros(3)}, gpux.ValidationError, "input `image`"),
        ({"imag": b""}, gpux.ValidationError, "input `imag`.*takes `image`"),
        ({}, gpux.ValidationError, "input `image`.*missing"),
        ({"image": b"no picture"}, gpux.StepError, "step 1"),
    ]
    for inputs, error, message in cases:
        with pytest.raises(error, match=message):
            digits.infer(inputs)
    with pytest.raises(FileNotFoundError, match=r"no\.png"):
        digits(image=tmp_path / "no.png")
    with pytest.raises(IsADirectoryError):
        digits(image=tmp_path)


class Subclass(np.ndarray):
    pass


def test_wrong_element_types_say_how_to_convert(identity):
    runtime = gpux.GPUXRuntime(identity("float32", ["N", 2]))
    with pytest.raises(gpux.ValidationError, match=r'array of float64: `array\.astype\("float32"\)`'):
        runtime.infer({"x": np.zeros((1, 2))})
    assert runtime.infer({"x": np.zeros((1, 2)).astype("float32")})["y"].shape == (1, 2)


def test_numbers_that_do_not_fit(identity):
    runtime = gpux.GPUXRuntime(identity("i4", [2]))
    for given in [[1, 2.5], [1, 1 << 31], [1, 1 << 80], ["a", 1], [1, [2]], [1, object()], np.zeros(2), [1, 2, 3]]:
        with pytest.raises(gpux.ValidationError, match="input `x`"):
            runtime.infer({"x": given})
    with pytest.raises(gpux.ValidationError, match="complex"):
        runtime.infer({"x": np.zeros(2, complex)})
    with pytest.raises(gpux.ValidationError, match="masked"):
        runtime.infer({"x": np.ma.array([1, 2], "i4", mask=[True, False])})
    assert runtime.infer({"x": np.array([1, 2], "i4").view(Subclass)})["y"].tolist() == [1, 2]
    deep = []
    for _ in range(1000):
        deep = [deep]
    with pytest.raises(gpux.ValidationError, match="levels deep"):
        runtime.infer({"x": deep})


def test_json_has_no_nan(identity):
    runtime = gpux.GPUXRuntime(identity("f4", [3]))
    result = runtime.infer({"x": [float("nan"), float("inf"), -float("inf")]})["y"]
    np.testing.assert_array_equal(result, np.array([np.nan, np.inf, -np.inf], "f4"))
