"""The order of what groups do besides computing: which records must run one after the other though no value says so."""

from __future__ import annotations

from tessera.ir.base.tape import Record, Tape
from tessera.ir.schedule.emit.evaluate import spec_of
from tessera.types.effect import Effects, may_swap


def record_effects(record: Record) -> Effects:
    """What a record does, its bodies included, as far as it keeps an order: draws do not."""
    return Effects(_collect(record)).without(["random"])


def _collect(record: Record) -> set[str]:
    found = set(spec_of(record).effects)
    for value in record.attributes.values():
        if isinstance(value, Tape):
            for inner in value.records:
                found |= _collect(inner)
    return found


def is_exchange(record: Record) -> bool:
    """Whether a record waits for other ranks, of which it has more than one."""
    return "collective" in spec_of(record).effects and record.attributes["size"][0].value != 1


class EffectOrder:
    """Groups with effects in the order of the program, and which of them another has to wait for."""

    def __init__(self) -> None:
        self._earlier: list[tuple[int, Effects]] = []

    def add(self, group: int, record: Record) -> list[int]:
        """Note a group; the groups before it that may not change places with it."""
        effects = record_effects(record)
        if not effects:
            return []
        found = [other for other, theirs in self._earlier if not may_swap(effects, theirs)]
        self._earlier.append((group, effects))
        return found
