"""`Options`: what a compilation may be told, in one frozen value that is wholly part of the cache key."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields, replace
from typing import Any, TypeAlias

from tessera.diagnostics.codes import OverrideError
from tessera.diagnostics.error import Fix
from tessera.diagnostics.span import Span
from tessera.types.device import Device
from tessera.types.frozen import frozen

Knob: TypeAlias = "int | float | str | bool | tuple[int, ...]"


@frozen
class Options:
    """Every choice that changes the code; a choice that does not (threads, paths) is a setting, not an option.

    `overrides` fixes choices of the schedule by name, as a sorted tuple of pairs. `features` replaces what the machine
    was found to have (`("avx2", "fma")`), None keeps it. `debug` proves tile kernels in bounds and free of races,
    and lets waits on a GPU that never end say where.
    `fast_math` rounds `a * b + c` once: faster, and other bits than the reference's.

    >>> Options.of(fusion=False, overrides={"tile.n": 64}).text
    '{"backend":"x86","debug":false,"fast_math":false,"features":null,"fusion":false,"overrides":[["tile.n",64]]}'
    """

    backend: str = "x86"
    fusion: bool = True
    debug: bool = False
    fast_math: bool = False
    features: tuple[str, ...] | None = None
    overrides: tuple[tuple[str, Knob], ...] = ()

    @staticmethod
    def of(**given: Any) -> Options:
        """Options from keywords; `overrides` may be a mapping, and `target` is another word for `backend`.

        Raises `OverrideError` (T0402) for an unknown name.
        """
        if "target" in given:
            given["backend"] = given.pop("target")
        known = [field.name for field in fields(Options)]
        unknown = next((name for name in given if name not in known), None)
        if unknown is not None:
            raise OverrideError(f"there is no option `{unknown}`", fix=lambda span: _nearest(span, unknown, known))
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


BACKENDS = {"gpu": "cuda", "cpu": "x86"}
"""Who compiles for a kind of device."""


def at_place(options: Options, place: Device | None) -> Options:
    """The options of what runs on a device; those that name a backend of their own keep it."""
    if place is None or options.backend != Options().backend:
        return options
    return replace(options, backend=BACKENDS[place.kind])


def _nearest(span: Span | None, name: str, known: Sequence[str]) -> Fix | str:
    """The option whose name is nearly the one given."""
    from difflib import get_close_matches  # noqa: PLC0415 - for errors alone

    from tessera.diagnostics.edit import expression_at  # noqa: PLC0415

    advice, expression = f"the options are {', '.join(known)}", expression_at(span)
    part = expression.keyword(name) if expression is not None else None
    close = get_close_matches(name, known, 1, 0.5)
    return (part.edit(close[0], f"there is an option `{close[0]}`") if part is not None and close else None) or advice


def _sorted_pairs(overrides: Any) -> tuple[tuple[str, Knob], ...]:
    pairs: Iterable[tuple[str, Any]] = dict(overrides).items()
    return tuple(sorted((str(knob), _frozen(value)) for knob, value in pairs))


def _frozen(value: Any) -> Knob:
    return tuple(int(item) for item in value) if _is_list(value) else value


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)
