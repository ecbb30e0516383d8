#!/usr/bin/env bash
# The unit tests of core, config and steps on arm64, under qemu's emulation of its processor. Needs cargo-zigbuild and a
# zig (`pip install cargo-zigbuild ziglang`), and Debian's packages qemu-user-static and libc6-arm64-cross.
set -euo pipefail
cd "$(dirname "$0")/.."
target=aarch64-unknown-linux-gnu
rustup target add "$target"
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64-static -L /usr/aarch64-linux-gnu"
cargo-zigbuild test --target "$target" -p gpux-core -p gpux-config -p gpux-steps --lib "$@"
