#!/usr/bin/env bash
# Makes an archive of the program for other machines, with shell completions, manual pages and licences, and for Linux
# a Debian package of the same:
#
#   deploy/dist.sh TARGET...
#
# TARGET is x86_64-unknown-linux-gnu, aarch64-unknown-linux-gnu (both for glibc 2.28 and newer),
# x86_64-pc-windows-gnu, or on a Mac aarch64-apple-darwin. Needs cargo-zigbuild and a zig (`pip install cargo-zigbuild
# ziglang`), and a gpux that runs here ($GPUX, else a debug build) for what is generated. Archives come to
# target/archives; `deploy/packages.py` makes of them what package managers need.
set -euo pipefail
cd "$(dirname "$0")/.."

version=$(cargo pkgid -p gpux-cli | sed 's/.*[#@]//')
if [ -z "${GPUX:-}" ]; then
    cargo build --quiet
    GPUX=target/debug/gpux
fi
mkdir -p target/archives

# Puts the files of an archive where Debian has them.
debian_package() {
    local from=$1 architecture root
    case $2 in x86_64) architecture=amd64 ;; aarch64) architecture=arm64 ;; esac
    root=target/archives/debian-$architecture
    rm -rf "$root"
    install -D "$from/gpux" "$root/usr/bin/gpux"
    install -D -m 644 "$from/completions/gpux.bash" "$root/usr/share/bash-completion/completions/gpux"
    install -D -m 644 "$from/completions/gpux.zsh" "$root/usr/share/zsh/vendor-completions/_gpux"
    install -D -m 644 "$from/completions/gpux.fish" "$root/usr/share/fish/vendor_completions.d/gpux.fish"
    install -d "$root/usr/share/man/man1" "$root/usr/share/doc/gpux" "$root/DEBIAN"
    for page in "$from"/man/*.1; do gzip -9n <"$page" >"$root/usr/share/man/man1/${page##*/}.gz"; done
    install -m 644 "$from/LICENSE" "$root/usr/share/doc/gpux/copyright"
    gzip -9n <"$from/THIRD-PARTY.txt" >"$root/usr/share/doc/gpux/THIRD-PARTY.txt.gz"
    gzip -9n <"$from/CHANGELOG.md" >"$root/usr/share/doc/gpux/changelog.gz"
    cat >"$root/DEBIAN/control" <<CONTROL
Package: gpux
Version: $version
Architecture: $architecture
Maintainer: gpux <gpux@users.noreply.github.com>
Depends: libc6 (>= 2.28), libgcc-s1
Section: science
Priority: optional
Homepage: https://github.com/gpux/gpux
Installed-Size: $(du -sk "$root/usr" | cut -f1)
Description: runs and serves ONNX models
 Runs ONNX models together with the code around them: a file lists built-in
 steps, WebAssembly components in sandboxes, and models on ONNX Runtime.
CONTROL
    dpkg-deb --root-owner-group --build "$root" "target/archives/gpux_${version}_$architecture.deb"
    rm -rf "$root"
}

for target in "$@"; do
    rustup target add "$target"
    case $target in
        *-linux-gnu) cargo zigbuild --release --target "$target.2.28" -p gpux-cli ;;
        *-darwin) cargo build --release --target "$target" -p gpux-cli ;;
        *) cargo zigbuild --release --target "$target" -p gpux-cli ;;
    esac
    name=gpux-$version-$target
    folder=target/archives/$name
    rm -rf "$folder"
    mkdir -p "$folder/completions"
    for shell in bash elvish fish powershell zsh; do
        "$GPUX" completions $shell > "$folder/completions/gpux.$shell"
    done
    "$GPUX" man "$folder/man"
    cp README.md CHANGELOG.md LICENSE "$folder"
    deploy/notices.sh "$folder/THIRD-PARTY.txt"
    case $target in
        *windows*)
            cp "target/$target/release/gpux.exe" "$folder"
            (cd target/archives && python3 -m zipfile -c "$name.zip" "$name")
            ;;
        *)
            cp "target/$target/release/gpux" "$folder"
            debian_package "$folder" "${target%%-*}"
            (cd target/archives && tar -czf "$name.tar.gz" "$name")
            ;;
    esac
done
