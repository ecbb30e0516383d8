"""Processes of a cluster that this process has started: finds them, and kills one that is at work."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path


def parent(pid: int) -> int:
    """The parent of a process, 0 where it is gone."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def descendants(is_wanted: Callable[[str], bool]) -> list[int]:
    """Processes below this one whose command line is wanted."""
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        pid = ancestor = int(folder.name)
        while ancestor > 1 and ancestor != os.getpid():
            ancestor = parent(ancestor)
        try:
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if ancestor == os.getpid() and pid != ancestor and is_wanted(command):
            found.append(pid)
    return sorted(found)


def cpu_seconds(pid: int) -> float:
    """Processor time that a process has used."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def kill_a_busy(find: Callable[[], list[int]], is_running: Callable[[], bool], busy: float = 0.15) -> int:
    """Kills one of the processes that `find` gives, once it has computed for `busy` seconds; returns its id.

    "Computed" counts from when it was seen first, so that what an earlier job used does not.
    """
    started: dict[int, float] = {}
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        assert is_running(), "the job ended before a worker could be killed"
        for pid in find():
            used = cpu_seconds(pid)
            if used - started.setdefault(pid, used) >= busy:
                os.kill(pid, signal.SIGKILL)
                return pid
        time.sleep(0.02)
    raise AssertionError("no worker was busy for two minutes")
