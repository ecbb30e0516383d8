"""Writes the numbers that the steps for readers of text and of speech are compared with: `readers.json.png`,
which `host/steps/src/reference/readers.rs` reads.

    python -m venv venv && venv/bin/pip install -r requirements-readers.txt && venv/bin/python make_readers.py

A second run writes the same bytes.
"""

import json
import warnings
from pathlib import Path

import kaldi_native_fbank as knf
import numpy as np
from PIL import Image
from rapidocr.ch_ppocr_rec.utils import CTCLabelDecode
from transformers import Wav2Vec2FeatureExtractor

HERE = Path(__file__).parent
RNG = np.random.default_rng(19)
CASES = []


def tensor(array):
    """A tensor as JSON that loses nothing: its bytes in hexadecimal."""
    array = np.asarray(array)
    return {"element": str(array.dtype), "shape": array.shape, "data": np.ascontiguousarray(array).tobytes().hex()}


def case(step, options, given, expected):
    CASES.append({"step": step, "options": options, "input": tensor(given), "expected": expected})


def readers():
    """`ctc-greedy-decode` as RapidOCR decodes the lines of a page."""
    for shape in [(1, 7), (1, 40), (3, 25), (2, 1)]:
        for characters in [list("abc"), ["[", "\u3000", "字", "{", "|", "}"]]:
            reader = CTCLabelDecode(character=list(characters))
            logits = RNG.normal(0, 2, (*shape, len(characters) + 2)).astype(np.float32)
            # Repeats, and a blank that is often the best.
            logits = np.repeat(logits, 2, axis=1)
            logits[..., 0] += 1
            scores = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
            lines, _ = reader(scores)
            options = {"vocabulary": characters, "add_blank": "first", "append_space": True, "trim": False, "score": True}
            case("ctc-greedy-decode", options, scores, [[text, score] for text, score in lines])


def write_bytes(path, data):
    """Bytes as a gray PNG, 512 to a row: compressed, and read by the decoder that is there anyway."""
    rows = -(-len(data) // 512)
    padded = np.frombuffer(data.ljust(rows * 512, b"\0"), dtype=np.uint8).reshape(rows, 512)
    Image.fromarray(padded).save(path, optimize=True)


def numbers(element, shape):
    size = int(np.prod(shape))
    if element == "bool":
        return RNG.integers(0, 2, shape).astype(bool)
    if element.startswith("float"):
        values = RNG.normal(0, 30, size).astype(element)
        # Infinities and NaN now and then.
        if size > 5 and RNG.random() < 0.3:
            values[RNG.integers(size)] = RNG.choice([np.inf, -np.inf, np.nan])
        return values.reshape(shape)
    limits = np.iinfo(element)
    return RNG.integers(limits.min, limits.max, shape, dtype=element, endpoint=True)


def reductions():
    """`max`, `mean` and `sum` as NumPy, overflow included."""
    elements = ["bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"]
    for element in [*elements, "float16", "float32", "float64"]:
        for shape in [(5,), (2, 3, 4), (3, 0, 2), (1, 1), *([(2, 140), (3, 300)] if element == "float32" else [])]:
            for axis in [-1, 0, list(range(len(shape))), [0, -1] if len(shape) > 1 else [0]]:
                keepdims = bool(RNG.integers(2))
                given = numbers(element, shape)
                for step in ["max", "mean", "sum"]:
                    along = tuple(axis) if isinstance(axis, list) else axis
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        try:
                            made = getattr(np, step)(given, axis=along, keepdims=keepdims)
                        except ValueError:
                            continue
                    case(step, {"axis": axis, "keepdims": keepdims}, given, tensor(made))


def logarithms():
    for element in ["float16", "float32", "float64"]:
        for epsilon in [0, 1e-3]:
            given = np.abs(numbers(element, (40,)))
            given[:4] = [0, 1, 1e-4, -1]
            with np.errstate(all="ignore"):
                made = np.log(given + np.array(epsilon, element))
            case("log", {"epsilon": epsilon}, given, tensor(made))


def speech():
    """`standardize` as the feature extractor of wav2vec2."""
    extractor = Wav2Vec2FeatureExtractor(do_normalize=True)
    for length, level in [(5, 1), (400, 0.01), (3000, 0.3), (7, 0)]:
        sound = (RNG.normal(0.02, 1, length) * level).astype(np.float32)
        made = extractor(sound, sampling_rate=16000, return_tensors="np")["input_values"]
        case("standardize", {}, sound[None], tensor(made))


def kaldi(sound, rate, options):
    """`fbank` with options as gpux names them."""
    names = {"num_mel_bins": "num_bins", "frame_length": "frame_length_ms", "frame_shift": "frame_shift_ms"}
    theirs = {names.get(key, key): value for key, value in options.items() if key != "scale"}
    return fbank(sound * np.float32(options.get("scale", 1)), {"samp_freq": rate, **theirs})


def fbank(sound, options):
    made = knf.FbankOptions()
    made.frame_opts.dither = 0
    for key, value in options.items():
        owner = next(owner for owner in (made, made.frame_opts, made.mel_opts) if hasattr(owner, key))
        setattr(owner, key, value)
    online = knf.OnlineFbank(made)
    online.accept_waveform(made.frame_opts.samp_freq, sound.tolist())
    online.input_finished()
    frames = [online.get_frame(index) for index in range(online.num_frames_ready)]
    return np.array(frames, np.float32).reshape(len(frames), -1)


def banks():
    """`fbank` as Kaldi."""
    for options, rate, count in [
        ({"num_mel_bins": 80}, 16000, 1600),
        ({"num_mel_bins": 80, "scale": 32768}, 16000, 1600),
        ({"num_mel_bins": 40, "snip_edges": False, "window_type": "hamming"}, 16000, 900),
        ({"num_mel_bins": 23, "snip_edges": False, "window_type": "rectangular"}, 8000, 130),
        ({"num_mel_bins": 23, "low_freq": 60, "high_freq": -400, "window_type": "hanning"}, 8000, 1000),
        ({"num_mel_bins": 64, "preemph_coeff": 0, "remove_dc_offset": False, "frame_length": 32}, 16000, 1200),
        ({"num_mel_bins": 80, "use_energy": True, "energy_floor": 2, "frame_shift": 12.5}, 22050, 1500),
        ({"num_mel_bins": 30, "use_power": False, "use_log_fbank": False, "window_type": "blackman"}, 16000, 800),
    ]:
        time = np.arange(count) / rate
        sound = 0.3 * np.sin(2 * np.pi * 440 * time) + 0.1 * np.sin(2 * np.pi * 3000 * time) + RNG.normal(0.01, 0.05, count)
        sound = sound.astype(np.float32)
        case("fbank", {"sample_rate": rate, **options}, sound, tensor(kaldi(sound, rate, options)))


if __name__ == "__main__":
    readers()
    reductions()
    logarithms()
    speech()
    banks()
    text = json.dumps(CASES, ensure_ascii=True, separators=(",", ":"))
    write_bytes(HERE / "readers.json.png", text.encode())
    print(len(CASES), "cases")
