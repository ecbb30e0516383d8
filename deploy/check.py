"""Parses every query of the dashboard and the alerts, and every manifest."""

import json
import pathlib

import promql_parser
import yaml

folder = pathlib.Path(__file__).parent
dashboard = json.loads((folder / "grafana-dashboard.json").read_text())
queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
queries = [query.replace("$__rate_interval", "5m") for query in queries]
for group in yaml.safe_load((folder / "prometheus-alerts.yml").read_text())["groups"]:
    queries += [rule["expr"] for rule in group["rules"]]
for query in queries:
    promql_parser.parse(query)
print(f"{len(queries)} queries parse")

places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in dashboard["panels"]]
assert len(set(places)) == len(places), "two panels lie on each other"

for path in sorted(folder.rglob("*.y*ml")):
    documents = [document for document in yaml.safe_load_all(path.read_text()) if document]
    print(f"{path.relative_to(folder)}: {len(documents)} documents")
    if path.parent.name == "kserve":
        for document in documents:
            assert document["apiVersion"].startswith("serving.kserve.io/"), path
            assert document["kind"] in {"ClusterServingRuntime", "InferenceService"}, path
