"""A live `gpux serve` on a free port, for the checks in this folder."""

import contextlib
import json
import os
import re
import subprocess
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
GPUX = Path(os.environ.get("GPUX", ROOT / "target/debug/gpux"))

# One of each: an image and a component, vectors of texts, numbers, a text, several inputs, a sound, bare models of other
# types.
PIPELINES = [
    "gpux.yml",
    "examples/sentence-embedding",
    *(f"tests/cases/pipelines/{name}.yml" for name in ["scores", "text", "draw-boxes", "sound"]),
]

# A score is how many tokens a pair has.
RANKS = """
name: ranks
version: 1.0.0
inputs: { query: text, documents: json }
pipeline:
  - tokenize: { in: { text: query, pair: documents }, tokenizer: ./tokenizer.json }
  - cast: { in: attention_mask, to: float32 }
  - sum: { axis: 1 }
serving: { aliases: [rerank-v3.5] }
"""


def post(url, body):
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


@contextlib.contextmanager
def serving(*arguments):
    """The server's address, once it is ready. It is asked to end afterwards, and must do so without fault."""
    command = [GPUX, "serve", "--host", "127.0.0.1", "--port", "0", *arguments]
    server = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    try:
        said = []
        for line in server.stderr:
            said.append(line)
            if found := re.search(r"ready on (http://\S+)", line):
                break
        else:
            raise SystemExit(f"the server has ended:\n{''.join(said)}")
        yield found[1]
    finally:
        server.terminate()
        rest = server.communicate(timeout=60)[1]
    if server.returncode != 0:
        raise SystemExit(f"the server ended with {server.returncode}:\n{rest}")
