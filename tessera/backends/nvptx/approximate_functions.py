"""Functions by the machine's own approximations: short formulas for bf16, and where kernels use which, with bounds.

A function of one bf16 whose result is rounded to bf16 has 65536 arguments, so that a short formula with `ex2.approx`
and `rcp.approx` can be held against the long one at each of them: every bit is the same. With `ex2` off by up to 2 ulp
of f32 and `rcp` by 1, as PTX promises, both `gelu` round to the same bf16 everywhere; the others do at all arguments
but a few, which were tried on a Hopper (`tests/device/test_rows.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from xdsl.ir import BlockArgument, OpResult, SSAValue

from tessera.backends.nvptx.hopper.fast_math import NARROW
from tessera.backends.nvptx.values import (
    EXACT,
    HARDWARE,
    NONPOSITIVE,
    NORMAL,
    cast,
    compute,
    join_halves,
    minmax,
    minmax_pairs,
    split_word,
)
from tessera.ir.base.op import SpecOp, plain
from tessera.ir.base.types import ShapedAttr
from tessera.ir.target import typed_ops as ops
from tessera.ir.target.llvm.instructions import Value
from tessera.ir.target.llvm.math_exp import ORDINARY
from tessera.ir.target.llvm.text import FunctionText
from tessera.ir.target.llvm.vector_ops import absolute, at_least, at_most, fma, horner, mul, times
from tessera.ir.target.typed_ops import CastOp
from tessera.types.dtype import bf16, f32

if TYPE_CHECKING:
    from tessera.backends.nvptx.emit import Emitter

# Which `exp` of a kernel have arguments of at most 0, differences to the maximum of a row: they cannot overflow.

_PURE = frozenset(
    f"ttarget.{name}"
    for name in ("load", "cast", "elementwise", "select", "constant", "broadcast", "index", "coordinate")
)
"""Ops that give the same for the same operands; loads of arguments that are not written do."""
_MOST_COMPARED = 32
"""Ops that two values are compared through at most."""

Bound = tuple[SpecOp, SSAValue]
"""A loop, and a value of its iterations that is at most something."""


def find_exp_bounds(kernel: ops.KernelOp) -> dict[SpecOp, Bound]:
    """The `exp` and `exp2` ops of a kernel whose arguments are at most 0, or NaN, wherever the result is used.

    Each with the same values where the maximum was taken of them.
    """
    written: set[SSAValue] = {kernel.body.block.args[number] for number in kernel.writes}
    powers = [op for op in kernel.walk() if isinstance(op, ops.ElementwiseOp) and op.fn in ("exp", "exp2")]
    bounds = ((op, _bound(op, written)) for op in powers)
    return {op: bound for op, bound in bounds if bound is not None}


def _operands_of(value: SSAValue, fn: str) -> tuple[SSAValue, ...]:
    """The operands of the function that gives a value; none where it is another."""
    op = value.owner
    return tuple(op.operands) if isinstance(op, ops.ElementwiseOp) and op.fn == fn else ()


def _bound(op: ops.ElementwiseOp, written: set[SSAValue]) -> Bound | None:
    difference, here = _operands_of(op.operands[0], "sub"), op.parent_op()
    if not difference:
        return None
    value, maximum = difference
    for there, other in _at_most(maximum):
        if other is value:
            return there, other
        if here is there and _is_same(value, other, {}, written):
            return there, other
        if not isinstance(here, ops.LoopOp | ops.TailOp) or type(there) is not type(here):
            continue
        assert isinstance(there, ops.LoopOp | ops.TailOp)
        indices: dict[SSAValue, SSAValue] = {here.body.block.args[0]: there.body.block.args[0]}
        if _has_same_iterations(there, here, written) and _is_same(value, other, indices, written):
            return there, other
    return None


def _at_most(maximum: SSAValue, axes: tuple[int, ...] | None = None) -> Iterator[Bound]:
    """Values that are at most another, each with the loop in which it is so for every iteration.

    `axes` are those that the value is broadcast along afterwards: the maximum of a row is no bound of a column.
    """
    owner = maximum.owner
    if isinstance(owner, ops.BroadcastOp) and axes is None:
        yield from _at_most(owner.operands[0], owner.axes)
    elif isinstance(owner, ops.ReduceOp) and owner.kind == "max":
        rank = len(getattr(owner.operands[0].type, "shape", ()))
        if axes in (None, tuple(axis for axis in range(rank) if axis != owner.axis)):
            around = owner.parent_op()
            assert isinstance(around, SpecOp)
            yield from ((around, _unclip(part)) for part in _parts_of_maximum(owner.operands[0]))
            yield from _at_most(owner.operands[0])
    elif isinstance(owner, ops.SelectOp) and _is_lowest(owner.operands[0], owner.operands[2]):
        # Where all of a row is -inf, any number will do as its maximum.
        yield from _at_most(owner.operands[2], axes)
    elif isinstance(owner, ops.LoopOp | ops.TailOp):
        assert isinstance(maximum, OpResult)
        yield from _at_most_of_iterations(owner, maximum.index, axes)
    else:
        for part in _operands_of(maximum, "max"):
            yield from _at_most(part, axes)


def _at_most_of_iterations(loop: ops.LoopOp | ops.TailOp, number: int, axes: tuple[int, ...] | None) -> Iterator[Bound]:
    """The same of what a loop gives: what it begins with, and what it takes the maximum with."""
    yield from _at_most(loop.carried[number], axes)
    block = loop.body.block
    assert block.last_op is not None
    joined, carried = _parts_of_maximum(block.last_op.operands[number]), block.args[1 + number]
    if carried in joined:
        yield from ((loop, _unclip(part)) for part in joined if part is not carried)


def _parts_of_maximum(value: SSAValue) -> list[SSAValue]:
    """What a chain of maxima is of; the value itself where it is none."""
    return [one for part in _operands_of(value, "max") for one in _parts_of_maximum(part)] or [value]


def _is_lowest(test: SSAValue, value: SSAValue) -> bool:
    """Whether a test is whether a value is -inf."""
    others = [part.owner for part in _operands_of(test, "eq") if part is not value]
    return len(others) == 1 and isinstance(others[0], ops.ConstantOp) and others[0].value("value") == float("-inf")


def _unclip(value: SSAValue) -> SSAValue:
    """What is clipped: elements beyond the bound are not used."""
    return _unclip(value.owner.operands[0]) if isinstance(value.owner, ops.ClipOp) else value


def _has_same_iterations(a: ops.LoopOp | ops.TailOp, b: ops.LoopOp | ops.TailOp, written: set[SSAValue]) -> bool:
    return a.step == b.step and _is_same(a.low, b.low, {}, written) and _is_same(a.high, b.high, {}, written)


def _is_same(
    a: SSAValue, b: SSAValue, indices: Mapping[SSAValue, SSAValue], written: set[SSAValue], most: int = _MOST_COMPARED
) -> bool:
    """Whether two values are computed alike, where `indices` are those of two loops that are taken to be equal."""
    if a is b or indices.get(a) is b:
        return a not in written
    left, right = a.owner, b.owner
    if not most or a.type != b.type or not isinstance(left, SpecOp) or not isinstance(right, SpecOp):
        return False
    if left.name != right.name or left.name not in _PURE or len(left.operands) != len(right.operands):
        return False
    if isinstance(left, ops.LoadOp) and not isinstance(left.buffer, BlockArgument):
        return False
    pairs = zip(left.operands, right.operands, strict=True)
    return left.values() == right.values() and all(_is_same(x, y, indices, written, most - 1) for x, y in pairs)


_LOG2E = math.log2(math.e)
_LOWEST = 0xFF7F
"""The bits of the lowest finite bf16, which stands for -inf: times an exp that is 0 it gives 0, and not NaN."""
_SATURATED = 13.0
"""Half an exponent from which on the gate is 1."""
_ONE = 1.0 - 2.0**-24
"""The last f32 before 1: with it results on a Hopper are right at -2**-8, where with 1 they are not."""
_TANH_LINEAR, _TANH_CUBIC = 2 * math.sqrt(2 / math.pi), 2 * math.sqrt(2 / math.pi) * 0.044715
TAIL_SLOPE = 0.30000001192092896
"""The f32 nearest to 0.3: with it the substitution `1 / (1 + slope * z)` fits the tail best."""
TAIL = (
    0.03575434908270836, -0.15749506652355194, 0.20679397881031036, -0.054036643356084824, 0.12872348725795746,
    0.09987112134695053, 0.12075981497764587, 0.11962896585464478,
)  # fmt: skip
"""`exp(a**2 / 2)` times the normal distribution's share above `a`, over `v = 1 / (1 + slope * a)`, divided by `v`.

A minimax fit of the relative error from 0 to 14, with a half at 0 to the last bit; highest power first.
"""
_TAIL_END = 14.5
"""From here on the tail is below the smallest f32."""


def _exp2(f: FunctionText, x: Value) -> Value:
    return f.call("llvm.nvvm.ex2.approx.ftz.f", [x], "float")


def _reciprocal(f: FunctionText, x: Value) -> Value:
    return f.call("llvm.nvvm.rcp.approx.ftz.f", [x], "float")


def _gate(f: FunctionText, half: Value) -> tuple[Value, Value]:
    """Factors of `1 / (1 + 2**(-2 * half))`: one that is a normal number where the gate is not, and the other."""
    power = _exp2(f, at_most(f, half, _SATURATED))
    return power, mul(f, power, _reciprocal(f, fma(f, power, power, f.const_like(half, _ONE))))


def _sigmoid(f: FunctionText, x: Value) -> Value:
    power, factor = _gate(f, times(f, x, _LOG2E / 2))
    return mul(f, factor, power)


def _silu(f: FunctionText, x: Value) -> Value:
    power, factor = _gate(f, times(f, x, _LOG2E / 2))
    return mul(f, mul(f, x, factor), power)


def _gelu_tanh(f: FunctionText, x: Value) -> Value:
    linear, cubic = (f.const_like(x, number * _LOG2E / 2) for number in (_TANH_LINEAR, _TANH_CUBIC))
    power, factor = _gate(f, mul(f, x, fma(f, mul(f, x, x), cubic, linear)))
    return mul(f, mul(f, x, factor), power)


def _gelu_erf(f: FunctionText, x: Value) -> Value:
    size = at_most(f, absolute(f, x), _TAIL_END)
    v = _reciprocal(f, fma(f, size, f.const_like(x, TAIL_SLOPE), f.const_like(x, 1.0)))
    tail = mul(f, horner(f, v, TAIL), v)
    # The square root of the density, which is a normal number where the density is not.
    root = _exp2(f, times(f, mul(f, size, size), -_LOG2E / 4))
    return fma(f, f.fneg(mul(f, size, root)), mul(f, root, tail), at_least(f, x, 0.0))


SHORT: Mapping[str, Callable[[FunctionText, Value], Value]] = {
    "sigmoid": _sigmoid,
    "silu": _silu,
    "gelu_tanh": _gelu_tanh,
    "gelu_erf": _gelu_erf,
}
"""By name: f32 with the value of a bf16 to f32 that is rounded to bf16."""
TESTED = ("sm_90", "sm_90a")
"""The machines whose `ex2.approx` and `rcp.approx` were tested at every argument."""
_FLOORED = ("silu", "gelu_tanh")
"""Those that are 0 times their argument at minus infinity."""


def compute_short(f: FunctionText, name: str, arguments: Sequence[Value]) -> list[Value]:
    """A function of `SHORT` on bf16, an even number of them, rounded to bf16."""
    elements = list(arguments)
    if name in _FLOORED:
        floor = Value("i32", str(_LOWEST << 16 | _LOWEST))
        words = (join_halves(f, low, high) for low, high in zip(arguments[::2], arguments[1::2], strict=True))
        elements = [part for word in words for part in split_word(f, minmax_pairs(f, "max", word, floor))]
    return cast(f, [SHORT[name](f, x) for x in cast(f, elements, bf16, f32)], f32, bf16)


MOST_WORDS = 128
"""Words that a thread has of what it loads before it computes: half of its registers."""
MANY = 4
"""Elements of a thread from which on it is worth to look for their minimum before their exp."""


def compute_exp_near_maximum(emitter: Emitter, op: SpecOp) -> list[Value] | None:
    """`exp` of many elements that a thread has of a row less its maximum, where they are bf16, written in two branches.

    Each thread decides for itself. None for any other exp, and nothing is written.
    """
    shifted = op.operands[0].owner
    if emitter.exponential != EXACT or op not in emitter.exp_bounds or not isinstance(shifted, SpecOp):
        return None
    source, maxima = emitter.tiles[shifted.operands[0]], set(emitter.registers_of(shifted.operands[1]))
    narrow = source.narrow if source.dtype is f32 else None
    if narrow is None or narrow[0] is not bf16 or len(narrow[1]) < MANY or len(narrow[1]) % 2 or len(maxima) > 1:
        return None
    f, parts = emitter.f, emitter.registers_of(op.operands[0])
    smallest = minmax(f, "min", f32, narrow[1], narrow)
    return f.if_(
        f.fcmp("oge", f.op("fsub", smallest, maxima.pop()), f.const("float", ORDINARY)),
        lambda: [compute(f, "exp", [part], f32, promise=NORMAL) for part in parts],
        lambda: [compute(f, "exp", [part], f32, promise=NONPOSITIVE) for part in parts],
    )


def is_exp_of_range(emitter: Emitter, op: SpecOp) -> bool:
    """Whether an `exp` of f32 in a recurrence is of so many elements of a thread that it is worth to look at them.

    That is a branch, over which no load is moved: all loads of the block come before it, and are not too many for that.
    """
    loop = op.parent_op()
    if not isinstance(op, ops.ElementwiseOp) or op.fn != "exp" or emitter.exponential != EXACT:
        return False
    # Rows of a softmax have exponentials of differences, and those have bounds of their own.
    is_softmax = op in emitter.exp_bounds or bool(_operands_of(op.operands[0], "sub"))
    if not isinstance(loop, ops.LoopOp) or not loop.carried or is_softmax:
        return False
    layout, dtype = emitter.layout(op.result)
    return dtype is f32 and layout.registers >= 2 * MANY and _words_of_loads(emitter, loop) <= MOST_WORDS


def _words_of_loads(emitter: Emitter, loop: ops.LoopOp) -> int:
    """Words that a thread has of what an iteration loads."""
    found = 0
    for op in loop.body.block.ops:
        if isinstance(op, ops.LoadOp):
            layout, dtype = emitter.layout(op.result)
            registers = layout.registers // layout.vector if op.pattern == "uniform" else layout.registers
            found += -(-registers * dtype.bytes // 4)
    return found


def compute_exp_of_range(emitter: Emitter, op: SpecOp) -> list[Value]:
    """`exp` of many elements that a thread has, without bounds where all of them are ordinary: every bit is the same.

    Elsewhere, which is rare, a function that takes any argument is called for each.
    """
    f, parts = emitter.f, emitter.registers_of(op.operands[0])
    distinct = list(dict.fromkeys(parts))
    greatest = absolute(f, distinct[0])
    for part in distinct[1:]:
        greatest = f.intrinsic("maximum", greatest, absolute(f, part))
    whole = f.module.outline(
        ("exp", "float"),
        "any_exp",
        [("float", "x")],
        lambda g: g.ret(compute(g, "exp", list(g.arguments), f32)),
        "float",
    )
    found = f.if_(
        f.fcmp("ole", greatest, f.const("float", -ORDINARY)),
        lambda: [compute(f, "exp", [part], f32, promise=NORMAL) for part in distinct],
        lambda: [f.call(whole, [part], "float") for part in distinct],
    )
    by_argument = dict(zip(distinct, found, strict=True))
    return [by_argument[part] for part in parts]


# Where kernels use approximations, how far those are off, and how they are forbidden.

EXACT_MATH = "numerics.exact"
"""The attribute of a tensor-core kernel whose functions are polynomials, not the machine's approximations."""

_WHOLE = {name: f"{ulps} units of the last place of f32" for name, ulps in (("exp2", 2), ("exp", 3), ("sigmoid", 6))}
"""In tensor-core kernels, results that are kept in f32."""
_ROUNDED = dict.fromkeys((*NARROW, "div"), "0.01 units of the last place of bf16 before it is rounded to that")
"""In tensor-core kernels, results of which no more than bf16 is used."""


def is_exact(kernel: SpecOp) -> bool:
    """Whether a tensor-core kernel must use no approximation."""
    found = kernel.attributes.get(EXACT_MATH)
    return found is not None and bool(plain(found))


def is_rounded(value: SSAValue) -> bool:
    """Whether all uses of a value round it to bf16."""
    users = [use.operation for use in value.uses]
    types = [user.results[0].type for user in users if isinstance(user, CastOp)]
    return len(types) == len(users) and all(isinstance(type, ShapedAttr) and type.dtype is bf16 for type in types)


def is_narrow(op: SpecOp) -> bool:
    """Whether a function of f32 in a tensor-core kernel has a short form: its result is rounded to bf16 next."""
    type = op.operands[0].type
    of_f32 = isinstance(type, ShapedAttr) and type.dtype.compute is f32
    return of_f32 and op.value("fn") in (*NARROW, "div") and is_rounded(op.result)


def approximations(kernel: SpecOp, exponential: str) -> tuple[str, ...]:
    """What a `ttarget` kernel computes otherwise than the reference's polynomials, each with its bound."""
    found: set[str] = set()
    is_on_tensor_cores = kernel.name != "ttarget.kernel"
    for op in kernel.walk():
        if not isinstance(op, SpecOp) or op.name != "ttarget.elementwise":
            continue
        name, type = op.value("fn"), op.operands[0].type
        if not isinstance(type, ShapedAttr) or type.dtype.compute is not f32:
            continue
        if not is_on_tensor_cores:
            if name == "exp" and exponential == HARDWARE:
                found.add("exp within 4 units of the last place of f32")
        elif is_exact(kernel):
            continue
        elif is_narrow(op):
            found.add(f"{name} within {_ROUNDED[name]}")
        elif name in _WHOLE:
            found.add(f"{name} within {_WHOLE[name]}")
    return tuple(sorted(found))
