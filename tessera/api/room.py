"""Caches that are given up to a call: that what it appends has room is known before anything is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tessera.api.state import check_length, known_length
from tessera.diagnostics.codes import GuardError
from tessera.ir.base.tape import DONATED, Record, Tape
from tessera.runtime.donation import DonatingCall
from tessera.types.dim import Dim
from tessera.types.frozen import frozen

_MOVES = ("tgraph.kv_offload", "tgraph.kv_prefetch")


@frozen
class _Growth:
    """A cache that a program gives back longer: the numbers of its arguments, how much, and where sizes are read."""

    keys: int
    length: int
    more: Dim
    known: int | None
    sizes: Mapping[str, tuple[int, int]]

    def after(self, tensors: Sequence[Any]) -> int | None:
        """The length afterwards; None where it lies in a GPU's memory, for which nobody should wait."""
        before = known_length(tensors[self.length])
        if before is None or self.known is not None:
            return None if before is None else before + (self.known or 0)
        return before + self.more.evaluate({name: tensors[at].shape[axis] for name, (at, axis) in self.sizes.items()})


@frozen
class Room:
    """What a program appends to caches that it is given for good."""

    growths: tuple[_Growth, ...]

    def is_enough(self, tensors: Sequence[Any]) -> bool:
        """Whether all of it fits; raises DonatedError (T0713) for a cache that is spent."""
        for one in self.growths:
            keys = tensors[one.keys]
            if getattr(keys, "address", None) is None or len(keys.shape) != 4:
                return False
            after = one.after(tensors)
            if after is not None and after > keys.shape[2]:
                return False
        return True

    def check(self, tensors: Sequence[Any]) -> None:
        """Raises GuardError (T0702) where something does not fit; the cache is still whole."""
        if self.is_enough(tensors):
            return
        for one in self.growths:
            after = one.after(tensors)
            if after is not None:
                check_length(tensors[one.keys], after)

    def before(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """The call of a program, which leaves to the checked way what has no room; on a GPU nobody knows."""
        if not isinstance(call, DonatingCall):
            return call

        def call_with_room(*tensors: Any) -> Any:
            return call(*tensors) if self.is_enough(tensors) else NotImplemented

        return call_with_room


def room_of(tape: Tape) -> Room | None:
    """What a program appends to caches among its arguments that are given up; None where that is nothing."""
    given, numbers = tape.promises[DONATED], {value: number for number, value in enumerate(tape.inputs)}
    found = dict(numbers)  # keys and lengths by the argument that they come from
    grown: dict[int, _Growth] = {}
    sizes: dict[str, tuple[int, int]] = {}
    for number, value in enumerate(tape.inputs):
        for axis, dim in enumerate(tape.types[value].shape):
            sizes.setdefault(str(dim), (number, axis))
    for record in tape.records:
        if record.op in _MOVES:
            for operand, result in zip(record.operands, record.results, strict=True):
                found.update({result: found[operand]} if operand in found else {})
                grown.update({result: grown[operand]} if operand in grown else {})
        elif record.op == "tgraph.kv_append":
            _grow(tape, record, found, grown, sizes)
    growths = tuple(grown[value] for value in tape.outputs if value in grown and grown[value].keys in given)
    return Room(growths) if growths else None


def _grow(
    tape: Tape, record: Record, found: dict[int, int], grown: dict[int, _Growth], sizes: Mapping[str, tuple[int, int]]
) -> None:
    """Note the results of an `append`, where its cache comes from arguments and its sizes are theirs."""
    keys, length, new = record.operands[0], record.operands[2], record.operands[3]
    more = tape.types[new].shape[2]
    if length in grown:
        more = grown[length].more + more
    if keys not in found or length not in found or not more.symbols <= sizes.keys():
        return
    found[record.results[0]], found[record.results[2]] = found[keys], found[length]
    read = {name: sizes[name] for name in more.symbols}
    grown[record.results[2]] = _Growth(found[keys], found[length], more, more.value, read)


def saying_what_is_gone(result: Callable[[Sequence[Any]], Any]) -> Callable[[Sequence[Any]], Any]:
    """What makes a result, of a program that arguments are given up to: where it refuses, they are gone already."""

    def made(outputs: Sequence[Any]) -> Any:
        try:
            return result(outputs)
        except GuardError as error:
            gone = "this was seen after the run: what `donate` names was given up to the call, and is gone"
            raise error.with_notes(gone) from None

    return made
