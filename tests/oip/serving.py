"""A live `gpux serve` on free ports, for as long as a test module runs."""

import os
import re
import subprocess
import unittest
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT / "tests/oip/models"
GPUX = os.environ.get("GPUX", str(ROOT / "target/debug/gpux"))

# Every datatype with its smallest and largest elements, and what lies between.
EXTREMES = {
    "BOOL": np.array([True, False]),
    **{
        f"{kind}{bits}": np.array([np.iinfo(f"{name}{bits}").min, 0, 1, np.iinfo(f"{name}{bits}").max], f"{name}{bits}")
        for kind, name in (("INT", "int"), ("UINT", "uint"))
        for bits in (8, 16, 32, 64)
    },
    **{
        f"FP{bits}": np.array(
            [np.finfo(f"float{bits}").min, np.finfo(f"float{bits}").tiny, -0.0, 0.1, np.finfo(f"float{bits}").max],
            f"float{bits}")
        for bits in (16, 32, 64)
    },
    "BYTES": np.array(["", "a", "ü €", "x" * 70_000, "line\nline", "\"quoted\"", "日本語"], object),
}


class Serving:
    """The program, from its start to its end."""

    def __init__(self, *arguments):
        command = [GPUX, "serve", str(MODELS), "--engine", "onnxruntime",
                   "--host", "127.0.0.1", "--port", "0", "--grpc-port", "0", *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.lines = []
        second = None
        for line in self.process.stdout:
            self.lines.append(line)
            second = re.search(r"gRPC on (\S+) as well", line) or second
            ready = re.search(r"ready on https?://(\S+)", line)
            if ready:
                self.address = ready[1]
                self.second = second[1]
                return
        raise RuntimeError("gpux serve did not become ready:\n" + "".join(self.lines))

    def stop(self):
        self.process.terminate()
        self.process.communicate(timeout=60)
        return self.process.returncode


class ServedCase(unittest.TestCase):
    """Tests against one server."""

    # Flags, and pipelines beside those of this folder.
    ARGUMENTS = ()

    @classmethod
    def setUpClass(cls):
        cls.serving = Serving(*cls.ARGUMENTS)
        cls.address = cls.serving.address

    @classmethod
    def tearDownClass(cls):
        code = cls.serving.stop()
        assert code == 0, f"gpux serve ended with {code}"


def same(given, expected):
    """Whether two arrays are the same to the last bit, texts as text."""
    if expected.dtype == object:
        text = [item.decode() if isinstance(item, bytes) else item for item in np.ravel(given).tolist()]
        return text == expected.ravel().tolist() and given.shape == expected.shape
    return given.dtype == expected.dtype and given.shape == expected.shape and given.tobytes() == expected.tobytes()
