"""Races `gpux serve` against the floor (benches/floor) and against peers in other languages.

    python benches/serve/race.py PEERS [race.py's own arguments]

PEERS is the folder with the peers' race.py; its models and payloads must be made ($PEERS_HOME, by its
setup.sh, models.py and payloads.py). Builds gpux and the floor, writes one folder a pipeline to
target/race/, and runs the race with both added. Without further arguments: everybody, everything.
`gpux-isolated` gives each pipeline a process of its own. `gpux-int8`, which must be named, has text and photo in
int8. With OPENVINO, the library of the plug-in, `gpux-bf16` has text and photo in bfloat16. With CUDA=1, and a GPU
build of ONNX Runtime in the peers' environment, `gpux-cuda`, `gpux-cuda-isolated` and `fastapi-cuda` have all models
on the GPU. E3long is a text of 128 tokens.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
HOME = pathlib.Path(os.environ.get("PEERS_HOME", pathlib.Path.home() / ".cache" / "gpux-peers"))
RACE = ROOT / "target" / "race"
INT8 = ROOT / "target" / "race-precisions" / "int8"

# As the peers and the floor have them.
SESSIONS = ", threads: 1, instances: 2"
BATCHES = ", batching: { max_size: 8, max_delay: 2ms }"
PICTURE = """\
inputs:
  image: image
pipeline:
  - decode-image
  - resize: { size: [224, 224], filter: bilinear }
  - normalize: { method: imagenet }
"""
PIPELINES = {
    "e1": ("identity.onnx", SESSIONS, ""),
    "e2": ("resnet18.onnx", SESSIONS, PICTURE + "  - model\n  - softmax\n  - top-k: { k: 5 }\n"),
    "e2-component": (
        "resnet18.onnx",
        SESSIONS,
        PICTURE + "  - wasm: { component: ./pass-through.wasm }\n  - model\n  - softmax\n  - top-k: { k: 5 }\n",
    ),
    "e3": (
        "minilm6.onnx",
        SESSIONS + BATCHES,
        """\
inputs:
  text: text
pipeline:
  - tokenize: { tokenizer: ./tokenizer.json, max_length: 128 }
  - model
  - mean-pool: { in: [last_hidden_state, attention_mask] }
  - l2-normalize: { out: embedding }
outputs:
  embedding: float32
""",
    ),
    "pre": (None, "", PICTURE + "  - to-tensor: { scale: false }\n"),
}


def write(name, model, more, rest, place=RACE):
    folder = place / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    text = f"name: {name}\nversion: 1.0.0\n"
    if model:
        os.link(HOME / "models" / model, folder / model) if same_disk() else shutil.copy(HOME / "models" / model, folder)
        text += f"model: {{ source: ./{model}{more} }}\n"
    shutil.copy(HOME / "models" / "tokenizer.json", folder)
    shutil.copy(ROOT / "guest-examples" / "rust" / "pass-through.wasm", folder)
    (folder / "gpux.yml").write_text(text + rest)


def same_disk():
    return (HOME / "models").stat().st_dev == RACE.parent.stat().st_dev


def build(*arguments):
    subprocess.run(["cargo", *arguments], cwd=ROOT, check=True)


def build_both():
    """gpux and the floor."""
    build("build", "--release", "--bin", "gpux")
    build("bench", "--bench", "floor", "--no-run")


def floor():
    """The newest build of the floor."""
    built = [path for path in (ROOT / "target" / "release" / "deps").glob("floor-*") if not path.suffix]
    return max(built, key=lambda path: path.stat().st_mtime)


def library():
    """ONNX Runtime as the peers have it."""
    found = sorted((HOME / "base").glob("lib/python*/site-packages/onnxruntime/capi/libonnxruntime.so*"))
    return found[0]


def write_long_text():
    """A text that is as long as the tokenizer leaves it."""
    words = json.loads((HOME / "payloads" / "e3.json").read_text())["text"].split()
    (RACE / "long.json").write_text(json.dumps({"text": " ".join((words * 6)[:126])}))


def build_int8(name, pipeline, sample):
    """A pipeline of the race in int8, in a folder of its own. A photo's ranges come from the raced photo."""
    model, more, rest = PIPELINES[pipeline]
    write(name, model, f"{more}, precision: int8", rest, INT8)
    gpux, python = ROOT / "target" / "release" / "gpux", HOME / "base" / "bin" / "python"
    command = [gpux, "build", INT8 / name, "--precision", "int8", "--python", python, "--engine-library", library()]
    subprocess.run([*command, "--sample", sample], check=True)


def int8(paths):
    """Photo and text pipelines in int8, alone."""
    shutil.rmtree(INT8, ignore_errors=True)
    text = RACE / "text.txt"
    text.write_text(json.loads((HOME / "payloads" / "e3.json").read_text())["text"])
    samples = {"e2": HOME / "payloads" / "e2.jpg", "e3": text}
    for name, sample in samples.items():
        build_int8(name, name, sample)
    health = "http://127.0.0.1:{port}"
    return [
        "[[contestant]]", 'name = "gpux-int8"',
        f'command = "{ROOT}/target/release/gpux serve {INT8} --isolation none --port {{port}} --engine-library {library()}"',
        f'health = "{health}/health"', "[contestant.workloads]",
        *(f'{work} = ["{health}/pipelines/{path}/predict", "{payload}"]' for work, (path, payload) in paths.items() if path in samples),
    ]


def fastapi_cuda(peers, texts):
    """The peers' FastAPI with its models on the GPU."""
    health = "http://127.0.0.1:{port}"
    command = "{home}/base/bin/python -m uvicorn fastapi_cuda:app --port {port} --no-access-log --log-level warning"
    return [
        "[[contestant]]", 'name = "fastapi-cuda"', f'command = "{command}"', f'health = "{health}/health"',
        f'environment = {{ PYTHONPATH = "{ROOT}/benches/serve:{peers}/servers" }}', "[contestant.workloads]",
        f'E2photo = ["{health}/e2", "e2.jpg"]', *(f'{name} = ["{health}/e3", "{payload}"]' for name, payload in texts.items()),
    ]


def serve_all(name, paths, isolation="none", more="--provider cpu"):
    """One that serves every pipeline, and digits."""
    health = "http://127.0.0.1:{port}"
    command = f"{ROOT}/target/release/gpux serve {RACE} {ROOT} --isolation {isolation} {more} --port {{port}}"
    return [
        "[[contestant]]", f'name = "{name}"', f'command = "{command} --engine-library {library()}"',
        f'health = "{health}/health"', "[contestant.workloads]",
        *(f'{work} = ["{health}/pipelines/{path}/predict", "{payload}"]' for work, (path, payload) in paths.items() if work != "Epre"),
        # The tensor as bytes, as the others give it.
        f'Epre = ["{health}/v2/models/pre/infer", "e2_oip.bin"]',
        f'E1bin = ["{health}/v2/models/e1/infer", "e1_oip.bin"]',
        f'E2component = ["{health}/pipelines/e2-component/predict", "e2.jpg"]',
        f'digits = ["{health}/pipelines/digits/predict", "{ROOT}/models/samples/seven.png"]',
    ]


def main():
    peers, *arguments = sys.argv[1:]
    build_both()
    for name, pipeline in PIPELINES.items():
        write(name, *pipeline)
    write_long_text()
    texts = {"E3text": "e3.json", "E3long": "./long.json"}
    paths = {"E1json": ("e1", "e1.json"), "E2photo": ("e2", "e2.jpg"), "Epre": ("pre", "e2.jpg"), "E3text": ("e3", "e3.json"), "E3long": ("e3", "./long.json")}
    bytes_only = ROOT / "target" / "race" / "contestants.toml"
    health = "http://127.0.0.1:{port}"
    lines = [
        "[[contestant]]", 'name = "floor"', f'command = "{floor()} {{port}} {HOME}/models"', f'health = "{health}/health"',
        f'environment = {{ ORT_DYLIB_PATH = "{library()}" }}', "[contestant.workloads]",
        *(f'{name} = ["{health}/{path}", "{payload}"]' for name, (path, payload) in paths.items()),
        *serve_all("gpux", paths),
        *serve_all("gpux-isolated", paths, "pipeline"),
    ]
    if "gpux-int8" in arguments:
        lines += int8(paths)
    if os.environ.get("CUDA"):
        on_gpu = "--provider cuda --strict"
        lines += serve_all("gpux-cuda", paths, more=on_gpu)
        lines += serve_all("gpux-cuda-isolated", paths, "pipeline", on_gpu)
        lines += fastapi_cuda(pathlib.Path(peers).resolve(), texts)
    if openvino := os.environ.get("OPENVINO"):
        more = f"--provider-library openvino={openvino} --provider openvino --strict --precision bf16"
        lines += serve_all("gpux-bf16", paths, more=more)
    bytes_only.write_text("\n".join(lines) + "\n")
    python = HOME / "base" / "bin" / "python"
    race = [python, "race.py", "--contestants", bytes_only, *arguments]
    sys.exit(subprocess.run(race, cwd=peers).returncode)


if __name__ == "__main__":
    main()
