"""A day's traffic by count: memory must stay what it was.

    python benches/serve/soak.py [REQUESTS]

Sends REQUESTS (default 2,000,000) in twenty parts to three pipelines: a tiny model, the digits with their
component, and texts; one request in ten is wrong. Prints the server's memory after each part. Needs oha and
the models of the peers ($PEERS_HOME, see race.py).
"""

import subprocess
import sys

import overload
import race

PARTS = 20


def send(url, path, count, *arguments):
    command = [race.HOME / "bin" / "oha", "--no-tui", "-n", str(count), "-c", "16", "-m", "POST", *map(str, arguments),
               f"{url}/pipelines/{path}/predict"]
    subprocess.run(command, check=True, capture_output=True)


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000_000
    for name in ("e1", "e3"):
        race.write(name, *race.PIPELINES[name])
    payloads, seven = race.HOME / "payloads", race.ROOT / "models" / "samples" / "seven.png"
    server, url = overload.start(race.ROOT, race.RACE / "e1", race.RACE / "e3")
    json = ["-T", "application/json"]
    part = count // PARTS
    try:
        for number in range(PARTS):
            send(url, "e1", part * 85 // 100, *json, "-D", payloads / "e1.json")
            send(url, "e1", part * 9 // 100, *json, "-d", '{"x": [[1, "two"]]}')
            send(url, "digits", part * 5 // 100, "-T", "image/png", "-D", seven)
            send(url, "digits", part // 100, "-T", "image/png", "-d", "not a picture")
            send(url, "e3", part // 1000, *json, "-D", payloads / "e3.json")
            print(f"{(number + 1) * part:>9} requests: {overload.memory(server):.0f} MiB", flush=True)
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
