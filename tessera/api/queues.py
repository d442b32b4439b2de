"""`with stream("compute"):` says which queue of a device work goes to, by a name that this process shares."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from tessera.diagnostics.codes import ArgumentError
from tessera.ir.base import dispatch


@contextmanager
def stream(name: str, /) -> Generator[None]:
    """Within it, what is called on a GPU goes to the queue of this name, beside the work of other queues.

    Tensors know the queue that made them: a function that takes one of another queue begins when that has come so far,
    and nothing else waits. On a processor a call is done when it returns, and inside a jitted function the program has
    one queue, that of its call: there the name changes nothing. Results are the same everywhere.

    Raises: ArgumentError (T0202) for what is no name.

    >>> with ts.graph.stream("compute"):
    ...     y = ts.array([1.0, 2.0]) * 2.0
    >>> y.tolist()
    [2.0, 4.0]
    """
    if not isinstance(name, str) or not name:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ArgumentError(f"`stream` takes the name of a queue, got {name!r}", fix='write `stream("compute")`')
    if dispatch.tracing() is not None:
        yield
        return
    from tessera.runtime.devices import cuda_driver, cuda_stream  # noqa: PLC0415 - only where queues are asked for

    if not cuda_driver.is_available():
        yield
        return
    with cuda_stream.stream(cuda_stream.named(name)):
        yield
