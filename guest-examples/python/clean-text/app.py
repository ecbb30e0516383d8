"""The step `clean-text`: Unicode normalization, control characters, white space and case.

clean.py is the work; this file is the step around it.
"""

import gpux_step
from gpux_step import InvalidInput, signature, text

import clean

FORMS = ["NFC", "NFD", "NFKC", "NFKD"]


def choice(description, default, names):
    return {"description": description, "enum": list(names), "default": default}


class CleanText(gpux_step.Step):
    summary = "cleans a text: Unicode normalization, control characters, white space, accents, case"

    options = {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "form": choice("Unicode's normalization form; NFKC also unifies widths and ligatures", "NFC", [*FORMS, "none"]),
            "controls": choice("what becomes of control and format characters", "remove", ["remove", "keep"]),
            "whitespace": choice("collapse: one space for each run; lines: the same, within lines", "collapse", clean.WHITESPACE),
            "accents": choice("strip: é becomes e", "keep", ["keep", "strip"]),
            "case": choice("fold is for comparing: ß becomes ss", "keep", clean.CASE),
            "longest": {
                "description": "the most characters that are taken; longer texts are refused",
                "type": "integer",
                "minimum": 1,
                "default": 100_000,
            },
        },
    }

    def configure(self, form="NFC", controls="remove", whitespace="collapse", accents="keep", case="keep", longest=100_000):
        self.longest = longest
        self.work = [
            (controls == "remove", clean.without_controls),
            (form != "none", lambda given: clean.normalized(given, form)),
            (accents == "strip", clean.without_accents),
            (case != "keep", clean.CASE[case]),
            # Case and width can take a text out of its form.
            (form != "none" and (case != "keep" or accents == "strip"), lambda given: clean.normalized(given, form)),
            (whitespace != "keep", clean.WHITESPACE[whitespace]),
        ]
        return signature(inputs={"text": text(about="any text")}, outputs={"text": text(about="the text, cleaned")})

    def process(self, text):
        if len(text) > self.longest:
            raise InvalidInput(f"the text has {len(text)} characters; {self.longest} are taken, or more with `longest`")
        for wanted, change in self.work:
            if wanted:
                text = change(text)
        return {"text": text}


Step = gpux_step.export(CleanText)
