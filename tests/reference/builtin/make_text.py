"""Writes the numbers that the text steps, and those after a language model, are compared with.

    python -m venv venv && venv/bin/pip install -r requirements-text.txt && venv/bin/python make_text.py

`make_text_qa.py` beside this writes those of `qa-span`, whose reference is in an older version. The
tokenizers are those that `make.py` trained. A second run writes the same bytes.
"""

import hashlib
import json
import random
import sys
import unicodedata
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from sentence_transformers.sentence_transformer.modules import Pooling
from sentence_transformers.util import cos_sim
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast, TokenClassificationPipeline
from transformers.pipelines.token_classification import AggregationStrategy

from text_lines import SENTENCES, lines

HERE = Path(__file__).parent
NAMES = ["wordpiece", "bpe", "unigram"]
SPECIAL = {
    "wordpiece": {"unk_token": "[UNK]", "pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"},
    "bpe": {"pad_token": "<|endoftext|>"},
    "unigram": {"unk_token": "<unk>", "pad_token": "<pad>"},
}
# All lines so many times are over 100 kB.
LONGER = 5
LONG = " ".join(SENTENCES[:3] + SENTENCES[9:11])


def folder(name):
    path = HERE / name
    path.mkdir(exist_ok=True)
    for old in path.iterdir():
        # That of `qa-span` is written by another script.
        if not old.name.startswith("qa-"):
            old.unlink()
    return path


def write_json(path, value):
    path.write_text(json.dumps(value, ensure_ascii=True, separators=(",", ":")) + "\n")


def numbers(array):
    array = np.asarray(array)
    # JSON has no infinities.
    return {"shape": array.shape, "data": [float(str(x)) if np.isfinite(x) else str(x) for x in array.ravel()]}


def tokenizer(name):
    own = Tokenizer.from_file(str(HERE / "tokenize" / f"{name}.json"))
    own.no_padding()
    return own


def fast(name):
    # The sides that the files say, which transformers does not read.
    side = "left" if name == "bpe" else "right"
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer(name), padding_side=side, **SPECIAL[name])


def none_is_minus_one(ids):
    return [-1 if id is None else id for id in ids]


def everything(encoding):
    """All that `tokenize` can give for one row."""
    return {
        "input_ids": encoding.ids,
        "attention_mask": encoding.attention_mask,
        "token_type_ids": encoding.type_ids,
        "offsets": [list(place) for place in encoding.offsets],
        "special_tokens_mask": encoding.special_tokens_mask,
        "sequence_ids": none_is_minus_one(encoding.sequence_ids),
        "word_ids": none_is_minus_one(encoding.word_ids),
    }


def digest_of(encoding):
    row = json.dumps(list(everything(encoding).values()), separators=(",", ":"))
    return hashlib.sha256(row.encode()).hexdigest()[:16]


# --- tokenize -----------------------------------------------------------------------------------


def many_lines(out):
    """Every number of every line, as a digest."""
    texts = lines(400)
    digests, long = {}, {}
    for name in NAMES:
        digests[name] = [digest_of(row) for row in tokenizer(name).encode_batch(texts)]
        long[name] = digest_of(tokenizer(name).encode("\n".join(texts) * LONGER))
    write_json(out / "lines.json", {"lines": texts, **digests, "long": long, "longer": LONGER})


def cut_and_filled(out):
    """Sides, strategies, and all outputs, as transformers' tokenizers give them."""
    rng = random.Random(11)
    texts = SENTENCES[:2] + ["", "one", SENTENCES[4], SENTENCES[13]]
    cases = []
    for name in NAMES:
        for truncation_side in ("left", "right"):
            for padding_side in ("left", "right"):
                for truncation in ("longest_first", "only_first", "only_second"):
                    for paired in (False, True):
                        if truncation == "only_second" and not paired:
                            continue
                        which = [texts[rng.randrange(len(texts))] for _ in range(2)]
                        # What is not cut has to fit.
                        pairs = [texts[rng.randrange(len(texts))] for _ in range(2)] if paired else None
                        if truncation == "only_second":
                            which = ["one", "two?"]
                        if truncation == "only_first" and paired:
                            pairs = ["one", "two?"]
                        options = {"truncation": truncation, "max_length": rng.choice([13, 16, 21]),
                                   "padding": rng.choice(["longest", "max_length"])}
                        # Odd lengths of both come out as the tokenizers' own call says.
                        reference = fast(name)
                        reference.truncation_side, reference.padding_side = truncation_side, padding_side
                        try:
                            result = reference(which, pairs, **options)
                        except BaseException as error:  # what cannot be cut short enough panics or raises
                            cases.append({"tokenizer": name, "options": {**options, "truncation_side": truncation_side},
                                          "text": which, "pair": pairs, "rows": None})
                            continue
                        rows = [everything(result.encodings[index]) for index in range(len(which))]
                        cases.append({"tokenizer": name, "text": which, "pair": pairs, "rows": rows,
                                      "options": {**options, "truncation_side": truncation_side, "padding_side": padding_side}})
    write_json(out / "cut.json", cases)


# --- chunk, join --------------------------------------------------------------------------------


def chunks(out):
    cases = []
    for name in NAMES:
        for max_length, stride, padding in [(16, 0, "longest"), (24, 7, "max_length"), (40, 30, "longest"), (500, 100, "longest")]:
            for texts, pairs, cut in [
                ([LONG, "short", ""], None, None),
                (["what?", "who?"], [LONG, "a fox"], "pair"),
                ([SENTENCES[4] * 2], ["why?"], "text"),
            ]:
                if pairs and max_length - 14 < stride:
                    continue
                truncation = True if pairs is None else {"pair": "only_second", "text": "only_first"}[cut]
                reference = fast(name)
                result = reference(texts, pairs, truncation=truncation, max_length=max_length, stride=stride,
                                   padding=padding, return_overflowing_tokens=True)
                options = {"max_length": max_length, "stride": stride, "padding": padding}
                if cut:
                    options["cut"] = cut
                cases.append({"tokenizer": name, "options": options, "text": texts, "pair": pairs,
                              "input_ids": [row.ids for row in result.encodings],
                              "rows": [digest_of(row) for row in result.encodings],
                              "window_of": result["overflow_to_sample_mapping"]})
    windows = []
    words = Tokenizer(models.WordLevel({str(number): number for number in range(50)}, unk_token="0"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    for length, max_length, stride in [(0, 4, 1), (1, 4, 1), (4, 4, 1), (5, 4, 1), (7, 4, 1), (8, 4, 1), (50, 9, 8), (49, 7, 0), (50, 1, 0)]:
        encoding = words.encode(" ".join(str(number) for number in range(length)))
        encoding.truncate(max_length, stride)
        rows = [row.ids for row in [encoding, *encoding.overflowing]]
        windows.append({"length": length, "max_length": max_length, "stride": stride, "rows": rows})
    write_json(out / "chunk.json", {"text": cases, "tokens": windows})


def joins(out):
    rng = np.random.default_rng(3)
    cases = []
    for dtype in (np.float32, np.float64, np.float16):
        for shape, window_of in [((5, 8), None), ((5, 8), [0, 0, 1, 2, 2]), ((4, 3, 2), [0, 1, 1, 1]), ((7,), [0, 0, 0, 0, 1, 1, 1])]:
            values = rng.normal(0, 3, shape).astype(dtype)
            texts = np.zeros(shape[0], int) if window_of is None else np.array(window_of)
            for how, numpy in [("mean", np.mean), ("max", np.max)]:
                joined = np.stack([numpy(values[texts == text], axis=0) for text in range(texts.max() + 1)])
                cases.append({"options": {"how": how}, "element": str(values.dtype), "values": numbers(values),
                              "window_of": window_of, "joined": numbers(joined)})
        values = rng.normal(0, 3, (3, 6, 2)).astype(dtype)
        joined = np.concatenate([values[0], values[1][2:], values[2][2:]])[None]
        cases.append({"options": {"how": "concat", "stride": 2}, "element": str(values.dtype), "values": numbers(values),
                      "window_of": None, "joined": numbers(joined)})
    write_json(out / "join.json", cases)


# --- detokenize, normalize-text -----------------------------------------------------------------


def detokenized(out):
    rng = random.Random(5)
    cases = []
    for name in NAMES:
        reference = fast(name)
        own = tokenizer(name)
        rows = [own.encode(line).ids for line in SENTENCES + ["", "don ' t , he ' s . They 've n't !", LONG]]
        rows += [[rng.randrange(own.get_vocab_size() + 3) for _ in range(rng.randrange(40))] for _ in range(60)]
        for row in rows:
            plain = own.decode(row, skip_special_tokens=True)
            cases.append({"tokenizer": name, "ids": row, "text": plain,
                          "with_special": own.decode(row, skip_special_tokens=False),
                          "cleaned": reference.clean_up_tokenization(plain)})
    write_json(out / "detokenize.json", cases)


def bert(**how):
    off = {"clean_text": False, "handle_chinese_chars": False, "strip_accents": False, "lowercase": False}
    return normalizers.BertNormalizer(**{**off, **how}).normalize_str


NORMALIZED = [
    ({"form": "nfc"}, lambda text: unicodedata.normalize("NFC", text)),
    ({"form": "nfd"}, lambda text: unicodedata.normalize("NFD", text)),
    ({"form": "nfkc"}, lambda text: unicodedata.normalize("NFKC", text)),
    ({"form": "nfkd"}, lambda text: unicodedata.normalize("NFKD", text)),
    ({"case": "lower"}, str.lower),
    ({"white_space": "strip"}, str.strip),
    ({"white_space": "collapse"}, lambda text: " ".join(text.split())),
    ({"form": "nfkc", "case": "lower", "white_space": "collapse"},
     lambda text: " ".join(unicodedata.normalize("NFKC", text).lower().split())),
    ({"clean": True}, bert(clean_text=True)),
    ({"cjk_spaces": True}, bert(handle_chinese_chars=True)),
    ({"strip_accents": True}, bert(strip_accents=True)),
    ({"case": "lower_chars"}, bert(lowercase=True)),
    ({"clean": True, "cjk_spaces": True, "strip_accents": True, "case": "lower_chars"},
     bert(clean_text=True, handle_chinese_chars=True, strip_accents=True, lowercase=True)),
]


def normalized(out):
    """Lines, and every character that Python's Unicode (14) knows, by blocks of 4096, as digests."""
    digest = lambda texts: hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]
    known = [code for code in range(0x110000) if unicodedata.category(chr(code)) not in ("Cn", "Cs", "Co")]
    # Decomposes since Unicode 13, which the tokenizers' own tables do not know.
    known.remove(0x11938)
    ranges = []
    for code in known:
        if ranges and ranges[-1][1] == code:
            ranges[-1][1] = code + 1
        else:
            ranges.append([code, code + 1])
    blocks = {}
    for code in known:
        blocks.setdefault(code >> 12, []).append(chr(code))
    texts = lines(400)
    cases = []
    for options, normalize in NORMALIZED:
        cases.append({"options": options, "lines": [digest([normalize(text)]) for text in texts],
                      "blocks": [digest([normalize(f"a{char}b") for char in chars]) for chars in blocks.values()]})
    write_json(out / "normalize.json", {"lines": texts, "ranges": ranges, "cases": cases})


# --- after a model ------------------------------------------------------------------------------


def pooled(out):
    rng = np.random.default_rng(9)
    cases = []
    for dtype, name in [(torch.float32, "float32"), (torch.float64, "float64"), (torch.float16, "float16")]:
        for batch, length, width in [(1, 1, 1), (2, 7, 16), (3, 33, 24), (1, 128, 8)]:
            hidden = torch.tensor(rng.normal(0, 2, (batch, length, width)).round(3)).to(dtype)
            lengths = rng.integers(0, length + 1, batch)
            lengths[0] = length
            mask = torch.tensor(np.arange(length)[None] < lengths[:, None]).long()
            if batch == 3:
                mask = mask.flip(1)
            case = {"element": name, "hidden": numbers(hidden.numpy()), "mask": numbers(mask.numpy())}
            several = ("cls", "mean_sqrt_len_tokens")
            for key, mode in [("mean", "mean"), ("first", "cls"), ("last", "lasttoken"), ("max", "max"),
                              ("weightedmean", "weightedmean"), ("mean_sqrt_len_tokens", "mean_sqrt_len_tokens"),
                              ("several", several)]:
                features = {"token_embeddings": hidden, "attention_mask": mask}
                case[key] = numbers(Pooling(width, pooling_mode=mode)(features)["sentence_embedding"].numpy())
            cases.append(case)
    write_json(out / "pool.json", cases)

    cases = []
    for dtype, name in [(torch.float32, "float32"), (torch.float64, "float64")]:
        for shape, axis in [((5,), -1), ((3, 100), -1), ((3, 5), 0), ((2, 3, 4), 1), ((2, 1), -1)]:
            given = torch.tensor(rng.normal(0, 4, shape)).to(dtype)
            given.view(-1)[0] = 0 if len(shape) > 1 else 1e-20
            cases.append({"axis": axis, "element": name, "input": numbers(given.numpy()),
                          "output": numbers(torch.nn.functional.normalize(given, dim=axis).numpy())})
    zeros = torch.zeros(2, 3)
    cases.append({"axis": -1, "element": "float32", "input": numbers(zeros.numpy()), "output": numbers(zeros.numpy())})
    write_json(out / "l2-normalize.json", cases)

    vectors = rng.normal(0, 1, (40, 24)).astype(np.float32)
    vectors[7] = 0
    np.save(out / "vectors.npy", vectors)
    queries = rng.normal(0, 1, (6, 24)).astype(np.float32)
    queries[5] = 0
    write_json(out / "cosine.json", {"queries": numbers(queries), "scores": numbers(cos_sim(queries, vectors).numpy())})


LABELS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC", "MISC", "B-some-thing", "I-some-thing"]


def plain(found):
    return [{key: value.item() if hasattr(value, "item") else value for key, value in one.items()} for one in found]


def entities(out):
    rng = np.random.default_rng(21)
    texts = ["Ada Lovelace met Charles Babbage in London.", "unbelievably, Größe and naïve café; 日本語 中文",
             "[UNK] what? 😀 in New-York", "word", SENTENCES[1]]
    cases = []
    for name in NAMES:
        reference = fast(name)
        for text in texts:
            encoding = reference(text, return_offsets_mapping=True, return_special_tokens_mask=True)
            length = len(encoding["input_ids"])
            # Neighbours mostly agree, as a trained model's do.
            logits = rng.normal(0, 1, (length, len(LABELS))).round(2).astype(np.float32)
            spot = 0
            for at in range(length):
                if rng.random() < 0.4:
                    spot = rng.integers(len(LABELS))
                logits[at, spot] += 3
            rows = []
            for strategy in AggregationStrategy:
                pipeline = TokenClassificationPipeline.__new__(TokenClassificationPipeline)
                pipeline.tokenizer = reference
                pipeline.model = SimpleNamespace(config=SimpleNamespace(id2label=dict(enumerate(LABELS))))
                output = {"logits": torch.tensor(logits)[None], "sentence": text, "word_ids": None, "word_to_chars_map": None,
                          "input_ids": torch.tensor([encoding["input_ids"]]),
                          "offset_mapping": torch.tensor([encoding["offset_mapping"]]),
                          "special_tokens_mask": torch.tensor([encoding["special_tokens_mask"]])}
                found = pipeline.postprocess([output], aggregation_strategy=strategy)
                rows.append({"strategy": strategy.value, "entities": plain(found)})
            cases.append({"tokenizer": name, "text": text, "logits": numbers(logits), "found": rows})
    # Windows of one text that overlap.
    reference = fast("wordpiece")
    text = " ".join(texts[:2])
    encoding = reference(text, truncation=True, max_length=20, stride=8, padding=True, return_overflowing_tokens=True,
                         return_offsets_mapping=True, return_special_tokens_mask=True)
    rows, length = np.array(encoding["input_ids"]).shape
    logits = rng.normal(0, 2, (rows, length, len(LABELS))).round(2).astype(np.float32)
    pipeline.tokenizer = reference
    outputs = [{"logits": torch.tensor(logits[row])[None], "sentence": text, "word_ids": None, "word_to_chars_map": None,
                "input_ids": torch.tensor([encoding["input_ids"][row]]),
                "offset_mapping": torch.tensor([encoding["offset_mapping"][row]]),
                "special_tokens_mask": torch.tensor([encoding["special_tokens_mask"][row]])} for row in range(rows)]
    found = pipeline.postprocess(outputs, aggregation_strategy=AggregationStrategy.SIMPLE)
    windows = {"text": text, "options": {"max_length": 20, "stride": 8}, "logits": numbers(logits),
               "entities": plain(found)}
    write_json(out / "ner.json", {"labels": LABELS, "cases": cases, "windows": windows})


if __name__ == "__main__":
    text, output = folder("text"), folder("output")
    many_lines(text)
    cut_and_filled(text)
    chunks(text)
    joins(text)
    detokenized(text)
    normalized(text)
    pooled(output)
    entities(output)
    total = sum(path.stat().st_size for path in [*text.iterdir(), *output.iterdir()])
    print(f"{total / 1024:.0f} KiB")
