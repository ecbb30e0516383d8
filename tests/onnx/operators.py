#!/usr/bin/env python3
"""Models of one operator, with random attributes, shapes and values, through gpux and through Python's ONNX Runtime.

Needs the packages of requirements.txt, and a build of gpux. Every case is drawn from the seed and its number. A case is
right (the results agree), refused (exit code 3, naming the operator and the remedy), refused unnamed (exit code 3
without the operator), failed (another error), or wrong: then it exits with 1.

    tests/onnx/operators.py [--gpux target/release/gpux] [--engine embedded] [--seed 1] [--cases 3000] [--only REGEX]

Without `--only`, it also asks for each operator of ONNX that has no recipe here: the engine must refuse it.
"""

import argparse
import collections
import concurrent.futures
import os
import re
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from cases import ROOT, Gpux, Refused, differs
from onnx import TensorProto, helper, numpy_helper
from recipes import RECIPES, Draw

# What ONNX Runtime 1.31 takes.
NEWEST_OPSET = 26
# Kernels add in another order; float16 has ten bits.
TOLERANCES = {"float16": (1e-2, 1e-2), "float32": (1e-3, 1e-5), "float64": (1e-3, 1e-5)}
OUTCOMES = ["right", "refused", "unnamed", "failed", "wrong", "no case"]
VERSIONS = collections.defaultdict(list)
for schema in onnx.defs.get_all_schemas_with_history():
    if schema.domain in ("", "ai.onnx.ml") and schema.support_level == onnx.defs.OpSchema.SupportType.COMMON:
        VERSIONS[schema.name].append(schema)
for schemas in VERSIONS.values():
    schemas.sort(key=lambda schema: schema.since_version)


def model_of(operator, case, draw):
    """The model of a case, and what to feed it."""
    names, inputs, initializers, feeds = [], [], [], {}
    symbolic = draw.chance(0.3)
    for index, value in enumerate(case["inputs"]):
        name = "" if value is None else f"x{index}"
        names.append(name)
        if value is None:
            continue
        if index in case.get("constants", ()):
            initializers.append(numpy_helper.from_array(value, name))
            continue
        dims = [f"d{index}_{axis}" if symbolic else size for axis, size in enumerate(value.shape)]
        inputs.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), dims))
        feeds[name] = value
    while names and not names[-1]:
        names.pop()
    wanted = case.get("outputs", [True])
    outputs = [f"y{index}" if kept else "" for index, kept in enumerate(wanted)]
    domain = VERSIONS[operator][0].domain
    names = [name for index, name in enumerate(names) if index not in case.get("captured", ())]
    node = helper.make_node(operator, names, outputs, name="subject", domain=domain, **case.get("attributes", {}))
    ports = [onnx.ValueInfoProto(name=name) for name in outputs if name]
    graph = helper.make_graph([node], "g", inputs, ports, initializers)
    opsets = [helper.make_opsetid("", draw.opset)] + ([helper.make_opsetid(domain, 3)] if domain else [])
    return helper.make_model(graph, opset_imports=opsets, ir_version=10), feeds


def made(seed, number, operators):
    """A case with what ONNX Runtime makes of it; None where it takes no such model or fails on it."""
    draw = Draw(np.random.default_rng([seed, number]))
    operator = operators[number % len(operators)]
    versions = [schema.since_version for schema in VERSIONS[operator]]
    first = max(7, min(versions)) if VERSIONS[operator][0].domain == "" else 15
    gone = [schema.since_version for schema in VERSIONS[operator][-1:] if schema.deprecated]
    draw.opset = int(draw.rng.integers(first, min([NEWEST_OPSET + 1, *gone])))
    draw.schema = onnx.defs.get_schema(operator, draw.opset if VERSIONS[operator][0].domain == "" else 3,
                                       VERSIONS[operator][0].domain)
    try:
        case = RECIPES[operator](draw)
        model, feeds = model_of(operator, case, draw)
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        expected = session.run(None, feeds)
    except Exception as error:  # noqa: BLE001: a model that the reference refuses is nothing to compare
        return operator, None, " ".join(str(error).split())[:200]
    for port, value in zip(model.graph.output, expected):
        element = helper.np_dtype_to_tensor_dtype(value.dtype) if value.dtype != object else TensorProto.STRING
        port.type.CopyFrom(onnx.TypeProto(tensor_type=onnx.TypeProto.Tensor(elem_type=element)))
    return operator, (model, feeds, expected, case), None


def outcome(program, engine, case):
    """`right`, `refused`, `wrong` or `failed`, and why."""
    model, feeds, expected, drawn = case
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        onnx.save(model, path)
        try:
            ours = Gpux(program, Path(folder) / "run", engine).run(path, feeds, model)
        except Refused as error:
            named = re.search(rf"([`.]{model.graph.node[0].op_type}`|string tensors).*gpux engine install", str(error))
            return "refused" if named else "unnamed", str(error)
        except Exception as error:  # noqa: BLE001
            # A debug build stops where whole numbers wrap around.
            overflows = "with overflow" in str(error)
            return "no case" if overflows else "failed", " ".join(str(error).split())[:300]
    for index, (mine, theirs) in enumerate(zip(ours, expected)):
        theirs = np.asarray(theirs)
        relative, absolute = TOLERANCES.get(theirs.dtype.name, (0, 0))
        # Sums cancel: what is lost is relative to the numbers that were added.
        absolute *= max(largest(theirs), *(min(largest(value), 1e4) for value in drawn["inputs"] if value is not None), 1e-3)
        if why := differs(mine, theirs, relative, absolute):
            return "wrong", f"output {index}: {why}"
    return "right", None


def largest(array):
    """The largest of its numbers that is finite."""
    finite = np.abs(array[np.isfinite(array)].astype(np.float64)) if array.dtype.kind == "f" else np.zeros(0)
    return float(finite.max(initial=0))


def describe(case):
    model, feeds, _, _ = case
    node = model.graph.node[0]
    attributes = {each.name: helper.get_attribute_value(each) for each in node.attribute}
    attributes = {name: "…" if isinstance(value, (onnx.GraphProto, onnx.TensorProto)) else value
                  for name, value in attributes.items()}
    shapes = [f"{port.name} {feeds[port.name].dtype}{list(feeds[port.name].shape)}" for port in model.graph.input]
    for each in model.graph.initializer:
        array = numpy_helper.to_array(each)
        shapes.append(f"{each.name} = {array.dtype} {array.tolist() if array.size < 9 else list(array.shape)}")
    open_dims = any(dim.dim_param for port in model.graph.input for dim in port.type.tensor_type.shape.dim)
    return (f"opset {model.opset_import[0].version} {attributes} {', '.join(shapes)} -> {list(node.output)}"
            f"{' (open dimensions)' if open_dims else ''}")


def unknown(program, engine):
    """Operators without a recipe that the engine does not refuse."""
    taken = []
    for operator in sorted(set(VERSIONS) - set(RECIPES)):
        schema = VERSIONS[operator][-1]
        count = max(schema.min_input, 1)
        ports = [helper.make_tensor_value_info(f"x{index}", TensorProto.FLOAT, [2, 2]) for index in range(count)]
        node = helper.make_node(operator, [port.name for port in ports], ["y"], domain=schema.domain)
        graph = helper.make_graph([node], "g", ports, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
        opsets = [helper.make_opsetid("", NEWEST_OPSET), helper.make_opsetid("ai.onnx.ml", 3)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
        feeds = {port.name: np.ones((2, 2), np.float32) for port in ports}
        what, why = outcome(program, engine, (model, feeds, [], {"inputs": []}))
        if what != "refused":
            taken.append(f"{operator}: {what} {why or ''}")
    return taken


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--gpux", default=ROOT / "target/release/gpux", type=Path)
    arguments.add_argument("--engine", default="embedded")
    arguments.add_argument("--seed", default=1, type=int)
    arguments.add_argument("--cases", default=3000, type=int)
    arguments.add_argument("--only", default="", help="only operators whose name matches in whole")
    arguments.add_argument("--verbose", action="store_true", help="also show what was refused, and what is no case")
    arguments = arguments.parse_args()
    # What was tried is remembered by digest: nothing of that is for the user's own cache.
    cache = tempfile.TemporaryDirectory()
    if arguments.engine == "embedded":
        os.environ["GPUX_CACHE_DIR"] = cache.name
    operators = [name for name in sorted(RECIPES) if not arguments.only or re.fullmatch(arguments.only, name)]
    counts, lines, drawn = collections.defaultdict(collections.Counter), [], collections.defaultdict(set)
    compared = collections.Counter()

    def run(number):
        operator, case, reason = made(arguments.seed, number, operators)
        return operator, case, *(("no case", reason) if case is None else outcome(arguments.gpux, arguments.engine, case))

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for operator, case, what, why in pool.map(run, range(arguments.cases)):
            counts[operator][what] += 1
            compared[what] += 1
            if case is not None:
                drawn[operator] |= {each.name for each in case[0].graph.node[0].attribute}
            if what in ("wrong", "failed", "unnamed") or arguments.verbose and what != "right":
                lines.append(f"{what}: {operator}: {why}\n    {describe(case) if case else ''}")
    print(f"| operator | {' | '.join(OUTCOMES)} |\n| --- |{' --: |' * len(OUTCOMES)}")
    for operator, each in sorted(counts.items()):
        print(f"| {operator} | " + " | ".join(str(each[what]) for what in OUTCOMES) + " |")
    print("\n" + "\n".join(lines))
    attributes = {(name, attribute) for name in operators for schema in VERSIONS[name] if schema.since_version >= 7
                  for attribute in schema.attributes}
    never = sorted(f"{name}.{attribute}" for name, attribute in attributes if attribute not in drawn[name])
    if never:
        print("\nAttributes that no case had: " + ", ".join(never))
    taken = [] if arguments.only else unknown(arguments.gpux, arguments.engine)
    if taken:
        print("\nOperators without a recipe that are not refused:\n" + "\n".join(taken))
    print(f"\nseed {arguments.seed}, ONNX Runtime {onnxruntime.__version__}: "
          + ", ".join(f"{compared[what]} {what}" for what in OUTCOMES))
    if compared["wrong"] or taken:
        sys.exit(1)


if __name__ == "__main__":
    main()
