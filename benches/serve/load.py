"""Servers under load: start one, send it requests by oha, see what they cost. Needs psutil and oha."""

import collections
import collections.abc
import dataclasses
import json
import os
import pathlib
import shlex
import socket
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request

import psutil
import race

PATIENCE = 60.0
WARM_UP = 1.0


@dataclasses.dataclass
class Requests:
    """What is sent: the bytes of `body` each time, or by turns the lines of it."""

    body: pathlib.Path
    content_type: str
    lines: bool = False


def texts(file):
    """A request in JSON a line."""
    return Requests(file, "application/json", lines=True)


@dataclasses.dataclass
class Contestant:
    """A server, where it takes requests, and how it wants what all are sent. `{port}` stands in its command."""

    name: str
    command: str
    path: str
    requests: collections.abc.Callable[[pathlib.Path], Requests] = texts
    health: str = "/health"
    environment: dict = dataclasses.field(default_factory=dict)


def gpux(name, folder, path="/predict", requests=texts):
    program = f"{race.ROOT}/target/release/gpux serve --engine-library {race.library()}"
    command = f"{program} --host 127.0.0.1 --port {{port}} {folder}"
    return Contestant(name, command, path, requests)


def floor(path):
    command = f"{race.floor()} {{port}} {race.HOME}/models"
    return Contestant("the floor", command, path, environment={"ORT_DYLIB_PATH": str(race.library())})


class Server:
    """One that runs, with its child processes."""

    def __init__(self, contestant):
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            port = found.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        command = shlex.split(contestant.command.replace("{port}", str(port)))
        began = time.monotonic()
        self.process = subprocess.Popen(command, env={**os.environ, **contestant.environment},
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.wait(contestant)
        self.start_s = time.monotonic() - began

    def wait(self, contestant):
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until and self.process.poll() is None:
            try:
                return urllib.request.urlopen(self.url + contestant.health).read()
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.002)
        self.stop()
        sys.exit(f"{contestant.name} did not start")

    def all(self):
        own = psutil.Process(self.process.pid)
        return [own, *own.children(recursive=True)]

    def processor_s(self):
        return sum(sum(process.cpu_times()[:2]) for process in self.all())

    def memory_mib(self):
        """What these processes would free, each shared page divided by those who share it."""
        return sum(process.memory_full_info().pss for process in self.all()) / 2**20

    def anonymous_mib(self):
        """Of that, what no file is behind."""
        lines = (line.split() for process in self.all() for line in open(f"/proc/{process.pid}/smaps_rollup"))
        return sum(int(line[1]) for line in lines if line[0] == "Pss_Anon:") / 2**10

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        """Ends it and its children, those too that do not heed it."""
        started = self.all() if self.process.poll() is None else []
        for process in started:
            process.terminate()
        _, deaf = psutil.wait_procs(started, timeout=5)
        for process in deaf:
            process.kill()
        self.process.wait()


def oha(url, clients, seconds, requests):
    command = [race.HOME / "bin" / "oha", "--no-tui", "--output-format", "json", "-z", f"{seconds}s", "-c", str(clients),
               "-m", "POST", "-T", requests.content_type, "-Z" if requests.lines else "-D", requests.body, url]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def window(server, contestant, clients, seconds, requests):
    """Requests a second, median and 99th percentile in ms, processor time a request in ms."""
    before = server.processor_s()
    report = oha(server.url + contestant.path, clients, seconds, requests)
    spent = server.processor_s() - before
    answered = report["statusCodeDistribution"]
    good, every = answered.get("200", 0), sum(answered.values())
    if good != every:
        sys.exit(f"{contestant.name} answered {answered}")
    times = report["latencyPercentiles"]
    return good / report["summary"]["total"], times["p50"] * 1e3, times["p99"] * 1e3, spent / max(every, 1) * 1e3


def rounds(contestants, work, clients=(1, 16), seconds=3.0, repeats=3):
    """Everybody by turns, `repeats` times; the median of the windows, beside the first contestant's."""
    windows = collections.defaultdict(list)
    for _ in range(repeats):
        for contestant in contestants:
            requests = contestant.requests(work)
            with Server(contestant) as server:
                oha(server.url + contestant.path, 4, WARM_UP, requests)
                for count in clients:
                    windows[contestant.name, count].append(window(server, contestant, count, seconds, requests))
    print("| clients | | requests a second | beside | p50 ms | p99 ms | processor ms a request |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for count in clients:
        first = None
        for contestant in contestants:
            rate, p50, p99, processor = map(statistics.median, zip(*windows[contestant.name, count], strict=True))
            first = first or rate
            numbers = f"{rate:,.1f} | {rate / first:.2f} | {p50:.2f} | {p99:.2f} | {processor:.2f}"
            print(f"| {count} | {contestant.name} | {numbers} |")
