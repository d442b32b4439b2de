"""Arithmetic on tiles that threads hold, as LLVM text: functions, quotients, casts, constants, coordinates, clips."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from typing import TYPE_CHECKING, TypeAlias

from xdsl.ir import Operation

from tessera.backends.nvptx import values
from tessera.backends.nvptx.approximate_functions import (
    SHORT,
    TESTED,
    compute_exp_near_maximum,
    compute_exp_of_range,
    compute_short,
    is_exp_of_range,
)
from tessera.ir.base.op import SpecOp
from tessera.ir.target import typed_ops as ops
from tessera.ir.target.llvm import convert, math, math_log, math_trig
from tessera.ir.target.llvm.instructions import Value, dim_value
from tessera.ir.target.llvm.math_exp import over
from tessera.ir.target.llvm.text import FunctionText
from tessera.ir.target.llvm.vector_ops import absolute, bits
from tessera.types.dim import Dim
from tessera.types.dtype import DType, bf16, f8e4m3, f16, f32, i64

if TYPE_CHECKING:
    from tessera.backends.nvptx.emit import Emitter


Test: TypeAlias = Callable[[FunctionText, Value], Value]
PLAIN = ("", "nearest_even")
"""How a cast rounds that is not told otherwise."""
QUOTIENTS = 4
"""Quotients by one divisor, from which on they are written in two branches."""
_LEAST, _MOST = 0x21800000, 0x5D800000
"""The bits of 2**-60 and 2**60: between these nothing that a quotient is computed from leaves the normal numbers."""


ORDINARY: Mapping[str, tuple[Test, Test]] = {
    "sin": (math_trig.is_near, math_trig.sin_near),
    "cos": (math_trig.is_near, math_trig.cos_near),
    "tan": (math_trig.is_near, math_trig.tan_near),
    "log": (math_log.is_normal, math_log.log_normal),
    "log2": (math_log.is_normal, math_log.log2_normal),
    "log1p": (math_log.is_inside, math_log.log1p_inside),
}
"""By name: whether an argument is an ordinary one, and the function of those, which has the same bits."""


KEPT = ("neg", "abs", "relu", "max", "min")
"""Functions that give one of their operands, 0, or such a number with another sign: narrow floats stay such."""


def emit_elementwise(emitter: Emitter, op: ops.ElementwiseOp) -> None:
    """A function of each element."""
    operands = [emitter.registers_of(value) for value in op.operands]
    dtype = emitter.tiles[op.operands[0]].dtype
    fn = op.fn
    if fn == "div" and dtype is f32 and _divide_many(operands[1]):
        emitter.set_result(op, divide_by_common(emitter.f, operands[0], operands[1]))
        return
    found = compute_exp_near_maximum(emitter, op) if fn == "exp" else None
    if found is None and is_exp_of_range(emitter, op):
        found = compute_exp_of_range(emitter, op)
    if found is not None:
        emitter.set_result(op, found)
        return
    if fn in ORDINARY and len(operands[0]) > 1:
        emitter.set_result(op, compute_ordinary(emitter.f, fn, operands[0], dtype))
        return
    promise = values.NONPOSITIVE if op in emitter.exp_bounds else ""
    elements = zip(*operands, strict=True)
    made = emitter.set_result(
        op, [values.compute(emitter.f, fn, list(parts), dtype, emitter.exponential, promise) for parts in elements]
    )
    kinds = {emitter.tiles[value].exact for value in op.operands}
    made.exact = kinds.pop() if fn in KEPT and len(kinds) == 1 else None
    if fn == "fma" and dtype is f32 and emitter.holds_back:
        made.registers = _hold_back(emitter, made.registers)


SPACED = 8
"""Terms of a long chain after which those that follow may be loaded: a few hundred cycles of multiply-adds."""


def count_terms(kernel: SpecOp) -> int:
    """Terms of the chains of multiply-adds of a kernel."""
    return sum(isinstance(op, ops.ElementwiseOp) and op.fn == "fma" for op in kernel.walk())


def _hold_back(emitter: Emitter, totals: Sequence[Value]) -> Sequence[Value]:
    """Totals of a chain; every few terms they are computed before anything that follows is loaded.

    LLVM would load all that a block reads before it multiplies any of it, and have no register left.
    """
    emitter.terms += 1
    if emitter.terms % SPACED:
        return totals
    f, count = emitter.f, len(totals)
    type_ = f"{{ {', '.join(one.type for one in totals)} }}" if count > 1 else totals[0].type
    constraints = ",".join([*["=f"] * count, *map(str, range(count))])
    given = ", ".join(map(str, totals))
    found = f.raw(type_, f'call {type_} asm sideeffect "", "{constraints}"({given})')
    if count == 1:
        return [found]
    return [f.raw(one.type, f"extractvalue {type_} {found.text}, {at}") for at, one in enumerate(totals)]


def has_branches(op: Operation) -> bool:
    """Whether an op computes ordinary elements in a branch of their own."""
    return isinstance(op, ops.ElementwiseOp) and (op.fn in ORDINARY or op.fn == "div")


def compute_ordinary(f: FunctionText, name: str, arguments: Sequence[Value], dtype: DType) -> list[Value]:
    """A function of `ORDINARY` of all elements that a thread has.

    Where each of them is ordinary, there is no test of one by one and no branch between them, so that all are computed
    side by side. Elsewhere, which is rare, a function that takes any argument is called for each.
    """
    test, compute = ORDINARY[name]
    distinct = list(dict.fromkeys(arguments))
    type_ = distinct[0].type
    whole = f.module.outline(
        (name, type_), f"any_{name}", [(type_, "x")], lambda g: g.ret(math.emit(g, name, g.arguments, dtype)), type_
    )
    found = f.if_(
        reduce(partial(f.op, "and"), [test(f, value) for value in distinct]),
        lambda: [compute(f, value) for value in distinct],
        lambda: [f.call(whole, [value], type_) for value in distinct],
    )
    by_argument = dict(zip(distinct, found, strict=True))
    return [by_argument[value] for value in arguments]


def _divide_many(divisors: Sequence[Value]) -> bool:
    """Whether a few numbers that are not constant divide many."""
    distinct = set(divisors)
    return len(divisors) >= QUOTIENTS * len(distinct) and all(value.text.startswith("%") for value in distinct)


def divide_by_common(f: FunctionText, dividends: Sequence[Value], divisors: Sequence[Value]) -> list[Value]:
    """Each of the f32 `dividends` divided by its divisor, of which there are few, rounded once.

    A GPU's division tests every quotient for operands that are no normal numbers, and in a branch, which keeps it from
    computing several at a time. Here the test is of all operands together: where the least and the greatest exponent
    are harmless, every quotient is a reciprocal and a correction, without a branch.
    """
    sizes = [bits(f, absolute(f, value)) for value in dict.fromkeys((*divisors, *dividends))]
    smallest = largest = sizes[0]
    for size in sizes[1:]:
        smallest, largest = f.intrinsic("umin", smallest, size), f.intrinsic("umax", largest, size)
    is_inside = f.op(
        "and", f.icmp("uge", smallest, f.const("i32", _LEAST)), f.icmp("ule", largest, f.const("i32", _MOST))
    )
    pairs = list(zip(dividends, divisors, strict=True))
    return f.if_(
        is_inside,
        lambda: [over(f, dividend, divisor) for dividend, divisor in pairs],
        lambda: [f.op("fdiv", dividend, divisor) for dividend, divisor in pairs],
    )


def emit_cast(emitter: Emitter, op: ops.CastOp) -> None:
    """Elements in another dtype."""
    source = emitter.tiles[op.operands[0]]
    registers = emitter.registers(source)
    _, to = emitter.layout(op.result)
    made = emitter.set_result(
        op,
        (source.wide if to is f32 else None)
        or _compute_pairs(emitter, op)
        or _compute_short(emitter, op)
        or _compute_bytes(emitter, op)
        or values.cast(emitter.f, registers, source.dtype, to),
    )
    if not op.rounding and source.dtype.is_float and source.dtype.bits < to.bits:
        made.narrow = source.narrow or (source.dtype, registers)
    if to is f32 and source.dtype in (bf16, f16):
        made.exact = source.dtype
    # What is read as f32 again is taken as it was; only a NaN has other bits in between, which none of it keeps.
    made.wide = registers if to is source.exact and to in (bf16, f16) and op.rounding in PLAIN else None
    if source.transposed is not None and made.narrow is not None and source.transposed.narrow is None:
        made.transposed = source.transposed


def _compute_pairs(emitter: Emitter, op: ops.CastOp) -> list[Value] | None:
    """A function of two bf16 or f16 that is rounded to that again: one instruction for two of them."""
    maker = op.operands[0].owner
    if not emitter.machine.has("sm_90") or not isinstance(maker, ops.ElementwiseOp):
        return None
    parts = [emitter.tiles[value].narrow for value in maker.operands]
    to = emitter.layout(op.result)[1]
    is_known = maker.fn in values.PAIRED and to in (bf16, f16) and op.rounding in PLAIN
    if not is_known or None in parts or any(part[0] is not to or len(part[1]) % 2 for part in parts if part):
        return None
    left, right = (part[1] for part in parts if part)
    return values.compute_pairs(emitter.f, maker.fn, left, right, to)


def _compute_short(emitter: Emitter, op: ops.CastOp) -> list[Value] | None:
    """A function of a bf16 that is rounded to bf16 again, by a formula that has the same bits on Hopper."""
    maker = op.operands[0].owner
    if emitter.machine.cpu not in TESTED or not isinstance(maker, ops.ElementwiseOp):
        return None
    if maker.fn not in SHORT or emitter.layout(op.result)[1] is not bf16:
        return None
    source = emitter.tiles[maker.operands[0]]
    given, is_plain = source.narrow, op.rounding in PLAIN and source.dtype is f32
    if given is None or given[0] is not bf16 or len(given[1]) % 2 or not is_plain:
        return None
    return compute_short(emitter.f, maker.fn, given[1])


def _compute_bytes(emitter: Emitter, op: ops.CastOp) -> list[Value] | None:
    """f32 as floats of 8 bits by the machine's conversion of two at a time; rounded and held to the range in one."""
    to, maker = emitter.layout(op.result)[1], op.operands[0].owner
    source = emitter.tiles[op.operands[0]]
    is_plain = op.rounding in PLAIN and source.dtype is f32 and source.layout.registers % 2 == 0
    if to not in values.BYTES or not is_plain or not emitter.machine.has("sm_90"):
        return None
    if isinstance(maker, ops.RoundOp) and to is f8e4m3 and maker.values() == {**_SATURATED, "format": to.name}:
        return values.to_bytes(emitter.f, emitter.registers_of(maker.operands[0]), to, is_saturated=True)
    return values.to_bytes(emitter.f, emitter.registers(source), to)


_SATURATED = {"rounding": "nearest_even", "saturation": "saturate", "denormals": "keep"}
"""What the machine does beside rounding to 8 bits."""


def emit_round(emitter: Emitter, op: ops.RoundOp) -> None:
    """Elements rounded to fewer bits, as the op says."""
    source, *random = (emitter.registers_of(value) for value in op.operands)
    drawn = random[0] if random else [None] * len(source)
    modes = [convert.Rounding(**op.values(), random=part) for part in drawn]
    emitter.set_result(
        op, [convert.round_to(emitter.f, value, mode) for value, mode in zip(source, modes, strict=True)]
    )


def emit_bitcast(emitter: Emitter, op: ops.BitcastOp) -> None:
    """The bits of elements, seen as another dtype."""
    _, to = emitter.layout(op.result)
    type_ = values.register_type(to)
    emitter.set_result(op, [emitter.f.bitcast(value, type_) for value in emitter.registers_of(op.operands[0])])


def emit_select(emitter: Emitter, op: ops.SelectOp) -> None:
    """One of two, by element."""
    parts = zip(*[emitter.registers_of(value) for value in op.operands], strict=True)
    emitter.set_result(op, [emitter.f.select(condition, first, second) for condition, first, second in parts])


def emit_constant(emitter: Emitter, op: ops.ConstantOp) -> None:
    """One number everywhere."""
    layout, dtype = emitter.layout(op.result)
    value = op.value("value")
    if isinstance(value, Dim):
        scalar = values.cast(emitter.f, [dim_value(emitter.f, value, emitter.env)], i64, dtype)[0]
    else:
        scalar = values.constant(emitter.f, dtype, value)
    emitter.set_result(op, [scalar] * layout.registers)


def emit_coordinate(emitter: Emitter, op: ops.CoordinateOp) -> None:
    """An expression of the coordinates of each element."""
    layout, dtype = emitter.layout(op.result)
    env = emitter.index_values(op.coords, op.at)
    found: list[Value] = []
    for register in range(layout.registers):
        value = dim_value(emitter.f, op.expr, emitter.coordinates(env, op.axes, layout, register))
        found.append(convert.cast(emitter.f, value, i64, dtype) if dtype is not i64 else value)
    emitter.set_result(op, found)


def emit_clip(emitter: Emitter, op: ops.ClipOp) -> None:
    """Elements below a bound along an axis; the others become the identity."""
    f, source = emitter.f, emitter.tiles[op.operands[0]]
    env = emitter.index_values(op.coords, op.at)
    other = values.constant(f, source.dtype, op.identity)
    found: list[Value] = []
    for register, value in enumerate(emitter.registers(source)):
        here = emitter.coordinates(env, op.axes, source.layout, register)
        bound = dim_value(f, op.bound, here)
        inside = emitter.is_below(env, op.axes, op.axis, source.layout, register, bound)
        found.append(f.select(inside, value, other))
    emitter.set_result(op, found)
