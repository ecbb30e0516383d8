"""A double of the Hugging Face hub: the parts that clients of models ask for, and the ways in which a hub can be hostile.

    python3 double.py repositories            # prints its address; HF_ENDPOINT is that, or ADDRESS/FAULT

`OWNER/NAME` is the folder NAME, whatever the owner. ONNX files are large files, which are redirected to a second host
name; `GET /log` gives what was asked for. huggingface_hub's own client must be content with it: client.py.
"""
import hashlib
import http.server
import json
import pathlib
import sys
import threading
import time
import urllib.parse

LOG = []
COUNTS = {}
LOCK = threading.Lock()
RENAMED = "somebody/sentence-mean"


def git_digest(content):
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def count(key):
    with LOCK:
        COUNTS[key] = COUNTS.get(key, 0) + 1
        return COUNTS[key]


class Repository:
    def __init__(self, folder):
        self.files = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
        digests = "".join(name + git_digest(path.read_bytes()) for name, path in self.files.items())
        self.commit = hashlib.sha1(digests.encode()).hexdigest()

    def siblings(self):
        for name, path in self.files.items():
            content = path.read_bytes()
            sibling = {"rfilename": name, "size": len(content), "blobId": git_digest(content)}
            if ".onnx" in name:
                sibling["lfs"] = {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 130}
            yield sibling


def moved(repository, fault):
    """The commits of a repository whose branch has moved, and which of them is `main`."""
    commits = [repository.commit]
    if fault in ("moved", "gone"):
        repository.commit = hashlib.sha1(repository.commit.encode()).hexdigest()
        commits = [repository.commit] + (commits if fault == "moved" else [])
    return commits


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.answer()

    def do_GET(self):
        self.answer()

    def send(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), str(value))
        if "Content_Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def answer(self):
        path = urllib.parse.urlsplit(self.path).path
        parts = [urllib.parse.unquote(part) for part in path.strip("/").split("/")]
        if parts == ["log"]:
            return self.send(200, json.dumps(LOG).encode())
        LOG.append({"method": self.command, "host": self.headers["Host"], "path": path, "range": self.headers["Range"],
                    "token": self.headers["Authorization"]})
        fault = parts.pop(0) if parts[0].startswith("fault-") else ""
        self.fault = fault.removeprefix("fault-")
        if self.fault == "far":
            time.sleep(0.05)
        if parts[0] == "large":
            return self.large(*parts[1:])
        if parts[:2] == ["api", "models"]:
            return self.api(parts[2:])
        if len(parts) > 4 and parts[2] == "resolve":
            return self.resolve(parts[0], parts[1], parts[3], "/".join(parts[4:]))
        self.send(404, X_Error_Code="RepoNotFound")

    def repository(self, name):
        folder = ROOT / name
        return Repository(folder) if folder.is_dir() and "/" not in name and not name.startswith(".") else None

    def api(self, parts):
        repository = self.repository(parts[1])
        if self.fault == "offline":
            return self.close()
        if self.fault == "busy" and count(self.path) < 3:
            return self.send(503, Retry_After=0)
        if repository is None or self.fault == "private" and self.headers["Authorization"] != "Bearer hf_right":
            return self.send(401, X_Error_Code="RepoNotFound")
        if self.fault == "token":
            return self.send(401)
        revision = "/".join(parts[3:]) or "main"
        commits = moved(repository, self.fault)
        if revision not in ("main", *commits, "refs/pr/1"):
            return self.send(404, X_Error_Code="RevisionNotFound")
        if revision in commits:
            repository.commit = revision
        if self.fault == "renamed" and parts[0] != RENAMED.split("/")[0]:
            return self.send(307, Location=f"/api/models/{RENAMED}/revision/{revision}")
        if self.fault == "json":
            return self.send(200, b"<html>sign in to the network</html>")
        if self.fault == "long-answer":
            return self.send(200, b"[" + b" " * (40 << 20))
        siblings = list(repository.siblings())
        if parts[2:3] == ["tree"]:
            tree = [{"type": "file", "path": file["rfilename"], "size": file["size"], "oid": file["blobId"],
                     **({"lfs": {**file["lfs"], "oid": file["lfs"]["sha256"]}} if "lfs" in file else {})} for file in siblings]
            return self.send(200, json.dumps(tree).encode(), Content_Type="application/json")
        commit = repository.commit
        if self.fault == "names":
            siblings.append({"rfilename": "../../.bashrc", "size": 1, "blobId": "0" * 40})
        if self.fault == "twice":
            siblings.append({**siblings[0], "blobId": "0" * 40})
        if self.fault == "digestless":
            siblings[0].pop("blobId"), siblings[0].pop("lfs", None)
        if self.fault == "commit":
            commit = "../../x"
        info = {"_id": "0", "id": "/".join(parts[:2]), "modelId": "/".join(parts[:2]), "sha": commit, "private": False,
                "gated": "manual" if self.fault == "gated" else False, "disabled": self.fault == "disabled",
                "pipeline_tag": None, "tags": [], "downloads": 0, "siblings": siblings, "cardData": {"license": "apache-2.0"}}
        self.send(200, json.dumps(info).encode(), Content_Type="application/json")

    def resolve(self, owner, name, revision, file):
        repository = self.repository(name)
        if repository is None:
            return self.send(401, X_Error_Code="RepoNotFound")
        if self.fault == "gated" and self.headers["Authorization"] != "Bearer hf_right":
            return self.send(403, X_Error_Code="GatedRepo")
        if revision not in ("main", *moved(repository, self.fault), "refs/pr/1"):
            return self.send(404, X_Error_Code="RevisionNotFound")
        if file not in repository.files:
            return self.send(404, X_Error_Code="EntryNotFound", X_Repo_Commit=repository.commit)
        content = repository.files[file].read_bytes()
        headers = {"X_Repo_Commit": repository.commit, "Accept_Ranges": "bytes"}
        if ".onnx" not in file:
            return self.body(content, ETag=f'"{git_digest(content)}"', **headers)
        digest = hashlib.sha256(content).hexdigest()
        port = self.server.server_address[1]
        other = f"http://localhost:{port}/{'fault-' + self.fault + '/' if self.fault else ''}large/{name}/{file}"
        if self.fault == "scheme":
            other = "file:///etc/passwd"
        if self.fault == "circle":
            other = f"http://127.0.0.1:{port}{self.path}"
        self.send(302, Location=other, X_Linked_Etag=f'"{digest}"', X_Linked_Size=len(content), ETag=f'"{digest}"', **headers)

    def large(self, name, *file):
        content = self.repository(name).files["/".join(file)].read_bytes()
        if self.fault == "digest":
            content = content[:-1] + bytes([content[-1] ^ 1])
        if self.fault == "expired" and count(self.path) < 3:
            return self.send(500)
        if self.fault == "forbidden":
            return self.send(403)
        if self.fault == "longer":
            return self.body(content + b"more")
        if self.fault == "endless":
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            try:
                while True:
                    self.wfile.write(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
            except OSError:
                return self.close()
        self.body(content)

    def body(self, content, **headers):
        start = 0
        given = self.headers["Range"]
        if given and self.fault != "no-range":
            start = int(given.removeprefix("bytes=").split("-")[0])
            if start >= len(content):
                return self.send(416, Content_Range=f"bytes */{len(content)}")
            headers["Content_Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        if self.fault == "wrong-range" and given:
            headers["Content_Range"] = f"bytes {start + 1}-{len(content) - 1}/{len(content)}"
        rest = content[start:]
        sent = len(rest)
        if self.fault in ("cut", "no-range", "wrong-range") and count(self.path) < 3:
            sent = len(rest) // 2
        if self.fault == "always-cut":
            sent = min(len(rest), 10)
        self.send(206 if "Content_Range" in headers else 200, b"", Content_Length=len(rest), **headers)
        if self.command == "HEAD":
            return
        try:
            if self.fault == "slow":
                for at in range(0, sent, 1000):
                    self.wfile.write(rest[at : at + 1000])
                    self.wfile.flush()
                    time.sleep(0.01)
            else:
                self.wfile.write(rest[:sent])
        except OSError:
            return self.close()
        if sent < len(rest):
            self.close()

    def close(self):
        self.close_connection = True
        self.wfile.flush()
        self.connection.close()


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        """Clients that give up are part of the tests."""


ROOT = pathlib.Path(sys.argv[1]).resolve()


def main():
    server = Server(("127.0.0.1", 0), Handler)
    print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
    # Ends with the process that started it.
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()


main()
