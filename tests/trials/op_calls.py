"""Random calls of every public op against NumPy: ranks 0 to 4, empty dims, dtypes, axes, eager, traced and dynamic.

    python -m tests.trials.op_calls --count 3000 --seed 0

A call is drawn from its own seed, so that one that disagrees is run again by it. What it should give is computed in
float64 (integers exactly) from the operands as they are stored, and how far it may be off from the lengths that are
summed, the ulps that a function declares, and the format of its result.
"""

# NumPy's results have no types to give.
# pyright: basic, reportArgumentType=false, reportCallIssue=false
from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

import tessera as ts

Array = np.ndarray[Any, Any]

NARROW = {"bf16": ml_dtypes.bfloat16, "f8e4m3": ml_dtypes.float8_e4m3fn, "f8e5m2": ml_dtypes.float8_e5m2}
FLOATS = ("f32", "f64", "bf16", "f16")
INTEGERS = ("i64", "i32", "i16", "i8", "u64", "u32", "u16", "u8")
NUMPY = {
    **{name: np.dtype(kind) for name, kind in NARROW.items()},
    **{name: np.dtype(f"float{name[1:]}") for name in ("f16", "f32", "f64")},
    **{name: np.dtype(f"{'u' if name[0] == 'u' else ''}int{name[1:]}") for name in INTEGERS},
    "bool": np.dtype(np.bool_),
}
EPS = {"f64": 2.0**-52, "f32": 2.0**-23, "f16": 2.0**-10, "bf16": 2.0**-7, "f8e4m3": 2.0**-3, "f8e5m2": 2.0**-2}
LEAST = {"f64": 2.0**-1074, "f32": 2.0**-149, "f16": 2.0**-24, "bf16": 2.0**-133, "f8e4m3": 2.0**-9, "f8e5m2": 2.0**-16}


@dataclass
class Call:
    """One call: the function of its operands, what it should give, in which dtype, and how far off it may be."""

    function: Callable[..., Any]
    operands: Sequence[Array]
    expected: Sequence[Any]
    dtypes: Sequence[str]
    slack: Sequence[Any] = ()
    text: str = ""
    dynamic: bool = True


@dataclass
class Draw:
    """A generator of one call: random shapes, dtypes and values."""

    rng: np.random.Generator
    notes: list[str] = field(default_factory=list[str])

    def pick(self, options: Sequence[Any]) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def number(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def shape(self, low: int = 0, high: int = 4, *, empty: bool = True) -> tuple[int, ...]:
        sizes = [self.pick((1, 2, 3, 4, 5, 7)) for _ in range(self.number(low, high))]
        if sizes and empty and self.chance(0.1):
            sizes[self.number(0, len(sizes) - 1)] = 0
        if sizes and self.chance(0.1):
            sizes[-1] = self.pick((33, 40, 64, 100))
        return tuple(sizes)

    def dtype(self, *names: str) -> str:
        return self.pick(names or (*FLOATS, *INTEGERS))

    def array(self, shape: Sequence[int], dtype: str, *, special: bool = False, scale: float = 3.0) -> Array:
        kind = NUMPY[dtype]
        if dtype == "bool":
            return self.rng.random(tuple(shape)) < 0.5
        if dtype in INTEGERS:
            bounds = np.iinfo(kind)
            low, high = (bounds.min, bounds.max) if special and self.chance(0.3) else (max(bounds.min, -9), 9)
            made = np.asarray(self.rng.integers(low, high, tuple(shape), dtype=kind, endpoint=True))
        else:
            made = np.asarray(self.rng.normal(size=tuple(shape)) * scale).astype(kind)
            if special and made.size and dtype in FLOATS:
                flat = made.reshape(-1)
                for value in (np.inf, -np.inf, np.nan, 0.0, -0.0, 1.0, -1.0):
                    if self.chance(0.4):
                        flat[self.number(0, flat.size - 1)] = value
        return self.layout(made)

    def layout(self, made: Array) -> Array:
        """The same elements, sometimes with other strides."""
        if made.ndim > 1 and self.chance(0.15):
            return np.asfortranarray(made)
        if made.ndim and made.shape[0] and self.chance(0.1):
            return np.repeat(made, 2, 0)[::2]
        return made

    def axis(self, rank: int) -> int:
        return self.number(-rank, rank - 1)

    def axes(self, rank: int) -> Any:
        """None, one axis or several, from either end."""
        if not rank:
            return self.pick((None, 0, -1, ()))
        kind = self.pick(("none", "one", "one", "several"))
        if kind == "none":
            return None
        if kind == "one":
            return self.axis(rank)
        chosen = self.rng.permutation(rank)[: self.number(1, rank)]
        return tuple(int(axis) - (rank if self.chance(0.5) else 0) for axis in chosen)


def wide(x: Array) -> Array:
    """Floats in float64; integers and bools as they are."""
    return (
        np.asarray(x).astype(np.float64) if str(x.dtype) not in map(str, (NUMPY[n] for n in (*INTEGERS, "bool"))) else x
    )


def result_slack(dtype: str, exact: Any, relative: Any = 0.0, absolute: Any = 0.0) -> Any:
    """How far a result may be off: what its computation is off by, and its own rounding."""
    if dtype not in EPS:
        return 0.0
    compute = "f64" if dtype == "f64" else "f32"
    size = np.abs(np.asarray(exact, np.float64))
    size = np.where(np.isfinite(size), size, 0.0)
    computed = EPS[compute] * (np.asarray(relative) * size + np.asarray(absolute)) + 4 * LEAST[compute]
    own = EPS[dtype] * size if dtype != compute else 0.0
    return computed + own + LEAST[dtype]


def largest(dtype: str) -> float:
    return float(ml_dtypes.finfo(NUMPY[dtype]).max)


RUNS = ("eager", "jit", "dynamic", "reference")


def run_call(call: Call, how: str) -> Sequence[Any]:
    if how == "eager":
        made = call.function(*map(ts.array, call.operands))
    else:
        options: dict[str, Any] = {"dynamic": True} if how == "dynamic" else {}
        options |= {"backend": "reference"} if how == "reference" else {}
        made = ts.jit(call.function, **options)(*call.operands)
    return list(made) if isinstance(made, (tuple, list)) else [made]


def compare(call: Call, found: Sequence[Any]) -> str:
    """What disagrees; empty where nothing does."""
    if len(found) != len(call.expected):
        return f"{len(found)} results for {len(call.expected)}"
    for number, (one, exact, dtype) in enumerate(zip(found, call.expected, call.dtypes, strict=True)):
        exact = np.asarray(exact)
        if one.shape != exact.shape:
            return f"shape {one.shape} for {exact.shape}"
        if str(one.dtype) != dtype:
            return f"dtype {one.dtype} for {dtype}"
        given = np.asarray(one)
        if dtype not in EPS:
            if not np.array_equal(given, exact.astype(given.dtype)):
                return f"{_show(given)} for {_show(exact)}"
            continue
        slack = call.slack[number] if number < len(call.slack) else result_slack(dtype, exact)
        ours, wanted = given.astype(np.float64), exact.astype(np.float64)
        with np.errstate(all="ignore"):
            limit = largest(dtype)
            beyond = np.abs(wanted) + slack >= limit  # it may have become an infinity, or not
            near = np.abs(ours - wanted) <= slack
            same = (ours == wanted) | (np.isnan(ours) & np.isnan(wanted)) | near
            same |= beyond & (np.abs(ours) >= limit * 0.99) & (np.sign(ours) == np.sign(wanted))
        if not same.all():
            at = tuple(int(i) for i in np.argwhere(~np.atleast_1d(same))[0])
            pair = np.atleast_1d(ours)[at], np.atleast_1d(wanted)[at]
            return f"at {at}: {pair[0]!r} for {pair[1]!r}, off by {abs(pair[0] - pair[1])!r}"
    return ""


def _show(x: Array) -> str:
    return np.array2string(x.reshape(-1)[:8], separator=",")


def draw_call(seed: int) -> tuple[str, Call, str]:
    """The call of a seed: its op, itself, and how it is run."""
    from tests.trials.op_moves import FAMILIES

    draw = Draw(np.random.default_rng((20260, seed)))
    names = sorted(FAMILIES)
    name = names[seed % len(names)]
    with np.errstate(all="ignore"):
        call = FAMILIES[name](draw)
    how = draw.pick([run for run in RUNS if run != "dynamic" or call.dynamic])
    return name, call, how


def try_call(seed: int) -> tuple[str, str]:
    """The op of a seed, and what disagrees."""
    name, call, how = draw_call(seed)
    shapes = ", ".join(f"{list(x.shape)} {x.dtype}" for x in call.operands)
    try:
        problem = compare(call, run_call(call, how))
    except Exception as error:
        problem = f"{type(error).__name__}: {str(error).splitlines()[0]}"
        if not isinstance(error, ts.TesseraError):
            problem += f" ({traceback.extract_tb(error.__traceback__)[-1]})"
    return name, f"{name} {how} {call.text}({shapes}): {problem}" if problem else ""


def run(count: int, seed: int = 0, show: Callable[[str], Any] = print) -> tuple[int, list[str]]:
    """How many calls ran, and the disagreements."""
    found: list[str] = []
    ops: Counter[str] = Counter()
    start = time.monotonic()
    for number in range(seed, seed + count):
        name, problem = try_call(number)
        ops[name] += 1
        if problem:
            found.append(f"seed {number}: {problem}")
            show(found[-1])
    show(f"{count} calls of {len(ops)} ops, {len(found)} disagreements, {time.monotonic() - start:.0f} s")
    return count, found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    sys.exit(bool(run(asked.count, asked.seed)[1]))
