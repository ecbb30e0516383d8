"""Makes what Optimum itself exports of a small model of sentence-transformers, with what that gives.

Optimum needs an older transformers than make_repositories.py:

    pip install optimum-onnx==0.1.0 transformers==4.57.6 sentence-transformers==5.1.0 && python make_optimum.py
"""
import json
import shutil
import tempfile

from make_repositories import HERE, REPOSITORIES, TEXTS, bert, modules, t, tokenizer
from optimum.exporters.onnx import main_export
from sentence_transformers import SentenceTransformer

NAME = "optimum-sentence"


def main():
    folder = REPOSITORIES / NAME
    shutil.rmtree(folder, ignore_errors=True)
    with tempfile.TemporaryDirectory() as saved:
        t.BertModel(bert()).save_pretrained(f"{saved}/bert")
        tokenizer().save_pretrained(f"{saved}/bert")
        parts = [modules.Transformer(f"{saved}/bert", max_seq_length=64), modules.Pooling(16, pooling_mode="mean")]
        model = SentenceTransformer(modules=[*parts, modules.Normalize()], device="cpu")
        model.save_pretrained(f"{saved}/model")
        main_export(f"{saved}/model", folder, task="feature-extraction", library_name="sentence_transformers",
                    do_validation=False)
    written = HERE / "expected.json"
    cases = [{"inputs": {"text": text}, "embedding": model.encode(text).tolist()} for text in TEXTS]
    written.write_text(json.dumps({**json.loads(written.read_text()), NAME: cases}, indent=1) + "\n")


if __name__ == "__main__":
    main()
