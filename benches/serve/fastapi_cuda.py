"""The peers' FastAPI app (fastapi_app.py of their servers/) with its models on the GPU, for race.py."""

import onnxruntime

onnxruntime.preload_dlls()
on_cpu = onnxruntime.InferenceSession


def on_gpu(path, options, providers):
    session = on_cpu(path, options, providers=["CUDAExecutionProvider"])
    if session.get_providers()[0] != "CUDAExecutionProvider":
        raise SystemExit("CUDA cannot be used")
    return session


onnxruntime.InferenceSession = on_gpu

from fastapi_app import app  # noqa: E402, F401
