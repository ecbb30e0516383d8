"""Makes the tiny models that the tests of inference use. Needs the packages onnx and numpy."""

from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save

HERE = Path(__file__).parent


def value(name, kind, shape):
    return helper.make_tensor_value_info(name, kind, shape)


def write(name, nodes, inputs, outputs, initializers=(), opset=17, ir_version=9, **extra):
    graph = helper.make_graph(nodes, name, inputs, outputs, [numpy_helper.from_array(a, n) for n, a in initializers])
    opsets = [helper.make_opsetid("", opset)] + [helper.make_opsetid(d, 1) for d in extra.pop("domains", ())]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=ir_version, producer_name="gpux tests")
    if extra:
        helper.set_model_props(model, extra)
    save(model, HERE / f"{name}.onnx")
    return model


TYPES = {
    "bool": TensorProto.BOOL, "uint8": TensorProto.UINT8, "int8": TensorProto.INT8, "uint16": TensorProto.UINT16,
    "int16": TensorProto.INT16, "uint32": TensorProto.UINT32, "int32": TensorProto.INT32, "uint64": TensorProto.UINT64,
    "int64": TensorProto.INT64, "float16": TensorProto.FLOAT16, "bfloat16": TensorProto.BFLOAT16,
    "float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE, "string": TensorProto.STRING,
}

for name, kind in TYPES.items():
    # Reshaped, so that the value is really the engine's.
    write(f"flip-{name}", [helper.make_node("Transpose", ["x"], ["y"], perm=[1, 0])],
          [value("x", kind, ["rows", 3])], [value("y", kind, [3, "rows"])])

# A small image classifier: [N, 1, 8, 8] → [N, 3].
rng = np.random.default_rng(7)
write("conv",
      [helper.make_node("Conv", ["image", "w", "b"], ["c"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
       helper.make_node("Relu", ["c"], ["r"]),
       helper.make_node("GlobalAveragePool", ["r"], ["g"]),
       helper.make_node("Flatten", ["g"], ["scores"])],
      [value("image", TensorProto.FLOAT, ["N", 1, 8, 8])], [value("scores", TensorProto.FLOAT, ["N", 3])],
      [("w", rng.standard_normal((3, 1, 3, 3)).astype(np.float32)), ("b", np.array([0.1, -0.2, 0.3], np.float32))],
      version="2.5.0")

# A kernel without padding: a picture below 3×3 cannot be run.
write("unpadded", [helper.make_node("Conv", ["image", "w"], ["y"], kernel_shape=[3, 3])],
      [value("image", TensorProto.FLOAT, ["N", 1, "height", "width"])],
      [value("y", TensorProto.FLOAT, ["N", 1, "rows", "columns"])], [("w", np.ones((1, 1, 3, 3), np.float32))])

# One that needs more than the open axes of a trial have.
write("wide", [helper.make_node("Conv", ["image", "w"], ["y"], kernel_shape=[9, 9])],
      [value("image", TensorProto.FLOAT, ["N", 1, "height", "width"])],
      [value("y", TensorProto.FLOAT, ["N", 1, "rows", "columns"])], [("w", np.ones((1, 1, 9, 9), np.float32))])

# The mean of each colour of a picture: [N, 3, height, width] → [N, 3].
write("colors",
      [helper.make_node("GlobalAveragePool", ["image"], ["g"]), helper.make_node("Flatten", ["g"], ["means"])],
      [value("image", TensorProto.FLOAT, ["N", 3, "height", "width"])], [value("means", TensorProto.FLOAT, ["N", 3])])

# A detector of faces as its last stage exports it: boxes first, then probabilities.
write("face",
      [helper.make_node("GlobalAveragePool", ["image"], ["g"]), helper.make_node("Flatten", ["g"], ["f"]),
       helper.make_node("MatMul", ["f", "corners"], ["dense_2"]),
       helper.make_node("MatMul", ["f", "kinds"], ["k"]), helper.make_node("Softmax", ["k"], ["softmax_1"])],
      [value("image", TensorProto.FLOAT, ["N", 3, 24, 24])],
      [value("dense_2", TensorProto.FLOAT, ["N", 4]), value("softmax_1", TensorProto.FLOAT, ["N", 2])],
      [("corners", rng.standard_normal((3, 4)).astype(np.float32)), ("kinds", rng.standard_normal((3, 2)).astype(np.float32))])

# A classifier of tables: a label, and probabilities.
write("kinds",
      [helper.make_node("MatMul", ["features", "w"], ["m"]), helper.make_node("Softmax", ["m"], ["probabilities"]),
       helper.make_node("ArgMax", ["m"], ["label"], axis=1, keepdims=0)],
      [value("features", TensorProto.FLOAT, ["N", 2])],
      [value("label", TensorProto.INT64, ["N"]), value("probabilities", TensorProto.FLOAT, ["N", 3])],
      [("w", rng.standard_normal((2, 3)).astype(np.float32))])

# A detector as Ultralytics exports it: its metadata has the names of its classes, and the size of its pictures.
write("ultralytics",
      [helper.make_node("Conv", ["images", "w"], ["c"], kernel_shape=[8, 8], strides=[8, 8]),
       helper.make_node("Reshape", ["c", "shape"], ["output0"])],
      [value("images", TensorProto.FLOAT, ["batch", 3, "height", "width"])],
      [value("output0", TensorProto.FLOAT, ["batch", 6, "anchors"])],
      [("w", np.abs(rng.standard_normal((6, 3, 8, 8)) / 200).astype(np.float32)), ("shape", np.array([0, 6, -1]))],
      task="detect", imgsz="[64, 96]", names="""{0: 'cat', 1: "driver's seat"}""")

# Scores of a reader of text, whose characters stand in its metadata as PaddleOCR writes them, and names of classes.
write("reader", [helper.make_node("Identity", ["x"], ["scores"])], [value("x", TensorProto.FLOAT, ["batch", "steps", 5])],
      [value("scores", TensorProto.FLOAT, ["batch", "steps", 5])],
      character="a\nb\n\u3000", names="{0: 'none', 1: 'a', 2: \"b's\", 3: 'c', 4: 'space'}")

# Voice activity as silero-vad has it: a sound, what the one before left, and the rate.
write("voice",
      [helper.make_node("ReduceMean", ["input"], ["mean"], axes=[1]), helper.make_node("ReduceSum", ["state"], ["left"], keepdims=0),
       helper.make_node("Cast", ["sr"], ["rate"], to=TensorProto.FLOAT), helper.make_node("Div", ["left", "rate"], ["more"]),
       helper.make_node("Add", ["mean", "more"], ["output"]), helper.make_node("Identity", ["state"], ["stateN"])],
      [value("input", TensorProto.FLOAT, ["batch", "sequence"]), value("state", TensorProto.FLOAT, [2, "batch", 4]),
       value("sr", TensorProto.INT64, [])],
      [value("output", TensorProto.FLOAT, ["batch", 1]), value("stateN", TensorProto.FLOAT, [2, "batch", 4])])

# Two inputs, two outputs of different types, a dimension they share.
write("two",
      [helper.make_node("Add", ["a", "b"], ["sum"]), helper.make_node("ArgMax", ["sum"], ["best"], axis=1, keepdims=0)],
      [value("a", TensorProto.FLOAT, ["N", 4]), value("b", TensorProto.FLOAT, ["N", 4])],
      [value("sum", TensorProto.FLOAT, ["N", 4]), value("best", TensorProto.INT64, ["N"])])

# An input with a default.
write("default", [helper.make_node("Mul", ["x", "scale"], ["y"])],
      [value("x", TensorProto.FLOAT, [None, 2]), value("scale", TensorProto.FLOAT, [1])],
      [value("y", TensorProto.FLOAT, [None, 2])], [("scale", np.array([2], np.float32))])

# Open dimensions that decide the result's shape.
write("mean", [helper.make_node("ReduceMean", ["x"], ["y"], axes=[1], keepdims=0)],
      [value("x", TensorProto.FLOAT, ["batch", "words", 4])], [value("y", TensorProto.FLOAT, ["batch", 4])])

# As little work as a model can do, for measuring what is around it.
write("adds",
      [helper.make_node("Add", ["x", "x"], ["a"]), helper.make_node("Add", ["a", "x"], ["b"]),
       helper.make_node("Add", ["b", "a"], ["y"])],
      [value("x", TensorProto.FLOAT, [1, 16])], [value("y", TensorProto.FLOAT, [1, 16])])

# Sequences: one made, one that grows by a tensor, one of strings.
write("sequence", [helper.make_node("SequenceConstruct", ["x"], ["s"])], [value("x", TensorProto.FLOAT, [2])],
      [helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, [2])])

FLOATS = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, None))
STRINGS = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.STRING, None))
write("grow", [helper.make_node("SequenceInsert", ["s", "x"], ["longer"]),
               helper.make_node("SequenceLength", ["longer"], ["length"])],
      [helper.make_value_info("s", FLOATS), value("x", TensorProto.FLOAT, None)],
      [helper.make_value_info("longer", FLOATS), value("length", TensorProto.INT64, [])])
write("words", [helper.make_node("SequenceErase", ["s", "first"], ["rest"])],
      [helper.make_value_info("s", STRINGS)], [helper.make_value_info("rest", STRINGS)],
      [("first", np.array(0, np.int64))])

# Maps: as scikit-learn's classifiers give them, and as their vectorizers take them.
def map_of(key, kind):
    return helper.make_map_type_proto(key, helper.make_tensor_type_proto(kind, None))


for name, key, labels in [("zipmap", TensorProto.STRING, {"classlabels_strings": ["no", "yes", "vielleicht \u00fc"]}),
                          ("zipmap-int", TensorProto.INT64, {"classlabels_int64s": [-1, 0, 1 << 60]})]:
    write(name, [helper.make_node("ZipMap", ["x"], ["scores"], domain="ai.onnx.ml", **labels)],
          [value("x", TensorProto.FLOAT, ["N", 3])],
          [helper.make_value_info("scores", helper.make_sequence_type_proto(map_of(key, TensorProto.FLOAT)))],
          domains=["ai.onnx.ml"])
write("vectorize", [helper.make_node("DictVectorizer", ["a"], ["x"], domain="ai.onnx.ml",
                                     string_vocabulary=["one", "two"]),
                    helper.make_node("CastMap", ["b"], ["y"], domain="ai.onnx.ml", cast_to="TO_FLOAT",
                                     map_form="SPARSE", max_map=4)],
      [helper.make_value_info("a", map_of(TensorProto.STRING, TensorProto.INT64)),
       helper.make_value_info("b", map_of(TensorProto.INT64, TensorProto.STRING))],
      [value("x", TensorProto.INT64, [None, 2]), value("y", TensorProto.FLOAT, [None, 4])], domains=["ai.onnx.ml"])

# Optional values: a tensor and a sequence, as they came.
def optional(inner):
    return helper.make_optional_type_proto(inner)


FLOAT = helper.make_tensor_type_proto(TensorProto.FLOAT, None)
write("optional", [helper.make_node("Identity", ["x"], ["same"]), helper.make_node("OptionalHasElement", ["x"], ["has"]),
                   helper.make_node("Optional", [], ["none"], type=FLOAT),
                   helper.make_node("Optional", [], ["no_list"], type=FLOATS)],
      [helper.make_value_info("x", optional(FLOAT))],
      [helper.make_value_info("none", optional(FLOAT)), value("has", TensorProto.BOOL, []),
       helper.make_value_info("same", optional(FLOAT)), helper.make_value_info("no_list", optional(FLOATS))], opset=18)
write("optional-list", [helper.make_node("Identity", ["x"], ["same"])],
      [helper.make_value_info("x", optional(FLOATS))], [helper.make_value_info("same", optional(FLOATS))], opset=18)

# Elements that take less than a byte, and floats of eight bits: negated.
NARROW = {"int2": 25, "int4": 21, "uint2": 25, "uint4": 21, "float8e4m3fn": 21, "float8e4m3fnuz": 21, "float8e5m2": 21,
          "float8e5m2fnuz": 21, "float8e8m0": 24}
for name, opset in NARROW.items():
    kind = getattr(TensorProto, name.upper())
    saturate = {"saturate": 0} if name.startswith(("float8e4", "float8e5")) else {}
    write(f"twice-{name}", [helper.make_node("Cast", ["x"], ["wide"], to=TensorProto.FLOAT),
                            helper.make_node("Add", ["wide", "wide"], ["sum"]),
                            helper.make_node("Cast", ["sum"], ["y"], to=kind, **saturate)],
          [value("x", kind, ["N"])], [value("y", kind, ["N"])], opset=opset, ir_version=11)

# Values that gpux does not carry.
write("complex", [helper.make_node("Identity", ["x"], ["y"])], [value("x", TensorProto.COMPLEX64, [2])],
      [value("y", TensorProto.COMPLEX64, [2])])

# An operator that the embedded engine has not.
write("det", [helper.make_node("Det", ["x"], ["y"])], [value("x", TensorProto.FLOAT, [2, 2])],
      [value("y", TensorProto.FLOAT, [])])

# A use of an operator that the embedded engine has not: a shape that is known only at run time.
write("fill", [helper.make_node("ConstantOfShape", ["shape"], ["y"], name="filled")],
      [value("shape", TensorProto.INT64, [2])], [value("y", TensorProto.FLOAT, ["a", "b"])])

# Takes as many mebibytes as `n` says, and gives one number.
write("mebibytes",
      [helper.make_node("Concat", ["n", "row"], ["shape"], axis=0),
       helper.make_node("ConstantOfShape", ["shape"], ["big"]),
       helper.make_node("ReduceMax", ["big"], ["largest"], keepdims=0)],
      [value("n", TensorProto.INT64, [1])], [value("largest", TensorProto.FLOAT, [])],
      [("row", np.array([1 << 18], np.int64))])

# Needs a locale of the system.
write("lowercase", [helper.make_node("StringNormalizer", ["text"], ["lower"], case_change_action="LOWER",
                                     locale="en_US.UTF-8")],
      [value("text", TensorProto.STRING, ["N"])], [value("lower", TensorProto.STRING, ["N"])])

# Nothing produces `missing`.
write("dangling", [helper.make_node("Add", ["x", "missing"], ["y"])], [value("x", TensorProto.FLOAT, [2])],
      [value("y", TensorProto.FLOAT, [2])])

# Fails when run: an index beyond the end.
write("gather", [helper.make_node("Gather", ["table", "index"], ["y"], axis=0)],
      [value("index", TensorProto.INT64, ["N"])], [value("y", TensorProto.FLOAT, ["N"])],
      [("table", np.array([10, 20, 30], np.float32))])

# The least int64 divided by -1 ends the process: the processor traps.
write("divide", [helper.make_node("Div", ["a", "b"], ["y"])],
      [value("a", TensorProto.INT64, ["N"]), value("b", TensorProto.INT64, ["N"])],
      [value("y", TensorProto.INT64, ["N"])])

# Outputs whose shapes are not the declared ones, as exporters of trees write them: the labels are [rows], the scores [rows, 2].
write("misdeclared", [helper.make_node("ArgMax", ["x"], ["label"], axis=1, keepdims=0),
                      helper.make_node("Identity", ["x"], ["scores"])],
      [value("x", TensorProto.FLOAT, ["rows", 2])],
      [value("label", TensorProto.INT64, [1]), value("scores", TensorProto.FLOAT, ["rows"])])

# Loops: one turn adds 1 to x. `loop` makes as many turns as its input says, `endless` never stops.
def turn():
    return helper.make_graph(
        [helper.make_node("Identity", ["on"], ["still_on"]), helper.make_node("Add", ["before", "one"], ["after"])],
        "turn", [value("turn", TensorProto.INT64, []), value("on", TensorProto.BOOL, []),
                 value("before", TensorProto.FLOAT, [1])],
        [value("still_on", TensorProto.BOOL, []), value("after", TensorProto.FLOAT, [1])],
        [numpy_helper.from_array(np.array([1], np.float32), "one")])


write("loop", [helper.make_node("Loop", ["turns", "", "x"], ["y"], body=turn())],
      [value("turns", TensorProto.INT64, []), value("x", TensorProto.FLOAT, [1])], [value("y", TensorProto.FLOAT, [1])])
write("endless", [helper.make_node("Loop", ["", "forever", "x"], ["y"], body=turn())],
      [value("x", TensorProto.FLOAT, [1])], [value("y", TensorProto.FLOAT, [1])],
      [("forever", np.array(True))])

# Takes 2 GiB at once when it is run.
write("greedy", [helper.make_node("Expand", ["x", "shape"], ["e"]),
                 helper.make_node("ReduceSum", ["e"], ["y"], keepdims=0)],
      [value("x", TensorProto.FLOAT, [1])], [value("y", TensorProto.FLOAT, [])],
      [("shape", np.array([1 << 29], np.int64))])

# Weights beside the model.
def beside(location, length=16):
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    for key, text in {"location": location, "offset": "0", "length": str(length)}.items():
        tensor.external_data.add(key=key, value=text)
    return tensor


def external(name, location, length=16):
    tensor = beside(location, length)
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], name,
                              [value("x", TensorProto.FLOAT, [4])], [value("y", TensorProto.FLOAT, [4])], [tensor])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    (HERE / f"{name}.onnx").write_bytes(model.SerializeToString())

(HERE / "weights.bin").write_bytes(np.array([1, 2, 3, 4], np.float32).tobytes())
external("external", "weights.bin")
external("external-outside", "../../Cargo.toml")
external("external-absolute", "/etc/passwd")
external("external-none", "nowhere.bin")
external("external-short", "weights.bin", length=12)


# Weights beside the model that belong to the graphs of a node.
def branch(operator):
    return helper.make_graph([helper.make_node(operator, ["x", "w"], ["o"])], operator, [],
                             [value("o", TensorProto.FLOAT, [4])], [beside("weights.bin")])


write("external-branch",
      [helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0), helper.make_node("Greater", ["sum", "zero"], ["is"]),
       helper.make_node("If", ["is"], ["y"], then_branch=branch("Add"), else_branch=branch("Mul"))],
      [value("x", TensorProto.FLOAT, [4])], [value("y", TensorProto.FLOAT, [4])], [("zero", np.float32(0))])

# Rows that look at each other: requests must not run together.
write("center",
      [helper.make_node("ReduceMean", ["x"], ["mean"], axes=[0], keepdims=1),
       helper.make_node("Sub", ["x", "mean"], ["y"])],
      [value("x", TensorProto.FLOAT, ["N", 4])], [value("y", TensorProto.FLOAT, ["N", 4])])

# Rows that look at each other only where one has a 7: as many as the most of any row are added to each.
write("sevens",
      [helper.make_node("Equal", ["x", "seven"], ["is"]), helper.make_node("Cast", ["is"], ["one"], to=TensorProto.FLOAT),
       helper.make_node("ReduceSum", ["one", "axis"], ["count"], keepdims=1),
       helper.make_node("ReduceMax", ["count"], ["most"], axes=[0], keepdims=1),
       helper.make_node("Cast", ["x"], ["f"], to=TensorProto.FLOAT), helper.make_node("Add", ["f", "most"], ["y"])],
      [value("x", TensorProto.INT32, ["N", 64])], [value("y", TensorProto.FLOAT, ["N", 64])],
      [("seven", np.array(7, np.int32)), ("axis", np.array([1]))])

# Logarithms, which ONNX Runtime rounds otherwise behind the last whole vector of a run's numbers.
write("log", [helper.make_node("Log", ["x"], ["y"], name="last")],
      [value("x", TensorProto.FLOAT, ["N", 3])], [value("y", TensorProto.FLOAT, ["N", 3])])

# A sum of 100 trees of one decision each, which several threads add in another order than one.
trees, leaf = 100, rng.standard_normal(200)
write("forest", [helper.make_node(
    "TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", n_targets=2,
    nodes_treeids=[t for t in range(trees) for _ in range(3)], nodes_nodeids=[0, 1, 2] * trees,
    nodes_featureids=[t % 4 if n == 0 else 0 for t in range(trees) for n in range(3)],
    nodes_values=[float(v) if n == 0 else 0.0 for v in rng.uniform(0, 1, trees) for n in range(3)],
    nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"] * trees, nodes_truenodeids=[1, 0, 0] * trees,
    nodes_falsenodeids=[2, 0, 0] * trees, nodes_missing_value_tracks_true=[0] * 3 * trees,
    target_treeids=[t for t in range(trees) for _ in range(2)], target_nodeids=[1, 2] * trees,
    target_ids=[0, 1] * trees, target_weights=[float(v) for v in leaf])],
      [value("x", TensorProto.FLOAT, ["N", 4])], [value("y", TensorProto.FLOAT, ["N", 2])], domains=["ai.onnx.ml"])

# An attribute that the embedded engine passes over.
write("backwards", [helper.make_node("RNN", ["x", "w", "r"], ["", "y"], name="back", direction="reverse", hidden_size=1)],
      [value("x", TensorProto.FLOAT, [1, 1, 1])], [value("y", TensorProto.FLOAT, [1, 1, 1])],
      [("w", np.ones((1, 1, 1), np.float32)), ("r", np.ones((1, 1, 1), np.float32))])

# Branches that give different ranks, which the embedded engine finds out only when it knows the shape.
RANKS = [helper.make_graph([helper.make_node("Squeeze", ["x", "axis"], ["a"])], "then", [], [value("a", TensorProto.FLOAT, None)]),
         helper.make_graph([helper.make_node("Identity", ["x"], ["b"])], "else", [], [value("b", TensorProto.FLOAT, None)])]
write("ranks",
      [helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0), helper.make_node("Greater", ["sum", "zero"], ["more"]),
       helper.make_node("If", ["more"], ["y"], name="choice", then_branch=RANKS[0], else_branch=RANKS[1])],
      [value("x", TensorProto.FLOAT, [1, "n"])], [value("y", TensorProto.FLOAT, None)],
      [("zero", np.array(0, np.float32)), ("axis", np.array([0]))])


def embedding(name, masked):
    """Tokens as vectors, and their mean: over those that the mask counts, or over all."""
    mean = [helper.make_node("ReduceSum", ["counted", "one"], ["sum"], keepdims=0),
            helper.make_node("ReduceSum", ["column", "one"], ["count"], keepdims=0),
            helper.make_node("Div", ["sum", "count"], ["mean"])]
    if not masked:
        mean = [helper.make_node("ReduceMean", ["tokens"], ["mean"], axes=[1], keepdims=0)]
    text = ["batch", "length"]
    write(name,
          [helper.make_node("Gather", ["table", "input_ids"], ["tokens"]),
           helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
           helper.make_node("Unsqueeze", ["mask", "two"], ["column"]),
           helper.make_node("Mul", ["tokens", "column"], ["counted"]), *mean],
          [value("input_ids", TensorProto.INT64, text), value("attention_mask", TensorProto.INT64, text)],
          [value("tokens", TensorProto.FLOAT, [*text, 4]), value("mean", TensorProto.FLOAT, ["batch", 4])],
          [("table", np.random.default_rng(3).standard_normal((16, 4)).astype(np.float32)),
           ("one", np.array([1])), ("two", np.array([2]))])


embedding("embedding", masked=True)
embedding("unmasked", masked=False)

# One kernel that takes as long as its input is large.
write("square", [helper.make_node("MatMul", ["x", "x"], ["y"])],
      [value("x", TensorProto.FLOAT, ["n", "n"])], [value("y", TensorProto.FLOAT, ["n", "n"])])

# Names of dimensions that only say that the size is unknown, as exporters write them: axes of one such name differ.
PLACEHOLDERS = ["?", "None", "-1", "unk__7", "dynamic", " "]
placeholders = write(
    "placeholders",
    [node for index in range(len(PLACEHOLDERS)) for node in (
        helper.make_node("Relu", [f"x{index}"], [f"r{index}"]),
        helper.make_node("Transpose", [f"r{index}"], [f"y{index}"], perm=[1, 0]))],
    [value(f"x{index}", TensorProto.FLOAT, [name, name]) for index, name in enumerate(PLACEHOLDERS)],
    [value(f"y{index}", TensorProto.FLOAT, [name, name]) for index, name in enumerate(PLACEHOLDERS)])
placeholders.graph.value_info.extend(
    value(f"r{index}", TensorProto.FLOAT, [name, name]) for index, name in enumerate(PLACEHOLDERS))
save(placeholders, HERE / "placeholders.onnx")

# Windows of 3×3 that a picture must hold.
write("pool", [helper.make_node("MaxPool", ["image"], ["y"], kernel_shape=[3, 3])],
      [value("image", TensorProto.FLOAT, ["N", 1, "height", "width"])],
      [value("y", TensorProto.FLOAT, ["N", 1, "rows", "columns"])])

# An output that is an input, one that is a weight, and one that a node gives.
write("passthrough", [helper.make_node("Mul", ["x", "two"], ["y"])],
      [value("x", TensorProto.FLOAT, ["N"])],
      [value("y", TensorProto.FLOAT, ["N"]), value("x", TensorProto.FLOAT, ["N"]), value("two", TensorProto.FLOAT, [1])],
      [("two", np.array([2], np.float32))])
write("nodeless", [], [value("x", TensorProto.FLOAT, ["N"])], [value("x", TensorProto.FLOAT, ["N"])])

# The same as `default`, in a version of the format in which every weight stands among the inputs.
write("listed", [helper.make_node("Mul", ["x", "scale"], ["y"])],
      [value("x", TensorProto.FLOAT, [None, 2]), value("scale", TensorProto.FLOAT, [1])],
      [value("y", TensorProto.FLOAT, [None, 2])], [("scale", np.array([2], np.float32))], opset=8, ir_version=3)

# Every size open, and a convolution that takes 3 channels.
write("channels", [helper.make_node("Conv", ["image", "w"], ["y"], kernel_shape=[1, 1])],
      [value("image", TensorProto.FLOAT, ["N", "channels", "height", "width"])],
      [value("y", TensorProto.FLOAT, ["N", 1, "height", "width"])], [("w", np.ones((1, 3, 1, 1), np.float32))])

# An operator that no engine has, and one that ONNX Runtime has no kernel of on the CPU.
write("custom", [helper.make_node("Tokenize", ["x"], ["y"], domain="com.example")],
      [value("x", TensorProto.FLOAT, ["N"])], [value("y", TensorProto.FLOAT, ["N"])], domains=["com.example"])
write("matmul-bfloat16", [helper.make_node("MatMul", ["x", "x"], ["y"])],
      [value("x", TensorProto.BFLOAT16, [2, 2])], [value("y", TensorProto.BFLOAT16, [2, 2])])

# Shapes of values in between, with the names of the model's own dimensions, as exporters write them.
inner = write("inner-shapes",
              [helper.make_node("Conv", ["image", "w"], ["c"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
               helper.make_node("Relu", ["c"], ["y"])],
              [value("image", TensorProto.FLOAT, ["batch", 1, "height", "width"])],
              [value("y", TensorProto.FLOAT, ["batch", 1, "rows", "columns"])], [("w", np.ones((1, 1, 3, 3), np.float32))])
inner.graph.value_info.append(
    value("c", TensorProto.FLOAT, ["batch", 1, "floor(height/2 - 1/2) + 1", "floor(width/2 - 1/2) + 1"]))
save(inner, HERE / "inner-shapes.onnx")

# A convolution over as many numbers as are not 0: no shape of an input tells how many.
write("counted",
      [helper.make_node("NonZero", ["x"], ["places"]), helper.make_node("Cast", ["places"], ["f"], to=TensorProto.FLOAT),
       helper.make_node("Unsqueeze", ["f", "zero"], ["row"]), helper.make_node("Conv", ["row", "w"], ["y"], name="sum")],
      [value("x", TensorProto.FLOAT, ["N"])], [value("y", TensorProto.FLOAT, None)],
      [("zero", np.array([0])), ("w", np.ones((1, 1, 3), np.float32))])
