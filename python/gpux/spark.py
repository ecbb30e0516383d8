"""Pipelines over the rows of a Spark DataFrame.

    results = gpux.spark.infer(spark.read.parquet("texts"), "sentence-embedding")

Needs `pyspark[sql]`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as sql

from gpux._arrow import SPARK_ELEMENT_TYPES, TableInference, check_new_columns, input_columns, output_fields
from gpux._worker import PipelineSource

__all__ = ["infer"]

MACHINE_OPTIONS = ("provider", "provider_libraries", "provider_options", "strict", "precision")
"""Options that say how a worker's machine computes; the driver may be another kind of machine."""


def infer(
    dataframe: DataFrame,
    path: str | os.PathLike[str],
    *,
    columns: Mapping[str, str] | None = None,
    error_column: str | None = "error",
    rows_per_batch: int = 256,
    concurrency: int | None = None,
    **options: Any,
) -> DataFrame:
    """Runs a pipeline on every row of a DataFrame, in Spark's Python workers.

    The result has the DataFrame's columns, a column for each output, and the error column: null, or `Kind: message`
    where a row failed, whose outputs are then null. Partitions and the order of their rows stay as they are. A worker
    process loads the pipeline once and keeps it for later tasks (`spark.python.worker.reuse`). A worker that dies is
    replaced, and its task runs again.

    Text and JSON come as strings, bytes as binary, tensors as numbers or arrays, as deep as the declared shape without
    a leading axis of length 1. Unsigned integers become the next larger signed type, half precision becomes float.

    The driver loads the pipeline as well, on its CPU, to know the outputs' types.

    Args:
        dataframe: its columns are the inputs of the same names; every other column is passed on.
        path: the pipeline's folder, gpux.yml or model. It is looked for at this path on every machine, below a
            worker's working folder, and among the files of `SparkContext.addFile` and `addArchive`.
        columns: the column of an input, by the input's name, where the names differ.
        error_column: the name of the error column. With `None`, a row that fails ends the job.
        rows_per_batch: rows that are computed before they are passed on, at most.
        concurrency: rows that a worker runs at the same time, by default as many as the models can run, at least
            `spark.task.cpus`.
        options: arguments of `gpux.Pipeline`; by default `threads` is `spark.task.cpus`.

    Raises:
        GPUXError: the pipeline cannot be loaded.
        ConfigurationError: a column is missing, or has the name of one that is added.
        ValueError: a number is out of range.
        pyspark.errors.PythonException: when the result is computed: an error of a worker.
    """
    if rows_per_batch < 1:
        raise ValueError(f"rows_per_batch: {rows_per_batch} is below 1")
    processors = int(dataframe.sparkSession.conf.get("spark.task.cpus", "1") or 1)
    options = {"threads": processors, **options}
    source = PipelineSource.at(path, options)
    on_driver = {name: value for name, value in options.items() if name not in MACHINE_OPTIONS}
    pipeline = PipelineSource.at(path, on_driver).load(_shipped_files())
    input_columns(pipeline.inputs, columns or {})
    fields = output_fields(pipeline.outputs, SPARK_ELEMENT_TYPES)
    if error_column is not None:
        fields.append(pa.field(error_column, pa.string()))
    check_new_columns(dataframe.columns, [field.name for field in fields])
    added = [sql.StructField(field.name, _spark_type(field.type), nullable=True) for field in fields]
    settings = {
        "columns": columns,
        "error_column": error_column,
        "concurrency": concurrency,
        "processors": processors,
    }
    run = partial(_run, source=source, settings=settings, rows=rows_per_batch)
    return dataframe.mapInArrow(run, sql.StructType([*dataframe.schema.fields, *added]))


def _run(
    batches: Iterator[pa.RecordBatch], *, source: PipelineSource, settings: dict[str, Any], rows: int
) -> Iterator[pa.RecordBatch]:
    """A task: the batches of a partition, with their results."""
    pipeline = source.load_once(_shipped_files())
    inference = TableInference(pipeline, element_types=SPARK_ELEMENT_TYPES, **settings)
    for batch in batches:
        for start in range(0, batch.num_rows, rows):
            yield from inference.run(pa.Table.from_batches([batch.slice(start, rows)])).to_batches()


def _shipped_files() -> list[str]:
    """The folder with the files that the application has added."""
    from pyspark import SparkFiles

    try:
        return [SparkFiles.getRootDirectory()]
    except Exception:  # Spark Connect has none.
        return []


def _spark_type(kind: pa.DataType) -> sql.DataType:
    """Spark's name for one of the types that outputs have."""
    if pa.types.is_list(kind):
        return sql.ArrayType(_spark_type(kind.value_type))
    if pa.types.is_struct(kind):
        return sql.StructType([sql.StructField(field.name, _spark_type(field.type)) for field in kind])
    return {
        pa.bool_(): sql.BooleanType(),
        pa.int8(): sql.ByteType(),
        pa.int16(): sql.ShortType(),
        pa.int32(): sql.IntegerType(),
        pa.int64(): sql.LongType(),
        pa.decimal128(20): sql.DecimalType(20),
        pa.float32(): sql.FloatType(),
        pa.float64(): sql.DoubleType(),
        pa.string(): sql.StringType(),
        pa.binary(): sql.BinaryType(),
    }[kind]
