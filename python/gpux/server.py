"""A server for tests and notebooks: ``gpux serve`` in a process of its own."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import threading
from collections.abc import Sequence

from gpux._options import PathLike
from gpux._program import find_gpux_bin
from gpux.errors import GPUXError

_READY = re.compile(r"^ready on (\S+:(\d+))$")
_STOP_SECONDS = 35.0

logger = logging.getLogger("gpux.server")


class Server:
    """A running server; it ends with the ``with`` block, with :meth:`stop`, or when it is collected.

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
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        self._written: list[str] = []
        self._ready = threading.Event()
        self.url, self.port = "", 0
        threading.Thread(target=self._read, name="gpux-server", daemon=True).start()
        if not self._ready.wait(timeout) or not self.url:
            self.stop()
            written = "\n".join(self._written) or f"no answer in {timeout} s"
            raise GPUXError(f"the server did not start: {written}")

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

    def _read(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as lines:
            for line in lines:
                line = line.rstrip("\n")
                logger.info("%s", line)
                ready = _READY.match(line)
                if ready and not self._ready.is_set():
                    self.url, self.port = ready[1], int(ready[2])
                    self._ready.set()
                if not self._ready.is_set():
                    self._written.append(line)
        self._ready.set()
