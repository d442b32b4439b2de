"""Random kernels that reduce, scan blocks and loop: what the check of blocks accepts gives one result for all blocks.

`python -m tests.trials.block_sizes 2500` runs that many and prints the figures; pytest runs some.
"""

from __future__ import annotations

import linecache
import random
import sys
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tessera import Schedule
from tessera.diagnostics.codes import BlockValueError

UNARY = ("tile.exp({0}*0.1)", "-{0}", "tile.abs({0})", "{0}*0.5", "{0}+0.25", "tile.tanh({0})", "tile.relu({0})")
BINARY = ("{0}+{1}", "{0}-{1}", "{0}*{1}", "tile.maximum({0},{1})", "tile.minimum({0},{1})")
STARTS = ("tile.zeros((T.m,))", "tile.full((T.m,), -tile.INF)", "tile.full((T.m,), 1.0)", "tile.load(x, T.m, 0)")
STEPS = ("{0} + {1}", "tile.maximum({0}, {1})", "tile.minimum({0}, {1})", "{0}*0.5 + {1}", "{1}")
BLOCKS = ((4, 8, 8), (8, 16, 16), (3, 37, 5), (8, 5, 37), (8, 64, 64))
HEAD = "from tessera import KTile, f32, kernel, tile\n@kernel\ndef one(x: KTile['M', 'N', f32]{0}):\n"


@dataclass
class Writer:
    """Writes the body of one kernel: `tiles` are names of rows by columns, `rows` of one number a row."""

    rng: random.Random
    lines: list[str] = field(default_factory=lambda: ["T = tile.context()"])
    tiles: list[str] = field(default_factory=list[str])
    rows: list[str] = field(default_factory=list[str])

    def name(self, text: str, indent: str = "") -> str:
        made = f"v{len(self.lines)}"
        self.lines.append(f"{indent}{made} = {text}")
        return made

    def reduce(self, indent: str) -> str:
        kind = self.rng.choice(("sum", "max", "min"))
        return self.name(f"tile.{kind}({self.rng.choice(self.tiles)}, 1)", indent)

    def mix(self, steps: int, indent: str = "") -> None:
        """Some random ops."""
        choose = self.rng.choice
        for _ in range(steps):
            draw = self.rng.random()
            if draw < 0.3:
                self.tiles.append(self.name(choose(UNARY).format(choose(self.tiles)), indent))
            elif draw < 0.5:
                self.tiles.append(self.name(choose(BINARY).format(choose(self.tiles), choose(self.tiles)), indent))
            elif draw < 0.7 or not self.rows:
                self.rows.append(self.reduce(indent))
            elif draw < 0.8:
                column = f"{choose(self.rows)}[:, None]"
                self.tiles.append(self.name(choose(BINARY[:3]).format(choose(self.tiles), column), indent))
            else:
                self.rows.append(self.name(choose(BINARY).format(choose(self.rows), choose(self.rows)), indent))

    def without_loop(self) -> None:
        """A block or whole rows, stored, or added up by atomics."""
        kind = self.rng.choice(("whole", "block", "atomic"))
        columns = "T.d" if kind == "whole" else "T.n"
        self.tiles.append(self.name(f"tile.load(x, T.m, {columns})"))
        self.mix(self.rng.randint(1, 6))
        if kind != "block" and self.rows:
            how = self.rng.choice(("atomic_add", "atomic_max")) if kind == "atomic" else "store"
            self.lines.append(f"tile.{how}(rows, {self.rng.choice(self.rows)}, T.m)")
        else:
            self.lines.append(f"tile.store(out, {self.rng.choice(self.tiles)}, T.m, {columns})")

    def with_loop(self) -> None:
        """Values that loops over blocks carry."""
        carried = [f"a{number}" for number in range(self.rng.randint(1, 3))]
        self.lines += [f"{one} = {self.rng.choice(STARTS)}" for one in carried]
        for _ in range(self.rng.randint(1, 2)):
            self.lines.append("for k in tile.range_k(x.shape, T.k):")
            self.tiles = [self.name("tile.load(x, T.m, k)", "    ")]
            self.rows = list(carried) if self.rng.random() < 0.5 else []
            self.mix(self.rng.randint(1, 5), "    ")
            self.rows.append(self.reduce("    "))
            made = [one for one in self.rows if one not in carried]
            self.lines += [f"    {a} = {self.rng.choice(STEPS).format(a, self.rng.choice(made))}" for a in carried]
        total = carried[0]
        for one in carried[1:]:
            total = self.name(self.rng.choice(BINARY).format(total, one))
        self.lines.append(f"tile.store(rows, {total}, T.m)")


def make(seed: int) -> tuple[Any, str]:
    """A random kernel and its text."""
    writer = Writer(random.Random(seed))
    writer.with_loop() if writer.rng.random() < 0.5 else writer.without_loop()
    results = {"rows": '"M"', "out": '"M", "N"'}
    stored = [name for name in results if any(f"({name}," in line for line in writer.lines)]
    head = HEAD.format("".join(f", {name}: KTile[{results[name]}, f32]" for name in stored))
    text = head + "".join(f"    {line}\n" for line in writer.lines)
    file = f"<random kernel {seed}>"
    lines: list[str] = list(text.splitlines(keepends=True))
    linecache.cache[file] = (len(text), None, lines, file)
    space: dict[str, Any] = {}
    exec(compile(text, file, "exec"), space)
    return space["one"], text


def try_kernel(seed: int) -> bool:
    """Whether a kernel is accepted; fails where it then depends on blocks."""
    one, text = make(seed)
    x = np.random.default_rng(seed).normal(size=(5, 37)).astype(np.float32)
    found: list[Any] = []
    for number, block in enumerate(BLOCKS):
        try:
            found.append(np.asarray(one.with_schedule(Schedule(block=block)).run_tiles(x)))
        except BlockValueError:
            if not number:  # a later one may hold whole rows in one block
                return False
    for other in found[1:]:
        np.testing.assert_allclose(other, found[0], rtol=2e-3, atol=2e-3, err_msg=text)
    return True


def main(count: int) -> None:
    accepted = sum(try_kernel(seed) for seed in range(count))
    print(f"{count} kernels: {accepted} accepted, one result for {len(BLOCKS)} blocks each; {count - accepted} refused")


if __name__ == "__main__":
    main(int(sys.argv[1]))
