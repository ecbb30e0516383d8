#!/usr/bin/env python3
"""Numbers and speed of a few models with CUDA and TensorRT, or with WebGPU, beside the CPU, on a
machine with a GPU. Without one, or without a library for it, says so and exits with 3; exits with 1
when a number is too far from the CPU's, or when models of one pipeline do not hand their tensors on
where they lie.

    benches/gpu-check.py [--gpux target/release/gpux] [--runs 50]

With the package `onnx` installed it also makes two models that are large enough to be worth a GPU,
and a pipeline of two.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
# TensorFloat-32 and TensorRT's own kernels round more than the CPU does.
TOLERANCE = {"cuda": 5e-3, "tensorrt": 2e-2, "webgpu": 1e-3}


def gpux(program, *arguments):
    command = [program, *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr.strip()


def machine(program):
    code, out, err = gpux(program, "inspect", "--json")
    if code:
        sys.exit(f"gpux inspect failed: {err}")
    return json.loads(out)


def cannot(reason):
    print(reason)
    sys.exit(3)


def providers(seen):
    """The providers of GPUs that can be tried; ends the program where there is none."""
    gpus = [f"{gpu['vendor']} {gpu['name']}" for gpu in seen["hardware"]["gpus"]]
    told = {entry["provider"]: entry for entry in seen["providers"]}
    names = {
        "cuda": "CUDAExecutionProvider",
        "tensorrt": "TensorrtExecutionProvider",
        "webgpu": "WebGpuExecutionProvider",
    }
    for name, full in names.items():
        if not told[full]["available"]:
            print(f"{name}: {told[full]['missing']}; {told[full]['command'] or ''}")
    found = [name for name, full in names.items() if told[full]["available"]]
    if not found:
        cannot(f"nothing to check (GPUs: {', '.join(gpus) or 'none'})")
    driver = seen["hardware"]["drivers"]["nvidia"]
    print(f"GPUs: {', '.join(gpus) or 'none'}; NVIDIA driver: {driver or 'none'}; {seen['engine']}\n")
    return found


def ramp(shape):
    """Numbers between -1 and 1 that repeat nowhere soon."""
    count = 1
    for size in shape:
        count *= size
    flat = [((index * 7919) % 2003) / 1001.5 - 1 for index in range(count)]
    for size in reversed(shape[1:]):
        flat = [flat[at : at + size] for at in range(0, len(flat), size)]
    return flat


def made(folder):
    """A network of convolutions and one of matrix products, with fixed weights."""
    try:
        import numpy
        import onnx
        from onnx import TensorProto, helper, numpy_helper
    except ImportError:
        print("(the package `onnx` is not installed: small models only)")
        return []
    random = numpy.random.default_rng(7)

    def weights(name, *shape):
        bound = (3.0 / numpy.prod(shape[1:])) ** 0.5 if len(shape) == 4 else (3.0 / shape[0]) ** 0.5
        return numpy_helper.from_array(random.uniform(-bound, bound, shape).astype(numpy.float32), name)

    def model(name, shape, layers):
        nodes, initializers, last, given = [], [], "x", shape
        for index, (kind, out) in enumerate(layers):
            weight = f"w{index}"
            if kind == "Conv":
                initializers.append(weights(weight, out, given[1], 3, 3))
                nodes.append(helper.make_node("Conv", [last, weight], [f"c{index}"], pads=[1, 1, 1, 1]))
                given = [shape[0], out, *shape[2:]]
            else:
                initializers.append(weights(weight, given[-1], out))
                nodes.append(helper.make_node("MatMul", [last, weight], [f"c{index}"]))
                given = [*shape[:-1], out]
            nodes.append(helper.make_node("Relu", [f"c{index}"], [f"r{index}"]))
            last = f"r{index}"
        nodes.append(helper.make_node("Identity", [last], ["y"]))
        graph = helper.make_graph(
            nodes,
            name,
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, given)],
            initializers,
        )
        path = folder / f"{name}.onnx"
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
        return path, {"x": shape}

    products, shapes = model("products", [1, 256, 1024], [("MatMul", 1024)] * 12)
    chain = folder / "chain"
    chain.mkdir()
    (chain / "gpux.yml").write_text(
        "name: chain\nversion: 1.0.0\nmodels: { first: model.onnx, second: model.onnx }\n"
        "pipeline: [{ model: first }, { model: second }]\n"
    )
    (chain / "model.onnx").write_bytes(products.read_bytes())
    convolutions = model("convolutions", [1, 3, 112, 112], [("Conv", 64)] * 8)
    return [convolutions, (products, shapes), (chain, shapes)]


def stays(program, pipeline, provider):
    """Whether the tensor between the models of a pipeline stays on the provider's device."""
    code, out, _ = gpux(program, "inspect", pipeline, "--provider", provider, "--strict", "--json")
    return code == 0 and "stays_on" in json.loads(out)["steps"][0]["gives"][0]


def flat(value):
    if isinstance(value, list):
        for item in value:
            yield from flat(item)
    else:
        yield float(value)


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--gpux", default=str(ROOT / "target/release/gpux"))
    arguments.add_argument("--runs", type=int, default=50)
    given = arguments.parse_args()
    tried = providers(machine(given.gpux))
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        models = [
            (ROOT / "models/digits.onnx", {"image": [1, 1, 8, 8]}),
            (ROOT / "tests/models/conv.onnx", {"image": [8, 1, 8, 8]}),
            *made(folder),
        ]
        print(f"{'model':14} {'provider':9} {'p50 ms':>9} {'speed-up':>9} {'largest difference':>19}")
        for path, shapes in models:
            request = folder / "request.json"
            request.write_text(json.dumps({name: ramp(shape) for name, shape in shapes.items()}))
            expected, base = None, None
            for provider in ["cpu", *tried]:
                run = ["run", path, "--provider", provider, "--strict", "--input", f"@{request}"]
                code, out, err = gpux(given.gpux, *run, "--format", "json")
                if code:
                    print(f"{path.stem:14} {provider:9} failed: {err}")
                    wrong += 1
                    continue
                numbers = list(flat(list(json.loads(out).values())[0]))
                code, out, err = gpux(given.gpux, *run, "--benchmark", "--runs", given.runs, "--json")
                if code:
                    print(f"{path.stem:14} {provider:9} failed: {err}")
                    wrong += 1
                    continue
                time = json.loads(out)["p50"]
                if provider == "cpu":
                    expected, base = numbers, time
                    print(f"{path.stem:14} {provider:9} {time:9.3f}")
                    continue
                if expected is None or len(expected) != len(numbers):
                    print(f"{path.stem:14} {provider:9} gives another number of values than the CPU")
                    wrong += 1
                    continue
                scale = max(map(abs, expected)) or 1.0
                worst = max(abs(a - b) for a, b in zip(expected, numbers)) / scale
                verdict = "" if worst <= TOLERANCE[provider] else f"  more than {TOLERANCE[provider]}"
                if path.is_dir() and not stays(given.gpux, path, provider):
                    verdict += "  the tensor between the models does not stay on the device"
                wrong += bool(verdict)
                print(f"{path.stem:14} {provider:9} {time:9.3f} {base / time:8.1f}× {worst:19.2e}{verdict}")
    sys.exit(1 if wrong else 0)


main()
