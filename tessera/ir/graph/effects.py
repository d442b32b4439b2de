"""The effects of a tape, states by the name of the argument they belong to; needs no xDSL."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tessera.ir.base.tape import Record, Tape
from tessera.ir.graph.ops import REGISTRY
from tessera.types.effect import PURE, Effects


def tape_effects(tape: Tape) -> Effects:
    """What the records of a tape do, and those of its bodies: `state(cache)` where a state is an argument's.

    Nothing is said of a state that the program makes itself, but that there is one.
    """
    return _effects(tape, dict(zip(tape.inputs, map(_owner, tape.names), strict=True)))


def _effects(tape: Tape, owners: Mapping[int, str]) -> Effects:
    found, known = PURE, dict(owners)
    for record in tape.records:
        effects = Effects(REGISTRY[record.op].effects_for(record.attributes))
        if "state" in effects:
            owner = known.get(record.operands[0], "") if record.operands else ""
            known.update(dict.fromkeys(record.results, owner))
            effects = effects.without(["state"]).join([f"state({owner})" if owner else "state"])
        found = found.join(effects)
        for body in bodies_of(record):
            found = found.join(_effects(body, _inside(record, body, known)))
        _pass_on(record, known)
    return found


def _inside(record: Record, body: Tape, known: Mapping[int, str]) -> dict[int, str]:
    """The owners of what a body takes: its inputs are the last operands of its op, in order."""
    skipped = len(record.operands) - len(body.inputs)
    given = record.operands[skipped:] if skipped >= 0 else ()
    return {inner: known[outer] for inner, outer in zip(body.inputs, given, strict=False) if known.get(outer)}


def _pass_on(record: Record, known: dict[int, str]) -> None:
    """What control flow carries of a state is still that state."""
    count = record.attributes.get("carried")
    if isinstance(count, int):
        skipped = 2 if record.op.endswith(".fori") else 0
        carried = zip(record.results[:count], record.operands[skipped : skipped + count], strict=True)
        known.update({result: known[start] for result, start in carried if known.get(start)})


def bodies_of(record: Record) -> Iterator[Tape]:
    """The tapes among the attributes of a record."""
    for value in record.attributes.values():
        if isinstance(value, Tape):
            yield value


def _owner(path: str) -> str:
    """The object that a path of a call leads into: `cache.K` belongs to `cache`."""
    owner = path.rpartition(".")[0] or path
    return "" if set(owner) & set("(),{}") else owner
