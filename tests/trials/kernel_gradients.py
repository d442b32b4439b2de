"""Random kernels and their derivatives: each is refused, or is right.

`python -m tests.trials.kernel_gradients 500 7` draws 500 kernels in f64 from seed 7. Of each that is not refused, the
program on whole tensors is compared with the kernel, and its gradients with central differences; it prints how many
were derived and refused, and why, the largest error, and every kernel that fails. Some kernels have a loop or a store
that is no accumulation, or depends on its step: those are to be refused.
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import tessera as ts
from tessera.diagnostics.codes import BlockValueError, DifferentiationError, KernelError
from tessera.frontend.pytree import as_tuple
from tessera.ir.base.arrays import dtype_of
from tessera.ir.base.dispatch import KERNELS
from tessera.ir.graph.derivatives.kernels import raise_kernel
from tessera.ir.graph.transforms.tape_builder import TapeBuilder, add_inputs
from tessera.types.shape import TensorType
from tests.transforms.programs import run as interpret
from tests.trials.kernel_blocks import Drawn

HEAD = "from typing import Any\nfrom tessera import *\nfrom tessera import tile\nfrom tessera.tile import INF\n\n"
STEP = 2.0**-18
"""Of central differences: its square is below what f64 loses in a difference of such a step."""
BOUND = 1e-6

UNARY = (
    *("tile.tanh({0})", "tile.sin({0})", "tile.sigmoid({0})", "tile.gelu({0})", "tile.silu({0})", "tile.erf({0})"),
    *("tile.exp(tile.tanh({0}))", "tile.sqrt({0} * {0} + 1.0)", "tile.log({0} * {0} + 2.0)", "tile.abs({0})"),
    *("tile.relu({0})", "-{0}", "{0} * 0.5", "tile.maximum({0}, 0.25)", "tile.rsqrt({0} * {0} + 0.5)", "1.0 - {0}"),
    *("tile.exp2(tile.cos({0}))", "tile.reciprocal({0} * {0} + 1.0)", "tile.where({0} > 0.1, {0}, 0.2 * {0})"),
)
BINARY = (
    *("({0} + {1})", "({0} - {1})", "({0} * {1})", "({0} / ({1} * {1} + 1.0))", "tile.maximum({0}, {1})"),
    *("tile.minimum({0}, {1})", "tile.where({0} > {1}, {0} * {1}, {1})", "tile.fma({0}, {1}, {0})"),
)
OF_ROWS = ("tile.sum({0}, 1)", "tile.max({0}, 1)", "tile.min({0}, 1)", "tile.sum({0} * {0}, 1) / float(T.d)")
ZEROS = "tile.zeros((T.m,), f64)"
UPDATES = (
    *[("acc += tile.sum({0}, 1)", ZEROS)] * 3,
    ("acc = tile.maximum(acc, tile.max({0}, 1))", "tile.full((T.m,), -INF, f64)"),
    ("acc += tile.sum({0}, 1)", "tile.load(x, T.m, 0)"),
    # No accumulation over all blocks.
    ("acc = acc * 0.5 + tile.sum({0}, 1)", ZEROS),
    ("acc = tile.sum({0}, 1)", ZEROS),
    ("acc += tile.sum({0}, 1) + 1.0", ZEROS),
    ("acc = acc * 1.5", "tile.load(x, T.m, 0)"),
    ("acc += tile.tanh(tile.sum({0}, 1))", ZEROS),
)
DOTS = (
    *["acc += tile.dot({0}, {1})"] * 12,
    "acc = acc * 0.5 + tile.dot({0}, {1})",
    "acc += tile.dot({0}, {1}) * 0.5",
    "acc = tile.dot({0}, {1})",
)
PAIRS = {pair: f'"{pair[0]}", "{pair[1]}"' for pair in ("MK", "KM", "NK", "KN")}
SCORES = ("tile.dot({0}) * 0.4", "tile.tanh(tile.dot({0})) * 2.0", "tile.dot({0})")
ENDS = ("acc / l[:, None]", "(acc / l[:, None], m + tile.log(l))", "tile.gelu(acc / l[:, None]) + Q")


class Draw:
    """Draws kernels, all of f64."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def kernel(self) -> Drawn:
        """One kernel of any kind."""
        kinds: list[Callable[[], Drawn]] = [
            *(self.elementwise, self.rows, self.loop, self.dot, self.dot, self.attention, self.parts, self.columns)
        ]
        return self.rng.choice(kinds)()

    # Parts.

    def size(self, most: int = 20) -> int:
        return self.rng.randint(1, most)

    def is_likely(self, share: float) -> bool:
        return self.rng.random() < share

    def array(self, *shape: int) -> Any:
        return np.random.default_rng(self.rng.randint(0, 1 << 30)).normal(size=shape)

    def expression(self, names: list[str], depth: int = 3) -> str:
        """Of tiles of one shape."""
        if depth == 0 or self.is_likely(0.2):
            return self.rng.choice(names)
        if self.is_likely(0.5):
            return self.rng.choice(UNARY).format(f"({self.expression(names, depth - 1)})")
        return self.rng.choice(BINARY).format(self.expression(names, depth - 1), self.expression(names, depth - 1))

    def make(self, parameters: str, body: list[str], operands: list[Any]) -> Drawn:
        lines = ["T = tile.context()", *body]
        source = f"{HEAD}@kernel\ndef drawn({parameters}) -> Any:\n" + "".join(f"    {line}\n" for line in lines)
        m, n, k = (self.rng.choice((1, 2, 4, 5, 8, 16)) for _ in range(3))
        return Drawn(source, (m, n, k), operands)

    # Kinds.

    def elementwise(self) -> Drawn:
        m, n, lead = self.size(), self.size(), [self.size(3)] if self.is_likely(0.3) else []
        body = ["a, b = tile.load(x, T.m, T.n), tile.load(y, T.m, T.n)"]
        body += ["r, c = tile.load(s, T.m)[:, None], tile.load(t, T.n)[None, :]"]
        if self.is_likely(0.3):
            body.append("a = tile.where(tile.row_index()[:, None] >= tile.col_index()[None, :], a, 0.0)")
        dims = '"B", "M", "N"' if lead else '"M", "N"'
        given = f'x: KTile[{dims}, f64], y: KTile["M", "N", f64], s: KTile["M", f64], t: KTile["N", f64]'
        result = self.expression(["a", "b", "(a * r)", "(b + c)"], 4)
        if self.is_likely(0.2):
            given += f", out: KTile[{dims}, f64]"
            body.append(f"tile.store(out, {result}, T.m, T.n, mask=a > b)")
            body += ["tile.store(out, b, T.m, T.n)"] if self.is_likely(0.3) else []
        else:
            body.append(f"return {result}")
        return self.make(given, body, [self.array(*lead, m, n), self.array(m, n), self.array(m), self.array(n)])

    def rows(self) -> Drawn:
        m, d = self.size(), self.size(40)
        body = ["a, w = tile.load(x, T.m, T.d), tile.load(y, T.d)", f"a = {self.expression(['a', '(a * w)'])}"]
        for at in range(self.rng.randint(1, 2)):
            body.append(f"r{at} = {self.rng.choice(OF_ROWS).format('a')}")
            body.append(f"a = {self.expression(['a', f'r{at}[:, None]', '(a * w)'])}")
        if self.is_likely(0.3):
            body.append("a = tile.softmax(a)")
        body.append(self.rng.choice(["return a", "return a, r0", "return tile.sum(a, 1)"]))
        return self.make('x: KTile["M", "D", f64], y: KTile["D", f64]', body, [self.array(m, d), self.array(d)])

    def loop(self) -> Drawn:
        """Rows that a loop reduces."""
        m, k = self.size(), self.size(40)
        over = self.rng.choice(["tile.range_k(x.shape, T.k)", "tile.steps(x.shape[1], by=4)"])
        update, start = self.rng.choice(UPDATES)
        body = [f"acc = {start}", f"for k in {over}:"]
        body += ["    a, b = tile.load(x, T.m, k), tile.load(y, k)[None, :] + tile.load(x, T.m, k) * 0.0"]
        body += [f"    {update.format(self.expression(['a', 'b'], 2))}"]
        behind = self.expression(["tile.load(x, T.m, T.n)", "acc[:, None]"], 2)
        is_block = self.is_likely(0.4) and "[:, None]" in behind and "load" in behind
        body.append(f"return {behind}" if is_block else "return acc")
        return self.make('x: KTile["M", "K", f64], y: KTile["K", f64]', body, [self.array(m, k), self.array(k)])

    def dot(self) -> Drawn:
        m, k, n = self.size(), self.size(40), self.size()
        left, right = self.is_likely(0.3), self.is_likely(0.3)
        a = "tile.load(x, k, T.m).T" if left else "tile.load(x, T.m, k)"
        b = "tile.load(y, T.n, k).T" if right else "tile.load(y, k, T.n)"
        a = f"tile.tanh({a})" if self.is_likely(0.2) and not left else a
        over = "tile.range_k(y.shape, T.k)" if right else "tile.steps(y.shape[0], T.k)"
        body = ["acc = tile.zeros((T.m, T.n), f64)", f"for k in {over}:", f"    {self.rng.choice(DOTS).format(a, b)}"]
        body.append(f"return {self.expression(['acc', '(acc + tile.load(z, T.n)[None, :])'], 2)}")
        given = f"x: KTile[{PAIRS['KM' if left else 'MK']}, f64], y: KTile[{PAIRS['NK' if right else 'KN']}, f64], "
        shapes = [(k, m) if left else (m, k), (n, k) if right else (k, n), (n,)]
        return self.make(given + 'z: KTile["N", f64]', body, [self.array(*shape) for shape in shapes])

    def attention(self) -> Drawn:
        s, t, d, (heads, groups) = self.size(12), self.size(24), self.size(6), self.rng.choice([(2, 1), (2, 2), (1, 1)])
        is_causal = self.is_likely(0.4) and t >= s
        scores = self.rng.choice(SCORES).format("Q, tile.load(y, n, cols=T.d).T")
        body = [
            "Q, acc = tile.load(x, T.m, T.d), tile.zeros((T.m, T.d), f64)",
            "m, l = tile.full((T.m,), -INF, f64), tile.zeros((T.m,), f64)",
            "for n in tile.range_n(y.shape, T.n):",
            f"    S = {scores}",
            *(["    tile.mask_causal(S, tile.row_index(), tile.col_index(n))"] if is_causal else []),
            "    P, mc, lc = tile.softmax_online(S)",
            "    acc, m, l = tile.softmax_accumulate(acc, m, l, P, tile.load(z, n, cols=T.d), mc, lc)",
            f"return {self.rng.choice(ENDS)}",
        ]
        given = 'x: KTile["H", "S", "D", f64], y: KTile["G", "T", "D", f64], z: KTile["G", "T", "D", f64]'
        return self.make(given, body, [self.array(heads, s, d), self.array(groups, t, d), self.array(groups, t, d)])

    def parts(self) -> Drawn:
        """Slices of rows that are put together again, or overlap."""
        m, half = self.size(), self.size(6)
        first, second = f"slice(0, {half})", f"slice({half}, {2 * half})"
        body = [f"a, b = tile.load(x, T.m, {first}), tile.load(x, T.m, {second})"]
        last = second if self.is_likely(0.8) else f"slice({half - 1}, {2 * half - 1})"
        body += [f"tile.store(out, {self.expression(['a', 'b'])}, T.m, {place})" for place in (first, last)]
        dims = f'"M", {2 * half}, f64'
        return self.make(f"x: KTile[{dims}], out: KTile[{dims}]", body, [self.array(m, 2 * half)])

    def columns(self) -> Drawn:
        """Columns that a loop over rows reduces, in lanes or directly; or a loop that stores each of its blocks."""
        m, n, value = self.size(40), self.size(), self.expression(["a"], 2)
        if self.is_likely(0.3):
            body = ["for k in tile.steps(x.shape[1], by=4):", "    a = tile.load(x, T.m, k)"]
            body.append(f"    tile.store(out, {value}, T.m, {'k' if self.is_likely(0.8) else 'slice(0, 4)'})")
            return self.make('x: KTile["M", "N", f64], out: KTile["M", "N", f64]', body, [self.array(m, max(n, 4))])
        in_lanes = self.is_likely(0.5)
        body = [f"acc = tile.zeros(({'T.m, ' if in_lanes else ''}T.n,), f64)", "for i in tile.range_m(x.shape, T.m):"]
        body += [
            "    a = tile.load(x, rows=i, cols=T.n)",
            f"    acc += {value if in_lanes else f'tile.sum({value}, 0)'}",
        ]
        body.append(f"return {self.expression(['tile.sum(acc, 0)' if in_lanes else 'acc'], 1)}")
        return self.make('x: KTile["M", "N", f64]', body, [self.array(m, n)])


def compare(made: Any, operands: list[Any]) -> float:
    """The largest relative error of a kernel's derivatives; raises DifferentiationError where it has none."""
    tape = made.trace(*operands).tape
    (record,) = (one for one in tape.records if one.op == "tgraph.kernel_call")
    builder = TapeBuilder()
    types = [TensorType.of(array.shape, dtype_of(array)) for array in operands]
    inputs = add_inputs(builder.tape, types, [f"x{at}" for at in range(len(types))])
    kernel: Any = KERNELS[record.attributes["kernel"]]
    builder.tape.outputs = raise_kernel(kernel.unpadded_program(types), builder, inputs)
    worst = 0.0
    results: list[Any] = [np.asarray(one) for one in as_tuple(made(*operands))]
    for one, other in zip(results, interpret(builder.tape, operands), strict=True):
        worst = max(worst, float(np.abs(one - other).max(initial=0.0)) / max(1.0, float(np.abs(one).max(initial=0.0))))
    rng = np.random.default_rng(5)
    weights: tuple[Any, ...] = tuple([rng.normal(size=one.shape) for one in results])
    directions: list[Any] = [rng.normal(size=operand.shape) for operand in operands]
    gradients: Any = ts.vjp(lambda *given: as_tuple(made(*given)), *operands)[1](weights)
    ends: list[Any] = []
    for sign in (1, -1):
        moved = [one + sign * STEP * way for one, way in zip(operands, directions, strict=True)]
        ends.append([np.asarray(one) for one in as_tuple(made(*moved))])
    terms: list[Any] = [(a - b) / (2 * STEP) * w for a, b, w in zip(*ends, weights, strict=True)]
    along: list[Any] = [np.asarray(one) * way for one, way in zip(gradients, directions, strict=True)]
    scale = max(1.0, *(float(np.abs(one).sum()) for one in (*terms, *along)))
    return max(worst, abs(sum(float(one.sum()) for one in terms) - sum(float(one.sum()) for one in along)) / scale)


def try_kernel(drawn: Drawn, folder: Path) -> tuple[str, float]:
    """Whether a kernel was derived, and how exactly; or why it was refused."""
    try:
        return "derived", compare(drawn.load(folder), drawn.operands)
    except (BlockValueError, KernelError):
        return "no kernel: refused where it is traced", 0.0
    except DifferentiationError as error:
        return str(error).split("differentiated: ")[-1].splitlines()[0], 0.0


def run(count: int, seed: int) -> tuple[Counter[str], float, list[str]]:
    """What became of so many kernels, the largest error of those derived, and those that fail."""
    rng, counts, failed, worst = random.Random(seed), Counter[str](), list[str](), 0.0
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(count):
            drawn = Draw(rng).kernel()
            try:
                outcome, error = try_kernel(drawn, Path(folder))
            except Exception as problem:
                failed.append(f"{type(problem).__name__}: {problem}\n{drawn.describe()}")
                continue
            counts[outcome] += 1
            worst = max(worst, error)
            if error > BOUND:
                failed.append(f"error {error:.1e}\n{drawn.describe()}")
    return counts, worst, failed


if __name__ == "__main__":
    numbers = [int(argument) for argument in sys.argv[1:]]
    found, most, wrong = run(*(*numbers, *(100, 0)[len(numbers) :]))
    for text in wrong:
        print(text)
    for outcome, times in found.most_common():
        print(f"{times:6} {outcome}")
    print(f"largest error {most:.1e}, {len(wrong)} failed")
