"""What the tests of Ray and Spark share: rows, what one process makes of them, and clusters of several nodes."""

import os
from collections.abc import Iterator
from typing import Any

import pytest
from pipelines import DIGITS, EMBEDDING, ROOT

NOT_A_PHOTO = b"not a photo"


@pytest.fixture(scope="session")
def photos() -> list[dict[str, Any]]:
    """40 photos, of which the row 7 holds none and the row 11 is null."""
    files = sorted(path for path in (ROOT / "models" / "samples").iterdir() if path.suffix in (".png", ".jpg"))
    rows: list[dict[str, Any]] = [
        {"id": number, "file": path.name, "image": path.read_bytes()} for number, path in enumerate([*files, *files])
    ]
    rows[7]["image"] = NOT_A_PHOTO
    rows[11]["image"] = None
    return rows


@pytest.fixture(scope="session")
def texts() -> list[dict[str, Any]]:
    """8000 short texts."""
    subjects = ["an editor", "a library", "a viewer", "a converter", "a server"]
    return [
        {"id": number, "text": f"{subjects[number % 5]} for files of kind {number} " + "and more " * (number % 7)}
        for number in range(8000)
    ]


@pytest.fixture(scope="session")
def digits_in_one_process(photos: list[dict[str, Any]]) -> list[Any]:
    """For each photo its result, or its error."""
    from gpux import Pipeline

    with Pipeline(DIGITS) as pipeline:
        requests = [{"image": row["image"] or NOT_A_PHOTO} for row in photos]
        return list(pipeline.map(requests))


@pytest.fixture(scope="session")
def vectors_in_one_process(texts: list[dict[str, Any]]) -> list[list[float]]:
    """For each text its vector."""
    from gpux import Pipeline

    with Pipeline(EMBEDDING) as pipeline:
        return [result["embeddings"][0].tolist() for result in pipeline.map([row["text"] for row in texts])]


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[Any]:
    """Two nodes with two slots each."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    node = {"num_cpus": 2, "object_store_memory": 150 * 2**20, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=node)
    cluster.add_node(**{key: value for key, value in node.items() if key != "include_dashboard"})
    ray.init(address=cluster.address, log_to_driver=False)
    ray.data.DataContext.get_current().enable_progress_bars = False
    yield ray
    ray.shutdown()
    cluster.shutdown()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Two executors of one core each, as processes of their own."""
    import sys

    pyspark_sql = pytest.importorskip("pyspark.sql")
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    session = (
        pyspark_sql.SparkSession.builder.master("local-cluster[2,1,1024]")
        .config("spark.ui.enabled", "false")
        .config("spark.local.dir", str(tmp_path_factory.mktemp("spark")))
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.task.maxFailures", "4")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
