"""Overload: a pipeline that does some dozens of requests a second is offered ten times as many.

    python benches/serve/overload.py [SECONDS] [--isolation none|pipeline]

The server has one core and one worker, the generator (oha, open loop) the other core. First the capacity is
measured with as many clients as keep it busy, then ten times that is offered. Printed: what was answered
with 200 beside the capacity, latencies of the accepted and of the refused, the server's memory before and after.
Needs `taskset`, psutil, oha and the models of the peers ($PEERS_HOME, see race.py).
"""

import argparse
import collections
import csv
import io
import json
import os
import subprocess
import sys
import time
import urllib.request

import psutil
import race

TIMEOUT = 1.0
PIPELINE = f"""\
inputs:
  x: {{ type: float32, shape: [1, 1, 1, 1] }}
pipeline:
  - expand: {{ broadcast: [1, 3, 224, 224] }}
  - model
  - softmax
  - top-k: {{ k: 5 }}
serving:
  timeout: {TIMEOUT}
"""
BODY = json.dumps({"x": [[[[0.5]]]]})


def start(*pipelines, pin=(), options=()):
    command = [*pin, race.ROOT / "target/release/gpux", "serve", *pipelines, "--port", "0", "--host", "127.0.0.1",
               "--engine-library", race.library(), *options]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    for line in server.stderr:
        if "ready on http://" in line:
            return server, "http://" + line.rsplit("http://", 1)[1].strip()
    sys.exit("the server did not start")


def oha(url, *arguments):
    command = ["taskset", "-c", "1", race.HOME / "bin" / "oha", "--no-tui", "--output-format", "csv", "-m", "POST", "-T",
               "application/json", "-d", BODY, *map(str, arguments), f"{url}/predict"]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    times = collections.defaultdict(list)
    for row in csv.DictReader(io.StringIO(output)):
        times[int(row["status"])].append(float(row["request-duration"]))
    return times


def find_processes(server):
    """The process that serves, the child of the supervisor, and its workers."""
    serving = psutil.Process(server.pid).children()[0]
    return [serving, *serving.children(recursive=True)]


def memory(server):
    """MiB of all processes; what several share is counted once."""
    return sum(process.memory_full_info().pss for process in find_processes(server)) / 2**20


def percentile(times, part):
    return sorted(times)[min(int(len(times) * part), len(times) - 1)] * 1e3 if times else float("nan")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("seconds", nargs="?", type=float, default=60)
    parser.add_argument("--isolation", choices=("none", "pipeline"), default="none")
    chosen = parser.parse_args()
    seconds = chosen.seconds
    race.write("overload", "resnet18.onnx", race.SESSIONS, PIPELINE)
    pin, options = ("taskset", "-c", "0"), ("--workers", "1", "--isolation", chosen.isolation)
    server, url = start(race.RACE / "overload", pin=pin, options=options)
    try:
        oha(url, "-z", "3s", "-c", 4)
        window = 10
        capacity = len(oha(url, "-z", f"{window}s", "-c", 4)[200]) / window
        before = memory(server)
        began = time.monotonic()
        times = oha(url, "-z", f"{seconds}s", "-c", 256, "-q", int(capacity * 10))
        took = time.monotonic() - began
        accepted, refused = times.pop(200, []), [value for status in (429, 503) for value in times.pop(status, [])]
        print(f"capacity {capacity:.1f}/s; offered {int(capacity * 10)}/s for {seconds:.0f} s")
        print(f"answered {len(accepted) / took:.1f}/s: {len(accepted) / took / capacity:.0%} of the capacity")
        print(f"accepted: p50 {percentile(accepted, 0.5):.0f} ms, p99 {percentile(accepted, 0.99):.0f} ms (timeout {TIMEOUT * 1e3:.0f} ms)")
        print(f"refused {len(refused)}: p50 {percentile(refused, 0.5):.2f} ms, p99 {percentile(refused, 0.99):.2f} ms")
        print(f"others: { {status: len(rest) for status, rest in times.items()} }")
        print(f"memory {before:.0f} MiB before, {memory(server):.0f} MiB after")
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
