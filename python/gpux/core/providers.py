"""What runs models."""

from __future__ import annotations

from enum import Enum
from typing import Any

from gpux import _gpux
from gpux._options import load_options


class ExecutionProvider(Enum):
    """An execution provider of ONNX Runtime, by its full name; best first."""

    TENSORRT = "TensorrtExecutionProvider"
    CUDA = "CUDAExecutionProvider"
    ROCM = "ROCmExecutionProvider"
    COREML = "CoreMLExecutionProvider"
    DIRECTML = "DirectMLExecutionProvider"
    WEBGPU = "WebGpuExecutionProvider"
    OPENVINO = "OpenVINOExecutionProvider"
    CPU = "CPUExecutionProvider"


class ProviderManager:
    """The execution providers of this machine's engine.

    Args:
        options: as :class:`gpux.Pipeline` takes them: ``engine``, ``engine_library`` …
    """

    def __init__(self, **options: Any) -> None:
        self._options = load_options(**options)

    def get_available_providers(self) -> list[str]:
        """Full names of the providers that the engine offers, best first."""
        return _gpux.provider_names(self._options)

    def get_best_provider(self, preferred: str | None = None) -> ExecutionProvider:
        """The preferred provider, by full or short name, if it is offered; else the best that is.

        Raises:
            ProviderError: no provider has this name.
        """
        return ExecutionProvider(_gpux.best_provider(self._options, preferred))

    def get_provider_info(self, provider: ExecutionProvider | str) -> dict[str, Any]:
        """``provider``, ``platform``, ``available``, ``missing`` (why it is not, and what would help), ``description``.

        Raises:
            ProviderError: no provider has this name.
        """
        name = provider.value if isinstance(provider, ExecutionProvider) else provider
        return _gpux.provider_info(self._options, name)
