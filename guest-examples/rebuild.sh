#!/bin/sh
# Rebuilds the checked-in components from their sources; with --check, builds them elsewhere and
# compares what they do instead. Needs: rustup target add wasm32-unknown-unknown
set -eu
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
built=$target/wasm32-unknown-unknown/guest
into=guest-examples
[ "${1:-}" = --check ] && into=$target/rebuilt

# SIMD of 128 bits is in every engine since 2021; loops over pixels need it.
export CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUSTFLAGS="-C target-feature=+simd128"
build() { cargo build --quiet --profile guest --target wasm32-unknown-unknown --target-dir "$target" "$@"; }
gpux() { cargo run --quiet -p gpux -- "$@"; }

mkdir -p "$into/rust" "$into/hostile/wat"
build -p center-ink
gpux build "$built/center_ink.wasm" --output "$into/rust/center-ink.wasm"

# The hostile ones stay as they leave the compiler: core modules with their contract in a section.
for feature in spin-in-describe drive-model; do
    build -p hostile --features $feature
    cp "$built/hostile.wasm" "$into/hostile/$feature.wasm"
done
build -p hostile
cp "$built/hostile.wasm" "$into/hostile/hostile.wasm"
# The attacks written as text.
cargo run --quiet -p hostile-wat -- "$into/hostile/wat"

if [ "$into" != guest-examples ]; then
    logits() { gpux run tests/cases/pipelines/digits-logits.yml --allow-outside --engine embedded --file 'models/samples/*g'; }
    logits >"$into/checked-in.jsonl"
    GPUX_CENTER_INK=$(realpath "$into/rust/center-ink.wasm") logits >"$into/rebuilt.jsonl"
    cmp "$into/checked-in.jsonl" "$into/rebuilt.jsonl"
    for guest in hostile drive-model; do
        gpux inspect "guest-examples/hostile/$guest.wasm" | grep -vE 'sha256|component |size' >"$into/checked-in.txt"
        gpux inspect "$into/hostile/$guest.wasm" | grep -vE 'sha256|component |size' >"$into/rebuilt.txt"
        cmp "$into/checked-in.txt" "$into/rebuilt.txt"
    done
    for guest in guest-examples/hostile/wat/*.wasm; do
        cmp "$guest" "$into/hostile/wat/$(basename "$guest")"
    done
    echo "the checked-in components do what their sources say"
fi
