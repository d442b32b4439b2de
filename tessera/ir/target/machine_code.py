"""From LLVM text to object bytes: what to generate for, a cache, and errors that say what happened."""

from __future__ import annotations

import hashlib
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError, Future, as_completed
from dataclasses import asdict
from functools import lru_cache
from typing import Any, Protocol, TypeAlias

from tessera.diagnostics.codes import CodegenError
from tessera.ir.base.reproducers import write_reproducer
from tessera.ir.target import worker_pool
from tessera.runtime.cache import default_store, package_text
from tessera.types.frozen import frozen

DEFAULT_TIMEOUT = 120.0
Answer: TypeAlias = "Future[tuple[bytes, dict[str, float]]]"
_MEMORY_LIMIT = 256 << 20
_PASSES = ("none", "light", "O1", "O2", "O3")


@lru_cache(maxsize=1)
def generator() -> str:
    """The code generator's name and version, part of every cache key; read without loading it."""
    return package_text("llvmlite")


@frozen
class CodeTarget:
    """What code is generated for.

    `features` is LLVM's text (`+avx2,+fma`). `opt` is the effort of instruction selection and scheduling, 0 to 3;
    `passes` the rewrites before it: none, light (four cheap clean-ups) or LLVM's O1, O2, O3. `emit` is object or
    assembly. Position-independent code of the small model refers to itself by 32-bit offsets only, which is what our
    own loader links.
    """

    triple: str
    cpu: str = ""
    features: str = ""
    opt: int = 2
    passes: str = "none"
    reloc: str = "pic"
    code_model: str = "small"
    emit: str = "object"

    def __post_init__(self) -> None:
        if self.passes not in _PASSES:
            raise ValueError(f"`passes` must be one of {', '.join(_PASSES)}, got {self.passes}")

    def key(self, text: str) -> str:
        """The name under which the bytes for `text` are kept."""
        fields = "\0".join(f"{name}={value}" for name, value in _header(self).items())
        return hashlib.sha256(f"{generator()}\0{fields}\0{text}".encode()).hexdigest()


@lru_cache(maxsize=64)
def _header(target: CodeTarget) -> dict[str, Any]:
    """What a worker is told of a target."""
    return asdict(target)


class Store(Protocol):
    """Where bytes are kept from one process to the next."""

    def get(self, key: str, /) -> bytes | None: ...

    def put(self, key: str, value: bytes, /) -> None: ...


class _Memory:
    """The bytes of this process, least recently used out first."""

    def __init__(self) -> None:
        self._entries: OrderedDict[str, bytes] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def get(self, key: str) -> bytes | None:
        with self._lock:
            value = self._entries.get(key)
            if value is not None:
                self._entries.move_to_end(key)
            return value

    def put(self, key: str, value: bytes) -> None:
        with self._lock:
            if key not in self._entries:
                self._entries[key] = value
                self._size += len(value)
            while self._size > _MEMORY_LIMIT:
                _, old = self._entries.popitem(last=False)
                self._size -= len(old)

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()
            self._size = 0


_memory = _Memory()
_find_store: Callable[[], Store | None] = default_store


def use_store(find: Callable[[], Store | None]) -> None:
    """Keep objects in the store that `find` gives, under `CodeTarget.key`; where it gives None, in memory alone."""
    global _find_store
    _find_store = find


def forget() -> None:
    """Empty the memory of this process; the store stays."""
    _memory.clear()
    _begun.clear()


def warm() -> None:
    """Start the workers now, so that they are ready when the first text is."""
    worker_pool.pool()


_begun: dict[str, Answer] = {}
"""Texts that workers were given before anybody asked for their bytes, by key."""
os.register_at_fork(after_in_child=_begun.clear)  # a child has no workers to finish them


def begin(
    text: str, target: CodeTarget, then: Callable[[bytes], None] | None = None, *, timeout: float = DEFAULT_TIMEOUT
) -> None:
    """Let a worker start on a text while the caller goes on; `compile_texts` with the same text then waits for it.

    `then` is given the bytes as soon as they are there, in a thread of its own: the next program of the chain.
    """
    key = target.key(text)
    if key in _begun:
        return
    found = _find_object(key, _find_store())
    if found is None:
        # Another thread that has the same text may take it from there immediately.
        answer = _begun[key] = _submit(text, target, timeout)
        if then is not None:
            answer.add_done_callback(lambda answer: _go_on(answer, then))
    elif then is not None:
        then(found)


def _go_on(answer: Answer, then: Callable[[bytes], None]) -> None:
    """What failed is said to whoever asks for the bytes."""
    if not answer.cancelled() and answer.exception() is None:
        then(answer.result()[0])


def compile_text(text: str, target: CodeTarget, *, timeout: float = DEFAULT_TIMEOUT) -> bytes:
    """The object (or assembly) of one LLVM module.

    Raises CodegenError (T0603) where LLVM refuses the text or dies of it; the text is then in a reproducer file.
    """
    return compile_texts([text], target, timeout=timeout)[0]


def compile_texts(texts: Sequence[str], target: CodeTarget, *, timeout: float = DEFAULT_TIMEOUT) -> list[bytes]:
    """The objects of several LLVM modules, made in parallel; each distinct text is compiled once."""
    keys = [target.key(text) for text in texts]
    found: dict[str, bytes] = {}
    missing: dict[str, str] = {}
    store = _find_store()
    for key, text in zip(keys, texts, strict=True):
        value = None if key in _begun else _find_object(key, store)
        if value is None:
            missing[key] = text
        else:
            found[key] = value
    # The longest text first: the last worker to finish then finishes soonest.
    order = sorted(missing, key=lambda key: -len(missing[key]))
    pending = [(key, _answer(key, missing[key], target, timeout)) for key in order]
    for key, value in _results(pending, missing, target):
        found[key] = value
        _memory.put(key, value)
        if store is not None:
            store.put(key, value)
    return [found[key] for key in keys]


def _find_object(key: str, store: Store | None) -> bytes | None:
    """Bytes made before, by this process or another."""
    value = _memory.get(key)
    if value is None and store is not None:
        value = store.get(key)
        if value is not None:
            _memory.put(key, value)
    return value


def _answer(key: str, text: str, target: CodeTarget, timeout: float) -> Answer:
    begun = _begun.pop(key, None)
    return _submit(text, target, timeout) if begun is None or _was_closed(begun) else begun


def _was_closed(answer: Answer) -> bool:
    """Whether it belonged to workers that are closed."""
    return answer.cancelled() or (answer.done() and isinstance(answer.exception(), worker_pool.PoolClosedError))


def _submit(text: str, target: CodeTarget, timeout: float) -> Answer:
    return worker_pool.pool().submit(_header(target), text, timeout)


def _results(
    pending: Sequence[tuple[str, Answer]], texts: dict[str, str], target: CodeTarget
) -> Iterable[tuple[str, bytes]]:
    keys = {future: key for key, future in pending}
    # In the order in which they end, so that a failure does not wait for those that are well.
    for future in as_completed(keys):
        key = keys[future]
        try:
            value, _ = future.result()
        except (worker_pool.PoolClosedError, CancelledError) as error:
            raise CodegenError(
                "the code generator was closed while it made code: nothing is compiled while the interpreter ends",
                span=None,
                fix="compile before the program ends, and wait for threads that compile",
            ) from error
        except worker_pool.RefusedTextError as error:
            raise _failure(
                f"LLVM refused a kernel: {_first_lines(str(error))}", str(error), texts[key], target
            ) from error
        except worker_pool.WorkerDiedError as error:
            reason = _first_lines(error.text)
            message = f"the code generator {error.reason}" + (f": {reason}" if reason else "")
            raise _failure(message, error.text, texts[key], target) from error
        yield key, value


def _first_lines(text: str) -> str:
    """LLVM's first words: a heading, where there is one, and the sentence below it."""
    return ": ".join([line.strip() for line in text.splitlines() if line.strip()][:2])


def _failure(message: str, details: str, text: str, target: CodeTarget) -> CodegenError:
    """The error to raise, its text saved: LLVM IR with the target and LLVM's words as comments, ready for `llc`."""
    words = "\n".join(f"; {line}" for line in details.splitlines()[:40])
    flags = f"-mtriple={target.triple} -mcpu={target.cpu} -mattr={target.features} -O{target.opt}"
    # The file is named by its text: the library's version has no part in it, nor have its size and date.
    path = write_reproducer("codegen", ".ll", f"; {target}\n; llc {flags}\n{words}\n{text}")
    where = f"is in {path}" if path else "could not be written; set TESSERA_REPRODUCERS to a folder that can be"
    return CodegenError(message, span=None, notes=(f"the LLVM text {where}",))
