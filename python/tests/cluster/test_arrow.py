"""Columns of Arrow as inputs and outputs, around a pipeline that gives back what it takes."""

from dataclasses import dataclass
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")

import numpy as np  # noqa: E402

from gpux import ConfigurationError, StepError, ValidationError  # noqa: E402
from gpux._arrow import SPARK_ELEMENT_TYPES, TableInference, column_values, output_fields, tensor_column  # noqa: E402


@dataclass
class FakePort:
    name: str
    type: str
    dtype: str | None = None
    shape: list[Any] | None = None
    optional: bool = False


class Echo:
    """Gives its inputs as its outputs; fails on the text `bad`."""

    concurrency = 1

    def __init__(self, inputs: list[FakePort], outputs: list[FakePort]) -> None:
        self.inputs, self.outputs = inputs, outputs
        self.ran: list[dict[str, Any]] = []
        self.workers: int | None = None

    def batch(self, requests: list[dict[str, Any]], *, workers: int | None, return_exceptions: bool) -> list[Any]:
        assert return_exceptions
        self.ran += requests
        self.workers = workers
        names = [(port.name, source.name) for port, source in zip(self.outputs, self.inputs, strict=False)]
        return [
            StepError("step 2: it is bad")
            if str(request["x"]) == "bad"
            else {out: request[name] for out, name in names}
            for request in requests
        ]


def values(column: Any, port: FakePort) -> list[Any]:
    return list(column_values(pa.chunked_array([column]), port, "column"))


def echo(kind: str, **options: Any) -> TableInference:
    return TableInference(Echo([FakePort("x", kind)], [FakePort("y", kind)]), **options)


def test_a_failed_row_has_its_error_in_its_place() -> None:
    table = pa.table({"id": [1, 2, 3, 4], "x": ["good", "bad", None, "fine"]})
    result = echo("text").run(table)
    assert result.to_pydict() == {
        "id": [1, 2, 3, 4],
        "x": ["good", "bad", None, "fine"],
        "y": ["good", None, None, "fine"],
        "error": [None, "StepError: step 2: it is bad", "ValidationError: input `x`: column `x` is null", None],
    }
    assert result.schema.field("error").type == pa.string()


def test_a_failed_row_raises_without_an_error_column() -> None:
    inference = echo("text", error_column=None)
    assert inference.run(pa.table({"x": ["good"]})).to_pydict() == {"x": ["good"], "y": ["good"]}
    with pytest.raises(StepError, match="it is bad"):
        inference.run(pa.table({"x": ["good", "bad"]}))
    with pytest.raises(ValidationError, match="column `x` is null"):
        inference.run(pa.table({"x": pa.array([None], pa.string())}))


@pytest.mark.parametrize(
    ("models_run", "options", "workers"),
    [(1, {}, 1), (1, {"processors": 4}, 4), (16, {"processors": 4}, 16), (16, {"processors": 4, "concurrency": 2}, 2)],
)
def test_rows_at_the_same_time(models_run: int, options: dict[str, int], workers: int) -> None:
    pipeline = Echo([FakePort("x", "text")], [FakePort("y", "text")])
    pipeline.concurrency = models_run
    TableInference(pipeline, **options).run(pa.table({"x": ["a"]}))
    assert pipeline.workers == workers


def test_no_rows_have_the_columns_of_some() -> None:
    inference = echo("text")
    empty = inference.run(pa.table({"x": pa.array([], pa.string())}))
    assert empty.num_rows == 0
    assert empty.schema == inference.run(pa.table({"x": ["a"]})).schema


def test_an_optional_input_needs_no_column_and_no_value() -> None:
    pipeline = Echo([FakePort("x", "text"), FakePort("k", "json", optional=True)], [FakePort("y", "text")])
    TableInference(pipeline).run(pa.table({"x": ["a"]}))
    named = TableInference(pipeline, columns={"k": "options"})
    named.run(pa.table({"x": ["a", "b"], "options": [None, '{"a": 1}']}))
    assert pipeline.ran == [{"x": "a"}, {"x": "a"}, {"x": "b", "k": {"a": 1}}]
    with pytest.raises(ConfigurationError, match="there is no column `options`"):
        named.run(pa.table({"x": ["a"]}))


@pytest.mark.parametrize(
    ("table", "columns", "message"),
    [
        ({"z": ["a"]}, {}, "there is no column `x`; the columns are `z`"),
        ({"x": [1]}, {}, "takes text, but column `x` is int64"),
        ({"x": ["a"], "y": ["b"]}, {}, "a column `y` already"),
        ({"x": ["a"], "error": ["b"]}, {}, "a column `error` already"),
        ({"x": ["a"]}, {"q": "x"}, "has no input `q`; it takes `x`"),
    ],
)
def test_columns_that_do_not_fit(table: dict[str, Any], columns: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        echo("text", columns=columns).run(pa.table(table))


@pytest.mark.parametrize(
    ("column", "shape", "expected"),
    [
        (pa.array([[1.0, 2.0], [3.0, 4.0]]), [2], [[1, 2], [3, 4]]),
        (pa.array([[1, 2], [3, 4]]), None, [[1, 2], [3, 4]]),
        (pa.array([[[1], [2]], [[3], [4]]]), [2, 1], [[[1], [2]], [[3], [4]]]),
        (pa.array([[1, 2, 3, 4]], pa.large_list(pa.uint8())), [2, 2], [[[1, 2], [3, 4]]]),
        (pa.array([[1, 2, 3, 4]], pa.list_(pa.int8(), 4)), ["batch", 2], [[[1, 2], [3, 4]]]),
        (pa.array([[[1, 2], [3, 4]]]), ["batch", 2, 2], [[[[1, 2], [3, 4]]]]),
        (pa.array([[1, 2, 3]]), [None, "n"], [[1, 2, 3]]),
        (pa.array([5, 6]), [1], [[5], [6]]),
        (pa.array([5.0]), [], [5.0]),
        (pa.array([True]), [], [1.0]),
        (pa.array([[1, 2], [3, 4], [5, 6]]).slice(1, 1), [2], [[3, 4]]),
        (pa.array([{"shape": [2, 1], "data": [1, 2]}]), None, [[[1], [2]]]),
    ],
)
def test_numbers_become_tensors(column: Any, shape: list[Any] | None, expected: list[Any]) -> None:
    result = values(column, FakePort("x", "tensor", "float32", shape))
    assert [value.dtype for value in result] == [np.float32] * len(expected)
    assert [value.tolist() for value in result] == expected


def test_arrows_tensors_become_tensors() -> None:
    tensors = np.arange(12, dtype=np.float32).reshape(2, 3, 2)
    column = pa.FixedShapeTensorArray.from_numpy_ndarray(tensors)
    result = values(column, FakePort("x", "tensor", "float32", [3, 2]))
    np.testing.assert_array_equal(result, tensors)


@pytest.mark.parametrize(
    ("value", "dtype", "message"),
    [
        ([1, None], "float32", "a list with nulls in it"),
        ([[1], None], "float32", "a list with nulls in it"),
        ([[1, 2], [3]], "float32", "lists of different lengths"),
        ([256], "uint8", "256, which is not a uint8"),
        ([-1], "uint8", "-1, which is not a uint8"),
        ([0.5], "int64", "0.5, which is not a int64"),
        ([2.0**63], "int64", "which is not a int64"),
        ([float("nan")], "int32", "nan, which is not a int32"),
        ([1e300], "float32", r"1e\+300, which is not a float32"),
    ],
)
def test_what_is_no_tensor_is_an_error_of_its_row(value: Any, dtype: str, message: str) -> None:
    (error,) = values(pa.array([value]), FakePort("x", "tensor", dtype))
    with pytest.raises(ValueError, match=message):
        raise error


def test_json_is_parsed_from_text_and_taken_from_other_columns() -> None:
    port = FakePort("x", "json")
    assert values(pa.array(['{"a": [1]}', "7", None]), port) == [{"a": [1]}, 7, None]
    assert values(pa.array([{"a": [1]}]), port) == [{"a": [1]}]
    (error,) = values(pa.array(["{"]), port)
    assert isinstance(error, ValueError)


def test_dictionary_columns_are_read() -> None:
    assert values(pa.array(["a", "b", "a"]).dictionary_encode(), FakePort("x", "text")) == ["a", "b", "a"]


@pytest.mark.parametrize(
    ("tensors", "kind"),
    [
        ([np.float32([1, 2]), None, np.float32([])], pa.list_(pa.float32())),
        ([None, np.zeros((2, 3), np.int64), np.ones((0, 3), np.int64)], pa.list_(pa.list_(pa.int64()))),
        ([np.arange(8).reshape(2, 2, 2), np.arange(2).reshape(1, 2, 1)], pa.list_(pa.list_(pa.list_(pa.int64())))),
        ([np.array(["a", "b"], object)], pa.list_(pa.string())),
        ([np.array([True]), np.array([False, True])], pa.list_(pa.bool_())),
        ([np.float16([0.5])], pa.list_(pa.float32())),
        ([np.uint64([2**64 - 1])], pa.list_(pa.decimal128(20))),
        ([np.uint8([255])], pa.list_(pa.int16())),
        ([np.array(3, np.int64), None], pa.int64()),
    ],
)
def test_tensors_become_lists(tensors: list[Any], kind: Any) -> None:
    column = tensor_column(tensors, kind)
    assert column.type == kind
    assert column.to_pylist() == [None if tensor is None else tensor.tolist() for tensor in tensors]
    column.validate(full=True)


def test_types_of_outputs() -> None:
    outputs = [
        FakePort("text", "text"),
        FakePort("json", "json"),
        FakePort("bytes", "bytes"),
        FakePort("vector", "tensor", "float32", [1, 128]),
        FakePort("rows", "tensor", "uint8", ["rows", 4]),
        FakePort("score", "tensor", "float16", [1]),
        FakePort("open", "tensor", "int64"),
    ]
    types = {field.name: str(field.type) for field in output_fields(outputs)}
    assert types == {
        "text": "string",
        "json": "string",
        "bytes": "binary",
        "vector": "list<item: float>",
        "rows": "list<item: list<item: uint8>>",
        "score": "halffloat",
        "open": "struct<shape: list<item: int64>, data: list<item: int64>>",
    }
    types = {field.name: str(field.type) for field in output_fields(outputs, SPARK_ELEMENT_TYPES)}
    assert (types["rows"], types["score"]) == ("list<item: list<item: int16>>", "float")
    for port in [FakePort("any", "any"), FakePort("tensor", "tensor")]:
        with pytest.raises(ConfigurationError, match="its type is open"):
            output_fields([port])


def test_a_leading_axis_of_one_is_dropped_and_open_shapes_are_structs() -> None:
    pipeline = Echo(
        [FakePort("x", "tensor", "float32", [1, 2]), FakePort("z", "tensor", "float32")],
        [FakePort("y", "tensor", "float32", [1, 2]), FakePort("w", "tensor", "float32")],
    )
    result = TableInference(pipeline).run(pa.table({"x": [[1.0, 2.0], None], "z": [[[1.0], [2.0]], [[3.0]]]}))
    assert result.column("y").to_pylist() == [[1.0, 2.0], None]
    assert result.column("w").to_pylist() == [{"shape": [2, 1], "data": [1.0, 2.0]}, None]
    assert result.column("error").null_count == 1
