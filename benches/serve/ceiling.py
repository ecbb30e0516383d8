"""What ONNX Runtime itself makes of the race's text model: sentences of 30 tokens a second, without any server.

    $PEERS_HOME/base/bin/python benches/serve/ceiling.py [SECONDS [MODEL]]

MODEL is another form of it, for example in int8. By number of sessions, threads of each, and rows of a run; without
MODEL also what share of a run is products of matrices, and how near they come to the fastest product that the machine
makes. Needs the models of the peers, NumPy, ONNX and ONNX Runtime.
"""

import collections
import json
import pathlib
import sys
import tempfile
import threading
import time

import numpy as np
import onnx
import onnxruntime
import race

MODEL = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else race.HOME / "models" / "minilm6.onnx"
TOKENS = 30
# Sessions, threads of each.
WAYS = ((2, 1), (1, 2))
ROWS = (1, 2, 4, 8, 16)
# The sides of the model's products for each token: inner, outer, and how many there are.
PRODUCTS = ((384, 384, 24), (384, 1536, 6), (1536, 384, 6))


def session(model, threads, folder=None):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    # As gpux has it.
    options.add_session_config_entry("optimization.disable_specified_optimizers", "SkipLayerNormFusion")
    if folder:
        options.enable_profiling = True
        options.profile_file_prefix = str(pathlib.Path(folder) / "profile")
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def texts(rows):
    ids = np.random.default_rng(0).integers(5, 100, (rows, TOKENS))
    return {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}


def rate(sessions, threads, rows, seconds):
    """Texts a second, and processor time a text in ms."""
    open_sessions = [session(MODEL, threads) for _ in range(sessions)]
    inputs, counts = texts(rows), [0] * sessions
    for each in open_sessions:
        each.run(None, inputs)
    before, began = time.process_time(), time.perf_counter()

    def work(index):
        while time.perf_counter() < began + seconds:
            open_sessions[index].run(None, inputs)
            counts[index] += rows

    workers = [threading.Thread(target=work, args=(index,)) for index in range(sessions)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sum(counts) / (time.perf_counter() - began), (time.process_time() - before) / sum(counts) * 1e3


def by_operator(rows, runs=40):
    """Microseconds of each kind of operator for a text, on one thread."""
    with tempfile.TemporaryDirectory() as folder:
        profiled = session(MODEL, 1, folder)
        for _ in range(runs):
            profiled.run(None, texts(rows))
        events = json.loads(pathlib.Path(profiled.end_profiling()).read_text())
    spent = collections.Counter()
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith("kernel_time"):
            spent[event["args"]["op_name"]] += event["dur"] / runs / rows
    return spent


def fastest_product(rows=480, runs=200):
    """GFLOP/s of the product of `rows` rows with the model's widest weights, on one thread, at best."""
    inner, outer, _ = PRODUCTS[1]
    numbers = np.random.default_rng(0).standard_normal((inner, outer)).astype(np.float32)
    tensor = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("MatMul", ["x", "w"], ["y"])], "product", [tensor("x", 1, [rows, inner])],
        [tensor("y", 1, [rows, outer])], [onnx.numpy_helper.from_array(numbers, "w")])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9)
    alone, inputs, best = session(model.SerializeToString(), 1), {"x": numbers[:, :1].T.repeat(rows, 0)}, float("inf")
    for _ in range(runs):
        began = time.perf_counter()
        alone.run(None, inputs)
        best = min(best, time.perf_counter() - began)
    return 2 * rows * inner * outer / best / 1e9


def main():
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 2.0
    print("| sessions × threads | rows | texts a second | processor ms a text |\n| --- | --- | --- | --- |")
    for sessions, threads in WAYS:
        for rows in ROWS:
            texts_a_second, processor = rate(sessions, threads, rows, seconds)
            print(f"| {sessions} × {threads} | {rows} | {texts_a_second:.1f} | {processor:.2f} |", flush=True)
    if len(sys.argv) > 2:
        return
    work = sum(2 * inner * outer * count for inner, outer, count in PRODUCTS) * TOKENS / 1e9
    for rows in (1, 8):
        spent = by_operator(rows)
        products = spent["MatMul"]
        print(f"\n{rows} rows: {products / sum(spent.values()):.0%} of {sum(spent.values()) / 1e3:.2f} ms a text are "
              f"{work:.3f} GFLOP of products, at {work / products * 1e6:.0f} GFLOP/s")
    print(f"\nthe fastest product: {fastest_product():.0f} GFLOP/s")


if __name__ == "__main__":
    main()
