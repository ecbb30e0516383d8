"""What `gpux build --precision` asks of ONNX Runtime's own offline tools: `convert_float_to_float16` of
onnxruntime.transformers, `quantize_dynamic` and `quantize_static` of onnxruntime.quantization.

Called as `python -c SCRIPT REQUEST`; the last line on stdout is the answer. The model is read, never written.
"""

import sys

# The folder that gpux was called in may be a stranger's: no module comes from there.
sys.path[:] = [path for path in sys.path if path]

import collections
import importlib.util
import json
import os
import platform
import threading


def bound(request):
    """Nothing runs on without the gpux that asked, nor takes more than it may."""
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(1)), daemon=True).start()
    try:
        import resource
    except ImportError:
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_DATA, (request["memory"],) * 2)
    resource.setrlimit(resource.RLIMIT_CPU, (request["seconds"] * (os.cpu_count() or 1),) * 2)


def graphs(graph):
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in [attribute.g, *attribute.graphs]:
                if inner.node:
                    yield from graphs(inner)


class Unchanged(Exception):
    """Why a model stays as it is."""


def operators(model):
    return collections.Counter(node.op_type for graph in graphs(model.graph) for node in graph.node)


def why_unchanged(model, otherwise):
    """Why nothing of the model becomes smaller."""
    from onnx import TensorProto

    inputs = {each.name for each in model.graph.input}
    weights = [each for graph in graphs(model.graph) for each in graph.initializer]
    floats = [each for each in weights if each.data_type == TensorProto.FLOAT]
    classical = sorted({node.op_type for graph in graphs(model.graph) for node in graph.node if node.domain == "ai.onnx.ml"})
    halves = [each for each in weights if each.data_type == TensorProto.FLOAT16]
    if floats and all(each.name in inputs for each in floats):
        return (
            f"its weights are inputs, too, as before IR version 4 (it has {model.ir_version}), and inputs keep their "
            "type: export it with weights that are no inputs"
        )
    if not floats and classical:
        return f"its numbers are attributes of the operators {', '.join(classical)} (ai.onnx.ml), which have no other precision"
    if halves and not floats:
        return "its weights are in float16: float16 stays as it is, and 8 bits are made of float32"
    return otherwise


def float16(model):
    from onnx import TensorProto
    from onnxruntime.transformers.float16 import convert_float_to_float16

    def halves(graph):
        constants = [attribute.t for node in graph.node for attribute in node.attribute if attribute.HasField("t")]
        return sum(tensor.data_type == TensorProto.FLOAT16 for tensor in [*graph.initializer, *constants])

    before = sum(map(halves, graphs(model.graph)))
    model = convert_float_to_float16(model, keep_io_types=True)
    if sum(map(halves, graphs(model.graph))) == before:
        raise Unchanged(why_unchanged(model, "it has no weights in float32"))
    return model, "16-bit floats"


# What has weights, and is much faster in 8 bits.
CONVOLUTIONS = ("Conv", "ConvTranspose")
PRODUCTS = ("MatMul", "Gemm", "LSTM", "GRU")


def int8(model, request):
    """Products of matrices keep their accuracy best with the range that each run has ("dynamic"). Convolutions are
    fast only between ranges that are known beforehand, from samples ("static").
    """
    import onnx

    before = operators(model)
    path = os.path.join(request["folder"], "quantized.onnx")
    nothing = why_unchanged(
        model, "it has no operator that is quantized (MatMul, Conv, Gemm, Gather, LSTM … with weights in float32)"
    )
    convolutions, products = (sum(before[kind] for kind in kinds) for kinds in (CONVOLUTIONS, PRODUCTS))
    from onnxruntime.quantization.registry import IntegerOpsRegistry

    if not any(before[kind] for kind in [*IntegerOpsRegistry, *CONVOLUTIONS]) or "float16" in nothing:
        raise Unchanged(nothing)
    if convolutions and convolutions >= products:
        if not request["samples"]:
            raise Unchanged("convolutions take their ranges from samples: give --sample, or add golden cases")
        static(model, path, request)
        how = f"static quantization, ranges from {len(request['samples'])} of the samples"
    else:
        dynamic(model, path, request)
        how = "dynamic quantization"
    model = onnx.load(path)
    for file in [path, path + ".data"]:
        if os.path.exists(file):
            os.remove(file)
    if operators(model) == before:
        raise Unchanged(nothing)
    return model, how


def dynamic(model, path, request):
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.quantization.registry import IntegerOpsRegistry

    quantize_dynamic(
        model,
        path,
        op_types_to_quantize=[kind for kind in IntegerOpsRegistry if kind not in CONVOLUTIONS],
        weight_type=QuantType.QInt8,
        per_channel=True,
        use_external_data_format=request["external"],
    )


def static(model, path, request):
    import numpy
    from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static

    class Samples(CalibrationDataReader):
        def __init__(self):
            self.left = iter(request["samples"])

        def get_next(self):
            sample = next(self.left, None)
            return sample and {name: numpy.load(file, allow_pickle=False) for name, file in sample.items()}

    if not request["external"]:
        model = folded(model, request["folder"])
    for number, node in enumerate(model.graph.node):
        node.name = f"{node.op_type}_{number}"
    quantize_static(
        model,
        path,
        Samples(),
        per_channel=True,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
        nodes_to_exclude=tail(model.graph),
        use_external_data_format=request["external"],
        # Results keep their precision.
        extra_options={"OpTypesToExcludeOutputQuantization": ["Gemm", "MatMul"]},
    )


def folded(model, folder):
    """The model with its batch normalization in the weights of convolutions, in an opset in which these have a scale
    for each channel.
    """
    import onnx
    import onnxruntime
    from onnx import version_converter

    if next(each.version for each in model.opset_import if each.domain in ("", "ai.onnx")) < 13:
        model = version_converter.convert_version(model, 13)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = os.path.join(folder, "folded.onnx")
    onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    model = onnx.load(options.optimized_model_filepath)
    os.remove(options.optimized_model_filepath)
    return model


def tail(graph):
    """The names of the nodes behind the last product: where outputs of different sizes meet (boxes and their scores),
    one scale does not fit all.
    """
    wanted, behind = set(), []
    for node in reversed(graph.node):
        if node.op_type in CONVOLUTIONS + PRODUCTS or wanted.intersection(node.output):
            wanted.update(node.input)
        else:
            behind.append(node.name)
    return behind


def main(request):
    missing = [name for name in ("onnx", "onnxruntime") if importlib.util.find_spec(name) is None]
    if missing:
        return {"missing": {"packages": missing, "python": platform.python_version()}}
    bound(request)
    import onnx
    import onnxruntime

    model = onnx.load(request["model"])
    try:
        model, how = float16(model) if request["precision"] == "fp16" else int8(model, request)
    except Unchanged as reason:
        return {"unchanged": str(reason)}
    name = request["name"]
    options = {}
    # One protobuf message holds at most 2 GB.
    if request["external"]:
        options = {"save_as_external_data": True, "all_tensors_to_one_file": True, "location": name + ".data"}
    onnx.save(model, os.path.join(request["folder"], name), **options)
    return {"made": {"tools": f"onnxruntime {onnxruntime.__version__}, onnx {onnx.__version__}: {how}"}}


try:
    answer = main(json.loads(sys.argv[1]))
except BaseException as error:
    answer = {"failed": f"{type(error).__name__}: {error}"}
print("\n" + json.dumps(answer), flush=True)
# What watches the parent waits for it, and would keep the interpreter from ending.
os._exit(0)
