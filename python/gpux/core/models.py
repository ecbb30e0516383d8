"""What a model takes and gives."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpux import _gpux
from gpux._options import PathLike

Shape = list[int | str | None]


@dataclass(frozen=True)
class InputSpec:
    """An input. ``shape`` has a name or ``None`` where a size is open, and is ``None`` where even the rank is."""

    name: str
    type: str
    shape: Shape | None
    required: bool = True
    description: str = ""


@dataclass(frozen=True)
class OutputSpec:
    """An output. ``shape`` as of :class:`InputSpec`; ``labels`` are the names of the classes, if they are known."""

    name: str
    type: str
    shape: Shape | None
    labels: list[str] | None = None
    description: str = ""


@dataclass(frozen=True)
class ModelInfo:
    """A model's description, read from its file."""

    name: str
    version: str
    format: str
    size_bytes: int
    path: Path
    inputs: list[InputSpec]
    outputs: list[OutputSpec]
    metadata: dict[str, Any] = field(default_factory=dict)

    @property
    def size_mb(self) -> float:
        """Size in megabytes (of 2^20 bytes), with the weights in other files."""
        return self.size_bytes / (1 << 20)

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON has it."""
        fields: dict[str, Any] = dict(vars(self))
        fields["path"] = str(self.path)
        fields["inputs"] = [dict(vars(spec)) for spec in self.inputs]
        fields["outputs"] = [dict(vars(spec)) for spec in self.outputs]
        return fields | {"size_mb": self.size_mb}

    def save(self, path: PathLike) -> None:
        """Writes it to a JSON file."""
        Path(path).write_text(json.dumps(self.to_dict(), indent=2) + "\n", encoding="utf-8")

    @classmethod
    def _from_dict(cls, info: dict[str, Any]) -> ModelInfo:
        return cls(
            name=info["name"],
            version=info["version"],
            format=info["format"],
            size_bytes=info["size_bytes"],
            path=Path(info["path"]),
            inputs=[InputSpec(**spec) for spec in info["inputs"]],
            outputs=[OutputSpec(**spec) for spec in info["outputs"]],
            metadata=info["metadata"],
        )


class ModelInspector:
    """Describes models without loading them."""

    def inspect(self, path: PathLike) -> ModelInfo:
        """Reads the model's file; its weights are skipped.

        Raises:
            ModelLoadError: it cannot be read, or is no ONNX model.
        """
        return ModelInfo._from_dict(_gpux.inspect_model(path))
