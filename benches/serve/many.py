"""Many isolated pipelines: from the start of `gpux serve` until all are ready, and memory, beside `--isolation none`.

    python benches/serve/many.py [--gpux target/release/gpux] [--counts 1 10 100] [--repeats 1] --engine-library LIBRARY

The pipelines are copies of the digits with their component, each a model of its own. The first start, which fills a
cache of their own, is not counted. Memory is proportional (PSS): each shared page divided by those who share it. An idle process is
the difference between the first and the last count, for each pipeline.
"""

import argparse
import os
import pathlib
import shutil
import statistics
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).parents[2]


def write(folder, count):
    """Folders of pipelines that differ in their names."""
    text = (ROOT / "gpux.yml").read_text()
    for old, new in (("./models/", "./"), ("./guest-examples/rust/", "./")):
        text = text.replace(old, new)
    for index in range(count):
        own = folder / f"p{index:03}"
        own.mkdir()
        (own / "gpux.yml").write_text(text.replace("name: digits", f"name: digits{index:03}"))
        for file in ("models/digits.onnx", "models/digits.labels.txt", "guest-examples/rust/center-ink.wasm"):
            shutil.copy(ROOT / file, own)
        yield own


def descendants(pid):
    found = [pid]
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += descendants(int(child))
    return found


def memory(pid):
    """Proportional and private memory of a process, in KiB."""
    lines = (line.split() for line in open(f"/proc/{pid}/smaps_rollup"))
    sizes = {words[0]: int(words[1]) for words in lines if words[0].endswith(":")}
    return sizes["Pss:"], sizes["Private_Dirty:"]


def is_ready(url):
    try:
        return urllib.request.urlopen(url).status == 200
    except (urllib.error.URLError, ConnectionError):
        return False


def start(gpux, folders, isolation, options):
    """Seconds until it is ready, and MiB of all its processes."""
    command = [gpux, "serve", *folders, "--isolation", isolation, "--host", "127.0.0.1", "--port", "0", "--require-all", *options]
    began = time.monotonic()
    environment = {**os.environ, "GPUX_CACHE_DIR": str(folders[0].parent / "cache")}
    process = subprocess.Popen(list(map(str, command)), stderr=subprocess.PIPE, text=True, env=environment)
    try:
        for line in process.stderr:
            if "http://" in line:
                url = next(word for word in line.split() if word.startswith("http://")).rstrip("/,")
                break
        else:
            raise SystemExit("the server did not start")
        while not is_ready(url + "/v2/health/ready"):
            time.sleep(0.005)
        seconds = time.monotonic() - began
        time.sleep(3)
        sizes = [memory(pid) for pid in descendants(process.pid)]
        return seconds, sum(size[0] for size in sizes) / 1024, sum(size[1] for size in sizes) / 1024, len(sizes)
    finally:
        process.terminate()
        process.stderr.close()
        process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpux", default=ROOT / "target/release/gpux")
    parser.add_argument("--counts", type=int, nargs="+", default=[1, 10, 100])
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--isolations", nargs="+", default=["none", "pipeline"])
    chosen, options = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as folder:
        folders = list(write(pathlib.Path(folder), max(chosen.counts)))
        for isolation in chosen.isolations:
            start(chosen.gpux, folders, isolation, options)
        print("| pipelines | isolation | s to ready | MiB | MiB, private and dirty | processes |")
        print("| --- | --- | --- | --- | --- | --- |")
        each = {}
        for count in chosen.counts:
            for isolation in chosen.isolations:
                starts = [start(chosen.gpux, folders[:count], isolation, options) for _ in range(chosen.repeats)]
                seconds, proportional, private, processes = map(statistics.median, zip(*starts, strict=True))
                each[isolation, count] = proportional
                print(f"| {count} | {isolation} | {seconds:.2f} | {proportional:.0f} | {private:.0f} | {processes:.0f} |", flush=True)
        first, last = min(chosen.counts), max(chosen.counts)
        for isolation in chosen.isolations:
            if last > first:
                one = (each[isolation, last] - each[isolation, first]) / (last - first)
                print(f"{isolation}: {one:.2f} MiB for each further pipeline")


if __name__ == "__main__":
    main()
