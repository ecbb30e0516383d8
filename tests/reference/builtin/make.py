"""Writes the numbers that the built-in steps are compared with (`host/steps/src/reference.rs`).

    python -m venv venv && venv/bin/pip install -r requirements.txt && venv/bin/python make.py

Every file beside this one comes from here: the reference library computes it, the tests read it. A
second run writes the same bytes.
"""

import io
import json
import struct
import zlib
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps
from scipy.special import softmax
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = Path(__file__).parent
RNG = np.random.default_rng(7)


def scene(height, width, channels):
    """A picture with edges, gradients and a little noise: what resizing and JPEG care about."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float64)
    planes = []
    for channel in range(channels):
        wave = 127 + 90 * np.sin(x / (3 + 2 * channel)) * np.cos(y / (5 - channel))
        disc = 60 * (((x - width / 2) ** 2 + (y - height / 3) ** 2) < (min(height, width) / 3) ** 2)
        planes.append(wave + disc + RNG.normal(0, 2, (height, width)))
    return np.clip(np.stack(planes, -1), 0, 255).astype(np.uint8)


def photo_like(height, width):
    """Detail in brightness, gentle changes of colour: what JPEG's chroma subsampling was made for."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float64)
    light = 120 + 60 * np.sin(x / 4) * np.cos(y / 5) + RNG.normal(0, 3, (height, width))
    tint = np.stack([30 * np.sin(x / 19 + y / 31), 20 * np.cos(y / 23), 40 * np.sin((x + y) / 37)], -1)
    return np.clip(light[..., None] + tint, 0, 255).astype(np.uint8)


def folder(name, keep=()):
    path = HERE / name
    path.mkdir(exist_ok=True)
    for old in path.iterdir():
        if old.name not in keep:
            old.unlink()
    return path


def write_bytes(path, data):
    """Bytes as a gray PNG, 512 to a row: compressed, and read by the decoder that is there anyway."""
    rows = -(-len(data) // 512)
    padded = np.frombuffer(data.ljust(rows * 512, b"\0"), dtype=np.uint8).reshape(rows, 512)
    Image.fromarray(padded).save(path, optimize=True)


def write_json(path, value):
    path.write_text(json.dumps(value, ensure_ascii=True, separators=(",", ":")) + "\n")


# --- decode-image -------------------------------------------------------------------------------


def png_chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def interlaced_png(pixels):
    """Pillow writes no Adam7, so this does."""
    height, width, _ = pixels.shape
    raw = b""
    for y0, x0, dy, dx in [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)]:
        part = pixels[y0::dy, x0::dx]
        if part.size:
            raw += b"".join(b"\0" + row.tobytes() for row in part)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 1)
    return b"\x89PNG\r\n\x1a\n" + png_chunk(b"IHDR", header) + png_chunk(b"IDAT", zlib.compress(raw)) + png_chunk(b"IEND", b"")


def deep_png(pixels, color_type):
    """A 16-bit PNG of any colour type; Pillow writes only gray."""
    height, width = pixels.shape[:2]
    raw = b"".join(b"\0" + row.astype(">u2").tobytes() for row in pixels)
    header = struct.pack(">IIBBBBB", width, height, 16, color_type, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + png_chunk(b"IHDR", header) + png_chunk(b"IDAT", zlib.compress(raw)) + png_chunk(b"IEND", b"")


def decode():
    out = folder("decode")
    files = {}

    def pillow(name, image, **options):
        buffer = io.BytesIO()
        image.save(buffer, format="PNG" if name.endswith("png") else "JPEG", **options)
        files[name] = buffer.getvalue()

    rgb = Image.fromarray(scene(17, 23, 3))
    gray = Image.fromarray(scene(13, 11, 1)[..., 0])
    alpha = Image.fromarray(scene(9, 14, 4))
    palette = rgb.quantize(16)
    pillow("rgb.png", rgb)
    pillow("one.png", Image.fromarray(scene(1, 1, 3)))
    pillow("row.png", Image.fromarray(scene(1, 29, 3)))
    pillow("column.png", Image.fromarray(scene(31, 1, 3)))
    pillow("gray.png", gray)
    pillow("gray-alpha.png", Image.merge("LA", (gray, gray.rotate(180))))
    pillow("alpha.png", alpha)
    pillow("bits.png", gray.convert("1"))
    pillow("palette.png", palette)
    pillow("palette-2bit.png", rgb.quantize(4), bits=2)
    pillow("palette-transparent.png", palette, transparency=3)
    pillow("rgb-transparent.png", rgb, transparency=rgb.getpixel((4, 5)))
    exif = Image.Exif()
    exif[0x0112] = 6
    pillow("turned.png", rgb, exif=exif)
    files["interlaced.png"] = interlaced_png(np.asarray(rgb))
    deep = RNG.integers(0, 65536, (7, 10, 4), dtype=np.uint16)
    files["rgb-16bit.png"] = deep_png(deep[..., :3], 2)
    files["alpha-16bit.png"] = deep_png(deep, 6)
    files["gray-alpha-16bit.png"] = deep_png(deep[..., :2], 4)

    photo = Image.fromarray(photo_like(45, 51))
    pillow("photo.jpg", photo, quality=90)
    pillow("harsh.jpg", Image.fromarray(scene(45, 51, 3)), quality=90)
    pillow("photo-444.jpg", photo, quality=95, subsampling=0)
    pillow("photo-422.jpg", photo, quality=85, subsampling=1)
    pillow("progressive.jpg", photo, quality=85, progressive=True)
    pillow("gray.jpg", gray, quality=90)
    pillow("one.jpg", Image.fromarray(scene(1, 1, 3)), quality=90)
    pillow("row.jpg", Image.fromarray(photo_like(1, 40)), quality=90)
    pillow("cmyk.jpg", photo.convert("CMYK"), quality=90)
    for orientation in range(1, 9):
        exif[0x0112] = orientation
        pillow(f"exif-{orientation}.jpg", Image.fromarray(photo_like(18, 30)), quality=90, exif=exif)

    index = {}
    for name, data in files.items():
        (out / name).write_bytes(data)
        image = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
        raw = b""
        for mode in ("RGB", "L", "RGBA") if name.endswith("png") else ("RGB",):
            raw += np.asarray(image.convert(mode)).tobytes()
        write_bytes(out / f"{name}.pixels.png", raw)
        index[name] = {"height": image.height, "width": image.width}
    write_json(out / "index.json", index)


# --- resize -------------------------------------------------------------------------------------

FILTERS = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
    "area": Image.Resampling.BOX,
}
SIZES = [(15, 19), (5, 50), (31, 40), (1, 1), (11, 29)]


def resize():
    out = folder("resize")
    sources = {
        "rgb": (scene(23, 29, 3), "RGB"),
        "gray": (scene(23, 29, 1), "L"),
        "rgba": (scene(23, 29, 4), "RGBA"),
        "dot": (scene(1, 1, 3), "RGB"),
        "line": (scene(1, 29, 3), "RGB"),
        "noise": (RNG.integers(0, 256, (60, 40, 1), dtype=np.uint8), "L"),
    }
    cases = []
    blob = b""

    def put(data):
        nonlocal blob
        start = len(blob)
        blob += data
        return start

    for name, (pixels, mode) in sources.items():
        at = put(pixels.tobytes())
        for filter_name, filter in FILTERS.items():
            # The noise is shrunk by 3.75, where pixels lie on the edge of what `area` covers.
            sizes = {"dot": SIZES[:1], "line": SIZES[:1] + SIZES[3:4], "noise": [(16, 32), (32, 16), (25, 36), (50, 33)]}.get(name, SIZES)
            for height, width in sizes:
                image = Image.fromarray(pixels[..., 0] if mode == "L" else pixels, mode if mode != "L" else None)
                result = np.asarray(image.resize((width, height), filter))
                cases.append({
                    "name": name, "element": "uint8", "shape": pixels.shape, "at": at, "filter": filter_name,
                    "size": [height, width], "expected": put(result.tobytes()),
                })
    floats = RNG.normal(0, 2, (23, 29, 1)).astype(np.float32)
    at = put(floats.tobytes())
    for filter_name, filter in FILTERS.items():
        for height, width in SIZES[:4]:
            result = np.asarray(Image.fromarray(floats[..., 0]).resize((width, height), filter))
            cases.append({
                "name": "float", "element": "float32", "shape": floats.shape, "at": at, "filter": filter_name,
                "size": [height, width], "expected": put(result.tobytes()),
            })
    write_bytes(out / "samples.png", blob)
    write_json(out / "index.json", cases)


# --- normalize, softmax -------------------------------------------------------------------------


def numbers(array):
    return {"shape": array.shape, "data": [float(str(x)) for x in array.ravel()]}


def normalize():
    out = folder("normalize")
    pixels = RNG.integers(0, 256, (5, 7, 3), dtype=np.uint8)
    one = np.float32(1)
    unit = pixels.astype(np.float32) / np.float32(255)
    three = lambda *values: np.array(values, dtype=np.float32)
    floats = RNG.normal(0, 3, (2, 5, 7)).astype(np.float32)
    per_plane = (floats * np.float32(0.5) + np.float32(1) - three(1, 2)[:, None, None]) / three(0.5, 4)[:, None, None]
    cases = [
        ({"method": "imagenet"}, "HWC", pixels, (unit - three(0.485, 0.456, 0.406)) / three(0.229, 0.224, 0.225)),
        ({"method": "clip"}, "HWC", pixels,
         (unit - three(0.48145466, 0.4578275, 0.40821073)) / three(0.26862954, 0.26130258, 0.27577711)),
        ({"method": "unit"}, "HWC", pixels, unit),
        ({"method": "0-1"}, "HWC", pixels, unit),
        ({"method": "tf"}, "HWC", pixels, pixels.astype(np.float32) / np.float32(127.5) - one),
        ({"method": "-1-1"}, None, pixels, pixels.astype(np.float32) / np.float32(127.5) - one),
        ({"method": "imagenet"}, "CHW", np.ascontiguousarray(pixels.transpose(2, 0, 1)),
         np.ascontiguousarray(((unit - three(0.485, 0.456, 0.406)) / three(0.229, 0.224, 0.225)).transpose(2, 0, 1))),
        ({"scale": 0.0627}, "HWC", pixels, pixels.astype(np.float32) * np.float32(0.0627)),
        ({"scale": 0.5, "offset": 1, "mean": [1, 2], "std": [0.5, 4]}, "CHW", floats, per_plane),
        ({"mean": 10, "std": [1, 2, 4]}, None, pixels, (pixels.astype(np.float32) - 10) / three(1, 2, 4)),
    ]
    write_json(out / "cases.json", [
        {"options": options, "layout": layout, "element": str(given.dtype), "input": numbers(given), "output": numbers(want)}
        for options, layout, given, want in cases
    ])


def softmaxes():
    out = folder("softmax")
    cases = []
    for shape, axis in [((5,), -1), ((3, 7), -1), ((3, 7), 0), ((2, 3, 4), 1), ((1, 1), -1), ((2, 67), -1)]:
        for dtype in (np.float32, np.float64, np.float16):
            given = RNG.normal(0, 8, shape).astype(dtype)
            cases.append({"axis": axis, "element": str(given.dtype), "input": numbers(given), "output": numbers(softmax(given, axis=axis))})
    big = np.array([1e30, 3e38, -3e38, 88.0, 1000.0, 1000.5], dtype=np.float32)
    cases.append({"axis": -1, "element": "float32", "input": numbers(big), "output": numbers(softmax(big))})
    big = big[3:]
    cases.append({"axis": -1, "element": "float32", "input": numbers(big), "output": numbers(softmax(big))})
    write_json(out / "cases.json", cases)


# --- tokenize -----------------------------------------------------------------------------------

TEXT = """The quick brown fox jumps over the lazy dog. A pipeline turns values into values.
Every request gets its own sandbox around native inference. It's a model's job, isn't it?
Größe, naïve café, façade; Ελληνικά και Кириллица; 日本語のテキスト、中文文本。한국어 텍스트
Numbers: 1234567890, 3.14159, 1e-5, 10%, $42. E-mail: someone@example.org, https://example.org/path?x=1
def resize(image, size): return image.resize(size)  # code too
emoji 😀👩‍👩‍👧‍👦🇩🇪 and symbols ∑∫√∞ ≤ ≥ ≠ → ←
unbelievable unbelievably believing believer believers tokenization tokenizer tokens token
""".splitlines()

INPUTS = [
    "The quick brown fox",
    "",
    " ",
    "unbelievable tokenizers, believing in resizing!",
    "Größe naïve CAFÉ cafe\u0301 \ufb01ne \u00a0nbsp\u200bzero\u200dwidth",
    "日本語と中文 한국어 עברית العربية",
    "😀👩‍👩‍👧‍👦🇩🇪 ∑",
    "tabs\tand\nnew\r\nlines   and    spaces",
    "\x00\x01\x7f\ufffd\ufeff control",
    "supercalifragilisticexpialidocious " * 5,
    "x" * 120,
    "[CLS] literal [SEP] <s> special </s> [MASK] <|endoftext|>",
]
PAIRS = [
    ("What is a sandbox?", "Every request gets its own sandbox."),
    ("", "only the second"),
    ("only the first", ""),
    ("The quick brown fox jumps over the lazy dog. " * 3, "A dog."),
    ("A dog.", "The quick brown fox jumps over the lazy dog. " * 3),
    ("日本語", "größe 😀"),
]


def trained():
    wordpiece = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    wordpiece.normalizer = normalizers.BertNormalizer(lowercase=True)
    wordpiece.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    wordpiece.decoder = decoders.WordPiece()
    wordpiece.train_from_iterator(TEXT, trainers.WordPieceTrainer(
        vocab_size=300, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], show_progress=False))
    wordpiece.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    bpe.train_from_iterator(TEXT, trainers.BpeTrainer(
        vocab_size=400, special_tokens=["<|endoftext|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False))
    bpe.post_processor = processors.ByteLevel(trim_offsets=False)
    bpe.enable_padding(direction="left", pad_id=0, pad_token="<|endoftext|>")

    unigram = Tokenizer(models.Unigram())
    unigram.normalizer = normalizers.Sequence([normalizers.Replace("``", '"'), normalizers.NFKC()])
    unigram.pre_tokenizer = pre_tokenizers.Metaspace()
    unigram.decoder = decoders.Metaspace()
    unigram.train_from_iterator(TEXT, trainers.UnigramTrainer(
        vocab_size=260, special_tokens=["<s>", "<pad>", "</s>", "<unk>"], unk_token="<unk>", show_progress=False))
    unigram.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    return {"wordpiece": wordpiece, "bpe": bpe, "unigram": unigram}


def encode(tokenizer, name, inputs, max_length=None, padding=None, multiple=None, special=True):
    tokenizer.no_truncation()
    tokenizer.no_padding()
    if max_length:
        tokenizer.enable_truncation(max_length)
    if padding:
        pad = {"wordpiece": (0, "[PAD]", "right"), "bpe": (0, "<|endoftext|>", "left"), "unigram": (1, "<pad>", "right")}[name]
        tokenizer.enable_padding(
            direction=pad[2], pad_id=pad[0], pad_token=pad[1], pad_to_multiple_of=multiple,
            length=max_length if padding == "max_length" else None)
    result = tokenizer.encode_batch(inputs, add_special_tokens=special)
    return {
        "input_ids": [e.ids for e in result],
        "attention_mask": [e.attention_mask for e in result],
        "token_type_ids": [e.type_ids for e in result],
    }


def tokenize():
    # Training breaks ties by hash order, so what is there stays; delete the files to train anew.
    names = ["wordpiece", "bpe", "unigram"]
    out = folder("tokenize", keep=[f"{name}.json" for name in names])
    if not all((out / f"{name}.json").exists() for name in names):
        for name, tokenizer in trained().items():
            tokenizer.save(str(out / f"{name}.json"), pretty=False)
    for name in names:
        tokenizer = Tokenizer.from_file(str(out / f"{name}.json"))
        cases = []

        def case(options, texts, pairs, **how):
            inputs = texts if pairs is None else list(zip(texts, pairs))
            cases.append({"options": options, "text": texts, "pair": pairs, **encode(tokenizer, name, inputs, **how)})

        for text in INPUTS:
            case({"padding": "none"}, [text], None)
        case({"padding": "none", "add_special_tokens": False}, INPUTS[:1], None, special=False)
        case({"padding": "longest"}, INPUTS[:8], None, padding="longest")
        case({"pad_to_multiple_of": 8}, INPUTS[:4], None, padding="longest", multiple=8)
        case({"max_length": 12, "padding": "max_length"}, INPUTS, None, max_length=12, padding="max_length")
        case({"max_length": 12, "padding": "max_length", "add_special_tokens": False}, INPUTS[:6], None,
             max_length=12, padding="max_length", special=False)
        first, second = [a for a, _ in PAIRS], [b for _, b in PAIRS]
        for a, b in PAIRS:
            case({"padding": "none"}, [a], [b])
        case({"max_length": 16}, first, second, max_length=16, padding="longest")
        case({"max_length": 9, "padding": "max_length", "pad_to_multiple_of": 4}, first, second,
             max_length=9, padding="max_length", multiple=4)
        write_json(out / f"{name}.cases.json", cases)


if __name__ == "__main__":
    decode()
    resize()
    normalize()
    softmaxes()
    tokenize()
    total = sum(path.stat().st_size for path in HERE.rglob("*") if path.is_file())
    print(f"{total / 1024:.0f} KiB")
