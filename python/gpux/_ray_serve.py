"""The replica of Ray Serve: a `gpux serve` of its own, to which it forwards requests."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import aiohttp
from starlette.requests import Request
from starlette.responses import Response
from yarl import URL

from gpux._options import command_line, load_options
from gpux.server import Server

if TYPE_CHECKING:
    from gpux._worker import PipelineSource

FORWARDED = ("POST /predict", "GET /info")
HOP_HEADERS = {"connection", "content-length", "host", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"}


class Replica:
    """Forwards `POST /predict` and `GET /info` to a server on this machine, which ends with the replica's process.

    Raises:
        FileNotFoundError: the pipeline is not on this machine.
        GPUXError: the server did not start; the text says why.
    """

    def __init__(self, source: PipelineSource, arguments: Sequence[str]) -> None:
        flags = command_line(load_options(**source.options))
        self._server = Server(source.locate(), arguments=[*flags, *arguments])
        self._session: aiohttp.ClientSession | None = None

    async def __call__(self, request: Request) -> Response:
        root = request.scope.get("root_path", "").rstrip("/")
        path = request.url.path.removeprefix(root)
        if f"{request.method} {path}" not in FORWARDED:
            message = f"there is no {request.method} {path}, only {' and '.join(FORWARDED)}"
            body = {"error": "NotFound", "message": message, "details": {}}
            return Response(json.dumps(body), 404, media_type="application/json")
        headers = [(name, value) for name, value in request.headers.items() if name not in HOP_HEADERS]
        target = self._url(path + (f"?{request.url.query}" if request.url.query else ""))
        body_bytes = await request.body()
        async with self._client().request(request.method, target, headers=headers, data=body_bytes) as answer:
            kept = {name: value for name, value in answer.headers.items() if name.lower() not in HOP_HEADERS}
            return Response(await answer.read(), answer.status, kept)

    async def check_health(self) -> None:
        """Ray Serve replaces the replica if this raises."""
        async with self._client().get(self._url("/health/ready")) as answer:
            answer.raise_for_status()

    def _client(self) -> aiohttp.ClientSession:
        if self._session is None:
            # Deadlines are the server's; bodies pass as they are.
            timeout, connector = aiohttp.ClientTimeout(total=None), aiohttp.TCPConnector(limit=0)
            self._session = aiohttp.ClientSession(timeout=timeout, connector=connector, auto_decompress=False)
        return self._session

    def _url(self, path: str) -> URL:
        return URL(f"http://127.0.0.1:{self._server.port}{path}", encoded=True)
