"""Scores to labels: plain Python that knows nothing of gpux."""

from math import isnan


def above(scores, names, threshold, limit=None):
    """The entries whose score reaches `threshold`, best first; equal scores stay in their order."""
    found = [index for index, score in enumerate(scores) if score >= threshold]
    found.sort(key=lambda index: -scores[index])
    # A float32 holds seven digits; the rest would only show that Python has longer floats.
    return [{"label": names[index], "index": index, "score": float(f"{scores[index]:.7g}")} for index in found[:limit]]


def first_nan(scores):
    """The index of the first score that is not a number, if any."""
    return next((index for index, score in enumerate(scores) if isnan(score)), None)
