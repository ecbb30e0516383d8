"""What can go wrong. Each class is named after the kind of error that the command line and the HTTP API show."""

from __future__ import annotations

from typing import Any


class GPUXError(Exception):
    """Base of all errors of gpux. The text is that of the command line, with the place in the file where there is one.

    Attributes:
        kind: the error's name in the HTTP API.
        details: what the HTTP API tells about it: ``diagnostics``, ``field``, ``step``, ``limit`` …
    """

    def __init__(self, message: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(message, details or {})

    def __str__(self) -> str:
        return str(self.args[0])

    @property
    def kind(self) -> str:
        """The error's name in the HTTP API."""
        return type(self).__name__

    @property
    def details(self) -> dict[str, Any]:
        """What the HTTP API tells about it."""
        details: dict[str, Any] = self.args[1]
        return details

    @property
    def step(self) -> int | None:
        """The number of the step that failed, from 1."""
        return self.details.get("step")

    @property
    def limit(self) -> str | None:
        """The limit that was reached: ``memory``, ``time`` …"""
        return self.details.get("limit")


class ConfigurationError(GPUXError):
    """A gpux.yml, or an argument, that is wrong."""


class ModelLoadError(GPUXError):
    """A model that cannot be read or that its engine refuses."""


class ProviderError(GPUXError):
    """No engine or execution provider meets the request."""


class ValidationError(GPUXError):
    """A request that does not fit the inputs."""


class StepError(GPUXError):
    """A step that failed on a request, or that ran out of a limit."""
