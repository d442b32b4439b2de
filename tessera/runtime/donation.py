"""Calls that are given tensors for good: results use their memory, and they themselves are consumed."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

from tessera.diagnostics.codes import DonatedError, LoadError, RuntimeArgumentError
from tessera.runtime.arrays import attach, is_array
from tessera.runtime.executable import Executable
from tessera.runtime.native.support import OFFSETS
from tessera.runtime.tensor import CONSUMED, MOVED, Tensor, native
from tessera.types.dtype import DType
from tessera.types.frozen import frozen

# The error for tensors that were donated to a call.


def donated_error(shape: Sequence[int], dtype: DType) -> DonatedError:
    """A tensor is used that was donated."""
    return DonatedError(
        f"a tensor {list(shape)} {dtype} is used that was donated to a call, which may have written over it",
        notes=("rule: arguments that `donate` names belong to the call, and its results to the caller",),
        fix="use what the call returned in its place, or leave the argument out of `donate`",
    )


_OWNER_BLOCK, _OWNER_OBJECT = 1, 2
_CONTIGUOUS = 1


@frozen
class Donation:
    """The arguments that callers donate, and pairs (result, argument) of those that share memory."""

    given: tuple[int, ...]
    kept: tuple[tuple[int, int], ...]

    @staticmethod
    def of(executable: Executable) -> Donation | None:
        """What an executable says of it; None where nothing is donated. Raises LoadError (T0704) for anything else."""
        found = executable.metadata.get("donated")
        if found is None:
            return None
        inputs, outputs = range(len(executable.inputs)), range(len(executable.outputs))
        try:
            made = Donation(tuple(found["given"]), tuple((result, argument) for result, argument in found["kept"]))
            is_one = all(number in inputs for number in made.given)
            is_one = is_one and all(result in outputs and argument in inputs for result, argument in made.kept)
        except (TypeError, ValueError, LookupError):
            is_one, made = False, None
        if not is_one:
            raise LoadError(f"executable is damaged: it donates {str(found)[:80]}, which are no arguments", span=None)
        return made

    def check(self, names: Sequence[str], spans: Sequence[tuple[int, int]]) -> None:
        """Raises RuntimeArgumentError (T0701) where an argument that is donated shares bytes with another one."""
        end = -1
        for start, stop in sorted(spans):
            if start < end:
                break
            end = stop
        else:
            return  # no two of them share any
        for number in self.given:
            start, end = spans[number]
            for other, (low, high) in enumerate(spans):
                if other != number and start < high and low < end:
                    raise RuntimeArgumentError(
                        f"`{names[number]}` is donated to the call, and `{names[other]}` is the same memory",
                        fix="pass a copy, or leave it out of `donate`",
                    )


class _Fields(ctypes.Structure):
    """`%Tensor` of the native code, up to its dims."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("rank", ctypes.c_int32),
        ("dtype", ctypes.c_int32),
        ("bytes", ctypes.c_int64),
        ("owner", ctypes.c_void_p),
        ("kind", ctypes.c_int32),
        ("flags", ctypes.c_int32),
    ]


def _fields_of(tensor: Tensor) -> Any:
    handle = id(tensor._handle)  # pyright: ignore[reportPrivateUsage]
    return _Fields.from_address(ctypes.c_size_t.from_address(handle + OFFSETS["PyCapsule.pointer"]).value)


def consume(arguments: Sequence[Any], given: Sequence[int]) -> None:
    """Tensors that were donated to a call are not to be used any more; arrays of others stay as they are."""
    for number in given:
        if arguments[number].__class__ is Tensor:
            _fields_of(arguments[number]).flags = CONSUMED
        elif hasattr(arguments[number], "give_to"):  # one of a GPU
            arguments[number].give_to(None)


def _is_own(kind: int, flags: int) -> bool:
    """Whether the memory of a tensor is of our own making, and not, say, that of a NumPy array."""
    return kind == _OWNER_BLOCK or bool(flags & MOVED)


def _facts_of(arguments: Sequence[Any]) -> list[tuple[int, ...]]:
    """What native code says of each, up to the first that is no tensor; raises DonatedError (T0713)."""
    describe, facts = native().describe, list[tuple[int, ...]]()
    for argument in arguments:
        if argument.__class__ is not Tensor:
            break
        facts.append(describe(argument._handle))
        if facts[-1][4] & CONSUMED:
            raise donated_error(argument.shape, argument.dtype)
    return facts


_hold = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(("Py_IncRef", ctypes.pythonapi))


def _take(tensor: Tensor, result: Tensor) -> Tensor:
    """The result of a call, in the memory of a tensor that is donated; whoever shares it, an array say, keeps it."""
    source, fields = _fields_of(tensor), _fields_of(result)
    assert fields.kind == _OWNER_BLOCK, "a program fills memory of its own"
    # A tensor whose memory was that of another has the handle of the first one for its owner.
    owner = source.owner if source.flags & MOVED else id(tensor._handle)  # pyright: ignore[reportPrivateUsage]
    _hold(owner)
    native().free(fields.owner)
    fields.data, fields.owner = source.data, owner
    fields.kind, fields.flags = _OWNER_OBJECT, _CONTIGUOUS | MOVED
    return result


def _share(array: Any) -> Any:
    """A plain array as a tensor in the same memory; NotImplemented for another one, which the slow path takes."""
    attach(native())
    return native().from_array(array)


class DonatingCall:
    """The call of a program for the CPU to which tensors are donated."""

    def __init__(self, call: Callable[..., Any], donation: Donation, names: Sequence[str]) -> None:
        """`call` is the builtin of the program; `names` are those of its arguments."""
        self._call, self._donation, self._names = call, donation, names

    def __call__(self, *arguments: Any) -> Any:
        """The results; NotImplemented for arguments that are not tensors, or do not fit."""
        donation, facts = self._donation, _facts_of(arguments)
        if len(facts) != len(self._names):
            # Arrays of NumPy are shared: batches are, and the slow path to a call takes ten times as long.
            arguments = tuple([_share(one) if is_array(one) else one for one in arguments])
            facts = _facts_of(arguments)
            if len(facts) != len(self._names):
                return NotImplemented
        donation.check(self._names, [(one[0], one[0] + one[2]) for one in facts])
        prepared = list(arguments)
        for number in donation.given:
            if not _is_own(facts[number][5], facts[number][4]):
                prepared[number] = prepared[number].copy()
        try:
            made: Any = self._call(*prepared)
        except BaseException:
            # It ran, and did not come to its end: what it wrote over is not what it was, and is no result either.
            for number in donation.given:
                if prepared[number] is arguments[number]:
                    _fields_of(arguments[number]).flags = CONSUMED
            raise
        if made is NotImplemented:
            return made
        is_alone = made.__class__ is Tensor
        results: list[Any] = [made] if is_alone else [*made]
        for result, number in donation.kept:
            results[result] = _take(prepared[number], results[result])
        consume(arguments, donation.given)
        return results[0] if is_alone else tuple(results)
