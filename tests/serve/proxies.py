#!/usr/bin/env python3
"""nginx in front of a live server, over Unix sockets: addresses, prefixes, hostile headers, gRPC.

Needs a build of gpux, requirements-proxies.txt, and nginx (Debian's nginx-light; NGINX names another).

    tests/serve/proxies.py
"""

import contextlib
import http.client
import json
import os
import re
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import grpc
import httpx
from grpc_health.v1 import health_pb2, health_pb2_grpc

from server import GPUX, ROOT

NGINX = os.environ.get("NGINX", "/usr/sbin/nginx")
SCORES = "tests/cases/pipelines/scores.yml"
BODY = {"x": [[1, 2], [3, 4]]}

# Seconds that a start or an end may take on a busy machine.
PATIENCE = 60

# `appends` adds the client's address to what the client sent, as usual; `passes` hands on what the client sent.
CONFIGURATION = """
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log stderr warn;
events {{ worker_connections 64; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  large_client_header_buffers 4 64k;
  server {{
    listen 127.0.0.1:{appends};
    location /models/ {{
      proxy_pass http://unix:{folder}/gpux.sock:/;
      proxy_set_header Host api.example.com;
      proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
      proxy_set_header X-Forwarded-Proto https;
      proxy_set_header X-Forwarded-Prefix /models;
    }}
  }}
  server {{
    listen 127.0.0.1:{passes};
    location / {{ proxy_pass http://unix:{folder}/gpux.sock; }}
  }}
  server {{
    listen 127.0.0.1:{chained};
    location / {{
      proxy_pass http://127.0.0.1:{appends};
      proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
    }}
  }}
  server {{
    listen 127.0.0.1:{grpc} http2;
    location / {{
      grpc_pass grpc://unix:{folder}/grpc.sock;
      grpc_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
    }}
  }}
}}
"""


def free_ports(number):
    """Ports that nothing listens on now: nginx cannot take any."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(number)]
        return [each.getsockname()[1] for each in sockets]


def wait(what, holds):
    end = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > end:
            raise SystemExit(f"{what} did not happen")
        time.sleep(0.02)


@contextlib.contextmanager
def running(command, log):
    """A program that is asked to end afterwards, and must do so without fault."""
    with open(log, "w", encoding="utf-8") as out:
        process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        try:
            yield process
        finally:
            process.terminate()
            code = process.wait(timeout=PATIENCE)
    if code != 0:
        raise SystemExit(f"{command[0]} ended with {code}:\n{log.read_text()}")


class Server:
    """A server behind nginx, and its log."""

    def __init__(self, folder, ports):
        self.folder, self.ports = folder, ports
        self.log = folder / "gpux.log"

    def get(self, entry, path, headers=(), source="127.0.0.5"):
        """The status and the JSON of a request that comes from the address `source` through this entry of nginx."""
        connection = http.client.HTTPConnection("127.0.0.1", self.ports[entry], PATIENCE, source_address=(source, 0))
        connection.putrequest("GET", path)
        for name, value in headers:
            connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        return answer.status, json.loads(text) if answer.headers.get_content_type() == "application/json" else text

    def client(self, entry, path, headers=(), source="127.0.0.5"):
        """The address in the access log of such a request."""
        name = f"r{time.monotonic_ns()}"
        status, answer = self.get(entry, path, [*headers, ("X-Request-Id", name)], source)
        assert status == 200, (headers, status, answer)
        found = []
        wait("a line in the log", lambda: found.extend(line for line in self.lines() if line.get("request_id") == name) or found)
        return found[0]["client"]

    def lines(self):
        return [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]


@contextlib.contextmanager
def serving(*arguments):
    # Short: the path of a socket has at most 107 bytes.
    with tempfile.TemporaryDirectory(prefix="gpux-") as name:
        folder = Path(name)
        names = ["appends", "passes", "chained", "grpc"]
        server = Server(folder, dict(zip(names, free_ports(len(names)))))
        (folder / "nginx.conf").write_text(CONFIGURATION.format(folder=folder, **server.ports))
        gpux = [GPUX, "serve", SCORES, "--host", f"unix:{folder}/gpux.sock", "--grpc-port", f"unix:{folder}/grpc.sock",
                "--access-log", "--log-format", "json", *arguments]
        nginx = [NGINX, "-c", f"{folder}/nginx.conf", "-p", folder, "-e", "stderr"]
        with running(gpux, server.log):
            wait("ready", lambda: "ready on unix:" in server.log.read_text())
            # As root, nginx has workers of another user.
            for path in [folder, folder / "gpux.sock", folder / "grpc.sock"]:
                path.chmod(0o777)
            with running(nginx, folder / "nginx.log") as process:
                def listens():
                    assert process.poll() is None, (folder / "nginx.log").read_text()
                    return all(socket.socket().connect_ex(("127.0.0.1", port)) == 0 for port in server.ports.values())
                wait("nginx", listens)
                yield server
        assert not (folder / "gpux.sock").exists() and not (folder / "grpc.sock").exists()


def clients_of_sockets(server):
    """Clients that know Unix sockets."""
    path = f"{server.folder}/gpux.sock"
    command = ["curl", "--silent", "--fail", "--max-time", str(PATIENCE), "--unix-socket", path, "--json",
               json.dumps(BODY), "http://localhost/predict"]
    by_curl = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    with httpx.Client(transport=httpx.HTTPTransport(uds=path), timeout=PATIENCE) as client:
        answer = client.post("http://any.name/predict", json=BODY)
    assert answer.status_code == 200 and answer.json() == by_curl, (answer, by_curl)
    for target in [f"unix:{server.folder}/grpc.sock", f"127.0.0.1:{server.ports['grpc']}"]:
        # gRPC's C core names the path of the socket as the host, which HTTP/2 forbids: github.com/grpc/grpc/issues/38142
        options = [("grpc.default_authority", "localhost")]
        with grpc.insecure_channel(target, options) as channel:
            request = health_pb2.HealthCheckRequest(service="scores")
            answer = health_pb2_grpc.HealthStub(channel).Check(request, timeout=PATIENCE, wait_for_ready=True)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING, answer


def addresses(server):
    health = "/models/health"
    assert server.client("appends", health) == "127.0.0.5"
    # What a client sends stands before the address that nginx adds.
    assert server.client("appends", health, [("X-Forwarded-For", "203.0.113.7")]) == "127.0.0.5"
    assert server.client("chained", health, [("X-Forwarded-For", "203.0.113.7, 127.0.0.1")]) == "127.0.0.5"
    assert server.client("chained", health, source="127.0.0.9") == "127.0.0.9"
    # Without a name, it is nginx itself. A client who may write the header itself may name anybody.
    assert server.client("passes", "/health") == "unix"
    assert server.client("passes", "/health", [("X-Forwarded-For", "203.0.113.7, 127.0.0.1")]) == "203.0.113.7"
    assert server.client("passes", "/health", [("Forwarded", 'for="[2001:db8::7]:80";proto=https')]) == "2001:db8::7"
    both = [("X-Forwarded-For", "203.0.113.7"), ("Forwarded", "for=192.0.2.1")]
    assert server.client("passes", "/health", both) == "unix"


def hostile_headers(server):
    for text in ["", ",", "unknown", "localhost", "1.2.3", "1.2.3.4:99999", "[::1", "[fe80::1%25a]:1:2",
                 "a" * 15_000, "203.0.113.7," * 1_200, '"203.0.113.7', "\xff\xfe", "%0d%0aX-Other: 1", "\t", "-1", "1e9"]:
        headers = [("X-Forwarded-For", text)]
        assert server.client("passes", "/health", headers) == "unix", text[:80]
        assert server.client("appends", "/models/health", headers) == "127.0.0.5", text[:80]
        status, _ = server.get("passes", "/health", [("Forwarded", f"for={text}"), ("X-Forwarded-Prefix", text), ("X-Forwarded-Proto", text)])
        assert status == 200, text[:80]
    for text, client in [("fe80::1%eth0", "fe80::1"), ("fe80::1%" + "x" * 20_000, "fe80::1"), ("[fe80::1%25eth0]:9", "fe80::1"), ("203.0.113.7:1", "203.0.113.7")]:
        assert server.client("passes", "/health", [("X-Forwarded-For", text)]) == client, text


def prefixes(server):
    def servers(entry, path, *headers):
        return server.get(entry, path, headers)[1].get("servers")

    assert servers("appends", "/models/openapi.json") == [{"url": "/models"}]
    # nginx replaces what a client sends.
    assert servers("appends", "/models/openapi.json", ("X-Forwarded-Prefix", "/evil")) == [{"url": "/models"}]
    for odd in ["https://evil.example", "//evil.example", "evil", '/"><script>', "/" + "x" * 2_000]:
        assert servers("passes", "/openapi.json", ("X-Forwarded-Prefix", odd)) is None, odd[:80]
    page = server.get("appends", "/models/docs")[1].decode()
    for file in re.findall(r'(?:href|src)="([^":?]+)"', page):
        assert server.get("appends", f"/models/{file.removeprefix('./')}")[0] == 200, file


def untrusted(server):
    headers = [("X-Forwarded-For", "203.0.113.7"), ("X-Forwarded-Prefix", "/models"), ("Forwarded", "for=203.0.113.7")]
    assert server.client("appends", "/models/health", headers) == "unix"
    assert "servers" not in server.get("appends", "/models/openapi.json")[1]


def main():
    with serving("--trusted-proxy", "unix", "--trusted-proxy", "127.0.0.1") as server:
        clients_of_sockets(server)
        addresses(server)
        hostile_headers(server)
        prefixes(server)
    with serving() as server:
        untrusted(server)
    print("behind nginx, over Unix sockets: addresses, prefixes and gRPC are as they should be")


if __name__ == "__main__":
    main()
