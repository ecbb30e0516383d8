#!/bin/sh
# Fetches the two models of DNSMOS from the package speechmos of PyPI: 9 MB, of which 1.4 MB stay. Needs pip.
set -eu
cd "$(dirname "$0")"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip download --quiet --no-deps --dest "$folder" speechmos==0.0.1.1
python3 -c '
import sys, zipfile
wheel = zipfile.ZipFile(sys.argv[1])
for name in ("sig_bak_ovr", "model_v8"):
    with open(f"{name}.onnx", "wb") as file:
        file.write(wheel.read(f"speechmos/dnsmos_models/{name}.onnx"))
' "$folder"/speechmos-*.whl
sha256sum --check --quiet <<'DIGESTS'
269fbebdb513aa23cddfbb593542ecc540284a91849ac50516870e1ac78f6edd  sig_bak_ovr.onnx
9246480c58567bc6affd4200938e77eef49468c8bc7ed3776d109c07456f6e91  model_v8.onnx
DIGESTS
echo "fetched: try \`gpux run examples/speech-quality examples/speech-quality/tests/clean/clean.flac\`"
