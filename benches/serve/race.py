"""Races `gpux serve` against the floor (benches/floor) and against peers in other languages.

    python benches/serve/race.py PEERS [race.py's own arguments]

PEERS is the folder with the peers' race.py; its models and payloads must be made ($PEERS_HOME, by its
setup.sh, models.py and payloads.py). Builds gpux and the floor, writes one folder a pipeline to
target/race/, and runs the race with both added. Without further arguments: everybody, everything.
`gpux-isolated` gives each pipeline a process of its own. `gpux-int8` is the text pipeline in int8; with OPENVINO, the folder of a whole build of OpenVINO, `gpux-bf16` is that in
bfloat16. E3long is a text of 128 tokens.
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
PRECISIONS = ROOT / "target" / "race-precisions"

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


def write_precisions():
    """The text pipeline in int8 and in bfloat16, and a text that is as long as the tokenizer leaves it."""
    gpux = ROOT / "target" / "release" / "gpux"
    model, more, rest = PIPELINES["e3"]
    for precision in ["int8", "bf16"]:
        write(precision, model, f"{more}, precision: {precision}", rest, PRECISIONS)
    folder = PRECISIONS / "int8"
    python = HOME / "base" / "bin" / "python"
    command = [gpux, "build", folder, "--precision", "int8", "--python", python, "--engine-library", library()]
    subprocess.run(command, check=True)
    words = json.loads((HOME / "payloads" / "e3.json").read_text())["text"].split()
    (RACE / "long.json").write_text(json.dumps({"text": " ".join((words * 6)[:126])}))


def contestant(name, serve, library, paths):
    """One that serves the text pipeline alone."""
    return [
        "[[contestant]]", f'name = "{name}"',
        f'command = "{ROOT}/target/release/gpux serve {PRECISIONS / serve} --port {{port}} --engine-library {library}"',
        'health = "http://127.0.0.1:{port}/health"', "[contestant.workloads]",
        *(f'{workload} = ["http://127.0.0.1:{{port}}/predict", "{payload}"]' for workload, payload in paths.items()),
    ]


def serve_all(name, isolation, paths):
    """One that serves every pipeline, and digits."""
    health = "http://127.0.0.1:{port}"
    command = f"{ROOT}/target/release/gpux serve {RACE} {ROOT} --isolation {isolation} --port {{port}}"
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
    write_precisions()
    texts = {"E3text": "e3.json", "E3long": "./long.json"}
    paths = {"E1json": ("e1", "e1.json"), "E2photo": ("e2", "e2.jpg"), "Epre": ("pre", "e2.jpg"), "E3text": ("e3", "e3.json"), "E3long": ("e3", "./long.json")}
    bytes_only = ROOT / "target" / "race" / "contestants.toml"
    health = "http://127.0.0.1:{port}"
    lines = [
        "[[contestant]]", 'name = "floor"', f'command = "{floor()} {{port}} {HOME}/models"', f'health = "{health}/health"',
        f'environment = {{ ORT_DYLIB_PATH = "{library()}" }}', "[contestant.workloads]",
        *(f'{name} = ["{health}/{path}", "{payload}"]' for name, (path, payload) in paths.items()),
        *serve_all("gpux", "none", paths),
        *serve_all("gpux-isolated", "pipeline", paths),
        *contestant("gpux-int8", "int8", library(), texts),
    ]
    if openvino := os.environ.get("OPENVINO"):
        lines += contestant("gpux-bf16", "bf16", openvino, texts)
    bytes_only.write_text("\n".join(lines) + "\n")
    python = HOME / "base" / "bin" / "python"
    race = [python, "race.py", "--contestants", bytes_only, *arguments]
    sys.exit(subprocess.run(race, cwd=peers).returncode)


if __name__ == "__main__":
    main()
