"""A BERT with random weights, small enough for a repository, and a WordPiece tokenizer for it.

The examples with text use it: what their models say means nothing, that gpux says what the same
pipeline says in Python does. Any BERT exported to ONNX (MiniLM, DistilBERT …) takes its place.
"""

from pathlib import Path

import onnx
import torch
from sklearn import datasets
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import BertConfig

WORDS = 900


def tokenizer(folder: Path) -> Tokenizer:
    """Trained on the descriptions of scikit-learn's datasets, saved as `tokenizer.json`."""
    texts = [load().DESCR for load in [datasets.load_iris, datasets.load_wine, datasets.load_diabetes, datasets.load_digits]]
    made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    made.train_from_iterator(texts, trainers.WordPieceTrainer(vocab_size=WORDS, special_tokens=special, show_progress=False))
    ends = [(token, made.token_to_id(token)) for token in ["[CLS]", "[SEP]"]]
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ends
    )
    made.save(str(folder / "tokenizer.json"))
    return made


def config(**more) -> BertConfig:
    return BertConfig(
        vocab_size=WORDS,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=128,
        attn_implementation="eager",
        **more,
    )


def export(model: torch.nn.Module, folder: Path, outputs: list[str], axes: dict) -> None:
    """Saves `model.onnx`, which takes ids, mask and types of any batch and length."""
    ids = torch.ones(1, 8, dtype=torch.int64)
    names = ["input_ids", "attention_mask", "token_type_ids"]
    torch.onnx.export(
        model.eval(),
        (ids, ids, ids * 0),
        folder / "model.onnx",
        input_names=names,
        output_names=outputs,
        dynamic_axes={name: {0: "batch", 1: "sequence"} for name in names} | axes,
        dynamo=False,
    )
    onnx.checker.check_model(onnx.load(folder / "model.onnx"))


def feed(encodings) -> dict:
    """What the model takes, from the tokenizer's encodings."""
    import numpy as np

    array = lambda key: np.array([getattr(encoding, key) for encoding in encodings], dtype=np.int64)
    return {"input_ids": array("ids"), "attention_mask": array("attention_mask"), "token_type_ids": array("type_ids")}
