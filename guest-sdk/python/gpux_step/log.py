"""Lines for whoever runs the pipeline: they come with the step's error and with `--trace --json`."""

import io

from wit_world.imports.log import Level
from wit_world.imports.log import log as _write


def debug(*words):
    _write(Level.DEBUG, _line(words))


def info(*words):
    _write(Level.INFO, _line(words))


def warn(*words):
    _write(Level.WARN, _line(words))


def error(*words):
    _write(Level.ERROR, _line(words))


def _line(words):
    return " ".join(map(str, words))


class Lines(io.TextIOBase):
    """A stream whose lines are logged: what `print` writes to, for there is no terminal."""

    def __init__(self, write):
        self._write = write
        self._rest = ""

    def writable(self):
        return True

    def write(self, text):
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            self._write(line)
        return len(text)

    def end(self):
        """Logs what no end of a line followed: it belongs to the call that printed it."""
        if self._rest:
            self._write(self._rest)
            self._rest = ""
