"""The canonical form of a group's body: sizes renamed by their first use, so that equal groups are equal."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, cast

from tessera.ir.base.tape import Guard, Record, Tape
from tessera.ir.base.tape_text import tape_text
from tessera.ir.schedule.emit.evaluate import spec_of
from tessera.ir.tile.facets import View
from tessera.types.dim import Dim, Monomial
from tessera.types.tensor_type import TensorType

_LONGEST = 40
"""Characters of a kernel's name before its digest."""


def canonicalize(body: Tape) -> tuple[Tape, dict[str, Dim]]:
    """The body with sizes `s0`, `s1`, ..., and what each of them is in the original.

    A size that a guard proves to be a multiple of a number is written as that number times a size: whatever is made
    from the body then knows that there is no remainder, and guards that hold by that are dropped.
    """
    names: dict[str, str] = {}
    for type in body.types:
        _name_sizes(type.shape, names)
    for record in body.records:
        for _, value in sorted(record.attributes.items()):
            _name_sizes(value, names)
    factors = multiples(body.guards)
    tape = with_sizes(body, {old: Dim.symbol(new) * factors.get(old, 1) for old, new in names.items()})
    tape.guards = [guard for guard in tape.guards if guard.left != guard.right]
    tape.names = [f"a{number}" for number in range(len(body.inputs))]
    return tape, {new: Dim.symbol(old) // factors.get(old, 1) for old, new in names.items()}


def multiples(guards: Iterable[Guard]) -> dict[str, int]:
    """Numbers above 1 that sizes are multiples of, by guards `size % number == 0` or `number*(size // number) == size`.

    >>> N = Dim.symbol("N")
    >>> multiples([Guard(N % 6, Dim.constant(0), ""), Guard(4 * (N // 4), N, ""), Guard(N, N * N, "")])
    {'N': 12}
    """
    found: dict[str, int] = {}
    for guard in guards:
        gap = guard.left - guard.right
        for monomial, coefficient in gap.terms:
            size, number = _divided(monomial)
            if number > 1 and _is_remainder(gap if coefficient > 0 else -gap, Dim.symbol(size), number):
                found[size] = math.lcm(found.get(size, 1), number)
    return found


def _is_remainder(gap: Dim, size: Dim, number: int) -> bool:
    return gap in (size % number, size // number * number - size)


def _divided(monomial: Monomial) -> tuple[str, int]:
    """The size and the number of a lone `size % number` or `size // number`; the number is 1 for anything else."""
    if len(monomial) == 1 and monomial[0].kind in ("mod", "floordiv"):
        above, below = monomial[0].args
        if above.symbol_name is not None and (below.value or 0) > 1:
            return above.symbol_name, below.value or 1
    return "", 1


def with_sizes(tape: Tape, env: Mapping[str, Dim]) -> Tape:
    """The tape with other dims in place of some sizes, in bodies of control flow too."""
    return Tape(
        inputs=list(tape.inputs),
        names=list(tape.names),
        records=[_renamed(record, env) for record in tape.records],
        outputs=list(tape.outputs),
        types=[type.substitute(env) for type in tape.types],
        guards=[Guard(g.left.substitute(env), g.right.substitute(env), g.what) for g in tape.guards],
    )


_COORDINATE = re.compile(r"(?:[dbmnkt]\d+|_.*)$")
"""Names of coordinates in index maps."""


def with_safe_sizes(tape: Tape) -> Tape:
    """The tape with sizes renamed that look like coordinates of index maps: `d0` becomes `d0.size`."""
    names: dict[str, str] = {}
    for type in tape.types:
        _name_sizes(type.shape, names)
    taken = {name: Dim.symbol(f"{name.lstrip('_')}.size") for name in names if _COORDINATE.match(name)}
    return with_sizes(tape, taken) if taken else tape


def _name_sizes(value: Any, names: dict[str, str]) -> None:
    """Give each size in a value that has none yet the next name."""
    if isinstance(value, Dim):
        for monomial, _ in value.terms:
            for atom in monomial:
                if atom.kind == "symbol":
                    names.setdefault(atom.name, f"s{len(names)}")
                else:
                    _name_sizes(atom.args, names)
    elif isinstance(value, TensorType):
        _name_sizes(value.shape, names)
    elif isinstance(value, tuple | list):
        for part in cast("Iterable[Any]", value):
            _name_sizes(part, names)


def _renamed(record: Record, env: Mapping[str, Dim]) -> Record:
    attributes = {name: _substituted(value, env) for name, value in record.attributes.items()}
    return Record(record.op, record.operands, attributes, record.results, record.span, record.policy)


def _substituted(value: Any, env: Mapping[str, Dim]) -> Any:
    if isinstance(value, Dim | TensorType):
        return value.substitute(env)
    if isinstance(value, Tape):
        return with_sizes(value, env)
    if isinstance(value, tuple | list):
        return tuple(_substituted(part, env) for part in cast("Iterable[Any]", value))
    return value


def files_of(body: Tape) -> tuple[str, ...]:
    """The files of the user that ops of a body carry the location of."""
    checks = [record.attributes.get("checked") for record in body.records]
    return tuple(one["place"][0] for one in checks if one is not None and one.get("place") is not None)


def name_of(body: Tape, kind: str, axes: tuple[int, ...]) -> str:
    """The name of the kernel of a canonical body: its ops, and a digest that differs wherever the body does.

    Only the files of locations in debug builds are left out, so that a program has one name wherever it is stored.
    """
    text = tape_text(body)
    for file in files_of(body):
        text = text.replace(file, "")
    digest = hashlib.sha256(f"{kind} {axes}\n{text}".encode()).hexdigest()[:10]
    words: list[str] = []
    for record in body.records:
        word = record.op.split(".", 1)[1]
        if record.operands and not isinstance(spec_of(record).lower, View) and word not in words:
            words.append(word)
    text = "_".join(words) or kind
    while len(text) > _LONGEST and "_" in text:
        text = text.rpartition("_")[0]
    return f"{text[:_LONGEST]}_{digest}"
