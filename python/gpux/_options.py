"""Keyword arguments as the native part takes them, and as the program does."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from gpux import _gpux
from gpux._program import find_gpux_bin

PathLike: TypeAlias = str | os.PathLike[str]

logger = logging.getLogger("gpux")


def load_options(
    *,
    provider: str | None = None,
    provider_options: Mapping[str, Any] | None = None,
    provider_libraries: Sequence[str] = (),
    precision: str | None = None,
    strict: bool = False,
    engine: str = "auto",
    engine_library: PathLike | None = None,
    threads: int | None = None,
    timeout: float | str | None = None,
    gpu_memory: str | None = None,
    batch_size: int | None = None,
    allow: Sequence[str] = (),
    allow_outside: bool = False,
    env: Sequence[str] = (),
    limits: Mapping[str, str] | None = None,
    cache: PathLike | None = None,
) -> dict[str, Any]:
    """The options that ``gpux._gpux`` reads, all of them."""
    return {
        "provider": provider,
        "provider_options": None if provider_options is None else dict(provider_options),
        "provider_libraries": list(provider_libraries),
        "precision": precision,
        "strict": strict,
        "engine": engine,
        "engine_library": engine_library,
        "threads": threads,
        "timeout": timeout,
        "gpu_memory": gpu_memory,
        "batch_size": batch_size,
        "allow": list(allow),
        "allow_outside": allow_outside,
        "env": list(env),
        "limits": None if limits is None else dict(limits),
        "cache": cache,
        "program": _program(),
        "python_packages": [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))],
    }


def command_line(options: Mapping[str, Any]) -> list[str]:
    """The flags of the program that say the same."""
    flags = [f"--engine={options['engine']}"]
    single = ["provider", "precision", "engine_library", "threads"]
    flags += [f"--{name.replace('_', '-')}={options[name]}" for name in single if options[name] is not None]
    flags += [f"--provider-library={library}" for library in options["provider_libraries"]]
    flags += [f"--provider-option={name}={value}" for name, value in (options["provider_options"] or {}).items()]
    flags += [f"--allow={grant}" for grant in options["allow"]]
    flags += [f"--env={name}" for name in options["env"]]
    flags += [f"--limit={name}={value}" for name, value in (options["limits"] or {}).items()]
    flags += ["--strict"] * options["strict"] + ["--allow-outside"] * options["allow_outside"]
    return flags


def log_warnings(runtime: _gpux.Runtime) -> None:
    """Tells ``logging`` what was noticed while loading."""
    for warning in runtime.warnings:
        logger.warning("%s: %s", runtime.name, warning)


def _program() -> str | None:
    """The program that tries unknown models and prepares components in processes of their own."""
    try:
        return find_gpux_bin()
    except FileNotFoundError as error:
        logger.warning("%s; unknown models are loaded in this process", error)
        return None
