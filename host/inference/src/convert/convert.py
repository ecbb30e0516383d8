"""What `gpux build --precision` asks of ONNX Runtime's own offline tools: `convert_float_to_float16` of
onnxruntime.transformers and `quantize_dynamic` of onnxruntime.quantization.

Called as `python -c SCRIPT REQUEST`; the last line on stdout is the answer. The model is read, never written.
"""

import sys

# The folder that gpux was called in may be a stranger's: no module comes from there.
sys.path[:] = [path for path in sys.path if path]

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


def float16(model):
    from onnx import TensorProto
    from onnxruntime.transformers.float16 import convert_float_to_float16

    def halves(graph):
        constants = [attribute.t for node in graph.node for attribute in node.attribute if attribute.HasField("t")]
        return sum(tensor.data_type == TensorProto.FLOAT16 for tensor in [*graph.initializer, *constants])

    before = sum(map(halves, graphs(model.graph)))
    model = convert_float_to_float16(model, keep_io_types=True)
    changed = sum(map(halves, graphs(model.graph))) > before
    return model, None if changed else "it has no weights in float32"


def int8(model, folder, external):
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    def operators(model):
        return [node.op_type for graph in graphs(model.graph) for node in graph.node]

    # ONNX Runtime's convolutions of integers on the CPU are made for unsigned weights.
    kind = QuantType.QUInt8 if "Conv" in operators(model) else QuantType.QInt8
    before = len(operators(model))
    path = os.path.join(folder, "quantized.onnx")
    quantize_dynamic(
        model,
        path,
        weight_type=kind,
        per_channel=kind == QuantType.QInt8,
        use_external_data_format=external,
    )
    model = onnx.load(path)
    for file in [path, path + ".data"]:
        if os.path.exists(file):
            os.remove(file)
    changed = len(operators(model)) != before
    return model, None if changed else "it has no operator that is quantized (MatMul, Conv, Gemm, Gather, LSTM … with weights in float32)"


def main(request):
    missing = [name for name in ("onnx", "onnxruntime") if importlib.util.find_spec(name) is None]
    if missing:
        return {"missing": {"packages": missing, "python": platform.python_version()}}
    bound(request)
    import onnx
    import onnxruntime

    model = onnx.load(request["model"])
    # One protobuf message holds at most 2 GB.
    external = request["external"]
    folder = request["folder"]
    if request["precision"] == "fp16":
        model, unchanged = float16(model)
    else:
        model, unchanged = int8(model, folder, external)
    if unchanged:
        return {"unchanged": unchanged}
    name = request["name"]
    options = {}
    if external:
        options = {"save_as_external_data": True, "all_tensors_to_one_file": True, "location": name + ".data"}
    onnx.save(model, os.path.join(folder, name), **options)
    return {"made": {"tools": f"onnxruntime {onnxruntime.__version__}, onnx {onnx.__version__}"}}


try:
    answer = main(json.loads(sys.argv[1]))
except BaseException as error:
    answer = {"failed": f"{type(error).__name__}: {error}"}
print("\n" + json.dumps(answer), flush=True)
# What watches the parent waits for it, and would keep the interpreter from ending.
os._exit(0)
