#!/usr/bin/env python3
"""Tries the examples of docs/serve.md: each block that begins with `curl`, against what stands below it.

Needs a build of gpux and curl. Exits with 1 at the first that does not give what the page says.
"""

import json
import math
import re
import subprocess

from server import ROOT, serving

SEVERAL = [".", *(f"tests/cases/pipelines/{name}.yml" for name in ["scores", "text", "draw-boxes"])]


def examples(text):
    """(command, kind of what it prints or None, what it prints)"""
    blocks = list(re.finditer(r"^```(\w+)\n(.*?)^```$", text, re.M | re.S))
    for block, after in zip(blocks, [*blocks[1:], None]):
        if block[1] == "sh" and block[2].startswith("curl"):
            between = after and text[block.end() : after.start()]
            follows = after and not between.strip() and after[1] in ("json", "text")
            yield block[2], *((after[1], after[2]) if follows else (None, ""))


def same(given, said):
    """Whether two JSON documents say the same, numbers to five digits; every request has a name of its own."""
    if isinstance(said, dict):
        alike = isinstance(given, dict) and given.keys() - {"request_id"} == said.keys()
        return alike and all(same(given[key], said[key]) for key in said)
    if isinstance(said, list):
        return isinstance(given, list) and len(given) == len(said) and all(map(same, given, said))
    if isinstance(said, float):
        return isinstance(given, (int, float)) and math.isclose(given, said, rel_tol=1e-5)
    return given == said


def main():
    count = 0
    with serving(".") as one, serving(*SEVERAL) as several:
        for command, kind, said in examples((ROOT / "docs/serve.md").read_text()):
            here = command.replace("localhost:8080", one).replace("localhost:9000", several)
            here = re.sub(r"^curl ", "curl --silent --show-error ", here)
            done = subprocess.run(here, shell=True, cwd=ROOT, capture_output=True, text=True, timeout=60)
            right = {
                "json": lambda: same(json.loads(done.stdout), json.loads(said)),
                "text": lambda: done.stdout.split() == said.split(),
                None: lambda: "error" not in json.loads(done.stdout),
            }[kind]
            if done.returncode != 0 or not right():
                raise SystemExit(f"{command}gave\n{done.stdout}{done.stderr}instead of\n{said}")
            count += 1
    print(f"{count} examples give what docs/serve.md says")
    if count < 8:
        raise SystemExit("the examples are no longer found")


if __name__ == "__main__":
    main()
