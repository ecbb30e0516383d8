"""A pipeline as a description that travels to the workers of a cluster, and is loaded there."""

from __future__ import annotations

import os
import threading
import uuid
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpux import Pipeline

MAX_LOADED = 4
"""Pipelines that a worker process keeps loaded."""

_loaded: OrderedDict[str, Pipeline] = OrderedDict()
_lock = threading.Lock()


@dataclass(frozen=True)
class PipelineSource:
    """A pipeline's path as it was written, and as it is on the machine of the driver, with the options to load it."""

    path: str
    absolute: str
    options: Mapping[str, Any]
    token: str = field(default_factory=lambda: uuid.uuid4().hex)
    """Tells apart two uses of one path, between which its files may have changed."""

    @classmethod
    def at(cls, path: str | os.PathLike[str], options: Mapping[str, Any]) -> PipelineSource:
        """The pipeline at `path`."""
        return cls(os.fspath(path), str(Path(path).absolute()), dict(options))

    def locate(self, roots: Sequence[str] = ()) -> str:
        """Where the pipeline is on this machine: at the driver's path, else below the working folder or `roots`.

        Raises:
            FileNotFoundError: it is at none of these.
        """
        places = [Path(self.absolute), *(Path(root, self.path).absolute() for root in ("", *roots))]
        for place in places:
            if place.exists():
                return str(place)
        tried = ", ".join(dict.fromkeys(map(str, places)))
        raise FileNotFoundError(f"no pipeline on this machine at {tried}; put its folder on every machine, or ship it")

    def load(self, roots: Sequence[str] = ()) -> Pipeline:
        """A newly loaded pipeline."""
        return Pipeline(self.locate(roots), **self.options)

    def load_once(self, roots: Sequence[str] = ()) -> Pipeline:
        """The pipeline that this process has loaded already, else a newly loaded one."""
        with _lock:
            pipeline = _loaded.pop(self.token, None) or self.load(roots)
            _loaded[self.token] = pipeline
            while len(_loaded) > MAX_LOADED:
                _loaded.popitem(last=False)
        return pipeline
