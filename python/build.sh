#!/usr/bin/env bash
# Builds the wheel: the module and the program. Needs maturin, and for a release ziglang (pip install maturin ziglang).
#
#   python/build.sh            for others: release builds for glibc 2.28 and newer, checked for stray libraries
#   python/build.sh dev        for this machine, from the debug build, for tests
#
# The wheel comes to target/wheels.
set -euo pipefail
cd "$(dirname "$0")"

profile=${1:-release}
data=gpux.data/scripts
rm -rf gpux.data
mkdir -p $data gpux.data/data/share/doc/gpux

if [ "$profile" = dev ]; then
    cargo build --quiet
    strip --strip-debug -o $data/gpux ../target/debug/gpux
    maturin build --profile dev --strip --compatibility linux --skip-auditwheel
else
    target=$(uname -m)-unknown-linux-gnu
    rustup target add "$target"
    # By maturin, too: with cargo-zigbuild's own flags nothing of it would serve the module.
    maturin build --release --strip --zig --target "$target" --compatibility manylinux_2_28 \
        --manifest-path ../host/cli/Cargo.toml --bindings bin --out ../target/program-wheel
    cp "../target/$target/release/gpux" $data/gpux
    ../deploy/notices.sh gpux.data/data/share/doc/gpux/THIRD-PARTY.txt
    maturin build --release --strip --zig --target "$target" --compatibility manylinux_2_28
fi
