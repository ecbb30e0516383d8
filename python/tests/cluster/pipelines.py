"""Where the pipelines of the tests are."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
DIGITS = ROOT
EMBEDDING = ROOT / "examples" / "sentence-embedding"
SCORES = ROOT / "tests" / "cases" / "pipelines" / "scores.yml"
