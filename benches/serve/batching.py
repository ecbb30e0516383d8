"""Batching beside no batching: texts of 128 tokens at 16 clients, in interleaved rounds.

    python benches/serve/batching.py [--rounds 5] [--seconds 4] [--clients 16] [--tokens 128] [--isolation none]
                                     [--gpux target/release/gpux]

The model has the shape of MiniLM and random weights; both servers have two sessions of one thread. Printed: requests a
second of each round, and the median of their ratios. Needs onnx and NumPy.
"""

import argparse
import json
import statistics
import tempfile
from pathlib import Path

import bench_models
import generator

SESSIONS = ", threads: 1, instances: 2"
BATCHING = {"alone": "", "batched": ", batching: { max_size: 8, max_delay: 2ms, tolerance: 1e-3 }"}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--isolation", choices=("none", "pipeline"), default="none")
    parser.add_argument("--gpux", type=Path, default=generator.ROOT / "target" / "release" / "gpux")
    chosen = parser.parse_args()
    tokens = list(range(1, chosen.tokens + 1))
    tensor = lambda name, data: {"name": name, "datatype": "INT64", "shape": [1, len(data)], "data": data}  # noqa: E731
    inputs = [tensor("input_ids", tokens), tensor("attention_mask", [1] * len(tokens))]
    outputs = [{"name": "tokens", "parameters": {"binary_data": True}}]
    body = json.dumps({"inputs": inputs, "outputs": outputs}).encode()
    with tempfile.TemporaryDirectory() as place:
        servers = {}
        for name, batching in BATCHING.items():
            folder = Path(place) / name
            folder.mkdir()
            bench_models.make_encoder(folder / "encoder.onnx")
            model = f"model: {{ source: ./encoder.onnx{SESSIONS}{batching} }}"
            (folder / "gpux.yml").write_text(f"name: {name}\nversion: 1.0.0\n{model}\n")
            servers[name] = generator.Server(chosen.gpux, folder, "--isolation", chosen.isolation)
        ratios = []
        with servers["alone"], servers["batched"]:
            for name, server in servers.items():
                generator.closed_loop(server, f"/v2/models/{name}/infer", body, chosen.clients, 3)
            for _ in range(chosen.rounds):
                rate = {
                    name: generator.closed_loop(server, f"/v2/models/{name}/infer", body, chosen.clients, chosen.seconds)
                    for name, server in servers.items()
                }
                ratios.append(rate["batched"] / rate["alone"])
                print(f"alone {rate['alone']:.1f}/s, batched {rate['batched']:.1f}/s: {ratios[-1]:.3f}", flush=True)
            sizes = servers["batched"].metric("gpux_batch_size_sum") / servers["batched"].metric("gpux_batch_size_count")
            print(f"median {statistics.median(ratios):.3f}; {sizes:.1f} rows in a run in the mean")


if __name__ == "__main__":
    main()
