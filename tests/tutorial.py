#!/usr/bin/env python3
"""Follows docs/tutorial.md in an empty folder, and compares what it prints with what the page shows.

Needs a build of gpux, curl, cargo and the target wasm32-unknown-unknown. Exits with 1 at the first difference.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/serve"))
from server import GPUX, serving  # noqa: E402

# What differs from machine to machine: times, and the last digits of scores.
VAGUE = [(r"\d[\d.]* (ms|µs|s)\b", "TIME"), (r"(\d\.\d{4})\d+", r"\1"), (r"\s+", " ")]


def plain(text):
    for pattern, rather in VAGUE:
        text = re.sub(pattern, rather, text)
    return text.strip()


def shell(folder, command):
    environment = os.environ | {"PATH": f"{GPUX.absolute().parent}:{os.environ['PATH']}", "GPUX_REPO": str(ROOT)}
    told = {"shell": True, "cwd": folder, "env": environment, "executable": "/bin/bash"}
    done = subprocess.run(f"set -e\n{command}", **told, capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        raise SystemExit(f"{command}\nended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def expect(command, given, said):
    if plain(said) not in plain(given):
        raise SystemExit(f"{command}\ngave\n{given}instead of\n{said}")


def main():
    page = (ROOT / "docs/tutorial.md").read_text()
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", page, re.M | re.S)
    ran, shown = 0, 0
    with tempfile.TemporaryDirectory() as top:
        folder, last = pathlib.Path(top), ("", "")
        os.environ["GPUX_STORE"] = f"{top}/store"
        for language, text in blocks:
            if language == "yaml" and text.startswith("name:"):
                (folder / "gpux.yml").write_text(text)
            elif language == "yaml":
                written = (folder / "gpux.yml").read_text()
                (folder / "gpux.yml").write_text(re.sub(r"(  - decode-image.*\n)", rf"\1{text}", written))
            elif language == "rust":
                (folder / "find-ink/src/lib.rs").write_text(text)
            elif language == "sh" and text.startswith("curl"):
                with serving(folder) as server:
                    last = (text, shell(folder, text.replace("localhost:8080", server)))
                ran += 1
            elif language == "sh" and not text.startswith(("cargo build", "gpux serve")):
                last = (text, shell(folder, text))
                if text.startswith("mkdir digits"):
                    folder /= "digits"
                ran += 1
            elif language == "text" and text.startswith("$ "):
                command, _, said = text[2:].partition("\n")
                expect(command, shell(folder, command), said)
                shown += 1
            elif language in ("text", "json"):
                expect(*last, text)
                shown += 1
    print(f"docs/tutorial.md: {ran} blocks of commands ran, {shown} results are what it shows")
    if ran < 4 or shown < 4:
        raise SystemExit("the commands are no longer found")


if __name__ == "__main__":
    main()
