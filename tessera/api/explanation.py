"""The pages of `explain`: what runs for a call, what a function has been compiled to, and long formulas by name."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tessera.diagnostics.error import readable


@dataclass(frozen=True, slots=True, repr=False)
class Explanation:
    """What runs for a call: printed, it is a page; `report` is what the compiler says, by name."""

    signature: str
    key: str
    source: str
    options: str
    guards: tuple[str, ...]
    proved: tuple[str, ...]
    report: dict[str, Any]
    captured: tuple[str, ...] = ()
    static: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [self.signature, *(f"  static: {item}" for item in self.static)]
        lines += [f"  code: {self.source} (key {self.key[:16]})", f"  options: {self.options}"]
        lines += [f"  captured: {item}" for item in self.captured]
        lines += [f"  guard: {guard}" for guard in self.guards]
        lines += [f"  proved: {fact}" for fact in self.proved]
        told, named = name_formulas(
            [line for name, value in _split_groups(self.report).items() for line in _format(name, value)]
        )
        return readable("\n".join([*lines, *told, *_format("where", named)] if named else [*lines, *told]))

    __repr__ = __str__


_ROLE = re.compile(r" at .*\d, (derivative|tangent|backward|rematerialized)\b")


def _split_groups(report: Mapping[str, Any]) -> Mapping[str, Any]:
    """A report with the groups of a derivative apart: those of the program, and those that come of them."""
    groups: Sequence[str] = report.get("groups", ())
    made = [line for line in groups if _ROLE.search(line)]
    if not made:
        return report
    name = "backward" if any(", backward" in line for line in made) else "tangents"
    parts = {"forward": [line for line in groups if line not in made], name: made}
    return {**parts, **{key: value for key, value in report.items() if key != "groups"}}


@dataclass(frozen=True, slots=True, repr=False)
class Account:
    """What a function has been compiled to so far, printed as a page; `specializations` has an explanation of each."""

    function: str
    cache: Any
    specializations: tuple[Explanation, ...]

    def __str__(self) -> str:
        found = self.cache
        counts = f"hits {found.hits}, misses {found.misses}, of which compiled {found.compiles}"
        return "\n\n".join([f"{self.function}\n  calls: {counts}", *map(str, self.specializations)])

    __repr__ = __str__


def _format(name: str, value: Any) -> list[str]:
    if not isinstance(value, list):
        return [f"  {name}: {value}"]
    items: list[Any] = value  # pyright: ignore[reportUnknownVariableType]
    return [f"  {name}:", *(f"    {item}" for item in items)]


# Long formulas of sizes, named once and referred to: sizes of sizes repeat their parts many times.

LONG = 40
"""Characters from which a formula that is there twice gets a name: two lines of a page hold not much more."""
_BOUND = re.compile(r"(?:\b(?:max|min))?\(|\)")
_OPERATION = re.compile(r" (?:floordiv|mod) |^m(?:ax|in)\(")
_OTHER = re.compile(r"[^\w*+\-, ()']")


def name_formulas(lines: Sequence[str]) -> tuple[list[str], list[str]]:
    """The lines with names for long formulas that are in them more than once, and what the names stand for.

    The longest formula is named first, and then the long ones that are left, those within named formulas among them.
    What is quoted is no formula.

    >>> size = "(N*N + 1023*N + 511*M + 255) floordiv (N + M + 1)"
    >>> name_formulas([f"4*({size}) bytes", f"8*({size}) bytes"])
    (['4*s1 bytes', '8*s1 bytes'], ['s1 = (N*N + 1023*N + 511*M + 255) floordiv (N + M + 1)'])
    """
    texts, named = list(lines), list[str]()
    words = set(re.findall(r"\w+", " ".join(lines)))
    names = (name for number in range(1, len(words) + 10**6) if (name := f"s{number}") not in words)
    while True:
        counts = Counter(formula for text in (*texts, *named) for formula in _formulas_of(text))
        repeated = [formula for formula, count in counts.items() if count > 1]
        if not repeated:
            return texts, named
        longest, name = max(repeated, key=len), next(names)
        texts = [_replace(text, longest, name) for text in texts]
        meant = longest[1:-1] if longest.startswith("(") else longest
        named = [*(_replace(text, longest, name) for text in named), f"{name} = {meant}"]


def _formulas_of(text: str) -> Iterable[str]:
    """The long formulas of a text: quotients, remainders, maxima and minima, in the parentheses that dims have."""
    for part in text.split("`")[::2]:
        begun: list[int] = []
        for found in _BOUND.finditer(part):
            if found[0] != ")":
                begun.append(found.start())
            elif begun:
                formula = part[begun.pop() : found.end()]
                if len(formula) >= LONG and _OPERATION.search(formula) and not _OTHER.search(formula):
                    yield formula


def _replace(text: str, formula: str, name: str) -> str:
    parts = text.split("`")
    parts[::2] = [part.replace(formula, name) for part in parts[::2]]
    return "`".join(parts)
