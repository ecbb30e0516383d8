"""The hub's own client against the double: what the tests of gpux take for a hub is one to huggingface_hub, too.

    pip install huggingface_hub==2.4.0 && python client.py
"""
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
REPOSITORIES = HERE / "repositories"


def main():
    double = subprocess.Popen([sys.executable, HERE / "double.py", REPOSITORIES], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True)
    try:
        with tempfile.TemporaryDirectory() as home:
            os.environ |= {"HF_ENDPOINT": double.stdout.readline().strip(), "HF_HOME": home, "HF_HUB_DISABLE_XET": "1",
                           "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
            check()
            gpux(home)
    finally:
        double.kill()
    print("huggingface_hub and gpux take the double for a hub, and gpux uses what huggingface_hub fetched")


def check():
    from huggingface_hub import HfApi, hf_hub_download, snapshot_download
    from huggingface_hub.errors import EntryNotFoundError, GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

    info = HfApi().model_info("test/sentence-mean", files_metadata=True)
    weights = next(sibling for sibling in info.siblings if sibling.rfilename == "onnx/model.onnx")
    assert len(info.sha) == 40 and len(weights.lfs.sha256) == 64 and weights.size == weights.lfs.size
    folder = pathlib.Path(snapshot_download("test/sentence-mean"))
    assert folder.name == info.sha
    for file in (REPOSITORIES / "sentence-mean").rglob("*"):
        if file.is_file():
            assert (folder / file.relative_to(REPOSITORIES / "sentence-mean")).read_bytes() == file.read_bytes()
    for error, arguments in [
        (RepositoryNotFoundError, ["test/nothing", "config.json"]),
        (EntryNotFoundError, ["test/sentence-mean", "nothing.json"]),
    ]:
        try:
            hf_hub_download(*arguments)
            raise AssertionError(error)
        except error:
            pass
    try:
        snapshot_download("test/sentence-mean", revision="v9")
        raise AssertionError("v9")
    except RevisionNotFoundError:
        pass
    try:
        hf_hub_download("test/classifier", "config.json", endpoint=os.environ["HF_ENDPOINT"] + "/fault-gated")
        raise AssertionError("gated")
    except GatedRepoError:
        pass


def gpux(home):
    program = os.environ.get("GPUX", str(HERE.parents[1] / "target/debug/gpux"))
    variables = {**os.environ, "GPUX_STORE": f"{home}/store", "GPUX_CACHE_DIR": f"{home}/cache", "HF_HUB_OFFLINE": "1"}
    subprocess.run([program, "pull", "hf:test/sentence-mean", "--output", f"{home}/sentence-mean"], env=variables,
                   check=True, timeout=300, stdout=subprocess.DEVNULL)
    import tomllib

    lock = tomllib.loads(pathlib.Path(home, "sentence-mean/gpux.lock").read_text())
    (source,) = lock["source"]
    assert source["from"] == "hf://test/sentence-mean@main" and len(source["commit"]) == 40
    assert {"onnx/model.onnx", "tokenizer.json", "config.json"} <= {file["path"] for file in source["files"]}


main()
