"""What a sandbox lacks, said in words: the interpreter itself would stop the step without one."""

import builtins
import sys
import time

from . import log, modules


def _lacks(what):
    def refused(*_, **__):
        raise OSError(f"a step has no {what}")

    return refused


def enter():
    """Called before the step's own code, each time; the building of the component is over by then."""
    if isinstance(sys.stdout, log.Lines):
        return
    sys.stdout, sys.stderr = log.Lines(log.info), log.Lines(log.error)
    modules.close()
    builtins.open = _lacks("files")
    for clock in ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "sleep"):
        setattr(time, clock, _lacks("clock"))


def leave():
    """Called after the step's own code, each time."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, log.Lines):
            stream.end()
