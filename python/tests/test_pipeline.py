"""Loading and running pipelines."""

import asyncio
import json
import logging
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from conftest import ROOT

import gpux


def test_many_threads_wait_for_each_other(digits, photo):
    # All at once they would miss the time limit of their component.
    expected = digits(image=photo)
    with ThreadPoolExecutor(100) as pool:
        results = list(pool.map(lambda _: digits(image=photo), range(400)))
    assert results == [expected] * 400


def test_ports(digits):
    (image,) = digits.inputs
    assert (image.name, image.type, image.dtype, image.shape, image.optional) == ("image", "bytes", None, None, False)
    assert image.description == "bytes: a photo or scan of one digit"
    assert repr(digits) == f"Pipeline({str(ROOT)!r}, image: {image.description} -> top: JSON)"
    assert [port.name for port in digits.outputs] == ["top"]
    text = gpux.Pipeline(ROOT / "examples/sentence-embedding")
    (vector,) = text.outputs
    assert (vector.type, vector.dtype) == ("tensor", "float32")
    assert vector.shape[0] in (1, None) or isinstance(vector.shape[0], str)


def test_calls(digits, photo):
    expected = digits.infer({"image": photo})
    assert digits(image=photo) == digits({"image": photo}) == digits(photo) == expected
    with pytest.raises(TypeError):
        digits(photo, image=photo)


def test_a_model_alone(photo):
    pipeline = gpux.Pipeline(ROOT / "models/digits.onnx")
    logits = pipeline(np.zeros((1, 1, 8, 8), "f4"))["logits"]
    assert logits.shape == (1, 10)


def test_map_keeps_order_and_errors_in_their_place(digits):
    paths = sorted((ROOT / "models/samples").glob("*.png"))
    expected = [digits(path)["top"][0]["label"] for path in paths]
    requests = [item for path in paths for item in (path, b"no picture")]
    results = list(digits.map(iter(requests), workers=3))
    assert [result["top"][0]["label"] for result in results[::2]] == expected
    assert all(isinstance(result, gpux.StepError) and result.step == 1 for result in results[1::2])
    assert digits.batch(paths) == results[::2]
    with pytest.raises(gpux.StepError):
        digits.batch(requests)


def test_map_reads_ahead_by_a_bounded_number(digits, photo):
    taken = 0

    def requests():
        nonlocal taken
        for _ in range(10_000):
            taken += 1
            yield photo

    results = digits.map(requests(), workers=2)
    next(results)
    assert taken <= 6
    results.close()
    assert taken <= 6


def test_threads_give_the_same(digits, photo):
    expected = digits(photo)
    results = []

    def work():
        results.extend(digits(photo) for _ in range(5))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected] * 40


def test_async(digits, photo):
    async def work():
        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                await asyncio.sleep(0)
                ticks += 1

        ticking = asyncio.create_task(tick())
        results = await asyncio.gather(*(digits.infer_async(image=photo) for _ in range(10)))
        ticking.cancel()
        cancelled = asyncio.create_task(digits.infer_async(photo))
        await asyncio.sleep(0)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        with pytest.raises(gpux.StepError):
            await digits.infer_async(b"no picture")
        return results, ticks

    results, ticks = asyncio.run(work())
    assert results == [digits(photo)] * 10
    assert ticks > 10


def test_serve(digits, photo):
    with digits.serve() as server:
        request = urllib.request.Request(
            f"{server.url}/predict", photo.read_bytes(), {"Content-Type": "application/octet-stream"}
        )
        with urllib.request.urlopen(request) as answer:
            assert json.load(answer)["top"][0]["label"] == "seven"
        process = server._process
    assert process.returncode is not None
    with pytest.raises(gpux.GPUXError, match="unexpected argument"):
        digits.serve(arguments=["--no-such-flag"])


def test_threads_of_a_session(digits, photo):
    with gpux.Pipeline(ROOT, threads=1) as pipeline:
        assert pipeline.concurrency == 1
        np.testing.assert_allclose(pipeline(photo)["top"][0]["score"], digits(photo)["top"][0]["score"], rtol=1e-5)
        with pipeline.serve() as server:
            assert "--threads=1" in server._process.args
    with pytest.raises(gpux.ConfigurationError, match="threads: write a number above 0"):
        gpux.Pipeline(ROOT, threads=0)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="its onnxruntime is too old for gpux")
def test_onnxruntime_of_this_python(tmp_path, monkeypatch):
    monkeypatch.setenv("GPUX_CACHE_DIR", str(tmp_path))
    for name in ["VIRTUAL_ENV", "CONDA_PREFIX", "ORT_DYLIB_PATH"]:
        monkeypatch.delenv(name, raising=False)
    script = f"""
import gpux
pipeline = gpux.Pipeline({str(ROOT / "models/digits.onnx")!r}, engine="onnxruntime")
with pipeline.serve() as server:
    print(pipeline.engine, server.port > 0)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.startswith("ONNX Runtime 1."), done.stderr
    assert done.stdout.endswith("True\n")


def test_errors_say_what_and_where(tmp_path):
    file = tmp_path / "gpux.yml"
    file.write_text("name: a\nversion: 1.0.0\npipeline:\n  - resize: { sise: [8, 8] }\n")
    with pytest.raises(gpux.ConfigurationError) as caught:
        gpux.Pipeline(tmp_path)
    assert "gpux.yml:4" in str(caught.value)
    assert "^" in str(caught.value)
    assert caught.value.kind == "ConfigurationError"
    assert caught.value.details["diagnostics"]
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.details) == (str(caught.value), caught.value.details)
    with pytest.raises(gpux.ConfigurationError, match="no-such"):
        gpux.Pipeline(tmp_path / "no-such")
    (tmp_path / "bad.onnx").write_bytes(b"not a model")
    with pytest.raises(gpux.ModelLoadError):
        gpux.GPUXRuntime(tmp_path / "bad.onnx")
    with pytest.raises(gpux.GPUXError, match=r"cuda.*cannot be used"):
        gpux.Pipeline(ROOT, provider="cuda", strict=True)
    for wrong in [{"provider": "cudaa"}, {"precision": "int3"}, {"engine": "x"}, {"timeout": 0}, {"allow": ["net"]}]:
        with pytest.raises(gpux.GPUXError):
            gpux.Pipeline(ROOT, **wrong)


def test_a_precision_is_chosen_by_measurement(tmp_path, caplog):
    model = ROOT / "models/digits.onnx"
    options = {"precision": "auto", "provider": "cpu", "engine": "embedded", "cache": tmp_path}
    gpux.Pipeline(model, **options)
    assert "not chosen yet" in caplog.text
    caplog.clear()
    report = gpux.choose_precision(model, **options)
    first = report["candidates"][0]
    assert (first["provider"], first["precision"], first["error"]) == ("cpu", "exact", 0.0)
    assert report["decision"]["precision"] == "exact"
    assert report["is_synthetic"]
    gpux.Pipeline(model, **options)
    assert "not chosen yet" not in caplog.text
    assert gpux.choose_precision(model, precision=None, cache=tmp_path) is None
    with pytest.raises(gpux.GPUXError, match="no-such"):
        gpux.choose_precision(model, [tmp_path / "no-such.json"], **options)


def test_a_limit_is_named(photo):
    with pytest.raises(gpux.GPUXError) as caught:
        gpux.Pipeline(ROOT, limits={"memory": "64KiB"})(photo)
    assert "memory" in str(caught.value)


def test_a_timeout_ends_a_request(photo):
    pipeline = gpux.Pipeline(ROOT, timeout=1e-6)
    with pytest.raises(gpux.StepError, match="timeout"):
        pipeline(photo)


def test_closed(photo):
    with gpux.Pipeline(ROOT) as pipeline:
        pipeline(photo)
    with pytest.raises(RuntimeError, match="closed"):
        pipeline(photo)


def test_warnings_go_to_logging(caplog, capfd):
    with caplog.at_level(logging.WARNING, "gpux"):
        gpux.Pipeline(ROOT, provider="cuda")
    assert any("cuda" in record.message.lower() for record in caplog.records)
    assert capfd.readouterr().err == ""


def test_ctrl_c_ends_a_run(tmp_path):
    script = f"""
import signal
import numpy as np
import gpux
# Python has no handler where whoever started the tests ignores the signal.
signal.signal(signal.SIGINT, signal.default_int_handler)
runtime = gpux.GPUXRuntime({str(ROOT / "models/digits.onnx")!r}, timeout=100)
print("running", flush=True)
try:
    runtime.benchmark({{"image": np.zeros((1, 1, 8, 8), "f4")}}, num_runs=1_000_000_000)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "running\n"
    time.sleep(0.3)
    start = time.monotonic()
    child.send_signal(signal.SIGINT)
    assert child.communicate(timeout=20)[0] == "interrupted\n"
    assert time.monotonic() - start < 10


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_process_says_so(digits, photo):
    digits(photo)
    context = multiprocessing.get_context("fork")
    reader, writer = context.Pipe()

    def work():
        for attempt in (lambda: digits(photo), lambda: gpux.Pipeline(ROOT)):
            with pytest.raises(RuntimeError) as caught:
                attempt()
            writer.send(str(caught.value))

    child = context.Process(target=work)
    child.start()
    for _ in range(2):
        assert reader.poll(30)
        assert "forked" in reader.recv()
    child.join(30)
    assert child.exitcode == 0


def test_a_fork_before_loading_is_fine(photo):
    script = f"""
import os, sys
import gpux
if os.fork() == 0:
    print(gpux.Pipeline({str(ROOT)!r})(open({str(photo)!r}, "rb").read())["top"][0]["label"], flush=True)
    os._exit(0)
os.wait()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout == "seven\n", done.stderr
