"""Drawing programs: one op in one of its forms, or with a few pointwise ops before and behind it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

import tessera as ts
from benchmarks.drawn.functions import FUNCTIONS, draw_function
from benchmarks.drawn.models import MODELS, draw_attention, draw_gemm
from benchmarks.drawn.program import Builder, Program, Values
from benchmarks.drawn.sizes import Limits, Rng, draw_choice, draw_shape, draw_sizes, log_uniform
from tessera.diagnostics.error import TesseraError
from tessera.ir.base.arrays import Array, numpy_dtype
from tessera.ir.base.spec import OpSpec
from tessera.ir.graph.ops import REGISTRY
from tessera.ir.graph.samples import sample_dtype
from tessera.ir.tile.facets import Pointwise
from tessera.types.dim import Dim
from tessera.types.dtype import BY_NAME, DType
from tests.graph.eager import RuleDTypeError, RuleError
from tests.numerics.families import CONTROL, forms_of
from tests.numerics.forms import Form, everything, numbers

NAMESAKES = {"unfold"}
"""Ops that passes make, of which the public function of that name is another one."""
THROUGH = {
    "layernorm_safe": "layernorm",
    "rmsnorm_safe": "rmsnorm",
    "slice": "getitem",
    "index_get": "getitem",
    "index_put": "getitem",
    "uniform": "random.uniform",
    "normal": "random.normal",
    "bernoulli": "random.bernoulli",
    "dropout": "random.dropout",
    "random_bits": "random.bits",
    "cached_attention": "KVCache",
}
"""Ops that users call by another name."""
DTYPES = {"f32": 8, "bf16": 6, "f16": 3, "f64": 1, "i64": 1.5, "i32": 1.5, "i16": 0.5, "i8": 1, "u8": 1, "bool": 3}
"""How often each dtype is drawn where an op has it; others have no peers, or hardly one."""
KINDS = {"op": 6, "function": 3, "fusion": 3, "model": 1}
ALONG = 0.6
"""How often an op along axes gets a shape of any rank in place of one of its forms."""
TRIES = 60
SAMPLED, LARGEST = 161, 16.0
"""Numbers that a chain is tried on, close enough to meet the poles of a function, and what it may make of them."""
STEPPED = frozenset({"floor", "ceil", "round", "trunc", "sign", "floordiv", "mod"})
"""Pointwise ops that jump: what rounding moves across a jump is no error, so chains leave them out."""


class NothingDrawnError(Exception):
    """No size of an op fits the limits."""


def public_ops() -> list[OpSpec]:
    """The ops that users can call and that take or give tensors in one process."""
    names = (set(dir(ts.ops)) | THROUGH.keys()) - NAMESAKES
    return [spec for spec in REGISTRY if spec.short_name in names and spec.short_name not in CONTROL]


def draw_program(seed: int, number: int, kind: str, limits: Limits) -> Program:
    """The program with a number in the row that a seed begins; kinds have rows of their own."""
    rng = np.random.default_rng([seed, number, *kind.encode()])
    for _ in range(TRIES):
        try:
            program = _draw(rng, kind, limits)
        except (RuleError, RuleDTypeError, TesseraError):
            continue
        if program.bytes <= limits.bytes and program.flops <= limits.flops:
            return program
    raise NothingDrawnError(f"{TRIES} draws of kind `{kind}` were refused by rules or limits")


def _draw(rng: Rng, kind: str, limits: Limits) -> Program:
    if kind == "all":
        kind = draw_choice(rng, KINDS)
    if kind == "gemm":
        return draw_gemm(rng, limits)
    if kind == "attention":
        return draw_attention(rng, limits)
    if kind == "model":
        return MODELS[int(rng.integers(len(MODELS)))](rng, limits)
    if kind == "fusion":
        return draw_fusion(rng, limits)
    if kind == "function":
        names = sorted(FUNCTIONS)
        return draw_function(rng, names[int(rng.integers(len(names)))], limits)
    specs = public_ops()
    return draw_op(rng, specs[int(rng.integers(len(specs)))], limits)


def draw_op(rng: Rng, spec: OpSpec, limits: Limits) -> Program:
    """An op alone, or behind transposes of its operands."""
    builder, dtype = Builder(), _dtype(rng, spec)
    label = add_op(rng, builder, spec, dtype, limits)
    return builder.program("op", label, dtype.name)


def _dtype(rng: Rng, spec: OpSpec, floats: bool = False) -> DType:
    allowed = {name: weight for name, weight in DTYPES.items() if name in spec.dtypes}
    if floats:
        allowed = {name: weight for name, weight in allowed.items() if BY_NAME[name].is_float}
    return BY_NAME[draw_choice(rng, allowed) if allowed else sample_dtype(spec)]


def add_op(rng: Rng, builder: Builder, spec: OpSpec, dtype: DType, limits: Limits) -> str:
    """One op with operands of its own; says what was drawn."""
    forms = [form for form in forms_of(spec, BY_NAME[sample_dtype(spec)]) if _is_usual(form)]
    forms = [form for form in forms if any(form.sizes)] or forms
    form = forms[int(rng.integers(len(forms)))]
    if _has_axes(spec) and rng.random() < ALONG:
        return _add_along(rng, builder, spec, dtype, form, limits)
    sizes = draw_sizes(rng, form.sizes, lambda one: _bytes(form, one, dtype), limits)
    dims = {name: Dim.constant(size) for name, size in sizes.items()}
    attributes = dict(form.attributes(dims, dtype))
    shapes, inputs = form.shapes(sizes), list[str]()
    for at, (operand, shape) in enumerate(zip(form.operands, shapes, strict=True)):
        if operand.passed:
            own = operand.dtype_in(dtype)
            fixed = own if operand.dtype != "T" else None
            values = _values(spec, at, operand.values, shapes, attributes, fixed)
            inputs.append(_laid_out(rng, builder, shape, own.name, values))
    builder.do(spec.short_name, *inputs, **attributes)
    return _label(spec, builder, attributes)


def _is_usual(form: Form) -> bool:
    """Not the forms that test what is rare: numbers outside of the range of results."""
    return form.name not in ("wild", "nothing", "none") and bool(form.sizes)


def _has_axes(spec: OpSpec) -> bool:
    own = {attribute.name for attribute in spec.attributes}
    return len(spec.operands) == 1 and bool(own & {"axis", "axes"}) and spec.short_name not in _FIXED_AXES


_FIXED_AXES = frozenset({"expand_dims", "squeeze", "roll", "split", "round_blocks", "index_get", "layernorm_safe"})


def _add_along(rng: Rng, builder: Builder, spec: OpSpec, dtype: DType, form: Form, limits: Limits) -> str:
    """An op along drawn axes of a drawn shape; the rest of its attributes are a form's."""
    rank = int(draw_choice(rng, {1: 1, 2: 4, 3: 2, 4: 1}))
    dims = {name: Dim.constant(4) for row in form.sizes for name in row}
    attributes = dict(form.attributes(dims, dtype))
    if spec.short_name in ("concat", "stack"):
        return _add_joined(rng, builder, spec, dtype, rank, limits)
    values = _values(spec, 0, form.operands[0].values, [()], attributes, None)
    shape = draw_shape(rng, rank, dtype.bits / 8, limits)
    if "axes" in attributes and spec.short_name == "transpose":
        attributes["axes"] = tuple(int(axis) for axis in rng.permutation(rank))
    elif "axes" in attributes:
        attributes["axes"] = _draw_axes(rng, rank)
    else:
        attributes["axis"] = int(rng.integers(rank)) if rng.random() < 0.5 else rank - 1
    if "k" in attributes:
        attributes["k"] = int(log_uniform(rng, 1, shape[attributes["axis"]]))
    name = _laid_out(rng, builder, shape, dtype.name, values)
    builder.do(spec.short_name, name, **attributes)
    return _label(spec, builder, attributes)


def _add_joined(rng: Rng, builder: Builder, spec: OpSpec, dtype: DType, rank: int, limits: Limits) -> str:
    count = int(rng.integers(2, 5))
    shape = list(draw_shape(rng, rank, dtype.bits / 8, limits, 2.0 * count))
    axis, inputs = int(rng.integers(rank)), list[str]()
    for _ in range(count):
        if spec.short_name == "concat":
            shape[axis] = max(1, int(shape[axis] * rng.uniform(0.5, 1.0)))
        inputs.append(builder.argument(shape, dtype.name, numbers))
    builder.do(spec.short_name, *inputs, axis=axis)
    return _label(spec, builder, {"axis": axis})


def _draw_axes(rng: Rng, rank: int) -> tuple[int, ...]:
    chosen = rng.random()
    if chosen < 0.45:
        return (rank - 1,)
    if chosen < 0.6:
        return (0,)
    if chosen < 0.7:
        return tuple(range(rank))
    count = int(rng.integers(1, rank + 1))
    return tuple(sorted(int(axis) for axis in rng.choice(rank, count, replace=False)))


def _bytes(form: Form, sizes: Mapping[str, int], dtype: DType) -> float:
    """What a form takes, with a result as large as all of its operands where the rule has not been asked yet."""
    shapes = zip(form.operands, form.shapes(sizes), strict=True)
    taken = sum(math.prod(shape) * operand.dtype_in(dtype).bits / 8 for operand, shape in shapes)
    return 2.0 * taken or float(8 * math.prod(sizes.values()))


def _laid_out(rng: Rng, builder: Builder, shape: Sequence[int], dtype: str, values: Values) -> str:
    """An argument of a shape, one in six of them stored with two of its axes the other way round."""
    if len(shape) < 2 or rng.random() > 1 / 6:
        return builder.argument(shape, dtype, values)
    order = list(range(len(shape)))
    first = int(rng.integers(len(shape) - 1))
    order[first], order[-1] = order[-1], order[first]
    stored = builder.argument([shape[axis] for axis in order], dtype, values)
    return builder.do("transpose", stored, axes=tuple(order))


def _label(spec: OpSpec, builder: Builder, attributes: Mapping[str, Any]) -> str:
    shown = [f"{name}={_short(value)}" for name, value in attributes.items() if name not in ("shape", "dtype")]
    shown += ["transposed"] * any(step.op == "transpose" for step in builder.steps[:-1])
    return f"{spec.short_name}({', '.join(shown)})"


def _short(value: Any) -> str:
    return str(value).replace(" ", "").replace("'", "")


def _values(
    spec: OpSpec, at: int, values: Values, shapes: Sequence[tuple[int, ...]], attributes: Mapping[str, Any], fixed: Any
) -> Values:
    """Ordinary numbers of the op's domain; indices all over what they index."""
    name = spec.short_name
    if name in ("prod", "cumprod"):
        return near_one
    if name == "pow" and at == 1:
        return _exponents
    if name in ("floordiv", "mod") and at == 1:
        return _not_zero
    if (fixed is not None and fixed.kind in ("int", "uint") and name in _INDEXED and at) or name == "one_hot":
        return _indices(_INDEXED[name](shapes, attributes))
    if name in ("cast", "cast_like"):
        return _in_range
    return numbers if values is everything else values


def _along(shapes: Sequence[tuple[int, ...]], attributes: Mapping[str, Any], default: int) -> int:
    return shapes[0][int(attributes.get("axis", default))]


def _along_all(shapes: Sequence[tuple[int, ...]], attributes: Mapping[str, Any]) -> int:
    return min(shapes[0][int(axis)] for axis in attributes["axes"])


_INDEXED: dict[str, Callable[[Sequence[tuple[int, ...]], Mapping[str, Any]], int]] = {
    **dict.fromkeys(("take", "embedding", "scatter", "scatter_add"), partial(_along, default=0)),
    **dict.fromkeys(("take_along_axis", "cross_entropy"), partial(_along, default=-1)),
    **dict.fromkeys(("index_get", "index_put"), _along_all),
    "gather": lambda shapes, attributes: min(shapes[0][: shapes[1][-1]]),
    "one_hot": lambda shapes, attributes: int(attributes["depth"][0].value),
    "cached_attention": lambda shapes, attributes: shapes[1][2],
}
"""How long the axis is that an op's integers are indices of."""


def _indices(high: int) -> Values:
    return lambda rng, shape, dtype: rng.integers(0, max(1, min(high, 100 if dtype.bits == 8 else high)), shape).astype(
        numpy_dtype(dtype)
    )


def near_one(rng: Rng, shape: tuple[int, ...], dtype: DType) -> Array:
    """Numbers whose products stay in range, however many there are."""
    if not dtype.is_float:
        return numbers(rng, shape, dtype)
    spread = 1 / math.sqrt(max(1, math.prod(shape)))
    return np.exp(rng.standard_normal(shape) * spread).astype(numpy_dtype(dtype))


def _in_range(rng: Rng, shape: tuple[int, ...], dtype: DType) -> Array:
    """Numbers that every dtype has: what a cast makes of others is each library's own."""
    return abs(numbers(rng, shape, dtype)) if not dtype.is_bool else numbers(rng, shape, dtype)


def _exponents(rng: Rng, shape: tuple[int, ...], dtype: DType) -> Array:
    """Powers that integers have, too."""
    return rng.integers(0, 5, shape).astype(numpy_dtype(dtype))


def _not_zero(rng: Rng, shape: tuple[int, ...], dtype: DType) -> Array:
    made = numbers(rng, shape, dtype)
    return np.where(made == 0, made.dtype.type(1), made)


def chained_ops() -> list[OpSpec]:
    """Pointwise ops of floats that are smooth enough to follow each other."""
    return [
        spec
        for spec in public_ops()
        if isinstance(spec.lower, Pointwise)
        and {"f32", "bf16"} <= set(spec.dtypes)
        and len(spec.operands) <= 2
        and spec.short_name not in STEPPED
        and not any(attribute.is_required for attribute in spec.attributes)
    ]


def draw_fusion(rng: Rng, limits: Limits) -> Program:
    """A chain of pointwise ops, on its own or around an op that reduces, normalises, contracts or moves."""
    builder, centre = Builder(), None
    if rng.random() < 0.55:
        around = [spec for spec in public_ops() if {"f32", "bf16"} <= set(spec.dtypes) and len(spec.results) == 1]
        around = [spec for spec in around if not isinstance(spec.lower, Pointwise) and spec.operands]
        centre = around[int(rng.integers(len(around)))]
        dtype = _dtype(rng, centre, floats=True)
        label = add_op(rng, builder, centre, dtype, limits)
        if not builder.last[0].dtype.is_float or len(builder.last) != 1:
            raise RuleError("nothing follows an op that does not give floats")
        name, labels = f"s{len(builder.steps) - 1}", [label]
    else:
        dtype = BY_NAME[draw_choice(rng, {"f32": 4, "bf16": 3, "f16": 1})]
        rank = int(rng.integers(1, 5))
        name, labels = builder.argument(draw_shape(rng, rank, dtype.bits / 8, limits, 3.0), dtype.name, numbers), []
    count = int(rng.integers(1, 4)) if centre is not None else int(rng.integers(2, 9))
    _add_chain(rng, builder, name, dtype, count, labels)
    return builder.program("fusion", " > ".join(labels), dtype.name)


def _add_chain(rng: Rng, builder: Builder, name: str, dtype: DType, count: int, labels: list[str]) -> str:
    """Pointwise ops one after the other; each keeps a few sample numbers finite and of ordinary size."""
    ops = chained_ops()
    sample = np.linspace(-8.0, 8.0, SAMPLED)
    for _ in range(8 * count):
        spec = ops[int(rng.integers(len(ops)))]
        second = numbers(rng, (SAMPLED,), BY_NAME["f64"])
        operands = (sample, second)[: len(spec.operands)]
        assert spec.reference is not None
        with np.errstate(all="ignore"):
            made = np.asarray(spec.reference(*operands, **spec.with_defaults({})))
        if made.dtype.kind != "f" or not np.isfinite(made).all() or np.abs(made).max() > LARGEST or made.std() < 0.05:
            continue
        inputs = [name]
        if len(spec.operands) == 2:
            inputs.append(_second(rng, builder, name, dtype))
        name, sample = builder.do(spec.short_name, *inputs), made
        labels.append(spec.short_name)
        if len(labels) > count:
            break
    if not builder.steps or not labels:
        raise RuleError("no op was found that follows")
    return name


def _second(rng: Rng, builder: Builder, name: str, dtype: DType) -> str:
    """Another operand: as large, a row, a column, or one number."""
    shape = builder.shape(name)
    kept = int(rng.integers(4))
    if kept == 1:
        shape = shape[-1:]
    elif kept == 2 and len(shape) > 1:
        shape = (*shape[:-1], 1)
    elif kept == 3:
        shape = ()
    return builder.argument(shape, builder.types[name].dtype.name, numbers)
