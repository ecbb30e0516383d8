"""Runs the text models with ONNX Runtime, and computes the figures of their quality. Needs NumPy only."""

import random

import numpy as np

TOKENS = 64
SEARCHED = 1000
PAIRS = 1000  # of each grade
BATCH = 64


def feed(encodings):
    """Inputs of a BERT, from encodings of one length."""
    array = lambda key: np.array([getattr(encoding, key) for encoding in encodings], dtype=np.int64)
    return {"input_ids": array("ids"), "attention_mask": array("attention_mask"), "token_type_ids": array("type_ids")}


def inputs(tokenizer, texts, batch=BATCH):
    tokenizer.enable_truncation(TOKENS)
    tokenizer.enable_padding(pad_token="[PAD]")
    return [feed(tokenizer.encode_batch(texts[i : i + batch])) for i in range(0, len(texts), batch)]


def classify(session, given):
    """The logits of each text."""
    return np.concatenate([session.run(None, batch)[0] for batch in given])


def embed(session, given):
    """The mean of each text's tokens, of length 1."""
    rows = []
    for batch in given:
        (hidden,) = session.run(None, batch)
        mask = batch["attention_mask"][..., None].astype(np.float32)
        mean = (hidden * mask).sum(1) / np.clip(mask.sum(1), 1e-9, None)
        rows.append(mean / np.clip(np.linalg.norm(mean, axis=1, keepdims=True), 1e-12, None))
    return np.concatenate(rows)


def recall(run, packages):
    """The share of packages whose long description is among the nearest 1 or 10 to the short one, of one package of
    each of up to `SEARCHED` sources, and how many there were."""
    chosen = list({package.source: package for package in reversed(packages)}.values())
    chosen = random.Random(1).sample(chosen, min(SEARCHED, len(chosen)))
    cosines = run([package.short for package in chosen]) @ run([package.long for package in chosen]).T
    ranks = (cosines > cosines.diagonal()[:, None]).sum(1)
    return {k: float((ranks < k).mean()) for k in (1, 10)}, len(chosen)


def graded_pairs(packages):
    """Pairs of a short and another package's long description with their relation: 2 for the same source, 1 for
    another source of the same section, 0 for another section; equally many of each."""
    chance = random.Random(2)
    siblings = [(one, other) for one in packages for other in packages if one.source == other.source and one is not other]
    count = min(PAIRS, len(siblings))
    pairs = [(one.short, other.long, 2) for one, other in chance.sample(siblings, count)]
    for grade in [1, 0]:
        while sum(pair[2] == grade for pair in pairs) < count:
            one, other = chance.sample(packages, 2)
            if one.source != other.source and (one.section == other.section) == (grade == 1):
                pairs.append((one.short, other.long, grade))
    return pairs


def correlation(run, pairs):
    """Spearman's, of the pairs' cosines and relations."""
    cosines = (run([pair[0] for pair in pairs]) * run([pair[1] for pair in pairs])).sum(1)
    return spearman(cosines, np.array([pair[2] for pair in pairs]))


def spearman(one, other):
    ranked = [np.searchsorted(np.sort(x), x, "left") + np.searchsorted(np.sort(x), x, "right") for x in (one, other)]
    return float(np.corrcoef(*ranked)[0, 1])
