"""A BERT small enough for a repository, and a WordPiece tokenizer for it.

The question-answering example has one with random weights; models/make_text.py trains two. Any BERT exported to
ONNX (MiniLM, DistilBERT …) takes their place.
"""

from pathlib import Path

import onnx
import torch
from sklearn import datasets
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import BertConfig

WORDS = 900


def untrained(model) -> Tokenizer:
    made = Tokenizer(model)
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return made


def tokenizer(folder: Path, texts=None, words=WORDS) -> Tokenizer:
    """Trained on `texts`, else on the descriptions of scikit-learn's datasets; saved as `tokenizer.json`."""
    if texts is None:
        loads = [datasets.load_iris, datasets.load_wine, datasets.load_diabetes, datasets.load_digits]
        texts = [load().DESCR for load in loads]
    made = untrained(models.WordPiece(unk_token="[UNK]"))
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    # The trainer numbers parts of words in an order of chance, which decides between equally frequent ones. As
    # special tokens they have fixed numbers while it trains.
    inner = [f"##{letter}" for letter in sorted(set(made.normalizer.normalize_str("".join(texts)))) if not letter.isspace()]
    trainer = trainers.WordPieceTrainer(vocab_size=words, special_tokens=special + inner, show_progress=False)
    made.train_from_iterator(texts, trainer)
    made = untrained(models.WordPiece(made.get_vocab(with_added_tokens=True), unk_token="[UNK]"))
    made.add_special_tokens(special)
    made.decoder = decoders.WordPiece()
    ends = [(token, made.token_to_id(token)) for token in ["[CLS]", "[SEP]"]]
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ends
    )
    made.save(str(folder / "tokenizer.json"))
    return made


def config(**more) -> BertConfig:
    sizes = {
        "vocab_size": WORDS,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 64,
        "max_position_embeddings": 128,
    }
    return BertConfig(**sizes | more, attn_implementation="eager")


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
