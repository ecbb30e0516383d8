#!/usr/bin/env python3
"""Runs the code that the page offers for copying (curl, Python, JavaScript) against a live server.

Needs a build of gpux, node, curl and requirements.txt. Exits with 1 if any of it does not run or answers wrong.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import requests
from server import PIPELINES, ROOT, serving

HERE = Path(__file__).resolve().parent


def written(language, base, info, path, values):
    command = ["node", HERE / "code.mjs", base, language, json.dumps(info), path, json.dumps(values)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def run(language, code, folder):
    """What the code prints, as JSON."""
    if language == "curl":
        command = ["sh", "-c", code.replace("curl ", "curl --silent --show-error --fail-with-body ", 1)]
    elif language == "Python":
        # Its dictionary is printed as Python does; what is compared is JSON.
        command = [sys.executable, "-c", code.replace("print(answer.json())", "import json; print(json.dumps(answer.json()))")]
    else:
        path = Path(folder) / "snippet.mjs"
        path.write_text(code.replace("console.log(await answer.json())", "console.log(JSON.stringify(await answer.json()))"))
        command = ["node", path]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise SystemExit(f"{language} ended with {done.returncode}:\n{code}\n{done.stdout}{done.stderr}")
    return json.loads(done.stdout)


def cases(folder):
    """A pipeline, what stands in the form, and the request it must be the same as."""
    # A name that no shell may take apart.
    odd = "it's \"seven\" $x, @1;.png"
    (folder / odd).write_bytes((ROOT / "models/samples/seven.png").read_bytes())
    picture = {"name": odd, "type": "image/png"}
    yield "digits", {"image": {"file": picture}}, {"data": (folder / odd).read_bytes(), "headers": {"content-type": "image/png"}}
    yield "scores", {"x": {"text": "[[1, 2], [3, \"NaN\"]]"}}, {"json": {"x": [[1, 2], [3, "NaN"]]}}
    text = "it's a \"fox\" \\ $HOME `x`\nand a line"
    yield "text", {"text": {"text": text}}, {"json": {"text": text}}
    found = json.dumps([{"box": [1, 2, 30, 40], "label": "it's"}])
    files = {"photo": (odd, (folder / odd).read_bytes())}
    yield "draw-boxes", {"photo": {"file": picture}, "found": {"text": found}}, {"files": files, "data": {"found": found}}


def hostile_names():
    """Names of inputs and files that would make a program read or run what nobody asked for."""
    info = {"inputs": [{"name": name, "type": "bytes", "required": True} for name in ["a=@/etc/passwd;x", "b"]]}
    values = {name["name"]: {"file": {"name": "b.png", "type": "image/png"}} for name in info["inputs"]}
    code = written("curl", "http://localhost:1", info, "/predict", values)
    if "/etc/passwd" in code or not code.startswith("#"):
        raise SystemExit(f"curl would send a file that nobody chose:\n{code}")
    # Standard input is no file that was chosen.
    values = {"b": {"file": {"name": "-", "type": "image/png"}}}
    for inputs in [info["inputs"][1:], [{**one, "required": False} for one in info["inputs"]]]:
        code = written("curl", "http://localhost:1", {"inputs": inputs}, "/predict", values)
        if "./-" not in code:
            raise SystemExit(f"curl would wait for input:\n{code}")
    info = {"inputs": [{"name": "__proto__", "type": "JSON", "required": True}]}
    code = written("JavaScript", "http://localhost:1", info, "/predict", {"__proto__": {"text": "[1]"}})
    body = code.split("body: ", 1)[1].split(",\n});", 1)[0]
    said = subprocess.run(["node", "-p", body], check=True, capture_output=True, text=True).stdout
    if json.loads(said) != {"__proto__": [1]}:
        raise SystemExit(f"an input is lost: {said} of\n{code}")


def main():
    hostile_names()
    with serving(*PIPELINES) as base, tempfile.TemporaryDirectory() as folder:
        count = 0
        for name, values, same in cases(Path(folder)):
            path = f"/pipelines/{name}/predict"
            info = requests.get(f"{base}/pipelines/{name}/info", timeout=10).json()
            expected = requests.post(base + path, timeout=10, **same)
            expected.raise_for_status()
            for language in ["curl", "Python", "JavaScript"]:
                code = written(language, base, info, path, values)
                given = run(language, code, folder)
                if given != expected.json():
                    raise SystemExit(f"{name}, {language}: {given} instead of {expected.json()}, by\n{code}")
                count += 1
    print(f"{count} pieces of code ran and gave what the API gives")


if __name__ == "__main__":
    main()
