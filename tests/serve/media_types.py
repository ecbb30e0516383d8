"""Teaches Schemathesis bodies that are files, and leaves out those of which none is wrong."""

import base64

import schemathesis
from hypothesis import strategies
from schemathesis import openapi
from server import ROOT

FILES = [(ROOT / "models/samples" / name).read_bytes() for name in ["seven.png", "two.jpg"]]
SOUND = (ROOT / "tests/cases/pipelines/files/sound.wav").read_bytes()


def files(*right):
    """Such files, some of them broken, and any bytes."""
    whole = strategies.sampled_from(right)
    cut = strategies.tuples(whole, strategies.integers(0, 400)).map(lambda pair: pair[0][: pair[1]])
    return strategies.one_of(whole, cut, strategies.binary(max_size=200))


@schemathesis.hook
def before_call(context, case, kwargs):
    """With 0 there, whatever comes is the bytes of the only input."""
    name = "Inference-Header-Content-Length"
    if case.headers is not None and case.headers.get(name) in (0, "0"):
        del case.headers[name]


openapi.media_type("image/*", files(*FILES))
openapi.media_type("audio/*", files(SOUND))
openapi.media_type("application/x-npy", files(b"\x93NUMPY\x01\x00"))
openapi.media_type("text/csv", files(b"1,2,3,4\n", b"a,b,c,d\n1,2,3,4\n", b"1;2;3;4\n"))
openapi.media_type("text/tab-separated-values", files(b"1\t2\t3\t4\n"))
