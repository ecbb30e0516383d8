"""Makes the example: a tiny language model, its tokenizer, and what it writes. Needs numpy, onnx and onnxruntime.

The model sees the last 12 letters and scores the next one; it has learned one rhyme by heart. What it writes on
is recorded with ONNX Runtime's Python package, by the same greedy loop as the step `greedy-decoder`.
"""

import json
from pathlib import Path

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, checker, helper, numpy_helper, save

HERE = Path(__file__).parent
RHYME = ("twinkle twinkle little star how i wonder what you are "
         "up above the world so high like a diamond in the sky")
SEEN, EMBEDDED, HIDDEN = 12, 6, 32
LETTERS = ["", " "] + [chr(letter) for letter in range(ord("a"), ord("z") + 1)]  # 0 is the end
END = 0
TOKEN = {letter: token for token, letter in enumerate(LETTERS)}
PROMPTS = ["twinkle t", "how", "up ", "like a", "in the s", "zebra", "Wonder what"]


def train():
    words = RHYME.split(" ")
    begun = [[TOKEN[letter] for letter in " ".join(words[word:])] + [END] for word in range(len(words))]
    seen = [([END] * SEEN + tokens[:place])[-SEEN:] for tokens in begun for place in range(1, len(tokens))]
    after = [token for tokens in begun for token in tokens[1:]]
    seen, index = np.unique(np.array(seen), axis=0, return_index=True)
    after = np.array(after)[index]
    rng = np.random.default_rng(3)
    weights = [rng.normal(0, 0.3, shape) for shape in
               [(len(LETTERS), EMBEDDED), (SEEN * EMBEDDED, HIDDEN), (HIDDEN,), (HIDDEN, len(LETTERS)), (len(LETTERS),)]]
    first, second = [np.zeros_like(w) for w in weights], [np.zeros_like(w) for w in weights]
    for step in range(1, 1001):
        table, inner, inner_bias, outer, outer_bias = weights
        found = table[seen].reshape(len(seen), -1)
        hidden = np.tanh(found @ inner + inner_bias)
        scores = hidden @ outer + outer_bias
        share = np.exp(scores - scores.max(1, keepdims=True))
        share /= share.sum(1, keepdims=True)
        share[np.arange(len(after)), after] -= 1
        share /= len(after)
        back = share @ outer.T * (1 - hidden**2)
        scattered = np.zeros_like(table)
        np.add.at(scattered, seen, (back @ inner.T).reshape(*seen.shape, EMBEDDED))
        steps = [scattered, found.T @ back, back.sum(0), hidden.T @ share, share.sum(0)]
        for weight, slope, mean, square in zip(weights, steps, first, second):
            mean += 0.1 * (slope - mean)
            square += 0.001 * (slope**2 - square)
            weight -= 0.01 * (mean / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.999**step)) + 1e-8)
    return [weight.astype(np.float32) for weight in weights]


def model(weights):
    constants = dict(zip(["table", "inner", "inner_bias", "outer", "outer_bias"], weights))
    constants |= {"before": np.full((1, SEEN), END, np.int64), "from": np.array([-SEEN]), "to": np.array([2**31 - 1]),
                  "axis": np.array([1]), "flat": np.array([1, SEEN * EMBEDDED])}
    nodes = [
        helper.make_node("Concat", ["before", "tokens"], ["padded"], axis=1),
        helper.make_node("Slice", ["padded", "from", "to", "axis"], ["seen"]),
        helper.make_node("Gather", ["table", "seen"], ["embedded"], axis=0),
        helper.make_node("Reshape", ["embedded", "flat"], ["row"]),
        helper.make_node("Gemm", ["row", "inner", "inner_bias"], ["sums"]),
        helper.make_node("Tanh", ["sums"], ["hidden"]),
        helper.make_node("Gemm", ["hidden", "outer", "outer_bias"], ["scores"]),
    ]
    graph = helper.make_graph(
        nodes, "letters",
        [helper.make_tensor_value_info("tokens", TensorProto.INT64, [1, "length"])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, [1, len(LETTERS)])],
        [numpy_helper.from_array(array, name) for name, array in constants.items()])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9, producer_name="gpux examples")
    checker.check_model(made)
    save(made, HERE / "letters.onnx")


def tokenizer():
    added = {"id": END, "content": "<end>", "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False, "special": True}
    vocabulary = {letter or "<end>": token for letter, token in TOKEN.items()}
    made = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [added],
            "normalizer": {"type": "Lowercase"}, "pre_tokenizer": None, "post_processor": None, "decoder": None,
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                      "vocab": vocabulary, "merges": []}}
    (HERE / "tokenizer.json").write_text(json.dumps(made) + "\n")


def write_on(session, prompt, most):
    tokens, scores = [TOKEN[letter] for letter in prompt.lower()], []
    for _ in range(most):
        row = session.run(None, {"tokens": np.array([tokens], np.int64)})[0][0]
        best = int(row.argmax())
        second = np.partition(row, -2)[-2]
        scores.append(float(row[best] - second))
        if best == END:
            break
        tokens.append(best)
    assert min(scores) > 1e-3, "two letters are so near to each other that engines may differ"
    return {"prompt": prompt, "tokens": tokens, "text": "".join(LETTERS[token] for token in tokens)}


model(train())
tokenizer()
session = ort.InferenceSession(HERE / "letters.onnx", providers=["CPUExecutionProvider"])
written = [write_on(session, prompt, 200) for prompt in PROMPTS]
assert written[0]["text"] == RHYME, written[0]
lines = [json.dumps(case, separators=(",", ":")) for case in written]
(HERE / "expected.json").write_text("[\n" + ",\n".join(lines) + "\n]\n")
