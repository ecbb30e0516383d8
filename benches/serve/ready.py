"""From the start of `gpux serve` until it answers, and its memory, with three models and cached components.

    python benches/serve/ready.py [REPEATS]

The pipelines are a ResNet-18 with a component before it, a MiniLM-shaped text model, and the digits with their
component. The first start, which fills the caches, is printed apart. Needs the models of the peers ($PEERS_HOME, see
race.py) and psutil.
"""

import statistics
import sys

import load
import race

FOLDERS = ("e2-component", "e3")


def start(folders):
    """Milliseconds until it answers, and MiB: its own share, and of that what no file is behind."""
    with load.Server(load.gpux("gpux", " ".join(map(str, folders)))) as server:
        return server.start_s * 1e3, server.memory_mib(), server.anonymous_mib()


def main():
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    race.build("build", "--release", "--bin", "gpux")
    for name in FOLDERS:
        race.write(name, *race.PIPELINES[name])
    folders = [*(race.RACE / name for name in FOLDERS), race.ROOT]
    models = sum(file.stat().st_size for folder in folders[:2] for file in folder.glob("*.onnx"))
    models += (race.ROOT / "models" / "digits.onnx").stat().st_size
    first, *_ = start(folders)
    starts = [start(folders) for _ in range(repeats)]
    times, memory, anonymous = zip(*starts, strict=True)
    print(f"first start: {first:.0f} ms")
    print(f"start to ready: median {statistics.median(times):.0f} ms, {min(times):.0f} to {max(times):.0f} ms of {repeats}")
    print(f"memory: {statistics.median(memory):.0f} MiB ({statistics.median(anonymous):.0f} without files behind it); "
          f"the models have {models / 2**20:.0f} MiB")


if __name__ == "__main__":
    main()
