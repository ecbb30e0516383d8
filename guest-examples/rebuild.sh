#!/bin/sh
# Rebuilds the checked-in components from their sources; with --check, builds them elsewhere and
# compares what they do instead. Needs: rustup target add wasm32-unknown-unknown, and for the step in
# C zig (pipx install ziglang==0.17.0). Those in JavaScript and Python are not checked in,
# they hold an interpreter: `gpux test guest-examples/js/format-output` builds and tests one.
set -eu
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
built=$target/wasm32-unknown-unknown/guest
into=guest-examples
[ "${1:-}" = --check ] && into=$target/rebuilt

# SIMD of 128 bits is in every engine since 2021; loops over pixels need it. Messages of panics name
# source files, and not where they lie on this machine.
flags="-C target-feature=+simd128"
for sources in "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*; do
    flags="$flags --remap-path-prefix=$sources=crates"
done
export CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUSTFLAGS="$flags"
build() { cargo build --quiet --profile guest --target wasm32-unknown-unknown --target-dir "$target" "$@"; }
gpux() { cargo run --quiet -p gpux-cli -- "$@"; }

mkdir -p "$into/rust" "$into/hostile/wat"
rust="center-ink greedy-decoder nms pass-through thumbnail to-floats"
for guest in $rust; do
    build -p $guest
    gpux build "$built/$(echo $guest | tr - _).wasm" --output "$into/rust/$guest.wasm"
done

# Those of whole applications lie beside them.
applications="faces music-notes page-layout speech-quality"
for guest in $applications; do
    build -p $guest
    to=examples/$guest
    [ "$into" = guest-examples ] || to=$into/rust
    gpux build "$built/$(echo $guest | tr - _).wasm" --output "$to/$guest.wasm"
done

# The hostile ones stay as they leave the compiler: core modules with their contract in a section.
for feature in spin-in-describe drive-model; do
    build -p hostile --features $feature
    cp "$built/hostile.wasm" "$into/hostile/$feature.wasm"
done
build -p hostile
cp "$built/hostile.wasm" "$into/hostile/hostile.wasm"
# The attacks written as text.
cargo run --quiet -p hostile-wat -- "$into/hostile/wat"

# What it imports decides what it must be granted: one build for each.
mkdir -p "$into/hostile-wasi"
for feature in all print-only network; do
    build -p hostile-wasi --no-default-features --features $feature
    cp "$built/hostile_wasi.wasm" "$into/hostile-wasi/$feature.wasm"
done
cargo run --quiet -p c-bindings -- --check
# zig is optional on a desk, not in CI.
if zig version >/dev/null 2>&1 || python3 -m ziglang version >/dev/null 2>&1; then
    mkdir -p "$into/c"
    gpux build guest-examples/c/threshold
    mv guest-examples/c/threshold/threshold.wasm "$into/c/threshold.wasm"
    c=built
elif [ -n "${CI:-}" ]; then
    echo "error: CI builds the step in C, but there is no zig: pipx install ziglang==0.17.0" >&2
    exit 1
else
    echo "SKIPPED: the step in C was not built: there is no zig; pipx install ziglang==0.17.0" >&2
    c=skipped
fi

if [ "$into" != guest-examples ]; then
    logits() { gpux run tests/cases/pipelines/digits-logits.yml --allow-outside --engine embedded --file 'models/samples/*g'; }
    logits >"$into/checked-in.jsonl"
    GPUX_CENTER_INK=$(realpath "$into/rust/center-ink.wasm") logits >"$into/rebuilt.jsonl"
    cmp "$into/checked-in.jsonl" "$into/rebuilt.jsonl"
    # A build against an earlier 0.1.x stays as it is.
    shown() { gpux inspect "$1" | grep -vE 'sha256|component |size' | sed 's/\(gpux:pipeline[^@]*@0\.1\)\.[0-9]*/\1/g'; }
    same() {
        shown "$1" >"$into/checked-in.txt"
        shown "$2" >"$into/rebuilt.txt"
        cmp "$into/checked-in.txt" "$into/rebuilt.txt"
    }
    for guest in hostile/hostile hostile/drive-model hostile-wasi/all hostile-wasi/print-only $(printf 'rust/%s ' $rust); do
        same "guest-examples/$guest.wasm" "$into/$guest.wasm"
    done
    for guest in $applications; do
        same "examples/$guest/$guest.wasm" "$into/rust/$guest.wasm"
    done
    if [ $c = built ]; then
        for wasm in guest-examples "$into"; do
            gpux test --component "$wasm/c/threshold.wasm" guest-examples/c/threshold/tests
        done
    fi
    for guest in guest-examples/hostile/wat/*.wasm; do
        cmp "$guest" "$into/hostile/wat/$(basename "$guest")"
    done
    echo "the checked-in components do what their sources say"
fi
