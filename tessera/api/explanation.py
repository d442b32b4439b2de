"""The pages of `explain`: what runs for a call, and what a function has been compiled to."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
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
        for name, value in _split_groups(self.report).items():
            lines += _format(name, value)
        return readable("\n".join(lines))

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
