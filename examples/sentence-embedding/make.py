"""Makes the model of this example, and records what sentence-transformers' rule gives in Python:
the mean of the tokens' vectors under the mask, of length 1.

    python -m venv venv && venv/bin/pip install -r ../requirements.txt && venv/bin/python make.py
"""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from transformers import BertModel

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
import bert  # noqa: E402

TEXTS = ["The data set contains three classes.", "a wine of fifty years", "🍷", "so much text, " * 60]

torch.manual_seed(13)
model = BertModel(bert.config(), add_pooling_layer=False)


class Hidden(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask, token_type_ids):
        made = self.model(input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids)
        return made.last_hidden_state


tokenizer = bert.tokenizer(HERE)
bert.export(Hidden(), HERE, ["last_hidden_state"], {"last_hidden_state": {0: "batch", 1: "sequence"}})

session = onnxruntime.InferenceSession(HERE / "model.onnx")
tokenizer.enable_truncation(64)
tokenizer.enable_padding(pad_token="[PAD]")


def embed(texts):
    given = bert.feed(tokenizer.encode_batch(texts))
    (hidden,) = session.run(None, given)
    mask = given["attention_mask"][..., None].astype(np.float32)
    mean = (hidden * mask).sum(1) / np.clip(mask.sum(1), 1e-9, None)
    return mean / np.clip(np.linalg.norm(mean, axis=1, keepdims=True), 1e-12, None)


cases = [
    {"args": ["--input", json.dumps({"text": text}, ensure_ascii=False)], "output": {"embeddings": embed([text]).tolist()}, "tolerance": 1e-5}
    for text in TEXTS
]
(HERE / "expected.json").write_text(json.dumps(cases, ensure_ascii=False) + "\n")
print(cases[0]["output"]["embeddings"][0][:4])
