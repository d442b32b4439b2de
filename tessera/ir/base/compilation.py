"""What one compilation carries along, without xDSL: choices, and no garbage collection."""

from __future__ import annotations

import gc
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from tessera.diagnostics.codes import OverrideError
from tessera.diagnostics.error import find_nearest
from tessera.types.frozen import frozen

# `Chooser`: how a pass asks for a size without knowing who answers, and how a user fixes the answer.


@frozen
class Choice:
    """An answer and who gave it: `override`, `default`, the name of a model, or `autotune`."""

    value: Any
    source: str


@frozen
class Question:
    """What a pass asked a chooser: the candidates, and what it was told, which is what it asked about."""

    candidates: tuple[Any, ...]
    choice: Choice
    context: Mapping[str, Any] = field(default_factory=dict[str, Any], compare=False)
    """What a model may look at: dims, dtypes, the machine."""


AUTOTUNE = "autotune"
"""The source of a choice that a tuner measured, compared with the bits of the safe plan, and found to pay."""


class Chooser(Protocol):
    """Whoever answers."""

    def choose(self, key: str, candidates: Sequence[Any], context: Mapping[str, Any]) -> Choice:
        """One of `candidates`, which are in order of preference.

        `key` names the knob, and after `@` the location that asks (`tile.n@group3`); `context` is what a model may look
        at (dims, dtypes, the machine).
        """
        ...


KNOBS: Mapping[str, str] = {
    "fusion.map": "whether an elementwise group is fused with others",
    "fusion.row": "whether a group of rows is fused with others",
    "fusion.contraction": "whether a contraction takes an epilogue",
    "fusion.assembly": "whether an operand of a contraction is put together from boxes where it is read",
    "fusion.library": "whether a kernel of the library, such as attention, takes an epilogue",
    "layout.order": "the order in memory of the dims of a tensor, for groups that read it across its own",
    "map.tile": "elements of a tile of an elementwise group",
    "row.columns": "columns of a tile of a reduction over rows",
    "row.levels": "steps of the tree over lanes of columns that a program does beside its rows",
    "row.runs": "leaves that a program reduces of a row which several share; 0 where one has it all",
    "contraction.block": "the block (M, N, K) of a contraction",
    "contraction.segment": "elements of a segment of K, which says in what order a contraction adds up",
    "contraction.computed": "the block of a contraction with an operand that threads compute: its rows first",
    "kernel.block": "the block of a user's kernel whose schedule names none",
    "pipeline.stages": "pipeline stages of a contraction's copies; 0 lets the machine decide",
    "attention.queries": "queries of a block of attention",
    "attention.backward": "the block of scores, rows and columns, of a gradient of attention by keys and values",
    "attention.backward_queries": "the same of one by queries",
    "scan.tile": "columns of a tile of a scan",
    "scatter.tile": "columns of a tile of a scatter",
    "sort.tile": "columns of a tile of a sort",
    "select.tile": "columns of a tile of a selection",
    "select.stretches": "stretches that a selection reads a row in",
    "topk.algorithm": "how the largest elements are found",
    "matrix.instruction": "the tensor cores, or tiles of a CPU, that dots run on",
    "matrix.multicast": "whether a cluster shares its loads",
    "matrix.roles": "whether a producer warp copies for the warps that multiply",
    "matrix.lag": "dots in flight on tensor cores",
    "matrix.epilogue": "where an epilogue on tensor cores runs",
    "math.exp": "how a GPU computes `exp`: exactly as the recipe, or by its own instruction",
    "launch.streams": "CUDA streams of a program",
    "collectives.chunks": "in how many chunks a contraction goes with the collectives beside it",
    "collectives.overlap": "whether kernels run while ranks communicate",
}
"""Every choice that a compilation makes and `overrides` may fix. One that is asked for and not declared is a bug."""


NUMERIC: Mapping[str, str] = {
    "contraction.segment": "segments of K say in which order products are added",
    "math.exp": "the GPU's own exp2 is within 4 ulp of the recipe",
}
"""Knobs that change bits, and why; all others are bit neutral. Nobody but a user, or fast mode, moves one of these."""


def knob_class(knob: str) -> str:
    """`numeric` where another choice gives other bits, and else `bit_neutral`; a location behind `@` does not matter.

    >>> knob_class("contraction.block@group3"), knob_class("contraction.segment")
    ('bit_neutral', 'numeric')
    """
    return "numeric" if knob.partition("@")[0] in NUMERIC else "bit_neutral"


Model: TypeAlias = Callable[[Sequence[Any], Mapping[str, Any]], Any]


@dataclass
class StaticChooser:
    """Answers from overrides, then from a tuned plan, the model of the knob, or the first candidate; it never measures.

    An override may name a knob (`tile.n`) or one location that asks for it (`tile.n@group3`); the latter wins. So does
    a tuned choice. Every question is kept with its candidates: they are the space that a tuner searches.
    """

    overrides: Mapping[str, Any] = field(default_factory=dict[str, Any])
    models: Mapping[str, tuple[str, Model]] = field(default_factory=dict[str, tuple[str, Model]])
    knobs: Mapping[str, str] | None = None
    """The knobs that may be asked for; any where it is None."""
    tuned: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What a tuner chose: below what a user says, and above all models."""
    questions: dict[str, Question] = field(default_factory=dict[str, Question], init=False)

    @property
    def asked(self) -> dict[str, Choice]:
        """The answers that were given."""
        return {key: question.choice for key, question in self.questions.items()}

    def choose(self, key: str, candidates: Sequence[Any], context: Mapping[str, Any]) -> Choice:
        if not candidates:
            raise ValueError(f"`{key}` was asked for without candidates")
        knob = key.partition("@")[0]
        assert self.knobs is None or knob in self.knobs, f"the knob `{knob}` is not declared in `KNOBS`"
        choice = self._find_given(key, candidates)
        if choice is None:
            named = self.models.get(knob)
            choice = Choice(candidates[0], "default") if named is None else _by_model(named, candidates, context)
        self.questions[key] = Question(tuple(candidates), choice, context)
        return choice

    def _find_given(self, key: str, candidates: Sequence[Any]) -> Choice | None:
        """What a user or a tuner says about a question; the user first, and of each the nearer name."""
        for given, source in ((self.overrides, "override"), (self.tuned, AUTOTUNE)):
            for name in (key, key.partition("@")[0]) if given else ():
                if name in given:
                    return Choice(_match_candidate(name, given[name], candidates), source)
        return None

    def check_overrides(self) -> None:
        """Raises OverrideError (T0402) for an override that no pass asked for; called when a compile has ended."""
        known = {name for key in self.questions for name in (key, key.partition("@")[0])}
        for name in (*self.overrides, *self.tuned):
            if name not in known:
                listed = ", ".join(sorted(known)) or "none"
                near = find_nearest(name, self.knobs or known)
                is_known = name.partition("@")[0] in (self.knobs or known)
                guess = "" if is_known or not near else f"did you mean `{near[0]}`? "
                raise OverrideError(
                    f"`{name}` is not a choice of this program", span=None, fix=f"{guess}its choices: {listed}"
                )


def _by_model(named: tuple[str, Model], candidates: Sequence[Any], context: Mapping[str, Any]) -> Choice:
    name, model = named
    value = model(candidates, context)
    assert value in candidates, f"the model {name} chose {value}, which is not a candidate"
    return Choice(value, name)


def _match_candidate(name: str, value: Any, candidates: Sequence[Any]) -> Any:
    plain = tuple(value) if isinstance(value, list) else value  # pyright: ignore[reportUnknownArgumentType,reportUnknownVariableType]
    for candidate in candidates:
        if candidate == plain:
            return candidate
    listed = ", ".join(map(str, candidates))
    raise OverrideError(f"`{name}` cannot be {value}", span=None, fix=f"it can be {listed}")


# Compiling without Python's garbage collector, which would walk every object made so far, over and over.


LARGE, MOST = 100_000, 1_000_000
"""Objects of a compilation from which on their collection is postponed, and of how many it is. They take some 250 bytes
each; a training step of GPT-2-small leaves 400,000, which are collected in 0.2 s."""
_postponed = 0


@contextmanager
def without_collection(*, postpones: bool = False) -> Generator[None]:
    """Within it nothing is collected: loading the compiler and building IR make many objects, and most of them live.

    With `postpones`, a great many of them are not looked at behind it either, when somebody waits for a first result,
    but by the next full collection, as old objects are. What there was before is collected first.
    """
    was_on = gc.isenabled()
    if was_on and postpones:
        gc.collect(1)
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            if postpones:
                _postpone_collection()
            gc.enable()


def _postpone_collection() -> None:
    global _postponed
    count = gc.get_count()[0]
    if count < LARGE or gc.get_freeze_count():  # what somebody else has frozen stays so
        return
    _postponed += count
    if _postponed > MOST:
        _postponed = 0
        gc.collect()
    else:
        gc.freeze()  # to where nothing is collected, and from there to the oldest generation: none is looked at
        gc.unfreeze()
