"""Pipelines over Spark DataFrames, on a cluster of two executors."""

import json
import os
import shutil
import threading
from typing import Any

import pytest

pytest.importorskip("pyspark.sql")

import numpy as np
import pyarrow as pa
from pipelines import DIGITS, EMBEDDING
from processes import descendants, kill_a_busy, parent
from pyspark.errors import PythonException

import gpux.spark
from gpux import ConfigurationError


def workers() -> list[int]:
    """The Python processes that run tasks: those that a daemon has forked."""
    daemons = set(descendants(lambda command: "pyspark.daemon" in command or "pyspark/daemon" in command))
    return [pid for pid in daemons if parent(pid) in daemons]


def executors() -> list[int]:
    """The JVMs that run tasks."""
    return descendants(lambda command: "CoarseGrainedExecutorBackend" in command)


def partitioned(spark: Any, rows: list[dict[str, Any]], partitions: int, schema: str) -> Any:
    """The rows in this many partitions, in order: after a shuffle, Spark itself would keep none."""
    return spark.createDataFrame(spark.sparkContext.parallelize(rows, partitions), schema)


def test_photos_as_in_one_process(spark: Any, photos: list[dict[str, Any]], digits_in_one_process: list[Any]) -> None:
    frame = partitioned(spark, photos, 4, "id long, file string, image binary")
    result = gpux.spark.infer(frame, DIGITS, rows_per_batch=3)
    assert result.schema.simpleString() == "struct<id:bigint,file:string,image:binary,top:string,error:string>"
    rows = result.collect()
    assert [row.id for row in rows] == list(range(len(photos)))
    assert [row.file for row in rows] == [row["file"] for row in photos]
    for row, alone in zip(rows, digits_in_one_process, strict=True):
        if row.id == 7:
            assert row.top is None
            assert row.error == f"StepError: {alone}"
        elif row.id == 11:
            assert row.top is None
            assert row.error == "ValidationError: input `image`: column `image` is null"
        else:
            assert row.error is None
            assert json.loads(row.top) == alone["top"]


@pytest.mark.parametrize("processes", [workers, executors])
def test_texts_as_in_one_process_after_one_was_killed(
    spark: Any, texts: list[dict[str, Any]], vectors_in_one_process: list[list[float]], processes: Any
) -> None:
    frame = partitioned(spark, texts, 12, "id long, text string")
    result = gpux.spark.infer(frame, EMBEDDING, rows_per_batch=50)
    assert result.schema["embeddings"].dataType.simpleString() == "array<float>"
    rows: list[Any] = []
    job = threading.Thread(target=lambda: rows.extend(result.collect()))
    job.start()
    kill_a_busy(processes, job.is_alive)
    job.join()
    assert [row.id for row in rows] == list(range(len(texts)))
    assert {row.error for row in rows} == {None}
    np.testing.assert_allclose([row.embeddings for row in rows], vectors_in_one_process, atol=1e-6)


def test_a_worker_keeps_its_pipeline(spark: Any, texts: list[dict[str, Any]]) -> None:
    def loaded(batches: Any) -> Any:
        from gpux import _worker

        for batch in batches:
            ids = " ".join(str(id(pipeline)) for pipeline in _worker._loaded.values())
            yield pa.RecordBatch.from_pylist([{"pid": os.getpid(), "loaded": ids}] * batch.num_rows)

    frame = spark.createDataFrame(texts[:40], "id long, text string").repartition(8)
    result = gpux.spark.infer(frame, EMBEDDING)
    for _ in range(2):
        assert [row.error for row in result.collect()] == [None] * 40
    seen = {(row.pid, row.loaded) for row in frame.mapInArrow(loaded, "pid long, loaded string").collect()}
    assert 1 <= len(seen) <= 2
    assert any(pipelines for _, pipelines in seen)


def test_columns_by_name_and_an_error_column_of_another_name(spark: Any, texts: list[dict[str, Any]]) -> None:
    frame = spark.createDataFrame([(row["text"],) for row in texts[:3]], "title string")
    result = gpux.spark.infer(frame, EMBEDDING, columns={"text": "title"}, error_column="problem")
    assert result.columns == ["title", "embeddings", "problem"]
    assert [row.problem for row in result.collect()] == [None] * 3


def test_a_row_fails_the_job_without_an_error_column(spark: Any, photos: list[dict[str, Any]]) -> None:
    frame = spark.createDataFrame(photos[6:9], "id long, file string, image binary")
    with pytest.raises(PythonException, match=r"StepError: .*not an image"):
        gpux.spark.infer(frame, DIGITS, error_column=None).collect()


def test_columns_that_do_not_fit(spark: Any) -> None:
    frame = spark.createDataFrame([(b"", 1)], "image binary, top int")
    with pytest.raises(ConfigurationError, match="there is a column `top` already"):
        gpux.spark.infer(frame, DIGITS)
    with pytest.raises(ConfigurationError, match="the pipeline has no input `photo`"):
        gpux.spark.infer(frame.drop("top"), DIGITS, columns={"photo": "image"})
    with pytest.raises(PythonException, match="there is no column `picture`"):
        gpux.spark.infer(frame.drop("top"), DIGITS, columns={"image": "picture"}).collect()


def test_a_folder_that_was_shipped(spark: Any, texts: list[dict[str, Any]], tmp_path: Any, monkeypatch: Any) -> None:
    archive = shutil.make_archive(str(tmp_path / "embedding"), "zip", EMBEDDING)
    spark.sparkContext.addArchive(f"{archive}#shipped-embedding")
    monkeypatch.chdir(tmp_path)
    frame = spark.createDataFrame(texts[:3], "id long, text string")
    assert [row.error for row in gpux.spark.infer(frame, "shipped-embedding").collect()] == [None] * 3


def test_other_columns_of_every_type_are_passed_on(spark: Any) -> None:
    frame = spark.sql(
        "SELECT 'a text' AS text, 1.5D AS d, DATE'2026-01-02' AS day, TIMESTAMP'2026-01-02 03:04:05' AS time, "
        "MAP('k', 1) AS pairs, NAMED_STRUCT('a', ARRAY(1, 2)) AS deep, 1.25BD AS money, NULL AS none, "
        "INTERVAL '1' DAY AS span"
    )
    row = gpux.spark.infer(frame, EMBEDDING).collect()[0]
    before = frame.collect()[0]
    assert {name: row[name] for name in frame.columns} == before.asDict()
