#!/usr/bin/env python3
"""Runs the ONNX project's backend test cases through the gpux program and through Python's ONNX Runtime.

Needs the packages of requirements.txt, and a build of gpux. Prints how many cases pass in both, in one or in neither,
and every case where they are not the same. Exits with 1 when Python's ONNX Runtime passes a case that gpux fails, or
when a case fails in both that `neither.txt` beside this file does not have.

With `--engine embedded`, a case may also be refused (exit code 3), and it exits with 1 when a result is wrong that
Python's ONNX Runtime gets right or refuses.

    tests/onnx/backend.py [--gpux target/release/gpux] [--engine onnxruntime] [--only REGEX] [--write] [--fixtures]

`--write` rewrites `neither.txt`; `--fixtures` rewrites `backend/`, the few cases that the tests of gpux run.
"""

import argparse
import collections
import concurrent.futures
import json
import os
import re
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from cases import ROOT, Gpux, Refused, differs, leaf, python, value_json, wide
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests

HERE = Path(__file__).resolve().parent
KINDS = ["node", "simple", "pytorch-converted", "pytorch-operator"]

NEITHER = HERE / "neither.txt"

# Some of every kind of value, each a few hundred bytes.
FIXTURES = """
    test_abs test_and2d test_argmax_default_axis_example test_bitwise_and_ui64_bcast_3v1d test_cast_FLOAT16_to_FLOAT
    test_cast_FLOAT_to_BFLOAT16 test_cast_FLOAT_to_FLOAT8E5M2 test_cast_FLOAT8E4M3FN_to_FLOAT test_cast_INT4_to_INT8
    test_cast_FLOAT_to_UINT4 test_identity_opt test_identity_sequence test_if_seq test_isinf test_loop13_seq
    test_loop16_seq_none test_lstm_defaults test_nonzero_example test_optional_get_element_sequence
    test_optional_has_element_tensor_input test_sequence_insert_at_front test_sequence_map_add_1_sequence_1_tensor
    test_split_to_sequence_1 test_string_concat test_string_split_basic test_ai_onnx_ml_label_encoder_string_int
    test_sequence_model4
""".split()

# The newest versions of the format and of the operators that ONNX Runtime 1.32 takes. The onnx package is ahead of it;
# for both runtimes alike, what its cases say of their versions is lowered to these, and nothing else is changed.
NEWEST_FORMAT, NEWEST_OPSET = 14, 27


def loaded(test):
    """The model of a case."""
    model = test.model if test.model is not None else onnx.load(Path(test.model_dir) / "model.onnx")
    model.ir_version = min(model.ir_version, NEWEST_FORMAT)
    for opset in model.opset_import:
        if opset.domain in ("", "ai.onnx"):
            opset.version = min(opset.version, NEWEST_OPSET)
    return model


def stored(path, kind):
    """A value of a test's data set."""
    content = path.read_bytes()
    if kind.HasField("sequence_type"):
        return numpy_helper.to_list(onnx.SequenceProto.FromString(content))
    if kind.HasField("optional_type"):
        return numpy_helper.to_optional(onnx.OptionalProto.FromString(content))
    return numpy_helper.to_array(onnx.TensorProto.FromString(content))


def array(value):
    """A value of a test that is held in memory: without ONNX's messages, NumPy's scalars and arrays of nothing."""
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    if isinstance(value, list):
        return [array(item) for item in value]
    value = np.asarray(value) if isinstance(value, np.generic) else value
    return None if isinstance(value, np.ndarray) and value.shape == () and value.item() is None else value


def data_sets(test, model):
    """(inputs, outputs) of each data set: lists in the order of the model's."""
    if test.data_sets is not None:
        return [(list(map(array, inputs)), list(map(array, outputs))) for inputs, outputs in test.data_sets]
    sets = []
    for folder in sorted(Path(test.model_dir).glob("test_data_set_*")):
        def values(what, ports):
            return [stored(folder / f"{what}_{index}.pb", port.type) for index, port in enumerate(ports)
                    if (folder / f"{what}_{index}.pb").exists()]
        sets.append((values("input", model.graph.input), values("output", model.graph.output)))
    return sets


def fault(run, expected, test, engine="onnxruntime"):
    """Why a run does not give what is expected; None if it does."""
    try:
        outputs = run()
    except Refused as error:
        return f"refused: {' '.join(str(error).split())[:300]}"
    except Exception as error:  # noqa: BLE001: whatever a runtime fails with is its answer
        return " ".join(str(error).split())[:300]
    for ours, theirs in zip(outputs, expected):
        theirs = theirs if isinstance(theirs, (list, dict, type(None))) else np.asarray(theirs)
        # The embedded engine's kernels for tanh and sigmoid are within a millionth, and float16 has ten bits.
        kind = theirs.dtype.name if engine == "embedded" and isinstance(theirs, np.ndarray) else ""
        if why := differs(ours, theirs, test.rtol, max(test.atol, {"float16": 2e-3, "float32": 1e-6}.get(kind, 0))):
            return f"wrong result: {why}"
    return None


def compare(test, program, engine):
    """What gpux and Python's ONNX Runtime make of a case: None, or why they fail."""
    model = loaded(test)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        if test.model_dir is None:
            onnx.save(model, path)
        else:
            path = Path(test.model_dir) / "model.onnx"
        gpux = Gpux(program, Path(folder) / "run", engine)
        try:
            session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
            refused = None
        except Exception as error:  # noqa: BLE001
            session, refused = None, " ".join(str(error).split())[:300]
        ours = theirs = None
        for inputs, outputs in data_sets(test, model):
            feeds = dict(zip((port.name for port in model.graph.input), inputs))
            ours = ours or fault(lambda: gpux.run(path, feeds, model), outputs, test, engine)
            if session is None:
                theirs = refused
            else:
                theirs = theirs or fault(lambda: python(session, feeds), outputs, test)
        return ours, theirs


def brief(reason):
    """A reason without folders, which are those of one machine, and without numbers of lines."""
    return re.sub(r"[^\s`'\"]*/(?=[^\s/])", "", re.sub(r"(\.(?:cc|h)):\d+", r"\1", reason))[:240]


def keep(test):
    """Writes a case as a model beside its inputs and outputs as JSON."""
    model = loaded(test)
    [(inputs, outputs), *_] = data_sets(test, model)
    given = {port.name: value_json(value, port.type) for port, value in zip(model.graph.input, inputs)}
    expected = {port.name: lists(value) for port, value in zip(model.graph.output, outputs)}
    folder = HERE / "backend"
    folder.mkdir(exist_ok=True)
    onnx.save(model, folder / f"{test.name}.onnx")
    (folder / f"{test.name}.json").write_text(json.dumps({"inputs": given, "outputs": expected}, ensure_ascii=False) + "\n")


def lists(value):
    """A value as the JSON that gpux prints."""
    if value is None or isinstance(value, list):
        return value if value is None else [lists(item) for item in value]
    value = wide(np.asarray(value))
    each = np.frompyfunc(lambda item: leaf(item.item() if isinstance(item, np.generic) else item), 1, 1)
    return np.asarray(each(value.astype(object)), dtype=object).tolist()


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--gpux", default=ROOT / "target/release/gpux", type=Path)
    arguments.add_argument("--engine", default="onnxruntime", choices=["onnxruntime", "embedded"])
    arguments.add_argument("--only", default="", help="only cases whose name matches")
    arguments.add_argument("--write", action="store_true", help="rewrite neither.txt")
    arguments.add_argument("--fixtures", action="store_true", help="rewrite backend/ and run nothing")
    arguments = arguments.parse_args()
    warnings.filterwarnings("ignore")
    only = re.compile(arguments.only)
    counts, differences, neither = collections.Counter(), [], {}
    embedded, wrong = collections.defaultdict(collections.Counter), []
    for kind in KINDS:
        tests = [test for test in load_model_tests(kind=kind) if only.search(test.name)]
        if arguments.fixtures:
            for test in tests:
                keep(test) if test.name in FIXTURES else None
            continue
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            run = lambda test: compare(test, arguments.gpux, arguments.engine)  # noqa: E731
            for test, (ours, theirs) in zip(tests, pool.map(run, tests)):
                print(f"{sum(counts.values())} cases", end="\r", file=sys.stderr, flush=True)
                if arguments.engine == "embedded":
                    what = embedded_outcome(ours, theirs)
                    embedded[kind][what] += 1
                    if what in ("wrong", "failed"):
                        wrong.append(f"{what}: {test.name}\n    Python: {theirs or 'passes'}\n    gpux: {ours}")
                outcome = ("passes" if theirs is None else "fails", "passes" if ours is None else "fails")
                counts[kind, outcome] += 1
                if outcome == ("fails", "fails"):
                    neither[test.name] = f"{test.name}\n    Python: {brief(theirs)}\n    gpux: {brief(ours)}"
                elif outcome != ("passes", "passes"):
                    differences.append(f"{test.name}\n    Python: {theirs or 'passes'}\n    gpux: {ours or 'passes'}")
    if arguments.fixtures:
        return
    if arguments.engine == "embedded":
        return sys.exit(embedded_report(embedded, wrong))
    print(table(counts) + "\n\nCases where they differ:\n" + "\n".join(differences or ["none"]))
    if arguments.write:
        NEITHER.write_text("\n".join(neither.values()) + "\n")
    known = {line for line in NEITHER.read_text().splitlines() if not line.startswith(" ")}
    new = [text for name, text in neither.items() if name not in known]
    print("\nCases that fail in both, and did not before:\n" + "\n".join(new) if new else "")
    worse = sum(count for (_, outcome), count in counts.items() if outcome == ("passes", "fails"))
    if worse or new:
        sys.exit(f"{worse} cases that Python's ONNX Runtime passes fail through gpux; {len(new)} new ones fail in both")


EMBEDDED = ["right", "refused", "failed", "wrong as in Python", "wrong"]


def embedded_outcome(ours, theirs):
    """What a case comes to on an engine that may refuse it."""
    if ours is None:
        return "right"
    if ours.startswith("refused"):
        return "refused"
    if not ours.startswith("wrong result"):
        return "failed"
    return "wrong as in Python" if (theirs or "").startswith("wrong result") else "wrong"


def embedded_report(counts, wrong):
    """Prints the table; the exit code."""
    print(f"onnx {onnx.__version__}, the embedded engine\n\n| kind | cases | {' | '.join(EMBEDDED)} |\n| --- |"
          + " --: |" * (len(EMBEDDED) + 1))
    counts["all"] = sum(counts.values(), collections.Counter())
    for kind, each in counts.items():
        print(f"| {kind} | {sum(each.values())} | {' | '.join(str(each[what]) for what in EMBEDDED)} |")
    print("\n" + "\n".join(wrong))
    return 1 if counts["all"]["wrong"] else 0


def table(counts):
    outcomes = [("passes", "passes"), ("fails", "fails"), ("fails", "passes"), ("passes", "fails")]
    rows = ["| kind | cases | both pass | both fail | only gpux passes | only Python passes |",
            "| --- | --: | --: | --: | --: | --: |"]
    for kind in KINDS + ["all"]:
        of = [sum(count for (each, outcome), count in counts.items() if kind in (each, "all") and outcome == wanted)
              for wanted in outcomes]
        rows.append(f"| {kind} | {sum(of)} | {' | '.join(map(str, of))} |")
    return f"onnx {onnx.__version__}, ONNX Runtime {onnxruntime.__version__}\n\n" + "\n".join(rows)


if __name__ == "__main__":
    main()
