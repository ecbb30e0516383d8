"""Overload: a pipeline is offered more than it can do, with and without batching.

    python benches/serve/overload.py [--seconds 6] [--timeouts 1 2 5] [--factors 1.2 2 3 10] [--isolation none]
                                     [--busy 0] [--gpux target/release/gpux]

The model takes about 10 ms a row. The server has one core and one worker, the generator (open loop) the other; `--busy`
adds loops that take the cores from both, of which this starts so many. The capacity without batching is measured with
closed loops of 1 and 4 clients, with batching of 4, 16 and 64; the best load of a server is its greatest rate in any
loop. Offered are multiples of the capacity without batching. Printed for each: what was answered with 200, as a part
of the best load, which part of the computed rows was not delivered, and the latencies. Needs `taskset`, onnx and NumPy.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import bench_models
import generator

PATH = "/v2/models/overload/infer"
BODY = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}]}).encode()
BATCHING = {"alone": "", "batched": ", batching: { max_size: 16, max_delay: 3ms, tolerance: 1e-3 }"}
CLIENTS = {"alone": (1, 4), "batched": (4, 16, 64)}


def percentile(times, part):
    return sorted(times)[min(int(len(times) * part), len(times) - 1)] * 1e3 if times else float("nan")


def computed(server, batching):
    """Rows of the model's runs so far."""
    time.sleep(1.5)  # an isolated pipeline reports its numbers every second
    name = "gpux_batch_size_sum" if batching == "batched" else "gpux_run_duration_seconds_count"
    return server.metric(name)


def measure(batching, timeout, chosen, folder, rates):
    model = f"model: {{ source: ./dense.onnx{BATCHING[batching]} }}"
    (folder / "gpux.yml").write_text(f"name: overload\nversion: 1.0.0\n{model}\nserving: {{ timeout: {timeout}s }}\n")
    pin = ("taskset", "-c", "0")
    options = ("--workers", "1", "--isolation", chosen.isolation)
    rows = []
    with generator.Server(chosen.gpux, folder, *options, pin=pin) as server:
        generator.closed_loop(server, PATH, BODY, 4, 2)
        loads = [generator.closed_loop(server, PATH, BODY, clients, 3) for clients in CLIENTS[batching]]
        for factor in chosen.factors:
            before = computed(server, batching)
            rate = factor * (rates or max(loads))
            times = generator.open_loop(server, PATH, BODY, rate, chosen.seconds)
            ran = computed(server, batching) - before
            accepted = times.pop(200, [])
            # What ends after the loop was computed within its time for about as long as it waits.
            delivered = len(accepted) / chosen.seconds
            refused = [took for status in (429, 503) for took in times.pop(status, [])]
            others = {status: len(some) for status, some in times.items()}
            rows.append((factor, rate, delivered, 1 - len(accepted) / max(ran, 1), accepted, refused, others))
    best = max(loads + [row[2] for row in rows])
    for factor, rate, delivered, lost, accepted, refused, others in rows:
        print(
            f"| {chosen.isolation} | {timeout} s | {batching} | {factor} | {rate:.0f} | {delivered:.1f} | {delivered / best:.2f} "
            f"| {lost:.1%} | {percentile(accepted, 0.5):.0f}, {percentile(accepted, 0.99):.0f} "
            f"| {len(refused)}: {percentile(refused, 0.5):.1f} | {others or ''} |",
            flush=True,
        )
    return max(loads), best


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--timeouts", type=float, nargs="+", default=[1, 2, 5])
    parser.add_argument("--factors", type=float, nargs="+", default=[1.2, 2, 3, 10])
    parser.add_argument("--isolation", choices=("none", "pipeline"), default="none")
    parser.add_argument("--busy", type=int, default=0)
    parser.add_argument("--gpux", type=Path, default=generator.ROOT / "target" / "release" / "gpux")
    chosen = parser.parse_args()
    os.sched_setaffinity(0, {1})
    busy = [subprocess.Popen(["taskset", "-c", "0,1", sys.executable, "-c", "while True: pass"]) for _ in range(chosen.busy)]
    print("| isolation | timeout | model | offered × | a second | answered | of the best | computed in vain | accepted p50, p99 ms | refused: p50 ms | others |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    try:
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            bench_models.make_dense(folder / "dense.onnx")
            for timeout in chosen.timeouts:
                capacity, alone = measure("alone", timeout, chosen, folder, None)
                _, batched = measure("batched", timeout, chosen, folder, capacity)
                print(f"timeout {timeout} s: best load with batching {batched:.1f}/s, without {alone:.1f}/s: {batched / alone:.2f}", flush=True)
    finally:
        for loop in busy:
            loop.kill()
            loop.wait()


if __name__ == "__main__":
    main()
