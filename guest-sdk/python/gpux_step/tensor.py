"""Tensors, which lie on the host until their elements are asked for."""

from array import array

from componentize_py_types import Err
from wit_world.imports.types import Color, ElementType, Geometry, Layout
from wit_world.imports.types import Tensor as _Handle

# The type codes of `array`. float16 and bfloat16 are given as their bits.
_CODES = {
    "boolean": "B",
    "uint8": "B",
    "int8": "b",
    "uint16": "H",
    "int16": "h",
    "uint32": "I",
    "int32": "i",
    "uint64": "Q",
    "int64": "q",
    "float16": "H",
    "bfloat16": "H",
    "float32": "f",
    "float64": "d",
}


def element_type(name):
    try:
        return ElementType[name.upper()]
    except KeyError:
        raise ValueError(f"there is no element type `{name}`; there are {', '.join(_CODES)} and text") from None


def _code(name):
    element_type(name)
    if name == "text":
        raise TypeError("a tensor of text has no bytes; use values()")
    return _CODES[name]


def _bytes(code, values):
    """The bytes of `values`: as they are where they already have that type, else converted."""
    if getattr(values, "typecode", None) == code or getattr(values, "format", None) == code:
        return values.tobytes()
    return array(code, values).tobytes()


def _checked(call, *arguments):
    """Errors of the host say what is wrong as a text."""
    try:
        return call(*arguments)
    except Err as error:
        raise ValueError(error.value) from None


class Tensor:
    """A tensor. `element` is the type of its elements, such as `"float32"`."""

    def __init__(self, handle):
        self.handle = handle

    @classmethod
    def of(cls, element, shape, values):
        """A tensor of `values` in `shape`: an array, a memoryview, or anything to iterate over."""
        if element == "text":
            return cls(_checked(_Handle.create_text, list(shape), list(values)))
        return cls(_checked(_Handle.create, element_type(element), list(shape), _bytes(_code(element), values)))

    @classmethod
    def zeros(cls, element, shape):
        """A tensor of zeros, `False` or empty texts."""
        return cls(_checked(_Handle.zeros, element_type(element), list(shape)))

    @property
    def element(self):
        return self.handle.element().name.lower()

    @property
    def shape(self):
        """Elements along each axis, outermost first."""
        return list(self.handle.shape())

    def __len__(self):
        """How many elements there are."""
        product = 1
        for size in self.shape:
            product *= size
        return product

    def values(self):
        """All elements, copied here once, as a flat memoryview; of a tensor of text, a list."""
        if self.element == "text":
            return _checked(self.handle.texts)
        return memoryview(self.handle.data()).cast(_code(self.element))

    def read(self, start, count):
        """`count` elements from the element `start` on: a step that reads in parts stays small."""
        code = _code(self.element)
        size = array(code).itemsize
        return memoryview(_checked(self.handle.read, start * size, count * size)).cast(code)

    def write(self, start, values):
        """Overwrites elements from the element `start` on."""
        code = _code(self.element)
        _checked(self.handle.write, start * array(code).itemsize, _bytes(code, values))

    @property
    def layout(self):
        """The order of the axes, `"hwc"` or `"chw"`, if it is known to be an image."""
        return _name(self.handle.layout())

    @layout.setter
    def layout(self, layout):
        self.handle.set_layout(layout and Layout[layout.upper()])

    @property
    def color(self):
        """What the channels hold: `"gray"`, `"rgb"`, `"rgba"` or `"bgr"`, if known."""
        return _name(self.handle.color())

    @color.setter
    def color(self, color):
        self.handle.set_color(color and Color[color.upper()])

    @property
    def sample_rate(self):
        """Samples a second, if it is known to be sound."""
        return self.handle.sample_rate()

    @sample_rate.setter
    def sample_rate(self, hertz):
        self.handle.set_sample_rate(hertz)

    @property
    def geometry(self) -> Geometry | None:
        """Where the source image lies in this tensor, if known."""
        return self.handle.geometry()

    @geometry.setter
    def geometry(self, geometry):
        self.handle.set_geometry(geometry)

    @property
    def transform(self) -> tuple | None:
        """The way back to the source image where it is no geometry: nine numbers, a 3×3 matrix by rows."""
        return self.handle.transform()

    @transform.setter
    def transform(self, transform):
        self.handle.set_transform(None if transform is None else tuple(map(float, transform)))

    def copy_metadata(self, source):
        """Takes over layout, color, sample rate, geometry and transform of `source`."""
        self.handle.copy_metadata(source.handle)


def _name(case):
    return case and case.name.lower()
