"""What the clusters are measured with: rows, the pipelines of gpux, the same jobs by hand, and the table of results."""

import argparse
import datetime
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benches" / "results"
COLUMNS = ["cluster", "work", "workers", "gpux", "by hand", "gpux ÷ by hand"]


class DigitsByHand:
    """Photos to digits with Pillow, NumPy, SciPy and ONNX Runtime."""

    def __init__(self) -> None:
        sys.path.insert(0, str(ROOT / "benches" / "serve"))
        from digits_twin import Digits

        self.digits = Digits()

    def __call__(self, table: pa.Table) -> pa.Table:
        tops = [json.dumps(self.digits(photo)) for photo in table.column("image").to_pylist()]
        return table.append_column("top", pa.array(tops, pa.string()))


class EmbeddingByHand:
    """Texts to vectors with tokenizers, NumPy and ONNX Runtime, in batches."""

    batch = 32

    def __init__(self) -> None:
        import onnxruntime
        import tokenizers

        folder = ROOT / "examples" / "sentence-embedding"
        self.tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.enable_truncation(64)
        self.tokenizer.enable_padding()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(folder / "model.onnx", options, providers=["CPUExecutionProvider"])

    def vectors(self, texts: list[str]) -> np.ndarray[Any, Any]:
        """float32 `[texts, 128]`, each of length 1."""
        encodings = self.tokenizer.encode_batch(texts)
        ids = np.array([encoding.ids for encoding in encodings], np.int64)
        mask = np.array([encoding.attention_mask for encoding in encodings], np.int64)
        inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        (hidden,) = self.session.run(["last_hidden_state"], inputs)
        weights = mask[..., None].astype(np.float32)
        means = (hidden * weights).sum(1) / weights.sum(1)
        return means / np.linalg.norm(means, axis=1, keepdims=True)

    def __call__(self, table: pa.Table) -> pa.Table:
        texts = table.column("text").to_pylist()
        parts = [self.vectors(texts[start : start + self.batch]) for start in range(0, len(texts), self.batch)]
        vectors = np.concatenate(parts)
        offsets = np.arange(0, vectors.size + 1, vectors.shape[1], dtype=np.int32)
        return table.append_column("embeddings", pa.ListArray.from_arrays(offsets, vectors.reshape(-1)))


@dataclass
class Work:
    """A job: its rows, its pipeline, and the class that does it by hand."""

    name: str
    folder: Path
    rows: list[dict[str, Any]]
    block: int
    """rows that a worker takes at a time"""
    by_hand: type[DigitsByHand] | type[EmbeddingByHand]


def works(size: float) -> list[Work]:
    """The jobs, of `size` times their usual rows."""
    folder = ROOT / "models" / "samples"
    embedding = ROOT / "examples" / "sentence-embedding"
    photos = [path.read_bytes() for path in sorted(folder.iterdir()) if path.suffix in (".png", ".jpg")]
    kinds = ["an editor", "a library", "a viewer", "a converter", "a server"]
    texts = [f"{kinds[number % 5]} for files of kind {number}, with a page of help" for number in range(997)]
    return [
        Work(
            "photos, with a component",
            ROOT,
            [{"id": number, "image": photos[number % len(photos)]} for number in range(int(2000 * size))],
            50,
            DigitsByHand,
        ),
        *(
            Work(
                name,
                pipeline,
                [{"id": number, "text": texts[number % len(texts)]} for number in range(int(10000 * size))],
                250,
                EmbeddingByHand,
            )
            for name, pipeline in [("texts to vectors", embedding), ("the same, in batches", in_batches(embedding))]
        ),
    ]


def in_batches(pipeline: Path) -> Path:
    """A copy of the pipeline whose model runs up to 16 texts at a time."""
    copy = Path(tempfile.mkdtemp()) / pipeline.name
    shutil.copytree(pipeline, copy)
    file = copy / "gpux.yml"
    file.write_text(
        file.read_text().replace(
            "model: ./model.onnx",
            "model: { source: ./model.onnx, batching: { max_size: 16 } }",
        )
    )
    assert "batching" in file.read_text()
    return copy


def in_one_process(work: Work) -> tuple[float, float]:
    """Rows a second of gpux and by hand, in this process."""
    from gpux import Pipeline

    names = [name for name in work.rows[0] if name != "id"]
    requests = [{name: row[name] for name in names} for row in work.rows]
    with Pipeline(work.folder) as pipeline:
        pipeline.batch(requests[:50])
        ours = seconds(lambda: pipeline.batch(requests))
    by_hand, table = work.by_hand(), pa.Table.from_pylist(work.rows)
    by_hand(table.slice(0, 50))
    return len(requests) / ours, len(requests) / seconds(lambda: by_hand(table))


def seconds(run: Callable[[], object]) -> float:
    """How long a call takes."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def row(cluster: str, work: Work, workers: int, ours: float, by_hand: float) -> list[Any]:
    """A row of the table."""
    rounded = [round(number, 1) if number < 100 else round(number) for number in (ours, by_hand)]
    return [cluster, work.name, workers, *rounded, round(ours / by_hand, 2)]


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--machine", default="", help="the machine, in words, for the results")
    parser.add_argument("--size", type=float, default=1.0, help="times the usual number of rows")
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 4])
    return parser.parse_args()


def report(name: str, about: str, machine: str, rows: list[list[Any]], packages: list[str]) -> None:
    """Prints the table and writes it to benches/results/cluster-NAME.json."""
    widths = [max(len(str(cell)) for cell in column) for column in zip(COLUMNS, *rows, strict=True)]
    for line in [COLUMNS, *rows]:
        print("  ".join(str(cell).ljust(width) for cell, width in zip(line, widths, strict=True)))
    git = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip() or "unknown"
    result = {
        "theme": f"Rows a second on {name}",
        "about": about,
        "command": f"benches/cluster/{Path(sys.argv[0]).name}",
        "date": datetime.date.today().isoformat(),
        "machine": machine,
        "commit": commit,
        "versions": ", ".join(f"{package} {metadata.version(package)}" for package in packages),
        "columns": COLUMNS,
    }
    lines = ",\n    ".join(json.dumps(line, ensure_ascii=False) for line in rows)
    head = json.dumps(result, ensure_ascii=False, indent=2).removesuffix("\n}")
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"cluster-{name.lower()}.json").write_text(f'{head},\n  "rows": [\n    {lines}\n  ]\n}}\n')
