"""The grid of the roofline audit: every public op, in forms, dtypes, sizes, proportions and layouts, and symbolic.

Forms of ops (operands with named dims, values, attributes) are those that numerics are tested in; here their dims are
given sizes by the bytes that a call touches. Cases come in the order of how many things about them are unusual, so that
a run which ends early has seen every op.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

import tessera as ts
from tessera.api.jit import Jit
from tessera.diagnostics.error import TesseraError
from tessera.ir.base import dispatch
from tessera.ir.base.arrays import Array, numpy_dtype
from tessera.ir.base.spec import OpSpec
from tessera.ir.graph.ops import REGISTRY
from tessera.ir.graph.samples import sample_dtype
from tessera.types.dim import Dim
from tessera.types.dtype import BY_NAME, DType
from tessera.types.shape import TensorType
from tests.graph.eager import RuleDTypeError, RuleError, Rules
from tests.numerics.families import CONTROL, forms_of
from tests.numerics.forms import Form, Operand, everything, free_program, numbers, unwatched

TARGETS = {"tiny": 16 << 10, "small": 1 << 20, "medium": 32 << 20, "large": 256 << 20, "huge": 2 << 30}
"""Bytes that a call touches."""
USUAL = "medium"
STYLES = ("balanced", "wide", "tall", "odd")
"""Proportions of the dims whose sizes are chosen: all alike, long rows, many rows, all odd."""
SKEW = 256
DTYPES = ("f32", "bf16", "i32", "f16", "f64", "i8", "bool")
PINNED: dict[str, dict[str, int]] = {
    **{name: {"D": 64, "B": 8} for name in ("attention", "attention_with_lse", "kv_append", "kv_write", "kv_prune")},
    "cached_attention": {"D": 64, "B": 8, "S": 1},
    "rotary": {"D": 64, "H": 32},
    "split_qkv": {"C": 2304},
    **{name: {"C": 64, "O": 64} for name in ("conv1d", "conv2d")},
    "matmul": {"A": 16, "B": 4},
    **{name: {"B": 16} for name in ("dot_general", "einsum")},
    "one_hot": {"C": 64},
}
"""Dims that models do not scale."""
MORE = ("cached_attention", "kv_append", "kv_write", "uniform", "normal", "bernoulli", "random_bits", "dropout")
"""Ops of the registry that users reach by other modules than `ts.ops`."""


@dataclass(frozen=True)
class Case:
    """One program of the grid: an op in a form, its sizes, and what is unusual about it."""

    spec: OpSpec
    dtype: DType
    form: Form
    sizes: Mapping[str, int]
    target: str = USUAL
    style: str = STYLES[0]
    is_transposed: bool = False
    is_symbolic: bool = False

    @property
    def op(self) -> str:
        return self.spec.short_name

    @property
    def whole(self) -> tuple[float, float] | None:
        """An op is what it does at least: its kernels alone are looked at."""
        return None

    @property
    def name(self) -> str:
        shape = " ".join(f"{name}={size}" for name, size in self.sizes.items())
        marks = [mark for mark, holds in (("transposed", self.is_transposed), ("symbolic", self.is_symbolic)) if holds]
        return " ".join([self.spec.short_name, self.form.name, self.dtype.name, shape, *marks])

    def program(self) -> Jit:
        """The op as a jitted function."""
        if self.is_symbolic:
            return free_program(self.spec, self.dtype, self.form)
        attributes = self.form.attributes({name: Dim.constant(size) for name, size in self.sizes.items()}, self.dtype)

        def apply(*operands: Any) -> Any:
            given = [ts.ops.transpose(x) if self.is_transposed and len(x.shape) > 1 else x for x in operands]
            return dispatch.apply(self.spec.name, given, attributes)

        return Jit(unwatched(apply))

    def arrays(self) -> list[Array]:
        """The arguments; those that only bring symbolic dims come with a symbolic program alone."""
        rng = np.random.default_rng(zlib.crc32(self.name.encode()))
        shapes = self.form.shapes(self.sizes)
        sizes = [size for size in shapes[0] if size > 1]
        most = min(sizes, default=1)
        # A cache that is appended to has room left; one that is read is full, as costs count all of it.
        filled = self.sizes.get("T", most) // (1 if self.spec.short_name == "cached_attention" else 2)
        found: list[Array] = []
        for operand, shape in zip(self.form.operands, shapes, strict=True):
            if not operand.passed and not self.is_symbolic:
                continue
            flipped = shape[::-1] if self.is_transposed else shape
            found.append(fill(rng, operand, flipped, operand.dtype_in(self.dtype), most if shape else filled))
        return found


_DRAWN = 1 << 16


def fill(rng: np.random.Generator, operand: Operand, shape: tuple[int, ...], dtype: DType, most: int) -> Array:
    """Values of an operand: drawn once and repeated where there are many; indices are below `most`, one is that."""
    if operand.dtype in ("i64", "i32") and operand.passed:
        made = rng.integers(0, most, shape) if shape else np.asarray(most)
        return made.astype(numpy_dtype(dtype))
    values = numbers if operand.values is everything else operand.values
    size = math.prod(shape)
    if size <= _DRAWN:
        return np.asarray(values(rng, shape, dtype))
    return np.resize(values(rng, (_DRAWN - 1,), dtype), shape)


def cost_of(spec: OpSpec, dtype: DType, form: Form, sizes: Mapping[str, int]) -> tuple[int, int] | None:
    """Bytes of operands and results, and operations; None where the op does not take such sizes."""
    filled = spec.with_defaults(form.attributes({name: Dim.constant(size) for name, size in sizes.items()}, dtype))
    pairs = zip(form.operands, form.shapes(sizes), strict=True)
    types = [TensorType.of(shape, operand.dtype_in(dtype)) for operand, shape in pairs if operand.passed]
    try:
        results = spec.infer(Rules(), types, filled)
    except (RuleError, RuleDTypeError, TesseraError, ValueError):
        return None
    flops = spec.cost(types, results, filled).flops.value if spec.cost is not None else 0
    moved = sum(type.bytes.value or 0 for type in (*types, *results))
    return moved, flops or 0


def sizes_for(
    spec: OpSpec, dtype: DType, form: Form, target: int, style: str = STYLES[0], most_flops: float = math.inf
) -> dict[str, int] | None:
    """Sizes of the dims of a form so that a call touches about so many bytes; None where there are none."""
    pinned = PINNED.get(spec.short_name, {})
    letters = [name for name in form.sizes[-1] if name not in pinned]
    if not letters or form.is_fixed:
        return None
    skewed = {"wide": letters[-1], "tall": letters[0]}.get(style) if len(letters) > 1 else None

    def at(number: int) -> dict[str, int]:
        chosen = {name: number * (SKEW if name == skewed else 1) for name in letters}
        if style == "odd":
            chosen = {name: size | 1 for name, size in chosen.items()}
        return {name: pinned.get(name) or chosen[name] for name in form.sizes[-1]}

    @cache
    def excess(number: int) -> float:
        """How many times too much a call would touch or compute; infinitely where the op takes no such sizes."""
        found = cost_of(spec, dtype, form, at(number))
        return math.inf if found is None else max(found[0] / target, found[1] / most_flops)

    low = next((number for number in (4, 2, 1, 8, 16) if excess(number) <= 1), 0)
    if not low:
        return None
    # Costs are nearly powers of sizes: the exponent of the next step says how far to go.
    for _ in range(40):
        more = int(low * _growth(excess(low), excess(2 * low)))
        more = more if excess(more) <= 1 else 2 * low
        if more <= low or excess(more) > 1:
            break
        low = more
    # Whole rows of vectors are what is usual; `odd` is for the others.
    return at(low // 32 * 32 if low >= 64 and style != "odd" else low)


def _growth(now: float, doubled: float) -> float:
    """By how much a size can grow from a share of what is allowed, if doubling it leads to another share."""
    if not 0 < now < doubled < math.inf:
        return 2.0 if doubled <= 1 else 1.0
    factor = now ** (-1 / math.log2(doubled / now))
    return 0.98 * factor if factor > 1.05 else 1.0


def public() -> list[OpSpec]:
    """The ops that users call."""
    names = {*dir(ts.ops), *MORE}
    return [spec for spec in REGISTRY if spec.short_name in names and spec.short_name not in CONTROL]


def _choices(targets: Sequence[str]) -> Iterator[tuple[str, str, bool, bool]]:
    """What may be unusual about a case, but for its form and dtype."""
    yield from ((target, STYLES[0], False, False) for target in targets)
    yield from ((USUAL, style, False, False) for style in STYLES[1:])
    yield (USUAL, STYLES[0], True, False)
    yield from ((USUAL, style, False, True) for style in ("balanced", "odd"))


def cases(
    names: Sequence[str] = (), targets: Sequence[str] = tuple(TARGETS), most_flops: float = math.inf
) -> list[Case]:
    """The grid, the usual first; names are those of some ops."""
    found: list[tuple[tuple[int, int, int], Case]] = []
    for spec in public():
        if names and spec.short_name not in names:
            continue
        first = sample_dtype(spec)
        for dtype in (name for name in (first, *DTYPES) if name in spec.dtypes):
            if dtype == first and any(case.spec is spec and case.dtype.name == first for _, case in found):
                continue
            found += list(_of_dtype(spec, BY_NAME[dtype], dtype != first, targets, most_flops))
    found.sort(key=lambda item: item[0])
    return [case for _, case in found]


def _of_dtype(
    spec: OpSpec, dtype: DType, is_other: bool, targets: Sequence[str], most_flops: float
) -> Iterator[tuple[tuple[int, int, int], Case]]:
    forms = [form for form in forms_of(spec, dtype) if not form.is_fixed and len(form.sizes[-1])]
    seen: set[tuple[Any, ...]] = set()
    for number, form in enumerate(forms):
        for target, style, is_transposed, is_symbolic in _choices(targets):
            sizes = sizes_for(spec, dtype, form, TARGETS[target], style, most_flops)
            if sizes is None:
                continue
            key = (number, tuple(sizes.items()), is_transposed, is_symbolic)
            if key in seen or (is_transposed and max(len(one.dims) for one in form.operands) < 2):
                continue
            seen.add(key)
            unusual = (target != USUAL) + (style != STYLES[0]) + is_transposed + is_symbolic + (number > 0) + is_other
            case = Case(spec, dtype, form, sizes, target, style, is_transposed, is_symbolic)
            # Ops take turns within a rank, so that none has all of its cases before another has one.
            yield (unusual, len(seen), zlib.crc32(case.name.encode())), case
