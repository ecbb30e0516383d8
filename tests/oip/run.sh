#!/usr/bin/env bash
# Clients of the Open Inference Protocol against a live `gpux serve`: NVIDIA's, KServe's, requests made by MLServer's
# codecs, and gRPC's client of reflection. Each has a virtual environment of its own, since they want different versions of the
# same libraries. With --perf-analyzer, NVIDIA's load generator as well. GPUX names the program; the default
# is target/debug/gpux.
set -euo pipefail
cd "$(dirname "$0")/../.."

# The environment for a file of requirements, made once for each content of it.
environment() {
    local folder
    folder=target/oip-$(sha256sum "tests/oip/$1" | cut -c1-12)
    if [ ! -e "$folder/done" ]; then
        python3 -m venv --clear "$folder"
        "$folder/bin/pip" install --quiet --disable-pip-version-check -r "tests/oip/$1"
        touch "$folder/done"
    fi
    echo "$PWD/$folder"
}

triton=$(environment requirements.txt)
kserve=$(environment requirements-kserve.txt)
mlserver=$(environment requirements-mlserver.txt)
reflection=$(environment requirements-reflection.txt)
cd tests/oip
export PYTHONDONTWRITEBYTECODE=1
"$triton/bin/python" -m unittest test_triton_http test_triton_grpc test_triton_faults
"$kserve/bin/python" -m unittest test_kserve
"$mlserver/bin/python" -m unittest test_mlserver
"$reflection/bin/python" -m unittest test_reflection
if [ "${1-}" = --perf-analyzer ]; then
    "$triton/bin/python" perf_analyzer.py
fi
