"""Makes the model of this example, and records what the same pipeline gives in Python.

    python -m venv venv && venv/bin/pip install -r ../requirements.txt && venv/bin/python make.py
"""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from transformers import BertForSequenceClassification

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
import bert  # noqa: E402

LABELS = ["negative", "neutral", "positive"]
TEXTS = [
    "The data set contains three classes of fifty instances each.",
    "What a terrible, terrible wine!",
    "",
    "Ça c'est très bon 🍷",
]

torch.manual_seed(11)
model = BertForSequenceClassification(bert.config(num_labels=len(LABELS)))
with torch.no_grad():
    model.classifier.weight *= 60


class Logits(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask, token_type_ids):
        return self.model(input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids).logits


tokenizer = bert.tokenizer(HERE)
bert.export(Logits(), HERE, ["logits"], {"logits": {0: "batch"}})
(HERE / "labels.txt").write_text("\n".join(LABELS) + "\n")

session = onnxruntime.InferenceSession(HERE / "model.onnx")
tokenizer.enable_truncation(64)
cases = []
for text in TEXTS:
    (logits,) = session.run(None, bert.feed([tokenizer.encode(text)]))
    scores = np.exp(logits[0] - logits[0].max())
    scores /= scores.sum()
    output = [{"label": LABELS[i], "index": int(i), "score": float(scores[i])} for i in np.argsort(-scores)]
    cases.append({"args": ["--input", json.dumps({"text": text}, ensure_ascii=False)], "output": {"top": output}, "tolerance": 1e-4})
(HERE / "expected.json").write_text(json.dumps(cases, indent=1, ensure_ascii=False) + "\n")
print(cases[0]["output"])
