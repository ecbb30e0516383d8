"""Writes what Python and NumPy make of random texts and numbers, for the step `cast`
(`host/steps/src/tensor/parse_number.rs`).

    python -m venv venv && venv/bin/pip install -r requirements-cast.txt && venv/bin/python make_cast.py

Unicode's digits are those of Python 3.11. A second run writes the same bytes.
"""

import json
import math
import random
import struct
from fractions import Fraction
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
TYPES = ["uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "float32", "float64"]
SPACES = [" ", "\t", "\n", "\x0b", "\x0c", "\r", "\x1c", "\x1f", "\x85", "\u00a0", "\u2003", "\u3000", "\u200b"]
ZEROS = ["0"] * 8 + list("\u0660\u06f0\u0966\u0e50\uff10\U0001d7ce\U0001fbf0")
# No digits: superscripts, fractions, roman and circled numbers.
ODD = ["\u00b2", "\u00bd", "\u2167", "\u2460", "\u4e00", "x", "e", "-", "+", ".", "_", "\u2212", "\u066b", "\x00"]
FIXED = ["", " ", "_", "-", ".", "1_000", "1__0", "_1", "1_", "-_1", "-0", "+0", "0", "-00", "007", "0_7", "1_e5", "1e_5", "1e1_0",
         "1_.5", "1._5", "1.5_5", "inf", "-Infinity", "iNf", "nan", "-nan", "+NaN", "i_nf", "in", "0x10", "1e999", "-1e999",
         "1e-999", "5e-324", "127", "128", "-128", "-129", "255", "256", "-1", "65535", "65536", "18446744073709551615",
         "18446744073709551616", "-9223372036854775808", "-9223372036854775809", "9" * 50, "0" * 900 + "7", "1.", ".5", ".",
         "1e", "e5", "1e+5", "1E05", "2.0", "1 0", "--1", "+-1", "65504", "65519.99", "65520", "1j", "True", "1L"]


def text(rng):
    kind = rng.randrange(6)
    zero = ord(rng.choice(ZEROS))
    digits = lambda most: "".join(chr(zero + rng.randrange(10)) for _ in range(rng.randrange(1, most)))
    number = rng.choice(["", "", "-", "+"]) + digits(rng.choice([3, 4, 6, 12, 21]))
    if kind in (1, 2):
        number += rng.choice([".", "", "."]) + rng.choice([digits(9), ""]) + rng.choice(["", "e", "E-", "e+"]) + rng.choice(["", digits(3)])
    if kind in (3, 4):
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(len(number) + 1)
            number = number[:at] + (rng.choice(ODD) if kind == 3 else "_") + number[at:]
    space = lambda: "".join(rng.choice(SPACES) for _ in range(rng.choice([0, 0, 1, 2])))
    return space() + number + space()


def read(text, dtype):
    """As NumPy's own cast does, but for what its fixed-width strings forget: zeros at the end."""
    try:
        number = (float if dtype.startswith("float") else int)(text)
        with np.errstate(all="ignore"):
            value = np.array([number], object).astype(dtype)
    except (ValueError, OverflowError):
        return None
    if "\x00" not in text and text:
        with np.errstate(all="ignore"):
            assert np.array([text]).astype(dtype).tobytes() == value.tobytes() or np.isnan(value[0]), (text, dtype)
    return "nan" if np.isnan(value[0]) else value.tobytes().hex()


def wide(rng):
    """Numbers near the middle of two of the narrower type, and any bits."""
    if rng.random() < 0.3:
        return struct.unpack("<d", rng.randbytes(8))[0]
    kept = rng.choice([10, 7])
    number = (1 + rng.randrange(2**kept) / 2**kept + 2.0 ** -(kept + 1)) * 2.0 ** rng.randrange(-28, 18)
    return rng.choice([-1, 1]) * (number + rng.choice([0, -1, 1]) * abs(number) * 2.0 ** -rng.randrange(12, 52))


def bfloat16(number):
    """The bits of the nearest bfloat16, ties to even. Libraries round through float32, which is not always the same."""
    sign, number = (0x8000 if math.copysign(1, number) < 0 else 0), abs(number)
    if math.isinf(number):
        return sign | 0x7F80
    exponent = max(math.frexp(number)[1] - 8, -133) if number else -133
    # Python divides and rounds fractions exactly; a significand of 256 is the next power of two.
    significand = round(Fraction(number) / Fraction(2) ** exponent)
    bits = significand if exponent == -133 else ((exponent + 134 - 1) << 7) + significand
    return sign | min(bits, 0x7F80)


if __name__ == "__main__":
    rng = random.Random(22)
    texts = FIXED + [text(rng) for _ in range(600)]
    numbers = [number for number in (wide(rng) for _ in range(460)) if number == number]
    narrow = []
    for number in numbers:
        with np.errstate(all="ignore"):
            half = np.float64(number).astype(np.float16).view(np.uint16)
        narrow.append([struct.pack(">d", number).hex(), f"{int(half):x}", f"{bfloat16(number):x}"])
    reference = {"texts": texts, "read": {dtype: [read(text, dtype) for text in texts] for dtype in TYPES}, "narrow": narrow}
    (HERE / "cast.json").write_text(json.dumps(reference, ensure_ascii=True, separators=(",", ":")) + "\n")
