"""Reads gpux.yml without running it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpux import _gpux
from gpux._options import PathLike


class GPUXConfig:
    """A gpux.yml, complete: defaults and shorthands written out. Keys are attributes, also of the parts.

    ::

        config.name, config.model.source, config.runtime.gpu.backend
    """

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = dict(fields)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            value = self._fields[name]
        except KeyError:
            raise AttributeError(f"the configuration has no `{name}`; it has {', '.join(self._fields)}") from None
        return GPUXConfig(value) if isinstance(value, dict) else value

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._fields]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GPUXConfig) and self._fields == other._fields

    def __repr__(self) -> str:
        return f"GPUXConfig({self._fields!r})"

    def to_dict(self) -> dict[str, Any]:
        """The same as a dict."""
        return self._fields


class GPUXConfigParser:
    """Reads a gpux.yml and answers questions about it."""

    def __init__(self) -> None:
        self._config: _gpux.Config | None = None

    def parse_file(self, path: PathLike) -> GPUXConfig:
        """Reads and checks the file at ``path``.

        Raises:
            ConfigurationError: it is not there, or wrong; the text lists every mistake with its place.
        """
        self._config = _gpux.Config(os.fspath(path))
        fields = self._config.to_dict()
        fields["runtime"]["gpu"].setdefault("memory", None)
        return GPUXConfig(fields)

    def validate_model_path(self, project_path: PathLike) -> bool:
        """Whether the model's file is there. ``project_path`` is the folder of the gpux.yml."""
        return self.get_model_path(project_path) is not None

    def get_model_path(self, project_path: PathLike) -> Path | None:
        """The (first) model's file, if it is there."""
        return self._parsed().model_path(project_path)

    def to_dict(self) -> dict[str, Any]:
        """Everything in the file, defaults and shorthands written out."""
        return self._parsed().to_dict()

    def save(self, path: PathLike) -> None:
        """Writes a gpux.yml that says the same."""
        self._parsed().save(path)

    def _parsed(self) -> _gpux.Config:
        if self._config is None:
            raise ValueError("no file has been read; call parse_file first")
        return self._config
