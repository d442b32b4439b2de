"""Constraints and objectives of a search: parsed from what a user writes, and checked against what a plan comes to."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tessera.diagnostics.codes import TuningError
from tessera.diagnostics.error import find_nearest
from tessera.types.frozen import frozen

QUANTITIES: Mapping[str, str] = {
    "HBM_util": "the fraction of the device's memory that tensors and temporaries take",
    "link_util": "the fraction of the time in which the link between devices is at work",
    "occupancy": "the fraction of warps that a multiprocessor holds of those that it could",
    "latency": "nanoseconds",
    "latency_ms": "milliseconds",
    "bytes_moved": "bytes from and to the memory of the device, and over links",
    "memory": "bytes that tensors and temporaries take",
}
"""What a plan comes to, by name: constraints bound it, and objectives make it small."""
DETERMINISTIC = "deterministic"
"""The constraint that all bits are those of the safe plan."""
OBJECTIVES = ("latency", "latency_ms", "bytes_moved", "memory")

_COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "<": operator.lt,
    ">": operator.gt,
}
_UNITS = {"": 1.0, "%": 0.01, "KB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_BOUND = re.compile(r"\s*(<=|>=|==|<|>)\s*([0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)\s*(%|[KMG]i?B)?\s*")


@frozen
class Bound:
    """A quantity, a comparison and a number: `HBM_util < 0.85`."""

    quantity: str
    comparison: str
    limit: float

    def broken_by(self, values: Mapping[str, float]) -> str:
        """What a plan has that it must not, with both numbers; empty where the bound holds, or nobody knows."""
        value = values.get(self.quantity)
        if value is None or _COMPARISONS[self.comparison](value, self.limit):
            return ""
        return f"{self.quantity} is {value:.4g}, and must be {self.comparison} {self.limit:.4g}"


@frozen
class Constraints:
    """What every plan must keep: bounds, and whether bits may change."""

    bounds: tuple[Bound, ...] = ()
    deterministic: bool = True

    @staticmethod
    def parse(given: Mapping[str, Any] | None) -> Constraints:
        """Of `{"HBM_util": "<0.85", "deterministic": True}`; raises TuningError (T0803) for what says nothing."""
        if given is not None and not isinstance(given, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TuningError(
                f"`constraints` are bounds by the names of quantities, got {given!r}",
                fix='write `constraints={"HBM_util": "<0.85", "deterministic": True}`',
            )
        bounds: list[Bound] = []
        deterministic = True
        for name, value in (given or {}).items():
            if name == DETERMINISTIC:
                deterministic = _read_switch(value)
            else:
                bounds.append(_read_bound(name, value))
        return Constraints(tuple(bounds), deterministic)

    def refusal(self, values: Mapping[str, float]) -> str:
        """The first bound that a plan breaks; empty where it keeps all."""
        return next((reason for bound in self.bounds if (reason := bound.broken_by(values))), "")


def _read_switch(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TuningError(
            f"the constraint `{DETERMINISTIC}` is True or False, got {value!r}", fix=f'write `"{DETERMINISTIC}": True`'
        )
    return value


def _read_bound(name: Any, value: Any) -> Bound:
    if name not in QUANTITIES:
        near = find_nearest(str(name), [*QUANTITIES, DETERMINISTIC])
        guess = f"did you mean `{near[0]}`? " if near else ""
        raise TuningError(
            f"nothing that a plan comes to is called `{name}`",
            fix=f"{guess}constraints are of {', '.join(QUANTITIES)}, or `{DETERMINISTIC}`",
        )
    found = _BOUND.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise TuningError(
            f"the constraint on `{name}` is a comparison with a number, got {value!r}",
            notes=(f"rule: `{name}` is {QUANTITIES[name]}",),
            fix=f'write `"{name}": "<0.85"`, with one of {", ".join(sorted(_COMPARISONS))}',
        )
    comparison, number, unit = found.groups()
    return Bound(str(name), comparison, float(number) * _UNITS[unit or ""])


def parse_objectives(given: Sequence[str] | Mapping[str, float]) -> dict[str, float]:
    """Weights by the names of objectives; those of a list count the same. Raises TuningError (T0803)."""
    pairs: dict[Any, Any] = (
        dict(given) if isinstance(given, Mapping) else dict.fromkeys([given] if isinstance(given, str) else given, 1.0)
    )
    if not pairs:
        raise TuningError("`objectives` names nothing to make small", fix='write `objectives=["latency"]`')
    for name, weight in pairs.items():
        if name not in OBJECTIVES:
            near = find_nearest(str(name), OBJECTIVES)
            guess = f"did you mean `{near[0]}`? " if near else ""
            raise TuningError(f"`{name}` is no objective", fix=f"{guess}objectives are {', '.join(OBJECTIVES)}")
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not weight > 0:
            raise TuningError(
                f"the weight of `{name}` is a positive number, got {weight!r}", fix=f'write `"{name}": 1.0`'
            )
    return {str(name): float(weight) for name, weight in pairs.items()}
