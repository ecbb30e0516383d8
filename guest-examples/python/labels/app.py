"""The step `labels`: the labels whose scores reach a threshold.

labels.py is the work; this file is the step around it.
"""

import gpux_step
from gpux_step import InvalidInput, json, signature, tensor

from labels import above, first_nan


class Labels(gpux_step.Step):
    summary = "lists the labels whose scores reach a threshold, best first"

    options = {
        "type": "object",
        "additionalProperties": False,
        "required": ["labels"],
        "properties": {
            "labels": {
                "description": "the name of each index",
                "type": "array",
                "items": {"type": "string"},
                "minItems": 1,
            },
            "threshold": {"description": "the least score that is listed", "type": "number", "default": 0.5},
            "limit": {"description": "how many are listed at most; all unless it is given", "type": "integer", "minimum": 1},
        },
    }

    def configure(self, labels, threshold=0.5, limit=None):
        twice = {label for label in labels if labels.count(label) > 1}
        if twice:
            raise InvalidInput(f"`labels` has `{min(twice)}` more than once")
        self.labels, self.threshold, self.limit = labels, threshold, limit
        return signature(
            inputs={"scores": tensor("float32", [1, len(labels)], about="a score for each label")},
            outputs={"labels": json(about="a list of {label, index, score}")},
        )

    def process(self, scores):
        values = scores.values().tolist()
        if len(values) != len(self.labels):
            raise InvalidInput(f"there are {len(values)} scores for {len(self.labels)} labels")
        wrong = first_nan(values)
        if wrong is not None:
            raise InvalidInput(f"the score of `{self.labels[wrong]}` is not a number")
        return {"labels": above(values, self.labels, self.threshold, self.limit)}


Step = gpux_step.export(Labels)
