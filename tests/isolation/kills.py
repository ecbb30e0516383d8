#!/usr/bin/env python3
"""Kills and stops supervisor, server and workers of `gpux serve --isolation pipeline` in several orders, under load.

Where the supervisor lives, the server answers again, and only requests that were under way are lost. Where it does not,
no process is left, and the next start removes what else is. Needs Linux, gpux's ONNX Runtime, and the packages onnx and
numpy. Exits with 1 if anything differs.
"""

import argparse
import contextlib
import os
import re
import signal
import sys
import tempfile
import time
from pathlib import Path

from server import ROOT, Client, Neighbours, Server, children, neighbours

# What is done to whom, in this order.
ORDERS = [
    "kill worker",
    "kill server",
    "kill worker, kill server",
    "kill server, kill worker",
    "kill worker, kill other",
    "stop worker, kill server",
    "stop server, kill worker, continue server",
    "stop supervisor, kill server, continue supervisor",
    "kill supervisor",
    "stop worker, kill supervisor",
    "stop server, kill supervisor",
    "stop worker, stop server, kill supervisor",
    "kill server, kill supervisor",
    "kill supervisor, kill server, kill worker",
]
SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "continue": signal.SIGCONT}
# At most so many requests are under way at a time: two clients of each of three pipelines.
UNDER_WAY = 6


def descendants(process):
    below = children(process)
    return below + [one for child in below for one in descendants(child)]


def is_running(process):
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    return False


def control_groups():
    return [path for path in Path("/sys/fs/cgroup").glob("**/gpux-worker-*") if path.is_dir()]


def wait_until(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return condition()


def run(order, gpux, folder):
    """What is wrong after this order of signals."""
    asked, wrong = list(neighbours(folder)), []
    temporary = folder / "temporary"
    temporary.mkdir()
    os.environ["TMPDIR"] = str(temporary)
    server = Server(gpux, [one[0] for one in asked], [])
    processes = [server.process.pid, *descendants(server.process.pid)]
    groups = [path for path in control_groups() if f"-{server.pid}-" in path.name]
    workers = descendants(server.pid)
    who = {"supervisor": server.process.pid, "server": server.pid,
           "worker": server.worker(asked[0][0]) or workers[0], "other": server.worker(asked[1][0]) or workers[-1]}
    load = Neighbours(server.port, asked)
    time.sleep(1)
    for step in order.split(", "):
        action, name = step.split()
        with contextlib.suppress(ProcessLookupError):
            os.kill(who[name], SIGNALS[action])
        if action == "stop":
            time.sleep(0.3)
    if "kill supervisor" in order:
        server.process.wait(20)
        load.stop()
        if not wait_until(lambda: not any(map(is_running, processes))):
            wrong.append(f"left: {[one for one in processes if is_running(one)]}")
        # Removed by whoever was left, or else by the next server.
        server = Server(gpux, [one[0] for one in asked], [])
    else:
        client, (_, name, kind, body) = Client(server.port), asked[0]

        def is_answered():
            return client.ask("POST", f"/pipelines/{name}/predict", body, kind).status == 200

        if not wait_until(is_answered):
            wrong.append("it does not answer again")
        time.sleep(1)
        load.stop()
        # While nobody answers, new requests wait, or get 503 until their pipeline is loaded.
        lost = [sample for sample in load.samples if sample[2] not in (200, 503)]
        if len(lost) > UNDER_WAY:
            wrong.append(f"{len(lost)} of {len(load.samples)} requests are lost: {lost[:3]}")
        if wrong_ones := [sample for sample in lost if sample[2] not in (0, 500)]:
            wrong.append(f"other answers: {wrong_ones[:3]}")
        new = [server.process.pid, *descendants(server.process.pid)]
        if not wait_until(lambda: not any(is_running(one) for one in processes if one not in new), 5):
            wrong.append("processes of the server before are left")
    [server.pid] = children(server.process.pid)
    folders = list(temporary.glob("gpux-workers-*"))
    if len(folders) > 1:
        wrong.append(f"folders for temporary files are left: {folders}")
    before = [path for path in groups if path.exists() and f"-{server.pid}-" not in path.name]
    if before:
        wrong.append(f"control groups are left: {before}")
    if (code := server.stop()) != 0:
        wrong.append(f"it ended with {code}")
    if left := list(temporary.iterdir()):
        wrong.append(f"left after its end: {left}")
    if not wait_until(lambda: not any(path.exists() for path in groups), 5):
        wrong.append("control groups are left after its end")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpux", default=os.environ.get("GPUX", ROOT / "target/debug/gpux"), help="the program")
    parser.add_argument("--only", default="", help="a regular expression: only such orders")
    options = parser.parse_args()
    failures = 0
    for order in ORDERS:
        if re.search(options.only, order):
            with tempfile.TemporaryDirectory(prefix="gpux-kills-") as folder:
                wrong = run(order, options.gpux, Path(folder).resolve())
            print(f"{order}: {'; '.join(wrong) or 'ok'}", flush=True)
            failures += bool(wrong)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
