#!/usr/bin/env python3
"""Clients of other servers against a live one: OpenAI's (sync, async, both encodings, the classes of its errors), Cohere's,
Hugging Face's, LangChain's and LlamaIndex's adapters. What they get is what `/predict` gives.

Needs a build of gpux and the packages of requirements-clients.txt.
"""

import asyncio
import json
import shutil
import sys
import tempfile
from pathlib import Path

import cohere
import huggingface_hub
import numpy as np
import openai
from langchain_openai import OpenAIEmbeddings
from llama_index.embeddings.openai_like import OpenAILikeEmbedding

from server import RANKS, ROOT, post, serving

EMBEDS = ROOT / "examples/sentence-embedding"
CLASSIFIES = ROOT / "examples/text-classification"
# LangChain's default sends tokens of OpenAI's tokenizer. A server that takes those of its own tells them apart.
TAKES_IDS = (EMBEDS / "gpux.yml").read_text() + "\nserving: { token_ids: true }\n"
TEXTS = ["a web server written in C", "plays music", "command line tool that edits pictures"]
DOCUMENTS = ["one", "one two three", "one two"]


def predicted(address, text):
    answer = post(f"{address}/pipelines/sentence-embedding/predict", {"text": text})
    return np.array(next(iter(answer.values())), np.float32)[0]


def equal(given, expected):
    np.testing.assert_array_equal(np.array(given, np.float32), np.array(expected, np.float32))


def raises(kind, call):
    try:
        call()
    except kind as error:
        return error
    raise SystemExit(f"{kind.__name__} was expected")


def openai_client(address, expected):
    client = openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0)
    ask = lambda **options: client.embeddings.create(model="sentence-embedding", **options)
    # The client asks for base64 unless it is told otherwise.
    for encoding in ({}, {"encoding_format": "float"}):
        answer = ask(input=TEXTS, **encoding)
        for vector, right in zip(answer.data, expected, strict=True):
            equal(vector.embedding, right)
        assert answer.usage.prompt_tokens == answer.usage.total_tokens > len(TEXTS), answer.usage
    short = np.array(ask(input=TEXTS[0], dimensions=8).data[0].embedding)
    np.testing.assert_allclose(short, expected[0][:8] / np.linalg.norm(expected[0][:8]), rtol=1e-6)

    async def later():
        async with openai.AsyncOpenAI(base_url=f"{address}/openai/v1", api_key="none") as client:
            return await client.embeddings.create(model="sentence-embedding", input=TEXTS)

    equal(asyncio.run(later()).data[2].embedding, expected[2])
    names = {model.id for model in client.models.list()}
    assert names == {"sentence-embedding", "text-classification", "ranks", "rerank-v3.5"}, names
    assert client.models.retrieve("ranks").id == "ranks"

    error = raises(openai.NotFoundError, lambda: client.embeddings.create(model="none", input="a"))
    assert error.code == "model_not_found", error
    error = raises(openai.BadRequestError, lambda: ask(input=[]))
    assert "`input` has no text" in error.message, error
    raises(openai.BadRequestError, lambda: ask(input=[1, 2, 3]))
    raises(openai.BadRequestError, lambda: ask(input="a", dimensions=10**6))
    raises(openai.NotFoundError, lambda: client.chat.completions.create(model="x", messages=[]))


def openai_client_with_keys(address, key):
    client = openai.OpenAI(base_url=f"{address}/v1", api_key=key, max_retries=0)
    ask = lambda client: client.embeddings.create(model="sentence-embedding", input="a")
    assert ask(client).data
    raises(openai.AuthenticationError, lambda: ask(client.with_options(api_key="wrong")))
    error = raises(openai.RateLimitError, lambda: [ask(client) for _ in range(20)])
    assert int(error.response.headers["retry-after"]) >= 1, error.response.headers


def cohere_client(address):
    client = cohere.ClientV2(api_key="none", base_url=address)
    answer = client.rerank(model="rerank-v3.5", query="which?", documents=DOCUMENTS, top_n=2)
    assert [result.index for result in answer.results] == [1, 2], answer
    assert 0.9 < answer.results[0].relevance_score <= 1.0, answer
    raises(cohere.errors.BadRequestError, lambda: client.rerank(model="ranks", query="", documents=["a"]))
    raises(cohere.errors.NotFoundError, lambda: client.rerank(model="none", query="a", documents=["a"]))


def hugging_face(address, expected):
    client = huggingface_hub.InferenceClient(address)
    for text, right in zip(TEXTS, expected, strict=True):
        equal(client.feature_extraction(text)[0], right)
    cosines = client.sentence_similarity(TEXTS[0], TEXTS)
    np.testing.assert_allclose(cosines, [vector @ expected[0] for vector in expected], atol=1e-6)
    error = raises(huggingface_hub.errors.HfHubHTTPError, lambda: client.feature_extraction(""))
    assert error.response.status_code == 400, error

    top = post(f"{address}/pipelines/text-classification/predict", {"text": TEXTS[0]})["top"]
    classes = client.text_classification(TEXTS[0], top_k=2)
    assert [(one.label, one.score) for one in classes] == [(one["label"], one["score"]) for one in top[:2]], classes
    assert len(client.text_classification(TEXTS[0])) > 20


def token_ids(address, expected):
    client = openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0)
    ask = lambda ids: client.embeddings.create(model="sentence-embedding", input=ids).data[0].embedding
    tokens = post(f"{address}/tokenize", {"inputs": TEXTS[0], "add_special_tokens": False})[0]
    equal(ask([token["id"] for token in tokens]), expected[0])
    # cl100k_base's for "a web server written in C"
    error = raises(openai.BadRequestError, lambda: ask([64, 3566, 3622, 5439, 304, 356]))
    assert "of another tokenizer" in error.message, error


def langchain(address, expected):
    # Its default sends tokens of OpenAI's tokenizer, which the server refuses.
    options = {"base_url": f"{address}/v1", "api_key": "none", "model": "sentence-embedding"}
    client = OpenAIEmbeddings(check_embedding_ctx_length=False, **options)
    for vector, right in zip(client.embed_documents(TEXTS), expected, strict=True):
        equal(vector, right)
    equal(client.embed_query(TEXTS[1]), expected[1])


def llama_index(address, expected):
    client = OpenAILikeEmbedding(model_name="sentence-embedding", api_base=f"{address}/v1", api_key="none")
    for vector, right in zip(client.get_text_embedding_batch(TEXTS), expected, strict=True):
        equal(vector, right)


def search_by_meaning():
    """The example of that name: what the arithmetic of sentence-transformers finds (examples/search/referee.py)."""
    folder = ROOT / "examples/search"
    if not (folder / "model.onnx").exists():
        print("skipped: examples/search/fetch.sh brings the model of examples/search")
        return
    sys.path.insert(0, str(folder))
    import search

    expected = json.loads((folder / "expected.json").read_text())
    with serving(str(folder)) as address, tempfile.TemporaryDirectory() as place:
        client = openai.OpenAI(base_url=f"{address}/v1", api_key="none", timeout=120)
        vectors = Path(place) / "vectors.npz"
        for question, wanted in expected.items():
            found = search.search(client, question, len(wanted), vectors)
            assert [name for name, _, _ in found] == [name for name, _ in wanted], (question, found, wanted)
            np.testing.assert_allclose([cosine for _, _, cosine in found], [cosine for _, cosine in wanted], atol=1e-5)
        # Vectors of another space are made again.
        kept = np.load(vectors)
        np.savez(vectors, vectors=np.zeros_like(kept["vectors"]), space="another")
        question, wanted = next(iter(expected.items()))
        assert search.search(client, question, 1, vectors)[0][0] == wanted[0][0]


def main():
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        shutil.copy(EMBEDS / "tokenizer.json", folder)
        (folder / "gpux.yml").write_text(RANKS)
        with serving(str(EMBEDS), str(CLASSIFIES), str(folder)) as address:
            expected = [predicted(address, text) for text in TEXTS]
            openai_client(address, expected)
            cohere_client(address)
            hugging_face(address, expected)
            langchain(address, expected)
            llama_index(address, expected)
        takes_ids = folder / "takes-ids"
        takes_ids.mkdir()
        for file in ("tokenizer.json", "model.onnx"):
            shutil.copy(EMBEDS / file, takes_ids)
        (takes_ids / "gpux.yml").write_text(TAKES_IDS)
        with serving(str(takes_ids)) as address:
            token_ids(address, expected)
        key = "0123456789abcdefghijklmnopqrstuvwxyz"
        keys = folder / "keys.yml"
        keys.write_text(f"keys:\n  - {{ name: one, key: {key}, rate: 1, burst: 3 }}\n")
        keys.chmod(0o600)
        with serving(str(EMBEDS), "--keys", str(keys)) as address:
            openai_client_with_keys(address, key)
    search_by_meaning()
    print("the clients of OpenAI, Cohere, Hugging Face, LangChain and LlamaIndex get what /predict gives")


if __name__ == "__main__":
    main()
