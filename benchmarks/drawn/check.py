"""Whether results are right: against the op's reference where that is quick, else against float64."""

# Tensors of a library that is loaded by name have no types to give.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from benchmarks.drawn import spell_torch
from benchmarks.drawn.peers import NUMPY, TORCH, VIEWS, Side
from benchmarks.drawn.program import Call, Program, Step, plain
from benchmarks.drawn.roundings import Inside, inside
from benchmarks.drawn.written import count_rounded, spread_of
from tessera.frontend.pytree import as_tuple
from tessera.ir.base.arrays import Array, numpy_dtype
from tessera.types.dtype import BY_NAME
from tests.numerics.bounds import assert_close

QUICK_ELEMENTS, QUICK_FLOPS = 2**21, 2**27
"""What a reference on NumPy is asked for: larger ones take seconds."""
PATIENT_ELEMENTS = 2**23
"""What it is asked for where float64 says little: results that jump, or that others choose otherwise."""
JUMPS = frozenset(
    {"floor", "ceil", "round", "trunc", "sign", "floordiv", "mod", "quantize", "round_to", "cast", "linspace"}
    | {"atan2", "tan"}  # at the negative axis, and at poles
)
PART = 2**25
"""Elements that are compared at a time."""
JUMPED = 1e-3
"""The share of elements that rounding may take across a jump."""
DRAWS, SPREAD = 3, 16.0
"""How often float64 is computed with steps that are off by their rounding, and how much more our steps may be off.

Once where it takes long."""
UNIT = {"f64": 2.0**-53, "f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8, "f8e4m3": 2.0**-4, "f8e5m2": 2.0**-3}
SUMS = frozenset({"attention", "cached_attention", "matmul", "dot_general", "einsum"})
"""Ops that sum terms which earlier steps have rounded."""
PEERS_MAY = 16.0
"""How many times our tolerance a peer has: it rounds where it likes, and is only to be the same function."""


class Check:
    """What the right results of a program are; asked for each contender's results."""

    def __init__(self, side: Side) -> None:
        self.side, self.program = side, side.program
        self.alone = _alone(self.program)
        self.wide: list[Any] | None = None
        self.spread: list[Any] = []
        self.inside: Inside | None = None
        self.on_tensor_cores = side.device != "cpu"
        self.how = ""
        self.may_widen = "bitcast" not in self.program.ops

    def ours(self, given: Sequence[Any]) -> float:
        """The error of our results; raises ArithmeticError where they are wrong. `how` says what they were held to."""
        if self.alone and self._is_quick() and not isinstance(self.program.steps[-1], Call):
            try:
                self._by_reference(given)
            except AssertionError as wrong:
                if not self._is_rounded():
                    raise ArithmeticError(str(wrong)) from None
            else:
                self.how = "reference"
                return 0.0
        if has_freedom(self.program):
            self.how = "not checked: too large for its reference"
            return math.nan
        self.how = "float64"
        return self._by_float64(given, 1.0)

    def peer(self, given: Sequence[Any]) -> float:
        """The error of a peer's results, which only have to be the same function."""
        shapes = [tuple(plain(one.shape)) for one in self.program.results]
        found = [tuple(part.shape) for part in given]
        if found != shapes:
            raise ArithmeticError(f"gives shapes {found}, not {shapes}: it is spelled wrongly")
        if has_freedom(self.program):
            return math.nan
        return self._by_float64(given, PEERS_MAY)

    def _is_quick(self) -> bool:
        sizes = [one.count for one in self.program.arguments]
        sizes += [math.prod(plain(one.shape)) for one in self.program.results]
        is_patient = has_freedom(self.program) or bool(set(self.program.ops) & JUMPS)
        return max(sizes) <= (PATIENT_ELEMENTS if is_patient else QUICK_ELEMENTS) and self.program.flops <= QUICK_FLOPS

    def _is_rounded(self) -> bool:
        """Whether float64 can decide: an integer or an index has no rounding."""
        return all(one.dtype.is_float for one in self.program.results) and self._has_wide()

    def _by_reference(self, given: Sequence[Any]) -> None:
        operands: dict[str, Array] = {}
        for number, array in enumerate(self._arrays()):
            operands[f"a{number}"] = array
        for number, step in enumerate(self.program.steps[:-1]):
            operands[f"s{number}"] = np.ascontiguousarray(
                np.transpose(operands[step.inputs[0]], step.attributes["axes"])
            )
        last = self.program.steps[-1]
        arrays = [operands[name] for name in last.inputs]
        attributes = last.spec.with_defaults(last.attributes)
        made = [_as_numpy(self.side.torch, part) for part in given]
        assert_close(last.spec, arrays, attributes, made, self.program.label)

    def _arrays(self) -> list[Array]:
        return self.side.arrays or self.program.arrays()

    def _has_wide(self) -> bool:
        return bool(self._expected())

    def _expected(self) -> list[Any]:
        """All results in float64, from torch where it says the ops, else from their references."""
        torch = self.side.torch
        if self.wide is None:
            made = self._by_torch(0) if torch is not None and _is_spelled(self.program) else None
            if torch is not None and made is not None and not self._rounds_last():
                self.spread = [torch.zeros_like(part) for part in made]
                for seed in range(1, (DRAWS if self._is_quick() else 1) + 1):
                    for spread, part, moved in zip(self.spread, made, self._by_torch(seed) or made, strict=True):
                        torch.maximum(spread, abs(moved - part).nan_to_num_(0.0), out=spread)
            self.wide = self.by_references() if made is None else made
            last = self.program.steps[-1]
            if torch is not None and isinstance(last, Call):
                operands = [self._widely(name) for name in last.inputs]
                self.spread = spread_of(torch, last, operands, UNIT, DRAWS if self._is_quick() else 1)
        return self.wide

    def _widely(self, name: str) -> Any:
        """An operand of the last step in float64, which at most a transpose is before."""
        if name.startswith("s"):
            step = self.program.steps[int(name[1:])]
            return self._widely(step.inputs[0]).permute(step.attributes["axes"])
        given = self.side.tensors[int(name[1:])]
        return given.double() if given.is_floating_point() else given

    def _count_rounded(self) -> int:
        """How many steps round."""
        return sum(op not in VIEWS for op in self.program.ops)

    def _count_steps(self) -> int:
        """How many steps an element's own rounding is of: of a function whose draws say nothing, all of its ops."""
        last = self.program.steps[-1]
        if not isinstance(last, Call):
            return self._count_rounded()
        return 1 if self.spread else count_rounded(last.tape)

    def _rounds_last(self) -> bool:
        """Whether the last step rounds alone: nothing moves what it is off by."""
        return not self._count_rounded() or (self._count_rounded() == 1 and self.program.ops[-1] not in VIEWS)

    def _by_torch(self, seed: int) -> list[Any] | None:
        """All results; with a seed, every step's is off by what it may round, as random numbers say."""
        torch = self.side.torch
        try:
            functions = [TORCH[step.op](torch, _widened(step)) for step in self.program.steps]
            if seed:
                random = torch.Generator(self.side.device).manual_seed(seed)
                steps = zip(functions, self.program.steps, strict=True)
                functions = [self._moved(function, step, random) for function, step in steps]
            elif self._rounds_last():
                functions[-1] = self._recorded(functions[-1])
            given = [one.double() if one.is_floating_point() and self.may_widen else one for one in self.side.tensors]
            return [part.double() for part in as_tuple(self.program.bind(functions)(*given))]
        except (NotImplementedError, RuntimeError, TypeError):
            return None

    def _inside(self, step: Step, operands: tuple[Any, ...]) -> Inside | None:
        """What a step rounds inside of itself, in f32 or where tensor cores compute it."""
        if not all(one.dtype == self.side.torch.float64 for one in operands[:2]):
            return None
        given = (self.side.torch, step.op, self.program.dtype, step.plain, operands)
        return inside(*given, on_tensor_cores=self.on_tensor_cores)

    def _recorded(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The last step, which keeps what it rounds inside of itself: nothing after it moves that."""

        def run(*operands: Any) -> Any:
            self.inside = self._inside(self.program.steps[-1], operands)
            return function(*operands)

        return run

    def _moved(self, function: Callable[..., Any], step: Step, random: Any) -> Callable[..., Any]:
        torch, unit = self.side.torch, UNIT.get(self.program.dtype, 0.0)

        def run(*operands: Any) -> Any:
            made = function(*operands)
            if not isinstance(made, torch.Tensor) or made.dtype != torch.float64:
                return made
            # Between a third and the whole of it: two that cancel in one draw do not in the next.
            size = torch.rand(made.shape, generator=random, device=made.device, dtype=made.dtype) * 4 - 2
            part, within = torch.sign(size) * (abs(size) + 1) / 3, self._inside(step, operands)
            # An element's own rounding, and those inside of the op by another number.
            other = 0.0 if within is None else within.deviation * part.flip(-1)
            return made * (1 + unit * part) + other

        return run

    def by_references(self) -> list[Any]:
        """All results in float64 by the references of the ops; none where those would take long."""
        last = self.program.steps[-1]
        if not self._is_quick() or (isinstance(last, Call) and last.op not in NUMPY):
            return []
        values: dict[str, Any] = {}
        for number, array in enumerate(self._arrays()):
            values[f"a{number}"] = array.astype(np.float64) if array.dtype.kind in "fV" and self.may_widen else array
        made: Any = None
        with np.errstate(all="ignore"):
            for number, step in enumerate(self.program.steps):
                made = _refer(step)(*(values[name] for name in step.inputs))
                values[f"s{number}"] = np.asarray(as_tuple(made)[0])
        found = [np.asarray(part).astype(np.float64) for part in as_tuple(made)]
        return found if self.side.torch is None else [self._placed(part) for part in found]

    def _placed(self, array: Array) -> Any:
        tensor = self.side.torch.from_numpy(array)
        return tensor if self.side.device == "cpu" else tensor.cuda()

    def _by_float64(self, given: Sequence[Any], factor: float) -> float:
        expected = self._expected()
        if not expected:
            self.how = "not checked: nothing says it in float64"
            return math.nan
        worst = 0.0
        for at, (ours, wide, type) in enumerate(zip(given, expected, self.program.results, strict=True)):
            if math.prod(plain(type.shape)):
                spread = self.spread[at] if self.spread else None
                within = self.inside.allowed(math.prod(wide.shape)) if self.inside is not None and not at else None
                worst = max(worst, self._compare((ours, wide, spread, within), type.dtype.name, factor))
        return worst

    def _compare(self, given: tuple[Any, Any, Any, Any], dtype: str, factor: float) -> float:
        """The largest error over the tolerance: a random walk of sums, and a rounding for each step.

        Given are our result, the one in float64, how far draws of it spread, and what the op rounds inside of itself.
        """
        whole = [None if part is None else part.reshape(-1) for part in given]
        count = math.prod(given[1].shape)
        rows = self._row_sizes(given[1])
        # Some at a time: numbers of eight bytes take four times the memory of what is checked, for each of the terms.
        parts = [[None if one is None else one[at : at + PART] for one in whole] for at in range(0, count, PART)]
        if dtype not in UNIT:
            self._refuse(sum(int((_widen(found) != right).sum()) for found, right, *_ in parts), count, "others")
            return 0.0
        typical = math.sqrt(sum(float((_finite(right) ** 2).sum()) for _, right, *_ in parts) / count)
        wrong, worst = 0, 0.0
        for number, (found, right, moved, within) in enumerate(parts):
            more, size = self._allowed(moved, within), _finite(right)
            if rows is not None:
                size = size.maximum(_row_of(self.side.torch, rows, number * PART, size, given[1].shape[-1]))
            ratio = self._errors(_widen(found), right, more, (typical, size), dtype, factor)
            wrong, worst = wrong + int((ratio > 1).sum()), max(worst, float(ratio.max()))
        self._refuse(wrong, count, f"wrong, by up to {worst:.3g} times the tolerance")
        return worst

    def _allowed(self, spread: Any, within: Any) -> Any:
        """What draws spread and what an op rounds inside of itself, of some elements."""
        if spread is None:
            return 0.0 if within is None else within
        # A draw may leave an element where it was: what others move by counts as well.
        return SPREAD * (spread + math.sqrt(float((spread * spread).mean())) / 2)

    def _row_sizes(self, wide: Any) -> Any:
        """How large rows of sums are, behind steps that round what is added; None where elements are no such sums.

        Terms of one row are as large in all of its elements. One that they cancel in is off by as much as the others.
        """
        rounding = [op for op in self.program.ops if op not in VIEWS]
        is_sum = bool(self.spread) and rounding[-1] in SUMS and wide.ndim > 1 and self.side.torch is not None
        return (_finite(wide) ** 2).mean(-1).sqrt().reshape(-1) if is_sum else None

    def _errors(self, found: Any, wide: Any, more: Any, sizes: tuple[float, Any], dtype: str, factor: float) -> Any:
        """Errors of some elements, over their tolerance; `sizes` are that of a typical element, and those of each."""
        rounded, (typical, size) = self._rounded(wide, dtype), sizes
        same = (found == rounded) | ((found != found) & (rounded != rounded))
        depth = self.program.flops / math.prod(plain(self.program.results[0].shape))
        compute = UNIT["f64"] if dtype == "f64" else UNIT["f32"]
        # Below the smallest normal number the distance between numbers stays.
        least = 2 * UNIT[dtype] * float(ml_dtypes.finfo(numpy_dtype(BY_NAME[dtype])).smallest_normal)
        # Draws of few steps may cancel where an element is far above the others: each step rounds a share of it.
        rounded_by = (self._count_steps() or 1) + 0.5
        allowed = 8 * compute * (math.sqrt(depth) + 8) * typical + rounded_by * UNIT[dtype] * size + least + more
        if factor > 1:
            allowed = allowed + UNIT[dtype] * typical
        ratio = abs(found - wide) / (factor * allowed + 1e-300)
        ratio[ratio != ratio] = math.inf
        ratio[same] = 0.0
        return ratio

    def _refuse(self, wrong: int, count: int, how: str) -> None:
        may = JUMPED * count if set(self.program.ops) & JUMPS else 0
        if wrong > may:
            raise ArithmeticError(f"{wrong} of {count} are {how}")

    def _rounded(self, wide: Any, dtype: str) -> Any:
        if isinstance(wide, np.ndarray):
            return wide
        return wide.to(spell_torch.dtype_of(self.side.torch, dtype)).double()


def _row_of(torch: Any, rows: Any, first: int, part: Any, length: int) -> Any:
    """What elements from the first on have of rows of a length."""
    at = torch.arange(first, first + part.shape[0], device=part.device) // length
    return rows[at]


def _widen(part: Any) -> Any:
    return part.astype(np.float64) if isinstance(part, np.ndarray) else part.double()


def _finite(part: Any) -> Any:
    """Magnitudes, and 0 in place of infinities and NaN."""
    size = abs(part * 1.0)
    size[~(size < math.inf)] = 0.0
    return size


def _alone(program: Program) -> bool:
    """Whether a program is one op, at most behind transposes of arguments."""
    return all(step.op == "transpose" and step.inputs[0].startswith("a") for step in program.steps[:-1])


def has_freedom(program: Program) -> bool:
    """Whether a peer may give other numbers: random ones, or another of equal elements."""
    free = spell_torch.RANDOM | spell_torch.ANY_ORDER
    return any(step.op in free or step.attributes.get("dropout") for step in program.steps)


def _is_spelled(program: Program) -> bool:
    return all(op in TORCH for op in program.ops)


def _wide_dtype(step: Step) -> dict[str, Any]:
    """The dtype of a result in place of a float that is asked for."""
    given = step.attributes.get("dtype")
    is_wide = given is not None and given.is_float and step.op != "bitcast"
    return {"dtype": BY_NAME["f64"]} if is_wide else {}


def _refer(step: Step) -> Callable[..., Any]:
    """What a step means on arrays: an op by its reference, a function as NumPy says it."""
    if isinstance(step, Call):
        return NUMPY[step.op](np, _widened(step))
    reference, attributes = step.spec.reference, {**step.spec.with_defaults(step.attributes), **_wide_dtype(step)}
    assert reference is not None
    return lambda *operands: reference(*operands, **attributes)


def _widened(step: Step) -> dict[str, Any]:
    return {**step.plain, **({"dtype": "f64"} if _wide_dtype(step) else {})}


def _as_numpy(torch: Any, part: Any) -> Array:
    if isinstance(part, np.ndarray):
        return part
    name = str(part.dtype).removeprefix("torch.")
    bits = {"bfloat16": "uint16", "float8_e4m3fn": "uint8", "float8_e5m2": "uint8"}.get(name)
    host = part.cpu()
    return host.numpy() if bits is None else host.view(getattr(torch, bits)).numpy().view(np.dtype(name))
