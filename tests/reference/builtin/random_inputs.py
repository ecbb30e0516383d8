"""Random inputs that the script and the tests make alike, and what the reference library makes of them.

A tensor of noise is stored as its seed (`host/steps/src/reference/random.rs` draws the same numbers);
a result that must be the same to the bit as its hash, any other as a few of its numbers.
"""

import hashlib
import io
import json

import numpy as np
from PIL import Image

# Numbers that are kept of a result.
PROBES = 32


def draw(seed, count):
    """SplitMix64, from its `seed` on."""
    with np.errstate(over="ignore"):
        state = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed)
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return state ^ (state >> np.uint64(31))


class Cases:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.cases, self.numbers, self.files = [], [], b""

    def pick(self, *choices):
        return choices[int(self.rng.integers(len(choices)))]

    def whole(self, low, high):
        """A whole number from low to high, small ones as often as large ones."""
        return int(np.exp(self.rng.uniform(np.log(low), np.log(high + 1))))

    def noise(self, shape, element="uint8", faint=False, low=0.0, high=1.0):
        """Noise, and how the tests make it: bytes, or float32 from `low` to `high`, which are whole powers of
        two, converted to `element`. `faint`: of four bytes, the last is next to nothing."""
        seed = int(self.rng.integers(1 << 53))
        drawn = draw(seed, int(np.prod(shape)))
        if element == "uint8":
            values = (drawn >> np.uint64(56)).astype(np.uint8)
            if faint:
                values[3::4] %= 6
        else:
            unit = (drawn >> np.uint64(40)).astype(np.float32) / np.float32(1 << 24)
            values = (unit * np.float32(high - low) + np.float32(low)).astype(element)
        given = {"seed": seed, "element": element, "shape": list(shape), "faint": faint, "low": low, "high": high}
        return values.reshape(shape), given

    def file(self, data):
        at = len(self.files)
        self.files += data
        return {"file": [at, len(data)]}

    def levels(self, map):
        """A map of levels of 255, which the tests read as float32 from 0 to 1."""
        file = io.BytesIO()
        Image.fromarray(map).save(file, "PNG", optimize=True)
        return {"levels": self.file(file.getvalue())["file"]}

    def add_json(self, step, options, given, expected, name):
        """A case whose result is compared as JSON."""
        case = {"name": name, "step": step, "options": options, "given": given, "expected": expected}
        self.cases.append(case)

    def add(self, step, options, given, result, bar=0.0, name=None, apart=0.0, then=None):
        """A case whose result may be off by `bar`, but for a share `apart` of the numbers of all cases with this name.
        `given` is an input, or a list of all of them. `then` is a step, with its options, after this one."""
        expected = {"shape": list(np.shape(result)), "element": str(result.dtype)}
        result = np.ascontiguousarray(result)
        if bar == 0:
            expected["hash"] = hashlib.sha256(result.tobytes()).hexdigest()[:16]
        else:
            count = min(result.size, PROBES)
            places = np.arange(count) * result.size // max(count, 1)
            expected |= {"bar": bar, "at": len(self.numbers)}
            expected |= {"apart": apart} if apart else {}
            self.numbers += result.ravel()[places].astype(np.float32).tolist()
        case = {"name": name or step, "step": step, "options": options, "given": given, "expected": expected}
        self.cases.append(case | ({"then": then} if then else {}))

    def write(self, folder):
        folder.mkdir(parents=True, exist_ok=True)
        lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in self.cases)
        (folder / "cases.json").write_text(f"[\n{lines}\n]\n")
        (folder / "files.bin").write_bytes(self.files)
        # As a gray PNG: compressed, and read by the decoder that is there anyway. The four bytes of the
        # numbers lie apart, which compresses better.
        numbers = np.array(self.numbers, dtype=np.float32)
        numbers = np.pad(numbers, (0, -numbers.size % 128 or 128 * (numbers.size == 0)))
        parts = np.ascontiguousarray(numbers.view(np.uint8).reshape(-1, 4).T)
        Image.fromarray(parts.reshape(-1, 128)).save(folder / "numbers.png", optimize=True)
