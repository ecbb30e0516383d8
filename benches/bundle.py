"""`gpux bundle` and `gpux store add` on a model of 512 MiB, beside `cp` and `sha256sum` of the same bytes.

    python3 benches/bundle.py [PROGRAM]        default: target/release/gpux

Needs 2 GB on the disk of the temporary folder. Prints the best of five rounds in turn, and the most memory.
"""

import array
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

MIB = 1 << 20
SIZE = 512 * MIB
ROUNDS = 5


def field(number: int, value: bytes | int) -> bytes:
    """A field of a protobuf message."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def varint(value: int) -> bytes:
    parts = []
    while value >= 0x80:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def model(location: str | None) -> bytes:
    """y = x + w, with w of 512 MiB in another file, or what comes before and after it in this one."""
    count = SIZE // 4
    shape = field(1, 1) + field(2, field(1, field(1, count)))
    port = lambda name: field(1, name) + field(2, field(1, shape))
    weight = field(1, count) + field(2, 1) + field(8, b"w")
    if location:
        weight += field(13, field(1, b"location") + field(2, location.encode())) + field(14, 1)
    else:
        weight += varint(9 << 3 | 2) + varint(SIZE)
    node = field(1, b"x") + field(1, b"w") + field(2, b"y") + field(4, b"Add")
    graph = field(1, node) + field(2, b"g") + field(11, port(b"x")) + field(12, port(b"y"))
    head = field(1, 8) + field(8, field(2, 17))
    if location:
        return head + field(7, graph + field(5, weight))
    tensor = varint(5 << 3 | 2) + varint(len(weight) + SIZE) + weight
    return head + varint(7 << 3 | 2) + varint(len(graph) + len(tensor) + SIZE) + graph + tensor


def run(command: list[str], **environment: str) -> tuple[float, int]:
    """Seconds of a command, and its most memory in MiB."""
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env={**os.environ, **environment})
    _, status, usage = os.wait4(process.pid, 0)
    assert status == 0, command
    return time.perf_counter() - started, usage.ru_maxrss // 1024


def main() -> None:
    program = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "target/release/gpux")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        block = array.array("f", range(MIB // 4)).tobytes()
        for kind in ("external", "single"):
            pipeline = folder / kind
            pipeline.mkdir()
            weights = pipeline / ("w.bin" if kind == "external" else "model.onnx")
            (pipeline / "model.onnx").write_bytes(model("w.bin" if kind == "external" else None))
            with weights.open("ab") as file:
                for _ in range(SIZE // MIB):
                    file.write(block)
            (pipeline / "gpux.yml").write_text("name: big\nversion: 1.0.0\nmodel: { source: ./model.onnx }\n")
            measure(program, kind, pipeline, weights, folder)
            subprocess.run(["rm", "-r", pipeline], check=True)


def measure(program: str, kind: str, pipeline: pathlib.Path, weights: pathlib.Path, folder: pathlib.Path) -> None:
    copy, bundle, store = folder / "copy", folder / "big.tar", folder / "store"
    has_store = subprocess.run([program, "store", "--help"], capture_output=True).returncode == 0
    best: dict[str, float] = {}
    memory: dict[str, int] = {}

    def note(what: str, measured: tuple[float, int]) -> None:
        best[what] = min(best.get(what, float("inf")), measured[0])
        memory[what] = max(memory.get(what, 0), measured[1])

    for _ in range(ROUNDS):
        for path in (copy, bundle):
            path.unlink(missing_ok=True)
        subprocess.run(["rm", "-rf", store], check=True)
        os.sync()
        # What is copied lasts, as a bundle does.
        note("cp", run(["sh", "-c", f"cp {weights} {copy} && sync {copy}"]))
        note("sha256sum", run(["sha256sum", str(weights)]))
        copy.unlink()
        os.sync()
        note("bundle", run([program, "bundle", str(pipeline), "-o", str(bundle)]))
        os.sync()
        if has_store:
            note("add", run([program, "store", "add", str(bundle)], GPUX_STORE=str(store)))
    base = best["cp"] + best["sha256sum"]
    for what in best:
        ratio = f"  {best[what] / base:.2f} × (cp + sha256sum)" if what in ("bundle", "add") else ""
        print(f"{kind:9} {what:10} {best[what]:6.2f} s  {memory[what]:4} MiB{ratio}")


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    main()
