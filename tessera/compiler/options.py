"""`Options`: what a compilation may be told, in one frozen value that is wholly part of the cache key."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, fields
from typing import Any, TypeAlias

from tessera.diagnostics.codes import OverrideError
from tessera.types.frozen import frozen

Knob: TypeAlias = "int | float | str | bool | tuple[int, ...]"


@frozen
class Options:
    """Every choice that changes the code; a choice that does not (threads, paths) is a setting, not an option.

    `overrides` fixes choices of the schedule by name, as a sorted tuple of pairs. `features` replaces what the machine
    was found to have (`("avx2", "fma")`), None keeps it. `debug` proves tile kernels in bounds and free of races.

    >>> Options.of(fusion=False, overrides={"tile.n": 64}).text
    '{"backend":"x86","debug":false,"features":null,"fusion":false,"overrides":[["tile.n",64]]}'
    """

    backend: str = "x86"
    fusion: bool = True
    debug: bool = False
    features: tuple[str, ...] | None = None
    overrides: tuple[tuple[str, Knob], ...] = ()

    @staticmethod
    def of(**given: Any) -> Options:
        """Options from keywords; `overrides` may be a mapping. Raises `OverrideError` (T0402) for an unknown name."""
        known = [field.name for field in fields(Options)]
        for name in given:
            if name not in known:
                raise OverrideError(f"there is no option `{name}`", fix=f"the options are {', '.join(known)}")
        if "overrides" in given:
            given["overrides"] = _sorted_pairs(given["overrides"])
        if given.get("features") is not None:
            given["features"] = tuple(sorted(given["features"]))
        return Options(**given)

    def override(self, knob: str) -> Knob | None:
        """The value a choice is fixed to, or None when it is free."""
        return dict(self.overrides).get(knob)

    @property
    def text(self) -> str:
        """One line that two options share exactly when they are equal."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))

    @staticmethod
    def parse(text: str) -> Options:
        """The options that `text` was made from."""
        return Options.of(**json.loads(text))


def _sorted_pairs(overrides: Any) -> tuple[tuple[str, Knob], ...]:
    pairs: Iterable[tuple[str, Any]] = dict(overrides).items()
    return tuple(sorted((str(knob), _frozen(value)) for knob, value in pairs))


def _frozen(value: Any) -> Knob:
    return tuple(int(item) for item in value) if _is_list(value) else value


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)
