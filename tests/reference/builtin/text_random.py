"""Random options of `tokenize` and `chunk`, tokenizer.json files that switch truncation and padding on themselves, and
what the package `tokenizers` makes of texts with them: what `make_text_random.py` and `benches/compare/text.py` share.
"""

import hashlib
import json

from tokenizers import Tokenizer

# What a tokenizer's padding is called where neither options nor file say so.
PAD_TOKENS = ["[PAD]", "<pad>", "<|padding|>", "<|endoftext|>"]
EXTRAS = ["offsets", "special_tokens_mask", "sequence_ids", "word_ids"]


def own_state(rng, whole):
    """What a file says of truncation and padding, which the options of a step override, but for the sides, the token
    and its type."""
    truncation, padding = None, None
    if rng.random() < 0.7:
        truncation = {"direction": rng.choice(["Left", "Right"]), "max_length": rng.choice([3, 5, 8, 16, 128]),
                      "strategy": rng.choice(["LongestFirst", "OnlyFirst", "OnlySecond"]), "stride": rng.choice([0, 0, 1])}
    if rng.random() < 0.5:
        names = [token for token in whole.get_vocab() if len(token) < 20]
        token = rng.choice(sorted(names)[:50])
        padding = {"strategy": rng.choice(["BatchLongest", {"Fixed": rng.choice([4, 9, 64])}]),
                   "direction": rng.choice(["Left", "Right"]), "pad_to_multiple_of": rng.choice([None, 8, 7]),
                   "pad_id": whole.token_to_id(token), "pad_type_id": rng.choice([0, 0, 3]), "pad_token": token}
    return truncation, padding


def maybe(rng, options, name, values, share=0.5):
    if rng.random() < share:
        options[name] = rng.choice(values)


def random_options(rng, whole):
    """The name of a step, and options with which it can be made."""
    options = {name: True for name in EXTRAS}
    maybe(rng, options, "padding_side", ["left", "right"])
    maybe(rng, options, "pad_token", [token for token in PAD_TOKENS + ["a", "e"] if whole.token_to_id(token) is not None], 0.2)
    maybe(rng, options, "add_special_tokens", [False], 0.25)
    maybe(rng, options, "padding", ["none", "longest", "max_length"], 0.7)
    if rng.random() < 0.4:
        options["max_length"] = rng.choice([7, 8, 11, 16, 24, 40, 100])
        maybe(rng, options, "stride", [0, 1, 2, 3, 9], 0.8)
        maybe(rng, options, "cut", ["text", "pair"], 0.4)
        return "chunk", options
    maybe(rng, options, "pad_to_multiple_of", [1, 2, 7, 8, 64], 0.3)
    maybe(rng, options, "max_length", [4, 5, 6, 9, 13, 20, 32, 64, 300], 0.8)
    if "max_length" in options:
        maybe(rng, options, "truncation", [True, False, "longest_first", "longest_first", "only_first", "only_second"], 0.7)
        maybe(rng, options, "truncation_side", ["left", "right"])
    elif options.get("padding") == "max_length":
        del options["padding"]
    return "tokenize", options


def none_is_minus_one(ids):
    return [-1 if id is None else id for id in ids]


def everything(row):
    """All that the steps give for a row, in their order."""
    return [row.ids, row.attention_mask, row.type_ids, [list(place) for place in row.offsets], row.special_tokens_mask,
            none_is_minus_one(row.sequence_ids), none_is_minus_one(row.word_ids)]


def digest(rows):
    return hashlib.sha256(json.dumps(rows, separators=(",", ":")).encode()).hexdigest()[:16]


def reference(whole, truncation, padding, step, options, texts, pairs):
    """Rows and `window_of` that the package gives; `None` where it refuses, or gives what is no tensor."""
    whole.no_truncation()
    whole.no_padding()
    special = options.get("add_special_tokens", True)
    added = whole.num_special_tokens_to_add(pairs is not None) if special else 0
    most = options.get("max_length")
    chunk = step == "chunk"
    wanted = options.get("truncation", most is not None)
    stride = options.get("stride", 0)
    inputs = texts if pairs is None else list(zip(texts, pairs))
    # What the package says in a panic, or only where a text is long.
    if (chunk or wanted is not False) and (most < added or chunk and most - added <= stride):
        return None
    if chunk or wanted is not False:
        strategy = "longest_first" if wanted is True else wanted
        if chunk:
            strategy = "only_first" if pairs is None else {"text": "only_first", "pair": "only_second"}[options.get("cut", "pair")]
        side = options.get("truncation_side") or (truncation["direction"].lower() if truncation else "right")
        whole.enable_truncation(most, stride=stride, strategy=strategy, direction=side)
    encode = lambda: whole.encode_batch(inputs, add_special_tokens=special)
    try:
        rows = encode()
        if chunk:
            rows = [[row, *row.overflowing] for row in rows]
    except BaseException:  # a panic is no `Exception`
        return None
    windows = [0] * len(rows)
    fill = options.get("padding", "longest")
    lengths = [len(row.ids) for text in rows for row in (text if chunk else [text])]
    if fill == "none":
        if len(set(lengths)) > 1:
            return None
    else:
        token = options.get("pad_token")
        if token is not None:
            id = whole.token_to_id(token)
        elif padding:
            id, token = padding["pad_id"], padding["pad_token"]
        else:
            token = next(token for token in PAD_TOKENS if whole.token_to_id(token) is not None)
            id = whole.token_to_id(token)
        side = options.get("padding_side") or (padding["direction"].lower() if padding else "right")
        # A text that is not cut may be longer than `max_length`; the rows of a tensor are not.
        length = max(lengths) if fill == "longest" else max([most, *lengths])
        multiple = options.get("pad_to_multiple_of")
        whole.enable_padding(direction=side, pad_id=id, pad_type_id=padding["pad_type_id"] if padding else 0, pad_token=token,
                             length=length, pad_to_multiple_of=multiple)
        rows = encode()
        if chunk:
            rows = [[row, *row.overflowing] for row in rows]
    if chunk:
        windows = [text for text, own in enumerate(rows) for _ in own]
        rows = [row for own in rows for row in own]
    return [everything(row) for row in rows], windows if chunk else None


def with_state(text, truncation, padding):
    """The tokenizer.json with what it says of itself."""
    file = json.loads(text)
    file["truncation"], file["padding"] = truncation, padding
    return file


def read(text):
    return Tokenizer.from_str(text)
