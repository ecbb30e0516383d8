"""Rows a second of `gpux.spark.infer`, beside the same job by hand in `mapInArrow`, on executors of one core each.

    python benches/cluster/spark_sql.py --machine "2 cores, quiet"

Needs the packages gpux, pyspark[sql], onnxruntime, pillow, scipy and tokenizers, and Java.
"""

import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import gpux.spark
import pyarrow as pa
import work
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}

ABOUT = (
    "The second of two runs, whose workers have loaded already; results are dropped. One process is `Pipeline.batch`, "
    "which uses all cores, and by hand a loop on one core. By hand, texts run in batches of 32."
)
SCHEMAS = {
    "image": ("id long, image binary", "top string"),
    "text": ("id long, text string", "embeddings array<float>"),
}


def by_hand(kind: type[Any]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function for `mapInArrow` that keeps its model in the worker process."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import builtins

        models = builtins.__dict__.setdefault("models_by_hand", {})
        model = models.get(kind.__name__) or models.setdefault(kind.__name__, kind())
        for batch in batches:
            yield from model(pa.Table.from_batches([batch])).to_batches()

    return run


def rate(frame: DataFrame, rows: int) -> float:
    """Rows a second of the second run."""
    write = frame.write.format("noop").mode("overwrite")
    write.save()
    return rows / work.seconds(write.save)


def main() -> None:
    options = work.arguments()
    works = work.works(options.size)
    cloudpickle.register_pickle_by_value(work)
    rows = [work.row("one process", job, 1, *work.in_one_process(job)) for job in works]
    for workers in options.workers:
        builder = SparkSession.builder.master(f"local-cluster[{workers},1,1024]").config("spark.ui.enabled", "false")
        session = builder.config("spark.log.level", "OFF").getOrCreate()
        for job in works:
            taken, given = SCHEMAS[list(job.rows[0])[1]]
            frame = session.createDataFrame(job.rows, taken).repartition(workers * 4).cache()
            frame.count()
            ours = rate(gpux.spark.infer(frame, job.folder, rows_per_batch=job.block), len(job.rows))
            peer = rate(frame.mapInArrow(by_hand(job.by_hand), f"{taken}, {given}"), len(job.rows))
            rows.append(work.row("Spark", job, workers, ours, peer))
        session.stop()
    work.report("Spark", ABOUT, options.machine, rows, ["pyspark", "pyarrow", "onnxruntime"])


if __name__ == "__main__":
    main()
