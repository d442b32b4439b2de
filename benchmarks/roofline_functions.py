"""The part of the roofline audit that is of functions written with ops: one grid of shapes, axes, dtypes, layouts.

How a function is called is what drawn programs know (`benchmarks/drawn/functions.py`): here its sizes fill the bytes
of a target, and turns choose its axes and arguments.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from benchmarks.drawn.drawing import Placing
from benchmarks.drawn.functions import FUNCTIONS, place_function
from benchmarks.drawn.peers import ours
from benchmarks.drawn.program import Builder, Program
from benchmarks.drawn.sizes import Limits
from benchmarks.roofline_cases import STYLES, TARGETS, USUAL
from tessera.api.jit import Jit
from tessera.diagnostics.error import TesseraError
from tessera.ir.base.arrays import Array
from tessera.types.dtype import BY_NAME, DType
from tests.graph.eager import RuleDTypeError, RuleError

TURNS = 2
"""Choices of axes and arguments: the last axis and the first option of each, and the others."""


@dataclass(frozen=True)
class FunctionCase:
    """One call of the grid: a function, its dtype, the bytes it may take, and what is unusual about it."""

    op: str
    dtype: DType
    target: str = USUAL
    style: str = STYLES[0]
    turn: int = 0
    is_transposed: bool = False

    @cached_property
    def placed(self) -> Program:
        """The call; raises where the function takes no such one."""
        # What a layout of operands adds in steps is part of the program.
        rng, limits = np.random.default_rng(0), Limits(TARGETS[self.target], float("inf"))
        placing = Placing(rng, Builder(), self.dtype, limits)
        placing.style, placing.turn, placing.transposed = self.style, self.turn, self.is_transposed
        return place_function(self.op, placing)

    @property
    def sizes(self) -> Mapping[str, int]:
        """No symbols: all sizes are numbers."""
        return {}

    @property
    def name(self) -> str:
        return f"ops.{self.placed.name}"

    @property
    def whole(self) -> tuple[float, float]:
        """What the function must do at least: operations, and bytes of operands and results."""
        return self.placed.flops, self.placed.bytes

    def program(self) -> Jit:
        """The call as a jitted function."""
        return Jit(self.placed.bind([ours(step) for step in self.placed.steps], by_name=True))

    def arrays(self) -> list[Array]:
        """The arguments."""
        return self.placed.arrays(zlib.crc32(self.name.encode()))


def function_cases(
    names: Sequence[str] = (), targets: Sequence[str] = tuple(TARGETS), most_flops: float = float("inf")
) -> list[FunctionCase]:
    """The grid of functions, the usual first; names are those of some."""
    found: list[tuple[tuple[int, int], FunctionCase]] = []
    for name in sorted(FUNCTIONS):
        if names and name not in names:
            continue
        seen = set[str]()
        for unusual, case in _of_function(name, targets):
            try:
                key = case.name
            except (TesseraError, RuleError, RuleDTypeError):
                continue
            is_small = case.placed.bytes <= 2 * TARGETS[case.target] and case.placed.flops <= most_flops
            if key not in seen and is_small:
                seen.add(key)
                found.append(((unusual, zlib.crc32(key.encode())), case))
    found.sort(key=lambda item: item[0])
    return [case for _, case in found]


def _of_function(name: str, targets: Sequence[str]) -> Iterator[tuple[int, FunctionCase]]:
    first, *others = FUNCTIONS[name].dtypes
    for dtype in (first, *others):
        for target, style, turn, is_transposed in _choices(targets):
            unusual = (target != USUAL) + (style != STYLES[0]) + (turn > 0) + is_transposed + (dtype != first)
            if unusual <= 1:
                yield unusual, FunctionCase(name, BY_NAME[dtype], target, style, turn, is_transposed)


def _choices(targets: Sequence[str]) -> Iterator[tuple[str, str, int, bool]]:
    yield from ((target, STYLES[0], 0, False) for target in targets)
    usual: Any = USUAL if USUAL in targets else next(iter(targets), USUAL)
    yield from ((usual, style, 0, False) for style in STYLES[1:])
    yield from ((usual, STYLES[0], turn, False) for turn in range(1, TURNS))
    yield (usual, STYLES[0], 0, True)
