"""Runs a model alone."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from gpux import _gpux
from gpux._options import PathLike, load_options, log_warnings
from gpux.core.models import ModelInfo

if TYPE_CHECKING:
    from typing_extensions import Self


class GPUXRuntime(_gpux.Runtime):
    """A loaded ONNX model. Any number of threads may call it; the interpreter's lock is free while it runs.

    Args:
        model_path: the model's file.
        provider: execution provider (``auto``, ``cuda``, ``cpu`` …), or several with commas, tried in order.
        gpu_memory: the most that one session takes of the GPU's memory, for example ``2GB``.
        batch_size: the most rows of concurrent requests that the model runs together.
        timeout: how long one request may take: seconds, or ``500ms``, ``30s``.
        options: as :class:`gpux.Pipeline` takes them: ``engine``, ``precision``, ``strict`` …

    Raises:
        ModelLoadError: the model cannot be used.
        ProviderError: this machine lacks what was asked for.
        ConfigurationError: an argument is wrong.
    """

    def __new__(
        cls,
        model_path: PathLike,
        provider: str | None = None,
        gpu_memory: str | None = None,
        batch_size: int = 1,
        timeout: float | str = 30,
        **options: Any,
    ) -> Self:
        """Loads the model."""
        all_options = load_options(
            provider=provider, gpu_memory=gpu_memory, batch_size=batch_size, timeout=timeout, **options
        )
        self = super().__new__(cls, os.fspath(model_path), True, all_options)
        log_warnings(self)
        return self

    def benchmark(self, input_data: dict[str, Any], num_runs: int = 100, warmup_runs: int = 10) -> dict[str, float]:
        """Times ``num_runs`` runs of one request, after ``warmup_runs`` that are not timed.

        Returns:
            ``avg_inference_time``, ``min_inference_time``, ``max_inference_time``, ``p50``, ``p95`` and ``p99`` in
            milliseconds, and ``fps``, runs a second.
        """
        return super().benchmark(input_data, num_runs, warmup_runs)

    def get_model_info(self) -> ModelInfo:
        """What the model takes and gives."""
        return ModelInfo._from_dict(self.model_info() or {})

    def get_provider_info(self) -> dict[str, Any]:
        """The execution provider: ``provider``, ``platform``, ``available``, ``missing``, ``description``."""
        return self.provider_info() or {}

    def get_available_providers(self) -> list[str]:
        """Full names of the execution providers that the engine offers, best first."""
        return self.available_providers()

    def cleanup(self) -> None:
        """Frees the model once the runs under way have ended; later calls fail."""
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
