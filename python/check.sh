#!/usr/bin/env bash
# Checks the Python package: its style and types, and its tests against an installed wheel.
#
#   python/check.sh WHEEL [PYTHON]     PYTHON makes the fresh environment [default: python3]
set -euo pipefail
wheel=$(realpath "$1")
python=${2:-python3}
cd "$(dirname "$0")/.."

environment=target/python/$("$python" -c 'import sys; print(sys.implementation.cache_tag)')
rm -rf "$environment"
"$python" -m venv "$environment"
"$environment/bin/pip" install --quiet -r python/tests/requirements.txt "$wheel"

"$environment/bin/ruff" check --quiet python
"$environment/bin/ruff" format --check --quiet python
# From another folder, so that the installed package is what is checked.
tests=$PWD/python/tests
bin=$PWD/$environment/bin
cd "$environment"
bin/mypy --config-file "$tests/../pyproject.toml" -p gpux
bin/stubtest gpux._gpux
# Of the programs on PATH, the tests see neither cargo nor another gpux.
PATH=${GUEST_TOOLS:+$GUEST_TOOLS:}$bin:/usr/bin:/bin bin/pytest --quiet -p no:cacheprovider --ignore "$tests/cluster" "$tests"
