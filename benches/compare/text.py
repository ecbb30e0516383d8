"""The text steps beside the Python they replace: the same tokens on thousands of lines, and how fast.

    cargo build --release
    python benches/compare/text.py            # all three
    python benches/compare/text.py parity     # tokenize against `tokenizers`, line by line
    python benches/compare/text.py random     # tokenize and chunk with random options, 4000 requests
    python benches/compare/text.py speed      # one thread each, interleaved: medians and their ratio

Needs what `tests/reference/builtin/requirements-text.txt` names. The tokenizers are trained here, on text
that the machine has (documentation, sources, translations), into `target/compare/text/`.
"""

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"):
    os.environ[name] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import base64
import gettext
import html
import json
import random
import re
import statistics
import subprocess
import sys
import sysconfig
import time
import unicodedata
from pathlib import Path
from types import SimpleNamespace

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/reference/builtin"))

import numpy as np
import tokenizers
import torch
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast, TokenClassificationPipeline
from transformers.pipelines.token_classification import AggregationStrategy

import text_random
from text_lines import SENTENCES, lines as made_up

torch.set_num_threads(1)
GPUX = Path(os.environ.get("GPUX", ROOT / "target/release/gpux"))
WORK = ROOT / "target/compare/text"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")


# --- the corpus and the tokenizers --------------------------------------------------------------


def machine_text():
    """Lines of what lies on the machine: Python's sources, Rust's documentation, translations."""
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        yield from path.read_text("utf-8", "replace").splitlines()
    homes = [Path.home() / ".rustup/toolchains", Path("/usr/share/doc")]
    pages = [page for home in homes if home.exists() for page in sorted(home.glob("*/share/doc/rust/html/book/*.html"))]
    for page in pages[:120]:
        text = html.unescape(re.sub(r"<[^>]+>", "", page.read_text("utf-8", "replace")))
        yield from text.splitlines()
    for home in ("/usr/share/locale", "/usr/share/vim", "/usr/share/locale-langpack", str(Path.home() / ".pyenv")):
        for path in sorted(Path(home).rglob("*.mo"))[:60] if Path(home).exists() else []:
            try:
                with open(path, "rb") as file:
                    for message in gettext.GNUTranslations(file)._catalog.values():
                        yield from str(message).splitlines()
            except (OSError, UnicodeDecodeError, ValueError):
                pass


def corpus(count=12_000):
    rng = random.Random(1)
    found = sorted({line.strip("\n") for line in machine_text() if line.strip() and len(line) < 2000})
    found = [line for line in found if not any(0xD800 <= ord(char) < 0xE000 for char in line)]
    foreign = [line for line in found if not line.isascii()]
    rng.shuffle(found)
    rng.shuffle(foreign)
    lines = made_up(3000) + foreign[:4000] + found
    lines = list(dict.fromkeys(lines))[:count]
    return lines


def trained(name, lines):
    special = ["<unk>", "<s>", "</s>", "<pad>"]
    if name == "bert":
        own = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        own.normalizer = normalizers.BertNormalizer(lowercase=True)
        own.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        own.decoder = decoders.WordPiece()
        trainer = trainers.WordPieceTrainer(vocab_size=20_000, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]"], show_progress=False)
        after = processors.TemplateProcessing(
            single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    elif name in ("gpt2", "llama3"):
        own = Tokenizer(models.BPE())
        byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=name == "gpt2")
        split = pre_tokenizers.Split(Regex(LLAMA3), "isolated")
        own.pre_tokenizer = byte_level if name == "gpt2" else pre_tokenizers.Sequence([split, byte_level])
        own.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(vocab_size=20_000, special_tokens=["<|endoftext|>"],
                                      initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
        after = processors.ByteLevel(trim_offsets=name == "gpt2")
    elif name == "llama2":
        own = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
        own.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        own.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
        trainer = trainers.BpeTrainer(vocab_size=12_000, special_tokens=special + [f"<0x{byte:02X}>" for byte in range(256)],
                                      limit_alphabet=2000, max_token_length=16, show_progress=False)
        after = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])
    else:
        own = Tokenizer(models.Unigram())
        own.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
        own.pre_tokenizer = pre_tokenizers.Metaspace()
        own.decoder = decoders.Metaspace()
        trainer = trainers.UnigramTrainer(vocab_size=12_000, special_tokens=special, unk_token="<unk>", show_progress=False)
        after = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 2)])
    # Unigram's trainer gives up on odd lines that are long.
    sample = [line[:300] for line in lines] if name != "t5" else [line for line in lines[3000:] if len(line) < 120]
    own.train_from_iterator(sample, trainer)
    own.post_processor = after
    return own


TOKENIZERS = ["bert", "gpt2", "llama3", "llama2", "t5"]


def tokenizer_files(lines):
    WORK.mkdir(parents=True, exist_ok=True)
    for name in TOKENIZERS:
        path = WORK / f"{name}.json"
        if not path.exists():
            begin = time.time()
            trained(name, lines).save(str(path), pretty=False)
            print(f"trained {name} in {time.time() - begin:.0f} s", file=sys.stderr)
    return {name: Tokenizer.from_file(str(WORK / f"{name}.json")) for name in TOKENIZERS}


def pipeline(name, steps, inputs):
    path = WORK / f"{name}.yml"
    path.write_text(json.dumps({"name": "compare", "version": "1.0.0", "inputs": inputs, "pipeline": steps}))
    return path


# --- parity -------------------------------------------------------------------------------------


def none_is_minus_one(ids):
    return [-1 if id is None else id for id in ids]


def parity():
    lines = corpus()
    files = tokenizer_files(lines)
    requests = WORK / "lines.jsonl"
    requests.write_text("".join(json.dumps({"text": line}) + "\n" for line in lines))
    print(f"tokenize against tokenizers {tokenizers.__version__}, {len(lines)} lines, "
          f"{sum(len(line.encode()) for line in lines) / 1e6:.1f} MB; every id, mask, offset and word")
    worst = 0
    for name, own in files.items():
        step = {"tokenize": {"tokenizer": f"./{name}.json", "offsets": True, "special_tokens_mask": True,
                             "sequence_ids": True, "word_ids": True}}
        command = [GPUX, "run", pipeline(f"parity-{name}", [step], {"text": {"type": "text"}}), "--file", requests, "--format", "jsonl"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        different, tokens = 0, 0
        for line, answer in zip(lines, process.stdout, strict=True):
            given = json.loads(answer)["outputs"]
            row = own.encode(line)
            expected = {
                "input_ids": row.ids, "attention_mask": row.attention_mask, "token_type_ids": row.type_ids,
                "offsets": [list(place) for place in row.offsets], "special_tokens_mask": row.special_tokens_mask,
                "sequence_ids": none_is_minus_one(row.sequence_ids), "word_ids": none_is_minus_one(row.word_ids),
            }
            tokens += len(row.ids)
            if any(given[key][0] != expected[key] for key in expected):
                different += 1
                if different <= 3:
                    wrong = [key for key in expected if given[key][0] != expected[key]]
                    print(f"  {name} {wrong} {line!r}")
        process.wait()
        worst += different
        print(f"{name:<8} {tokens:>8} tokens, {different} lines differ")
    return worst


# --- random options -----------------------------------------------------------------------------


def texts_for(rng, lines, step, options):
    """One to four texts, and pairs for half of the requests."""
    text = lambda: " ".join(rng.choice(lines) for _ in range(rng.choice([1, 1, 3])))
    texts = [text() for _ in range(rng.randrange(1, 5))]
    pairs = [rng.choice(["why?", text()]) for _ in texts] if rng.random() < 0.5 else None
    first = step == "tokenize" and options.get("truncation") == "only_second" or step == "chunk" and options.get("cut") != "text"
    return (pairs, texts) if pairs and first else (texts, pairs)


def one_configuration(rng, name, whole, text, lines, number):
    """How many of ten requests come out otherwise than in Python."""
    truncation, padding = text_random.own_state(rng, whole)
    step, options = text_random.random_options(rng, whole)
    (WORK / "own.json").write_text(json.dumps(text_random.with_state(text, truncation, padding)))
    given = [texts_for(rng, lines, step, options) for _ in range(10)]
    requests = WORK / "random.jsonl"
    requests.write_text("".join(json.dumps({"text": texts, "pair": pairs} if pairs else {"text": texts}) + "\n" for texts, pairs in given))
    inputs = {"text": {"type": "json"}, "pair": {"type": "json", "required": False}}
    steps = [{step: {"tokenizer": "./own.json", **options}}]
    command = [GPUX, "run", pipeline("random", steps, inputs), "--file", requests, "--format", "jsonl"]
    done = subprocess.run(command, capture_output=True, text=True)
    # A step that cannot be made refuses every request.
    answers = [json.loads(line).get("outputs") for line in done.stdout.splitlines()] or [None] * len(given)
    names = ["input_ids", "attention_mask", "token_type_ids", *text_random.EXTRAS]
    different = 0
    for (texts, pairs), answer in zip(given, answers, strict=True):
        expected = text_random.reference(whole, truncation, padding, step, options, texts, pairs)
        ours = answer and ([list(row) for row in zip(*(answer[key] for key in names))], answer.get("window_of"))
        if ours != expected:
            different += 1
            print(f"  {number} {name} {step} {options} truncation {truncation} padding {padding} {texts!r} {pairs!r}"[:2000])
            print(f"    {str(ours)[:300]} instead of {str(expected)[:300]} {done.stderr[:300]}")
    return different


def random_parity(configurations=400, seed=1):
    lines = [line for line in corpus() if len(line) < 300]
    files = tokenizer_files(corpus())
    texts = {name: (WORK / f"{name}.json").read_text() for name in files}
    rng = random.Random(seed)
    different = 0
    for number in range(configurations):
        name = rng.choice(TOKENIZERS)
        different += one_configuration(rng, name, files[name], texts[name], lines, number)
    print(f"random options against tokenizers {tokenizers.__version__}: {configurations} configurations, "
          f"{10 * configurations} requests, {different} differ")
    return different


# --- speed --------------------------------------------------------------------------------------


def python_times(run, seconds):
    """Median and least time of a run, and how many there were."""
    run()
    times = []
    begin = time.perf_counter()
    while time.perf_counter() - begin < seconds or len(times) < 5:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times), min(times), len(times)


def gpux_times(path, inputs, runs):
    command = [GPUX, "run", path, "--benchmark", "--json", "--runs", str(max(runs, 20)), "--warmup", "5"]
    for name, value in inputs.items():
        command += ["--input", f"{name}=@{value}"]
    report = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return report["p50"] / 1e3, report["min_inference_time"] / 1e3


def declared(value):
    """A value as an input of the pipeline is declared."""
    if isinstance(value, np.ndarray):
        return {"type": str(value.dtype), "shape": list(value.shape)}
    return {"type": "text" if isinstance(value, str) else "json"}


def save(name, value):
    """A value where `--input name=@path` finds it."""
    path = WORK / f"{name}.{'txt' if isinstance(value, str) else 'json'}"
    if isinstance(value, np.ndarray):
        value = {"type": str(value.dtype), "shape": value.shape, "data": base64.b64encode(value.tobytes()).decode()}
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return path


def chains(files):
    """(what, how Python does it, the pipeline's steps, its inputs)"""
    rng = np.random.default_rng(5)
    prose = " ".join(line for line in SENTENCES[:2] + SENTENCES[8:11])
    short = (prose * 4)[:400]
    long = (" ".join(line for line in machine_text() if line.isascii()))[:100_000]
    mixed = " ".join(made_up(3000))[:60_000]
    for name in ("bert", "gpt2", "t5"):
        own = PreTrainedTokenizerFast(tokenizer_object=files[name], unk_token="[UNK]" if name == "bert" else None,
                                      pad_token={"bert": "[PAD]", "gpt2": "<|endoftext|>", "t5": "<pad>"}[name])
        padded = {"max_length": 128, "padding": "max_length"}
        step = {"tokenizer": f"./{name}.json", **padded}
        yield (f"tokenize {name}, 128 tokens", lambda own=own: own(short, truncation=True, return_tensors="np", **padded),
               [{"tokenize": step}], {"text": short})
        yield (f"tokenize {name}, 100 kB", lambda own=own: own(long, return_tensors="np"),
               [{"tokenize": {"tokenizer": f"./{name}.json"}}], {"text": long})
    bert = PreTrainedTokenizerFast(tokenizer_object=files["bert"], pad_token="[PAD]", unk_token="[UNK]")
    yield ("tokenize bert, a pair", lambda: bert(short[:60], short, truncation=True, return_tensors="np", **padded),
           [{"tokenize": {"tokenizer": "./bert.json", **padded}}], {"text": short[:60], "pair": short})
    batch = [short[at:] for at in range(0, 320, 10)]
    yield ("tokenize bert, 32 texts", lambda: bert(batch, truncation=True, return_tensors="np", **padded),
           [{"tokenize": {"tokenizer": "./bert.json", **padded}}], {"text": batch})
    yield ("tokenize bert, 128 tokens of 100 kB", lambda: bert(long, truncation=True, return_tensors="np", **padded),
           [{"tokenize": {"tokenizer": "./bert.json", **padded}}], {"text": long})
    windows = {"max_length": 384, "stride": 128}
    yield ("chunk bert, 100 kB", lambda: bert(long, truncation=True, padding=True, return_overflowing_tokens=True,
                                              return_tensors="np", **windows),
           [{"chunk": {"tokenizer": "./bert.json", **windows}}], {"text": long})
    ids = np.array(bert(short).input_ids)
    yield ("detokenize bert, 1 text", lambda: bert.decode(ids, skip_special_tokens=True),
           [{"detokenize": {"tokenizer": "./bert.json"}}], {"ids": ids})
    form = [{"normalize-text": {"form": "nfkc", "case": "lower", "white_space": "collapse"}}]
    normalize = lambda text: " ".join(unicodedata.normalize("NFKC", text).lower().split())
    yield ("normalize-text, 400 B ASCII", lambda: normalize(short.encode("ascii", "ignore").decode()), form,
           {"text": short.encode("ascii", "ignore").decode()})
    yield ("normalize-text, 100 kB mixed", lambda: normalize(mixed), form, {"text": mixed})
    clean = normalizers.BertNormalizer()
    yield ("normalize-text as BertNormalizer, 100 kB mixed", lambda: clean.normalize_str(mixed),
           [{"normalize-text": {"clean": True, "cjk_spaces": True, "strip_accents": True, "case": "lower_chars"}}], {"text": mixed})

    hidden = rng.normal(size=(8, 128, 384)).astype(np.float32)
    mask = (np.arange(128)[None] < rng.integers(20, 129, 8)[:, None]).astype(np.int64)
    hidden_t, mask_t = torch.tensor(hidden), torch.tensor(mask)

    def pooled():
        wide = mask_t.unsqueeze(-1).expand(hidden_t.size()).to(hidden_t.dtype)
        mean = torch.sum(hidden_t * wide, 1) / torch.clamp(wide.sum(1), min=1e-9)
        return torch.nn.functional.normalize(mean, p=2, dim=1)

    yield ("mean-pool, l2-normalize, 8×128×384", pooled, ["mean-pool", "l2-normalize"],
           {"last_hidden_state": hidden, "attention_mask": mask})
    vectors = rng.normal(size=(10_000, 384)).astype(np.float32)
    np.save(WORK / "vectors.npy", vectors)
    vectors_t = torch.nn.functional.normalize(torch.tensor(vectors))
    query = rng.normal(size=(1, 384)).astype(np.float32)

    def similar():
        scores = torch.nn.functional.normalize(torch.tensor(query)) @ vectors_t.T
        best = torch.topk(scores, 5)
        return [{"index": int(index), "score": float(score)} for index, score in zip(best.indices[0], best.values[0])]

    yield ("cosine, 10 000 vectors of 384", similar, [{"cosine": {"vectors": "./vectors.npy", "k": 5}}], {"embeddings": query})

    text = short
    encoding = bert(text, return_offsets_mapping=True, return_special_tokens_mask=True)
    labels = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC", "B-ORG", "I-ORG", "B-MISC", "I-MISC"]
    logits = rng.normal(size=(1, len(encoding.input_ids), 9)).astype(np.float32)
    ner = TokenClassificationPipeline.__new__(TokenClassificationPipeline)
    ner.tokenizer, ner.model = bert, SimpleNamespace(config=SimpleNamespace(id2label=dict(enumerate(labels))))
    rows = {"input_ids": np.array([encoding.input_ids]), "offsets": np.array([encoding.offset_mapping]),
            "special_tokens_mask": np.array([encoding.special_tokens_mask])}
    output = {"logits": torch.tensor(logits), "sentence": text, "word_ids": None, "word_to_chars_map": None,
              "input_ids": rows["input_ids"], "offset_mapping": rows["offsets"],
              "special_tokens_mask": torch.tensor(rows["special_tokens_mask"])}
    yield (f"ner-aggregate, {len(encoding.input_ids)} tokens", lambda: ner.postprocess([output], aggregation_strategy=AggregationStrategy.AVERAGE),
           [{"ner-aggregate": {"tokenizer": "./bert.json", "labels": labels, "strategy": "average"}}],
           {"logits": logits, "text": text, **rows})

    pair = bert("What is it?", short * 4, truncation="only_second", max_length=384, return_offsets_mapping=True)
    count = len(pair.input_ids)
    start, end = (rng.normal(size=(1, count)).astype(np.float32) for _ in range(2))
    sequence = np.array([none_is_minus_one(pair.sequence_ids())])
    allowed, places, context = sequence == 1, pair.offset_mapping, short * 4

    def answer():
        """transformers' select_starts_ends and decode_spans, which version 5 no longer has."""
        shares = []
        for scores in (start, end):
            scores = np.where(allowed, scores, -10000.0)
            scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
            scores = scores / scores.sum()
            scores[0, 0] = 0.0
            shares.append(scores)
        outer = np.matmul(np.expand_dims(shares[0], -1), np.expand_dims(shares[1], 1))
        flat = np.tril(np.triu(outer), 14).flatten()
        best = [np.argmax(flat)]
        first, last = np.unravel_index(best, outer.shape)[1:]
        begin, stop = places[first[0]][0], places[last[0]][1]
        return {"answer": context[begin:stop], "score": float(flat[best[0]]), "start": begin, "end": stop}

    yield (f"qa-span, {count} tokens", answer, ["qa-span"],
           {"start_logits": start, "end_logits": end, "offsets": np.array([places]), "sequence_ids": sequence, "context": context})


def speed():
    files = tokenizer_files(corpus())
    print(f"{'medians; last, the ratio of the least times':<48}{'Python':>12}{'gpux':>12}{'ratio':>8}{'least':>8}")
    for number, (what, run, steps, inputs) in enumerate(chains(files)):
        path = pipeline(f"speed-{number}", steps, {name: declared(value) for name, value in inputs.items()})
        saved = {name: save(f"speed-{number}-{name}", value) for name, value in inputs.items()}
        theirs, ours = [], []
        for _ in range(3):
            *times, runs = python_times(run, 0.5)
            theirs.append(times)
            ours.append(gpux_times(path, saved, min(runs, 3000)))
        python, gpux = (statistics.median(median for median, _ in times) for times in (theirs, ours))
        least = min(least for _, least in theirs) / min(least for _, least in ours)
        print(f"{what:<48}{python * 1e6:>9.1f} µs{gpux * 1e6:>9.1f} µs{python / gpux:>7.1f}×{least:>7.1f}×", flush=True)


if __name__ == "__main__":
    what = sys.argv[1:] or ["parity", "random", "speed"]
    different = parity() if "parity" in what else 0
    different += random_parity() if "random" in what else 0
    if "speed" in what:
        speed()
    sys.exit(1 if different else 0)
