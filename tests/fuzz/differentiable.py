"""Random programs to differentiate: floats all the way, with branches, loops, indices, sorts and transforms inside.

Their text is of names that two libraries can give (`tests/fuzz/bindings.py`): Tessera, and JAX for a comparison. Values
stay small, so that sums in another order change nothing that matters, and whatever has a corner, a jump or an order is
given values that are told apart by a little on purpose (`jitter`), unless they are the same to the last bit anywhere.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tessera.types import dtype as dt
from tessera.types.dim import Dim
from tessera.types.dtype import DType
from tessera.types.shape import TensorType
from tests.fuzz.generate import (
    Generator,
    Made,
    broadcast_shape,
    make_concat,
    make_pad,
    make_reshape,
    make_slice,
    make_transpose,
    meets_shape,
)
from tests.fuzz.program import Program, Value

DEPTH = 6
LARGEST = 4.0
"""The size of numbers above which a value is scaled down."""
SMOOTH = (
    "-{x}", "{x} * 0.5", "{x} + 1.0", "0.5 - {x}", "ops.sin({x})", "ops.cos({x})", "ops.tanh({x})", "ops.sigmoid({x})",
    "ops.exp(ops.tanh({x}))", "ops.expm1(ops.sin({x}))", "ops.exp2(ops.tanh({x}))", "ops.log1p({x} * {x})",
    "ops.log({x} * {x} + 0.5)", "ops.log2({x} * {x} + 1.0)", "ops.sqrt({x} * {x} + 0.5)", "ops.rsqrt({x} * {x} + 0.5)",
    "ops.erf({x})", "ops.gelu({x})", "ops.silu({x})", "ops.softplus({x})", "ops.square({x})", "ops.tan(ops.sin({x}))",
    "1.0 / ({x} * {x} + 1.0)", "ops.reciprocal({x} * {x} + 1.0)", "({x} * {x} + 0.5) ** 1.5", "{x} ** 3.0",
    "ops.stop_gradient({x}) * {x}", "ops.log1p(abs(jitter({x})))",
)  # fmt: skip
CORNERS = (
    "abs({x})", "ops.relu({x})", "ops.clamp({x}, -1.0, 0.75)", "ops.floor({x}) + {x}", "ops.round({x}) * {x}",
    "ops.sign({x}) * {x}", "ops.trunc({x}) - {x}", "ops.ceil({x}) + {x}", "ops.where({x} > 0.25, {x}, {x} * 0.5)",
)  # fmt: skip
BODIES = (
    "ops.tanh({a})", "ops.sin({a})", "{a} * {b}", "{a} + {b}", "{a} - 0.5 * {b}", "{a} / ({b} * {b} + 1.0)",
    "ops.sigmoid({a}) * {b}", "ops.exp(-{a} * {a})", "ops.maximum({a}, {b} + 0.1)", "ops.where({a} > {b}, {a}, 0.5)",
)  # fmt: skip


@dataclass
class DifferentiableGenerator(Generator):
    """A program being made; `sizes_of_numbers` says how large the numbers of a value may be."""

    dtype: DType = dt.f64
    numbers: dict[str, float] = field(default_factory=dict[str, float])
    size: float | None = None
    """How large the numbers of the value being made are, where it is not as large as its operands."""

    def __post_init__(self) -> None:
        self.rng = random.Random(f"differentiable {self.seed}")
        self.sizes = tuple({name: self.rng.choice((1, 2, 3, 4, 5, 7)) for name in "ABC"} for _ in range(2))

    def pick(self, fits: Callable[[Value], bool], *, exact: bool = False, late: int = 3) -> Value | None:
        """A float that fits; integers are indices alone."""
        return super().pick(lambda value: value.dtype.is_float and fits(value), exact=exact, late=late)

    def pick_index(self, fits: Callable[[Value], bool] = lambda value: True) -> Value | None:
        """An input of indices."""
        return super().pick(lambda value: value.dtype is dt.i64 and fits(value))

    def make_inputs(self) -> list[Value]:
        a, b, c = (Dim.symbol(name) for name in "ABC")
        shapes = [(a, b), (b, c), (a,), (b,), (a, b, c), (c, b), (Dim.constant(3), a), ()]
        types = [TensorType(shapes[0], self.dtype), TensorType(shapes[1], self.dtype)]
        types += [TensorType(self.rng.choice(shapes), self.dtype) for _ in range(self.rng.randrange(1, 4))]
        types.append(TensorType(self.rng.choice(((a,), (b,), (Dim.constant(4),))), dt.i64))
        inputs = [Value(f"x{number}", type) for number, type in enumerate(types)]
        self.numbers = {value.name: 2.0 for value in inputs}
        return inputs

    def add(self, made: Made) -> None:
        size, self.size = self.size, None
        if made is None or not self.is_small(made[2].shape):
            return
        text, operands, type, is_exact = made
        if size is None:
            size = max(self.numbers[operand.name] for operand in operands)
        if size > LARGEST:
            text, size, is_exact = f"({text}) * {2.0 / size:.3g}", 2.0, False
        self.numbers[f"v{len(self.steps)}"] = size
        super().add((text, operands, type, is_exact))

    def told_apart(self, value: Value) -> str:
        """A value for an op that has corners."""
        return value.name if value.is_exact else f"jitter({value.name})"

    def expression(self, names: Sequence[str], depth: int = 2) -> str:
        """An expression of values of one shape."""
        if depth == 0:
            return self.rng.choice(names)
        text = self.rng.choice(BODIES)
        return f"({text})".format(a=self.expression(names, depth - 1), b=self.rng.choice(names))


G = DifferentiableGenerator


def _smooth(g: G) -> Made:
    x = g.pick(lambda value: True)
    if x is None:
        return None
    g.size = max(g.numbers[x.name], 3.0)
    text = g.rng.choice(SMOOTH)
    if "** 1.5" in text or "square" in text or "** 3" in text or "stop_gradient" in text:
        g.size = g.numbers[x.name] ** 3.0
    return text.format(x=x.name), (x,), x.type, False


def _corner(g: G) -> Made:
    x = g.pick(lambda value: True)
    if x is None:
        return None
    g.size = g.numbers[x.name] * 2 + g.numbers[x.name] ** 2
    if x.is_exact:
        return g.rng.choice(CORNERS).format(x=x.name), (x,), x.type, False
    return g.rng.choice(CORNERS).format(x=f"jitter({x.name})"), (x,), x.type, False


def _binary(g: G) -> Made:
    x = g.pick(lambda value: True)
    y = g.other(x, meets_shape(x)) if x is not None else None
    if x is None or y is None:
        return None
    own, others = g.numbers[x.name], g.numbers[y.name]
    forms = {
        "{x} + {y}": own + others, "{x} - {y}": own + others, "{x} * {y}": own * others,
        "ops.maximum({a}, {b})": max(own, others), "ops.minimum({a}, {b})": max(own, others),
        "{x} / ({y} * {y} + 1.0)": own, "ops.atan2({x}, {y} * {y} + 0.5)": 2.0,
        "({x} * {x} + 0.5) ** ops.tanh({y})": own**2.0 + 1.0,
    }  # fmt: skip
    text = g.rng.choice(list(forms))
    g.size = forms[text]
    shape = broadcast_shape(x, y)
    assert shape is not None
    a, b = (x.name, y.name) if x.is_exact and y.is_exact else (f"jitter({x.name})", f"{y.name} * 1.0625")
    is_exact = "ops.m" in text and a == x.name
    return text.format(x=x.name, y=y.name, a=a, b=b), (x, y), TensorType(shape, x.dtype), is_exact


def _where(g: G) -> Made:
    x = g.pick(lambda value: True)
    y = g.other(x, lambda value: value.type == x.type) if x is not None else None
    z = g.other(x, lambda value: value.type == x.type) if x is not None else None
    if x is None or y is None or z is None:
        return None
    sign = g.rng.choice(("<", "<=", "==", "!=", ">", ">="))
    return f"ops.where({g.told_apart(z)} {sign} 0.5, {x.name}, {y.name})", (x, y, z), x.type, z.is_exact


def _reduce(g: G) -> Made:
    x = g.pick(lambda value: len(value.shape) > 0)
    if x is None:
        return None
    own, rank = g.numbers[x.name], len(x.shape)
    count = max(1, max(type.size.value or 1 for type in (x.type.substitute(sizes) for sizes in g.sizes)))
    kinds = {
        "sum": own * count, "mean": own, "max": own, "min": own, "prod": 1.0, "var": own * own, "std": own,
        "logsumexp": own + 3, "norm": own * count,
    }  # fmt: skip
    axes = sorted(g.rng.sample(range(rank), g.rng.randrange(1, rank + 1)))
    kind = g.rng.choice(list(kinds))
    if kind == "std" and any(all(x.shape[at].evaluate(sizes) == 1 for at in axes) for sizes in g.sizes):
        return None  # of one number it is 0, where a root has no derivative
    g.size = kinds[kind]
    axis: object = axes[0] - rank * g.rng.randrange(2) if len(axes) == 1 else tuple(axes)
    keepdims = g.rng.random() < 0.6
    given = {"max": g.told_apart(x), "min": g.told_apart(x), "prod": f"ops.tanh({x.name})"}.get(kind, x.name)
    given = f"jitter({x.name})" if kind in ("std", "norm") else given
    kept = [Dim.constant(1) if at in axes else dim for at, dim in enumerate(x.shape)]
    shape = kept if keepdims else [dim for at, dim in enumerate(x.shape) if at not in axes]
    text = f"ops.{kind}({given}, axis={axis}, keepdims={keepdims})"
    return text, (x,), x.type.with_shape(shape), x.is_exact and kind in ("max", "min")


def _contract(g: G) -> Made:
    x = g.pick(lambda value: len(value.shape) >= 1)
    if x is None:
        return None
    inner = x.shape[-1]
    y = g.other(x, lambda value: value.dtype is x.dtype and len(value.shape) >= 1 and value.shape[-1] == inner)
    if y is None:
        return None
    g.size = g.numbers[x.name] * g.numbers[y.name] * max(inner.evaluate(sizes) for sizes in g.sizes)
    if len(y.shape) == 1:
        return f"{x.name} @ {y.name}", (x, y), x.type.with_shape(x.shape[:-1]), False
    if len(y.shape) == 2 and g.rng.random() < 0.5:
        return f"{x.name} @ {y.name}.T", (x, y), x.type.with_shape((*x.shape[:-1], y.shape[0])), False
    left, right = "abc"[: len(x.shape) - 1], "def"[: len(y.shape) - 1]
    text = f"ops.einsum('{left}z,{right}z->{right}{left}', {x.name}, {y.name})"
    return text, (x, y), x.type.with_shape((*y.shape[:-1], *x.shape[:-1])), False


def _move(g: G) -> Made:
    x = g.pick(lambda value: len(value.shape) >= 1)
    if x is None:
        return None
    rank = len(x.shape)
    axis = g.rng.randrange(rank)

    def with_dim(dim: Dim) -> TensorType:
        return x.type.with_shape((*x.shape[:axis], dim, *x.shape[axis + 1 :]))

    dim, n = x.shape[axis], x.name
    forms: dict[str, TensorType] = {
        f"ops.flip({n}, axis={axis})": x.type,
        f"ops.roll({n}, 2, axis={axis})": x.type,
        f"ops.tile({n}, {tuple(2 if at == axis else 1 for at in range(rank))})": with_dim(dim * 2),
        f"ops.repeat({n}, 3, axis={axis})": with_dim(dim * 3),
        f"ops.stack(({n}, {n} * 2.0), axis={axis})": x.type.with_shape((*x.shape[:axis], 2, *x.shape[axis:])),
        f"ops.expand_dims({n}, {axis})": x.type.with_shape((*x.shape[:axis], 1, *x.shape[axis:])),
        f"ops.broadcast_to({n}, (3, *{n}.shape))": x.type.with_shape((3, *x.shape)),
        f"ops.moveaxis({n}, {axis}, 0)": x.type.with_shape((dim, *x.shape[:axis], *x.shape[axis + 1 :])),
        f"ops.cumsum({n}, axis={axis})": x.type,
        f"ops.cumprod(ops.cos({n}), axis={axis})": x.type,
    }
    if rank == 2:
        forms |= {f"ops.tril({n})": x.type, f"ops.triu({n}, 1)": x.type}
    text = g.rng.choice(list(forms))
    if "cumsum" in text:
        g.size = g.numbers[n] * max(dim.evaluate(sizes) for sizes in g.sizes)
    if "stack" in text:
        g.size = g.numbers[n] * 2
    is_moved = "cum" not in text
    return text, (x,), forms[text], is_moved


def _order(g: G) -> Made:
    x = g.pick(lambda value: len(value.shape) >= 1)
    if x is None:
        return None
    axis = g.rng.randrange(len(x.shape))
    forms = [
        "ops.sort({x}, axis={axis})",
        "ops.sort({j}, axis={axis}, descending=True)",
        "topk({x}, 1)",
        "ops.cummax({j}, axis={axis})",
    ]
    if all(x.shape[-1].evaluate(sizes) >= 2 for sizes in g.sizes):
        forms.append("topk({x}, 2)")
    text = g.rng.choice(forms)
    type = x.type.with_shape((*x.shape[:-1], int(text[-2]))) if "topk" in text else x.type
    is_exact = x.is_exact and "{j}" not in text
    return text.format(x=g.told_apart(x), j=f"jitter({x.name})", axis=axis), (x,), type, is_exact


def _read(g: G) -> Made:
    x = g.pick(lambda value: len(value.shape) >= 1)
    index = g.pick_index()
    if x is None or index is None:
        return None
    rank = len(x.shape)
    axis, i = g.rng.randrange(rank), index.name
    along = (*x.shape[:axis], index.shape[0], *x.shape[axis + 1 :])
    starts = f"(abs({i})[0] % 2, {'0, ' * (rank - 1)})"
    forms: dict[str, tuple[Dim, ...]] = {
        f"take({x.name}, {i}, {axis}, 'clip')": along,
        f"take({x.name}, {i}, {axis}, 'drop')": along,
        f"{x.name}[0]": x.shape[1:],
        f"{x.name}[-1]": x.shape[1:],
        f"{x.name}[{i} % 2 * 0]": (index.shape[0], *x.shape[1:]),
        f"ops.dynamic_slice({x.name}, {starts}, (1, *{x.name}.shape[1:]))": (Dim.constant(1), *x.shape[1:]),
    }  # fmt: skip
    if rank >= 2:
        pairs = f"{i} % {x.name}.shape[0], abs({i}) % {x.name}.shape[1]"
        forms[f"{x.name}[{pairs}]"] = (index.shape[0], *x.shape[2:])
        forms[f"{x.name}[:, {i} % {x.name}.shape[1]]"] = (x.shape[0], index.shape[0], *x.shape[2:])
    text = g.rng.choice(list(forms))
    return text, (x, index), x.type.with_shape(forms[text]), True


def _write(g: G) -> Made:
    """Duplicates are written to by `add` and `max` only: what else gives is nobody's promise elsewhere."""
    x = g.pick(lambda value: len(value.shape) >= 1)
    index = g.pick_index()
    if x is None or index is None:
        return None
    y = g.other(x, lambda value: value.type == x.type.with_shape(x.shape[1:]))
    kind = g.rng.choice(("add", "add", "set", "mul", "max", "min"))
    value = "1.5" if y is None else y.name
    others = 2.0 if y is None else g.numbers[y.name]
    g.size = g.numbers[x.name] + others * 8 if kind == "add" else max(others, g.numbers[x.name], 1.0) ** 2
    target = x.name if x.is_exact or kind not in ("max", "min") else f"jitter({x.name})"
    place = index.name if kind in ("add", "max", "min") else g.rng.choice(("0", "-1", "::2", "1:"))
    operands = (x, index) if y is None else (x, index, y)
    return f"{target}.at[{place}].{kind}({value})", operands, x.type, False


def _rows(g: G) -> Made:
    x = g.pick(lambda value: len(value.shape) >= 1)
    if x is None:
        return None
    weight = g.other(x, lambda value: value.type == x.type.with_shape(x.shape[-1:]))
    forms = ["ops.softmax({x})", "ops.log_softmax({x})", "ops.softmax({x}, axis=0)", "ops.layernorm(jitter({x}))"]
    forms.append("ops.rmsnorm({x})")
    if weight is not None and len(x.shape) > 1:
        forms += ["ops.layernorm(jitter({x}), {w}, {w} * 2.0)", "ops.rmsnorm({x}, {w})"] * 2
    text = g.rng.choice(forms)
    g.size = 9.0 if "rm" in text else g.numbers[x.name] + 3
    operands = (x,) if "{w}" not in text or weight is None else (x, weight)
    return text.format(x=x.name, w=operands[-1].name), operands, x.type, False


def _losses(g: G) -> Made:
    x = g.pick(lambda value: len(value.shape) == 2)
    labels = g.pick_index(lambda value: x is not None and value.shape == x.shape[:1])
    if x is None or labels is None:
        return None
    kind = g.rng.choice(("none", "mean", "sum"))
    g.size = 20.0
    text = f"ops.cross_entropy({x.name}, abs({labels.name}) % {x.name}.shape[1], reduction='{kind}')"
    return text, (x, labels), x.type.with_shape(x.shape[:1] if kind == "none" else ()), False


def _branch(g: G) -> Made:
    x = g.pick(lambda value: True)
    y = g.other(x, lambda value: value.type == x.type) if x is not None else None
    chooser = g.pick(lambda value: True)
    if x is None or y is None or chooser is None:
        return None
    names = (x.name, y.name)
    g.size = LARGEST
    bodies = [f"ops.tanh({g.expression(names)})" for _ in range(2)]
    test = f"{chooser.name}.sum() > 0.123"
    if g.rng.random() < 0.5:
        return f"ts.cond({test}, lambda: {bodies[0]}, lambda: {bodies[1]})", (x, y, chooser), x.type, False
    bodies = [f"ops.tanh({g.expression(('a', 'b', x.name))})" for _ in range(2)]
    text = f"ts.cond({test}, lambda a, b: {bodies[0]}, lambda a, b: {bodies[1]}, {x.name}, {y.name})"
    return text, (x, y, chooser), x.type, False


def _loop_body(g: G, names: Sequence[str]) -> str:
    """A body of names of one shape, in which there may be a branch or another loop."""
    inner = [
        f"ts.cond(r.sum() > 0.1, lambda: {g.expression(names)}, lambda: {g.expression(names)})",
        "ts.scan(lambda d, q: (ops.tanh(d * q + r.sum()), ()), h.sum(), ops.stack((r.sum(), h.sum() * 0.5)))[0] * h",
        f"ts.fori_loop(0, 2, lambda i, d: ops.sin(d * {names[-1]}) + h, r)",
        "ops.softmax(h) * r" if g.rng.random() < 0.5 else "h * r.max()",
    ]
    return g.rng.choice((*inner, *[g.expression(names, 3)] * 3))


def _loop(g: G) -> Made:
    x = g.pick(lambda value: 1 <= len(value.shape) <= 3)
    if x is None:
        return None
    row = x.type.with_shape(x.shape[1:])
    start = g.other(x, lambda value: value.type == row)
    captured = g.other(x, lambda value: value.type == row)
    names = ("h", "r") if captured is None else ("h", "r", captured.name)
    if not row.shape:
        names = ("h", "r")
        body = g.expression(names, 3)
    else:
        body = _loop_body(g, names)
    first = f"ops.zeros_like({x.name}[0])" if start is None else f"ops.tanh({start.name})"
    g.size = LARGEST
    operands = tuple(value for value in (x, start, captured) if value is not None)
    if g.rng.random() < 0.2:
        text = (
            f"ts.fori_loop(0, {x.name}.shape[0], lambda i, h: ops.tanh({g.expression(('h', x.name + '[i]'))}), {first})"
        )
        return text, operands, row, False
    part = g.rng.randrange(2)
    reverse = ", reverse=True" if g.rng.random() < 0.3 else ""
    text = (
        f"ts.scan(lambda h, r: (ops.tanh({body}), ops.tanh({g.expression(names)})), {first}, {x.name}{reverse})[{part}]"
    )
    return text, operands, x.type if part else row, False


def _transformed(g: G) -> Made:
    """A derivative or a batch inside of what is differentiated."""
    x = g.pick(lambda value: len(value.shape) >= 1)
    y = g.other(x, lambda value: value.type == x.type) if x is not None else None
    if x is None or y is None:
        return None
    n, m, body = x.name, y.name, g.expression(("t", "t", y.name), 3)
    rows = g.expression(("t", "t", "u"), 2)
    forms = [
        f"ts.grad(lambda t: weigh({body}))({n})",
        f"ts.jvp(lambda t: {body}, ({n},), ({m},))[1]",
        f"ts.vjp(lambda t: {body}, {n})[1]({m})[0]",
        f"ts.vmap(lambda t, u: {rows})({n}, {m})",
        f"ts.vmap(lambda t, u: ts.cond(t.sum() > 0.1, lambda: {rows}, lambda: t * u))({n}, {m})",
        f"ts.vmap(lambda t, u: {rows} + t.sum(), in_axes=-1, out_axes=-1)({n}, {m})",
        f"ts.vmap(ts.grad(lambda t, u: weigh({rows})))({n}, {m})",
        f"ts.linearize(lambda t: {body}, {n})[1]({m})",
        f"ts.checkpoint(lambda t: {body})({n})",
        f"ts.checkpoint(lambda t, u: {rows} + t.sum())({n}, {m})",
        f"ts.scan(ts.checkpoint(lambda u, t: (ops.tanh({rows}), u)), ops.zeros_like({n}[0]), {n})[1]",
        f"ts.vmap(ts.checkpoint(lambda t, u: {rows}))({n}, {m})",
    ]
    g.size = 9.0
    return g.rng.choice(forms), (x, y), x.type, False


def _kernel(g: G) -> Made:
    x = g.pick(lambda value: len(value.shape) == 2)
    y = g.other(x, lambda value: value.type == x.type) if x is not None else None
    if x is None or y is None:
        return None
    text = g.rng.choice(
        ("mix({x}, {y})", "scale_rows({x})", "share_rows({x})", "ts.vmap(mix)({x}[None], {y}[None])[0]")
    )
    g.size = g.numbers[x.name] * 2
    return text.format(x=x.name, y=y.name), (x, y), x.type, False


def _ruled(g: G) -> Made:
    """Functions with derivatives of their own."""
    x = g.pick(lambda value: True)
    y = g.other(x, lambda value: value.type == x.type) if x is not None else None
    if x is None or y is None:
        return None
    g.size = max(g.numbers[x.name], g.numbers[y.name])
    return (
        g.rng.choice(("ruled_product({x}, {y})", "ruled_bend({x})")).format(x=x.name, y=y.name),
        (x, y),
        x.type,
        False,
    )


def _grow(g: G) -> Made:
    """A loop that ends by a condition, within a number of trips."""
    x = g.pick(lambda value: True)
    if x is None:
        return None
    g.size = 40.0
    return f"grow(jitter({x.name}))", (x,), x.type, False


OPS: tuple[Callable[[G], Made], ...] = (
    *(_smooth,) * 3, *(_binary,) * 4, *(_reduce,) * 3, *(_contract,) * 2, *(_move,) * 3, *(_read,) * 2, *(_write,) * 2,
    *(_branch,) * 2, *(_loop,) * 3, _transformed, _transformed, _corner, _where, _order, _order, _rows, _rows, _losses,
    _kernel, _ruled, _grow,    make_transpose, make_reshape, make_slice, make_concat, make_pad,
)  # fmt: skip


def differentiable_program(seed: int, dtype: DType = dt.f64) -> Program:
    """The program of a seed: the same in every run. Its last outputs are floats."""
    return DifferentiableGenerator(seed, OPS, DEPTH, dtype=dtype).run()
