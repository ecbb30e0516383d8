"""Makes the example: a scikit-learn pipeline on strings and numbers, exported to ONNX, and what it answers.
Needs numpy, scikit-learn, skl2onnx and onnxruntime.

The customers are made up. What the model says of some of them is recorded with ONNX Runtime's Python package.
"""

import json
from pathlib import Path

import numpy as np
import onnxruntime as ort
from skl2onnx import to_onnx
from skl2onnx.common.data_types import FloatTensorType, StringTensorType
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

HERE = Path(__file__).parent
NUMBERS = ["age", "monthly", "months"]
STRINGS = ["plan", "region"]
PLANS = ["basic", "family", "premium"]
REGIONS = ["north", "south", "east", "west"]


def customers(count):
    rng = np.random.default_rng(4)
    columns = {
        "age": rng.integers(18, 90, count).astype(np.float32),
        "monthly": np.round(rng.uniform(5, 80, count), 2).astype(np.float32),
        "months": rng.integers(0, 120, count).astype(np.float32),
        "plan": rng.choice(PLANS, count),
        "region": rng.choice(REGIONS, count),
    }
    unhappy = columns["monthly"] / 20 - columns["months"] / 30 + (columns["plan"] == "basic") + rng.normal(0, 1, count)
    return columns, np.select([unhappy > 1.5, unhappy > 0], ["cancels", "asks"], "stays")


def trained(columns, answers):
    table = np.empty((len(answers), len(columns)), dtype=object)
    for place, column in enumerate(columns.values()):
        table[:, place] = column
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    encoder = OneHotEncoder(handle_unknown="ignore")
    prepare = ColumnTransformer([("numbers", numbers, [0, 1, 2]), ("strings", encoder, [3, 4])])
    return make_pipeline(prepare, LogisticRegression(max_iter=1000)).fit(table, answers)


def main():
    columns, answers = customers(2000)
    model = trained(columns, answers)
    ports = [(name, FloatTensorType([None, 1])) for name in NUMBERS] + [(name, StringTensorType([None, 1])) for name in STRINGS]
    # Without `zipmap` probabilities are a tensor; with it, a sequence of maps, for which the embedded engine has no operator.
    exported = to_onnx(model, initial_types=ports, options={"zipmap": False}, target_opset=17)
    (HERE / "customers.onnx").write_bytes(exported.SerializeToString())
    session = ort.InferenceSession(HERE / "customers.onnx")
    written = lambda value: str(value) if isinstance(value, np.str_) else float(str(value))
    rows = [{name: written(column[row]) for name, column in columns.items()} for row in range(20)]
    rows[3]["region"] = "abroad"
    rows[4]["age"] = float("nan")
    cases = []
    for row in rows:
        given = {name: np.array([[row[name]]], dtype=np.float32) for name in NUMBERS}
        given |= {name: np.array([[row[name]]]) for name in STRINGS}
        label, probabilities = session.run(None, given)
        names = model.classes_.tolist()
        request = {name: "NaN" if value != value else value for name, value in row.items()}
        response = {"answer": str(label[0]), "probabilities": dict(zip(names, map(float, probabilities[0])))}
        cases.append({"request": request, "response": response})
    (HERE / "expected.json").write_text(json.dumps(cases, indent=1) + "\n")
    print(f"right in {np.mean(model.predict(np.array([[column[row] for column in columns.values()] for row in range(2000)], dtype=object)) == answers):.0%}")


if __name__ == "__main__":
    main()
