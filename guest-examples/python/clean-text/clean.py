"""Cleaning of text: plain Python that knows nothing of gpux."""

import re
import unicodedata

_LINE_BREAKS = re.compile(r"\r\n|[\r\v\f\x1c-\x1e\x85\u2028\u2029]")
_SPACES = re.compile(r"[^\S\n]+")
_EMPTY_LINES = re.compile(r"\n{3,}")


def normalized(text, form):
    """`text` in one of Unicode's normalization forms."""
    return unicodedata.normalize(form, text)


def without_controls(text):
    """Leaves out control and format characters: null bytes, zero-width spaces, marks of direction.
    Tabs and line breaks are white space; a joiner between two emoji is part of one picture."""
    return "".join(
        letter
        for index, letter in enumerate(text)
        if letter in "\t\n\r" or unicodedata.category(letter) not in ("Cc", "Cf") or _joins(text, index)
    )


def _joins(text, index):
    if text[index] != "\u200d" or not 0 < index < len(text) - 1:
        return False
    # A selector may stand between a picture and its joiner.
    return unicodedata.category(text[index - 1]) in ("So", "Mn", "Sk") and unicodedata.category(text[index + 1]) == "So"


def without_accents(text):
    """Leaves out marks that stand above or below a letter: `é` becomes `e`."""
    apart = unicodedata.normalize("NFD", text)
    return unicodedata.normalize("NFC", "".join(letter for letter in apart if unicodedata.category(letter) != "Mn"))


def lined(text):
    """One space for each run of white space within a line, no more than one empty line in a row."""
    lines = (_SPACES.sub(" ", line).strip(" ") for line in _LINE_BREAKS.sub("\n", text).split("\n"))
    return _EMPTY_LINES.sub("\n\n", "\n".join(lines)).strip("\n")


def collapsed(text):
    """One space for each run of white space, line breaks included."""
    return " ".join(text.split())


WHITESPACE = {"keep": str, "lines": lined, "collapse": collapsed}
CASE = {"keep": str, "lower": str.lower, "upper": str.upper, "fold": str.casefold}
