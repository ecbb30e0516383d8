"""Values as Python has them, and as the contract has them."""

import json

from componentize_py_types import Err
from wit_world.imports import types as _wit

from .tensor import Tensor


class InvalidInput(Exception):
    """What the caller gave cannot be worked on: raise it, and the caller is told why."""


def from_value(value):
    if isinstance(value, _wit.Value_Tensor):
        return Tensor(value.value)
    return json.loads(value.value) if isinstance(value, _wit.Value_Json) else value.value


def to_value(given, kind="Any", variant="Value"):
    """The value of the contract for `given`, as the port's `kind` asks for."""
    if isinstance(given, Tensor):
        is_, given = "Tensor", given.handle
    elif isinstance(given, bytes | bytearray | memoryview):
        is_, given = "Bytes", bytes(given)
    else:
        is_ = "Text" if isinstance(given, str) else "Json"
    if kind not in ("Any", "Json", is_) or (kind == "Json" and is_ in ("Tensor", "Bytes")):
        raise TypeError(f"it is {_NAMES[is_]}, not {_NAMES[kind]}")
    tag = is_ if kind == "Any" else kind
    if tag == "Json":
        given = json.dumps(given, ensure_ascii=False, allow_nan=False)
    return getattr(_wit, f"{variant}_{tag}")(given)


_NAMES = {"Tensor": "a tensor", "Bytes": "bytes", "Text": "text", "Json": "JSON"}


def lent(name, given):
    """`given`, lent to a call."""
    return _wit.NamedLentValue(name, to_value(given, variant="LentValue"))


def checked(call, *arguments):
    """What `call` gives; an error of the contract becomes one of Python."""
    try:
        return call(*arguments)
    except Err as error:
        reason = InvalidInput if isinstance(error.value, _wit.Error_InvalidInput) else RuntimeError
        raise reason(error.value.value) from None


def answered(call, *arguments):
    """What a built-in step or a model answers, by name."""
    outputs = checked(call, *arguments)
    return {output.name: from_value(output.value) for output in outputs}
