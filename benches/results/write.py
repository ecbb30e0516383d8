#!/usr/bin/env python3
"""Writes docs/performance.md from the results in this folder: `just performance`.

    benches/results/write.py [--check]

With `--check`, writes nothing and exits with 1 if the page is not what the results give.

A result is one table: `theme`, `about`, `columns` and `rows`, and where it is from: the `command` that printed it, its
`date`, the `machine`, `versions`, and the `commit` that recorded it ("unknown" where nobody wrote it down). A new run
replaces the file. `PAGE` says which rows and columns the page shows; the files have all of them.
"""

import json
import pathlib
import sys

HERE = pathlib.Path(__file__).parent
TARGET = HERE.parent.parent / "docs/performance.md"

HEAD = """# Performance

<!-- Written by `just performance` from benches/results/*.json: change those. -->

Each table shows a part of its result file in [benches/results](../benches/results), which also has the command and the versions. All machines are virtual. Ratios carry over to other machines; single times do not.
"""

STEPS = [0, "Python", "gpux", "ratio"]


def is_cluster(row):
    """Whether a row is of a cluster."""
    return row[0] != "one process"


# Theme, what it says instead of its results' `about` (or None), and the results that its table is made of: file,
# columns (by name or place; None is all), rows (by their first cell, or a function of the row; None is all).
PAGE = [
    ("Aims that are not met, or not always", None, [("aims", [0, 1], lambda row: row[2] != "yes")]),
    (
        "Serving, requests a second",
        None,
        [("serving", [0, 1, "floor", "gpux", "gpux ÷ floor", "FastAPI", "Triton"], None)],
    ),
    ("A picture with a component, beside Python servers", None, [("digits-serving", [0, 1, 3], None)]),
    ("A process for each pipeline, requests a second", None, [("isolation", [0, 1, 2, 3, 4], None)]),
    (
        "Photos and texts in 8 bits",
        "Requests a second with the ratio to the floor (float32, one by one), processor time a request; medians of three "
        "rounds. `exact` runs texts in batches of up to 8. All but int8 also load the other models.",
        [("int8-serving", [0, 2, 5, 8, 11, 13], None)],
    ),
    (
        "Texts in bfloat16",
        "Measured as the last.",
        [("texts-precision", [0, 2, 5, 7], None)],
    ),
    ("CUDA beside the CPU", None, [("gpu", None, None)]),
    ("Overload, with and without batching", None, [("overload", None, None)]),
    ("Around a model", None, [("overhead", [0, 1], lambda row: "Session" not in row[0])]),
    ("A sandbox", None, [("sandbox", [0, 1, 4], lambda row: row[0].startswith(("pass-through", "center-ink, 1920")))]),
    ("Steps in three languages", None, [("languages", [0, 1, 3, 4, 5], None)]),
    (
        "Under attack",
        None,
        [
            (
                "hostile",
                [0, 1, 4, 5, 6],
                ["loops for ever in process", "takes memory for ever", "calls itself for ever", "the worst of all 78"],
            )
        ],
    ),
    (
        "Steps beside Python, ms",
        "One thread each, in turns; the reference library of each step does the same work. The files have all steps.",
        [
            (
                "compare-image",
                STEPS,
                ["photo 1280 × 720, JPEG", "photo, as a detector takes it (OpenCV)", "photo, PNG"],
            ),
            ("compare-audio", STEPS, ["Whisper's log-mel, 30 s at 16 kHz", "MP3, 30 s at 44.1 kHz, stereo"]),
            ("compare-text", STEPS, ["tokenize bert, 128 tokens", "cosine, 10 000 vectors of 384"]),
            ("compare-tensor", STEPS, ["transpose, 84 × 8400 floats"]),
            (
                "compare-output",
                STEPS,
                ["nms, 84 × 8400, 200 objects, 3000 candidates", "sigmoid, 80 × 8400, beside PyTorch"],
            ),
        ],
    ),
    ("Digits in other precisions", None, [("quality-digits", [0, "accuracy", "changed labels"], None)]),
    (
        "Labels in other precisions",
        None,
        [("quality-classifier", [0, "accuracy", "changed labels"], lambda row: row[0] != "float32, OpenVINO")],
    ),
    (
        "Vectors in other precisions",
        "Descriptions of 1800 held-out packages by examples/sentence-embedding: the long one found by the short one "
        "among 1000, Spearman's correlation of cosine and relation of 3000 pairs, the cosine with the first row's.",
        [
            (
                "quality-encoder",
                [0, "recall@10", "rank correlation", "least cosine"],
                lambda row: row[0] != "float32, OpenVINO",
            )
        ],
    ),
    ("From Python", None, [("python", None, lambda row: row[3] != "–")]),
    (
        "On Ray and Spark, rows a second",
        "On Ray, steady state: from a job's first block of results to its last. On Spark, the second of two runs, "
        "whose workers have loaded already. By hand, texts run in batches of 32.",
        [("cluster-ray", None, is_cluster), ("cluster-spark", None, is_cluster)],
    ),
    ("Start of the program, ms", None, [("start-up", [0, 1], None)]),
]


def cell(value):
    if value is None:
        return "–"
    if isinstance(value, int) and value >= 10_000:
        return f"{value:,}"
    return str(value)


def chosen(name, rows, which):
    if which is None:
        return rows
    if callable(which):
        return [row for row in rows if which(row)]
    kept = [row for row in rows if str(row[0]) in which]
    if len(kept) != len(which):
        raise SystemExit(f"{name}.json lacks {set(which) - {str(row[0]) for row in kept}}")
    return kept


def section(about, parts):
    """The Markdown of one theme: what it is about, its table, where that is from."""
    abouts, sources, lines = [], [], []
    for name, columns, rows in parts:
        result = json.loads((HERE / f"{name}.json").read_text())
        names = result["columns"]
        places = [names.index(c) if isinstance(c, str) else c for c in columns or range(len(names))]
        if not lines:
            lines += [[names[p] for p in places], ["---", *["--:"] * (len(places) - 1)]]
        lines += [[cell(row[p]) for p in places] for row in chosen(name, result["rows"], rows)]
        abouts.append(result["about"])
        link = f"[{name}](../benches/results/{name}.json)"
        sources.append(f"{link}: {result['date']}, {result['machine']}")
    table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return f"{about or ' '.join(abouts)}\n\n{table}\n\n{'; '.join(sources)}."


def main():
    page = HEAD + "".join(f"\n## {theme}\n\n{section(about, parts)}\n" for theme, about, parts in PAGE)
    if "--check" in sys.argv[1:]:
        if page != TARGET.read_text():
            raise SystemExit(f"{TARGET} is not what benches/results gives: just performance")
    else:
        TARGET.write_text(page)


if __name__ == "__main__":
    main()
