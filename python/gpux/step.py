"""Steps that you write: what ``gpux build`` and ``gpux test`` do, from Python.

A step in Python is a WebAssembly component like any other: it runs in a sandbox of its own, not in this process.
"""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

from gpux._options import PathLike
from gpux._program import find_gpux_bin
from gpux.errors import GPUXError


def build(folder: PathLike) -> str:
    """Builds the component of the step in ``folder`` from its sources.

    Returns:
        what the build printed.

    Raises:
        GPUXError: it failed; the text is what it printed.
    """
    done = _run("build", folder)
    if done.returncode != 0:
        raise _error(done)
    return done.stdout + done.stderr


def test(folder: PathLike) -> dict[str, Any]:
    """Runs the golden cases of the step or the pipeline in ``folder``; a step is built first.

    Returns:
        the report of ``gpux test --json``: ``cases``, ``passed``, ``failed`` …

    Raises:
        GPUXError: the cases could not be run. Cases that fail are part of the report.
    """
    done = _run("test", folder, "--json")
    try:
        report: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        raise _error(done) from None
    return report


test.__test__ = False  # type: ignore[attr-defined]  # it is no test of pytest's


def _run(command: str, folder: PathLike, *arguments: str) -> subprocess.CompletedProcess[str]:
    words = [find_gpux_bin(), command, os.fspath(folder), *arguments]
    return subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL)


def _error(done: subprocess.CompletedProcess[str]) -> GPUXError:
    """What the program wrote: for people, or with `--json` as an object."""
    try:
        error = json.loads(done.stderr)
        return GPUXError(error["message"], error["details"])
    except (ValueError, TypeError, KeyError):
        return GPUXError(done.stderr.strip() or done.stdout.strip())
