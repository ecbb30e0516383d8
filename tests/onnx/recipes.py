"""For each operator, how a case is drawn: inputs, attributes, which inputs are constants of the model."""

import numpy as np
from onnx import TensorProto, helper

FLOATS = ["float32", "float16", "float64"]
SPECIAL = [np.inf, -np.inf, np.nan, 0.0, -0.0, 1e30, -1e30, 1e-30, 200.0, -200.0, 88.0, -104.0]


class Draw:
    """A source of random cases: `opset` and `schema` are those of the case."""

    def __init__(self, rng):
        self.rng, self.opset, self.schema = rng, 0, None

    def chance(self, probability):
        return bool(self.rng.random() < probability)

    def one(self, *items):
        return items[int(self.rng.integers(len(items)))]

    def number(self, low, high):
        """A whole number, both ends included."""
        return int(self.rng.integers(low, high + 1))

    def real(self, low=-2.0, high=2.0):
        return float(np.float32(self.rng.uniform(low, high)))

    def shape(self, least=0, most=4, largest=5):
        sizes = [self.number(1, largest) for _ in range(self.number(least, most))]
        if sizes and self.chance(0.04):
            sizes[self.number(0, len(sizes) - 1)] = 0
        return tuple(sizes)

    def part(self, shape):
        """A shape that broadcasts to this one."""
        cut = shape[self.number(0, len(shape)):]
        return tuple(1 if self.chance(0.3) else size for size in cut)

    def element(self, name="T"):
        """An element type that the operator takes; float32 most often."""
        kinds = next((set(each.allowed_type_strs) for each in self.schema.type_constraints
                      if each.type_param_str == name), {"tensor(float)"})
        names = {"float": "float32", "double": "float64"}
        plain = [names.get(kind[7:-1], kind[7:-1]) for kind in sorted(kinds) if kind.startswith("tensor(")]
        plain = [kind for kind in plain if kind not in ("string", "bfloat16") and hasattr(np, kind.replace("bool", "bool_"))
                 and "complex" not in kind]
        if "float32" in plain and self.chance(0.6):
            return "float32"
        return self.one(*plain) if plain else "float32"

    def values(self, shape, element="float32", special=0.3, scale=None):
        """Numbers of usual sizes; in some cases infinities, NaN and huge ones are among them."""
        if element == "bool":
            return np.asarray(self.rng.random(shape) < 0.5)
        if element.startswith(("int", "uint")):
            low = 0 if element.startswith("u") else -10
            array = self.rng.integers(low, 11, shape).astype(element)
            if self.chance(special / 2):
                info = np.iinfo(element)
                extreme = self.rng.choice(np.array([info.min, info.max, info.max // 2], element), shape)
                array = np.where(self.rng.random(shape) < 0.3, extreme, array)
            return np.asarray(array, element)
        scale = scale or self.one(0.1, 1.0, 1.0, 10.0)
        array = self.rng.normal(0, scale, shape)
        if self.chance(0.2):
            array = np.round(array * 2) / 2
        if self.chance(0.04):
            array = np.full(shape, self.one(0.0, 1.0, -1.0))
        if self.chance(special):
            array = np.where(self.rng.random(shape) < 0.3, self.rng.choice(SPECIAL, shape), array)
        with np.errstate(over="ignore"):
            return np.asarray(array, element)

    def positive(self, shape, element="float32"):
        return np.asarray(self.rng.uniform(0.1, 2.0, shape), element)

    def axis(self, rank, more=0):
        """An axis of a tensor, from either end."""
        return self.number(-rank - more, rank - 1 + more) if rank + more else 0

    def axes(self, rank):
        chosen = [int(axis) for axis in np.flatnonzero(self.rng.random(rank) < 0.5)]
        return [axis - rank if self.chance(0.3) else axis for axis in chosen]

    def constants(self, *indices, chance=0.85):
        return {index for index in indices if self.chance(chance)}


def unary(special=0.3, least=0):
    def recipe(d):
        parameter = d.schema.inputs[0].type_str
        return {"inputs": [d.values(d.shape(least), d.element(parameter) if not parameter.startswith("tensor") else "bool"
                                    if parameter == "tensor(bool)" else "float32", special)]}
    return recipe


def domain(low, high, special=0.2):
    """A function that is defined between two numbers only."""
    def recipe(d):
        array = np.asarray(d.rng.uniform(low, high, d.shape()), d.element())
        return {"inputs": [array]}
    return recipe


def activation(**ranges):
    def recipe(d):
        attributes = {name: d.real(*limits) for name, limits in ranges.items() if d.chance(0.7)}
        return {"inputs": [d.values(d.shape(), d.element())], "attributes": attributes}
    return recipe


def binary(special=0.3, second=None):
    def recipe(d):
        parameter = d.schema.inputs[0].type_str
        element = "bool" if parameter == "tensor(bool)" else d.element(parameter)
        shape = d.shape()
        shapes = [shape, d.part(shape)]
        if d.chance(0.5):
            shapes.reverse()
        arrays = [d.values(each, element, special) for each in shapes]
        if second:
            arrays[1] = second(d, arrays[1])
        return {"inputs": arrays, "constants": d.constants(d.number(0, 1), chance=0.4)}
    return recipe


def nonzero(d, array):
    return np.where(array == 0, np.ones((), array.dtype), array)


def small(d, array):
    return np.asarray(np.clip(np.nan_to_num(array.astype(np.float64)), 0, 3), array.dtype)


def variadic(d):
    element, shape = d.element(), d.shape()
    arrays = [d.values(shape if index == 0 else d.part(shape), element) for index in range(d.number(1, 4))]
    return {"inputs": arrays, "constants": d.constants(0, chance=0.1)}


def reduction(special=0.3, positive=False, nan=True):
    """Without NaN where ONNX Runtime's own result depends on the shape."""
    def recipe(d):
        element, shape = d.element(), d.shape(0, 4)
        data = d.positive(shape, element) if positive and element in FLOATS else d.values(shape, element, special)
        data = data if nan or data.dtype.kind != "f" else np.where(np.isnan(data), 1, data).astype(data.dtype)
        if element in ("int64", "uint64"):
            # Of larger numbers ONNX Runtime's own sum is rounded.
            data = np.where(np.abs(data.astype(np.float64)) > 2**40, 7, data).astype(element)
        attributes = {} if d.chance(0.3) else {"keepdims": d.number(0, 1)}
        moved = d.opset >= (13 if d.schema.name == "ReduceSum" else 18)
        axes = d.axes(len(shape)) if d.chance(0.8) else None
        if axes and 0 in shape:
            # Of empty tensors ONNX Runtime passes over axes that count from the end, before they were an input.
            axes = [axis % len(shape) for axis in axes]
        if not moved:
            if axes:
                attributes["axes"] = axes
            return {"inputs": [data], "attributes": attributes}
        if d.chance(0.3):
            attributes["noop_with_empty_axes"] = d.number(0, 1)
        inputs = [data] if axes is None else [data, np.array(axes, np.int64)]
        return {"inputs": inputs, "attributes": attributes, "constants": d.constants(1)}
    return recipe


def arg(d):
    shape = tuple(size or 1 for size in d.shape(1, 4))
    attributes = {"keepdims": d.number(0, 1)} if d.chance(0.6) else {}
    if d.chance(0.8):
        attributes["axis"] = d.axis(len(shape))
    if d.opset >= 12 and d.chance(0.5):
        attributes["select_last_index"] = d.number(0, 1)
    data = d.values(shape, d.element())
    if data.dtype.kind == "f" and d.chance(0.3):
        data = np.full(shape, d.one(-np.inf, np.inf, 1.0), data.dtype)
    return {"inputs": [np.where(np.isnan(data), 0, data).astype(data.dtype)], "attributes": attributes}


def along(least=1):
    def recipe(d):
        shape = d.shape(least, 4)
        attributes = {"axis": d.axis(len(shape))} if d.chance(0.8) else {}
        data = d.values(shape, d.element(), scale=d.one(1.0, 10.0, 100.0))
        if d.chance(0.2):
            data = np.where(d.rng.random(shape) < 0.5, -np.inf, data).astype(data.dtype)
        return {"inputs": [data], "attributes": attributes}
    return recipe


def window(d, spatial, transposed=False):
    """The attributes that convolutions and pools share."""
    kernel = [d.number(1, 3) for _ in range(spatial)]
    attributes = {}
    if d.chance(0.6):
        attributes["strides"] = [d.number(1, 3) for _ in range(spatial)]
    if d.chance(0.4):
        attributes["dilations"] = [d.number(1, 2) for _ in range(spatial)]
    padding = d.number(0, 4)
    if padding == 1:
        attributes["auto_pad"] = d.one("SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET")
    elif padding > 1:
        reach = [(size - 1) * step for size, step in zip(kernel, attributes.get("dilations", [1] * spatial))]
        attributes["pads"] = [d.number(0, min(most, size - 1) if not transposed else most)
                              for most, size in zip(reach * 2, kernel * 2)]
    return kernel, attributes


def convolution(d):
    spatial, group = d.number(1, 3), d.one(1, 1, 2, 3)
    kernel, attributes = window(d, spatial)
    channels, filters = group * d.number(1, 3), group * d.number(1, 3)
    element = d.element()
    x = d.values((d.number(1, 2), channels, *[d.number(5, 8) for _ in range(spatial)]), element, 0.05, 1.0)
    w = d.values((filters, channels // group, *kernel), element, 0, 1.0)
    if group > 1 or d.chance(0.2):
        attributes["group"] = group
    if d.chance(0.6):
        attributes["kernel_shape"] = kernel
    inputs = [x, w] + ([d.values((filters,), element, 0)] if d.chance(0.6) else [])
    return {"inputs": inputs, "attributes": attributes, "constants": d.constants(1, 2)}


def transposed(d):
    spatial, group = d.number(1, 3), d.one(1, 1, 2)
    kernel, attributes = window(d, spatial, True)
    channels, filters = group * d.number(1, 2), d.number(1, 2)
    x = d.values((d.number(1, 2), channels, *[d.number(3, 5) for _ in range(spatial)]), "float32", 0.05, 1.0)
    w = d.values((channels, filters, *kernel), "float32", 0, 1.0)
    if group > 1:
        attributes["group"] = group
    if d.chance(0.5):
        attributes["kernel_shape"] = kernel
    strides, dilations = attributes.get("strides", [1] * spatial), attributes.get("dilations", [1] * spatial)
    if d.chance(0.4):
        attributes["output_padding"] = [d.number(0, max(stride, step) - 1) for stride, step in zip(strides, dilations)]
    if d.chance(0.2):
        attributes["output_shape"] = [size * stride + d.number(0, 1) for size, stride in zip(x.shape[2:], strides)]
    inputs = [x, w] + ([d.values((filters * group,), "float32", 0)] if d.chance(0.6) else [])
    return {"inputs": inputs, "attributes": attributes, "constants": d.constants(1, 2)}


def pool(*extra):
    def recipe(d):
        spatial = d.number(1, 3)
        kernel, attributes = window(d, spatial)
        attributes["kernel_shape"] = kernel
        if d.opset < (19 if d.schema.name == "AveragePool" else 10):
            attributes.pop("dilations", None)
        if d.opset >= 10 and d.chance(0.4):
            attributes["ceil_mode"] = d.number(0, 1)
        outputs = [True]
        if "count_include_pad" in extra and d.chance(0.5):
            attributes["count_include_pad"] = d.number(0, 1)
        if "storage_order" in extra and d.opset >= 8 and d.chance(0.4):
            outputs = [True, True]
            if d.chance(0.5):
                attributes["storage_order"] = d.number(0, 1)
        element = d.element()
        x = d.values((d.number(1, 2), d.number(1, 3), *[d.number(4, 8) for _ in range(spatial)]), element, 0.1)
        if d.schema.name == "MaxPool":
            # ONNX Runtime's own maximum of NaN depends on the shape.
            x = np.where(np.isnan(x), 0, x).astype(x.dtype)
        return {"inputs": [x], "attributes": attributes, "outputs": outputs}
    return recipe


def spatial(d):
    shape = (d.number(1, 2), d.number(1, 4), *[d.number(1, 5) for _ in range(d.number(1, 3))])
    return shape


def global_pool(d):
    attributes = {"p": d.number(1, 3)} if d.schema.name == "GlobalLpPool" and d.chance(0.6) else {}
    data = d.values(spatial(d), d.element(), 0.1)
    if d.schema.name == "GlobalMaxPool":
        data = np.where(np.isnan(data), 1, data).astype(data.dtype)
    return {"inputs": [data], "attributes": attributes}


def batch_norm(d):
    shape, element = d.shape(2, 5), d.element()
    count = (shape[1],)
    attributes = {"epsilon": abs(d.real()) / 10} if d.chance(0.5) else {}
    if d.chance(0.3):
        attributes["momentum"] = 0.5
    if d.opset >= 14 and d.chance(0.2):
        attributes["training_mode"] = d.number(0, 1)
    inputs = [d.values(shape, element, 0.1), d.values(count, element, 0), d.values(count, element, 0),
              d.values(count, element, 0), d.positive(count, element)]
    outputs = [True, True, True] if attributes.get("training_mode") else [True]
    return {"inputs": inputs, "attributes": attributes, "constants": d.constants(1) and {1, 2, 3, 4}, "outputs": outputs}


def instance_norm(d):
    shape, element = spatial(d), d.element()
    attributes = {"epsilon": abs(d.real()) / 10} if d.chance(0.5) else {}
    inputs = [d.values(shape, element, 0.1), d.values((shape[1],), element, 0), d.values((shape[1],), element, 0)]
    return {"inputs": inputs, "attributes": attributes, "constants": d.constants(1, 2)}


def group_norm(d):
    groups = d.number(1, 3)
    shape = (d.number(1, 2), groups * d.number(1, 3), *[d.number(1, 4) for _ in range(d.number(1, 2))])
    count = (shape[1] if d.opset >= 21 else groups,)
    attributes = {"num_groups": groups} | ({"epsilon": abs(d.real()) / 10} if d.chance(0.5) else {})
    if d.opset >= 21 and d.chance(0.3):
        attributes["stash_type"] = 1
    element = d.element()
    x = d.values(shape, element, 0.1)
    # The square of a larger number is infinite: what follows depends on the order of operations.
    x[np.isfinite(x) & (np.abs(x) > 1e15)] = 200.0
    inputs = [x, d.values(count, element, 0), d.values(count, element, 0)]
    return {"inputs": inputs, "attributes": attributes, "constants": d.constants(1, 2)}


def layer_norm(d):
    shape, element = d.shape(1, 4), d.element()
    axis = d.axis(len(shape))
    attributes = {"axis": axis} if d.chance(0.8) else {}
    tail = shape[attributes.get("axis", -1):]
    if d.chance(0.5):
        attributes["epsilon"] = abs(d.real()) / 10
    if d.chance(0.2):
        attributes["stash_type"] = 1
    inputs = [d.values(shape, element, 0.1), d.values(tail, element, 0)]
    outputs = [True]
    if d.schema.name == "LayerNormalization":
        inputs += [d.values(tail, element, 0)] if d.chance(0.6) else []
        outputs = d.one([True], [True], [True, True], [True, True, True], [True, False, True])
    return {"inputs": inputs, "attributes": attributes, "constants": d.constants(1, 2), "outputs": outputs}


def lp_norm(d):
    shape = d.shape(1, 4)
    attributes = {"axis": d.axis(len(shape))} if d.chance(0.7) else {}
    attributes |= {"p": d.number(1, 2)} if d.chance(0.7) else {}
    return {"inputs": [d.values(shape, d.element(), 0.1)], "attributes": attributes}


def lrn(d):
    attributes = {"size": d.one(1, 3, 5)}
    for name, low, high in (("alpha", 0, 1), ("beta", 0.1, 1), ("bias", 0.5, 2)):
        if d.chance(0.6):
            attributes[name] = d.real(low, high)
    return {"inputs": [d.values((d.number(1, 2), d.number(1, 6), d.number(1, 4), d.number(1, 4)), d.element(), 0)],
            "attributes": attributes}


def mvn(d):
    attributes = {"axes": sorted(d.axes(4)) or [0]} if d.chance(0.6) else {}
    attributes = {name: [axis % 4 for axis in axes] for name, axes in attributes.items()}
    shape = tuple(d.number(2, 4) for _ in range(4))
    return {"inputs": [d.values(shape, d.element(), 0, 1.0)], "attributes": attributes}


def recurrent(gates, cell=False):
    def recipe(d):
        time, batch, size, hidden = d.number(1, 6), d.number(1, 3), d.number(1, 4), d.number(1, 4)
        attributes = {"hidden_size": hidden}
        direction = d.one("forward", "forward", "reverse", "bidirectional")
        if direction != "forward" or d.chance(0.3):
            attributes["direction"] = direction
        ways = 2 if direction == "bidirectional" else 1
        if d.opset >= 14 and d.chance(0.3):
            attributes["layout"] = d.number(0, 1)
        if d.chance(0.15):
            attributes["clip"] = d.real(0.1, 1.0)
        if d.chance(0.2):
            usual = {1: ["Tanh"], 3: ["Sigmoid", "Tanh"], 4: ["Sigmoid", "Tanh", "Tanh"]}[gates]
            other = [d.one("Sigmoid", "Tanh", "Relu", "Affine", "LeakyRelu", "HardSigmoid", "Elu", "Softsign") for _ in usual]
            attributes["activations"] = d.one(usual, other) * ways
            if d.chance(0.3):
                attributes["activation_alpha"] = [d.real(0.1, 1.0) for _ in attributes["activations"]]
            if d.chance(0.3):
                attributes["activation_beta"] = [d.real(0.1, 1.0) for _ in attributes["activations"]]
        if gates == 3 and d.chance(0.6):
            attributes["linear_before_reset"] = d.number(0, 1)
        if gates == 4 and d.chance(0.15):
            attributes["input_forget"] = d.number(0, 1)
        first = attributes.get("layout", 0) == 1
        x = d.values((batch, time, size) if first else (time, batch, size), "float32", 0, 1.0)
        state = (batch, ways, hidden) if first else (ways, batch, hidden)
        inputs = [x, d.values((ways, gates * hidden, size), "float32", 0, 1.0),
                  d.values((ways, gates * hidden, hidden), "float32", 0, 1.0),
                  d.values((ways, 2 * gates * hidden), "float32", 0, 1.0) if d.chance(0.6) else None,
                  np.full(batch, time, np.int32) if d.chance(0.15) else None,
                  d.values(state, "float32", 0, 1.0) if d.chance(0.3) else None]
        if inputs[4] is not None and d.chance(0.5):
            inputs[4] = d.rng.integers(1, time + 1, batch).astype(np.int32)
        if cell:
            inputs += [d.values(state, "float32", 0, 1.0) if d.chance(0.3) else None,
                       d.values((ways, 3 * hidden), "float32", 0, 1.0) if d.chance(0.2) else None]
        outputs = [d.chance(0.6) for _ in range(3 if cell else 2)]
        outputs[0] = outputs[0] or not any(outputs)
        while not outputs[-1]:
            outputs.pop()
        constants = {1, 2, 3, 4, 7} if d.chance(0.85) else set()
        return {"inputs": inputs, "attributes": attributes, "constants": constants, "outputs": outputs}
    return recipe


def matmul(d):
    m, k, n, element = d.number(1, 5), d.number(1, 5), d.number(1, 5), d.element()
    batch = d.shape(0, 2, 3)
    left = (k,) if d.chance(0.1) else (*d.part(batch), m, k)
    right = (k,) if d.chance(0.1) else (*batch, k, n)
    return {"inputs": [d.values(left, element, 0.1), d.values(right, element, 0.1)],
            "constants": d.constants(d.number(0, 1), chance=0.5)}


def gemm(d):
    m, k, n, element = d.number(1, 5), d.number(1, 5), d.number(1, 5), d.element()
    attributes = {}
    for name in ("alpha", "beta"):
        if d.chance(0.5):
            attributes[name] = d.one(0.0, 0.5, d.real())
    for name in ("transA", "transB"):
        if d.chance(0.5):
            attributes[name] = d.number(0, 1)
    a = (k, m) if attributes.get("transA") else (m, k)
    b = (n, k) if attributes.get("transB") else (k, n)
    inputs = [d.values(a, element, 0.1), d.values(b, element, 0.1)]
    if d.opset < 11 or d.chance(0.7):
        inputs.append(d.values(d.one((m, n), (n,), (1, n), (m, 1), (1,), ()), element, 0))
    return {"inputs": inputs, "attributes": attributes, "constants": d.constants(1, 2, chance=0.6)}


def einsum(d):
    sizes = {letter: d.number(1, 4) for letter in "bijkl"}
    equation = d.one("ij,jk->ik", "bij,bjk->bik", "ii->i", "ij->ji", "ij->", "i,j->ij", "bij,bjk,bkl->bil", "...ij,jk->...ik",
                     "ij,jk", "bi,bj->bij", "ij,ij->i", "ji", "i...->...i", " i j , j k -> i k ", "ii", "ij,kj->ik")
    inputs = []
    for term in equation.replace(" ", "").split("->")[0].split(","):
        lead = (2, 3) if "..." in term else ()
        letters = term.replace("...", "")
        shape = tuple(sizes[letter] for letter in letters)
        inputs.append(d.values(shape + lead if term.endswith("...") else lead + shape, d.element(), 0))
    dtype = inputs[0].dtype
    return {"inputs": [each.astype(dtype) for each in inputs], "attributes": {"equation": equation}}


def matmul_integer(d):
    m, k, n = d.number(1, 5), d.number(1, 5), d.number(1, 5)
    kinds = d.one("uint8", "int8"), d.one("uint8", "int8")
    inputs = [d.values((m, k), kinds[0]), d.values((k, n), kinds[1])]
    if d.chance(0.7):
        inputs.append(d.values((), kinds[0]))
        if d.chance(0.7):
            inputs.append(d.values(d.one((), (n,)), kinds[1]))
    return {"inputs": inputs, "constants": d.constants(1, 2, 3)}


def quantize(d):
    shape, element = d.shape(1, 4), d.one("uint8", "int8", "int8", "uint8", "uint16", "int16")
    if d.opset < 21:
        element = d.one("uint8", "int8")
    axis = d.axis(len(shape))
    per_axis = d.opset >= 13 and d.chance(0.5)
    sizes = (shape[axis],) if per_axis else ()
    attributes = {"axis": axis} if per_axis else {}
    if d.opset >= 19 and d.chance(0.2):
        attributes["saturate"] = d.number(0, 1)
    zero = d.values(sizes, element, 0) if d.chance(0.7) else None
    if d.opset >= 21 and zero is None and d.chance(0.3):
        attributes["output_dtype"] = d.one(TensorProto.UINT8, TensorProto.INT8, TensorProto.INT16)
    if d.opset >= 21 and len(shape) > 0 and d.chance(0.1):
        attributes["block_size"] = d.number(0, 2)
    x = d.values(shape, "float32" if d.chance(0.8) else "float16", 0.1, 10.0)
    scale = d.positive(sizes, x.dtype.name)
    x = np.nan_to_num(x)
    if d.chance(0.5):
        # Halves of the scale, which a factor in place of the divisor rounds to another integer.
        along = scale.reshape([-1 if per_axis and at == axis else 1 for at in range(len(shape))]) if per_axis else scale
        x = ((np.round(x) + 0.5) * along).astype(x.dtype)
    return {"inputs": [x, scale, zero], "attributes": attributes, "constants": d.constants(1) and {1, 2}}


def dequantize(d):
    shape = d.shape(1, 4)
    element = d.one("uint8", "int8", "int8", "uint8", "int32", "uint16", "int16") if d.opset >= 21 else d.one(
        "uint8", "int8", "int32")
    axis = d.axis(len(shape))
    per_axis = d.opset >= 13 and d.chance(0.5)
    sizes = (shape[axis],) if per_axis else ()
    attributes = {"axis": axis} if per_axis else {}
    if d.opset >= 21 and d.chance(0.1):
        attributes["block_size"] = d.number(0, 2)
    zero = d.values(sizes, element, 0) if d.chance(0.6) else None
    if element == "int32" and zero is not None:
        zero = np.zeros_like(zero)
    return {"inputs": [d.values(shape, element), d.positive(sizes), zero], "attributes": attributes,
            "constants": d.constants(1) and {1, 2}}


def qlinear_matmul(d):
    m, k, n, kind = d.number(1, 5), d.number(1, 5), d.number(1, 5), d.one("uint8", "int8")
    inputs = [d.values((m, k), kind), d.positive(()), d.values((), kind, 0), d.values((k, n), kind), d.positive(()),
              d.values((), kind, 0), d.positive(()), d.values((), kind, 0)]
    return {"inputs": inputs, "constants": d.constants(1) and {1, 2, 4, 5, 6, 7}}


def qlinear_conv(d):
    case = convolution(d)
    x, w, *bias = case["inputs"]
    kind = d.one("uint8", "int8")
    sizes = d.one((), (w.shape[0],))
    inputs = [d.values(x.shape, kind), d.positive(()), d.values((), kind, 0), d.values(w.shape, kind), d.positive(sizes),
              np.zeros(sizes, kind), d.positive(()) * np.float32(10), d.values((), kind, 0)]
    if bias:
        inputs.append(d.values((w.shape[0],), "int32", 0))
    inputs[6] = np.asarray(inputs[6], np.float32)
    return {"inputs": inputs, "attributes": case["attributes"], "constants": set(range(1, 9))}


def conv_integer(d):
    case = convolution(d)
    x, w = case["inputs"][:2]
    kinds = "uint8", d.one("uint8", "int8")
    inputs = [d.values(x.shape, kinds[0]), d.values(w.shape, kinds[1])]
    if d.chance(0.6):
        inputs.append(d.values((), kinds[0], 0))
        if d.chance(0.6):
            inputs.append(d.values((), kinds[1], 0))
    return {"inputs": inputs, "attributes": case["attributes"], "constants": {1, 2, 3}}


def dynamic_quantize(d):
    shape = tuple(size or 1 for size in d.shape(1, 3))
    return {"inputs": [d.values(shape, "float32", 0)], "outputs": [True, True, True]}


# Shapes and indices.


def cast(d):
    element = d.element("T1")
    to = d.one("float32", "float16", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool")
    data = d.values(d.shape(), element, 0.2 if to in (*FLOATS, "bool") else 0)
    if to not in FLOATS and to != "bool":
        # What is out of range is nobody's to say.
        info = np.iinfo(to)
        data = np.clip(np.nan_to_num(data.astype(np.float64)), max(info.min, -100), min(info.max, 100))
        data = np.asarray(data, element)
    attributes = {"to": helper.np_dtype_to_tensor_dtype(np.dtype(to))}
    if d.opset >= 19 and d.chance(0.3):
        attributes["saturate"] = d.number(0, 1)
    return {"inputs": [data], "attributes": attributes}


def cast_like(d):
    case = cast(d)
    to = helper.tensor_dtype_to_np_dtype(case["attributes"].pop("to"))
    return {"inputs": [case["inputs"][0], np.ones((1,), to)], "attributes": case["attributes"]}


def constant(d):
    value = d.values(d.shape(0, 3), d.element())
    name = "value" if d.opset < 12 else d.one("value", "value", "value_int", "value_ints", "value_float", "value_floats",
                                              "value_string", "value_strings")
    from onnx import numpy_helper
    given = {"value": lambda: numpy_helper.from_array(value), "value_int": lambda: d.number(-9, 9), "value_float": d.real,
             "value_ints": lambda: [d.number(-9, 9), 2], "value_string": lambda: "text", "value_strings": lambda: ["a", "b"], "value_floats": lambda: [d.real(), 0.5]}[name]()
    return {"inputs": [], "attributes": {name: given}}


def constant_of_shape(d):
    from onnx import numpy_helper
    attributes = {"value": numpy_helper.from_array(d.values((1,), d.element("T2"), 0))} if d.chance(0.8) else {}
    return {"inputs": [np.array(d.shape(0, 3), np.int64)], "attributes": attributes, "constants": d.constants(0, chance=0.6)}


def compress(d):
    shape = d.shape(1, 3)
    attributes = {"axis": d.axis(len(shape))} if d.chance(0.7) else {}
    length = shape[attributes["axis"]] if attributes else int(np.prod(shape))
    return {"inputs": [d.values(shape, d.element()), d.rng.random(d.number(0, length)) < 0.5], "attributes": attributes,
            "constants": d.constants(1, chance=0.5)}


def concat(d):
    shape, element = list(d.shape(1, 4)), d.element()
    axis = d.axis(len(shape))
    arrays = []
    for _ in range(d.number(1, 4)):
        shape[axis] = d.number(0 if d.chance(0.1) else 1, 4)
        arrays.append(d.values(tuple(shape), element))
    return {"inputs": arrays, "attributes": {"axis": axis}, "constants": d.constants(0, chance=0.3)}


def expand(d):
    shape = d.shape(0, 4)
    target = list(shape) if d.chance(0.8) else [1 if d.chance(0.4) else size for size in shape]
    return {"inputs": [d.values(d.part(shape), d.element()), np.array(target, np.int64)], "constants": d.constants(1)}


def eye_like(d):
    attributes = {"k": d.number(-3, 3)} if d.chance(0.6) else {}
    if d.chance(0.6):
        attributes["dtype"] = d.one(TensorProto.FLOAT, TensorProto.INT64, TensorProto.DOUBLE, TensorProto.INT32)
    return {"inputs": [d.values((d.number(1, 5), d.number(1, 5)), d.element("T1"))], "attributes": attributes}


def flatten(d):
    shape = d.shape(0, 4)
    attributes = {"axis": d.number(-len(shape) if d.opset >= 11 else 0, len(shape))} if d.chance(0.7) else {}
    return {"inputs": [d.values(shape, d.element())], "attributes": attributes}


def indices(d, shape, size, negative=True):
    return d.rng.integers(-size if negative else 0, size, shape).astype(d.one(np.int64, np.int64, np.int32))


def gather(d):
    shape = tuple(max(size, 1) for size in d.shape(1, 4))
    attributes = {"axis": d.axis(len(shape))} if d.chance(0.7) else {}
    at = indices(d, d.shape(0, 2, 3), shape[attributes.get("axis", 0)], d.opset >= 11)
    return {"inputs": [d.values(shape, d.element()), at], "attributes": attributes, "constants": d.constants(1, chance=0.5)}


def gather_elements(d):
    shape = tuple(d.number(1, 4) for _ in range(d.number(1, 3)))
    attributes = {"axis": d.axis(len(shape))} if d.chance(0.7) else {}
    wanted = list(shape)
    wanted[attributes.get("axis", 0)] = d.number(1, 4)
    at = indices(d, tuple(wanted), shape[attributes.get("axis", 0)])
    return {"inputs": [d.values(shape, d.element()), at], "attributes": attributes, "constants": d.constants(1, chance=0.4)}


def gather_nd(d):
    shape = tuple(d.number(2, 4) for _ in range(d.number(2, 4)))
    batch = d.number(0, 1) if d.opset >= 12 else 0
    depth = d.number(1, len(shape) - batch)
    at = indices(d, (*shape[:batch], d.number(1, 3), depth), min(shape)).astype(np.int64)
    attributes = {"batch_dims": batch} if batch or d.opset >= 12 and d.chance(0.3) else {}
    return {"inputs": [d.values(shape, d.element()), at], "attributes": attributes, "constants": d.constants(1, chance=0.4)}


def scatter_elements(d):
    shape = tuple(d.number(2, 4) for _ in range(d.number(1, 3)))
    axis = d.axis(len(shape))
    size = shape[axis]
    count = d.number(1, size)
    wanted = list(shape)
    wanted[axis] = count
    order = np.stack([d.rng.permutation(size)[:count] for _ in range(max(int(np.prod(wanted)) // count, 1))])
    moved = [extent for place, extent in enumerate(wanted) if place != axis % len(shape)]
    at = np.moveaxis(order.reshape(*moved, count), -1, axis).astype(np.int64)
    attributes = {"axis": axis} if axis or d.chance(0.5) else {}
    if d.schema.name == "ScatterElements" and d.opset >= 16 and d.chance(0.6):
        attributes["reduction"] = d.one("none", "add", "mul", *(("max", "min") if d.opset >= 18 else ()))
        if attributes["reduction"] != "none":
            at = d.rng.integers(-size, size, wanted).astype(np.int64)
    element = d.element()
    return {"inputs": [d.values(shape, element), at, d.values(tuple(wanted), element)], "attributes": attributes,
            "constants": d.constants(1, chance=0.4)}


def scatter_nd(d):
    shape = tuple(d.number(2, 4) for _ in range(d.number(1, 3)))
    depth = d.number(1, len(shape))
    count = d.number(1, int(np.prod(shape[:depth])))
    flat = d.rng.permutation(int(np.prod(shape[:depth])))[:count]
    at = np.stack(np.unravel_index(flat, shape[:depth]), -1).astype(np.int64)
    attributes = {}
    if d.opset >= 16 and d.chance(0.6):
        attributes["reduction"] = d.one("none", "add", "mul", *(("max", "min") if d.opset >= 18 else ()))
        if attributes["reduction"] != "none":
            at = np.repeat(at, 2, 0)
    element = d.element()
    updates = d.values((at.shape[0], *shape[depth:]), element)
    return {"inputs": [d.values(shape, element), at, updates], "attributes": attributes, "constants": d.constants(1, chance=0.4)}


def non_zero(d):
    return {"inputs": [d.values(d.shape(1, 3), d.element(), 0)]}


def one_hot(d):
    shape, depth = d.shape(0, 3), d.number(1, 5)
    attributes = {"axis": d.axis(len(shape), 1)} if d.chance(0.7) else {}
    if "axis" in attributes:
        attributes["axis"] = d.number(-len(shape) - 1, len(shape))
    at = d.rng.integers(-depth - 1, depth + 2, shape).astype(d.one("int64", "int64", "float32", "int32"))
    values = d.values((2,), d.one("float32", "int64", "int32"), 0)
    depth = np.array(depth if d.chance(0.5) else [depth], d.one(np.int64, np.int64, np.float32))
    return {"inputs": [at, depth, values], "attributes": attributes, "constants": d.constants(1, 2)}


def pad(d):
    shape = tuple(d.number(2, 4) for _ in range(d.number(1, 4)))
    mode = d.one("constant", "constant", "reflect", "edge", *(("wrap",) if d.opset >= 19 else ()))
    attributes = {"mode": mode} if mode != "constant" or d.chance(0.3) else {}
    axes = None
    if d.opset >= 18 and d.chance(0.4):
        axes = d.axes(len(shape)) or None
    count = len(axes) if axes else len(shape)
    low = -1 if d.chance(0.2) else 0
    pads = [d.number(low, 1 if mode == "reflect" else 2) for _ in range(2 * count)]
    element = d.element()
    if d.opset < 11:
        attributes["pads"] = pads
        if d.chance(0.5):
            attributes["value"] = d.real()
        return {"inputs": [d.values(shape, d.one("float32", "float64"))], "attributes": attributes}
    value = d.values((), element, 0) if d.chance(0.5) else None
    inputs = [d.values(shape, element), np.array(pads, np.int64), value, np.array(axes, np.int64) if axes else None]
    return {"inputs": inputs, "attributes": attributes, "constants": d.constants(1) and {1, 2, 3}}


def ranges(d):
    element = d.one("int64", "float32", "int32", "float64", "int16")
    start, delta = d.number(-5, 5), d.one(1, 2, -1, -2)
    limit = start + delta * d.number(-1, 5) + d.number(0, 1)
    return {"inputs": [np.array(each, element) for each in (start, limit, delta)],
            "constants": {0, 1, 2} if d.chance(0.6) else set()}


def reshape(d):
    shape = d.shape(1, 4)
    target = list(d.rng.permutation(shape)) if d.chance(0.6) else [int(np.prod(shape))]
    attributes = {}
    if d.opset >= 14 and d.chance(0.4):
        attributes["allowzero"] = d.number(0, 1)
    if 0 not in shape and d.chance(0.5):
        target[d.number(0, len(target) - 1)] = -1
    elif 0 not in shape and d.chance(0.3):
        target = [0, -1] if d.chance(0.5) else [0, *shape[1:]]
    return {"inputs": [d.values(shape, d.element()), np.array(target, np.int64)], "attributes": attributes,
            "constants": d.constants(1)}


def resize(d):
    rank = d.number(3, 5) if d.chance(0.3) else 4
    shape = (1, d.number(1, 2), *[d.number(2, 6) for _ in range(rank - 2)])
    mode = d.one("nearest", "linear", "linear", "cubic") if rank == 4 else d.one("nearest", "linear")
    attributes = {"mode": mode} if d.chance(0.9) else {}
    mode = attributes.get("mode", "nearest")
    data = d.values(shape, d.element("T1") if d.chance(0.3) else "float32", 0)
    if d.opset < 11:
        attributes.pop("mode", None) if mode == "cubic" else None
        scales = [1.0, 1.0, *[d.one(0.5, 1.0, 2.0, 1.7) for _ in range(rank - 2)]]
        return {"inputs": [data, np.array(scales, np.float32)], "attributes": attributes, "constants": {1}}
    modes = ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "tf_crop_and_resize"]
    modes += ["half_pixel_symmetric"] if d.opset >= 19 else []
    modes += ["tf_half_pixel_for_nn"] if d.opset < 13 else []
    if d.chance(0.8):
        attributes["coordinate_transformation_mode"] = d.one(*modes)
    if mode == "nearest" and d.chance(0.6):
        attributes["nearest_mode"] = d.one("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
    if mode == "cubic":
        attributes |= {"cubic_coeff_a": -0.5} if d.chance(0.4) else {}
    if d.chance(0.2) and mode == "cubic":
        attributes["exclude_outside"] = d.number(0, 1)
    if d.chance(0.2):
        attributes["extrapolation_value"] = d.real()
    axes = None
    if d.opset >= 18:
        if d.chance(0.2) and mode != "nearest":
            attributes["antialias"] = d.number(0, 1)
        if d.chance(0.3):
            axes = attributes["axes"] = d.one([2, 3], [3, 2], [-1, -2], [2]) if rank == 4 else [2]
    sized = d.chance(0.5)
    lead = [] if axes else [1.0, 1.0]
    count = len(axes) if axes else rank - 2
    scales = np.array(lead + [d.one(0.5, 0.6, 1.0, 2.0, 1.7, 3.0) for _ in range(count)], np.float32)
    sizes = np.array(([] if axes else list(shape[:2])) + [d.number(1, 9) for _ in range(count)], np.int64)
    if d.opset >= 18 and sized and d.chance(0.3):
        attributes["keep_aspect_ratio_policy"] = d.one("stretch", "not_larger", "not_smaller")
    crop = attributes.get("coordinate_transformation_mode") == "tf_crop_and_resize"
    total = len(axes) if axes else rank
    roi = np.array([0.0] * total + [1.0] * total, np.float32) if crop else None
    if crop and d.chance(0.7):
        roi = np.array([d.real(0, 0.4) for _ in range(total)] + [d.real(0.6, 1.2) for _ in range(total)], np.float32)
        if not axes:
            roi[:2], roi[rank:rank + 2] = 0, 1
    if d.opset < 13:
        roi = np.zeros(0, np.float32) if roi is None else roi
        inputs = [data, roi, np.zeros(0, np.float32), sizes] if sized else [data, roi, scales]
    else:
        inputs = [data, roi, None, sizes] if sized else [data, roi, scales]
    return {"inputs": inputs, "attributes": attributes, "constants": {1, 2, 3}}


def shape_of(d):
    attributes = {}
    if d.opset >= 15:
        attributes |= {"start": d.number(-4, 4)} if d.chance(0.5) else {}
        attributes |= {"end": d.number(-4, 4)} if d.chance(0.5) else {}
    return {"inputs": [d.values(d.shape(), d.element())], "attributes": attributes}


def slices(d):
    shape = d.shape(1, 4)
    axes = sorted({axis % len(shape) for axis in d.axes(len(shape)) or [0]})
    starts = [d.one(d.number(-6, 6), 0, -2**31, 2**63 - 1 if d.chance(0.1) else 1) for _ in axes]
    ends = [d.one(d.number(-6, 6), 2**31 - 1, 2**63 - 1, -1) for _ in axes]
    if d.opset < 10:
        attributes = {"starts": starts, "ends": ends} | ({"axes": axes} if axes != list(range(len(axes))) else {})
        return {"inputs": [d.values(shape, d.element())], "attributes": attributes}
    inputs = [d.values(shape, d.element()), np.array(starts, np.int64), np.array(ends, np.int64)]
    if axes != list(range(len(axes))) or d.chance(0.6):
        inputs.append(np.array([axis - len(shape) if d.chance(0.3) else axis for axis in axes], np.int64))
        if d.chance(0.6):
            inputs.append(np.array([d.one(1, 2, -1, -2, 3) for _ in axes], np.int64))
            if d.chance(0.5):
                # Whole axes backwards, as exporters write `flip`.
                inputs[1][:], inputs[4][:] = -1, d.one(-1, -1, -2)
                inputs[2][:] = d.one(-2**63 + 1, -2**31, -2**63)
    return {"inputs": inputs, "constants": {1, 2, 3, 4} if d.chance(0.9) else {3, 4}}


def split(d):
    shape = tuple(d.number(2, 6) for _ in range(d.number(1, 3)))
    axis = d.axis(len(shape))
    attributes = {"axis": axis} if axis or d.chance(0.5) else {}
    size, count = shape[axis], d.number(1, 3)
    cuts = np.diff([0, *sorted(d.number(0, size) for _ in range(count - 1)), size])
    data = d.values(shape, d.element())
    outputs = [True] * count
    if d.chance(0.4):
        if d.opset >= 18:
            attributes["num_outputs"] = count
        elif size % count:
            outputs = [True]
        return {"inputs": [data], "attributes": attributes, "outputs": outputs}
    if d.opset < 13:
        return {"inputs": [data], "attributes": attributes | {"split": [int(cut) for cut in cuts]}, "outputs": outputs}
    return {"inputs": [data, cuts.astype(np.int64)], "attributes": attributes, "outputs": outputs, "constants": d.constants(1)}


def squeeze(d):
    shape = [1 if d.chance(0.5) else d.number(2, 4) for _ in range(d.number(1, 4))]
    axes = [axis for axis, size in enumerate(shape) if size == 1 and d.chance(0.7)]
    axes = [axis - len(shape) if d.chance(0.3) and d.opset >= 11 else axis for axis in axes]
    data = d.values(tuple(shape), d.element())
    if not axes:
        return {"inputs": [data]}
    if d.opset < 13:
        return {"inputs": [data], "attributes": {"axes": axes}}
    return {"inputs": [data, np.array(axes, np.int64)], "constants": d.constants(1)}


def unsqueeze(d):
    shape = d.shape(0, 3)
    count = d.number(1, 2)
    axes = [int(axis) for axis in d.rng.permutation(len(shape) + count)[:count]]
    axes = [axis - len(shape) - count if d.chance(0.3) and d.opset >= 11 else axis for axis in axes]
    if d.opset < 13:
        return {"inputs": [d.values(shape, d.element())], "attributes": {"axes": sorted(axes)}}
    return {"inputs": [d.values(shape, d.element()), np.array(axes, np.int64)], "constants": d.constants(1)}


def tile(d):
    shape = d.shape(1, 3)
    repeats = np.array([d.number(0 if d.chance(0.1) else 1, 3) for _ in shape], np.int64)
    return {"inputs": [d.values(shape, d.element()), repeats], "constants": d.constants(1)}


def top_k(d):
    shape = tuple(d.number(1, 6) for _ in range(d.number(1, 3)))
    attributes = {"axis": d.axis(len(shape)) if d.opset >= 11 else d.number(0, len(shape) - 1)} if d.chance(0.7) else {}
    count = d.number(1, shape[attributes.get("axis", -1)])
    if d.opset >= 11:
        attributes |= {"largest": d.number(0, 1)} if d.chance(0.6) else {}
        attributes |= {"sorted": 1} if d.chance(0.3) else {}
    data = d.values(shape, d.element() if d.opset >= 11 else "float32", 0)
    if data.dtype.kind == "f" and d.chance(0.2):
        data = np.where(d.rng.random(shape) < 0.3, d.one(np.inf, -np.inf), data).astype(data.dtype)
    outputs = [True, True]
    if d.opset < 10:
        return {"inputs": [data], "attributes": attributes | {"k": count}, "outputs": outputs}
    return {"inputs": [data, np.array([count], np.int64)], "attributes": attributes, "outputs": outputs,
            "constants": d.constants(1)}


def transpose(d):
    shape = d.shape(0, 5)
    attributes = {"perm": [int(axis) for axis in d.rng.permutation(len(shape))]} if d.chance(0.8) and shape else {}
    return {"inputs": [d.values(shape, d.element())], "attributes": attributes}


def trilu(d):
    shape = d.shape(2, 4)
    attributes = {"upper": d.number(0, 1)} if d.chance(0.7) else {}
    inputs = [d.values(shape, d.element())]
    if d.chance(0.6):
        inputs.append(np.array(d.number(-4, 4), np.int64))
    return {"inputs": inputs, "attributes": attributes, "constants": d.constants(1)}


def where(d):
    shape, element = d.shape(), d.element()
    shapes = [shape, d.part(shape), d.part(shape)]
    shapes = [shapes[int(place)] for place in d.rng.permutation(3)]
    inputs = [d.values(shapes[0], "bool"), d.values(shapes[1], element), d.values(shapes[2], element)]
    return {"inputs": inputs, "constants": d.constants(1, 2, chance=0.3)}


def clip(d):
    element, shape = d.element(), d.shape()
    low, high = sorted([d.number(0, 5), d.number(0, 5)])
    if d.opset < 11:
        attributes = ({"min": low - 2.5} if d.chance(0.7) else {}) | ({"max": high - 2.0} if d.chance(0.7) else {})
        return {"inputs": [d.values(shape, "float32")], "attributes": attributes}
    bounds = [np.array(low, element) if d.chance(0.7) else None, np.array(high, element) if d.chance(0.7) else None]
    return {"inputs": [d.values(shape, element), *bounds], "constants": {1, 2} if d.chance(0.7) else set()}


def cumsum(d):
    shape = d.shape(1, 3)
    attributes = {name: d.number(0, 1) for name in ("reverse", "exclusive") if d.chance(0.6)}
    axis = np.array(d.axis(len(shape)), d.one(np.int64, np.int32))
    return {"inputs": [d.values(shape, d.element(), 0), axis], "attributes": attributes, "constants": d.constants(1)}


def is_inf(d):
    attributes = {name: d.number(0, 1) for name in ("detect_negative", "detect_positive") if d.chance(0.6)}
    return {"inputs": [d.values(d.shape(), d.element("T1"), 0.9)], "attributes": attributes}


def mod(d):
    element = d.element()
    fmod = 1 if element in FLOATS else d.number(0, 1)
    shape = d.shape()
    right = nonzero(d, d.values(d.part(shape), element, 0))
    return {"inputs": [d.values(shape, element, 0), right], "attributes": {"fmod": fmod} if fmod or d.chance(0.4) else {}}


def power(d):
    shape = d.shape()
    if d.opset < 12:
        element = exponent = d.one("float32", "float64")
    else:
        element, exponent = d.element("T"), d.element("T1")
    base = d.positive(shape, element) if d.chance(0.5) and element in FLOATS else d.values(shape, element, 0, 1.0)
    power = d.values(d.part(shape), exponent, 0, 1.0)
    if base.dtype.kind == "f" and d.chance(0.5):
        power = np.asarray(d.one(0.5, 2, 3, -1, 0), exponent if exponent in FLOATS else "float32")
        power = np.asarray(power, exponent)
    if element not in FLOATS or exponent not in FLOATS:
        power = np.clip(np.abs(power.astype(np.float64)), 0, 3).astype(exponent)
        base = np.clip(base, 0 if base.dtype.kind == "u" else -5, 5).astype(base.dtype)
    return {"inputs": [base, power], "constants": d.constants(1, chance=0.6)}


def shift(d):
    element = d.element()
    shape = d.shape()
    return {"inputs": [d.values(shape, element), d.rng.integers(0, 8, d.part(shape)).astype(element)],
            "attributes": {"direction": d.one("LEFT", "RIGHT")}}


def prelu(d):
    shape, element = d.shape(1, 4), d.element()
    slope = d.part(shape) if d.chance(0.6) else (shape[1], *[1] * (len(shape) - 2)) if len(shape) > 1 else (1,)
    return {"inputs": [d.values(shape, element), d.values(slope, element, 0)], "constants": d.constants(1)}


def gelu(d):
    attributes = {"approximate": d.one("none", "tanh")} if d.chance(0.7) else {}
    return {"inputs": [d.values(d.shape(), d.element())], "attributes": attributes}


def dropout(d):
    shape, element = d.shape(), d.element()
    attributes = {"seed": 7} if d.opset >= 12 and d.chance(0.2) else {}
    inputs = [d.values(shape, element)]
    if d.opset < 12:
        attributes |= {"ratio": 0.3} if d.chance(0.5) else {}
    elif d.chance(0.5):
        inputs.append(np.array(0.3, element if d.chance(0.5) else "float32"))
        if d.chance(0.5):
            inputs.append(np.array(False))
    return {"inputs": inputs, "attributes": attributes, "outputs": d.one([True], [True, True]),
            "constants": {1, 2} if d.chance(0.7) else set()}


def blocks(d):
    size = d.number(1, 3)
    shape = (d.number(1, 2), d.number(1, 2) * (size * size if d.schema.name == "DepthToSpace" else 1),
             d.number(1, 2) * size, d.number(1, 2) * size)
    attributes = {"blocksize": size}
    if d.schema.name == "DepthToSpace" and d.opset >= 11 and d.chance(0.7):
        attributes["mode"] = d.one("DCR", "CRD")
    return {"inputs": [d.values(shape, d.element())], "attributes": attributes}


def grid_sample(d):
    rank = 4 if d.opset < 20 or d.chance(0.7) else 5
    shape = (d.number(1, 2), d.number(1, 2), *[d.number(2, 5) for _ in range(rank - 2)])
    grid = (shape[0], *[d.number(1, 4) for _ in range(rank - 2)], rank - 2)
    names = ("linear", "nearest", "cubic") if d.opset >= 20 else ("bilinear", "nearest", "bicubic")
    attributes = {"mode": d.one(*names)} if d.chance(0.7) else {}
    attributes |= {"padding_mode": d.one("zeros", "border", "reflection")} if d.chance(0.7) else {}
    attributes |= {"align_corners": d.number(0, 1)} if d.chance(0.7) else {}
    return {"inputs": [d.values(shape, "float32", 0), np.asarray(d.rng.uniform(-1.3, 1.3, grid), np.float32)],
            "attributes": attributes}


def suppression(d):
    batch, count, classes = d.number(1, 2), d.number(1, 8), d.number(1, 2)
    corner = d.rng.uniform(0, 4, (batch, count, 2))
    extent = d.rng.uniform(0.5, 3, (batch, count, 2))
    center = d.number(0, 1)
    boxes = np.concatenate([corner, extent if center else corner + extent], -1).astype(np.float32)
    inputs = [boxes, d.rng.random((batch, classes, count)).astype(np.float32)]
    if d.chance(0.9):
        inputs.append(np.array([d.number(0, 5)] if d.chance(0.6) else d.number(0, 5), np.int64))
        if d.chance(0.8):
            inputs.append(np.array([d.real(0.1, 0.9)], np.float32))
            if d.chance(0.7):
                inputs.append(np.array([d.real(0.1, 0.6)], np.float32))
    return {"inputs": inputs, "attributes": {"center_point_box": center} if center or d.chance(0.3) else {},
            "constants": {2, 3, 4} if d.chance(0.8) else set()}


def rotary(d):
    heads, size, length, batch = d.number(1, 3), 2 * d.number(1, 4), d.number(1, 4), d.number(1, 2)
    attributes = {"interleaved": d.number(0, 1)} if d.chance(0.6) else {}
    part = size
    if d.chance(0.3):
        part = attributes["rotary_embedding_dim"] = 2 * d.number(1, size // 2)
    flat = d.chance(0.4)
    if flat or d.chance(0.2):
        attributes["num_heads"] = heads
    x = d.values((batch, length, heads * size) if flat else (batch, heads, length, size), "float32", 0, 1.0)
    if d.chance(0.5):
        caches = [d.values((8, part // 2), "float32", 0, 1.0) for _ in range(2)]
        return {"inputs": [x, *caches, d.rng.integers(0, 8, (batch, length))], "attributes": attributes}
    return {"inputs": [x, *[d.values((batch, length, part // 2), "float32", 0, 1.0) for _ in range(2)]],
            "attributes": attributes}


def dft(d):
    length = d.number(1, 8)
    inverse, onesided = d.number(0, 1), d.number(0, 1)
    shape = (d.number(1, 2), length, 1 if not inverse and (onesided or d.chance(0.5)) else 2)
    attributes = {"inverse": inverse} if inverse or d.chance(0.3) else {}
    attributes |= {"onesided": onesided} if onesided or d.chance(0.3) else {}
    inputs = [d.values(shape, d.element("T1"), 0, 1.0)]
    if d.chance(0.4):
        inputs.append(np.array(d.number(1, 9), np.int64))
    if d.opset >= 20 and d.chance(0.5):
        inputs += [None] * (2 - len(inputs)) + [np.array(d.one(1, -2), np.int64)]
    elif d.opset < 20 and d.chance(0.5):
        attributes["axis"] = 1
    return {"inputs": inputs, "attributes": attributes, "constants": {1, 2}}


def stft(d):
    length, frame, step = d.number(8, 20), d.number(2, 8), d.number(1, 4)
    attributes = {"onesided": d.number(0, 1)} if d.chance(0.7) else {}
    inputs = [d.values((d.number(1, 2), length, 1), "float32", 0, 1.0), np.array(step, np.int64), None, None]
    if d.chance(0.6):
        inputs[2] = d.positive((frame,))
    if inputs[2] is None or d.chance(0.5):
        inputs[3] = np.array(frame, np.int64)
    return {"inputs": inputs, "attributes": attributes, "constants": {1, 2, 3}}


def mel_matrix(d):
    return {"inputs": [np.array(d.number(2, 8), np.int64), np.array(d.one(16, 32, 33), np.int64), np.array(8000, np.int64),
                       np.array(d.real(0, 100), np.float32), np.array(d.real(2000, 4000), np.float32)],
            "attributes": {"output_datatype": d.one(TensorProto.FLOAT, TensorProto.DOUBLE)} if d.chance(0.5) else {},
            "constants": {0, 1, 2, 3, 4} if d.chance(0.8) else set()}


def window_function(d):
    attributes = {"periodic": d.number(0, 1)} if d.chance(0.7) else {}
    attributes |= {"output_datatype": d.one(TensorProto.FLOAT, TensorProto.DOUBLE)} if d.chance(0.4) else {}
    return {"inputs": [np.array(d.number(1, 12), np.int64)], "attributes": attributes, "constants": d.constants(0)}


# Operators with graphs of their own.


def branch(name, nodes, outputs):
    ports = [helper.make_tensor_value_info(each, TensorProto.FLOAT, None) for each in outputs]
    return helper.make_graph(nodes, name, [], ports)


def condition(d):
    inner, outer = d.one("Exp", "Neg", "Abs", "Relu"), d.one("Neg", "Sigmoid", "Floor")
    value = helper.make_tensor("c", TensorProto.FLOAT, [1], [d.real()])
    then = branch("then", [helper.make_node(inner, ["x1"], ["t"])], ["t"])
    other = branch("else", [helper.make_node("Constant", [], ["k"], value=value), helper.make_node("Add", ["x1", "k"], ["s"]),
                            helper.make_node(outer, ["s"], ["e"])], ["e"])
    return {"inputs": [np.array(d.chance(0.5)), d.values(d.shape(1, 3), "float32", 0)], "attributes": {
        "then_branch": then, "else_branch": other}, "constants": d.constants(0, chance=0.3), "captured": {1}}


def scan(d):
    if d.opset < 9:
        d.opset = 9
    size, time = d.number(1, 3), d.number(1, 4)
    operator = d.one("Add", "Mul", "Sub", "Max")
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [size]) for name in ("state", "item", "next", "out")]
    nodes = [helper.make_node(operator, ["state", "item"], ["next"]), helper.make_node("Neg", ["next"], ["out"])]
    body = helper.make_graph(nodes, "body", ports[:2], ports[2:])
    attributes = {"body": body, "num_scan_inputs": 1}
    shape = (time, size)
    if d.chance(0.4):
        axis = attributes["scan_input_axes"] = [d.one(0, 1, -1, -2)]
        shape = (time, size) if axis[0] in (0, -2) else (size, time)
    if d.chance(0.4):
        attributes["scan_output_axes"] = [d.one(0, 1, -1)]
    if d.chance(0.4):
        attributes["scan_input_directions"] = [d.number(0, 1)]
    if d.chance(0.4):
        attributes["scan_output_directions"] = [d.number(0, 1)]
    return {"inputs": [d.values((size,), "float32", 0, 1.0), d.values(shape, "float32", 0, 1.0)], "attributes": attributes,
            "outputs": d.one([True, True], [True, True], [False, True], [True])}


# Classical models.


def linear_regressor(d):
    size, targets = d.number(1, 4), d.number(1, 3)
    attributes = {"coefficients": [d.real() for _ in range(size * targets)], "targets": targets}
    attributes |= {"intercepts": [d.real() for _ in range(targets)]} if d.chance(0.6) else {}
    attributes |= {"post_transform": d.one("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")} if d.chance(0.5) else {}
    return {"inputs": [d.values((d.number(1, 3), size), d.one("float32", "float32", "int64", "float64"), 0, 1.0)],
            "attributes": attributes}


def linear_classifier(d):
    size, classes = d.number(1, 4), d.number(2, 4)
    models = 1 if classes == 2 and d.chance(0.5) else classes
    attributes = {"coefficients": [d.real() for _ in range(size * models)],
                  "classlabels_ints": [int(each) for each in d.rng.permutation(9)[:classes]]}
    attributes |= {"intercepts": [d.real() for _ in range(models)]} if d.chance(0.8) else {}
    attributes |= {"post_transform": d.one("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")} if d.chance(0.6) else {}
    attributes |= {"multi_class": d.number(0, 1)} if d.chance(0.4) else {}
    return {"inputs": [d.values((d.number(1, 3), size), d.one("float32", "float32", "int64", "float64"), 0, 1.0)],
            "attributes": attributes, "outputs": [True, True]}


def normalizer(d):
    return {"inputs": [d.values((d.number(1, 3), d.number(1, 4)), d.one("float32", "int64", "float64"), 0)],
            "attributes": {"norm": d.one("MAX", "L1", "L2")} if d.chance(0.8) else {}}


def extractor(d):
    shape = (d.number(1, 3), d.number(1, 5))
    at = d.rng.integers(0, shape[1], d.one((d.number(1, 4),), (1, d.number(1, 4)))).astype(np.int64)
    return {"inputs": [d.values(shape, d.one("float32", "int64", "float64", "int32"), 0), at], "constants": d.constants(1)}


def identity(d):
    return {"inputs": [d.values(d.shape(), d.element("T" if d.opset < 14 else "V"))]}


RECIPES = {
    **{name: unary() for name in ("Abs Ceil Floor Round Neg Sign Exp Sqrt Reciprocal Erf Sigmoid Tanh Softplus Softsign Relu "
                                  "HardSwish Mish Not BitwiseNot Atan Asinh Sinh Cosh Log IsNaN Size").split()},
    **{name: domain(-20, 20) for name in ("Sin", "Cos", "Tan")},
    **{name: domain(-1, 1) for name in ("Acos", "Asin", "Atanh")},
    "Acosh": domain(1, 20), "Identity": identity, "Gelu": gelu, "Swish": activation(alpha=(0.2, 2.0)),
    "Celu": activation(alpha=(0.2, 3.0)), "Elu": activation(alpha=(-1.0, 3.0)), "Selu": activation(alpha=(0.2, 3.0), gamma=(0.2, 3.0)),
    "HardSigmoid": activation(alpha=(0.05, 1.0), beta=(-1.0, 1.0)), "LeakyRelu": activation(alpha=(-0.5, 1.5)),
    "ThresholdedRelu": activation(alpha=(-1.0, 2.0)), "Shrink": activation(bias=(-1.0, 1.0), lambd=(0.1, 1.5)),
    **{name: binary() for name in ("Add Sub Mul And Or Xor BitwiseAnd BitwiseOr BitwiseXor Equal Greater Less GreaterOrEqual "
                                   "LessOrEqual").split()},
    "Div": binary(second=nonzero), "Mod": mod, "Pow": power, "BitShift": shift, "PRelu": prelu, "Clip": clip, "Where": where,
    **{name: variadic for name in ("Sum", "Max", "Min", "Mean")},
    **{name: reduction() for name in ("ReduceMean", "ReduceL1", "ReduceL2", "ReduceLogSumExp", "ReduceSumSquare")},
    "ReduceSum": reduction(), **{name: reduction(nan=False) for name in ("ReduceMax", "ReduceMin")},
    "ReduceProd": reduction(0), "ReduceLogSum": reduction(0, True), "ArgMax": arg, "ArgMin": arg, "CumSum": cumsum,
    **{name: along() for name in ("Softmax", "LogSoftmax", "Hardmax")}, "IsInf": is_inf,
    "Conv": convolution, "ConvTranspose": transposed, "ConvInteger": conv_integer, "QLinearConv": qlinear_conv,
    "AveragePool": pool("count_include_pad"), "MaxPool": pool("storage_order"),
    **{name: global_pool for name in ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")},
    "BatchNormalization": batch_norm, "InstanceNormalization": instance_norm, "GroupNormalization": group_norm,
    "LayerNormalization": layer_norm, "RMSNormalization": layer_norm, "LpNormalization": lp_norm, "LRN": lrn,
    "MeanVarianceNormalization": mvn, "RNN": recurrent(1), "GRU": recurrent(3), "LSTM": recurrent(4, True),
    "MatMul": matmul, "Gemm": gemm, "Einsum": einsum, "MatMulInteger": matmul_integer, "QLinearMatMul": qlinear_matmul,
    "QuantizeLinear": quantize, "DequantizeLinear": dequantize, "DynamicQuantizeLinear": dynamic_quantize,
    "Cast": cast, "CastLike": cast_like, "Constant": constant, "ConstantOfShape": constant_of_shape, "Compress": compress,
    "Concat": concat, "Expand": expand, "EyeLike": eye_like, "Flatten": flatten, "Gather": gather,
    "GatherElements": gather_elements, "GatherND": gather_nd, "Scatter": scatter_elements, "ScatterElements": scatter_elements,
    "ScatterND": scatter_nd, "NonZero": non_zero, "OneHot": one_hot, "Pad": pad, "Range": ranges, "Reshape": reshape,
    "Resize": resize, "Shape": shape_of, "Slice": slices, "Split": split, "Squeeze": squeeze, "Unsqueeze": unsqueeze,
    "Tile": tile, "TopK": top_k, "Transpose": transpose, "Trilu": trilu, "Dropout": dropout, "DepthToSpace": blocks,
    "SpaceToDepth": blocks, "GridSample": grid_sample, "NonMaxSuppression": suppression, "RotaryEmbedding": rotary,
    "DFT": dft, "STFT": stft, "MelWeightMatrix": mel_matrix,
    **{name: window_function for name in ("BlackmanWindow", "HammingWindow", "HannWindow")},
    "If": condition, "Scan": scan, "LinearRegressor": linear_regressor, "LinearClassifier": linear_classifier,
    "Normalizer": normalizer, "ArrayFeatureExtractor": extractor,
}
