#!/bin/sh
# Fetches the three models of PaddleOCR, 32 MB, from the package rapidocr of PyPI (a wheel of 27 MB). Needs pip.
set -eu
cd "$(dirname "$0")"
mkdir -p models
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip download --quiet --no-deps --dest "$folder" rapidocr==3.10.0
python3 -c '
import sys, zipfile
wheel = zipfile.ZipFile(sys.argv[1])
for name in ("PP-OCRv6_det_small", "PP-OCRv6_rec_small", "ch_ppocr_mobile_v2.0_cls_mobile"):
    with open(f"models/{name}.onnx", "wb") as file:
        file.write(wheel.read(f"rapidocr/models/{name}.onnx"))
' "$folder"/rapidocr-*.whl
sha256sum --check --quiet <<'DIGESTS'
090f04abcd9d9a7498bc4ebf677e4cb9bdce1fe4197ddb7e529f1ef44e1ff94f  models/PP-OCRv6_det_small.onnx
6f327246b50388f3c176ae304bd95767ea6dc0c9ae92153ef8cbe210b3c14884  models/PP-OCRv6_rec_small.onnx
e47acedf663230f8863ff1ab0e64dd2d82b838fceb5957146dab185a89d6215c  models/ch_ppocr_mobile_v2.0_cls_mobile.onnx
DIGESTS
echo "fetched: try \`gpux run examples/ocr examples/ocr/tests/page/page.png\`"
