"""Derivatives of random programs against JAX, or where there is none against central differences, with figures.

    python -m tests.trials.gradients --count 500 --first 1000
    python -m tests.trials.gradients --mode second --count 100

Modes are `grad` (of a scalar by all floats, in one program for two sets of sizes; the value beside it has the bits of
the function alone), `jvp`, `vmap` (of a gradient) and `second` (a gradient of a gradient). What fails is made smaller.
"""

# Traced functions and JAX have no types to give here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false
from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import tessera as ts
from tessera.ir.base.arrays import Array
from tests.fuzz.bindings import has_jax, jax_names, loss_of, tessera_names
from tests.fuzz.compare import make_small
from tests.fuzz.differentiable import differentiable_program
from tests.fuzz.program import Program

MODES = ("grad", "jvp", "vmap", "second")
STEP = 1e-5
FORWARD = 3
"""Of so many programs the function alone is compiled too, to compare bits: it takes as long as all the rest."""


def draw_arrays(program: Program, sizes: Mapping[str, int], *, coarse: bool) -> list[Array]:
    """Inputs; coarse ones have values that occur twice, where conventions count."""
    arrays = program.arrays(sizes)
    return [np.round(array * 4) / 4 if coarse and array.dtype.kind == "f" else array for array in arrays]


def draw_directions(program: Program, arrays: Sequence[Array]) -> list[Array]:
    rng = np.random.default_rng([program.seed, 5])
    return [rng.standard_normal(arrays[at].shape).astype(arrays[at].dtype) for at in floats_of(arrays)]


def floats_of(arrays: Sequence[Array]) -> list[int]:
    return [at for at, array in enumerate(arrays) if array.dtype.kind == "f"]


def batch_of(arrays: Sequence[Array]) -> list[Array]:
    """The first input twice, the second time another."""
    return [np.stack([arrays[0], arrays[0] * 0.75]), *arrays[1:]]


def make_derivative(library: Any, mode: str, loss: Any, about: tuple[int, ...]) -> Callable[..., Any]:
    """A function of inputs and directions that gives a list of arrays, by the transforms of a library."""
    gradient = library.grad(loss, about)
    if mode == "grad":
        return lambda arrays, _: gradient(*arrays)
    if mode == "vmap":

        def each(arrays: Any, _: Any) -> Any:
            axes = (0, *[None] * (len(arrays) - 1))
            return [library.vmap(library.grad(loss, 0), in_axes=axes)(*arrays)]

        return each

    def with_floats(arrays: Any, chosen: Any) -> list[Any]:
        given = list(arrays)
        for at, value in zip(about, chosen, strict=True):
            given[at] = value
        return given

    if mode == "jvp":

        def push(arrays: Any, directions: Any) -> Any:
            primals = tuple(arrays[at] for at in about)
            return [library.jvp(lambda *chosen: loss(*with_floats(arrays, chosen)), primals, tuple(directions))[1]]

        return push

    def second(arrays: Any, directions: Any) -> Any:
        def slope(*chosen: Any) -> Any:
            found = gradient(*with_floats(arrays, chosen))
            return sum((one * d).sum() for one, d in zip(found, directions, strict=True))

        every = tuple(range(len(about)))
        return library.grad(slope, every)(*(arrays[at] for at in about))

    return second


def expect(
    program: Program, mode: str, arrays: Sequence[Array], directions: Sequence[Array], *, eager: bool
) -> list[Array]:
    """What JAX gives."""
    jax: Any = importlib.import_module("jax")
    made: Any = make_derivative(jax, mode, loss_of(program, jax_names()), tuple(floats_of(arrays)))
    arrays = batch_of(arrays) if mode == "vmap" else arrays
    given = [[jax.numpy.asarray(one) for one in group] for group in (arrays, directions)]
    return [np.asarray(one) for one in (made if eager else jax.jit(made))(*given)]


def differ(program: Program, mode: str, arrays: Sequence[Array], directions: Sequence[Array]) -> tuple[Any, Any]:
    """Central differences along the directions, and a function that gives the same of what was found."""
    about = floats_of(arrays)
    both: Any = ts.value_and_grad(ts.jit(loss_of(program, tessera_names())), tuple(about))

    def moved(by: float) -> list[Array]:
        given = list(arrays)
        for at, direction in zip(about, directions, strict=True):
            given[at] = given[at] + by * direction
        return given

    def along(found: Sequence[Any]) -> Any:
        return [np.asarray(sum(float((np.asarray(one) * d).sum()) for one, d in zip(found, directions, strict=True)))]

    if mode == "vmap":
        rows = [[row, *arrays[1:]] for row in batch_of(arrays)[0]]
        return [np.stack([np.asarray(both(*row)[1][0]) for row in rows])], list
    if mode == "second":
        ahead, behind = (along(both(*moved(by))[1])[0] for by in (STEP, -STEP))
        return [(ahead - behind) / (2 * STEP)], along
    ahead, behind = (float(both(*moved(by))[0]) for by in (STEP, -STEP))
    return [np.asarray((ahead - behind) / (2 * STEP))], along if mode == "grad" else list


def disagreement(program: Program, mode: str) -> str:
    """What is wrong with the derivatives of a program, or nothing."""
    loss = ts.jit(loss_of(program, tessera_names()))
    coarse = has_jax() and program.seed % 4 == 0
    compiled: Any = None
    for sizes in program.sizes:
        arrays = draw_arrays(program, sizes, coarse=coarse)
        directions = draw_directions(program, arrays)
        about = tuple(floats_of(arrays))
        if mode == "grad":
            compiled = compiled or ts.value_and_grad(loss, about)
            value, found = compiled(*arrays)
            is_moved = (
                program.seed % FORWARD == 0 and np.asarray(value).tobytes() != np.asarray(loss(*arrays)).tobytes()
            )
            if is_moved:
                return f"the value is {value!r} beside its gradient, and {loss(*arrays)!r} alone"
        else:
            given = batch_of(arrays) if mode == "vmap" else list(arrays)
            found = ts.jit(make_derivative(ts, mode, loss, about))(given, directions)
        found = [np.asarray(one) for one in found]
        wrong = compare_derivatives(program, mode, arrays, directions, found)
        if wrong:
            return f"{dict(sizes)}: {wrong}"
    has_rows = any(kernel in program.text for kernel in ("scale_rows", "share_rows"))  # of a length that is known
    if mode == "grad" and not has_rows and compiled.cache_info().misses != 1:
        return f"{compiled.cache_info().misses} programs were made, not one"
    return ""


def compare_derivatives(
    program: Program, mode: str, arrays: Sequence[Array], directions: Sequence[Array], found: Sequence[Array]
) -> str:
    """What is wrong with derivatives, by JAX or by central differences."""
    if not has_jax():
        expected, view = differ(program, mode, arrays, directions)
        return compare_arrays(view(found), expected, 1e-5)
    for eager in (False, True):
        # JAX 0.10 compiles some gradients of `max(x ** y)` wrongly for CPUs: it is asked again, op by op.
        wrong = compare_arrays(found, expect(program, mode, arrays, directions, eager=eager), 1e-9)
        if not wrong:
            return ""
    return wrong


def compare_arrays(found: Sequence[Array], expected: Sequence[Array], bound: float) -> str:
    """Where arrays differ by more than a bound of the largest of their numbers."""
    for number, (mine, theirs) in enumerate(zip(found, expected, strict=True)):
        if mine.shape != theirs.shape or mine.dtype.kind != "f":
            return f"{number}: {mine.shape} {mine.dtype}, not {theirs.shape} {theirs.dtype}"
        largest = max([1.0, *(float(np.abs(one[np.isfinite(one)]).max(initial=0.0)) for one in expected)])
        with np.errstate(all="ignore"):
            same = (np.abs(mine - theirs) <= bound * largest) | (mine == theirs) | (np.isnan(mine) & np.isnan(theirs))
        if not same.all():
            at = tuple(int(index) for index in np.unravel_index(int((~same).argmax()), same.shape))
            return (
                f"derivative {number}: {(~same).sum()} of {same.size} differ, at {at} {mine[at]!r}, not {theirs[at]!r}"
            )
    return ""


def fails(program: Program, mode: str) -> str:
    """What is wrong, errors of the compiler included."""
    try:
        with np.errstate(all="ignore"):
            return disagreement(program, mode)
    except Exception as error:  # whatever a compiler may raise is what is looked for
        return f"{type(error).__name__}: {error}"


def run(mode: str, seeds: Sequence[int], *, shrink: bool = True, say: Callable[[str], None] = print) -> dict[str, Any]:
    """The record of a trial: how many agreed, and of those that failed why, with the smallest part that does."""
    results: Counter[str] = Counter()
    failures: list[dict[str, Any]] = []
    start = time.perf_counter()
    for number, seed in enumerate(seeds):
        program = differentiable_program(seed)
        if mode == "jvp" and "ruled_product" in program.text:
            results["without forward mode"] += 1
            continue
        wrong = fails(program, mode)
        results["failed" if wrong else "agreed"] += 1
        if wrong:
            small = make_small(program, lambda one: fails(one, mode)) if shrink else program
            failures.append(
                {"seed": seed, "problem": wrong[:600], "smaller": fails(small, mode)[:600], "text": small.text}
            )
            say(f"{seed}: {wrong[:300]}\n  smaller: {fails(small, mode)[:600]}\n{small.text}\n")
        if number % 50 == 49:
            say(f"{number + 1} programs, {len(failures)} failed, {time.perf_counter() - start:.0f} s")
    against = "jax" if has_jax() else "central differences"
    seconds = round(time.perf_counter() - start, 1)
    return {
        "mode": mode,
        "against": against,
        "count": len(seeds),
        "results": dict(results),
        "seconds": seconds,
        "failures": failures,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a trial and print its figures; 1 where something failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--mode", choices=MODES, default="grad")
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--first", type=int, default=0, help="the first seed (0)")
    parser.add_argument("--no-shrink", action="store_true")
    given = parser.parse_args(arguments)
    seeds = range(given.first, given.first + given.count)
    record = run(given.mode, seeds, shrink=not given.no_shrink, say=lambda text: print(text, flush=True))
    print(json.dumps({**record, "failures": [one["seed"] for one in record["failures"]]}, indent=1))
    return int(bool(record["failures"]))


if __name__ == "__main__":
    sys.exit(main())
