"""Random kernels with blocks of any size on CPUs: seconds to compile, lines of text, and bits.

`python -m tests.trials.kernel_blocks 500 7` draws 500 kernels from seed 7, compiles each for AVX-512 and AVX2, runs it
here, and compares it with the tile interpreter; it prints the worst of seconds and lines, and every kernel that fails.
"""

from __future__ import annotations

import importlib
import importlib.util
import random
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tessera import Schedule
from tessera.backends.cpu.compile import CpuBackend
from tessera.compiler.compile import lower
from tessera.diagnostics.codes import BlockValueError, KernelError, ScheduleError
from tessera.frontend.pytree import as_tuple
from tessera.ir.target.architectures import machine_of
from tests.replay.case import DTYPES
from tests.replay.lowering import AVX2, AVX512

HEAD = "from typing import Any\nfrom tessera import *\nfrom tessera import tile\n\n@kernel\n"
SIZES = (1, 2, 3, 5, 7, 8, 13, 16, 17, 24, 31, 32, 33, 47, 64, 65, 96, 100, 113, 127, 128, 192, 229, 256)
LARGEST = 1 << 15
"""Elements of the largest tile that is drawn."""
MAX_K = 128
"""The largest K that is drawn: the interpreter takes a step for each."""


@dataclass
class Drawn:
    """A kernel: its source, its block, and what it is called with."""

    source: str
    block: tuple[int, int, int]
    operands: list[Any]
    ulps: float = 0.0
    name: str = field(default="drawn")

    def describe(self) -> str:
        shapes = [(one.shape, one.dtype.name) for one in self.operands]
        return f"block {self.block}, {shapes}\n{self.source}"

    def load(self, folder: Path) -> Any:
        """The kernel, from a file of its own, as its source is read from there."""
        path = folder / f"kernel_{abs(hash(self.source)):x}.py"
        path.write_text(self.source)
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.drawn.with_schedule(Schedule(block=self.block))


class Draw:
    """Draws kernels from a generator of numbers."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.ulps = 0.0

    def kernel(self) -> Drawn:
        """One kernel of any kind."""
        kinds: list[Callable[[], Drawn]] = [
            *(self.rows, self.columns, self.column_loop, self.dot, self.dot, self.chain, self.scan),
            *(self.gather, self.lanes, self.transposed, self.flat),
        ]
        self.ulps = 0.0
        drawn = self.rng.choice(kinds)()
        drawn.ulps = self.ulps
        return drawn

    # Parts.

    def size(self, most: int = 256) -> int:
        return self.rng.choice([size for size in SIZES if size <= most])

    def blocks(self) -> tuple[int, int]:
        m = self.size()
        return m, self.size(max(1, min(256, LARGEST // m)))

    def around(self, block: int) -> int:
        """A size of a dim: some blocks, whole or not."""
        return max(1, self.rng.choice([block, 2 * block, block + self.rng.randint(1, block), block - 1, 1]))

    def dtype(self, *names: str) -> str:
        return self.rng.choice(names or ("f32", "f32", "f32", "f16", "bf16", "f64", "i32", "i8", "u8", "i64"))

    def array(self, dtype: str, *shape: int) -> Any:
        rng = np.random.default_rng(self.rng.randint(0, 1 << 30))
        if dtype[0] in "iu":
            return rng.integers(-9 if dtype[0] == "i" else 0, 9, shape).astype(DTYPES[dtype])
        return rng.normal(size=shape).astype(np.float32).astype(DTYPES[dtype])

    def step(self, v: str, dtype: str) -> str:
        """An expression of a tile, elementwise."""
        is_float = dtype[0] not in "iu"
        exact = [f"{v} + {v}", f"{v} * 2", f"tile.maximum({v}, 0)", f"tile.where({v} > 1, {v}, 1)", f"tile.abs({v})"]
        exact += [f"{v} - 1"] if dtype[0] != "u" else []
        exact += [f"{v} / 3.0", f"tile.fma({v}, {v}, {v})"] if is_float else []
        if is_float and dtype != "f64" and self.rng.random() < 0.15:
            self.ulps = 64.0
            return self.rng.choice([f"tile.exp(tile.minimum({v}, 2.0))", f"tile.tanh({v})", f"tile.sigmoid({v})"])
        return self.rng.choice(exact)

    def steps(self, v: str, dtype: str, most: int = 3) -> list[str]:
        return [f"{v} = {self.step(v, dtype)}" for _ in range(self.rng.randint(0, most))]

    def kind(self) -> str:
        return self.rng.choice(["sum", "max", "min"])

    def make(self, parameters: str, body: list[str], block: tuple[int, ...], operands: list[Any]) -> Drawn:
        lines = ["T = tile.context()", *body]
        source = HEAD + f"def drawn({parameters}) -> Any:\n" + "".join(f"    {line}\n" for line in lines)
        whole = (*block, *(64, 64, 64)[len(block) :])
        return Drawn(source, (whole[0], whole[1], whole[2]), operands)

    # Kinds.

    def rows(self) -> Drawn:
        m, d, dtype = self.size(), self.size(256), self.dtype()
        m = min(m, max(1, LARGEST // d))
        if self.rng.random() < 0.2:
            d, m = self.rng.choice([300, 777, 1000, 2048, 3001]), min(m, 8)
        body = ["v = tile.load(x, rows=T.m, cols=T.d)", *self.steps("v", dtype)]
        if self.rng.random() < 0.7:
            body += [f"s = tile.{self.kind()}(v, 1)", *self.steps("s", dtype, 1), "v = v + s[:, None]"]
            body += self.steps("v", dtype)
        if self.rng.random() < 0.3:
            body += [f"w = tile.{self.kind()}(v, 0)", "v = v + w[None, :]"]
        body.append(self.rng.choice(["return v", "return v", f"return tile.{self.kind()}(v, 1)"]))
        return self.make(f'x: KTile["M", "D", {dtype}]', body, (m, 64), [self.array(dtype, self.around(m), d)])

    def columns(self) -> Drawn:
        n, dtype = self.size(), self.dtype()
        m = self.size(max(1, LARGEST // n))
        body = ["v = tile.load(x, slice(None), T.n)", *self.steps("v", dtype)]
        if self.rng.random() < 0.5:
            body += [f"s = tile.{self.kind()}(v, 0)", "v = v + s[None, :]", *self.steps("v", dtype)]
        body.append(self.rng.choice(["return v", f"return tile.{self.kind()}(v, 0)"]))
        return self.make(f'x: KTile["M", "N", {dtype}]', body, (16, n), [self.array(dtype, m, self.around(n))])

    def column_loop(self) -> Drawn:
        (m, n), dtype = self.blocks(), self.dtype("f32", "f64", "i32", "f16")
        wide = {"f16": "f32"}.get(dtype, dtype)
        body = [f"acc = tile.zeros((T.m, T.n), {wide})", "for m in tile.range_m(x.shape, T.m):"]
        body += ["    v = tile.load(x, rows=m, cols=T.n)", *(f"    {line}" for line in self.steps("v", dtype))]
        body += ["    acc += v", f'return tile.{self.kind()}(acc, 0, scope="block")']
        shape = self.around(m), self.around(n)
        return self.make(f'x: KTile["M", "N", {dtype}]', body, (m, n), [self.array(dtype, *shape)])

    def dot(self) -> Drawn:
        (m, n), k, dtype = self.blocks(), self.size(MAX_K), self.dtype("f32", "f32", "bf16", "f16", "i8", "f64")
        M, N, K = self.around(m), self.around(n), min(300, self.around(k))
        wide = {"i8": "i32", "f64": "f64"}.get(dtype, "f32")
        transposed = [self.rng.random() < 0.5 for _ in range(2)]
        a = "tile.load(a, rows=k, cols=T.m).T" if transposed[0] else "tile.load(a, rows=T.m, cols=k)"
        b = "tile.load(b, rows=T.n, cols=k).T" if transposed[1] else "tile.load(b, rows=k, cols=T.n)"
        body = [
            f"acc = tile.zeros((T.m, T.n), {wide})",
            f"for k in tile.steps(a.shape[{int(not transposed[0])}], T.k):",
        ]
        body += [f"    l = {a}", f"    r = {b}"]
        for side, is_transposed in zip("lr", transposed, strict=True):
            if self.rng.random() < 0.25 and dtype == "f32":
                doubled = f"tile.transpose(tile.transpose({side}) * 2.0)" if is_transposed else f"{side} * 2.0"
                body.append(f"    {side} = {doubled}")
        if self.rng.random() < 0.2:
            body.append("    acc = tile.per_block(acc * 2 + tile.dot(l, r))")
        else:
            body.append("    acc += tile.dot(l, r)")
        body += [*self.steps("acc", wide), "return acc"]
        shapes = [(K, M) if transposed[0] else (M, K), (N, K) if transposed[1] else (K, N)]
        parameters = f'a: KTile["{"KM"[0] if transposed[0] else "M"}", "{"M" if transposed[0] else "K"}", {dtype}], '
        parameters += f'b: KTile["{"N" if transposed[1] else "K"}", "{"K" if transposed[1] else "N"}", {dtype}]'
        return self.make(parameters, body, (m, n, k), [self.array(dtype, *shape) for shape in shapes])

    def chain(self) -> Drawn:
        (m, n), d = self.blocks(), self.size(MAX_K)
        body = ["q = tile.load(x, rows=T.m, cols=T.d)", "acc = tile.zeros((T.m, T.d), f32)"]
        body += ["top = tile.full((T.m,), -10.0, f32)", "for n in tile.range_n(y.shape, T.n):"]
        body += ["    keys = tile.load(y, rows=n, cols=T.d)", "    s = tile.dot(q, keys.T)"]
        body += [f"    {line}" for line in self.steps("s", "f32", 2)]
        if self.rng.random() < 0.5:
            body += [
                "    top = tile.maximum(top, tile.max(s, 1))",
                "    s = s - top[:, None]",
                "    acc = tile.per_block(acc * 0.5)",
            ]
        if self.rng.random() < 0.3:
            body += ["    s = tile.per_block(s + tile.max(s, 0)[None, :])"]
        body += ["    acc = tile.per_block(acc + tile.dot(s, keys))", "return acc"]
        self.ulps = 64.0 if self.ulps else 0.0
        operands = [self.array("f32", self.around(m), d), self.array("f32", min(300, self.around(n)), d)]
        parameters = 'x: KTile["M", "D", f32], y: KTile["N", "D", f32]'
        return self.make(parameters, body, (m, n, 64), operands)

    def scan(self) -> Drawn:
        m, d, dtype = self.size(64), self.size(256), self.dtype("f32", "i32", "f64", "f16")
        axis = self.rng.randint(0, 1)
        combine = self.rng.choice(['"sum"', '"max"', '"prod"', '"min"'])
        more = self.rng.choice(["", ", exclusive=True", ", reverse=True", ", exclusive=True, reverse=True"])
        body = ["v = tile.load(x, rows=T.m, cols=T.d)", *self.steps("v", dtype)]
        if axis == 0:
            body[0] = "v = tile.load(x, slice(None), T.n)"
        body += [f"v = tile.scan(v, {combine}, {axis}{more})", *self.steps("v", dtype), "return v"]
        shape = (d, self.around(m)) if axis == 0 else (self.around(m), d)
        return self.make(f'x: KTile["M", "D", {dtype}]', body, (m, m), [self.array(dtype, *shape)])

    def gather(self) -> Drawn:
        m, d, dtype = self.size(), self.size(128), self.dtype("f32", "f16", "i32", "i8")
        rows = self.around(m)
        ids = np.random.default_rng(self.rng.randint(0, 1 << 30)).integers(-2, 40, rows).astype(np.int32)
        body = ["i = tile.load(ids, T.m)", "v = tile.load(table, i, T.d, pad=0)", *self.steps("v", dtype), "return v"]
        parameters = f'ids: KTile["M", i32], table: KTile["N", "D", {dtype}], like: KTile["M", "D", {dtype}]'
        body.insert(1, "w = tile.load(like, rows=T.m, cols=T.d)")
        body.insert(3, "v = v + w")
        return self.make(parameters, body, (m, 64), [ids, self.array(dtype, 37, d), self.array(dtype, rows, d)])

    def lanes(self) -> Drawn:
        m, width = self.size(64), self.rng.choice([2, 8, 16, 32])
        d = width * self.rng.randint(1, 8)
        exchange = self.rng.choice(
            [
                f'tile.shuffle(v, "down", 1, {width})',
                f"tile.butterfly(v, 1, {width})",
                f'tile.where(tile.vote(v > 0, "any", {width}), v, 1)',
                f'tile.shuffle(v, "up", 1, {width})',
            ]
        )
        body = ["v = tile.load(x, rows=T.m, cols=T.d)", *self.steps("v", "f32"), f"v = {exchange}", "return v"]
        return self.make('x: KTile["M", "D", f32]', body, (m, 64), [self.array("f32", self.around(m), d)])

    def transposed(self) -> Drawn:
        (m, n), dtype = self.blocks(), self.dtype()
        body = ["v = tile.transpose(tile.load(x, rows=T.n, cols=T.m))", *self.steps("v", dtype)]
        body += ["v = v + tile.load(y, rows=T.m, cols=T.n)", *self.steps("v", dtype), "return v"]
        rows, columns = self.around(m), self.around(n)
        parameters = f'x: KTile["N", "M", {dtype}], y: KTile["M", "N", {dtype}]'
        return self.make(parameters, body, (m, n), [self.array(dtype, columns, rows), self.array(dtype, rows, columns)])

    def flat(self) -> Drawn:
        n, dtype = self.rng.choice([*SIZES, 500, 1024, 3000, 8192]), self.dtype()
        body = ["v = tile.load(x, T.n)", *self.steps("v", dtype, 6), "return v"]
        return self.make(f'x: KTile["N", {dtype}]', body, (16, n), [self.array(dtype, self.around(n))])


@dataclass
class Figures:
    """What one kernel took."""

    seconds: float
    lines: int


def measure(kernel: Any, operands: list[Any], features: tuple[str, ...], generator: Any = None) -> Figures:
    """Processor time and lines of one kernel for one machine; without a generator, of the text alone."""
    started = time.process_time()
    one = kernel.with_options(features=features)
    lowering = lower(one.trace(*operands).tape, one.options)
    if generator is not None:
        target = CpuBackend(machine_of(frozenset(features))).code_target
        for text in lowering.texts:
            generator.compile(asdict(target), text)
    return Figures(time.process_time() - started, sum(text.count("\n") for text in lowering.texts))


def compare(kernel: Any, drawn: Drawn) -> None:
    """Raises AssertionError where the compiled kernel differs from the tile interpreter."""
    compiled, expected = (as_tuple(run(*drawn.operands)) for run in (kernel, kernel.run_tiles))
    for one, other in zip(compiled, expected, strict=True):
        found, wanted = (np.asarray(value).astype(np.float64) for value in (one, other))
        largest = float(np.abs(wanted[np.isfinite(wanted)]).max(initial=1.0))
        coarse = 2.0**-7 if np.asarray(one).dtype.itemsize < 4 else 2.0**-23
        np.testing.assert_allclose(found, wanted, rtol=0, atol=drawn.ulps * coarse * largest)


def main(count: int, seed: int) -> int:
    """Draw, compile, compare; the number of failures."""
    from tessera.ir.target.worker import Generator

    importlib.import_module("importlib.resources.readers")  # which the generator would hide from llvmlite
    generator, rng, failed, refused = Generator(), random.Random(seed), 0, 0
    worst: list[tuple[Figures, str, Drawn]] = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(count):
            drawn = Draw(rng).kernel()
            try:
                kernel = drawn.load(Path(folder))
                for machine, features in (("avx512", AVX512), ("avx2", AVX2)):
                    figures = measure(kernel, drawn.operands, features, generator)
                    worst.append((figures, machine, drawn))
                compare(kernel, drawn)
            except (KernelError, BlockValueError, ScheduleError) as error:
                refused += 1
                print(f"refused {number}: {str(error).splitlines()[0]}")
            except Exception as error:
                failed += 1
                print(f"FAILED {number}: {drawn.describe()}{type(error).__name__}: {error}"[:3000])
    by_seconds = sorted(worst, key=lambda one: -one[0].seconds)
    by_lines = sorted(worst, key=lambda one: -one[0].lines)
    for figures, machine, drawn in [*by_seconds[:4], *by_lines[:4]]:
        print(f"{figures.seconds:.2f} s, {figures.lines} lines, {machine}, {drawn.describe()}")
    seconds, lines = by_seconds[0][0].seconds, by_lines[0][0].lines
    print(f"{count} kernels, {refused} refused, {failed} failed; worst {seconds:.2f} s, {lines} lines")
    return failed


if __name__ == "__main__":
    arguments = [int(text) for text in sys.argv[1:]]
    sys.exit(min(main(*(arguments + [100, 0][len(arguments) :])), 1))
