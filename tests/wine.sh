#!/usr/bin/env bash
# The Windows program under Wine reads the digits example. Needs cargo-zigbuild and a zig (`pip install cargo-zigbuild
# ziglang`), and Debian's package wine.
set -euo pipefail
cd "$(dirname "$0")/.."
target=x86_64-pc-windows-gnu
rustup target add "$target"
export WINEDEBUG=-all WINEPREFIX=$PWD/target/wine
# Wine 8 lacks a library that every Rust program needs.
mkdir -p target/wine-libraries
python3 -m ziglang cc -target x86_64-windows-gnu -shared -O1 -o target/wine-libraries/bcryptprimitives.dll \
    tests/wine/bcryptprimitives.c -ladvapi32
export WINEPATH="Z:${PWD//\//\\}\\target\\wine-libraries"
export CARGO_TARGET_X86_64_PC_WINDOWS_GNU_RUNNER=wine
cargo-zigbuild run --quiet --target "$target" -p gpux-cli -- run models/samples/seven.png --engine embedded | grep '"seven"'
