"""What a step takes and gives, given its options."""

from dataclasses import dataclass

from wit_world.exports import step as _wit
from wit_world.imports.types import Layout

from .tensor import element_type


@dataclass
class Port:
    """A named input or output, still without its name."""

    kind: object
    about: str = ""
    optional: bool = False

    def named(self, name):
        return _wit.Port(name, self.kind, self.optional, self.about)


@dataclass
class Signature:
    inputs: dict
    outputs: dict


def signature(*, inputs, outputs):
    """What a step takes and gives: a port for each name, in order."""
    return Signature(inputs, outputs)


def tensor(elements=None, shape=None, *, layout=None, about="", optional=False):
    """A tensor. `elements`: one type, a list, or none for any. `shape`: a number is that many, None
    any number, a text any number that is the same wherever it stands. `layout`: "hwc" or "chw"."""
    names = [elements] if isinstance(elements, str) else elements or []
    kind = _wit.TensorKind(
        [element_type(name) for name in names],
        None if shape is None else [_dimension(size) for size in shape],
        Layout[layout.upper()] if layout else None,
    )
    return Port(_wit.Kind_Tensor(kind), about, optional)


def _dimension(size):
    if size is None:
        return _wit.Dimension_Dynamic()
    return _wit.Dimension_Named(size) if isinstance(size, str) else _wit.Dimension_Fixed(size)


def text(*, about="", optional=False):
    """UTF-8 text, a `str`."""
    return Port(_wit.Kind_Text(), about, optional)


def bytes(*, about="", optional=False):
    """An encoded image, a sound file, any `bytes`."""
    return Port(_wit.Kind_Bytes(), about, optional)


def json(*, about="", optional=False):
    """JSON, as the value that it stands for."""
    return Port(_wit.Kind_Json(), about, optional)


def any(*, about="", optional=False):
    """Any value."""
    return Port(_wit.Kind_Any(), about, optional)
