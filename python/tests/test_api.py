"""The API as it was first described: the names, the import paths, and the examples of that description."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

GPUX_YML = """
name: my-model
version: 1.0.0

model:
  source: ./model.onnx
  format: onnx

inputs:
  input:
    type: float32
    shape: [1, 4]
    required: true

outputs:
  output:
    type: float32
    shape: [1, 2]
    labels: [class1, class2]

runtime:
  gpu:
    memory: 2GB
    backend: auto
"""


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    """A folder with a model.onnx and a gpux.yml, as the working folder."""
    tensor = onnx.helper.make_tensor_value_info
    weights = onnx.numpy_helper.from_array(np.arange(8, dtype="f4").reshape(4, 2), "weights")
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("MatMul", ["input", "weights"], ["output"])],
        "my-model",
        [tensor("input", onnx.TensorProto.FLOAT, [1, 4])],
        [tensor("output", onnx.TensorProto.FLOAT, [1, 2])],
        [weights],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)
    onnx.save(model, tmp_path / "model.onnx")
    (tmp_path / "gpux.yml").write_text(GPUX_YML)
    monkeypatch.chdir(tmp_path)


def test_basic_usage(capsys):
    from gpux import GPUXRuntime

    # Initialize runtime
    runtime = GPUXRuntime("model.onnx")

    # Run inference
    results = runtime.infer({"input": [1, 2, 3, 4]})
    print(results)

    # Cleanup
    runtime.cleanup()

    assert results["output"].tolist() == [[40, 50]]
    assert "40." in capsys.readouterr().out


def test_with_configuration():
    data = np.ones((1, 4), "f4")

    from gpux import GPUXRuntime
    from gpux.config.parser import GPUXConfigParser

    # Parse configuration
    parser = GPUXConfigParser()
    config = parser.parse_file("gpux.yml")

    # Initialize runtime with config
    runtime = GPUXRuntime(
        model_path=config.model.source,
        provider=config.runtime.gpu.backend,
        gpu_memory=config.runtime.gpu.memory,
        batch_size=config.runtime.batch_size,
    )

    # Run inference
    results = runtime.infer({"input": data})

    assert results["output"].tolist() == [[12, 16]]


def test_benchmarking(capsys):
    from gpux import GPUXRuntime

    runtime = GPUXRuntime("model.onnx")

    # Run benchmark
    metrics = runtime.benchmark(input_data={"input": [1, 2, 3, 4]}, num_runs=1000, warmup_runs=10)

    print(f"Average inference time: {metrics['avg_inference_time']:.2f}ms")
    print(f"FPS: {metrics['fps']:.1f}")

    assert 0 < metrics["min_inference_time"] <= metrics["avg_inference_time"] <= metrics["max_inference_time"]
    assert metrics["fps"] == pytest.approx(1000 / metrics["avg_inference_time"])


def test_parameters():
    from gpux import GPUXRuntime

    runtime = GPUXRuntime(model_path="model.onnx", provider="auto", gpu_memory="2GB", batch_size=1, timeout=30)
    info = runtime.get_model_info()
    print(f"Inputs: {info.inputs}")
    print(f"Outputs: {info.outputs}")
    print(f"Size: {info.size_mb} MB")
    provider_info = runtime.get_provider_info()
    providers = runtime.get_available_providers()

    assert [(spec.name, spec.type, spec.shape, spec.required) for spec in info.inputs] == [
        ("input", "float32", [1, 4], True)
    ]
    assert {"provider", "platform", "available", "description"} <= provider_info.keys()
    assert provider_info["provider"] in providers
    assert providers[-1] == "CPUExecutionProvider"
    for wrong in [{"gpu_memory": "much"}, {"batch_size": 0}]:
        with pytest.raises(Exception, match=next(iter(wrong))):
            GPUXRuntime("model.onnx", **wrong)


def test_models():
    from gpux.core.models import InputSpec, ModelInfo, ModelInspector, OutputSpec

    inspector = ModelInspector()
    info = inspector.inspect("model.onnx")
    print(f"Inputs: {info.inputs}")
    print(f"Outputs: {info.outputs}")
    print(f"Size: {info.size_mb} MB")

    assert info.outputs == [OutputSpec(name="output", type="float32", shape=[1, 2], labels=None, description="")]
    info.save(Path("info.json"))
    saved = json.loads(Path("info.json").read_text())
    assert saved == info.to_dict()
    assert saved["size_bytes"] == Path("model.onnx").stat().st_size == round(info.size_mb * (1 << 20))
    made = ModelInfo(
        name="name",
        version="1",
        format="onnx",
        size_bytes=1 << 20,
        path=Path("model.onnx"),
        inputs=[InputSpec(name="a", type="float32", shape=[1])],
        outputs=[],
        metadata={},
    )
    assert (made.size_mb, made.inputs[0].required) == (1, True)


def test_providers():
    from gpux.core.providers import ExecutionProvider, ProviderManager

    manager = ProviderManager()
    provider = manager.get_best_provider()  # Auto-select
    assert provider.value == manager.get_available_providers()[0]
    provider = manager.get_best_provider("cuda")  # Specific provider
    assert provider in (ExecutionProvider.CUDA, ExecutionProvider.CPU)
    info = manager.get_provider_info(ExecutionProvider.CUDA)
    assert info["provider"] == "CUDAExecutionProvider"
    assert info["available"] == ("CUDAExecutionProvider" in manager.get_available_providers())
    for known in ExecutionProvider:
        assert manager.get_provider_info(known)["provider"] == known.value
    with pytest.raises(Exception, match="tensorrt, cuda, rocm, coreml, directml, webgpu, openvino, cpu"):
        manager.get_best_provider("cudaa")


def test_configuration():
    from gpux.config.parser import GPUXConfigParser

    parser = GPUXConfigParser()
    config = parser.parse_file("gpux.yml")
    assert (config.name, config.version, config.model.format) == ("my-model", "1.0.0", "onnx")
    assert config.inputs.input.shape == [1, 4]
    assert config.outputs.output.labels == ["class1", "class2"]
    assert (config.serving.port, config.serving.host) == (8080, "0.0.0.0")
    assert parser.validate_model_path(Path()) is True
    assert parser.get_model_path(Path()).resolve() == Path("model.onnx").resolve()
    parser.save("again.yml")
    assert GPUXConfigParser().parse_file("again.yml") == config
    assert GPUXConfigParser().parse_file("again.yml").to_dict() == parser.to_dict() | config.to_dict()


def test_exceptions():
    import gpux

    for name in ["ModelLoadError", "ProviderError", "ValidationError", "ConfigurationError"]:
        error = getattr(gpux, name)
        assert issubclass(error, gpux.GPUXError)
        assert error("message").kind == name
