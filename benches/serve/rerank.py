"""Rerank of 100 documents of mixed length in one request, beside a request for each of them one after the other.

    python benches/serve/rerank.py [--rounds 5] [--documents 100] [--isolation none] [--gpux target/release/gpux]
                                   [--options 'threads: 2, instances: 1']

The cross-encoder is the body of all-MiniLM-L6-v2 with its pooler and a head of fixed weights that nobody has trained:
its size is that of cross-encoder/ms-marco-MiniLM-L6-v2, its scores mean nothing. The documents are descriptions of
examples/search, one to twelve together. Both ways must give the same scores. Printed: seconds of each round, those
of processors too, and the medians of their ratios. On Linux. Needs onnx and NumPy, and examples/search/fetch.sh.
"""

import argparse
import http.client
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import generator

SEARCH = generator.ROOT / "examples/search"
QUERY = "a program that plays music and shows the words"
PIPELINE = """
name: rerank
version: 1.0.0
model: {{ source: ./model.onnx{options} }}
inputs: {{ query: text, documents: json }}
pipeline:
  - tokenize: {{ in: {{ text: query, pair: documents }}, tokenizer: ./tokenizer.json, max_length: 512, truncation: only_second }}
  - model
"""


def documents(count):
    texts = [line.split("\t")[1] for line in (SEARCH / "packages.tsv").read_text().splitlines()]
    choose = random.Random(1)
    return [". ".join(choose.sample(texts, choose.randint(1, 12))) for _ in range(count)]


def processor_time(process):
    """Seconds that a process and those below it have computed."""
    seconds = 0.0
    for thread in Path(f"/proc/{process}/task").iterdir():
        fields = (thread / "stat").read_text().rpartition(")")[2].split()
        seconds += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        for child in (thread / "children").read_text().split():
            seconds += processor_time(child)
    return seconds


class Reranker:
    """A connection that is kept."""

    def __init__(self, server):
        self.connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=300)

    def scores(self, texts):
        body = json.dumps({"query": QUERY, "documents": texts, "return_documents": False})
        self.connection.request("POST", "/v1/rerank", body, {"Content-Type": "application/json"})
        answer = self.connection.getresponse()
        found = json.load(answer)
        if answer.status != 200:
            sys.exit(f"{answer.status}: {found}")
        return {result["index"]: result["relevance_score"] for result in found["results"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--documents", type=int, default=100)
    parser.add_argument("--isolation", choices=("none", "pipeline"), default="none")
    parser.add_argument("--options", default="", help="of the model in gpux.yml")
    parser.add_argument("--gpux", type=Path, default=generator.ROOT / "target" / "release" / "gpux")
    chosen = parser.parse_args()
    texts = documents(chosen.documents)
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        make = [sys.executable, SEARCH / "make.py", SEARCH / "model.safetensors", folder / "model.onnx", "--scores"]
        subprocess.run(make, check=True)
        shutil.copy(SEARCH / "tokenizer.json", folder)
        options = f", {chosen.options}" if chosen.options else ""
        (folder / "gpux.yml").write_text(PIPELINE.format(options=options))
        ratios = []
        with generator.Server(chosen.gpux, folder, "--isolation", chosen.isolation) as server:
            reranker = Reranker(server)
            reranker.scores(texts[:16])
            for _ in range(chosen.rounds):
                now = lambda: (time.perf_counter(), processor_time(server.process.pid))  # noqa: E731
                began = now()
                alone = [reranker.scores([text])[0] for text in texts]
                between = now()
                together = reranker.scores(texts)
                ended = now()
                off = max(abs(score - together[index]) for index, score in enumerate(alone))
                if off > 1e-5:
                    sys.exit(f"scores differ by {off}")
                each, once = ([to - since for since, to in zip(*part)] for part in ((began, between), (between, ended)))
                ratios.append([one / other for one, other in zip(each, once)])
                shown = lambda part: f"{part[0]:.2f} s ({part[1]:.2f} s of processors)"  # noqa: E731
                print(f"one at a time {shown(each)}, in one request {shown(once)}: {ratios[-1][0]:.2f} x", flush=True)
        time_ratio, processor_ratio = (statistics.median(part) for part in zip(*ratios))
        print(f"median {time_ratio:.2f}, of processor time {processor_ratio:.2f}; scores off by at most {off:.1e}")


if __name__ == "__main__":
    main()
