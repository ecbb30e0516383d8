"""Shares under overload: three priorities, then two keys, are offered more than a pipeline can do.

    python benches/serve/shares.py [GPUX] [SECONDS]

The pipeline sleeps for 20 ms, so that the processor is hardly busy. First its capacity is measured, then 2.5 times that
is offered in equal thirds of high, normal and low priority. Then, of two keys, one offers four times the capacity and the
other a tenth of it. Printed: which part of each succeeded. Needs nothing but Python.
"""

import asyncio
import collections
import hashlib
import json
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).parents[2]
MILLISECONDS = 20
BODY = json.dumps({"attack": f"sleep {MILLISECONDS}"}).encode()
PIPELINE = """\
name: sleeps
version: 1.0.0
pipeline:
  - wasm:
      component: ./sleeps.wasm
      limits: { time: 1s }
      grant: { wasi: [clock, random], env: [GPUX_TEST_LANG], dirs: [./files] }
serving:
  timeout: 2s
"""


def start(program, folder, *options):
    allowed = ["clock", "random", "env=GPUX_TEST_LANG", f"dir={folder}/files"]
    command = [program, "serve", folder, "--host", "127.0.0.1", "--port", "0", "--engine", "embedded"]
    command += ["--workers", "2", "--max-queue", "64", *(f"--allow={what}" for what in allowed), *options]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    for line in server.stderr:
        if "ready on " in line:
            return server, int(line.strip().rsplit(":", 1)[1])
    sys.exit("the server did not start")


async def ask(port, line="", query=""):
    """The status of a request on a connection of its own, and how long it took."""
    began = time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST /predict{query} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{line}"
    head += f"content-type: application/json\r\ncontent-length: {len(BODY)}\r\n\r\n"
    writer.write(head.encode() + BODY)
    status = int((await reader.readline()).split()[1])
    await reader.read()
    writer.close()
    return status, time.perf_counter() - began


async def capacity(port, line=""):
    window, answered = 3, 0

    async def client():
        nonlocal answered
        while time.perf_counter() < end:
            status, _ = await ask(port, line)
            answered += status == 200

    end = time.perf_counter() + window
    await asyncio.gather(*(client() for _ in range(6)))
    return answered / window


async def offer(port, seconds, streams):
    """Sends each of `streams` (name: rate, line of the head, query) in an open loop."""
    pauses, sent = random.Random(7), {name: [] for name in streams}

    async def stream(name, rate, line, query):
        due = time.perf_counter()
        end = due + seconds
        while due < end:
            await asyncio.sleep(max(0, due - time.perf_counter()))
            sent[name].append(asyncio.create_task(ask(port, line, query)))
            due += pauses.expovariate(rate)

    await asyncio.gather(*(stream(name, *what) for name, what in streams.items()))
    for name, tasks in sent.items():
        answers = await asyncio.gather(*tasks)
        times = sorted(took * 1e3 for status, took in answers if status == 200)
        part = lambda part: times[int(len(times) * part)] if times else float("nan")
        print(f"  {name:8} offered {len(answers) / seconds:6.1f}/s, succeeded {len(times) / len(answers):6.1%},",
              f"p50 {part(0.5):5.0f} ms, p95 {part(0.95):5.0f} ms, {dict(collections.Counter(status for status, _ in answers))}")


async def priorities(port, seconds):
    most = await capacity(port)
    print(f"priorities: capacity {most:.0f}/s")
    await offer(port, seconds, {name: (2.5 * most / 3, "", f"?priority={name}") for name in ("high", "normal", "low")})


async def shares(port, seconds, keys):
    flood, polite = (f"x-api-key: {key}\r\n" for key in keys.values())
    most = await capacity(port, polite)
    print(f"keys: capacity {most:.0f}/s")
    await offer(port, seconds, {"flood": (4 * most, flood, ""), "polite": (most / 10, polite, "")})


def main():
    program = sys.argv[1] if len(sys.argv) > 1 else ROOT / "target/release/gpux"
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 8
    keys = {name: f"{name}-0123456789abcdef" for name in ("flood", "polite")}
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "files").mkdir()
        (folder / "gpux.yml").write_text(PIPELINE)
        shutil.copy(ROOT / "guest-examples/hostile-wasi/all.wasm", folder / "sleeps.wasm")
        lines = [f"  - {{ name: {name}, sha256: {hashlib.sha256(key.encode()).hexdigest()} }}\n" for name, key in keys.items()]
        (folder / "keys.yml").write_text("keys:\n" + "".join(lines))
        for options, load in [((), priorities), (("--keys", folder / "keys.yml"), lambda port, seconds: shares(port, seconds, keys))]:
            server, port = start(program, folder, *options)
            try:
                asyncio.run(load(port, seconds))
            finally:
                server.terminate()
                server.wait()


if __name__ == "__main__":
    main()
