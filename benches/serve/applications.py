#!/usr/bin/env python3
"""The applications of examples/ served by gpux and by FastAPI around their Python packages, with one thread a model:
requests a second at 1 and 4 clients, processor time a request, memory at the end.

    benches/serve/applications.py [--gpux target/release/gpux] [--seconds 10] [--rounds 3] [--only REGEX]

Needs the packages of the applications' referees, fastapi and uvicorn, and each `fetch.sh`. Rounds of both servers
alternate; the medians are shown.
"""

import argparse
import http.client
import os
import re
import socket
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
APPLICATIONS = {
    "ocr": ("tests/page/page.png", "image/png"),
    "tabular": ("wines.csv", "text/csv"),
    "faces": ("tests/astronaut/astronaut.jpg", "image/jpeg"),
    "page-layout": ("tests/page/page.png", "image/png"),
    "music-notes": ("tests/strings/strings.flac", "audio/flac"),
    "speech-quality": ("tests/clean/clean.flac", "audio/flac"),
}
CLIENTS = [1, 4]


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def family(process):
    """A process and all that it started."""
    found, parents = [process], {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents.setdefault(int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1]), []).append(int(folder.name))
        except (FileNotFoundError, ProcessLookupError):
            continue
    for parent in found:
        found += parents.get(parent, [])
    return found


def used(process):
    """Seconds of processor time, and MiB of memory that is not shared with others."""
    seconds = memory = 0
    for one in family(process):
        try:
            fields = Path(f"/proc/{one}/stat").read_text().rsplit(")", 1)[1].split()
            seconds += sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")
            rollup = Path(f"/proc/{one}/smaps_rollup").read_text()
            memory += int(re.search(r"Pss: +(\d+)", rollup)[1]) / 1024
        except (FileNotFoundError, ProcessLookupError, TypeError):
            continue
    return seconds, memory


class Server:
    def __init__(self, command, environment):
        self.port = free_port()
        command = [str(part).replace("PORT", str(self.port)) for part in command]
        environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"} | environment
        quiet = subprocess.DEVNULL
        self.process = subprocess.Popen(command, env=environment, stdout=quiet, stderr=quiet)

    def ask(self, connection, body, kind):
        connection.request("POST", "/predict", body, {"Content-Type": kind})
        answer = connection.getresponse()
        content = answer.read()
        if answer.status == 503:
            raise ConnectionError(content[:300])
        if answer.status != 200:
            sys.exit(f"{answer.status}: {content[:300]}")

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)

    def wait(self, body, kind):
        end = time.monotonic() + 120
        while time.monotonic() < end:
            try:
                return self.ask(self.connect(), body, kind)
            except ConnectionError:
                time.sleep(0.2)
        sys.exit("the server did not start")

    def load(self, clients, seconds, body, kind):
        """Requests a second, and processor time of each."""
        counts, end = [], time.monotonic() + seconds

        def client():
            connection, count = self.connect(), 0
            while time.monotonic() < end:
                self.ask(connection, body, kind)
                count += 1
            counts.append(count)

        before, start = used(self.process.pid)[0], time.monotonic()
        threads = [threading.Thread(target=client) for _ in range(clients)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        took = time.monotonic() - start
        return sum(counts) / took, (used(self.process.pid)[0] - before) / sum(counts)

    def stop(self):
        self.process.terminate()
        self.process.wait()


def measure(arguments, name, sample, kind):
    folder = ROOT / "examples" / name
    body = (folder / sample).read_bytes()
    gpux = [arguments.gpux, "serve", folder, "--host", "127.0.0.1", "--port", "PORT", "--threads", "1"]
    fastapi = [sys.executable, "-m", "uvicorn", "--app-dir", HERE, "applications_fastapi:app", "--port", "PORT"]
    servers = {"gpux": Server(gpux, {}), "FastAPI": Server(fastapi, {"APPLICATION": name})}
    try:
        rows = {label: [] for label in servers}
        for server in servers.values():
            server.wait(body, kind)
        for _ in range(arguments.rounds):
            for label, server in servers.items():
                rows[label].append([server.load(clients, arguments.seconds, body, kind) for clients in CLIENTS])
        for label, server in servers.items():
            middle = lambda index, part: statistics.median(row[index][part] for row in rows[label])
            rates = " | ".join(f"{middle(index, 0):8.2f}" for index in range(len(CLIENTS)))
            processor = middle(len(CLIENTS) - 1, 1) * 1000
            print(f"| {name:14} | {label:7} | {rates} | {processor:8.1f} | {used(server.process.pid)[1]:6.0f} |", flush=True)
    finally:
        [server.stop() for server in servers.values()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpux", default=ROOT / "target/release/gpux")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    heads = " | ".join(f"/s, {clients} clients" for clients in CLIENTS)
    print(f"| application | server | {heads} | processor, ms | MiB |\n| --- | --- {'| --: ' * (len(CLIENTS) + 2)}|")
    for name, (sample, kind) in APPLICATIONS.items():
        if re.search(arguments.only, name):
            measure(arguments, name, sample, kind)


if __name__ == "__main__":
    main()
