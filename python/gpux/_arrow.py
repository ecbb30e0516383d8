"""Rows of Arrow tables as requests to a pipeline, and results as columns: the part that Ray and Spark share."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gpux import ConfigurationError, StepError, ValidationError

if TYPE_CHECKING:
    from gpux import Pipeline, Port

ELEMENT_TYPES: dict[str, pa.DataType] = {
    "bool": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "uint8": pa.uint8(),
    "uint16": pa.uint16(),
    "uint32": pa.uint32(),
    "uint64": pa.uint64(),
    "float16": pa.float16(),
    "bfloat16": pa.float32(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "string": pa.string(),
}

SPARK_ELEMENT_TYPES: dict[str, pa.DataType] = {
    **ELEMENT_TYPES,
    "uint8": pa.int16(),
    "uint16": pa.int32(),
    "uint32": pa.int64(),
    "uint64": pa.decimal128(20),
    "float16": pa.float32(),
}
"""Spark has no unsigned integers and no half precision: the next type that holds every value."""


class TableInference:
    """Runs a pipeline on each row of Arrow tables.

    A result has the columns of its table, a column for each output of the pipeline, and the error column: null, or
    `Kind: message` where the row failed, whose outputs are then null. Rows keep their order.

    Args:
        pipeline: runs the rows, several at a time.
        columns: the column of an input, by the input's name. An input that is not named takes the column of its name.
        error_column: the name of the error column; with `None`, the first row that fails raises its error.
        concurrency: rows that run at the same time, by default as many as the models can run, at least one for each of
            `processors`: a model that has one thread is slower with two callers.
        processors: how many this worker may use.
        element_types: the Arrow type of each element type of tensors.

    Raises:
        ConfigurationError: `columns` names an input that the pipeline lacks, or an output has no Arrow type.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        columns: Mapping[str, str] | None = None,
        error_column: str | None = "error",
        concurrency: int | None = None,
        processors: int = 1,
        element_types: Mapping[str, pa.DataType] = ELEMENT_TYPES,
    ) -> None:
        self._pipeline = pipeline
        self._inputs = input_columns(pipeline.inputs, columns or {})
        self._named = set(columns or {})
        self._error_column = error_column
        self._concurrency = concurrency or max(pipeline.concurrency, processors)
        self.fields = output_fields(pipeline.outputs, element_types)
        """The columns that are added, in order, without the error column."""

    def run(self, table: pa.Table) -> pa.Table:
        """The table with its results.

        Raises:
            ConfigurationError: a column is missing, is of a type that its input does not take, or has the name of an
                output.
            GPUXError: a row failed, and there is no error column.
        """
        added = [field.name for field in self.fields] + ([self._error_column] if self._error_column else [])
        check_new_columns(table.schema.names, added)
        requests = list(self._requests(table))
        valid = [request for request in requests if not isinstance(request, BaseException)]
        answers = iter(self._pipeline.batch(valid, workers=self._concurrency, return_exceptions=True) if valid else ())
        results = [request if isinstance(request, BaseException) else next(answers) for request in requests]
        for result in results:
            if isinstance(result, BaseException) and not (self._error_column and is_row_error(result)):
                raise result
        rows = [None if isinstance(result, BaseException) else result for result in results]
        for field in self.fields:
            values = [None if row is None else row[field.name] for row in rows]
            table = table.append_column(field, output_column(values, field.type))
        if self._error_column:
            errors = [describe(result) if isinstance(result, BaseException) else None for result in results]
            table = table.append_column(pa.field(self._error_column, pa.string()), pa.array(errors, pa.string()))
        return table

    def _requests(self, table: pa.Table) -> Iterator[dict[str, Any] | ValidationError]:
        """Each row's inputs by name, or why they cannot be read."""
        readers: list[tuple[Port, str, Iterator[Any]]] = []
        for port, name in self._inputs:
            places = table.schema.get_all_field_indices(name)
            if len(places) == 1:
                readers.append((port, name, column_values(table.column(places[0]), port, name)))
            elif len(places) > 1:
                raise ConfigurationError(f"input `{port.name}`: {len(places)} columns are named `{name}`")
            elif not port.optional or port.name in self._named:
                known = ", ".join(f"`{column}`" for column in table.schema.names)
                raise ConfigurationError(
                    f"input `{port.name}`: there is no column `{name}`; the columns are {known}. "
                    f'Name one with `columns={{"{port.name}": …}}`'
                )
        for _ in range(table.num_rows):
            request: dict[str, Any] = {}
            error: ValidationError | None = None
            for port, name, values in readers:
                value = next(values)
                if isinstance(value, ValueError) or (value is None and not port.optional):
                    reason = "null" if value is None else str(value)
                    error = error or ValidationError(f"input `{port.name}`: column `{name}` is {reason}")
                elif value is not None:
                    request[port.name] = value
            yield error or request


def is_row_error(error: BaseException) -> bool:
    """Whether `error` is about one row, so that others may be fine."""
    return isinstance(error, (ValidationError, StepError))


def describe(error: BaseException) -> str:
    """`Kind: message`."""
    return f"{type(error).__name__}: {error}"


def check_new_columns(columns: Sequence[str], added: Sequence[str]) -> None:
    """Raises a `ConfigurationError` if a column that is to be added is there already."""
    for name in added:
        if name in columns or added.count(name) > 1:
            raise ConfigurationError(
                f"there is a column `{name}` already; rename it before, as a column is added for it"
            )


def input_columns(inputs: Sequence[Port], columns: Mapping[str, str]) -> list[tuple[Port, str]]:
    """Each input with its column's name.

    Raises:
        ConfigurationError: the pipeline lacks an input that `columns` names.
    """
    names = [port.name for port in inputs]
    for name in columns:
        if name not in names:
            known = ", ".join(f"`{name}`" for name in names)
            raise ConfigurationError(f"columns: the pipeline has no input `{name}`; it takes {known}")
    return [(port, columns.get(port.name, port.name)) for port in inputs]


def output_fields(outputs: Sequence[Port], element_types: Mapping[str, pa.DataType] = ELEMENT_TYPES) -> list[pa.Field]:
    """The Arrow column of each output; every one may be null.

    Text and JSON are strings, bytes are binary. A tensor is a number, or lists as deep as its declared shape without
    a leading axis of length 1. Without a declared rank it is `struct<shape: list<int64>, data: list<…>>`.

    Raises:
        ConfigurationError: an output's type is open.
    """
    return [pa.field(port.name, output_type(port, element_types)) for port in outputs]


def output_type(port: Port, element_types: Mapping[str, pa.DataType]) -> pa.DataType:
    """The Arrow type of an output's column."""
    if port.type in ("text", "json"):
        return pa.string()
    if port.type == "bytes":
        return pa.binary()
    element = element_types.get(port.dtype or "") if port.type == "tensor" else None
    if element is None:
        raise ConfigurationError(
            f"output `{port.name}`: its type is open, so its column has none; declare it under `outputs:` in gpux.yml"
        )
    if port.shape is None:
        return pa.struct([("shape", pa.list_(pa.int64())), ("data", pa.list_(element))])
    for _ in port.shape[1:] if port.shape[:1] == [1] else port.shape:
        element = pa.list_(element)
    return element


# Columns to values of requests.


def column_values(column: pa.ChunkedArray, port: Port, name: str) -> Iterator[Any]:
    """The column's values as `port` takes them: `None` for null, a `ValueError` for what cannot be read.

    Raises:
        ConfigurationError: the input does not take such a column.
    """
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if not takes(port.type, column.type):
        raise ConfigurationError(f"input `{port.name}` takes {port.type}, but column `{name}` is {column.type}")
    if port.type == "tensor":
        return (value for chunk in column.chunks for value in tensors(chunk, port.dtype, port.shape))
    values = (value for chunk in column.chunks for value in chunk.to_pylist())
    return (parsed(value) for value in values) if port.type == "json" and is_text(column.type) else values


def takes(kind: str, column: pa.DataType) -> bool:
    """Whether an input of this kind reads such columns."""
    if kind == "text":
        return is_text(column)
    if kind == "bytes":
        return is_bytes(column)
    if kind == "tensor":
        return not is_bytes(column)
    return True


def is_text(column: pa.DataType) -> bool:
    """Whether the column has strings."""
    return str(column) in ("string", "large_string", "string_view")


def is_bytes(column: pa.DataType) -> bool:
    """Whether the column has byte strings."""
    return str(column) in ("binary", "large_binary", "binary_view") or str(column).startswith("fixed_size_binary")


def is_list(column: pa.DataType) -> bool:
    """Whether the column has lists."""
    return bool(pa.types.is_list(column) or pa.types.is_large_list(column) or pa.types.is_fixed_size_list(column))


def parsed(text: str | None) -> Any:
    """The value of JSON text."""
    try:
        return None if text is None else json.loads(text)
    except ValueError as error:
        return ValueError(f"no JSON: {error}")


def tensors(column: pa.Array, dtype: str | None, shape: Sequence[int | str | None] | None) -> Iterator[Any]:
    """The rows of a column as arrays of `dtype`, in the declared shape where their values fill it in one way.

    Takes numbers, lists of lists, Arrow's and Ray's tensor types, and structs of `shape` and `data`. `None` stands for
    null; a `ValueError` for a row that is ragged, holds nulls, or has a number that `dtype` cannot hold.
    """
    fixed: Sequence[int] | None = None
    if isinstance(column.type, pa.BaseExtensionType):
        fixed = None if pa.types.is_struct(column.type.storage_type) else getattr(column.type, "shape", None)
        if getattr(column.type, "permutation", None) not in (None, list(range(len(fixed or ())))):
            raise ConfigurationError(f"tensors of {column.type} have permuted axes; store them in order")
        column = column.storage
    for row in column:
        if not row.is_valid:
            yield None
            continue
        try:
            yield in_shape(as_dtype(array(row, fixed), dtype), shape)
        except ValueError as error:
            yield error


def array(row: pa.Scalar, fixed: Sequence[int] | None) -> np.ndarray[Any, Any]:
    """One row's values; `fixed` is the shape of values that are stored flat."""
    if isinstance(row, pa.StructScalar):
        if {"data", "shape"} - set(row):
            raise ValueError("a struct without `data` and `shape`")
        return array(row["data"], row["shape"].as_py())
    if not isinstance(row, pa.ListScalar | pa.LargeListScalar | pa.FixedSizeListScalar):
        return np.asarray(row.as_py())
    values = row.values
    lengths_by_axis = [len(values)]
    while is_list(values.type):
        if values.null_count:
            raise ValueError("a list with nulls in it")
        lengths = pc.unique(pc.list_value_length(values)).to_pylist()
        if len(lengths) > 1:
            raise ValueError("lists of different lengths")
        lengths_by_axis.append(lengths[0] if lengths else 0)
        values = values.flatten()
    if values.null_count:
        raise ValueError("a list with nulls in it")
    return np.asarray(values.to_numpy(zero_copy_only=False)).reshape(lengths_by_axis if fixed is None else fixed)


def as_dtype(values: np.ndarray[Any, Any], dtype: str | None) -> np.ndarray[Any, Any]:
    """The numbers as `dtype`; floats may lose digits, other numbers must fit.

    Raises:
        ValueError: a number that `dtype` cannot hold.
    """
    is_number = values.dtype.kind in "biuf"
    if dtype is None or not is_number or dtype in ("string", "bfloat16") or values.dtype == np.dtype(dtype):
        return values
    with np.errstate(over="ignore", invalid="ignore"):
        cast = values.astype(dtype)
        fits = np.isfinite(cast) == np.isfinite(values) if cast.dtype.kind == "f" else cast == values
    if values.dtype.kind == "f" and cast.dtype.kind in "iu":
        # As a float, the largest integer may be rounded to the next one, and so compare equal to it.
        fits &= values < float(np.iinfo(cast.dtype).max) + 1.0
    if not fits.all():
        raise ValueError(f"{values[~fits].flat[0]}, which is not a {dtype}")
    return cast


def in_shape(values: np.ndarray[Any, Any], shape: Sequence[int | str | None] | None) -> np.ndarray[Any, Any]:
    """Flat values in the declared shape, if they fill it in one way, and values without its leading axis with one."""
    if shape is None or values.ndim == len(shape):
        return values
    if values.ndim == len(shape) - 1 > 1:
        return values[np.newaxis]
    if values.ndim > 1:
        return values
    known = [size for size in shape if isinstance(size, int)]
    size, is_open = int(np.prod(known)), len(known) < len(shape)
    if values.size == size:
        return values.reshape([size if isinstance(size, int) else 1 for size in shape])
    if is_open and len(known) == len(shape) - 1 and size and values.size % size == 0:
        return values.reshape([size if isinstance(size, int) else -1 for size in shape])
    return values


# Values of results to columns.


def output_column(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """The values of an output as a column; `None` becomes null."""
    if any(isinstance(value, np.ndarray) for value in values):
        return tensor_column(values, kind)
    if pa.types.is_string(kind):
        values = [value if value is None or isinstance(value, str) else dumped(value) for value in values]
    return pa.array(values, kind)


def dumped(value: Any) -> str:
    """A value as compact JSON text."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def tensor_column(values: Sequence[np.ndarray[Any, Any] | None], kind: pa.DataType) -> pa.Array:
    """Arrays as numbers or lists, or as structs of shape and data."""
    if pa.types.is_struct(kind):
        data = [None if value is None else value.reshape(-1) for value in values]
        shapes = [None if value is None else np.array(value.shape, np.int64) for value in values]
        columns = [tensor_column(shapes, kind.field("shape").type), tensor_column(data, kind.field("data").type)]
        return pa.StructArray.from_arrays(columns, fields=list(kind), mask=nulls(values))
    depth, element = 0, kind
    while pa.types.is_list(element):
        depth, element = depth + 1, element.value_type
    arrays = [None if value is None else of_depth(value, depth) for value in values]
    if depth == 0:
        return pa.array([None if array is None else array.item() for array in arrays], element)
    sizes = [(0,) * depth if array is None else array.shape for array in arrays]
    column = elements([array for array in arrays if array is not None], element)
    for level in reversed(range(depth)):
        lengths = [np.full(int(np.prod(size[:level])), size[level], np.int64) for size in sizes]
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.concatenate(lengths))])
        mask = nulls(values) if level == 0 else None
        column = pa.ListArray.from_arrays(pa.array(offsets).cast(pa.int32()), column, mask=mask)
    return column


def of_depth(value: np.ndarray[Any, Any], depth: int) -> np.ndarray[Any, Any]:
    """The tensor, without the leading axis of length 1 that its column does not have."""
    if value.ndim == depth + 1 and value.shape[0] == 1:
        value = value[0]
    if value.ndim != depth:
        raise ValueError(f"a tensor of {value.ndim} axes where {depth} are declared")
    return value


def elements(arrays: Sequence[np.ndarray[Any, Any]], element: pa.DataType) -> pa.Array:
    """The elements of all arrays, one after the other."""
    flat = np.concatenate([array.reshape(-1) for array in arrays]) if arrays else np.empty(0)
    if pa.types.is_string(element) or pa.types.is_decimal(element):
        return pa.array(flat.tolist(), element)
    if flat.dtype.kind not in "biuf":
        flat = flat.astype(np.float32)
    return pa.array(flat).cast(element)


def nulls(values: Sequence[Any]) -> pa.Array:
    """Which values are missing."""
    return pa.array([value is None for value in values], pa.bool_())
