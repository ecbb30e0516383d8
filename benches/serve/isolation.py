"""What a process for each pipeline costs: `--isolation none` beside `pipeline`, by wrk.

    python benches/serve/isolation.py [GPUX...] [--seconds 3] [--rounds 3] [--only E1,Epre] [--clients 1,16] [-- OPTIONS]

GPUX are programs to compare, by default target/release/gpux; OPTIONS go to each `gpux serve`. Needs wrk, and the models
and payloads of the race ($PEERS_HOME, see race.py). Servers run one after the other, in turns; the medians of the rounds
are printed, one row for each work, number of clients and server: requests a second and their ratio to `none`, median
latency, processor time a request, page faults a request.
"""

import argparse
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import generator
import race

WORKS = {
    "E1": ("e1", "pipelines/e1/predict", race.HOME / "payloads/e1.json"),
    "E2": ("e2", "pipelines/e2/predict", race.HOME / "payloads/e2.jpg"),
    "E3": ("e3", "pipelines/e3/predict", race.HOME / "payloads/e3.json"),
    "Epre": ("pre", "v2/models/pre/infer", race.HOME / "payloads/e2_oip.bin"),
    "digits": (race.ROOT, "pipelines/digits/predict", race.ROOT / "models/samples/seven.png"),
}
TICK = 100


def tree(process):
    """The process and all that it started."""
    ids = [process]
    for at in ids:
        for children in Path(f"/proc/{at}/task").glob("*/children"):
            ids += map(int, children.read_text().split())
    return ids


def used(process):
    """Seconds of processor time, and minor page faults, of a process and what it started."""
    fields = [Path(f"/proc/{at}/stat").read_text().rpartition(")")[2].split() for at in tree(process)]
    return sum(int(f[11]) + int(f[12]) for f in fields) / TICK, sum(int(f[7]) for f in fields)


def headers(payload):
    if payload.suffix == ".json":
        return ["content-type: application/json"]
    if payload.suffix == ".bin":
        head = payload.read_bytes()
        length = len(head[: head.index(b"]}") + 2])
        return ["content-type: application/octet-stream", f"inference-header-content-length: {length}"]
    return ["content-type: application/octet-stream"]


def load(server, path, payload, clients, seconds):
    """Requests a second, median in ms, processor time in ms and page faults a request."""
    lines = [f'local f = io.open("{payload}", "rb"); wrk.body = f:read("*a"); f:close(); wrk.method = "POST"']
    lines += ['wrk.headers["{}"] = "{}"'.format(*header.split(": ")) for header in headers(payload)]
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write("\n".join(lines))
        script.flush()
        url = f"http://127.0.0.1:{server.port}/{path}"
        command = ["wrk", "-t1", f"-c{clients}", "--latency", "-s", script.name]
        subprocess.run([*command, "-d1s", url], check=True, capture_output=True)
        before = used(server.process.pid)
        text = subprocess.run([*command, f"-d{seconds}s", url], check=True, capture_output=True, text=True).stdout
        after = used(server.process.pid)
    if "Non-2xx" in text:
        sys.exit(text)
    requests = int(re.search(r"(\d+) requests in", text)[1])
    rate = float(re.search(r"Requests/sec: +([\d.]+)", text)[1])
    number, unit = re.search(r"50% +([\d.]+)(us|ms|s)", text).groups()
    median = float(number) * {"us": 1e-3, "ms": 1, "s": 1e3}[unit]
    return rate, median, (after[0] - before[0]) / requests * 1e3, (after[1] - before[1]) / requests


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="*", default=[race.ROOT / "target/release/gpux"])
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default=",".join(WORKS))
    parser.add_argument("--clients", default="1,16")
    parser.add_argument("--isolation", default="none,pipeline")
    own = sys.argv[1:]
    own, options = (own[: own.index("--")], own[own.index("--") + 1 :]) if "--" in own else (own, [])
    chosen = parser.parse_args(own)

    for name, pipeline in race.PIPELINES.items():
        race.write(name, *pipeline)
    servers = [(program, isolation) for isolation in chosen.isolation.split(",") for program in chosen.programs]
    print("| work | clients | server | requests/s | ÷ none | p50 ms | processor ms | page faults |\n| --- " + "| ---: " * 7 + "|")
    for work in chosen.only.split(","):
        folder, path, payload = WORKS[work]
        folder = race.RACE / folder if isinstance(folder, str) else folder
        for clients in map(int, chosen.clients.split(",")):
            results = {server: [] for server in servers}
            for _ in range(chosen.rounds):
                for program, isolation in servers:
                    with generator.Server(program, folder, "--isolation", isolation, *options) as server:
                        results[program, isolation].append(load(server, path, payload, clients, chosen.seconds))
            none = None
            for (program, isolation), rounds in results.items():
                rate, median, processor, faults = (statistics.median(column) for column in zip(*rounds))
                none = none or rate
                name = isolation if len(chosen.programs) == 1 else f"{isolation}, {program}"
                print(
                    f"| {work} | {clients} | {name} | {rate:.0f} | {rate / none:.2f} | {median:.3f} | {processor:.3f} | {faults:.1f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
