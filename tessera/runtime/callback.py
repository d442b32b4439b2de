"""Calls from compiled code back into Python: printing, users' functions, fresh keys, checks of indices; in order."""

from __future__ import annotations

import array
import ctypes
import json
import struct
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Self, cast

from tessera.diagnostics.codes import CallbackError, LoadError, PositionError
from tessera.diagnostics.error import HERE, Span, TesseraError
from tessera.runtime import run_record
from tessera.runtime.launch import FAILED
from tessera.runtime.tensor import Tensor
from tessera.types.dtype import BY_NAME
from tessera.types.frozen import frozen

# Indices that kernels read from memory, in debug builds: the records of those out of bounds, and their error.

_CELLS = 4
"""Numbers of a record: the least below 0, how far the least beyond the end is from `_MOST`, the extent and 1."""
_MOST = (1 << 63) - 1


def check_positions(text: str, records: Tensor, *sources: Tensor) -> None:
    """Raise PositionError (T0710) where a kernel would have used an out-of-bounds index: for its first program."""
    data = ctypes.string_at(records.address, records.nbytes)
    if data.count(0) == len(data):
        return
    numbers: array.array[int] = array.array("q", data)
    sites: list[dict[str, Any]] = json.loads(text)
    at = next(at for at in range(2, len(numbers), _CELLS) if numbers[at])
    number, number_of_site = divmod(at // _CELLS, len(sites))
    program = _unravel(number, records.shape[:-1])
    below, beyond, extent = numbers[at - 2], numbers[at - 1], numbers[at] - 1
    site = sites[number_of_site]
    found = below if below < 0 else _MOST - beyond
    where = f"kernel `{site['kernel']}`, program {program} of {list(records.shape[:-1])}"
    number = -1 if site["source"] is None else int(site["source"])
    source: Tensor | None = sources[number] if number >= 0 else None
    raise out_of_bounds_error(site, found, extent, source, where)


def out_of_bounds_error(
    site: Mapping[str, Any], found: int, extent: int, source: Tensor | None = None, where: str = ""
) -> PositionError:
    """The error of an index; where a `site` counts from both ends, the extent was added to what was below 0."""
    ends = site.get("ends", False)
    index = found - extent if ends and found < 0 else found
    who = f"`{site['op']}`" + (f" of `{site['into']}`" if site.get("into") else "")
    stands = _standing((found, index), source)
    stands = f"{stands} that {who} uses" if stands else f"{who} uses it"
    if ends:
        does = {
            "clip": "a debug build checks, others clamp",
            "drop": "a debug build checks, others write nothing there",
        }
        allowed = f"an index is in -{extent}..{extent - 1}" if extent else "an axis of no elements has no index"
        rule = f"rule: {allowed}; {does.get(site.get('mode', ''), 'the mode is `error`')}"
        fix = 'use indices of the axis, or say what happens to others: `mode="clip"` or `mode="drop"`'
    elif site.get("masked") is None:
        rule = f"rule: a position is in 0..{extent - 1}; a debug build checks, in others it reads as 0"
        fix = "say what is read out of bounds: `pad=0`, or `mask=` where there is one"
    else:
        rule = f"rule: a position is in 0..{extent - 1}; a debug build checks, others write nothing"
        fix = "leave such elements out with `mask=`"
    return PositionError(
        f"index {index} is outside of an axis of {extent} elements",
        span=Span(*site["location"]) if site.get("location") else HERE,
        notes=(*([where] if where else []), stands, rule),
        fix=fix,
    )


def _standing(found: Sequence[int], source: Tensor | None) -> str:
    """Where one of some numbers stands first among those that positions are read from, if it does."""
    values = [] if source is None or not source.shape else list(_numbers(source.tolist()))
    at = next((at for at, value in enumerate(values) if value in found), None)
    if source is None or at is None:
        return ""
    return f"it stands at {_unravel(at, source.shape)} of the indices, {list(source.shape)} {source.dtype},"


def _unravel(number: int, shape: Sequence[int]) -> list[int]:
    index: list[int] = []
    for length in reversed(shape):
        number, own = divmod(number, length)
        index.insert(0, own)
    return index


def _numbers(values: Any) -> Iterator[int]:
    """The numbers of nested lists, in order."""
    if not isinstance(values, list):
        yield values
        return
    for item in cast("list[Any]", values):
        yield from _numbers(item)


EXCHANGES = ("collective_start", "collective_wait")
CALLS = ("debug_print", "io_callback", "check_positions", "fresh_key", "axis_index", *EXCHANGES)
"""Calls that work on the program's own memory, with other ranks."""

_SHOW_ALL, _EDGE = 200, 3  # elements shown in full, and at each end of a longer axis


@frozen
class Callback:
    """One call site of Python in a program: what it calls, and the dtype and rank of each buffer.

    `call` is `debug_print` (of `text`), `io_callback` (function number `slot`), `check_positions` or `fresh_key`;
    `axis_index` (along `text`, of `slot` ranks), `collective_start` (of `text`) and `collective_wait`, number `slot`.
    """

    call: str
    slot: int
    text: str
    inputs: tuple[tuple[str, int], ...]
    outputs: tuple[tuple[str, int], ...]

    @staticmethod
    def read(fields: Any) -> Callback:
        """From the lists that an executable's file has; raises LoadError (T0704) for anything else."""
        match fields:
            case [str(call), int(slot), str(text), [*inputs], [*outputs]] if (
                call in CALLS and slot >= -(call != "io_callback") and all(map(_is_port, (*inputs, *outputs)))
            ):
                return Callback(call, slot, text, tuple(map(tuple, inputs)), tuple(map(tuple, outputs)))
            case _:
                raise LoadError(f"this executable lists a callback that is none: {str(fields)[:80]}")

    def fields(self) -> list[Any]:
        """What `read` takes, as JSON holds it."""
        return [self.call, self.slot, self.text, [list(port) for port in self.inputs], [list(p) for p in self.outputs]]


def _is_port(port: Any) -> bool:
    """A dtype by its name, and a rank."""
    match port:
        case [str(dtype), int(rank)]:
            return dtype in BY_NAME and rank >= 0
        case _:
            return False


# ---- What calls do, for compiled code, for the reference and for eager ops alike.


class Deferred:
    """A scope in which calls without results do not run, or only at its end."""

    def __init__(self, *, keep: bool) -> None:
        self.calls: list[Callable[[], Any]] | None = [] if keep else None


_SUSPENDED: ContextVar[tuple[Deferred, ...]] = ContextVar("suspended_io", default=())


@contextmanager
def suspended_io(*, keep: bool) -> Generator[None]:
    """Within it, calls that give nothing back are dropped, or kept and made at the end; the others are refused."""
    scope = Deferred(keep=keep)
    token = _SUSPENDED.set((*_SUSPENDED.get(), scope))
    try:
        yield
    finally:
        _SUSPENDED.reset(token)
    for call in scope.calls or ():
        _perform(call)


def _perform(call: Callable[[], Any]) -> None:
    scopes = _SUSPENDED.get()
    if not scopes:
        call()
    elif (kept := scopes[-1].calls) is not None:
        kept.append(call)


def show(text: str, values: Sequence[Tensor]) -> None:
    """Print a text with tensors put into it."""
    shown = [_Shown(value) for value in values]
    _perform(lambda: print(text.format(*shown), flush=True))


def call(function: Callable[..., Any], values: Sequence[Tensor], wanted: Sequence[Any]) -> list[Tensor]:
    """What a user's function gives for tensors: one tensor for each (dtype, shape) of `wanted`.

    Raises CallbackError (T0709) where it gives something else, and whatever the function raises.
    """
    if not wanted:
        _perform(lambda: function(*values))
        return []
    if _SUSPENDED.get():
        raise CallbackError(
            f"`{_name(function)}` gives a result that the program needs, and `io` is suspended around this call",
            fix="call the program outside of `effects.suspend`",
        )
    given = function(*values)
    results = cast("tuple[Any, ...]", given if isinstance(given, tuple) else (given,))
    if len(results) != len(wanted):
        raise CallbackError(
            f"`{_name(function)}` gave {len(results)} results where {len(wanted)} are declared",
            fix="give a tuple with one tensor for each that `result` declares",
        )
    return [_fit(function, result, dtype, shape) for result, (dtype, shape) in zip(results, wanted, strict=True)]


def _fit(function: Callable[..., Any], result: Any, dtype: str, shape: tuple[int, ...]) -> Tensor:
    declared = f"[{', '.join(map(str, shape))}] {dtype}"
    try:
        tensor = Tensor.of(result, dtype)
    except (TypeError, ValueError) as error:
        reason = error.message if isinstance(error, TesseraError) else str(error)
        raise CallbackError(f"`{_name(function)}` must give {declared}: {reason}") from error
    if tensor.shape != shape:
        raise CallbackError(
            f"`{_name(function)}` gave a tensor of shape {list(tensor.shape)}, and its result is declared {declared}",
            fix="give what `result` declares, or declare what is given",
        )
    return tensor.contiguous()


def fresh_key() -> bytes:
    """The sixteen bytes of a key that nobody has drawn before: the next of the run, whose seed is on record."""
    return struct.pack("=QQ", *run_record.current().next_words())


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__)


class _Shown:
    """A tensor as `debug_print` shows it: a number as itself, more of them in brackets, each by the format given."""

    def __init__(self, tensor: Tensor) -> None:
        self.values, self.every = tensor.tolist(), tensor.size <= _SHOW_ALL

    def __format__(self, spec: str) -> str:
        return self._text(self.values, spec)

    def _text(self, values: Any, spec: str) -> str:
        if not isinstance(values, list):
            return format(values, spec or (".6g" if isinstance(values, float) else ""))
        items: list[Any] = values  # pyright: ignore[reportUnknownVariableType]
        if self.every or len(items) <= 2 * _EDGE:
            return f"[{', '.join(self._text(item, spec) for item in items)}]"
        ends = [self._text(item, spec) for item in (*items[:_EDGE], *items[-_EDGE:])]
        return f"[{', '.join((*ends[:_EDGE], '...', *ends[_EDGE:]))}]"


# ---- The path from native code to them.

_Thunk = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.POINTER(ctypes.c_int64))


class Callbacks:
    """The callbacks of one executable, reachable by native code; the last exception of each thread is kept."""

    def __init__(self, callbacks: Sequence[Callback], functions: Sequence[Callable[..., Any]]) -> None:
        missing = [one.slot for one in callbacks if one.call == "io_callback" and one.slot >= len(functions)]
        if missing:
            raise LoadError(
                f"this program calls {1 + max(missing)} Python functions, and was given {len(functions)}", span=None
            )
        self._callbacks, self._functions = tuple(callbacks), tuple(functions)
        self._raised = threading.local()
        self._exchanges: Any = None
        if any(one.call in EXCHANGES for one in callbacks):
            from tessera.runtime.ranks.world import Exchanges  # noqa: PLC0415 - few programs communicate with others

            self._exchanges = Exchanges()
        self._thunk = _Thunk(self._run)

    @classmethod
    def of(cls, facts: Mapping[str, Any], functions: Sequence[Callable[..., Any]]) -> Self | None:
        """Those that an executable lists in its metadata; None where it calls nothing."""
        found = facts.get("callbacks")
        if not isinstance(found, list | tuple | None):
            raise LoadError(f"the callbacks of this executable are a list, got `{type(found).__name__}`")
        return cls([Callback.read(fields) for fields in cast("Sequence[Any]", found)], functions) if found else None

    @property
    def address(self) -> int:
        """Where native code calls."""
        found = ctypes.cast(self._thunk, ctypes.c_void_p).value
        assert found is not None
        return found

    def take_exception(self) -> BaseException | None:
        """What the callback that failed last in this thread raised."""
        raised: BaseException | None = getattr(self._raised, "exception", None)
        self._raised.exception = None
        return raised

    def _run(self, number: int, slots: Any) -> int:
        if number < 0:  # the program ends early
            self._exchanges.abandon()
            return 0
        try:
            self._call(self._callbacks[number], slots)
        except BaseException as error:  # native code cannot raise: it stops, and the call path raises this
            self._raised.exception = error
            return FAILED
        return 0

    def _call(self, one: Callback, slots: Any) -> None:
        ports = (*one.inputs, *one.outputs)
        at = len(ports)
        shapes: list[tuple[int, ...]] = []
        for _, rank in ports:
            shapes.append(tuple(slots[at : at + rank]))
            at += rank
        count = len(one.inputs)
        if one.call in EXCHANGES:
            if one.call == EXCHANGES[0]:
                dtype = one.inputs[0][0]
                self._exchanges.start(one.slot, one.text, slots[0], slots[1], shapes[0], dtype)
            else:
                self._exchanges.wait(one.slot)
            return
        values = [self.copy_tensor(slots[i], dtype, shapes[i]) for i, (dtype, _) in enumerate(one.inputs)]
        if one.call == "debug_print":
            show(one.text, values)
        elif one.call == "check_positions":
            check_positions(one.text, *values)
        elif one.call == "fresh_key":
            key = ctypes.create_string_buffer(fresh_key(), 16)
            self.put(slots[count], ctypes.addressof(key), len(key))
        elif one.call == "axis_index":
            from tessera.runtime.ranks.world import axis_position  # noqa: PLC0415 - few programs ask

            index = ctypes.c_int64(axis_position(one.text, one.slot))
            self.put(slots[count], ctypes.addressof(index), 8)
        else:
            wanted = [(dtype, shapes[count + i]) for i, (dtype, _) in enumerate(one.outputs)]
            for i, result in enumerate(call(self._functions[one.slot], values, wanted)):
                self.put(slots[count + i], result.address, result.nbytes)

    def copy_tensor(self, address: int, dtype: str, shape: tuple[int, ...]) -> Tensor:
        """A tensor with its own copy of memory that the program will use again."""
        made = Tensor.empty(shape, BY_NAME[dtype])
        ctypes.memmove(made.address, address, made.nbytes)
        return made

    def put(self, address: int, source: int, size: int) -> None:
        """Bytes to where the program reads them."""
        ctypes.memmove(address, source, size)
