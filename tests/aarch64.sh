#!/usr/bin/env bash
# The unit tests of core, config and steps on arm64, under qemu's emulation of its processor. Needs cargo-zigbuild and a
# zig (`pip install cargo-zigbuild ziglang`), and Debian's packages qemu-user-static, libc6:arm64 and libgcc-s1:arm64
# (`dpkg --add-architecture arm64`): with a root of its own (-L), qemu would open another `/` than the tests.
set -euo pipefail
cd "$(dirname "$0")/.."
target=aarch64-unknown-linux-gnu
rustup target add "$target"
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64-static"
cargo-zigbuild test --target "$target" -p gpux-core -p gpux-config -p gpux-steps --lib "$@"
