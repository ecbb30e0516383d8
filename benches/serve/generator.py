"""Starts `gpux serve` and loads it from this process, by closed and open loops. Needs nothing but Python."""

import asyncio
import collections
import contextlib
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class Server:
    """A server of one pipeline while the block runs."""

    def __init__(self, program, folder, *options, pin=()):
        command = [*pin, program, "serve", folder, "--host", "127.0.0.1", "--port", "0", *options]
        self.process = subprocess.Popen(list(map(str, command)), stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            if "ready on http://" in line:
                self.port = int(line.strip().rsplit(":", 1)[1].strip("/"))
                return
        sys.exit("the server did not start")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.stderr.close()
        self.process.wait()

    def metric(self, name):
        """The sum of a metric over its labels."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/metrics", headers={"accept": "text/plain"})
        with urllib.request.urlopen(request) as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith((f"{name}{{", f"{name} ")))


class Connection(asyncio.Protocol):
    """A connection that is kept, with one request at a time."""

    def connection_made(self, transport):
        self.transport, self.received, self.answer = transport, b"", None

    def data_received(self, data):
        self.received += data
        head, separator, body = self.received.partition(b"\r\n\r\n")
        if not separator:
            return
        fields = dict(line.split(b": ", 1) for line in head.lower().split(b"\r\n")[1:])
        if len(body) >= int(fields[b"content-length"]):
            self.received = b""
            self.is_kept = fields.get(b"connection") != b"close"
            self.answer.set_result(int(head.split()[1]))

    def connection_lost(self, error):
        if self.answer and not self.answer.done():
            self.answer.set_result(0)


class Client:
    """Sends one request, again and again, on as many connections as it takes."""

    def __init__(self, server, path, body):
        self.port, self.idle = server.port, []
        head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        self.request = head.encode() + body

    async def send(self):
        """The status, 0 for a lost connection, and the seconds."""
        began = time.perf_counter()
        while self.idle and self.idle[-1].transport.is_closing():
            self.idle.pop()
        if self.idle:
            connection = self.idle.pop()
        else:
            _, connection = await asyncio.get_running_loop().create_connection(Connection, "127.0.0.1", self.port)
        connection.answer = asyncio.get_running_loop().create_future()
        connection.transport.write(self.request)
        status = await connection.answer
        if status and connection.is_kept:
            self.idle.append(connection)
        return status, time.perf_counter() - began

    def close(self):
        for connection in self.idle:
            connection.transport.close()


def closed_loop(server, path, body, clients, seconds):
    """Answers with 200 a second to so many clients, each of which waits for its answer."""

    async def run():
        client, until, done = Client(server, path, body), time.perf_counter() + seconds, 0

        async def repeat():
            nonlocal done
            while time.perf_counter() < until:
                status, _ = await client.send()
                done += status == 200 and time.perf_counter() < until

        await asyncio.gather(*(repeat() for _ in range(clients)))
        client.close()
        return done / seconds

    return asyncio.run(run())


def open_loop(server, path, body, rate, seconds):
    """Sends requests at a rate, whatever comes back; for each status, the seconds that its answers took."""

    async def run():
        client, times, tasks = Client(server, path, body), collections.defaultdict(list), set()

        async def one():
            with contextlib.suppress(OSError):
                status, took = await client.send()
                times[status].append(took)

        began = time.perf_counter()
        sent = 0
        while (now := time.perf_counter() - began) < seconds:
            while sent < now * rate:
                task = asyncio.create_task(one())
                tasks.add(task)
                task.add_done_callback(tasks.discard)
                sent += 1
            await asyncio.sleep(0.002)
        await asyncio.gather(*tasks)
        client.close()
        return times

    return asyncio.run(run())
