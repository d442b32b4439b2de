"""Making random programs: each step picks an op and operands that fit it, until the program is deep enough."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tessera.types import dtype as dt
from tessera.types.dim import Dim
from tessera.types.dtype import DType
from tessera.types.promotion import sum_of
from tessera.types.shape import TensorType
from tests.fuzz.program import DTYPES, Program, Step, Value

DEPTH = 10
LARGEST = 20000
SIZES = (4, 5, 7, 11, 13, 16, 17, 31)

Made: TypeAlias = "tuple[str, tuple[Value, ...], TensorType, bool] | None"
"""Text, operands, type, and whether the op itself is exact; None where no operands fit."""


@dataclass
class Generator:
    """A program being made."""

    seed: int
    ops: Sequence[Callable[[Any], Made]] = ()
    depth: int = DEPTH
    rng: random.Random = field(init=False)
    values: list[Value] = field(default_factory=list[Value])
    steps: list[Step] = field(default_factory=list[Step])

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.sizes = tuple({name: self.rng.choice(SIZES) for name in "ABC"} for _ in range(2))

    def pick(self, fits: Callable[[Value], bool], *, exact: bool = False, late: int = 5) -> Value | None:
        """A value that fits, a late one more likely than an early one."""
        found = [value for value in self.values if fits(value) and (value.is_exact or not exact)]
        if not found:
            return None
        return found[max(self.rng.randrange(len(found)) for _ in range(late))]

    def other(self, first: Value, fits: Callable[[Value], bool], *, exact: bool = False) -> Value | None:
        """A second operand: another value where there is one, however early."""
        found = self.pick(lambda value: value is not first and fits(value), exact=exact, late=1)
        return found or self.pick(lambda value: value is first and fits(value), exact=exact)

    def is_small(self, shape: Sequence[Dim]) -> bool:
        """Whether a shape has elements, and not too many, for all sizes."""
        type = TensorType(tuple(shape), dt.f32)
        counts = [type.substitute(sizes).size.value or 0 for sizes in self.sizes]
        dims = [dim.value or 0 for sizes in self.sizes for dim in type.substitute(sizes).shape]
        return len(shape) <= 4 and all(0 < count <= LARGEST for count in counts) and all(size > 0 for size in dims)

    def add(self, made: Made) -> None:
        if made is None:
            return
        text, operands, type, is_exact = made
        if not self.is_small(type.shape):
            return
        value = Value(
            f"v{len(self.steps)}",
            type,
            1 + max(operand.depth for operand in operands),
            is_exact and all(operand.is_exact for operand in operands),
        )
        self.values.append(value)
        self.steps.append(Step(value, text, tuple(operand.name for operand in operands)))

    def run(self) -> Program:
        inputs = self.make_inputs()
        self.values += inputs
        while self.steps == [] or max(value.depth for value in self.values) < self.depth:
            self.add(self.rng.choice(self.ops)(self))
        used = {name for step in self.steps for name in step.uses}
        ends = [step.value for step in self.steps if step.value.name not in used]
        deepest = max(self.values, key=lambda value: value.depth)
        others = [self.rng.choice(ends)] if self.rng.random() < 0.3 else []
        outputs = tuple(dict.fromkeys(value.name for value in (deepest, *others)))
        return Program(self.seed, tuple(inputs), tuple(self.steps), outputs, self.sizes).pruned()

    def make_inputs(self) -> list[Value]:
        a, b, c = (Dim.symbol(name) for name in "ABC")
        shapes = [(a, b), (b, c), (a,), (b,), (a, b, c), (c, b), (Dim.constant(3), a), ()]
        first = self.rng.choice((dt.f32, dt.f32, dt.f32, dt.bf16, dt.f64, dt.i32))
        types = [TensorType(shapes[0], first), TensorType(shapes[1], first)]
        for _ in range(self.rng.randrange(1, 4)):
            types.append(TensorType(self.rng.choice(shapes), self.rng.choice((first, *DTYPES))))
        return [Value(f"x{number}", type) for number, type in enumerate(types)]


def _is_number(value: Value) -> bool:
    return not value.dtype.is_bool


def _is_wide(value: Value) -> bool:
    return value.dtype in (dt.f32, dt.f64)


def broadcast_shape(left: Value, right: Value) -> tuple[Dim, ...] | None:
    """The shape two values meet in, where that is plain to see."""
    rank = max(len(left.shape), len(right.shape))
    one = Dim.constant(1)
    shapes = [(one,) * (rank - len(value.shape)) + value.shape for value in (left, right)]
    met: list[Dim] = []
    for x, y in zip(*shapes, strict=True):
        if x != y and x != one and y != one:
            return None
        met.append(y if x == one else x)
    return tuple(met)


def meets_shape(left: Value) -> Callable[[Value], bool]:
    return lambda right: right.dtype is left.dtype and broadcast_shape(left, right) is not None


def _unary(g: Generator) -> Made:
    x = g.pick(_is_number)
    if x is None:
        return None
    smooth = ["-{x}", "abs({x})", "ops.relu({x})", "{x} + 1", "{x} * 3"]
    if x.dtype.is_float:
        smooth += ["{x} * 0.5", "{x} - 0.25", "0.5 - {x}"]
    steps = ["ops.sign({x})"] + (["ops.floor({x})", "ops.round({x})", "ops.sqrt(abs({x}))"] if x.dtype.is_float else [])
    return g.rng.choice(smooth + (steps if x.is_exact else [])).format(x=x.name), (x,), x.type, True


def _binary(g: Generator) -> Made:
    x = g.pick(_is_number)
    y = g.other(x, meets_shape(x)) if x is not None else None
    if x is None or y is None:
        return None
    forms = ["{x} + {y}", "{x} - {y}", "{x} * {y}", "ops.maximum({x}, {y})", "ops.minimum({x}, {y})"]
    if x.is_exact and y.is_exact:
        forms += ["{x} / ({y} * {y} + 1)"] if x.dtype.is_float else ["{x} // {y}", "{x} % {y}", "{x} ^ {y}"]
    shape = broadcast_shape(x, y)
    assert shape is not None
    return g.rng.choice(forms).format(x=x.name, y=y.name), (x, y), TensorType(shape, x.dtype), True


def _compare(g: Generator) -> Made:
    x = g.pick(_is_number, exact=True)
    y = g.other(x, meets_shape(x), exact=True) if x is not None else None
    if x is None or y is None:
        return None
    shape = broadcast_shape(x, y)
    assert shape is not None
    sign = g.rng.choice(("<", "<=", "==", "!=", ">", ">="))
    return f"{x.name} {sign} {y.name}", (x, y), TensorType(shape, dt.bool_), True


def _logical(g: Generator) -> Made:
    x = g.pick(lambda value: value.dtype.is_bool)
    y = g.other(x, meets_shape(x)) if x is not None else None
    if x is None or y is None:
        return None
    shape = broadcast_shape(x, y)
    assert shape is not None
    return f"{x.name} {g.rng.choice('&|^')} {y.name}", (x, y), TensorType(shape, dt.bool_), True


def _where(g: Generator) -> Made:
    x = g.pick(_is_number)
    y = g.other(x, lambda value: value.dtype is x.dtype and value.shape == x.shape) if x is not None else None
    if x is None or y is None:
        return None
    condition = g.pick(lambda value: value.dtype.is_bool and value.shape == x.shape)
    if condition is not None:
        return f"ops.where({condition.name}, {x.name}, {y.name})", (condition, x, y), x.type, True
    if not x.is_exact:
        return None
    return f"ops.where({x.name} > 0, {x.name}, {y.name})", (x, y), x.type, True


def _cast(g: Generator) -> Made:
    x = g.pick(lambda value: True)
    if x is None:
        return None
    wanted: DType = g.rng.choice(DTYPES if x.is_exact else (dt.f32, dt.f64))
    if wanted is x.dtype or (not x.is_exact and x.dtype is dt.f64):
        return None
    name = "bool_" if wanted.is_bool else wanted.name
    return f"{x.name}.cast(ts.{name})", (x,), x.type.with_dtype(wanted), True


def _reduce(g: Generator) -> Made:
    x = g.pick(lambda value: _is_number(value) and len(value.shape) > 0)
    if x is None:
        return None
    kinds = ["sum", "max", "min"] + (["mean"] if x.dtype.is_float else []) + (["argmax"] if x.is_exact else [])
    kind, axis = g.rng.choice(kinds), g.rng.randrange(len(x.shape))
    keepdims = g.rng.random() < 0.6
    kept = (
        (*x.shape[:axis], Dim.constant(1), *x.shape[axis + 1 :])
        if keepdims
        else (*x.shape[:axis], *x.shape[axis + 1 :])
    )
    dtype = {"sum": sum_of(x.dtype), "argmax": dt.i64}.get(kind, x.dtype)
    return f"{x.name}.{kind}(axis={axis}, keepdims={keepdims})", (x,), TensorType(kept, dtype), True


def make_matmul(g: Generator) -> Made:
    x = g.pick(lambda value: _is_number(value) and len(value.shape) >= 2)
    if x is None:
        return None
    inner = x.shape[-1]
    y = g.other(x, lambda value: value.dtype is x.dtype and len(value.shape) == 2 and value.shape[0] == inner)
    if y is not None:
        # the interpreter's f64 products are NumPy's, which go in another order
        return f"{x.name} @ {y.name}", (x, y), TensorType((*x.shape[:-1], y.shape[1]), x.dtype), x.dtype is not dt.f64
    y = g.other(x, lambda value: value.dtype is x.dtype and len(value.shape) == 2 and value.shape[1] == inner)
    if y is None:
        return None
    return f"{x.name} @ {y.name}.T", (x, y), TensorType((*x.shape[:-1], y.shape[0]), x.dtype), x.dtype is not dt.f64


def make_transpose(g: Generator) -> Made:
    x = g.pick(lambda value: len(value.shape) >= 2)
    if x is None:
        return None
    axes = list(range(len(x.shape)))
    g.rng.shuffle(axes)
    shape = tuple(x.shape[axis] for axis in axes)
    return f"ops.transpose({x.name}, {tuple(axes)})", (x,), x.type.with_shape(shape), True


def make_reshape(g: Generator) -> Made:
    x = g.pick(lambda value: len(value.shape) >= 1)
    if x is None:
        return None
    shape = list(x.shape)
    if any("floordiv" in str(dim) for dim in shape):
        # Python cannot say such a size
        return None
    if len(shape) > 1 and g.rng.random() < 0.6:
        axis = g.rng.randrange(len(shape) - 1)
        shape[axis : axis + 2] = [shape[axis] * shape[axis + 1]]
    else:
        shape.insert(g.rng.randrange(len(shape) + 1), Dim.constant(1))
    return f"{x.name}.reshape({', '.join(map(str, shape))})", (x,), x.type.with_shape(shape), True


def make_slice(g: Generator) -> Made:
    x = g.pick(lambda value: len(value.shape) >= 1)
    if x is None:
        return None
    axis = g.rng.randrange(len(x.shape))
    dim = x.shape[axis]
    if dim == Dim.constant(1):
        return None
    forms: dict[str, Dim] = {"1:": dim - 1, ":-1": dim - 1, "::-1": dim, "::2": dim.ceildiv(2)}
    if dim.is_static:
        forms["0:2"] = Dim.constant(2)
    # every axis has at least one element left, and two where two are asked for
    form = g.rng.choice(sorted(forms))
    if any((dim.evaluate(sizes) if not dim.is_static else dim.value or 0) < 2 for sizes in g.sizes):
        return None
    places = ", ".join([":"] * axis + [form])
    shape = (*x.shape[:axis], forms[form], *x.shape[axis + 1 :])
    return f"{x.name}[{places}]", (x,), x.type.with_shape(shape), True


def make_concat(g: Generator) -> Made:
    x = g.pick(lambda value: len(value.shape) >= 1)
    if x is None:
        return None
    axis = g.rng.randrange(len(x.shape))

    def fits(value: Value) -> bool:
        others = [(a, b) for own, (a, b) in enumerate(zip(value.shape, x.shape, strict=True)) if own != axis]
        return all(a == b for a, b in others)

    y = g.other(x, lambda value: value.dtype is x.dtype and len(value.shape) == len(x.shape) and fits(value))
    if y is None:
        return None
    shape = (*x.shape[:axis], x.shape[axis] + y.shape[axis], *x.shape[axis + 1 :])
    return f"ops.concat(({x.name}, {y.name}), axis={axis})", (x, y), x.type.with_shape(shape), True


def make_pad(g: Generator) -> Made:
    x = g.pick(lambda value: len(value.shape) >= 1 and _is_number(value))
    if x is None:
        return None
    widths = [(g.rng.randrange(3), g.rng.randrange(3)) for _ in x.shape]
    shape = tuple(dim + low + high for dim, (low, high) in zip(x.shape, widths, strict=True))
    return f"ops.pad({x.name}, {tuple(widths)})", (x,), x.type.with_shape(shape), True


def _running(g: Generator) -> Made:
    x = g.pick(lambda value: _is_number(value) and len(value.shape) >= 1, exact=True)
    if x is None:
        return None
    axis = g.rng.randrange(len(x.shape))
    form = g.rng.choice(("ops.cumsum({x}, axis={axis})", "ops.sort({x}, axis={axis})", "ops.flip({x}, axis={axis})"))
    dtype = sum_of(x.dtype) if "cumsum" in form else x.dtype
    return form.format(x=x.name, axis=axis), (x,), x.type.with_dtype(dtype), True


def _take(g: Generator) -> Made:
    x = g.pick(lambda value: len(value.shape) >= 1)
    index = g.pick(lambda value: value.dtype in (dt.i64, dt.i32) and len(value.shape) == 1)
    if x is None or index is None:
        return None
    return f"ops.take({x.name}, {index.name})", (x, index), x.type.with_shape((*index.shape, *x.shape[1:])), True


def _function(g: Generator) -> Made:
    x = g.pick(_is_wide)
    if x is None:
        return None
    forms = ["ops.exp(ops.minimum({x}, 3.0))", "ops.log1p(abs({x}))", "ops.erf({x})"]
    forms += [f"ops.{name}({{x}})" for name in ("tanh", "sigmoid", "gelu", "silu", "softplus")]
    return g.rng.choice(forms).format(x=x.name), (x,), x.type, False


def _row_function(g: Generator) -> Made:
    x = g.pick(lambda value: _is_wide(value) and len(value.shape) >= 2)
    if x is None:
        return None
    name = g.rng.choice(("softmax", "log_softmax", "layernorm", "rmsnorm"))
    return f"ops.{name}({x.name})", (x,), x.type, False


OPS: tuple[Callable[[Generator], Made], ...] = (
    *(_binary,) * 6,
    *(_unary,) * 3,
    *(_reduce,) * 3,
    *(make_matmul,) * 3,
    *(_cast,) * 2,
    *(make_transpose,) * 2,
    *(make_reshape,) * 2,
    *(make_slice,) * 2,
    *(_where,) * 2,
    *(_function,) * 2,
    _row_function,
    _compare,
    _logical,
    make_concat,
    make_pad,
    _running,
    _take,
)


def random_program(seed: int) -> Program:
    """The program of a seed: the same in every run."""
    return Generator(seed, OPS).run()
