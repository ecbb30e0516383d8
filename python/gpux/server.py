"""A server for tests and notebooks: ``gpux serve`` in a process of its own."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
import threading
from collections.abc import Sequence

from gpux._options import PathLike
from gpux._program import find_gpux_bin
from gpux.errors import GPUXError

# Becomes the program, beside a process that ends it once the standard input has ended. That happens as soon as the
# process at the input's other end is gone, even by SIGKILL.
_UNTIL_INPUT_ENDS = ["sh", "-c", 'exec 3<&0; { cat <&3; kill $$; } 2>/dev/null & exec 3<&- </dev/null "$@"', "sh"]

_READY = re.compile(r"^ready on (\S+:(\d+))$")
_STOP_SECONDS = 35.0

logger = logging.getLogger("gpux.server")


class Server:
    """A running server; it ends with the ``with`` block, with :meth:`stop`, when it is collected, or with
    this process.

    Args:
        paths: one or several pipelines, as ``gpux serve`` takes them.
        host: address to listen on.
        port: port to listen on; 0 takes a free one.
        arguments: further arguments of ``gpux serve``.
        timeout: seconds until it must be ready.

    What it writes goes to the logger ``gpux.server``.

    Raises:
        GPUXError: it did not start; the text is what it wrote.

    Attributes:
        url: where it answers, for example ``http://localhost:41235``.
        port: the port that it listens on.
    """

    url: str
    port: int

    def __init__(
        self,
        paths: PathLike | Sequence[PathLike],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        arguments: Sequence[str] = (),
        timeout: float = 120.0,
    ) -> None:
        named = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
        command = [
            find_gpux_bin(),
            "serve",
            *(os.fspath(path) for path in named),
            f"--host={host}",
            f"--port={port}",
            *arguments,
        ]
        if os.name == "posix":
            command = [*_UNTIL_INPUT_ENDS, *command]
        self._process = subprocess.Popen(
            command,
            # Where this Python's packages are, ONNX Runtime's among them, as `Pipeline` searches them.
            env={"VIRTUAL_ENV": sys.prefix, **os.environ},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        start = _Start()
        # Without a reference to this object, so that it can be collected.
        threading.Thread(target=_read, args=(self._process, start), name="gpux-server", daemon=True).start()
        if not start.ready.wait(timeout) or not start.url:
            self.stop()
            written = "\n".join(start.written) or f"no answer in {timeout} s"
            raise GPUXError(f"the server did not start: {written}")
        self.url, self.port = start.url, start.port

    def stop(self) -> None:
        """Ends the server: requests under way are answered first."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __del__(self) -> None:
        process = getattr(self, "_process", None)
        if process is not None and process.poll() is None:
            process.terminate()

    def __repr__(self) -> str:
        return f"Server({self.url!r})"


class _Start:
    """What is known of a server that is starting."""

    def __init__(self) -> None:
        self.ready = threading.Event()
        self.written: list[str] = []
        self.url, self.port = "", 0


def _read(process: subprocess.Popen[str], start: _Start) -> None:
    """Logs what the server writes, until it ends."""
    assert process.stdin is not None
    assert process.stderr is not None
    with process.stdin, process.stderr as lines:
        for line in lines:
            line = line.rstrip("\n")
            logger.info("%s", line)
            ready = _READY.match(line)
            if ready and not start.ready.is_set():
                start.url, start.port = ready[1], int(ready[2])
                start.ready.set()
            if not start.ready.is_set():
                start.written.append(line)
    start.ready.set()
    process.wait()
