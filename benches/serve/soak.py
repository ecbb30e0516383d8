"""A day's traffic by count: memory must stay what it was, and every request must come to what it should.

    python benches/serve/soak.py [REQUESTS] [--isolation none|pipeline]

Sends REQUESTS (default 2,000,000) in twenty parts to three pipelines: a tiny model, the digits with their
component, and texts; one request in ten is wrong. Prints the server's memory and files after each part, and ends
with 1 if an answer was not the expected one. Needs a release build, oha and the models of the peers ($PEERS_HOME,
see race.py).
"""

import argparse
import collections
import json
import subprocess
import sys
import time

import psutil
import race

PARTS = 20


def send(url, path, count, *arguments):
    """How many answers there were of each status; what got none counts as `lost`."""
    command = [race.HOME / "bin" / "oha", "--no-tui", "--output-format", "json", "-n", str(count), "-c", "16", "-m", "POST",
               *map(str, arguments), f"{url}/pipelines/{path}/predict"]
    told = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    answers = collections.Counter({int(status): many for status, many in told["statusCodeDistribution"].items()})
    answers["lost"] = count - answers.total()
    return answers


def start(*arguments):
    command = [race.ROOT / "target/release/gpux", "serve", *arguments, "--port", "0", "--host", "127.0.0.1",
               "--engine-library", race.library()]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    for line in server.stderr:
        if "ready on http://" in line:
            return server, "http://" + line.rsplit("http://", 1)[1].strip()
    sys.exit("the server did not start")


def find_processes(server):
    """The process that serves, the child of the supervisor, and its workers."""
    serving = psutil.Process(server.pid).children()[0]
    return [serving, *serving.children(recursive=True)]


def memory(server):
    """MiB of all processes; what several share is counted once."""
    return sum(process.memory_full_info().pss for process in find_processes(server)) / 2**20


def files(server):
    return sum(process.num_fds() for process in find_processes(server))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("requests", nargs="?", type=int, default=2_000_000)
    parser.add_argument("--isolation", choices=("none", "pipeline"), default="pipeline")
    chosen = parser.parse_args()
    count = chosen.requests
    for name in ("e1", "e3"):
        race.write(name, *race.PIPELINES[name])
    payloads, seven = race.HOME / "payloads", race.ROOT / "models" / "samples" / "seven.png"
    server, url = start(race.ROOT, race.RACE / "e1", race.RACE / "e3", "--isolation", chosen.isolation)
    typed = ["-T", "application/json"]
    part = count // PARTS
    # Path, how many of a thousand requests, the status that is right, the request.
    kinds = [
        ("e1", 849, 200, [*typed, "-D", payloads / "e1.json"]),
        ("e1", 90, 400, [*typed, "-d", '{"x": [[1, "two"]]}']),
        ("digits", 50, 200, ["-T", "image/png", "-D", seven]),
        ("digits", 10, 400, ["-T", "image/png", "-d", "not a picture"]),
        ("e3", 1, 200, [*typed, "-D", payloads / "e3.json"]),
    ]
    sent, wrong, began = 0, collections.Counter(), time.monotonic()
    try:
        for _ in range(PARTS):
            for path, share, status, arguments in kinds:
                many = part * share // 1000
                answers = send(url, path, many, *arguments)
                sent += many
                del answers[status]
                wrong.update({f"{path}: {other}": many for other, many in answers.items() if many})
            rate = sent / (time.monotonic() - began)
            print(f"{sent:>9} requests, {rate:.0f}/s: {memory(server):.0f} MiB, {files(server)} files", flush=True)
    finally:
        server.terminate()
        code = server.wait()
    print(f"answers that were not as they should be: {dict(wrong) or 'none'}; the server ended with {code}")
    sys.exit(1 if wrong or code else 0)


if __name__ == "__main__":
    main()
