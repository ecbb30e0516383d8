"""Makes the example: LightGBM's classifier of wines, exported to ONNX, with wines that it was not trained on, and what
LightGBM says of them.
Needs lightgbm, numpy, onnxmltools and scikit-learn.

The data is the UCI wine recognition data, which scikit-learn brings (CC BY 4.0, https://doi.org/10.24432/C5PC7J).
"""

import csv
from pathlib import Path

import lightgbm
import onnx
from onnxmltools.convert import convert_lightgbm
from onnxmltools.convert.common.data_types import FloatTensorType
from sklearn.datasets import load_wine
from sklearn.model_selection import train_test_split

HERE = Path(__file__).parent
CULTIVARS = ["first", "second", "third"]


def main():
    wines = load_wine()
    columns = [name.replace("od280/od315_of_diluted_wines", "od280_od315") for name in wines.feature_names]
    training, held_out, known, wanted = train_test_split(wines.data, wines.target, test_size=40, random_state=0)
    options = {"n_estimators": 20, "num_leaves": 7, "min_child_samples": 5, "random_state": 0, "n_jobs": 1, "verbose": -1}
    model = lightgbm.LGBMClassifier(**options).fit(training, known)
    model.booster_.save_model(HERE / "wines.lightgbm.txt")
    # Without `zipmap` probabilities are a tensor; with it, a sequence of maps.
    shape = [("wine", FloatTensorType([None, len(columns)]))]
    exported = convert_lightgbm(model, initial_types=shape, zipmap=False, target_opset=15)
    # The exporter writes that there is one label, however many rows there are.
    exported.graph.output[0].type.tensor_type.shape.dim[0].dim_param = "rows"
    onnx.save(exported, HERE / "wines.onnx")
    with (HERE / "wines.csv").open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        # Columns in another order than the model's, and one that it does not know.
        table.writerow(["bottle", *reversed(columns)])
        for number, row in enumerate(held_out):
            table.writerow([f"wine {number + 1}", *(f"{value:g}" for value in reversed(row))])
    probabilities = model.predict_proba(held_out)
    with (HERE / "expected.csv").open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["cultivar", *CULTIVARS])
        table.writerows([CULTIVARS[row.argmax()], *map(float, row)] for row in probabilities)
    print(f"right in {(model.predict(held_out) == wanted).mean():.0%} of {len(wanted)} wines")


if __name__ == "__main__":
    main()
