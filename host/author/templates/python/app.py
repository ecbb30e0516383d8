"""The step `{{name}}`: splits a text into words."""

import gpux_step
from gpux_step import InvalidInput, json, signature, text


class {{TypeName}}(gpux_step.Step):
    summary = "splits a text into words"

    # A JSON Schema: gpux.yml is checked against it.
    options = {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "lower": {"description": "in small letters", "type": "boolean", "default": False},
            "longest": {"description": "the most characters that are taken", "type": "integer", "default": 10_000},
        },
    }

    # What it takes and gives, with these options. What can be prepared once belongs here.
    def configure(self, lower=False, longest=10_000):
        self.lower, self.longest = lower, longest
        return signature(
            inputs={"text": text(about="any text")},
            outputs={"words": json(about="a list of its words")},
        )

    # One request.
    def process(self, text):
        if len(text) > self.longest:
            raise InvalidInput(f"the text has {len(text)} characters, more than {self.longest}")
        return {"words": (text.lower() if self.lower else text).split()}


# componentize-py looks for this name.
Step = gpux_step.export({{TypeName}})
