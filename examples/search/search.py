#!/usr/bin/env python3
"""Finds programs by what they do, with OpenAI's client.

    examples/search/search.py [--server URL] QUESTION…

The first run asks for the vectors of all descriptions in packages.tsv and keeps them in vectors.npz, with the space
that the server names. When the server's space is another one, those vectors are worthless, and it asks again. Needs the
packages openai and numpy, and `gpux serve examples/search`.
"""

import argparse
from pathlib import Path

import numpy as np
import openai

HERE = Path(__file__).resolve().parent
MODEL = "search"
TOGETHER = 128


def packages():
    """Names and descriptions."""
    lines = (HERE / "packages.tsv").read_text().splitlines()
    return tuple(zip(*(line.split("\t") for line in lines)))


def embed(client, texts):
    """The vectors of texts, and their space."""
    parts, space = [], None
    for start in range(0, len(texts), TOGETHER):
        answer = client.embeddings.create(model=MODEL, input=list(texts[start : start + TOGETHER]))
        # A field that OpenAI does not have.
        space = answer.model_extra["space"]
        parts += [item.embedding for item in answer.data]
    return np.array(parts, np.float32), space


def index(client, texts, space, path):
    """The vectors of the descriptions: those that are kept, if they lie in this space."""
    if path.exists():
        kept = np.load(path)
        if str(kept["space"]) == space and len(kept["vectors"]) == len(texts):
            return kept["vectors"]
    vectors, space = embed(client, texts)
    np.savez(path, vectors=vectors, space=space)
    return vectors


def search(client, question, count=10, path=HERE / "vectors.npz"):
    """The packages whose descriptions are the nearest: name, description, cosine."""
    names, texts = packages()
    (vector,), space = embed(client, [question])
    cosines = index(client, texts, space, path) @ vector
    best = np.argsort(-cosines, kind="stable")[:count]
    return [(names[place], texts[place], float(cosines[place])) for place in best]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("question", nargs="+")
    parser.add_argument("--server", default="http://localhost:8080")
    arguments = parser.parse_args()
    client = openai.OpenAI(base_url=f"{arguments.server}/v1", api_key="none")
    for name, text, cosine in search(client, " ".join(arguments.question)):
        print(f"{cosine:.3f}  {name}  {text}")


if __name__ == "__main__":
    main()
