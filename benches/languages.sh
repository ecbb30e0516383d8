#!/usr/bin/env bash
# What a step in each language costs that does nothing but give what it gets: a request in a fresh
# sandbox, and with `instances: reuse`. Beside them the same step in Rust. Then how long the program
# takes to its first answer with each: with an empty cache, and again.
#
#   benches/languages.sh [RUNS]
#
# Needs npm, and `componentize-py` on the path. GPUX names a program to measure instead of the one
# built here.
set -euo pipefail
cd "$(dirname "$0")/.."

runs=${1:-2000}
if [ -z "${GPUX:-}" ]; then
    cargo build --release --quiet
    GPUX=${CARGO_TARGET_DIR:-target}/release/gpux
fi
export GPUX=$(realpath "$GPUX")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cp guest-examples/rust/pass-through.wasm "$folder/rust.wasm"
cd "$folder"

"$GPUX" new step --lang js javascript >/dev/null
cat >javascript/src/step.js <<'JS'
import { defineStep, text } from "gpux-step";

export const step = defineStep({
  summary: "gives what it gets",
  options: { type: "object", additionalProperties: false },
  configure: () => ({ inputs: { value: text() }, outputs: { value: text() } }),
  process: ({ value }) => ({ value }),
});
JS
"$GPUX" new step --lang python python >/dev/null
cat >python/app.py <<'PY'
"""The step `python`: gives what it gets."""

import gpux_step
from gpux_step import signature, text


class PassThrough(gpux_step.Step):
    summary = "gives what it gets"
    options = {"type": "object", "additionalProperties": False}

    def configure(self):
        return signature(inputs={"value": text()}, outputs={"value": text()})

    def process(self, value):
        return {"value": value}


Step = gpux_step.export(PassThrough)
PY
for language in javascript python; do
    "$GPUX" build "$language" >/dev/null
    mv "$language/$language.wasm" .
done

exec python3 - "$runs" <<'PYTHON'
import json, os, subprocess, sys, time

runs = sys.argv[1]


def pipeline(language, instances):
    name = f"{language}-{instances}.yml"
    with open(name, "w") as file:
        file.write(f"name: {language}\nversion: 1.0.0\ninputs:\n  value: {{ type: text }}\npipeline:\n")
        file.write(f"  - wasm: {{ component: ./{language}.wasm, instances: {instances}, limits: {{ memory: 128MB }} }}\n")
    return name


def gpux(*arguments):
    environment = dict(os.environ, GPUX_CACHE_DIR="cache")
    start = time.perf_counter()
    done = subprocess.run([os.environ["GPUX"], "run", *arguments], env=environment, capture_output=True, text=True, check=True)
    return time.perf_counter() - start, done.stdout


print(f"{'':12}{'fresh, p50 µs':>15}{'lowest µs':>12}{'reused, p50 µs':>16}{'first start ms':>16}{'second ms':>11}")
for language in ["rust", "javascript", "python"]:
    files = {instances: pipeline(language, instances) for instances in ["fresh", "reuse"]}
    first = gpux(files["fresh"], "--input", "text")[0]
    second = min(gpux(files["fresh"], "--input", "text")[0] for _ in range(5))
    times = {}
    for instances, file in files.items():
        told = json.loads(gpux(file, "--input", "text", "--benchmark", "--runs", runs, "--json")[1])
        times[instances] = told["total"] if "total" in told else told
    fresh, reused = times["fresh"], times["reuse"]
    print(
        f"{language:12}{fresh['p50'] * 1e3:15.1f}{fresh['min_inference_time'] * 1e3:12.1f}"
        f"{reused['p50'] * 1e3:16.1f}{first * 1e3:16.0f}{second * 1e3:11.0f}"
    )
PYTHON
