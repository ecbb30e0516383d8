#!/usr/bin/env python3
"""Exports estimators and pipelines of scikit-learn with skl2onnx, and runs each through the gpux program and through
Python's ONNX Runtime: the outputs must be the same, number for number.

    tests/onnx/estimators.py [--gpux target/release/gpux] [--only REGEX] [--fixtures]

`--fixtures` keeps a handful of the models with inputs and outputs in `estimators/`, which the tests of gpux run.
"""

import argparse
import json
import re
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import onnxruntime
import pandas
import skl2onnx
import sklearn
from cases import Gpux, differs, leaf
from skl2onnx import to_onnx
from skl2onnx.common.data_types import (
    DictionaryType, FloatTensorType, Int64TensorType, StringTensorType,
)
from sklearn.calibration import CalibratedClassifierCV
from sklearn.cluster import KMeans, MiniBatchKMeans
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_diabetes, load_iris
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import (
    AdaBoostClassifier, BaggingClassifier, ExtraTreesClassifier, GradientBoostingClassifier, GradientBoostingRegressor,
    IsolationForest, RandomForestClassifier, RandomForestRegressor, StackingRegressor,
    VotingClassifier,
)
from sklearn.feature_extraction import DictVectorizer
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.feature_selection import SelectKBest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Lasso, LinearRegression, LogisticRegression, SGDClassifier
from sklearn.mixture import GaussianMixture
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import MultiOutputRegressor
from sklearn.naive_bayes import GaussianNB, MultinomialNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    KBinsDiscretizer, MinMaxScaler, OneHotEncoder, OrdinalEncoder, PolynomialFeatures, StandardScaler,
)
from sklearn.svm import SVC, SVR
from sklearn.tree import DecisionTreeClassifier

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
ROWS = 20

iris = load_iris()
flowers = iris.data.astype(np.float32)
names = iris.target_names[iris.target].astype(object)
numbers = iris.target
diabetes = load_diabetes()
patients, progress = diabetes.data.astype(np.float32), diabetes.target.astype(np.float32)
holes = flowers.copy()
holes[::7, 1] = np.nan

people = pandas.DataFrame({
    "age": np.arange(60, dtype=np.float32) % 47 + 18,
    "income": (np.arange(60, dtype=np.float32) * 37 % 91) * 1000,
    "town": [["Köln", "Paris", "東京", ""][index % 4] for index in range(60)],
    "job": [["nurse", "smith", "baker"][index // 2 % 3] for index in range(60)],
})
buys = np.array(["no", "yes"], dtype=object)[(people.age * 3 + people.income / 1000 > 120).astype(int)]
columns = [("age", FloatTensorType([None, 1])), ("income", FloatTensorType([None, 1])),
           ("town", StringTensorType([None, 1])), ("job", StringTensorType([None, 1]))]


def prepared():
    return ColumnTransformer([
        ("numbers", StandardScaler(), ["age", "income"]),
        ("words", OneHotEncoder(handle_unknown="ignore"), ["town", "job"]),
    ])


sentences = np.array([f"{who} {verb} the {what} {when}" for who in ["she", "he", "nobody"] for verb in ["likes", "eats"]
                      for what in ["apple pie", "bread", "red soup"] for when in ["today", "now", "never"]])
topics = np.array(["eat" if "eats" in sentence else "like" for sentence in sentences], dtype=object)
records = [{"colour": ["red", "blue"][index % 2], "size": float(index % 5)} for index in range(30)]
two_targets = np.stack([progress, -progress / 2], axis=1)

FLOWER = [("x", FloatTensorType([None, 4]))]
PATIENT = [("x", FloatTensorType([None, 10]))]
SENTENCE = [("text", StringTensorType([None]))]


def flower(estimator, target=numbers, data=flowers):
    return estimator.fit(data, target), FLOWER, {"x": data[::len(data) // ROWS]}


def patient(estimator, target=progress):
    return estimator.fit(patients, target), PATIENT, {"x": patients[:ROWS]}


def person(estimator, target=buys):
    feeds = {name: people[[name]].to_numpy()[:ROWS] for name in people.columns}
    feeds = {name: value.astype(np.float32 if name in ("age", "income") else object) for name, value in feeds.items()}
    return estimator.fit(people, target), columns, feeds


def sentence(estimator, target=topics):
    return estimator.fit(sentences, target), SENTENCE, {"text": sentences[:ROWS].astype(object)}


ESTIMATORS = {
    # Classifiers: the label, and with ZipMap a map from each class to its probability.
    "logistic-regression-names": lambda: flower(LogisticRegression(max_iter=500), names),
    "logistic-regression-numbers": lambda: flower(LogisticRegression(max_iter=500)),
    "decision-tree": lambda: flower(DecisionTreeClassifier(random_state=0), names),
    "random-forest": lambda: flower(RandomForestClassifier(20, random_state=0), names),
    "extra-trees": lambda: flower(ExtraTreesClassifier(20, random_state=0)),
    "gradient-boosting": lambda: flower(GradientBoostingClassifier(n_estimators=10, random_state=0)),
    "ada-boost": lambda: flower(AdaBoostClassifier(n_estimators=10, random_state=0)),
    "bagging": lambda: flower(BaggingClassifier(DecisionTreeClassifier(), 5, random_state=0)),
    "k-neighbours": lambda: flower(KNeighborsClassifier(), names),
    "svc-probabilities": lambda: flower(SVC(probability=True, random_state=0), names),
    "naive-bayes": lambda: flower(GaussianNB()),
    "mlp-classifier": lambda: flower(MLPClassifier(hidden_layer_sizes=(8,), max_iter=300, random_state=0), names),
    "sgd-log-loss": lambda: flower(SGDClassifier(loss="log_loss", random_state=0)),
    "linear-discriminant": lambda: flower(LinearDiscriminantAnalysis(), names),
    "one-vs-rest": lambda: flower(OneVsRestClassifier(LogisticRegression())),
    "voting": lambda: flower(VotingClassifier([("a", LogisticRegression(max_iter=500)), ("b", GaussianNB())], voting="soft", flatten_transform=False)),
    "calibrated": lambda: flower(CalibratedClassifierCV(DecisionTreeClassifier(max_depth=2, random_state=0), cv=3)),
    # Regressors.
    "linear-regression": lambda: patient(LinearRegression()),
    "lasso": lambda: patient(Lasso(0.1)),
    "svr": lambda: patient(SVR()),
    "random-forest-regressor": lambda: patient(RandomForestRegressor(20, random_state=0)),
    "gradient-boosting-regressor": lambda: patient(GradientBoostingRegressor(n_estimators=20, random_state=0)),
    "mlp-regressor": lambda: patient(MLPRegressor(hidden_layer_sizes=(8,), max_iter=300, random_state=0)),
    "gaussian-process": lambda: patient(GaussianProcessRegressor(alpha=0.1)),
    "stacking": lambda: patient(StackingRegressor([("a", Lasso(0.1)), ("b", LinearRegression())])),
    "two-targets": lambda: patient(MultiOutputRegressor(LinearRegression()), two_targets),
    # Clusters, mixtures, outliers.
    "k-means": lambda: flower(KMeans(3, random_state=0, n_init=1)),
    "mini-batch-k-means": lambda: flower(MiniBatchKMeans(3, random_state=0, n_init=1)),
    "gaussian-mixture": lambda: flower(GaussianMixture(3, random_state=0)),
    "isolation-forest": lambda: flower(IsolationForest(n_estimators=20, random_state=0)),
    # Transformers.
    "scaled-pca": lambda: flower(make_pipeline(StandardScaler(), PCA(2, random_state=0))),
    "bins": lambda: flower(KBinsDiscretizer(3, encode="ordinal", quantile_method="averaged_inverted_cdf")),
    "imputed-polynomials": lambda: flower(
        make_pipeline(SimpleImputer(), PolynomialFeatures(2), SelectKBest(k=5), MinMaxScaler()), data=holes),
    # Columns of words and numbers; texts; records.
    "columns-forest": lambda: person(make_pipeline(prepared(), RandomForestClassifier(10, random_state=0))),
    "columns-logistic": lambda: person(make_pipeline(prepared(), LogisticRegression())),
    "ordinal-columns": lambda: person(ColumnTransformer([("words", OrdinalEncoder(), ["town", "job"])])),
    "tf-idf-naive-bayes": lambda: sentence(make_pipeline(TfidfVectorizer(lowercase=False), MultinomialNB())),
    "counts-svd": lambda: sentence(make_pipeline(CountVectorizer(lowercase=False, ngram_range=(1, 2)), TruncatedSVD(3, random_state=0))),
    "records": lambda: (DictVectorizer(sparse=False).fit([{"a": 1.0, "b": 2.0}, {"b": 0.5, "c": 3.0}]),
                        [("x", DictionaryType(StringTensorType([1]), FloatTensorType([1])))], {"x": {"a": 0.5, "c": 3.25}}),
}

FIXTURES = ["logistic-regression-names", "logistic-regression-numbers", "decision-tree", "linear-regression", "k-means",
            "scaled-pca", "columns-logistic", "records"]


def plain(value):
    """A value as the JSON that gpux prints: float32 as the shortest decimals."""
    if isinstance(value, dict):
        return {str(key): leaf(float(str(np.float32(item)))) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if value.dtype == np.float32:
        shortest = np.frompyfunc(lambda item: leaf(float(str(item))), 1, 1)
        return np.asarray(shortest(value), dtype=object).tolist()
    return value.tolist()


def keep(name, model, feeds, outputs):
    folder = HERE / "estimators"
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.onnx").write_bytes(model.SerializeToString())
    case = {"inputs": {key: plain(value) for key, value in feeds.items()}, "outputs": outputs}
    (folder / f"{name}.json").write_text(json.dumps(case, ensure_ascii=False) + "\n")


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--gpux", default=ROOT / "target/release/gpux", type=Path)
    arguments.add_argument("--only", default="", help="only estimators whose name matches")
    arguments.add_argument("--fixtures", action="store_true", help="rewrite estimators/")
    arguments = arguments.parse_args()
    warnings.filterwarnings("ignore")
    print(f"scikit-learn {sklearn.__version__}, skl2onnx {skl2onnx.__version__}, ONNX Runtime {onnxruntime.__version__}\n")
    print("| estimator | takes | gives | through gpux |\n| --- | --- | --- | --- |")
    faults = compared = 0
    for name, made in ESTIMATORS.items():
        if not re.search(arguments.only, name):
            continue
        estimator, types, feeds = made()
        try:
            model = to_onnx(estimator, initial_types=types, target_opset={"": 21, "ai.onnx.ml": 3})
        except Exception as error:  # noqa: BLE001: what skl2onnx cannot export is nothing to compare
            print(f"| {name} | | | skl2onnx cannot export it: {' '.join(str(error).split())[:60]}… |")
            continue
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.onnx"
            path.write_bytes(model.SerializeToString())
            session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
            theirs = session.run(None, feeds)
            try:
                ours = Gpux(arguments.gpux, Path(folder) / "run").run(path, feeds, model)
                why = next((why for pair in zip(ours, theirs) if (why := differs(*pair, 0, 0))), None)
            except RuntimeError as error:
                why = str(error)
        compared += 1
        faults += why is not None
        takes = ", ".join(port.type for port in session.get_inputs())
        gives = ", ".join(port.type for port in session.get_outputs())
        print(f"| {name} | {takes} | {gives} | {why or 'the same'} |", flush=True)
        if arguments.fixtures and name in FIXTURES:
            keep(name, model, feeds, {port.name: plain(value) for port, value in zip(session.get_outputs(), theirs)})
    print(f"\n{compared} compared, {compared - faults} the same")
    if faults:
        sys.exit(f"{faults} estimators give something else through gpux")


if __name__ == "__main__":
    main()
