"""Writes what Hugging Face's `tokenizers` makes of texts with random options of `tokenize` and `chunk`, and with
tokenizer.json files that switch truncation and padding on themselves.

    python -m venv venv && venv/bin/pip install -r requirements-text-random.txt && venv/bin/python make_text_random.py

The tokenizers are those that `make.py` trained; `benches/compare/text.py random` tries thousands more. A second run
writes the same bytes.
"""

import json
import random
from pathlib import Path

from text_lines import SENTENCES, lines
from text_random import digest, own_state, random_options, read, reference

HERE = Path(__file__).parent
NAMES = ["wordpiece", "bpe", "unigram"]
COUNT = 240


def text(rng, pool):
    return " ".join(rng.choice(pool) for _ in range(rng.choice([1, 1, 1, 2, 5])))


if __name__ == "__main__":
    rng = random.Random(2210)
    files = {name: read((HERE / "tokenize" / f"{name}.json").read_text()) for name in NAMES}
    pool = SENTENCES + ["", "one", "a b", "why?"] * 4 + lines(60)[-20:]
    cases = []
    for _ in range(COUNT):
        name = rng.choice(NAMES)
        truncation, padding = own_state(rng, files[name])
        step, options = random_options(rng, files[name])
        texts = [text(rng, pool) for _ in range(rng.choice([1, 1, 2, 3]))]
        pairs = [text(rng, pool) for _ in texts] if rng.random() < 0.5 else None
        if options.get("truncation") == "only_second" and rng.random() < 0.8:
            pairs, texts = texts, ["who?" for _ in texts]
        given = reference(files[name], truncation, padding, step, options, texts, pairs)
        case = {"tokenizer": name, "truncation": truncation, "padding": padding, "step": step, "options": options,
                "text": texts, "pair": pairs, "rows": None}
        if given:
            rows, windows = given
            case |= {"rows": [digest(row) for row in rows], "window_of": windows}
        cases.append(case)
    refused = sum(case["rows"] is None for case in cases)
    rows = sum(len(case["rows"] or []) for case in cases)
    (HERE / "tokenize-random.json").write_text(json.dumps(cases, ensure_ascii=True, separators=(",", ":")) + "\n")
    print(f"{len(cases)} cases, {refused} refused, {rows} rows")
