"""`Options`: what a compilation may be given, in one frozen value that is wholly part of the cache key."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields, replace
from typing import Any, TypeAlias

from tessera.compiler.backend import backend_for_kind, manifests
from tessera.diagnostics.codes import OverrideError
from tessera.diagnostics.error import Fix, Span, find_nearest
from tessera.types.device import Device
from tessera.types.frozen import frozen

_SILENT = ("memory", "offload", "largest_contraction", "tuned", "plan")
"""Options that are left out of the text, and change no key, where they say nothing."""

Knob: TypeAlias = "int | float | str | bool | tuple[int, ...]"


@frozen
class Options:
    """Every choice that changes the code; a choice that does not (threads, paths) is a setting, not an option.

    `overrides` fixes choices of the schedule by name, as a sorted tuple of pairs. `features` replaces what the machine
    was found to have: a level (`("x86-64-v3",)`) or all that one needs, as one less is code for the level below; None
    keeps it. `debug` proves tile kernels in bounds and free of races, looks at positions that they read from memory
    before they run, and lets waits on a GPU that never end say where.
    `fast_math` rounds `a * b + c` once: faster, and other bits than the reference's. `memory` is how many bytes the
    workspace may have: the backward part of a gradient rematerializes as little as fits. With `offload` values that
    wait long for their next use are moved to host memory first, and only what that leaves is rematerialized.
    `largest_contraction` is how many bytes a product may have of which far smaller results alone are needed, as a loss
    is of logits: one that has more is computed in chunks. None is 2 GiB. `tuned` is the plan that a tuner found:
    choices as `overrides` are, which come before them, and which come before what models say. `plan` is the text of a
    plan, which the program is compiled by: its groups, their order, tiles and pipelines.

    >>> Options.of(fusion=False, overrides={"tile.n": 64}).text
    '{"backend":"cpu","debug":false,"fast_math":false,"features":null,"fusion":false,"overrides":[["tile.n",64]]}'
    """

    backend: str = "cpu"
    fusion: bool = True
    debug: bool = False
    fast_math: bool = False
    features: tuple[str, ...] | None = None
    overrides: tuple[tuple[str, Knob], ...] = ()
    memory: int | None = None
    offload: bool = False
    largest_contraction: int | None = None
    tuned: tuple[tuple[str, Knob], ...] = ()
    plan: str | None = None

    def __post_init__(self) -> None:
        _check(self)

    @staticmethod
    def of(**given: Any) -> Options:
        """Options from keywords; `overrides` may be a mapping, and `target` is another word for `backend`.

        Raises `OverrideError` (T0402) for an unknown name.
        """
        if "target" in given:
            given["backend"] = given.pop("target")
        check_names(given)
        for name in ("overrides", "tuned"):
            if name in given:
                given[name] = _sorted_pairs(given[name])
        if given.get("features") is not None:
            given["features"] = _features(given["features"])
        return Options(**given)

    def override(self, knob: str) -> Knob | None:
        """The value that a choice is overridden with, or None."""
        return dict(self.overrides).get(knob)

    @property
    def text(self) -> str:
        """One line that two options share exactly when they are equal."""
        silent = {name for name in _SILENT if (value := getattr(self, name)) is None or value is False or value == ()}
        given = {name: value for name, value in asdict(self).items() if name not in silent}
        return json.dumps(given, sort_keys=True, separators=(",", ":"))

    @property
    def label(self) -> str:
        """The text, with no more of a plan than what tells it from others."""
        if self.plan is None:
            return self.text
        return replace(self, plan=f"sha256:{hashlib.sha256(self.plan.encode()).hexdigest()[:16]}").text

    @staticmethod
    def parse(text: str) -> Options:
        """The options that `text` was made from."""
        try:
            return Options.of(**json.loads(text))
        except OverrideError:
            raise
        except (TypeError, ValueError) as error:
            raise OverrideError(
                f"{text!r} is no text of options: {error}", fix="give what `options.text` gave"
            ) from None


def check_names(given: Iterable[str], beside: Sequence[str] = ()) -> None:
    """Raise `OverrideError` (T0402) for a name that no option has; `beside` are other names that the caller takes."""
    options = [field.name for field in fields(Options)]
    unknown = next((name for name in given if name not in options and name != "target"), None)
    if unknown is not None:
        known = [*beside, *options]
        raise OverrideError(f"there is no option `{unknown}`", fix=lambda span: _nearest(span, unknown, known))


def for_device(options: Options, device: Device | None) -> Options:
    """The options of what runs on a device; those that name a backend of their own keep it."""
    if device is None or options.backend != Options().backend:
        return options
    return replace(options, backend=backend_for_kind(device.kind).name)


_BY_NUMBER = {"static_argnums": "static_argnames", "donate_argnums": "donate"}
"""Options of other libraries that number arguments, and those that name them here."""


def _nearest(span: Span | None, name: str, known: Sequence[str]) -> Fix | str:
    """The option whose name is nearly the one given."""
    from tessera.diagnostics.edit import expression_at  # noqa: PLC0415 - for errors alone

    advice, expression = f"the options are {', '.join(known)}", expression_at(span)
    part = expression.keyword(name) if expression is not None else None
    close = find_nearest(name, known, cutoff=0.5)
    value = expression.argument(name) if expression is not None else None
    if name in _BY_NUMBER and (value is None or not re.search(r"['\"]", value.text)):
        return f'arguments are named, not numbered: write `{_BY_NUMBER[name]}="x"` with the name of the parameter'
    return (part.edit(close[0], f"there is an option `{close[0]}`") if part is not None and close else None) or advice


def _check(made: Options) -> None:
    backend: Any = made.backend
    if not isinstance(backend, str):
        names = ", ".join(sorted(one.name for one in manifests()))
        raise OverrideError(f"`backend` is a name, got {backend!r}", fix=f"the backends are {names}")
    for name in ("fusion", "debug", "fast_math", "offload"):
        value = getattr(made, name)
        if not isinstance(value, bool):
            raise OverrideError(f"`{name}` is True or False, got {value!r}", fix=f"write `{name}=True`")
    for name in ("memory", "largest_contraction"):
        bytes: Any = getattr(made, name)
        if bytes is not None and (isinstance(bytes, bool) or not isinstance(bytes, int) or bytes < 0):
            raise OverrideError(f"`{name}` is a number of bytes, got {bytes!r}", fix=f"write `{name}=2**30`")
    plan: Any = made.plan
    if plan is not None and not (isinstance(plan, str) and plan.strip()):
        raise OverrideError(
            f"`plan` is the text of a plan, got {plan!r}"[:120],
            fix="give what `fn.schedule(...)` gave, or the text of a file that `tessera schedule export` wrote",
        )
    if plan is not None and made.memory is not None:
        raise OverrideError(
            "`memory` decides what is rematerialized and in chunks, and a `plan` is of a program where that is decided",
            fix="leave one of them out",
        )
    if made.offload and made.memory is None:
        raise OverrideError(
            "`offload` moves values to host memory until the workspace fits, and there is no `memory` to fit into",
            fix="write `memory=2**30, offload=True`",
        )


def _features(given: Any) -> tuple[str, ...]:
    """Names of features in order, those of a level in its place; a text alone would be taken for its letters."""
    names: Any = given
    listed: list[Any] = sorted(names, key=str) if isinstance(given, list | tuple | set | frozenset) else [None]
    if not all(isinstance(name, str) for name in listed):
        raise OverrideError(f"`features` are names, got {given!r}", fix='write `features=("x86-64-v3",)`')
    from tessera.ir.target.architectures import features_named  # noqa: PLC0415 - most programs name no features

    return tuple(sorted({feature for name in listed for feature in features_named(name)}))


def _sorted_pairs(overrides: Any) -> tuple[tuple[str, Knob], ...]:
    try:
        pairs: Iterable[tuple[str, Any]] = dict(overrides).items()
    except (TypeError, ValueError):
        raise OverrideError(
            f"`overrides` are values by the names of choices, got {overrides!r}",
            fix='write `overrides={"map.tile": 64}`',
        ) from None
    return tuple(sorted((str(knob), _frozen(value)) for knob, value in pairs))


def _frozen(value: Any) -> Knob:
    items: Any = value
    return tuple(int(item) for item in items) if isinstance(value, list | tuple) else value
