"""Makes expected.json beside this file: what the steps in C, JavaScript and Python must give.

Written with NumPy, Pillow and plain Python, from what each step's README says, not from its source.
    python3 -m pip install numpy pillow && python3 tests/reference/languages/make.py
"""

import json
import unicodedata
from pathlib import Path

import numpy as np
from PIL import Image

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]

TEXTS = [
    "  The quick\tbrown \r\n\r\n fox  ",
    "Stra\u00dfe, \u00c5ngstr\u00f6m, na\u0069\u0308ve caf\u0065\u0301",
    "\uff26\uff55\uff4c\uff4c \uff57\uff49\uff44\uff54\uff48 \u2460 \ufb03",
    "zero\u200bwidth, null\u0000byte, bell\u0007, \ufeffmark",
    "\u0130stanbul \u03a3\u03af\u03c3\u03c5\u03c6\u03bf\u03c2 \u1e9e",
    "\ud55c\uad6d\uc5b4 \u1112\u1161\u11ab \u65e5\u672c\u8a9e",
    "",
]


def threshold():
    pixels = np.asarray(Image.open(ROOT / "models/samples/seven.png").convert("L"))
    kept = np.where(pixels > 100, pixels, 0).astype(np.uint8)
    bright = np.where(pixels > 100, 255, 0).astype(np.uint8)
    return {"to-zero": kept.astype(int).sum(axis=1).tolist(), "binary": bright.astype(int).sum(axis=1).tolist()}


def probabilities():
    logits = json.loads((ROOT / "models/samples/expected.json").read_text())["samples"]["seven.png"]["logits"]
    logits = np.asarray(logits, dtype=np.float32).ravel()
    e = np.exp(logits - logits.max())
    return logits.tolist(), e / e.sum()


def formatted(scores, names):
    best = np.argsort(-scores, kind="stable")[:3]
    return " | ".join(f"{rank}. {names[i]} {100 * float(scores[i]):.1f}%" for rank, i in enumerate(best, 1))


def labels(scores, names):
    best = [int(i) for i in np.argsort(-scores, kind="stable") if scores[i] >= 0.001]
    return [{"label": names[i], "index": i, "score": float(scores[i])} for i in best]


def cleaned(text):
    visible = "".join(c for c in text if c in "\t\n\r" or unicodedata.category(c) not in ("Cc", "Cf"))
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", visible).casefold())
    return " ".join(folded.split())


def main():
    names = (ROOT / "models/digits.labels.txt").read_text().split()
    logits, scores = probabilities()
    expected = {
        "threshold": threshold(),
        "logits": logits,
        "formatted": formatted(scores, names),
        "labels": labels(scores, names),
        "texts": [{"text": text, "cleaned": cleaned(text)} for text in TEXTS],
    }
    lines = ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in expected.items())
    (HERE / "expected.json").write_text(f"{{\n{lines}\n}}\n")


if __name__ == "__main__":
    main()
