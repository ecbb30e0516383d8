#!/bin/sh
# Rebuilds the checked-in components. Needs: rustup target add wasm32-unknown-unknown
set -eu
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
built=$target/wasm32-unknown-unknown/guest

build() { cargo build --quiet --profile guest --target wasm32-unknown-unknown --target-dir "$target" "$@"; }
pack() { cargo run --quiet -p gpux --example componentize -- "$built/$1.wasm" "$2"; }

build -p center-ink
pack center_ink guest-examples/rust/center-ink.wasm

# The hostile ones stay as they leave the compiler: core modules with their contract in a section.
for feature in spin-in-describe drive-model; do
    build -p hostile --features $feature
    cp "$built/hostile.wasm" guest-examples/hostile/$feature.wasm
done
build -p hostile
cp "$built/hostile.wasm" guest-examples/hostile/hostile.wasm
