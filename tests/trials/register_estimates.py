"""Random programs whose kernels are assembled: how near the estimate of registers is to what the assembler says.

`python -m tests.trials.register_estimates 60 [SEED]` draws that many kernels and prints the figures; pytest draws some.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

import tessera as ts
from tessera.backends.nvptx.register_estimate import estimate_registers
from tessera.compiler.compile import lower
from tessera.compiler.options import Options
from tessera.ir.target.machine_code import compile_text
from tessera.runtime.devices.cuda.assembler import assemble_with_words
from tests.backends.nvptx.kernels import parts_of
from tests.backends.nvptx.test_registers import BAND, parse_registers

DTYPES: dict[str, Any] = {"f32": np.float32, "bf16": ml_dtypes.bfloat16, "f16": np.float16, "f64": np.float64}
UNARY = (ts.ops.exp, ts.ops.tanh, ts.ops.relu, ts.ops.gelu, ts.ops.sigmoid, ts.ops.abs, ts.ops.sqrt, ts.ops.log)
FORMS: dict[str, Callable[[Any], Any]] = {
    "softmax": lambda x: ts.ops.softmax(x * 0.5, axis=-1),
    "layernorm": lambda x: ts.ops.layernorm(x) + x,
    "rmsnorm": lambda x: ts.ops.rmsnorm(x) * 2.0,
    "squares": lambda x: (x * x).sum(axis=-1),
    "column sums": lambda x: ts.ops.sigmoid(x).sum(axis=0),
    "running sum": lambda x: ts.ops.cumsum(x, axis=0) - x,
    "running row": lambda x: ts.ops.cumsum(ts.ops.abs(x), axis=1),
    "running max": lambda x: ts.ops.cummax(x, axis=0),
    "transpose": lambda x: ts.ops.relu(x).T + 2.0,
    "argmin": lambda x: ts.ops.argmin(x, axis=1),
    "sort": lambda x: ts.ops.sort(x, axis=-1),
    "topk": lambda x: ts.ops.topk(x, 3, axis=-1)[0],
    "concat": lambda x: ts.ops.concat([x, x * x], axis=1),
    "logsumexp": lambda x: ts.ops.logsumexp(x, axis=-1) + 1.0,
    "std": lambda x: ts.ops.std(x, axis=-1),
    "column softmax": lambda x: ts.ops.softmax(x, axis=0),
    "range": lambda x: x.max(axis=1) - x.mean(axis=1),
    "centered": lambda x: x - x.mean(axis=-1, keepdims=True),
    "flip": lambda x: ts.ops.flip(x, axis=1) * x,
    "gate": lambda x: ts.ops.tanh(x) * ts.ops.exp(x) + x,
}


@dataclass(frozen=True)
class Drawn:
    """A kernel of a random program: the estimate, and what the assembler says."""

    name: str
    estimate: int
    registers: int

    @property
    def is_near(self) -> bool:
        return abs(self.estimate / self.registers - 1) <= BAND

    def __str__(self) -> str:
        return f"{self.name:44} {self.registers:4} {self.estimate:4} {self.estimate / self.registers:.2f}"


def chain(rng: random.Random) -> Callable[[Any, Any], Any]:
    """Some functions after each other, of one argument or of two."""
    functions = [rng.choice(UNARY) for _ in range(rng.randint(1, 4))]

    def program(x: Any, y: Any) -> Any:
        value = x
        for function in functions:
            value = function(value)
        return value * y + x

    return program


def product(a: Any, b: Any) -> Any:
    return ts.ops.tanh(a @ b)


def draw_program(rng: random.Random) -> tuple[str, Callable[..., Any], list[tuple[int, ...]], str]:
    """A name, a function, the shapes of its arguments, and their dtype."""
    kind = rng.choice([*FORMS, "chain", "chain", "matmul", "matmul"])
    dtype = rng.choice(list(DTYPES))
    rows = rng.choice([1, 4, 16, 50, 96, 300, 800])
    columns = rng.choice([24, 64, 130, 300, 512, 1024, 3000, 7000])
    if kind == "matmul":
        m, n, k = (rng.choice([24, 80, 128, 260]) for _ in range(3))
        return kind, product, [(m, k), (k, n)], rng.choice(["f32", "f64"])
    if kind == "chain":
        return kind, chain(rng), [(rows, columns)] * 2, dtype
    return kind, FORMS[kind], [(rows, columns)], dtype


def draw(seed: int) -> Iterator[Drawn]:
    """Kernels of random programs, no text twice."""
    rng, seen = random.Random(seed), set[str]()
    while True:
        kind, function, shapes, dtype = draw_program(rng)
        is_dynamic = rng.random() < 0.3
        jitted: Any = ts.jit(function, dynamic=is_dynamic)
        arrays = [np.zeros(shape, DTYPES[dtype]) for shape in shapes]
        found = lower(jitted.trace(*arrays).tape, Options.of(backend="cuda", features=("sm_90a",)))
        for number, text in enumerate(found.texts):
            ptx = compile_text(text, parts_of(found).backend.code_target).decode()
            if ptx in seen:
                continue
            seen.add(ptx)
            registers = parse_registers(assemble_with_words(ptx.encode(), "sm_90a")[1])
            assert registers is not None
            size = "x".join(map(str, shapes[0]))
            name = f"{kind} {size} {dtype} {'dynamic' if is_dynamic else 'static'} {number}"
            yield Drawn(name, estimate_registers(ptx).registers, registers)


def run(count: int, seed: int) -> list[Drawn]:
    """So many kernels."""
    kernels = draw(seed)
    return [next(kernels) for _ in range(count)]


def main() -> None:
    count, seed = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    found = run(count, seed)
    for one in found:
        print(one if one.is_near else f"{one} far")
    print(f"{sum(one.is_near for one in found)} of {count} kernels within {BAND:.0%}")


if __name__ == "__main__":
    main()
