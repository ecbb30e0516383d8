"""Trains the text models of the examples on the descriptions of Debian's packages.

    python -m venv .venv
    .venv/bin/pip install -r examples/requirements.txt
    .venv/bin/python models/make_text.py

Writes model.onnx, tokenizer.json and expected.json of examples/sentence-embedding and examples/text-classification,
the labels of the latter, and beside this file the card `text.md` and the held-out texts that
benches/compare/quality.py takes. Needs apt (see debian.py). The sentence encoder learns first, on short and long
descriptions that belong together; the classifier starts from its weights and learns the sections. A tenth of the
source packages is held out: all figures come from it. About 25 minutes on one core; the same seed, index and versions
give the same models. `--packages 3000 --encoder-epochs 1 --classifier-epochs 1 --trial` shows in a minute that the
script runs, and overwrites the files with poor models.
"""

import argparse
import copy
import gzip
import json
import random
import sys
import time
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from transformers import BertModel

import debian
from debian import LABELS
from text_quality import TOKENS, classify, correlation, embed, graded_pairs, inputs, recall

HERE = Path(__file__).parent
EXAMPLES = HERE.parent / "examples"
sys.path.insert(0, str(EXAMPLES))
import bert  # noqa: E402

WORDS = 6000
SIZES = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 512}
PAIRS = 256  # a batch of the encoder
TEXTS = 64  # a batch of the classifier
TEMPERATURE = 0.05
MOST = 2500  # texts of a label in an epoch
NAMES = list(LABELS)
KEPT = 1800  # held-out packages that are checked in

CLASSIFY = ["an editor for PNG icons", "a game in which penguins dig tunnels", "", "Ça lit des fichiers de musique 🎵"]
EMBED = ["an editor for PNG icons", "program to draw and change pictures", "🍷", "so much text, " * 60]

CARD = """# The text models

`examples/text-classification` predicts the section of a package of Debian from its description,
`examples/sentence-embedding` gives a vector of a text's meaning. Made by `models/make_text.py`.

| | |
| --- | --- |
| inputs | `input_ids`, `attention_mask`, `token_type_ids`, int64 `[batch, sequence]`, up to {tokens} tokens |
| outputs | classifier: `logits`, float32 `[batch, {labels}]`; encoder: `last_hidden_state`, float32 `[batch, sequence, {hidden}]` |
| network | BERT: {layers} layers of {hidden}, {heads} heads, {words} words; {encoder_parameters} and {classifier_parameters} parameters |
| data | {index}: short and long descriptions (the first {longest} characters) of {train} packages of {train_sources} sources |
| held out | {held_out} packages of {held_out_sources} other sources, a tenth by a hash of the source's name without version numbers; none whose short or long description is in the training data |
| labels | {labels}, each one or several sections (`models/debian.py`): {listed} |
| license | Descriptions are under the licenses of their packages, all free by Debian's guidelines. The weights are derived from them; the script and what is ours in the weights: Apache-2.0 |

Held-out figures, of ONNX Runtime:

| classifier | short description | short and long |
| --- | --: | --: |
| accuracy, {classified} packages | {short_accuracy:.1%} | {accuracy:.1%} |
| mean of the labels' accuracies | {short_balanced:.1%} | {balanced:.1%} |
| right label among the first three | {short_top3:.1%} | {top3:.1%} |

| encoder | |
| --- | --: |
| recall@1, @10: a package's long description found by its short one, of {searched} | {recall1:.1%}, {recall10:.1%} |
| Spearman's rank correlation of cosine and relation, {pairs} pairs | {correlation:.3f} |

The pairs are the short description of one package and the long one of another: same source (grade 2), other source
of the same section (1), other section (0), equally many of each.

**Training.** The encoder tells a package's long description from those of {others} others by its short one
(cross-entropy of cosines, temperature {temperature}), {encoder_epochs} epochs. The classifier starts from the
encoder's weights, {classifier_epochs} epochs, each with at most {most} packages of a label; a text is the short
description, the long one or both. One core, seed {seed}.

**Limits.** English, in the manner of package descriptions. Sections overlap, and the label is the maintainer's
choice: {confused}. Any other text gets a label as well, also an empty one.

**Held-out texts.** `held-out-texts.jsonl.gz` has {kept} of the held-out packages, one a line, for
`benches/compare/quality.py`: excerpts of the descriptions, under the licenses of their packages.
"""


def main():
    options = arguments()
    seed(options)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)

    found, index = debian.packages(options.index)
    train, held_out = debian.split(found)
    print(f"{index}: {len(train)} packages for training, {len(held_out)} held out", flush=True)
    if options.packages:
        train = random.sample(train, options.packages)

    encoder_folder, classifier_folder = EXAMPLES / "sentence-embedding", EXAMPLES / "text-classification"
    texts = [text for package in train for text in (package.short, package.long)]
    tokenizer = bert.tokenizer(encoder_folder, texts, WORDS)
    (classifier_folder / "tokenizer.json").write_bytes((encoder_folder / "tokenizer.json").read_bytes())
    words = tokenizer.get_vocab_size()
    tokens = Tokens(tokenizer)

    encoder = train_encoder(train, tokens, bert.config(vocab_size=words, **SIZES), options)
    bert.export(Hidden(encoder), encoder_folder, ["last_hidden_state"], {"last_hidden_state": {0: "batch", 1: "sequence"}})
    classifier = train_classifier(train, tokens, encoder, options)
    bert.export(classifier, classifier_folder, ["logits"], {"logits": {0: "batch"}})
    (classifier_folder / "labels.txt").write_text("\n".join(NAMES) + "\n")

    quality = encoder_quality(encoder_folder, tokenizer, held_out) | classifier_quality(classifier_folder, tokenizer, held_out)
    kept = write_held_out(held_out, options.seed)
    write_expected(encoder_folder, classifier_folder, tokenizer)
    parameters = lambda model: sum(parameter.numel() for parameter in model.parameters())
    facts = quality | {
        "index": index,
        "tokens": TOKENS,
        "labels": len(NAMES),
        "listed": ", ".join(NAMES),
        "layers": SIZES["num_hidden_layers"],
        "hidden": SIZES["hidden_size"],
        "heads": SIZES["num_attention_heads"],
        "words": words,
        "encoder_parameters": parameters(encoder),
        "classifier_parameters": parameters(classifier),
        "longest": debian.LONGEST,
        "train": len(train),
        "train_sources": len({package.source for package in train}),
        "held_out": len(held_out),
        "held_out_sources": len({package.source for package in held_out}),
        "others": PAIRS - 1,
        "temperature": TEMPERATURE,
        "encoder_epochs": options.encoder_epochs,
        "classifier_epochs": options.classifier_epochs,
        "most": MOST,
        "seed": options.seed,
        "kept": kept,
    }
    (HERE / "text.md").write_text(CARD.format(**facts))
    print(json.dumps(quality, indent=1))
    if not options.trial and (quality["accuracy"] < 0.7 or quality["recall10"] < 0.7):
        raise SystemExit("the models are worse than they should be: at least 0.7 of accuracy and recall@10")


def arguments():
    parser = argparse.ArgumentParser(description="Train the text models of the examples.")
    parser.add_argument("--seed", type=int, default=23)
    parser.add_argument("--encoder-epochs", type=int, default=5)
    parser.add_argument("--classifier-epochs", type=int, default=8)
    parser.add_argument("--encoder", type=Path, help="keep the encoder's weights in this file, and take them from there")
    parser.add_argument("--packages", type=int, help="of the training data, for a trial")
    parser.add_argument("--trial", action="store_true", help="accept any quality")
    parser.add_argument("--index", type=Path, default=HERE.parent / "target/apt-lists", help="folder of apt's index")
    return parser.parse_args()


def seed(options):
    random.seed(options.seed)
    torch.manual_seed(options.seed)


class Tokens:
    """Token ids of texts, each text encoded once."""

    def __init__(self, tokenizer):
        tokenizer.enable_truncation(TOKENS)
        self.tokenizer = tokenizer
        self.known = {}

    def __call__(self, texts):
        new = [text for text in dict.fromkeys(texts) if text not in self.known]
        self.known |= zip(new, (encoding.ids for encoding in self.tokenizer.encode_batch(new)))
        return [self.known[text] for text in texts]

    def batch(self, texts):
        """Ids and mask, as long as the longest."""
        rows = [torch.tensor(ids) for ids in self(texts)]
        ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
        mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
        return {"input_ids": ids, "attention_mask": mask}


class Hidden(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask, token_type_ids):
        made = self.model(input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids)
        return made.last_hidden_state


class Classifier(torch.nn.Module):
    """Logits of the mean of the tokens' vectors."""

    def __init__(self, encoder):
        super().__init__()
        self.encoder = encoder
        self.dropout = torch.nn.Dropout(0.1)
        self.linear = torch.nn.Linear(encoder.config.hidden_size, len(NAMES))

    def forward(self, input_ids, attention_mask, token_type_ids=None):
        return self.linear(self.dropout(mean(self.encoder, input_ids, attention_mask, token_type_ids)))


def mean(encoder, input_ids, attention_mask, token_type_ids=None):
    made = encoder(input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids)
    mask = attention_mask[..., None].float()
    return (made.last_hidden_state * mask).sum(1) / mask.sum(1)


def fit(name, model, epochs, rate, loss_of):
    """Trains on `epochs`, lists of batches; `loss_of` takes a batch."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.01)
    steps = sum(map(len, epochs))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps, pct_start=0.1)
    started, done = time.monotonic(), 0
    model.train()
    for epoch in epochs:
        total = 0.0
        for batch in epoch:
            loss = loss_of(batch)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            total, done = total + loss.item(), done + 1
            if done % 50 == 0:
                print(f"{name}: {done} of {steps} steps, {time.monotonic() - started:.0f} s, loss {loss.item():.3f}", flush=True)
        print(f"{name}: mean loss of the epoch {total / len(epoch):.4f}", flush=True)
    return model.eval()


def train_encoder(train, tokens, config, options):
    seed(options)
    model = BertModel(config, add_pooling_layer=False)
    if options.encoder and options.encoder.exists():
        model.load_state_dict(torch.load(options.encoder))
        return model.eval()
    by_source = {}
    for package in train:
        by_source.setdefault(package.source, []).append(package)

    def epoch():
        """Batches of packages, one of a source: siblings would be told apart by chance."""
        chosen = [random.choice(packages) for packages in by_source.values()]
        random.shuffle(chosen)
        return [chosen[i : i + PAIRS] for i in range(0, len(chosen) - PAIRS + 1, PAIRS)]

    def vectors(texts):
        return torch.nn.functional.normalize(mean(model, **tokens.batch(texts)), dim=1)

    def loss_of(batch):
        cosines = vectors([package.short for package in batch]) @ vectors([package.long for package in batch]).T
        scores, right = cosines / TEMPERATURE, torch.arange(len(batch))
        return sum(torch.nn.functional.cross_entropy(side, right) for side in (scores, scores.T)) / 2

    fit("encoder", model, [epoch() for _ in range(options.encoder_epochs)], 2e-3, loss_of)
    if options.encoder:
        torch.save(model.state_dict(), options.encoder)
    return model


def train_classifier(train, tokens, encoder, options):
    seed(options)
    model = Classifier(copy.deepcopy(encoder))
    by_label = {label: [package for package in train if package.label == label] for label in NAMES}

    def epoch():
        """Batches of texts of about the same length."""
        chosen = [package for packages in by_label.values() for package in random.sample(packages, min(MOST, len(packages)))]
        forms = [lambda package: package.short, lambda package: package.long, lambda package: package.text]
        texts = [(random.choice(forms)(package), NAMES.index(package.label)) for package in chosen]
        random.shuffle(texts)
        batches = []
        for i in range(0, len(texts), TEXTS * 32):
            part = sorted(texts[i : i + TEXTS * 32], key=lambda text: len(tokens([text[0]])[0]))
            batches += [part[j : j + TEXTS] for j in range(0, len(part), TEXTS)]
        random.shuffle(batches)
        return batches

    def loss_of(batch):
        logits = model(**tokens.batch([text for text, _ in batch]))
        return torch.nn.functional.cross_entropy(logits, torch.tensor([label for _, label in batch]), label_smoothing=0.05)

    return fit("classifier", model, [epoch() for _ in range(options.classifier_epochs)], 1e-3, loss_of)


def encoder_quality(folder, tokenizer, held_out):
    session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    run = lambda texts: embed(session, inputs(tokenizer, texts))
    at, searched = recall(run, held_out)
    pairs = graded_pairs(held_out)
    return {
        "recall1": at[1],
        "recall10": at[10],
        "searched": searched,
        "pairs": len(pairs),
        "correlation": correlation(run, pairs),
    }


def classifier_quality(folder, tokenizer, held_out):
    session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    labelled = [package for package in held_out if package.label]
    truth = np.array([NAMES.index(package.label) for package in labelled])
    facts = {"classified": len(labelled)}
    for prefix, form in [("short_", "short"), ("", "text")]:
        logits = classify(session, inputs(tokenizer, [getattr(package, form) for package in labelled]))
        right = logits.argmax(1) == truth
        facts[f"{prefix}accuracy"] = float(right.mean())
        facts[f"{prefix}balanced"] = float(np.mean([right[truth == i].mean() for i in range(len(NAMES))]))
        facts[f"{prefix}top3"] = float(np.mean((np.argsort(-logits)[:, :3] == truth[:, None]).any(1)))
    rates = {name: float(right[truth == i].mean()) for i, name in enumerate(NAMES)}
    least = sorted(rates, key=rates.get)[:3]
    print(rates, flush=True)
    facts["confused"] = "the least accurate are " + ", ".join(f"{name} ({rates[name]:.0%})" for name in least)
    return facts


def write_held_out(held_out, seed):
    """As many sources as make `KEPT` packages, by chance."""
    sources = sorted({package.source for package in held_out})
    random.Random(seed).shuffle(sources)
    kept = []
    for source in sources:
        if len(kept) < KEPT:
            kept += [package for package in held_out if package.source == source]
    lines = [json.dumps(vars(package), ensure_ascii=False) for package in sorted(kept, key=lambda package: package.name)]
    with gzip.GzipFile(HERE / "held-out-texts.jsonl.gz", "wb", compresslevel=9, mtime=0) as file:
        file.write("\n".join(lines).encode() + b"\n")
    return len(kept)


def write_expected(encoder_folder, classifier_folder, tokenizer):
    """What the examples give, by ONNX Runtime and NumPy."""
    case = lambda text, output, tolerance: {
        "args": ["--input", json.dumps({"text": text}, ensure_ascii=False)],
        "output": output,
        "tolerance": tolerance,
    }
    cases = []
    session = onnxruntime.InferenceSession(classifier_folder / "model.onnx", providers=["CPUExecutionProvider"])
    for text in CLASSIFY:
        (logits,) = classify(session, inputs(tokenizer, [text]))
        scores = np.exp(logits - logits.max())
        scores /= scores.sum()
        first = [{"label": NAMES[i], "index": int(i), "score": float(scores[i])} for i in np.argsort(-scores)[:3]]
        cases.append(case(text, {"top": first}, 1e-4))
        print(text, first, flush=True)
    (classifier_folder / "expected.json").write_text(json.dumps(cases, indent=1, ensure_ascii=False) + "\n")
    session = onnxruntime.InferenceSession(encoder_folder / "model.onnx", providers=["CPUExecutionProvider"])
    cases = [case(text, {"embeddings": embed(session, inputs(tokenizer, [text])).tolist()}, 1e-5) for text in EMBED]
    (encoder_folder / "expected.json").write_text(json.dumps(cases, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
