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

build -p hostile --features spin-in-describe
pack hostile guest-examples/hostile/spin-in-describe.wasm
build -p hostile
pack hostile guest-examples/hostile/hostile.wasm
# As it leaves the compiler: a core module with its contract in a custom section.
cp "$built/hostile.wasm" guest-examples/hostile/hostile.core.wasm
