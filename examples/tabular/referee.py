"""Compares `gpux run` on the table with LightGBM itself: labels must be equal, probabilities to 1e-6.
Needs lightgbm and numpy.

    examples/tabular/referee.py [GPUX]
"""

import csv
import subprocess
import sys
from pathlib import Path

import lightgbm
import numpy as np

HERE = Path(__file__).resolve().parent
CULTIVARS = ["first", "second", "third"]


def main():
    gpux = sys.argv[1] if len(sys.argv) > 1 else "gpux"
    command = [gpux, "run", HERE, HERE / "wines.csv", "--format", "csv"]
    answer = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    found = list(csv.DictReader(answer.splitlines()))
    with (HERE / "wines.csv").open() as file:
        names, *rows = csv.reader(file)
    # The table has the model's columns from the last to the first, behind the name of the wine.
    measured = np.array([row[:0:-1] for row in rows], np.float64)
    wanted = lightgbm.Booster(model_file=HERE / "wines.lightgbm.txt").predict(measured)
    labels = [CULTIVARS[index] for index in wanted.argmax(axis=1)]
    same = sum(row["cultivar"] == label for row, label in zip(found, labels, strict=True))
    probabilities = np.array([[row[name] for name in CULTIVARS] for row in found], np.float64)
    off = np.abs(probabilities - wanted).max()
    print(f"{same} of {len(labels)} labels are equal, probabilities differ by at most {off:.1e}")
    sys.exit(same != len(labels) or off > 1e-6)


if __name__ == "__main__":
    main()
