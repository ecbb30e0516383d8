"""Writes packages.tsv: 1500 programs of Debian with their short descriptions, from the index that apt has.

    apt-cache dumpavail | examples/search/packages.py

The sample depends on the packages' names alone: another release gives most of the same packages.
"""

import hashlib
import sys
from pathlib import Path

SECTIONS = "admin database editors games graphics httpd interpreters mail math net science shells sound text utils vcs video web"
COUNT = 1500


def fields(block):
    lines = (line.partition(": ") for line in block.splitlines() if not line.startswith((" ", "\t")))
    return {name: value for name, _, value in lines}


def main():
    found = {}
    for block in sys.stdin.read().split("\n\n"):
        package = fields(block)
        text = " ".join(package.get("Description", package.get("Description-en", "")).split())
        if text and package["Section"].split("/")[-1] in SECTIONS.split():
            # Of packages that say the same, the first.
            found.setdefault(text, package["Package"])
    chosen = sorted(found.items(), key=lambda item: hashlib.sha256(item[1].encode()).digest())[:COUNT]
    lines = sorted(f"{name}\t{text}\n" for text, name in chosen)
    (Path(__file__).parent / "packages.tsv").write_text("".join(lines))


if __name__ == "__main__":
    main()
