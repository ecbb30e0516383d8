#!/bin/sh
# Installs the program gpux for this user, from the archive of a release, whose checksum is checked:
#
#   curl -fsSL https://github.com/gpux/gpux/releases/latest/download/install.sh | sh
#
# GPUX_INSTALL_DIR   where the program goes [default: ~/.local/bin]
# GPUX_RELEASE       where the archives lie [default: the latest release]
set -eu

folder=${GPUX_INSTALL_DIR:-$HOME/.local/bin}
release=${GPUX_RELEASE:-https://github.com/gpux/gpux/releases/latest/download}

fail() {
    echo "install.sh: $*" >&2
    exit 1
}

case "$(uname -s) $(uname -m)" in
    "Linux x86_64") target=x86_64-unknown-linux-gnu ;;
    "Linux aarch64" | "Linux arm64") target=aarch64-unknown-linux-gnu ;;
    *) fail "there is no archive for $(uname -s) on $(uname -m); build gpux from source" ;;
esac

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fetch() {
    if command -v curl >/dev/null; then
        curl --fail --silent --show-error --location --output "$work/$1" "$release/$1" || fail "cannot fetch $release/$1"
    else
        wget --quiet --output-document "$work/$1" "$release/$1" || fail "cannot fetch $release/$1"
    fi
}

# One list names the archives with their checksums.
fetch SHA256SUMS
line=$(grep "gpux-[^ ]*-$target\.tar\.gz\$" "$work/SHA256SUMS") || fail "the release has no archive for $target"
archive=${line##* }
fetch "$archive"
(cd "$work" && echo "$line" | sha256sum --check --quiet) || fail "$archive is not the file that the release names"
tar -xzf "$work/$archive" -C "$work"
mkdir -p "$folder"
install -m 755 "$work/${archive%.tar.gz}/gpux" "$folder/gpux"
"$folder/gpux" --version
case ":$PATH:" in
    *":$folder:"*) ;;
    *) echo "add $folder to PATH" ;;
esac
