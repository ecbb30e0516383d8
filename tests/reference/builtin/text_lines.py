"""Lines of every kind of text, the same in every run: what tokenizers trip over."""

import random

SENTENCES = """The quick brown fox jumps over the lazy dog, and every request gets its own sandbox.
It's a model's job, isn't it? They've said we're done; I'd say you'll see. He won't, she can't.
Größe, naïve café, façade, Ångström, señor, žluťoučký kůň úpěl ďábelské ódy.
Ελληνικά ΚΕΦΑΛΑΊΑ και τελικό σίγμα: ΟΔΥΣΣΕΎΣ. Кириллица: съешь ещё этих мягких французских булок.
日本語のテキスト、半角ｶﾅと全角ＡＢＣ。中文文本，没有空格。繁體中文。한국어 텍스트와 조사.
עִבְרִית עם ניקוד ובלי. العربية مُشَكَّلَة وبدون تشكيل ١٢٣. فارسی با نیم‌فاصله می‌شود.
हिन्दी में क्षत्रिय और संयुक्ताक्षर। ภาษาไทยไม่มีช่องว่าง தமிழ் எழுத்து။ မြန်မာ ខ្មែរ
İstanbul'da ılık ırmak; Straße GROẞ ﬁne ﬂow ½ ² Ⅷ ㎏ ﷺ
Numbers: 1234567890, 3.14159, 1e-5, -7, 10%, $42.00, 0xFF, 2026-11-20T17:45:39Z, 192.168.0.1
E-mail: someone@example.org, https://example.org/path?x=1&y=%20#frag, C:\\Windows\\System32, ~/.cache
def resize(image, size=(224, 224)): return image.resize(size)  # code too
fn main() -> Result<(), Box<dyn Error>> { let x: &'a str = "a\\tb"; Ok(()) }
<div class="a">html &amp; entities</div> {"json": [1, 2.5, null, "\\u00e9"]} | a | table |
😀👩‍👩‍👧‍👦🇩🇪👍🏽❤️🏴󠁧󠁢󠁥󠁮󠁧󠁿 and symbols ∑∫√∞ ≤ ≥ ≠ → ← ☃︎ ☃️ 𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝒯ℯ𝓍𝓉
[CLS] literal [SEP] <s> special </s> [MASK] <|endoftext|> <unk> [UNK] [PAD] <pad>
unbelievable unbelievably believing supercalifragilisticexpialidocious antidisestablishmentarianism""".splitlines()

RANGES = [
    (0x20, 0x7F), (0xA0, 0x250), (0x300, 0x370), (0x370, 0x400), (0x400, 0x530), (0x590, 0x600), (0x600, 0x700),
    (0x900, 0x980), (0xE00, 0xE80), (0x1100, 0x1200), (0x1E00, 0x2000), (0x2000, 0x2070), (0x20D0, 0x2100),
    (0x2190, 0x2300), (0x3040, 0x3100), (0x4E00, 0x9FFF), (0xAC00, 0xD7A4), (0xFB00, 0xFE10), (0xFE10, 0x10000),
    (0x1D400, 0x1D800), (0x1F300, 0x1FA00), (0xE0000, 0xE0080), (0x20000, 0x20100),
]
SPACES = [" ", "  ", "\t", "\n", "\r\n", "\u00a0", "\u3000", "\u200b", "\u200d", "\u2028", "\x0b", "\x0c", "\x1c", "\x85"]
CONTROL = ["\x00", "\x01", "\x07", "\x1b[0m", "\x7f", "\x9f", "\ufeff", "\ufffd", "\ufffe", "\u202e", "\u2066", "\U000f0000"]


def random_line(rng):
    kind = rng.randrange(7)
    if kind == 0:
        words = rng.choice(SENTENCES).split(" ") + rng.choice(SENTENCES).split(" ")
        rng.shuffle(words)
        return " ".join(words[: rng.randrange(1, 16)])
    if kind == 1:
        low, high = rng.choice(RANGES)
        return "".join(chr(rng.randrange(low, high)) for _ in range(rng.randrange(1, 30)))
    if kind == 2:
        pieces = [chr(rng.randrange(*rng.choice(RANGES))) for _ in range(rng.randrange(1, 30))]
        return "".join(pieces)
    if kind == 3:
        words = rng.choice(SENTENCES).split(" ")
        return "".join(word + rng.choice(SPACES + CONTROL) for word in words)
    if kind == 4:
        return "".join(letter + "".join(chr(rng.randrange(0x300, 0x36F)) for _ in range(rng.randrange(4)))
                       for letter in rng.choice(SENTENCES)[: rng.randrange(1, 20)])
    if kind == 5:
        line = rng.choice(SENTENCES)
        start = rng.randrange(len(line))
        return rng.choice([str.upper, str.lower, str.title, str.swapcase])(line[start : start + rng.randrange(1, 60)])
    return rng.choice(SENTENCES)[rng.randrange(20) :] * rng.randrange(1, 4)


def lines(count, seed=7):
    """Hand-made sentences, odd strings, then random ones; none with a lone surrogate."""
    rng = random.Random(seed)
    fixed = SENTENCES + ["", " ", "\n", "a", "\u0301", "😀", "ﷺ", "x" * 300, "ab " * 80, "," * 60, "\u200d" * 5] + CONTROL + SPACES
    made = [line for line in (random_line(rng) for _ in range(count))]
    return (fixed + made)[:count]
