"""Derivatives of one op with symbolic dims: a program that gives tangents and cotangents, and what they must be."""

# Traced functions have no types to give here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import tessera as ts
from tessera.api.jit import Jit
from tessera.compiler.options import Options
from tessera.ir.base.arrays import Array
from tessera.ir.base.spec import OpSpec
from tessera.types import dtype as dt
from tessera.types.dtype import DType
from tests.numerics.families import CONTROL, forms_of
from tests.numerics.forms import Case, Form, case_of, everything, free_program, numbers, positive
from tests.transforms.programs import differentiable_tape, tangents_of
from tests.transforms.test_every_op import SPECS, WITHOUT

POSITIVE = frozenset({"log", "log2", "log1p", "sqrt", "rsqrt", "pow", "div", "reciprocal"})
"""Ops that are differentiated at positive numbers."""
LEFT_OUT = frozenset({*CONTROL, *WITHOUT, "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "replicated"})
MOST_ELEMENTS = 3000


@dataclass(frozen=True)
class OpDerivative:
    """An op in a form: `run` takes its operands and a direction for each float."""

    spec: OpSpec
    dtype: DType
    form: Form

    @property
    def floats(self) -> list[int]:
        operands = self.form.operands
        return [at for at, one in enumerate(operands) if one.passed and one.dtype_in(self.dtype).is_float]

    def jitted(self, **options: Any) -> Jit:
        """One program for all sizes: results, tangents, and cotangents for the cosines of the results' positions."""
        op, about, count = free_program(self.spec, self.dtype, self.form), self.floats, len(self.form.operands)

        def run(*given: Any) -> Any:
            operands, directions = list(given[:count]), given[count:]

            def apply(*chosen: Any) -> tuple[Any, ...]:
                for at, value in zip(about, chosen, strict=True):
                    operands[at] = value
                found = op(*operands)
                every = found if isinstance(found, tuple | list) else (found,)
                return tuple(one for one in every if one.dtype.is_float)

            primals = tuple(operands[at] for at in about)
            values, tangents = ts.jvp(apply, primals, directions)
            pull = ts.vjp(apply, *primals)[1]
            return tuple(tangents), pull(tuple(map(_seed, values)))

        kept = list(inspect.signature(op.function).parameters.values())
        more = [kept[at].replace(name=f"direction_{at}") for at in about]
        run.__signature__ = inspect.Signature([*kept, *more])  # pyright: ignore[reportFunctionMemberAccess]
        return Jit(run, options=Options.of(**options))

    def numbers_of_sizes(self, count: int = 4) -> list[int]:
        """Which of the sizes to try: empty and single ones first, and no large ones."""
        sizes = self.form.sizes
        order = sorted(range(len(sizes)), key=lambda at: (0 not in sizes[at].values(), 1 not in sizes[at].values()))
        small = [at for at in order if self.form.elements(sizes[at]) <= MOST_ELEMENTS]
        empty = [at for at in small if 0 in sizes[at].values()][:1]
        single = [at for at in small if 1 in sizes[at].values() and at not in empty][:1]
        return [*empty, *single, *[at for at in small if at not in (*empty, *single)][: count - 2]]

    def case(self, number: int) -> tuple[Case, list[Array]]:
        """The arrays of one of the sizes, and directions."""
        case = case_of(self.spec, self.dtype, self.form, number)
        rng = np.random.default_rng(number)
        floats = [np.asarray(case.given[at]) for at in self.floats]
        return case, [np.asarray(rng.standard_normal(one.shape)).astype(one.dtype) for one in floats]

    def expected_tangents(self, case: Case, directions: Sequence[Array]) -> list[Array]:
        """Tangents of the results that are floats, by the rules at known sizes, interpreted in f64."""
        wide = [array.astype(np.float64) if _is_float(array) else array for array in case.arrays]
        tape = differentiable_tape(self.spec, case.attributes, wide)
        _, found = tangents_of(tape, wide, [direction.astype(np.float64) for direction in directions])
        kinds = [tape.types[output].dtype.is_float for output in tape.outputs[: len(found)]]
        return [one for one, kind in zip(found, kinds, strict=False) if kind]

    def check(self, number: int, tangents: Sequence[Any], cotangents: Sequence[Any]) -> None:
        """Raises unless tangents are those of the rules in f64, and `<v, J u> == <Jᵀ v, u>`.

        How far f32 may be off is what becomes of operands that are off by a rounding.
        """
        case, directions = self.case(number)
        where = f"{self.spec.short_name} {self.dtype} {dict(self.form.sizes[number])}"
        mine = [np.asarray(one).astype(np.float64) for one in tangents]
        back = [np.asarray(one).astype(np.float64) for one in cotangents]
        expected = self.expected_tangents(case, directions)
        is_narrow = any(np.asarray(case.given[at]).dtype != np.float64 for at in self.floats)
        moved = [self._moved_tangents(case, directions, run) for run in range(3)] if is_narrow else []
        rounding = 2.0**-19 if is_narrow else 1e-10
        for at, (found, wanted) in enumerate(zip(mine, expected, strict=True)):
            assert found.shape == wanted.shape, where
            is_known = np.isfinite(wanted)
            apart = max([0.0, *(float(np.abs(run[at] - wanted)[is_known].max(initial=0.0)) for run in moved)])
            reach = 16 * apart + rounding * float(np.abs(wanted[is_known]).max(initial=1.0))
            assert np.all(np.abs(found - wanted)[is_known] <= reach), where
        terms = [one * seed_of(one.shape) for one in mine]
        others = [one * direction for one, direction in zip(back, directions, strict=True)]
        size = sum(float(np.abs(one).sum()) for one in (*terms, *others))
        if np.isfinite(size):
            difference = sum(float(one.sum()) for one in terms) - sum(float(one.sum()) for one in others)
            assert abs(difference) <= 4 * rounding * (1 + size), where

    def _moved_tangents(self, case: Case, directions: Sequence[Array], run: int) -> list[Array]:
        rng = np.random.default_rng(run)

        def move(array: Array) -> Array:
            if not _is_float(array):
                return array
            return array.astype(np.float64) * (1 + rng.uniform(-(2.0**-23), 2.0**-23, array.shape))

        return self.expected_tangents(replace(case, arrays=[*map(move, case.arrays)]), [*map(move, directions)])


def _is_float(array: Array) -> bool:
    return array.dtype.kind == "f" or "float" in array.dtype.name


def _seed(value: Any) -> Any:
    return ts.ops.cos(ts.ops.cast(ts.ops.arange(value.size), value.dtype)).reshape(value.shape)


def seed_of(shape: tuple[int, ...]) -> Array:
    """The cotangent of a result of this shape."""
    return np.cos(np.arange(int(np.prod(shape)), dtype=np.float64)).reshape(shape)


def derivatives(dtypes: Sequence[DType] = (dt.f64, dt.f32)) -> list[OpDerivative]:
    """Every op that is differentiated, in its first form whose dims may be symbolic, and in the first dtype it has."""
    found: list[OpDerivative] = []
    for spec in SPECS:
        dtype = next((one for one in dtypes if one.name in spec.dtypes), None)
        if dtype is None or spec.short_name in LEFT_OUT:
            continue
        for form in forms_of(spec, dtype):
            smooth = replace(form, operands=tuple(_smooth(spec, one) for one in form.operands))
            one = OpDerivative(spec, dtype, smooth)
            if not form.is_fixed and one.floats and one.numbers_of_sizes():
                found.append(one)
                break
    return found


def _smooth(spec: OpSpec, operand: Any) -> Any:
    """An operand without values at which there is no derivative."""
    if spec.short_name in POSITIVE and operand.dtype == "T":
        return replace(operand, values=positive)
    return replace(operand, values=numbers) if operand.values is everything else operand
