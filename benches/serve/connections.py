"""Many clients that keep their connections, each of one request a second, and a server with little memory.

    python benches/serve/connections.py [--clients 5000] [--seconds 20] [--memory 1GiB] [PROGRAM ...]

Each PROGRAM (a build of gpux; default: target/release/gpux) serves in turn. Printed for each: requests that were answered
and that were lost (the connection ended after the request was sent, without an answer), connections that a client
had to open again, latencies, and what an idle connection holds of the server's memory. Needs Linux, file descriptors
(`ulimit -n`) for all clients, and nothing but Python's library.
"""

import argparse
import asyncio
import collections
import json
import pathlib
import re
import resource
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
PIPELINE = "name: scores\nversion: 1.0.0\ninputs: { x: { type: float32, shape: [4] } }\npipeline: [softmax]\n"
BODY = json.dumps({"x": [1, 2, 3, 4]}).encode()
REQUEST = b"POST /predict HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (
    len(BODY), BODY)
HEAD = re.compile(rb"HTTP/1\.1 (\d+)[^\r]*\r\n(.*?)\r\n\r\n", re.S)
LONGEST = 30.0


class Client(asyncio.Protocol):
    """One connection; the requests go one after another."""

    def __init__(self):
        self.transport, self.answer, self.received, self.is_open = None, None, b"", True

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.received += data
        head = HEAD.match(self.received)
        if not head or not self.answer:
            return
        length = int(re.search(rb"content-length: (\d+)", head[2])[1])
        if len(self.received) >= head.end() + length:
            self.received = b""
            self.is_open = b"connection: close" not in head[2]
            self.answer.set_result(head[1].decode())

    def connection_lost(self, _):
        self.is_open = False
        if self.answer and not self.answer.done():
            self.answer.set_result("lost")

    async def ask(self, loop):
        self.answer = loop.create_future()
        self.transport.write(REQUEST)
        try:
            return await asyncio.wait_for(self.answer, LONGEST)
        except asyncio.TimeoutError:
            return "no answer"


async def run_client(port, start, seconds, counts, times, kept):
    loop = asyncio.get_running_loop()
    await asyncio.sleep(start)
    client, end = None, loop.time() + seconds
    while loop.time() < end:
        began = loop.time()
        try:
            if client is None or not client.is_open:
                counts["opened"] += 1
                _, client = await asyncio.wait_for(loop.create_connection(Client, "127.0.0.1", port), LONGEST)
            came = await client.ask(loop)
        except (OSError, asyncio.TimeoutError) as error:
            came = type(error).__name__
        counts[came] += 1
        times.append(loop.time() - began)
        await asyncio.sleep(max(0.0, 1.0 - (loop.time() - began)))
    if client and client.is_open:
        kept.append(client)


def close(clients):
    for client in clients:
        client.transport.close()


def server_process(supervisor):
    children = pathlib.Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
    return int(children[0]) if children else supervisor


def resident_kib(process):
    return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{process}/status").read_text())[1])


def cut(url):
    request = urllib.request.Request(f"{url}/metrics", headers={"accept": "text/plain"})
    lines = urllib.request.urlopen(request).read().decode().splitlines()
    return {line.split()[0]: int(float(line.split()[1])) for line in lines if line.startswith("gpux_connections")}


def measure(program, arguments):
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "gpux.yml").write_text(PIPELINE)
        command = [program, "serve", folder, "--port", "0", "--host", "127.0.0.1", "--memory", arguments.memory]
        server = subprocess.Popen([*command, *arguments.option], stderr=subprocess.PIPE, text=True)
        try:
            line = next((line for line in server.stderr if "ready on http://" in line), None)
            if line is None:
                sys.exit(f"{program} did not start")
            asyncio.run(load(program, server, "http://" + line.rsplit("http://", 1)[1].strip(), arguments))
        finally:
            server.terminate()
            rest = server.communicate()[1]
            print("".join(f"  log: {line}\n" for line in rest.splitlines()[:5]), end="")


async def load(program, server, url, arguments):
    port, process = int(url.rsplit(":", 1)[1]), server_process(server.pid)
    counts, times, kept = collections.Counter(), [], []
    # What the first requests make the server allocate is not the connections'.
    warm = []
    await asyncio.gather(*(run_client(port, 0.0, 0.0001, collections.Counter(), [], warm) for _ in range(100)))
    close(warm)
    before, began = resident_kib(process), time.monotonic()
    clients = (run_client(port, number / arguments.clients * 2, arguments.seconds, counts, times, kept)
               for number in range(arguments.clients))
    await asyncio.gather(*clients)
    took = time.monotonic() - began
    await asyncio.sleep(0.5)
    after = resident_kib(process)
    opened, answered = counts.pop("opened"), counts.pop("200", 0)
    times.sort()
    print(f"{program}: {arguments.clients} clients, {arguments.memory}")
    print(f"  answered {answered} ({answered / took:,.0f} a second); lost or refused {sum(counts.values())} {dict(counts)}")
    print(f"  connections opened {opened}; p50 {times[len(times) // 2] * 1e3:.0f} ms, p99 {times[len(times) * 99 // 100] * 1e3:.0f} ms")
    print(f"  memory {before >> 10} MiB before, {after >> 10} MiB with {len(kept)} idle connections: "
          f"{(after - before) / max(len(kept), 1):.1f} KiB each")
    close(kept)
    print(f"  {await asyncio.to_thread(cut, url)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", default=[ROOT / "target/release/gpux"])
    parser.add_argument("--clients", type=int, default=5000)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--memory", default="1GiB")
    parser.add_argument("--option", action="append", default=[], help="one more option of `gpux serve`")
    arguments = parser.parse_args()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    for program in arguments.programs:
        measure(program, arguments)


if __name__ == "__main__":
    main()
