"""`Effects`: what code does besides computing, as a set with a lattice; usable alone, and on text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Self, cast

from tessera.diagnostics.codes import EffectError

KINDS = ("random", "io", "memory", "state", "collective")
"""Every kind of effect. `random` reads a random key, `io` interacts with the outside world, `memory` reads or writes
memory in place, `state` changes a named state (a key-value cache), `collective` waits for other ranks."""

_EFFECT = re.compile(r"\s*(?P<kind>[a-z]+)\s*(?:\(\s*(?P<resource>[^()\s][^()]*?)\s*\))?\s*")


class Effects(frozenset[str]):
    """A set of effects: a kind, or a kind of one resource such as `state(cache)`; a kind alone means all resources.

    The order is "does no more than": nothing is the bottom, all kinds are the top, `state(cache)` is below `state`.
    Sets compare and hash as sets of strings do.

    >>> Effects(["io"]) | Effects(["state(cache)"]) | Effects(["state"])
    {io, state}
    >>> Effects.parse("{random, io}") == {"io", "random"}
    True
    """

    __slots__ = ()

    def __new__(cls, effects: Iterable[str] = ()) -> Self:
        """The set of these; raises EffectError for what is no effect."""
        given = {_canonical(effect) for effect in _list_effects(effects)}
        return super().__new__(cls, (e for e in given if _kind(e) == e or _kind(e) not in given))

    @staticmethod
    def parse(text: str) -> Effects:
        """The set that a string names: `random, state(cache)`, with or without braces; `pure` and nothing are empty."""
        inner = text.strip()
        if inner.startswith("{") and inner.endswith("}"):
            inner = inner[1:-1].strip()
        return Effects(()) if inner in ("", "pure") else Effects(inner.split(","))

    def __str__(self) -> str:
        return ", ".join(sorted(self, key=_sort_key)) or "pure"

    def __repr__(self) -> str:
        return f"{{{', '.join(sorted(self, key=_sort_key))}}}"

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds alone, without resources."""
        return frozenset(_kind(effect) for effect in self)

    def has(self, kind: str) -> bool:
        """Whether there is an effect of a kind, whatever its resource."""
        return any(_kind(effect) == kind for effect in self)

    def covers(self, other: Iterable[str]) -> bool:
        """Whether `other` does no more than this."""
        return all(effect in self or _kind(effect) in self for effect in Effects(other))

    def join(self, *others: Iterable[str]) -> Effects:
        """What code does that does all of these, in whatever order."""
        return Effects((*self, *(effect for other in others for effect in other)))

    def meet(self, other: Iterable[str]) -> Effects:
        """What is in both."""
        right = Effects(other)
        return Effects((*(e for e in self if right.covers([e])), *(e for e in right if self.covers([e]))))

    def without(self, other: Iterable[str]) -> Effects:
        """What is left when `other` is suspended."""
        gone = Effects(other)
        return Effects(effect for effect in self if not gone.covers([effect]))

    def __or__(self, other: Iterable[str]) -> Effects:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self.join(other)

    def __and__(self, other: Iterable[str]) -> Effects:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self.meet(other)

    def __reduce__(self) -> tuple[type[Effects], tuple[list[str]]]:
        return Effects, (sorted(self),)


def _list_effects(effects: Any) -> Iterable[Any]:
    """Effects one by one; a string is one of them, not a list of letters."""
    if isinstance(effects, str) or not isinstance(effects, Iterable):
        raise EffectError(f"effects are given as a list of names, got {effects!r}", fix='write `["io", "random"]`')
    return cast("Iterable[Any]", effects)


def _canonical(effect: Any) -> str:
    match = _EFFECT.fullmatch(effect) if isinstance(effect, str) else None
    if match is None or match["kind"] not in KINDS:
        shown = f"`{effect.strip()}`" if isinstance(effect, str) else repr(effect)
        raise EffectError(
            f"{shown} is no effect; effects are {', '.join(KINDS)}", fix=f"write one of {', '.join(KINDS)}"
        )
    return f"{match['kind']}({match['resource']})" if match["resource"] else match["kind"]


def _kind(effect: str) -> str:
    return effect.partition("(")[0]


def _sort_key(effect: str) -> tuple[int, str]:
    return KINDS.index(_kind(effect)), effect


PURE = Effects()
"""The bottom: nothing but computing."""

ALL = Effects(KINDS)
"""The top: what is assumed of code that nobody knows."""

_ORDERED_WITH_IO = frozenset(KINDS) - {"random"}


def may_swap(left: Iterable[str], right: Iterable[str]) -> bool:
    """Whether two independent ops may be reordered.

    Draws depend on their keys alone, so `random` may be reordered with everything. `io` keeps its order with all else,
    since it is observable. Other effects stay in order with their own kind, unless both name a resource and the
    resources differ.
    """
    before, after = (one if isinstance(one, Effects) else Effects(one) for one in (left, right))
    return not any(_conflict(one, other) for one in before for other in after)


def _conflict(left: str, right: str) -> bool:
    kinds = {_kind(left), _kind(right)}
    if "random" in kinds:
        return False
    if "io" in kinds:
        return kinds <= _ORDERED_WITH_IO
    return len(kinds) == 1 and (left == right or left in KINDS or right in KINDS)


_FUNCTION = re.compile(r"^\s*(?:\w+\.func|\w+\.kernel|tsched\.module)\s+@(?P<name>[\w.$-]+)")
_OP = re.compile(r"^\s*(?:%[^=]*=\s*)?\"?(?P<name>[a-z]\w*\.[a-z]\w*)\"?")
_SYMBOL = re.compile(r"@(?P<name>[\w.$-]+)")
_COMMENT = re.compile(r"//.*")


def effects_in_text(text: str, table: Mapping[str, Iterable[str]]) -> dict[str, Effects]:
    """The effects of every function of an IR text, one op a line, from a table of those of ops.

    A function has what its ops have, and what the functions of the same text have that its ops name. An op that is not
    in the table has every effect. Nothing is parsed beyond names, so any dialect will do.

    >>> effects_in_text('tgraph.func @f(%x: T) {\\n  %0 = my.op %x\\n}', {})["f"] == ALL
    True
    """
    own: dict[str, Effects] = {}
    calls: dict[str, set[str]] = {}
    at = ""
    for line in text.splitlines():
        line = _COMMENT.sub("", line)
        function, op = _FUNCTION.match(line), _OP.match(line)
        if function is not None:
            at = function["name"]
            own[at], calls[at] = own.get(at, PURE), set()
        elif op is not None and at:
            own[at] = own[at].join(table.get(op["name"], ALL))
            calls[at] |= {match["name"] for match in _SYMBOL.finditer(line)}
    return _close_over_calls(own, calls)


def _close_over_calls(own: Mapping[str, Effects], calls: Mapping[str, set[str]]) -> dict[str, Effects]:
    """The least sets in which a caller has all that the called have; functions may call each other."""
    found = dict(own)
    changed = True
    while changed:
        changed = False
        for name, called in calls.items():
            joined = found[name].join(*(found[other] for other in called if other in found))
            changed = changed or joined != found[name]
            found[name] = joined
    return found


def report(text: str) -> list[str]:
    """What functions do, from lines `name: effects and names of others`, and answers to questions about them.

    `? f <= g` asks whether `f` does no more than `g`, `? f >< g` whether they commute; operands are names or
    effects, and `#` begins a comment. Raises EffectError at a name that stands for nothing.

    >>> report("load: memory; step: io, load; ? load <= step; ? step >< random")
    ['load: memory', 'step: io, memory', 'load <= step: yes', 'step >< random: yes']
    """
    lines = [part.strip() for line in text.splitlines() for part in line.split("#")[0].split(";")]
    written = dict(line.split(":", 1) for line in lines if ":" in line and not line.startswith("?"))
    names = {name.strip(): [item.strip() for item in listed.split(",")] for name, listed in written.items()}
    parts = {name: [item for item in items if item not in names] for name, items in names.items()}
    found = _close_over_calls(
        {name: Effects.parse(", ".join(items)) for name, items in parts.items()},
        {name: {item for item in items if item in names} for name, items in names.items()},
    )
    questions = [line[1:].strip() for line in lines if line.startswith("?")]
    answers = [f"{asked}: {'yes' if _answer(asked, found) else 'no'}" for asked in questions]
    return [*(f"{name}: {effects}" for name, effects in found.items()), *answers]


def _answer(question: str, found: Mapping[str, Effects]) -> bool:
    for sign in ("<=", "><"):
        if sign in question:
            operands = [one.strip() for one in question.split(sign)]
            left, right = (found[one] if one in found else Effects.parse(one) for one in operands)
            return right.covers(left) if sign == "<=" else may_swap(left, right)
    raise EffectError(f"`{question}` asks nothing; write `f <= g` or `f >< g`")


def main() -> int:
    """`python -m tessera.types.effect < FILE`: report on what is typed; 2 for what is no effect."""
    import sys  # noqa: PLC0415 - for the command alone

    try:
        print("\n".join(report(sys.stdin.read())))
    except EffectError as error:
        print(error.message, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
