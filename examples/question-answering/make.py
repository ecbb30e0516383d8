"""Makes the model of this example, and records what the rule of transformers' question-answering
pipeline (4.57) gives in Python: the span of the context with the best start and end.

    python -m venv venv && venv/bin/pip install -r ../requirements.txt && venv/bin/python make.py
"""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from transformers import BertForQuestionAnswering

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
import bert  # noqa: E402

LONGEST = 15
CASES = [
    ("How many classes are there?", "The data set contains three classes of fifty instances each, where each class is a type of iris plant."),
    ("Where does the wine grow?", "These data are the results of a chemical analysis of wines grown in the same region in Italy."),
]

torch.manual_seed(17)
model = BertForQuestionAnswering(bert.config())
with torch.no_grad():
    model.qa_outputs.weight *= 40


class Ends(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask, token_type_ids):
        made = self.model(input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids)
        return made.start_logits, made.end_logits


tokenizer = bert.tokenizer(HERE)
outputs = ["start_logits", "end_logits"]
bert.export(Ends(), HERE, outputs, {name: {0: "batch", 1: "sequence"} for name in outputs})
session = onnxruntime.InferenceSession(HERE / "model.onnx")
softmax = lambda x: np.exp(x - x.max()) / np.exp(x - x.max()).sum()

cases = []
for question, context in CASES:
    encoding = tokenizer.encode(question, context)
    start, end = (logits[0] for logits in session.run(None, bert.feed([encoding])))
    # Only tokens of the context, and the first for "no answer", which is not taken here.
    allowed = np.array([i == 0 or sequence == 1 for i, sequence in enumerate(encoding.sequence_ids)])
    start, end = (softmax(np.where(allowed, logits, -10000.0)) for logits in (start, end))
    start[0] = end[0] = 0
    spans = np.tril(np.triu(np.outer(start, end)), LONGEST - 1)
    i, j = np.unravel_index(spans.argmax(), spans.shape)
    first, last = encoding.offsets[i][0], encoding.offsets[j][1]
    answer = {"answer": context[first:last], "score": float(spans[i, j]), "start": first, "end": last}
    cases.append({"args": ["--input", json.dumps({"question": question, "context": context})], "output": {"answer": answer}, "tolerance": 1e-4})
(HERE / "expected.json").write_text(json.dumps(cases, indent=1) + "\n")
print(cases[0]["output"])
