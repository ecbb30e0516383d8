#!/usr/bin/env bash
# Builds the image of deploy/Dockerfile with podman where no registry can be reached: Debian comes from a mirror of its
# packages (debootstrap), and the program from this checkout. As root.
#
#   deploy/image.sh [NAME]        (default: localhost/gpux)
#
# $GPUX is the program to put in (default: built here, profile `dist`), which must run on Debian bookworm. $MIRROR is a
# mirror of Debian.
set -euo pipefail
cd "$(dirname "$0")/.."

name=${1:-localhost/gpux}
mirror=${MIRROR:-http://deb.debian.org/debian}
debian=localhost/debian:bookworm-slim
context=target/image
runtime=(--runtime "$(command -v runc || command -v crun)" --isolation chroot)

for tool in podman debootstrap; do
    command -v $tool >/dev/null || { echo "needs $tool" >&2; exit 1; }
done

mkdir -p $context
if [ -z "${GPUX:-}" ]; then
    cargo build --locked --profile dist -p gpux-cli
    GPUX=target/dist/gpux
fi
install "$GPUX" $context/gpux
deploy/notices.sh $context/THIRD-PARTY.txt

# As docker.io/library/debian:bookworm-slim is made: no documents but copyrights, no translations, and nothing that apt
# keeps.
if ! podman image exists $debian; then
    root=$(mktemp -d)
    trap 'rm -rf "$root"' EXIT
    debootstrap --variant=minbase bookworm "$root" "$mirror"
    cat >"$root/etc/dpkg/dpkg.cfg.d/slim" <<'SLIM'
path-exclude /usr/share/doc/*
path-include /usr/share/doc/*/copyright
path-exclude /usr/share/info/*
path-exclude /usr/share/locale/*
path-exclude /usr/share/man/*
SLIM
    printf 'Dir::Cache::%s "";\n' pkgcache srcpkgcache >"$root/etc/apt/apt.conf.d/slim"
    printf 'APT::Keep-Downloaded-Packages "false";\nAcquire::Languages "none";\n' >>"$root/etc/apt/apt.conf.d/slim"
    find "$root/usr/share/doc" ! -type d ! -name copyright -delete
    rm -rf "$root"/usr/share/{info,locale,man}/* "$root"/var/lib/apt/lists/* "$root"/var/cache/apt/*.bin
    rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/cache/ldconfig/aux-cache "$root"/var/log/*.log
    tar -C "$root" --numeric-owner -c . | podman import --change 'CMD ["bash"]' - $debian
fi

# Where the network's certificates are this machine's own, pip must know them.
extra=()
if [ -n "${PIP_CERT:-}" ]; then
    printf '[global]\ncert = /etc/pip-certificates.crt\n' >$context/pip.conf
    extra=(--volume "$PWD/$context/pip.conf:/etc/pip.conf:ro" --volume "$PIP_CERT:/etc/pip-certificates.crt:ro")
fi

sed '/ AS build$/,/^$/d' deploy/Dockerfile >$context/Dockerfile
podman build "${runtime[@]}" --network host "${extra[@]}" --build-arg DEBIAN=$debian \
    --build-context "build=$context" --file $context/Dockerfile --tag "$name" .
podman image inspect --format '{{.Size}} bytes' "$name"
