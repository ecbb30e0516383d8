"""Where a worker finds its pipeline, and how long it keeps it."""

from pathlib import Path

import pytest
from pipelines import EMBEDDING, SCORES

from gpux import _worker
from gpux._worker import PipelineSource


def test_the_drivers_path_comes_first_then_the_working_folder_then_shipped_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("driver", "here", "shipped"):
        (tmp_path / name / "pipeline").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "driver")
    source = PipelineSource.at("pipeline", {})
    monkeypatch.chdir(tmp_path / "here")
    roots = [str(tmp_path / "shipped")]
    for name in ("driver", "here", "shipped"):
        assert source.locate(roots) == str(tmp_path / name / "pipeline")
        (tmp_path / name / "pipeline").rmdir()
    with pytest.raises(FileNotFoundError, match=r"no pipeline on this machine at .*driver.*here.*shipped"):
        source.locate(roots)


def test_a_process_loads_a_pipeline_once_and_keeps_few() -> None:
    source = PipelineSource.at(SCORES, {})
    loaded = source.load_once()
    assert source.load_once() is loaded
    assert PipelineSource.at(SCORES, {}).load_once() is not loaded
    for _ in range(_worker.MAX_LOADED):
        PipelineSource.at(SCORES, {}).load_once()
    assert source.load_once() is not loaded
    assert len(_worker._loaded) == _worker.MAX_LOADED


def test_options_reach_the_pipeline() -> None:
    with PipelineSource.at(EMBEDDING, {"engine": "embedded"}).load() as pipeline:
        assert "embedded" in pipeline.engine


def test_a_worker_has_the_threads_of_its_processors() -> None:
    ray = pytest.importorskip("gpux.ray")
    actors = ({}, {"num_cpus": 4}, {"num_cpus": 0.5}, {"num_gpus": 1})
    assert [ray._processors(actor) for actor in actors] == [1, 4, 1, 1]
