"""Pipelines: a gpux.yml with its steps and models."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gpux import _gpux
from gpux._options import PathLike, command_line, load_options, log_warnings

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

    from typing_extensions import Self

    from gpux.server import Server

_MAX_WORKERS = 256


class Pipeline(_gpux.Runtime):
    """A loaded pipeline. Any number of threads may call it; the interpreter's lock is free while it runs.

    Args:
        path: a folder with a gpux.yml, such a file, the ``name`` in one, or a model (.onnx) alone.
        provider: execution provider (``auto``, ``cuda``, ``cpu`` …), or several with commas, tried in order.
        provider_options: options of the provider, under its own names.
        provider_libraries: libraries of further providers, ``NAME=PATH`` each.
        precision: ``exact``, ``auto``, ``bf16``, ``fp16`` or ``int8``.
        strict: whether a provider or a precision that cannot be used is an error, instead of being replaced.
        engine: ``auto``, ``onnxruntime`` or ``embedded``.
        engine_library: ONNX Runtime's shared library. Else it is searched for as the program does, also in the
            packages of this Python.
        threads: threads of each model's session, in place of gpux.yml's. Default: what suits the model and the cores.
        timeout: how long one request may take: seconds, or ``500ms``, ``30s``. Default: the pipeline's.
        allow: what gpux.yml may grant to components: ``clock``, ``random``, ``env=NAME``, ``dir=PATH``.
        allow_outside: whether gpux.yml may name files outside its folder.
        env: environment variables that gpux.yml may read.
        limits: the most that a component may ask for, for example ``{"memory": "1GiB"}``.
        cache: folder of compiled components and verified models. Default: the user's.

    Raises:
        ConfigurationError: the gpux.yml, or an argument, is wrong. The text shows the place.
        ModelLoadError: a model cannot be used.
        ProviderError: this machine lacks what was asked for.

    Warnings go to the logger ``gpux``.

    A request's values are, by the type of the input (:attr:`inputs`):

    ========  ===============================================================================================
    tensor    a NumPy array (read in place where it is contiguous and of the right type), whatever has
              ``__dlpack__`` or ``__array__`` (tensors of torch and jax, series of pandas), nested lists, numbers
    text      ``str``
    bytes     ``bytes``, ``bytearray``, ``memoryview``, a ``pathlib.Path`` (its contents), a Pillow image, an image as
              an array of uint8: (height, width) or (height, width, channels), gray, gray with alpha, RGB or RGBA
    json      ``None``, ``bool``, ``int``, ``float``, ``str``, ``list``, ``dict``
    ========  ===============================================================================================

    Results are NumPy arrays (strings as arrays of ``object``; bfloat16 as ``ml_dtypes.bfloat16``, or as float32
    where that package is not installed), ``str``, ``bytes``, or JSON as Python's own types. An array must not be
    written to while a request reads it.
    """

    _options: dict[str, Any]
    _path: str
    _executor: ThreadPoolExecutor | None

    def __new__(
        cls,
        path: PathLike,
        *,
        provider: str | None = None,
        provider_options: Mapping[str, Any] | None = None,
        provider_libraries: Sequence[str] = (),
        precision: str | None = None,
        strict: bool = False,
        engine: str = "auto",
        engine_library: PathLike | None = None,
        threads: int | None = None,
        timeout: float | str | None = None,
        allow: Sequence[str] = (),
        allow_outside: bool = False,
        env: Sequence[str] = (),
        limits: Mapping[str, str] | None = None,
        cache: PathLike | None = None,
    ) -> Self:
        """Loads the pipeline."""
        options = load_options(
            provider=provider,
            provider_options=provider_options,
            provider_libraries=provider_libraries,
            precision=precision,
            strict=strict,
            engine=engine,
            engine_library=engine_library,
            threads=threads,
            timeout=timeout,
            allow=allow,
            allow_outside=allow_outside,
            env=env,
            limits=limits,
            cache=cache,
        )
        self = super().__new__(cls, os.fspath(path), False, options)
        self._path = os.fspath(path)
        self._options = options
        self._executor = None
        log_warnings(self)
        return self

    def __call__(self, request: Any = None, /, **inputs: Any) -> dict[str, Any]:
        """Runs one request: ``pipeline(text="…")``, ``pipeline({"text": "…"})``, or with one input ``pipeline("…")``.

        Returns:
            the results by name.

        Raises:
            ValidationError: the request does not fit the inputs.
            StepError: a step failed, or a limit or the timeout was reached.
        """
        return self.infer(self._named(request, inputs))

    def batch(
        self, requests: Iterable[Any], *, workers: int | None = None, return_exceptions: bool = False
    ) -> list[Any]:
        """Runs requests, several at the same time, which also fills the model's batches.

        Args:
            requests: a dict of inputs each, or the value of the only input.
            workers: how many run at the same time. Default: what the models can use.
            return_exceptions: whether a failed request's exception stands in its place; else it is raised.

        Returns:
            the results in the order of the requests.
        """
        from threading import Event, Lock, Thread

        requests = list(requests)
        results: list[Any] = [None] * len(requests)
        places, lock = iter(range(len(requests))), Lock()
        is_over, cancellation = Event(), _gpux.Cancellation()

        def run() -> None:
            # Each thread takes the next request: a future for each would cost more than a short request takes.
            while not is_over.is_set():
                with lock:
                    place = next(places, None)
                if place is None:
                    return
                try:
                    results[place] = self._infer_one(requests[place], cancellation)
                except Exception as error:
                    results[place] = error
                    if not return_exceptions:
                        is_over.set()

        threads = [Thread(target=run, daemon=True) for _ in range(min(workers or self._workers(), len(requests)))]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        finally:
            is_over.set()
            cancellation.cancel()
        if not return_exceptions:
            for result in results:
                if isinstance(result, Exception):
                    raise result
        return results

    def map(
        self, requests: Iterable[Any], *, workers: int | None = None, return_exceptions: bool = True
    ) -> Iterator[Any]:
        """As :meth:`batch`, one result after the other: a few requests are read ahead, so any number can pass.

        A failed request's exception stands in its place, unless ``return_exceptions`` is false. Whoever stops
        iterating stops the requests that are under way.
        """
        from concurrent.futures import ThreadPoolExecutor

        workers = workers or self._workers()
        cancellation = _gpux.Cancellation()
        pool = ThreadPoolExecutor(workers, thread_name_prefix="gpux")
        waiting: deque[Future[dict[str, Any]]] = deque()
        try:
            for request in requests:
                waiting.append(pool.submit(self._infer_one, request, cancellation))
                if len(waiting) >= 2 * workers:
                    yield _result(waiting.popleft(), return_exceptions)
            while waiting:
                yield _result(waiting.popleft(), return_exceptions)
        finally:
            cancellation.cancel()
            pool.shutdown(wait=False, cancel_futures=True)

    async def infer_async(self, request: Any = None, /, **inputs: Any) -> dict[str, Any]:
        """As calling the pipeline, without blocking the event loop. Cancelling it ends the run before its next step."""
        import asyncio

        named = self._named(request, inputs)
        cancellation = _gpux.Cancellation()
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._threads(), self.infer, named, cancellation)
        except asyncio.CancelledError:
            cancellation.cancel()
            raise

    def serve(self, *, host: str = "127.0.0.1", port: int = 0, arguments: Sequence[str] = ()) -> Server:
        """Starts ``gpux serve`` for this pipeline, in a process of its own, and waits until it is ready.

        ::

            with pipeline.serve() as server:
                requests.post(f"{server.url}/predict", json={"text": "…"})

        Args:
            host: address to listen on.
            port: port to listen on; 0 takes a free one.
            arguments: further arguments of ``gpux serve``.
        """
        from gpux.server import Server

        flags = command_line(self._options)
        return Server(self._path, host=host, port=port, arguments=[*flags, *arguments])

    def close(self) -> None:
        """Frees the models once the runs under way have ended; later calls fail."""
        executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown(wait=False, cancel_futures=True)
        super().close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        try:
            sides = (self.inputs, self.outputs)
        except RuntimeError:
            return f"Pipeline({self._path!r}, closed)"
        takes, gives = (", ".join(f"{port.name}: {port.description}" for port in side) for side in sides)
        return f"Pipeline({self._path!r}, {takes} -> {gives})"

    def _named(self, request: Any, inputs: dict[str, Any]) -> dict[str, Any]:
        if request is None:
            return inputs
        if inputs:
            raise TypeError("give a request, or inputs by name")
        if isinstance(request, dict):
            return request
        ports = self.inputs
        required = [port for port in ports if not port.optional]
        if len(ports) != 1 and len(required) != 1:
            names = ", ".join(port.name for port in ports)
            raise TypeError(f"the pipeline has several inputs; give a dict with {names}")
        return {(required or ports)[0].name: request}

    def _infer_one(self, request: Any, cancellation: _gpux.Cancellation) -> dict[str, Any]:
        return self.infer(self._named(request, {}), cancellation)

    def _workers(self) -> int:
        return min(max(self.concurrency, os.cpu_count() or 1), _MAX_WORKERS)

    def _threads(self) -> ThreadPoolExecutor:
        from concurrent.futures import ThreadPoolExecutor

        if self._executor is None:
            self._executor = ThreadPoolExecutor(self._workers(), thread_name_prefix="gpux")
        return self._executor


def _result(future: Future[dict[str, Any]], return_exceptions: bool) -> Any:
    error = future.exception()
    if error is None:
        return future.result()
    if return_exceptions and isinstance(error, Exception):
        return error
    raise error
