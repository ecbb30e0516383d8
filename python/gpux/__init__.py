"""Runs ONNX models and the pipelines around them.

    from gpux import GPUXRuntime, Pipeline

    runtime = GPUXRuntime("model.onnx")          # a model alone
    results = runtime.infer({"input": array})    # NumPy arrays by name

    pipeline = Pipeline("examples/text-classification")   # a folder with a gpux.yml
    results = pipeline(text="A library for reading PNG images")

Inference is native ONNX Runtime; the steps around the model are built in or sandboxed WebAssembly components. No
Python runs between the inputs and the results, and the interpreter's lock is free meanwhile.

ONNX Runtime reports usage to its makers unless ``ORT_DISABLE_TELEMETRY=1`` is set before its library is loaded.
Importing this package sets it, unless the variable is set to something else.
"""

import os as _os

_os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

from gpux import _gpux
from gpux._program import find_gpux_bin
from gpux._gpux import Port
from gpux.errors import (
    ConfigurationError,
    GPUXError,
    ModelLoadError,
    ProviderError,
    StepError,
    ValidationError,
)
from gpux.pipeline import Pipeline
from gpux.precision import choose_precision
from gpux.core.runtime import GPUXRuntime

if hasattr(_os, "register_at_fork"):
    _os.register_at_fork(after_in_child=_gpux.after_fork_in_child)

__version__: str = _gpux.__version__

__all__ = [
    "ConfigurationError",
    "GPUXError",
    "GPUXRuntime",
    "ModelLoadError",
    "Pipeline",
    "Port",
    "ProviderError",
    "StepError",
    "ValidationError",
    "__version__",
    "choose_precision",
    "find_gpux_bin",
]
