#!/usr/bin/env python3
"""Schemathesis against a live server: requests made from /openapi.json, right ones and wrong ones.

Needs a build of gpux and requirements.txt. Exits with 1 when an answer is a 5xx, has a status, a type, a header or a
body that /openapi.json does not describe, or when a method is taken that it does not have.

    tests/serve/contract.py [--examples N] [--seed N]
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

from server import PIPELINES, ROOT, serving

HERE = Path(__file__).resolve().parent

# Not `positive_data_acceptance`: no schema says which bytes are a picture.
CHECKS = [
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "unsupported_method",
]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", default="30", help="requests of each kind for each operation")
    parser.add_argument("--seed", default="1", help="of what is random in them")
    arguments = parser.parse_args()
    with serving(*PIPELINES) as base:
        command = [
            Path(sys.executable).parent / "schemathesis",
            "--config-file", HERE / "schemathesis.toml",
            "run", f"{base}/openapi.json",
            "--checks", ",".join(CHECKS),
            "--max-examples", arguments.examples,
            "--seed", arguments.seed,
            "--phases", "examples,coverage,fuzzing",
            "--workers", "1",
            "--no-color",
        ]
        environment = {**os.environ, "SCHEMATHESIS_HOOKS": "media_types", "PYTHONPATH": str(HERE)}
        # What it remembers of its runs stays out of the repository.
        done = subprocess.run(command, cwd=ROOT / "target", env=environment, check=False)
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
