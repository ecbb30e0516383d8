"""What a step in Python is written with.

    import gpux_step
    from gpux_step import signature, tensor, json

    class Largest(gpux_step.Step):
        summary = "the largest score"

        def configure(self):
            return signature(inputs={"scores": tensor("float32", [1, None])}, outputs={"best": json()})

        def process(self, scores):
            return {"best": max(scores.values())}

    Step = gpux_step.export(Largest)
"""

from . import log
from .export import Step, export
from .ports import any, bytes, json, signature, tensor, text
from .tensor import Tensor
from .values import InvalidInput

__all__ = ["InvalidInput", "Step", "Tensor", "any", "bytes", "export", "json", "log", "signature", "tensor", "text"]
