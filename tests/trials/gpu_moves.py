"""Drawn programs that move elements on a GPU, compared with NumPy bit by bit.

    python -m tests.trials.gpu_moves [--count N] [--seed S]

Shapes of rows that end within a vector, begin anywhere, or are one element; dtypes of one to four bytes.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

import tessera as ts
from tessera.ir.graph.ops.convolution import max_pool_reference

SIZES = (1, 2, 3, 7, 8, 9, 16, 31, 64, 100, 113, 128, 226, 1000, 1025, 3001)
DTYPES: tuple[Any, ...] = (np.float32, ml_dtypes.bfloat16, np.float16, np.int8, np.uint8, np.bool_)
MOST = 1 << 20
"""Elements of an operand at most."""


@dataclass(frozen=True)
class Trial:
    """A program, its arrays, and what it gives."""

    name: str
    function: Callable[[Any], Any] | Callable[[Any, Any], Any]
    arrays: tuple[Any, ...]
    wanted: Any

    def __str__(self) -> str:
        return f"{self.name} of {[(array.shape, str(array.dtype)) for array in self.arrays]}"


def draw(rng: np.random.Generator, kind: str, most: int = MOST) -> Trial:
    """A program of a kind, whose operand has `most` elements at most."""
    shape = [int(rng.choice(SIZES)) for _ in range(3)]
    while np.prod(shape) > most:
        shape[int(np.argmax(shape))] //= 2
    x = _array(rng, shape, DTYPES[rng.integers(len(DTYPES))])
    return _KINDS[kind](rng, x)


def _array(rng: np.random.Generator, shape: Sequence[int], dtype: Any) -> Any:
    return (rng.random(tuple(shape)) * (2 if dtype is np.bool_ else 100)).astype(np.int32).astype(dtype)


def _ints(rng: np.random.Generator, low: int, high: int, count: int = 3) -> tuple[int, ...]:
    return tuple(int(one) for one in rng.integers(low, high + 1, count))


def _pad(rng: np.random.Generator, x: Any) -> Trial:
    widths = list(zip(_ints(rng, 0, 3), _ints(rng, 0, 3), strict=True))
    return Trial(
        f"pad by {widths}", lambda x: ts.ops.pad(x, widths, 1), (x,), np.pad(x, widths, constant_values=x.dtype.type(1))
    )


def _pool(rng: np.random.Generator, x: Any) -> Trial:
    x = x.astype(ml_dtypes.bfloat16)
    (size, stride), (padding,) = _ints(rng, 1, 3, 2), _ints(rng, 0, 1, 1)
    size = min(size, *x.shape[1:])
    padding = min(padding, size // 2)
    given: dict[str, Any] = {"stride": (stride, stride), "padding": padding}
    wanted = max_pool_reference(
        x, window=(size, size), stride=(stride, stride), padding=(padding,), dilation=(1,), padding_mode="explicit"
    )
    return Trial(f"pool {size} {given}", lambda x: ts.ops.max_pool(x, (size, size), **given), (x,), wanted)


def _permute(rng: np.random.Generator, x: Any) -> Trial:
    axes = tuple(int(axis) for axis in rng.permutation(3))
    return Trial(f"permute {axes}", lambda x: ts.ops.flip(ts.ops.permute(x, axes), 0), (x,), x.transpose(axes)[::-1])


def _take(rng: np.random.Generator, x: Any) -> Trial:
    axis = int(rng.integers(3))
    rows = rng.integers(-x.shape[axis], x.shape[axis], int(rng.integers(1, 60))).astype(np.int32)
    return Trial(f"take along {axis}", lambda x, i: ts.ops.take(x, i, axis), (x, rows), x.take(rows, axis))


def _slice(rng: np.random.Generator, x: Any) -> Trial:
    (start,) = _ints(rng, 0, x.shape[2] - 1, 1)
    step = int(rng.integers(1, 5))
    return Trial(
        f"slice {start}::{step}", lambda x: ts.ops.flip(x[:, :, start::step], 1), (x,), x[:, ::-1, start::step]
    )


def _add(rng: np.random.Generator, x: Any) -> Trial:
    y = _array(rng, x.shape[2:], x.dtype.type)
    join = ts.ops.logical_xor if x.dtype == np.bool_ else ts.ops.maximum
    wanted = np.logical_xor(x, y) if x.dtype == np.bool_ else np.maximum(x, y)
    return Trial("row joined", lambda x, y: join(x, y), (x, y), wanted)


def _roll(rng: np.random.Generator, x: Any) -> Trial:
    by = _ints(rng, -9, 9)
    return Trial(f"roll {by}", lambda x: ts.ops.roll(x, by, (0, 1, 2)), (x,), np.roll(x, by, (0, 1, 2)))


def _tile(rng: np.random.Generator, x: Any) -> Trial:
    times = _ints(rng, 1, 3)
    return Trial(f"tile {times}", lambda x: ts.ops.tile(x, times), (x,), np.tile(x, times))


def _repeat(rng: np.random.Generator, x: Any) -> Trial:
    (times,) = _ints(rng, 2, 9, 1)
    return Trial(f"repeat {times}", lambda x: ts.ops.repeat(x, times, 2), (x,), np.repeat(x, times, 2))


def _concat(rng: np.random.Generator, x: Any) -> Trial:
    axis = int(rng.integers(3))
    shape = [int(rng.integers(1, 40)) if own == axis else size for own, size in enumerate(x.shape)]
    y = _array(rng, shape, x.dtype.type)
    return Trial(f"concat along {axis}", lambda x, y: ts.ops.concat([x, y], axis), (x, y), np.concatenate([x, y], axis))


_KINDS: dict[str, Callable[[np.random.Generator, Any], Trial]] = {
    "pad": _pad,
    "pool": _pool,
    "permute": _permute,
    "take": _take,
    "slice": _slice,
    "add": _add,
    "roll": _roll,
    "tile": _tile,
    "repeat": _repeat,
    "concat": _concat,
}
KINDS = tuple(_KINDS)


def run(trial: Trial) -> str:
    """Nothing, or what is wrong with what a GPU gives."""
    found = np.asarray(ts.jit(trial.function, backend="cuda")(*map(ts.cuda.array, trial.arrays)))
    if found.shape != trial.wanted.shape:
        return f"{trial}: its shape is {found.shape}, not {trial.wanted.shape}"
    wrong = int((found != trial.wanted).sum())
    return f"{trial}: {wrong} of {found.size} are wrong" if wrong else ""


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    asked = parser.parse_args()
    rng = np.random.default_rng(asked.seed)
    said = [run(draw(rng, KINDS[number % len(KINDS)])) for number in range(asked.count)]
    print("\n".join(one for one in said if one))
    print(f"seed {asked.seed}: {asked.count} programs, {sum(map(bool, said))} wrong")


if __name__ == "__main__":
    main()
