"""Rows a second of `gpux.ray.infer`, beside the same job by hand in `map_batches`, on a Ray cluster of two nodes.

    python benches/cluster/ray_data.py --machine "2 cores, quiet"

Needs the packages gpux, ray[data], onnxruntime, pillow, scipy and tokenizers.
"""

import logging
import os
import time
from typing import Any

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

import gpux.ray
import ray
import work
from ray.cluster_utils import Cluster

ABOUT = (
    "Steady state: from a job's first block of results to its last. One process is `Pipeline.batch`, which uses all "
    "cores, and by hand a loop on one core. By hand, texts run in batches of 32."
)


def rate(dataset: Any) -> float:
    """Rows a second after the first block."""
    first, last, rows = 0.0, 0.0, 0
    for batch in dataset.iter_batches(batch_size=None, prefetch_batches=0, batch_format="pyarrow"):
        last = time.perf_counter()
        if first:
            rows += batch.num_rows
        else:
            first = last
    return rows / (last - first)


def main() -> None:
    options = work.arguments()
    works = work.works(options.size)
    rows = [work.row("one process", job, 1, *work.in_one_process(job)) for job in works]
    node = {"num_cpus": 2, "object_store_memory": 400 * 2**20}
    cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    cluster.add_node(**node)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    ray.cloudpickle.register_pickle_by_value(work)
    ray.data.DataContext.get_current().enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    try:
        for job in works:
            dataset = ray.data.from_items(job.rows, override_num_blocks=len(job.rows) // job.block).materialize()
            for workers in options.workers:
                ours = rate(gpux.ray.infer(dataset, job.folder, workers=workers, rows_per_batch=job.block))
                pool = ray.data.ActorPoolStrategy(size=workers)
                by_hand = dataset.map_batches(
                    job.by_hand, batch_format="pyarrow", batch_size=job.block, compute=pool, num_cpus=1
                )
                rows.append(work.row("Ray", job, workers, ours, rate(by_hand)))
    finally:
        ray.shutdown()
        cluster.shutdown()
    work.report("Ray", ABOUT, options.machine, rows, ["ray", "pyarrow", "onnxruntime"])


if __name__ == "__main__":
    main()
