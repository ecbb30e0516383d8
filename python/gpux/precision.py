"""``precision="auto"``: chooses by measurement what models are computed in."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from gpux import _gpux
from gpux._options import PathLike, load_options


def choose_precision(
    path: PathLike, samples: Sequence[PathLike] = (), *, precision: str | None = "auto", **options: Any
) -> dict[str, Any] | None:
    """Measures every provider and precision that this machine has, in processes of their own, and remembers the fastest
    whose results stay close to ``exact``: a :class:`gpux.Pipeline` with ``precision="auto"`` uses it from now on.

    Args:
        path: a folder with a gpux.yml, such a file, the ``name`` in one, or a model (.onnx) alone.
        samples: files of requests to measure on, as ``gpux run --file`` takes them. Default: golden cases, else the
            requests of ``serving.warmup``, else made-up ones.
        precision: of all models; ``None``: as gpux.yml says.
        options: as :class:`gpux.Pipeline` takes them: ``provider``, ``engine``, ``cache`` …

    Returns:
        ``decision``, ``candidates`` (the first is what others are compared with), ``tolerance``, and whether the inputs
        were made up (``is_synthetic``); ``None`` where no model's precision is ``auto``.

    Raises:
        ConfigurationError: the gpux.yml, a sample or an argument is wrong.
        ProviderError: this machine lacks what measuring takes.
    """
    loading = load_options(precision=precision, **options)
    return _gpux.choose_precision(os.fspath(path), [os.fspath(sample) for sample in samples], loading)
