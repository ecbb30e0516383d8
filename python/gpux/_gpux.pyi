"""The native part of gpux."""

from os import PathLike
from pathlib import Path
from typing import Any, final

from typing_extensions import Self, disjoint_base

__all__ = [
    "Cancellation",
    "Config",
    "Port",
    "Runtime",
    "__version__",
    "after_fork_in_child",
    "best_provider",
    "choose_precision",
    "inspect_model",
    "provider_info",
    "provider_names",
]

__version__: str

@disjoint_base
class Runtime:
    """A loaded pipeline or model; any number of threads may run requests on it."""

    def __new__(cls, path: str | PathLike[str], is_model: bool, options: dict[str, Any]) -> Self: ...
    def infer(self, input_data: dict[str, Any], cancellation: Cancellation | None = None) -> dict[str, Any]:
        """Runs one request: ``inputs`` by name, results by name."""

    def benchmark(self, input_data: dict[str, Any], num_runs: int, warmup_runs: int) -> dict[str, float]:
        """Milliseconds of repeated runs of one request, by name."""

    @property
    def inputs(self) -> list[Port]:
        """The inputs, in order."""

    @property
    def outputs(self) -> list[Port]:
        """The outputs, in order."""

    @property
    def name(self) -> str:
        """The name in gpux.yml, ``model`` for a model alone."""

    @property
    def engine(self) -> str:
        """The engine, for people."""

    @property
    def warnings(self) -> list[str]:
        """What was noticed while loading."""

    @property
    def concurrency(self) -> int:
        """How many requests are worth running at the same time."""

    def model_info(self) -> dict[str, Any] | None:
        """What the (first) model takes and gives, as a dict."""

    def provider_info(self) -> dict[str, Any] | None:
        """The execution provider of the (first) model, as a dict."""

    def available_providers(self) -> list[str]:
        """Full names of the execution providers that the engine offers, best first."""

    def close(self) -> None:
        """Frees the models once the last run has ended."""

@final
class Cancellation:
    """Set by another thread to end a run between two steps."""

    def __new__(cls) -> Self: ...
    def cancel(self) -> None:
        """Ends the run."""

@final
class Port:
    """An input or an output."""

    @property
    def name(self) -> str: ...
    @property
    def type(self) -> str:
        """``tensor``, ``text``, ``bytes``, ``json`` or ``any``"""

    @property
    def dtype(self) -> str | None:
        """``float32`` … ; ``None`` where several are possible, or none"""

    @property
    def shape(self) -> list[int | str | None] | None:
        """Sizes, names of sizes, ``None`` where one is open; ``None`` where even the rank is."""

    @property
    def optional(self) -> bool: ...
    @property
    def description(self) -> str:
        """Its type in words, and gpux.yml's description of it."""

@final
class Config:
    """A gpux.yml that was read and checked."""

    def __new__(cls, path: str | PathLike[str]) -> Self: ...
    def to_dict(self) -> dict[str, Any]:
        """Everything in the file, defaults and shorthands written out."""

    def model_path(self, project: str | PathLike[str]) -> Path | None:
        """The (first) model's file, if it is there."""

    def save(self, path: str | PathLike[str]) -> None:
        """Writes a gpux.yml that says the same to ``path``."""

def choose_precision(path: str | PathLike[str], samples: list[str], options: dict[str, Any]) -> dict[str, Any] | None:
    """Measures the pipeline or the model at ``path`` for the models whose precision is ``auto``."""

def inspect_model(path: str | PathLike[str]) -> dict[str, Any]:
    """What the ONNX model at ``path`` takes and gives."""

def provider_names(options: dict[str, Any]) -> list[str]:
    """The full names of the execution providers that the engine of this machine offers, best first."""

def best_provider(options: dict[str, Any], preferred: str | None) -> str:
    """The full name of the preferred provider if it is offered, else of the best one."""

def provider_info(options: dict[str, Any], provider: str) -> dict[str, Any]:
    """What is known about a provider, by full or short name."""

def after_fork_in_child() -> None:
    """Called by ``os.register_at_fork``."""
