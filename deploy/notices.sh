#!/bin/sh
# Writes what the licences of the crates in the program and the Python module ask for, to the file that is named: every crate with its
# licence, and the texts of licences and notices that come with them, each once. Needs cargo and the crates' sources,
# which a build has fetched.
#
#   deploy/notices.sh target/THIRD-PARTY.txt
set -eu
notices=$(realpath -m "$1")
cd "$(dirname "$0")/.."
sources=${CARGO_HOME:-$HOME/.cargo}/registry/src
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Lines like `serde v1.0.219 MIT OR Apache-2.0`; what is built from this repository has a path.
cargo tree --locked --package gpux-cli --package gpux-python --edges normal,no-proc-macro --prefix none --no-dedupe --format '{p} {l}' >"$work/tree"
grep -v ' (/' "$work/tree" | grep . | sort -u >"$work/crates"

while read -r name version _; do
    crate="$name-${version#v}"
    find "$sources"/*/"$crate" -type f ! -name '*.rs' \
        '(' -iname '*licen[cs]e*' -o -iname '*notice*' -o -iname '*copying*' -o -iname '*copyright*' \
        -o -path '*/LICENSES/*' ')' | while read -r text; do
        hash=$(sha256sum <"$text" | cut -d ' ' -f 1)
        cp "$text" "$work/$hash.text"
        echo "$name $version" >>"$work/$hash.crates"
    done
done <"$work/crates"

{
    echo "gpux contains these crates:"
    echo
    cat "$work/crates"
    for text in "$work"/*.text; do
        printf '\n================================================================================\n'
        sort -u "${text%.text}.crates"
        printf -- '--------------------------------------------------------------------------------\n'
        cat "$text"
    done
} >"$notices"
