#!/usr/bin/env bash
# From the start of the process to the answer of `gpux run` on a sample photo, on both engines:
# cold (nothing cached: the component is compiled, the model tried in a child process) and warm.
# Beside it, in turns: how long the same program takes to say its version. Processor time is printed
# too: it counts the work of every core, and depends less on what else the machine does.
#
#   benches/start-up.sh [ROUNDS] [FILE]
#
# ONNX Runtime is the library that `gpux engine list` finds. GPUX names a program to measure
# instead of the one built here.
set -euo pipefail
cd "$(dirname "$0")/.."

rounds=${1:-30}
file=${2:-models/samples/seven.png}
if [ -z "${GPUX:-}" ]; then
    cargo build --release --quiet
    GPUX=${CARGO_TARGET_DIR:-target}/release/gpux
fi
export GPUX

exec python3 - "$rounds" "$file" <<'PYTHON'
import json, os, resource, statistics, subprocess, sys, tempfile, time

rounds, file = int(sys.argv[1]), sys.argv[2]
gpux = os.environ["GPUX"]


def run(*arguments, cache=None):
    """Wall and processor time in milliseconds, and what it wrote."""
    environment = dict(os.environ, GPUX_CACHE_DIR=cache) if cache else None
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    done = subprocess.run([gpux, *arguments], env=environment, capture_output=True, text=True, check=True)
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return (wall * 1e3, processor * 1e3), done.stdout


listed = json.loads(run("engine", "list", "--json")[1])
library = next((engine["library"] for engine in listed["engines"] if engine["library"] and not engine["problem"]), None)
engines = {"embedded engine": ["--engine", "embedded"]}
if library:
    engines = {"ONNX Runtime": ["--engine", "onnxruntime", "--engine-library", library]} | engines
else:
    print("no ONNX Runtime here (`gpux engine install` brings one)")

with tempfile.TemporaryDirectory() as folder:
    warm = os.path.join(folder, "warm")
    times, answers = {"gpux --version": []}, {}
    for _ in range(rounds):
        times["gpux --version"].append(run("--version")[0])
        for name, flags in engines.items():
            command = ["run", "--json", "--file", file, *flags]
            with tempfile.TemporaryDirectory(dir=folder) as cold:
                times.setdefault(f"{name}, cold", []).append(run(*command, cache=cold)[0])
            if name not in answers:
                run(*command, cache=warm)
            took, answer = run(*command, cache=warm)
            times.setdefault(f"{name}, warm", []).append(took)
            answers[name] = answer.strip()

print(f"gpux run --file {file}: process start to exit, {rounds} rounds, ms")
print(f"{'':26}{'median':>9}{'lowest':>9}{'highest':>9}{'processor, median':>20}")
for name, pairs in times.items():
    wall, processor = zip(*pairs)
    print(f"{name:26}{statistics.median(wall):9.1f}{min(wall):9.1f}{max(wall):9.1f}{statistics.median(processor):20.1f}")
for name, answer in answers.items():
    print(f"{name} answered {' '.join(answer.split())[:110]}")
PYTHON
