"""Pipelines over Ray datasets and behind Ray Serve, on a cluster of two nodes."""

import json
import os
import signal
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ray = pytest.importorskip("ray")
pytest.importorskip("ray.data")

import numpy as np  # noqa: E402
from pipelines import DIGITS, EMBEDDING, SCORES  # noqa: E402
from processes import descendants, kill_a_busy, parent  # noqa: E402

import gpux.ray  # noqa: E402

pytestmark = pytest.mark.usefixtures("ray_cluster")


def workers() -> list[int]:
    """The processes of the actors."""
    return descendants(lambda command: command.startswith("ray::") and "_Worker" in command)


def test_photos_as_in_one_process(photos: list[dict[str, Any]], digits_in_one_process: list[Any]) -> None:
    dataset = ray.data.from_items(photos, override_num_blocks=8)
    rows = gpux.ray.infer(dataset, DIGITS, workers=2, rows_per_batch=4).take_all()
    assert [row["id"] for row in rows] == list(range(len(photos)))
    assert [row["file"] for row in rows] == [row["file"] for row in photos]
    for row, alone in zip(rows, digits_in_one_process, strict=True):
        if row["id"] == 7:
            assert row["top"] is None
            assert row["error"] == f"StepError: {alone}"
        elif row["id"] == 11:
            assert row["top"] is None
            assert row["error"] == "ValidationError: input `image`: column `image` is null"
        else:
            assert row["error"] is None
            assert json.loads(row["top"]) == alone["top"]


def test_texts_as_in_one_process_after_workers_were_killed(
    texts: list[dict[str, Any]], vectors_in_one_process: list[list[float]]
) -> None:
    dataset = ray.data.from_items(texts, override_num_blocks=80)
    result = gpux.ray.infer(dataset, EMBEDDING, workers=2, rows_per_batch=25)
    job = threading.Thread(target=lambda: rows.extend(result.take_all()))
    rows: list[dict[str, Any]] = []
    job.start()
    killed = {kill_a_busy(workers, job.is_alive) for _ in range(2)}
    job.join()
    assert len(killed) == 2
    assert [row["id"] for row in rows] == list(range(len(texts)))
    assert {row["error"] for row in rows} == {None}
    np.testing.assert_allclose([row["embeddings"] for row in rows], vectors_in_one_process, atol=1e-6)


def test_tensors_of_ray_are_inputs() -> None:
    tensors = [np.float32([[1, 2], [3, 4]]), np.float32([[0, 0], [0, 0]])]
    rows = gpux.ray.infer(ray.data.from_items([{"x": tensor} for tensor in tensors]), SCORES).take_all()
    expected = [[[0.26894143, 0.7310586], [0.26894143, 0.7310586]], [[0.5, 0.5], [0.5, 0.5]]]
    np.testing.assert_allclose([np.stack(row["scores"]) for row in rows], expected, rtol=1e-6)
    odd = [{"x": tensors[0]}, {"x": np.float32([[1, 2]])}]
    rows = gpux.ray.infer(ray.data.from_items(odd, override_num_blocks=1), SCORES).take_all()
    assert [row["error"] and row["error"].partition(":")[0] for row in rows] == [None, "ValidationError"]


def test_columns_by_name_and_an_error_column_of_another_name(texts: list[dict[str, Any]]) -> None:
    dataset = ray.data.from_items([{"title": row["text"]} for row in texts[:3]])
    rows = gpux.ray.infer(dataset, EMBEDDING, columns={"text": "title"}, error_column="problem").take_all()
    assert [set(row) for row in rows] == [{"title", "embeddings", "problem"}] * 3


def test_a_row_fails_the_job_without_an_error_column(photos: list[dict[str, Any]]) -> None:
    result = gpux.ray.infer(ray.data.from_items(photos[6:9]), DIGITS, error_column=None)
    with pytest.raises(ray.exceptions.RayTaskError, match=r"StepError: .*not an image"):
        result.take_all()


@pytest.mark.parametrize(
    ("rows", "arguments", "message"),
    [
        ([{"picture": b""}], {}, "input `image`: there is no column `image`"),
        ([{"image": 5}], {}, "input `image` takes bytes, but column `image` is int64"),
        ([{"image": b"", "top": 1}], {}, "there is a column `top` already"),
        ([{"image": b""}], {"columns": {"photo": "image"}}, "the pipeline has no input `photo`"),
    ],
)
def test_columns_that_do_not_fit(rows: list[dict[str, Any]], arguments: dict[str, Any], message: str) -> None:
    result = gpux.ray.infer(ray.data.from_items(rows), DIGITS, **arguments)
    with pytest.raises(Exception, match=message):
        result.take_all()


def test_a_pipeline_that_is_not_there() -> None:
    result = gpux.ray.infer(ray.data.from_items([{"x": 1}]), "nowhere/at-all")
    with pytest.raises(Exception, match=r"no pipeline on this machine at .*nowhere/at-all"):
        result.take_all()


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The digits pipeline behind Ray Serve."""
    serve = pytest.importorskip("ray.serve")
    serve.start(http_options={"port": 18471, "location": "HeadOnly"})
    scaling = {"min_replicas": 1, "max_replicas": 2, "target_ongoing_requests": 2, "upscale_delay_s": 1}
    application = gpux.ray.application(DIGITS, requests=4, ray_options={"autoscaling_config": scaling})
    serve.run(application, route_prefix="/digits")
    yield "http://127.0.0.1:18471/digits"
    serve.shutdown()


def post(url: str, body: bytes, content_type: str = "application/json") -> tuple[int, Any]:
    """Status and JSON of an answer."""
    request = urllib.request.Request(url, body, {"content-type": content_type})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_serve_answers_as_gpux_serve(url: str, photos: list[dict[str, Any]], digits_in_one_process: list[Any]) -> None:
    status, body = post(f"{url}/predict", photos[0]["image"], "image/png")
    assert (status, body["top"][0]["label"]) == (200, digits_in_one_process[0]["top"][0]["label"])
    status, body = post(f"{url}/predict", b'{"picture": 1}')
    assert (status, body["error"], body["details"]["field"]) == (400, "ValidationError", "picture")
    status, body = post(f"{url}/predict?trace=true", b"no photo", "image/png")
    assert (status, body["error"], body["details"]["step"]) == (400, "StepError", 1)
    assert body["details"]["trace"]["steps"][0]["name"] == "decode-image"
    status, body = post(f"{url}/elsewhere", b"{}")
    assert (status, body["error"]) == (404, "NotFound")


def test_serve_adds_replicas_under_load_and_replaces_a_killed_one(url: str, photos: list[dict[str, Any]]) -> None:
    def replicas() -> list[int]:
        return descendants(lambda command: command.startswith("ray::ServeReplica"))

    def servers() -> list[int]:
        return descendants(lambda command: "gpux serve" in command and not command.startswith("sh "))

    ends, statuses = threading.Event(), []

    def client() -> None:
        while not ends.is_set():
            statuses.append(post(f"{url}/predict", photos[0]["image"], "image/png")[0])

    clients = [threading.Thread(target=client) for _ in range(8)]
    for thread in clients:
        thread.start()
    wait_for(lambda: len(servers()) == 2)
    ends.set()
    for thread in clients:
        thread.join()
    assert set(statuses) == {200}
    server = servers()[0]
    replica = parent(server)
    assert replica in replicas()
    os.kill(replica, signal.SIGKILL)
    wait_for(lambda: not Path(f"/proc/{server}").exists())
    wait_for(lambda: post(f"{url}/predict", photos[0]["image"], "image/png")[0] == 200)


def wait_for(holds: Any) -> None:
    """Waits until the condition holds."""
    deadline = time.monotonic() + 90
    while not holds():
        assert time.monotonic() < deadline, "it did not come true within 90 s"
        time.sleep(0.1)
