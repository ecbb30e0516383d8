"""Pipelines on a Ray cluster: over the rows of a dataset, and as an application of Ray Serve.

    results = gpux.ray.infer(ray.data.read_parquet("texts"), "sentence-embedding", workers=(1, 4))
    ray.serve.run(gpux.ray.application("digits", replicas=(1, 4)))

Needs `ray[data]`, and `ray[serve]` for `application`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ray.data import ActorPoolStrategy, Dataset

from gpux._arrow import TableInference
from gpux._worker import PipelineSource

if TYPE_CHECKING:
    import pyarrow as pa
    from ray.serve import Application

__all__ = ["application", "infer"]


def infer(
    dataset: Dataset,
    path: str | os.PathLike[str],
    *,
    workers: int | tuple[int, int] = 1,
    columns: Mapping[str, str] | None = None,
    error_column: str | None = "error",
    rows_per_batch: int = 256,
    concurrency: int | None = None,
    ray_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> Dataset:
    """Runs a pipeline on every row of a dataset, in actors that have loaded it once each.

    The result has the dataset's columns, a column for each output, and the error column: null, or `Kind: message`
    where a row failed, whose outputs are then null. Rows keep their order. An actor that dies is started again, and
    its unfinished batches run again.

    Text and JSON come as strings, bytes as binary, tensors as numbers or lists, as deep as the declared shape without
    a leading axis of length 1.

    Args:
        dataset: its columns are the inputs of the same names; every other column is passed on.
        path: the pipeline's folder, gpux.yml or model. It is looked for at this path on every node, and below the
            worker's working folder (`working_dir` of Ray's runtime environment).
        workers: actors, or the least and the most of them. Ray waits for ever if a fixed number takes every CPU of
            the cluster while tasks still have to read or write the data.
        columns: the column of an input, by the input's name, where the names differ.
        error_column: the name of the error column. With `None`, the first row that fails ends the job.
        rows_per_batch: rows that an actor takes at a time, at most.
        concurrency: rows that an actor runs at the same time, by default as many as the models can run, at least one
            for each of its CPUs.
        ray_options: arguments of `Dataset.map_batches` for the actors, such as `{"num_gpus": 1}`; by default each
            takes one CPU.
        options: arguments of `gpux.Pipeline`; by default `threads` is an actor's CPUs.

    Raises:
        ValueError: a number is out of range.
        ray.exceptions.RayError: when the result is read: the pipeline cannot be loaded, a column does not fit
            (`ConfigurationError` says which), or a row failed without an error column.
    """
    least, most = (workers, workers) if isinstance(workers, int) else workers
    if not 1 <= least <= most:
        raise ValueError(f"workers: {workers} is no number of actors, or range of them, from 1")
    if rows_per_batch < 1:
        raise ValueError(f"rows_per_batch: {rows_per_batch} is below 1")
    actor = {"num_cpus": 1, **(ray_options or {})}
    processors = _processors(actor)
    result: Dataset = dataset.map_batches(
        _Worker,
        batch_format="pyarrow",
        batch_size=rows_per_batch,
        compute=ActorPoolStrategy(min_size=least, max_size=most),
        fn_constructor_args=(
            PipelineSource.at(path, {"threads": processors, **options}),
            {
                "columns": columns,
                "error_column": error_column,
                "concurrency": concurrency,
                "processors": processors,
            },
        ),
        **actor,
    )
    result.context.execution_options.preserve_order = True
    return result


def _processors(actor: Mapping[str, Any]) -> int:
    """The processors of an actor with these options."""
    return max(1, int(actor.get("num_cpus") or 1))


class _Worker:
    """The actor: a loaded pipeline."""

    def __init__(self, source: PipelineSource, options: dict[str, Any]) -> None:
        self._inference = TableInference(source.load(), **options)

    def __call__(self, table: pa.Table) -> pa.Table:
        return self._inference.run(table)


def application(
    path: str | os.PathLike[str],
    *,
    replicas: int | tuple[int, int] = (1, 4),
    requests: int = 16,
    arguments: Sequence[str] = (),
    ray_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> Application:
    """An application of Ray Serve that forwards `POST /predict` and `GET /info` to the pipeline.

    Each replica starts a `gpux serve` for it on its node, so bodies, answers, errors and statuses are those of
    `gpux serve`. Ray Serve adds replicas while each has more than half of `requests` in flight, and removes idle ones.

    Args:
        path: the pipeline's folder, gpux.yml or model, as for `infer`.
        replicas: replicas, or the least and the most of them.
        requests: requests that Ray Serve gives to a replica at the same time; further ones wait in Ray Serve.
        arguments: further arguments of `gpux serve`.
        ray_options: arguments of Ray Serve's `deployment`, such as `{"ray_actor_options": {"num_gpus": 1}}`.
        options: arguments of `gpux.Pipeline`; by default `threads` is a replica's CPUs. `timeout` has no effect: the
            pipeline's `serving.timeout` counts.

    Raises:
        ImportError: Ray was installed without `ray[serve]`.
        ValueError: a number is out of range.
    """
    from ray import serve

    from gpux._ray_serve import Replica

    least, most = (replicas, replicas) if isinstance(replicas, int) else replicas
    if not 0 <= least <= most or most < 1:
        raise ValueError(f"replicas: {replicas} is no number of replicas, or range of them")
    if requests < 1:
        raise ValueError(f"requests: {requests} is below 1")
    settings: dict[str, Any] = {
        "name": "gpux",
        "max_ongoing_requests": requests,
        "autoscaling_config": {
            "min_replicas": least,
            "max_replicas": most,
            "target_ongoing_requests": max(1, requests / 2),
        },
        **(ray_options or {}),
    }
    source = PipelineSource.at(path, {"threads": _processors(settings.get("ray_actor_options") or {}), **options})
    return serve.deployment(**settings)(Replica).bind(source, list(arguments))
