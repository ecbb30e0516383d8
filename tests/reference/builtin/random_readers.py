"""Random cases for the steps around readers of text and speech (`make_random.py` writes them)."""

import numpy as np
import torch
from rapidocr.ch_ppocr_rec.utils import CTCLabelDecode
from sentence_transformers.sentence_transformer.modules import Pooling
from transformers import Wav2Vec2FeatureExtractor

from make_readers import kaldi

LETTERS = [*"abcdefghijklmnopqrstuvwxyzäß", "字", "{", "}", "\u3000", "é", "🙂", "th", "[unk]"]
INTEGERS = ["bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"]
POOLING = ["cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]


def ctc_greedy_decode(cases, _):
    count = cases.whole(1, len(LETTERS))
    letters = [LETTERS[int(index)] for index in cases.rng.permutation(len(LETTERS))[:count]]
    shape = [cases.whole(1, 4), cases.whole(1, 60)]
    if cases.rng.random() < 0.5:
        scores, given = cases.noise((*shape, count + 2), "float32")
        lines, _ = CTCLabelDecode(character=list(letters))(scores)
        lines = [[text, float(score)] for text, score in lines]
        options = {"vocabulary": letters, "add_blank": "first", "append_space": True, "trim": False, "score": True}
        cases.add_json("ctc-greedy-decode", options, given, {"lines": lines}, "ctc-greedy-decode as RapidOCR")
        return
    # As the decoder of torchaudio's tutorials.
    tokens = ["<pad>", "|", *(letter for letter in letters if letter not in "{}")]
    scores, given = cases.noise((*shape, len(tokens)), "float32", low=-16.0, high=16.0)
    lines = []
    for row in torch.tensor(scores).argmax(-1):
        numbers = torch.unique_consecutive(row).tolist()
        lines.append(["".join(tokens[number] for number in numbers if number).replace("|", " ").strip(), None])
    options = {"vocabulary": tokens}
    cases.add_json("ctc-greedy-decode", options, given, {"lines": lines}, "ctc-greedy-decode as torchaudio")


def shape_and_axis(cases):
    """A shape, and an axis or several of it."""
    shape = [cases.whole(1, 40) for _ in range(cases.whole(1, 4))]
    rank = len(shape)
    if cases.rng.random() < 0.6:
        return shape, int(cases.rng.integers(-rank, rank))
    axes = cases.rng.permutation(rank)[: cases.whole(1, rank)]
    return shape, [int(axis) - cases.pick(0, rank) for axis in axes]


def reduction(cases, _):
    step = cases.pick("max", "mean", "sum")
    element = cases.pick(*INTEGERS, "float16", "float32", "float32", "float32", "float64")
    shape, axis = shape_and_axis(cases)
    low = 0.0 if element.startswith("u") else -64.0
    given_numbers, given = cases.noise(shape, element, low=low, high=64.0)
    options = {"axis": axis, "keepdims": cases.pick(True, False)}
    along = tuple(axis) if isinstance(axis, list) else axis
    result = getattr(np, step)(given_numbers, axis=along, keepdims=options["keepdims"])
    bar = 0.0
    if step != "max" and element.startswith("float"):
        # Numbers that cancel each other leave the error of what was added up.
        most = getattr(np, step)(np.abs(given_numbers.astype(np.float64)), axis=along).max()
        bar = float(most) * {"float16": 4e-3, "float32": 3e-7, "float64": 1e-7}[element]
    cases.add(step, options, given, result, bar, f"{step} {element}")


def log(cases, _):
    element = cases.pick("float16", "float32", "float32", "float64")
    low, high = cases.pick((0.0, 1.0), (0.0, 2.0**-8), (0.0, 2.0**14), (-1.0, 1.0))
    numbers, given = cases.noise([cases.whole(1, 30), cases.whole(1, 30)], element, low=low, high=high)
    epsilon = cases.pick(0, 0, round(float(10 ** cases.rng.uniform(-9, 0)), 10))
    with np.errstate(all="ignore"):
        result = np.log(numbers + np.array(epsilon, element))
    bar = {"float16": 2e-2, "float32": 2e-6, "float64": 2e-6}[element]
    cases.add("log", {"epsilon": epsilon}, given, result, bar, f"log {element}")


def standardize(cases, _):
    level = cases.pick(1.0, 1.0, 2.0**-8, 2.0**-16)
    if cases.rng.random() < 0.5:
        shape, axis, options = [cases.whole(1, 3), cases.whole(2, 4000)], 1, {}
        numbers, given = cases.noise(shape, "float32", low=-level / 2, high=level)
        extractor = Wav2Vec2FeatureExtractor(do_normalize=True)
        result = np.stack(extractor(list(numbers), sampling_rate=16000, return_tensors="np")["input_values"])
        name = "standardize as wav2vec2"
    else:
        shape, axis = shape_and_axis(cases)
        axis = axis if isinstance(axis, int) else axis[0]
        element = cases.pick("float32", "float64")
        numbers, given = cases.noise(shape, element, low=-level / 2, high=level)
        options = {"axis": axis, "epsilon": cases.pick(1e-7, 1e-5, 1e-3)}
        wide = numbers.astype(np.float64)
        variance = wide.var(axis, keepdims=True)
        result = ((wide - wide.mean(axis, keepdims=True)) / np.sqrt(variance + options["epsilon"])).astype(element)
        name = f"standardize {element}"
    cases.add("standardize", options, given, result, 2e-6 * max(1, float(np.abs(result).max())), name)


def fbank(cases, _):
    rate = cases.pick(8000, 16000, 22050, 44100)
    quiet = cases.pick(1.0, 0.25, 2.0**-8)
    sound, given = cases.noise([cases.whole(rate // 20, rate // 4)], "float32", low=-quiet, high=quiet)
    given["rate"] = rate
    options = {"num_mel_bins": cases.whole(3, 40 if rate == 8000 else 80)}
    sometimes = lambda **more: more if cases.rng.random() < 0.3 else {}
    options |= sometimes(scale=32768)
    options |= sometimes(snip_edges=False)
    options |= sometimes(window_type=cases.pick("povey", "hamming", "hanning", "blackman", "rectangular"))
    options |= sometimes(low_freq=cases.whole(1, 300))
    options |= sometimes(high_freq=cases.pick(-cases.whole(1, 400), cases.whole(3000, 4000)))
    options |= sometimes(preemph_coeff=round(float(cases.rng.uniform(0, 1)), 2))
    options |= sometimes(remove_dc_offset=False)
    options |= sometimes(frame_length=cases.pick(20, 32, 40.5))
    options |= sometimes(frame_shift=cases.pick(5, 12.5, 30))
    options |= sometimes(use_power=False)
    options |= sometimes(use_log_fbank=False)
    options |= sometimes(use_energy=True, energy_floor=cases.pick(0, 0.5, 2))
    try:
        result = kaldi(sound, rate, options)
    except ValueError:
        # A band has no frequency of its own.
        return
    bar = 2e-4 if options.get("use_log_fbank", True) else max(2e-6 * float(np.abs(result).max()), 1e-20)
    kind = "logarithms" if options.get("use_log_fbank", True) else "energies"
    cases.add("fbank", options, given, result, bar, f"fbank, {kind}")


def pool(cases, _):
    batch, length, width = cases.whole(1, 4), cases.whole(1, 40), cases.whole(1, 48)
    element = cases.pick("float32", "float32", "float64")
    hidden, given = cases.noise((batch, length, width), element, low=-4.0, high=4.0)
    inputs, mask = [given, None], np.ones((batch, length), np.int64)
    padding = cases.pick("none", "right", "left", "holes")
    if padding == "holes":
        mask = cases.rng.integers(0, 2, (batch, length))
        mask[np.arange(batch), cases.rng.integers(0, length, batch)] = 1
    elif padding != "none":
        counts = cases.rng.integers(1, length + 1, (batch, 1))
        mask = (np.arange(length) < counts).astype(np.int64)
        mask = mask[:, ::-1] if padding == "left" else mask
    if padding != "none":
        inputs[1] = {"element": "int64", "shape": [batch, length], "data": mask.ravel().tolist()}
    modes = cases.pick(*POOLING)
    if cases.rng.random() < 0.3:
        modes = [POOLING[int(mode)] for mode in cases.rng.permutation(6)[: cases.whole(1, 6)]]
    features = {"token_embeddings": torch.from_numpy(hidden), "attention_mask": torch.from_numpy(mask.copy())}
    result = Pooling(width, pooling_mode=modes)(features)["sentence_embedding"].numpy()
    name = "several" if isinstance(modes, list) else modes
    cases.add("pool", {"mode": modes}, inputs, result, 4e-6, f"pool {name}")


READERS = [(ctc_greedy_decode, 2), (reduction, 3), (log, 1), (standardize, 1), (fbank, 3), (pool, 2)]
