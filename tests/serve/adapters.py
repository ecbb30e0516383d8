#!/usr/bin/env python3
"""LangChain's and LlamaIndex's adapters of Cohere and of Text Embeddings Inference, against a live server: what they get
is what `/predict` and `/rerank` give.

Needs a build of gpux and the packages of requirements-adapters.txt.
"""

import shutil
import tempfile
from pathlib import Path

from langchain_cohere import CohereRerank
from langchain_core.documents import Document
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
from llama_index.embeddings.text_embeddings_inference import TextEmbeddingsInference
from llama_index.postprocessor.cohere_rerank import CohereRerank as LlamaCohereRerank
from llama_index.postprocessor.tei_rerank import TextEmbeddingInference

from server import RANKS, ROOT, post, serving

EMBEDS = ROOT / "examples/sentence-embedding"
QUERY = "which?"
DOCUMENTS = ["one", "one two three", "one two"]
BEST = ["one two three", "one two"]


def scores_of_rerank(address):
    ranks = post(f"{address}/rerank", {"query": QUERY, "texts": DOCUMENTS})
    return [rank["score"] for rank in ranks][:2]


def check(kind, found, scores):
    texts, given = zip(*found)
    assert list(texts) == BEST, (kind, found)
    assert all(abs(score - right) < 1e-6 for score, right in zip(given, scores, strict=True)), (kind, given, scores)


def langchain_rerank(address, scores):
    ranker = CohereRerank(model="rerank-v3.5", cohere_api_key="none", base_url=address, top_n=2)
    found = ranker.compress_documents([Document(page_content=text) for text in DOCUMENTS], QUERY)
    check("LangChain, Cohere", [(one.page_content, one.metadata["relevance_score"]) for one in found], scores)


def llama_index_rerank(address, scores):
    nodes = lambda: [NodeWithScore(node=TextNode(text=text), score=0.0) for text in DOCUMENTS]
    cohere = LlamaCohereRerank(model="rerank-v3.5", api_key="none", base_url=address, top_n=2)
    tei = TextEmbeddingInference(base_url=address, model_name="ranks", top_n=2)
    for kind, ranker in [("LlamaIndex, Cohere", cohere), ("LlamaIndex, TEI", tei)]:
        found = ranker.postprocess_nodes(nodes(), QueryBundle(QUERY))
        check(kind, [(one.node.get_content(), one.score) for one in found], scores)


def llama_index_embeddings(address):
    right = post(f"{address}/embed", {"inputs": DOCUMENTS})
    client = TextEmbeddingsInference(model_name="sentence-embedding", base_url=address)
    assert client.get_text_embedding_batch(DOCUMENTS) == right
    assert client.get_query_embedding(DOCUMENTS[1]) == right[1]


def main():
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        shutil.copy(EMBEDS / "tokenizer.json", folder)
        (folder / "gpux.yml").write_text(RANKS)
        with serving(str(EMBEDS), str(folder)) as address:
            scores = scores_of_rerank(address)
            langchain_rerank(address, scores)
            llama_index_rerank(address, scores)
            llama_index_embeddings(address)
    print("the adapters of LangChain and LlamaIndex get what the server ranks and embeds")


if __name__ == "__main__":
    main()
