"""Whether compiled programs agree with the interpreter, and the smallest part of one that does not."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tessera.backends.reference.compile import bind_sizes, run_tape, static_attribute
from tessera.ir.base.arrays import Array, dtype_of, numpy_dtype
from tessera.ir.base.tape import Record, Tape
from tessera.ir.graph.ops import REGISTRY
from tessera.types.dtype import f32, f64
from tests.fuzz.program import Program
from tests.numerics.bounds import BOUNDS, Asked

NUDGE = 4.0
"""How many times the bound of an inexact op its results are moved, to see what comes of it."""

RUNS = 3


def interpreted(tape: Tape, arrays: Sequence[Array], rng: np.random.Generator | None = None) -> list[Array]:
    """The outputs op by op; with `rng`, results that compiled code may round otherwise are moved at random."""
    sizes = bind_sizes(tape, arrays)
    values: dict[int, Array] = dict(zip(tape.inputs, arrays, strict=True))
    moved: set[int] = set()
    for record in tape.records:
        one = Tape(
            inputs=list(range(len(record.operands))),
            names=["x"] * len(record.operands),
            records=[_renumbered(record, len(record.operands))],
            outputs=list(range(len(record.operands), len(record.operands) + len(record.results))),
            types=[tape.types[v] for v in (*record.operands, *record.results)],
        )
        made = run_tape(one, [values[v] for v in record.operands], sizes)
        values |= dict(zip(record.results, made, strict=True))
        is_inexact = REGISTRY[record.op].short_name in BOUNDS
        if rng is not None and (is_inexact or moved.intersection(record.operands)):
            static = {name: static_attribute(value, sizes) for name, value in record.attributes.items()}
            known = replace(record, attributes=static)
            values[record.results[0]] = _moved(known, [values[v] for v in record.operands], made[0], rng)
            moved.update(record.results)
    return [values[output] for output in tape.outputs]


def _renumbered(record: Record, count: int) -> Record:
    return replace(record, operands=tuple(range(count)), results=tuple(range(count, count + len(record.results))))


def _moved(record: Record, operands: Sequence[Array], result: Array, rng: Any) -> Array:
    """A result off by a few times what its op may be off by, and a rounding; of other dtypes than f32 and f64 as it is.

    An exact op rounds otherwise too when its operands are off.
    """
    if dtype_of(result) not in (f32, f64):
        return result
    spec = REGISTRY[record.op]
    bound = BOUNDS.get(spec.short_name)
    reach = np.zeros(()) if bound is None else bound(Asked(spec, operands, record.attributes, result))
    noise = rng.uniform(-NUDGE, NUDGE, result.shape)
    noise *= np.where(np.isfinite(reach), reach, 0.0) + np.spacing(np.abs(result))
    return np.add(result, noise, dtype=np.float64).astype(numpy_dtype(dtype_of(result)))


def disagreement(program: Program, **options: Any) -> str:
    """What is wrong with the compiled program, or nothing."""
    compiled = program.jitted(**options)
    # Where all outputs are exact nobody asks what becomes of an op that is a little off.
    runs = 0 if all(program.values[name].is_exact for name in program.outputs) else RUNS
    for sizes in program.sizes:
        arrays = program.arrays(sizes)
        with np.errstate(all="ignore"):
            tape = compiled.trace(*arrays).tape
            wanted = interpreted(tape, arrays)
            given = [np.asarray(item) for item in compiled(*arrays)]
            moved = [interpreted(tape, arrays, np.random.default_rng(run)) for run in range(runs)]
        for number, name in enumerate(program.outputs):
            wrong = _wrong(program, name, given[number], wanted[number], [run[number] for run in moved])
            if wrong:
                return f"{name} at {dict(sizes)}: {wrong}"
    if compiled.cache_info().misses != 1:
        return f"{compiled.cache_info().misses} programs were made, not one"
    return ""


def _wrong(program: Program, name: str, given: Array, wanted: Array, moved: Sequence[Array]) -> str:
    if given.shape != wanted.shape or given.dtype != wanted.dtype:
        return f"{given.shape} {given.dtype}, not {wanted.shape} {wanted.dtype}"
    with np.errstate(all="ignore"):
        # In their own dtype: as floats, large integers that differ would be equal.
        same = (given == wanted) | ((given != given) & (wanted != wanted))
        if not program.values[name].is_exact:
            same = same | _is_near(given, wanted, moved)
    if same.all():
        return ""
    at = tuple(int(index) for index in np.unravel_index(int((~same).argmax()), same.shape))
    return f"{int((~same).sum())} of {same.size} differ, at {at} {given[at]!r} and not {wanted[at]!r}"


def _is_near(given: Array, wanted: Array, moved: Sequence[Array]) -> Any:
    """Where a result is what the interpreter gave, or a moved run of it, but for what the moved runs are apart.

    An overflow that a moved run met, compiled code may meet too; then it has met one, and nothing else is excused.
    """
    ours, runs = given.astype(np.float64), [run.astype(np.float64) for run in (wanted, *moved)]
    finite = np.array([np.where(np.isfinite(run), run, np.nan) for run in runs])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of elements that are finite in no run
        apart = np.nanmax(finite, axis=0) - np.nanmin(finite, axis=0)
    near = np.zeros(given.shape, bool)
    for run in runs:
        # A rounding that all runs happened to do alike may go the other way.
        rounding = (
            2 * np.spacing(np.abs(run.astype(given.dtype))).astype(np.float64) if given.dtype.kind not in "iub" else 0.0
        )
        reach = 2 * apart + rounding + np.finfo(np.float32).tiny
        near = near | (ours == run) | (np.isnan(ours) & np.isnan(run)) | (np.abs(ours - run) <= reach)
    return near


def fails(program: Program, **options: Any) -> str:
    """What is wrong, errors of the compiler included."""
    try:
        return disagreement(program, **options)
    except Exception as error:  # whatever a compiler may raise is what is looked for
        return f"{type(error).__name__}: {error}"


def shrunk(program: Program, **options: Any) -> Program:
    """A smaller program that fails too."""
    return make_small(program, lambda one: fails(one, **options))


def make_small(program: Program, fails: Callable[[Program], str]) -> Program:
    """A smaller program that fails too: one output, as few steps as can be, values given instead of computed."""
    for name in program.outputs:
        one = program.with_outputs(name)
        if fails(one):
            program = one
            break
    for step in program.steps:
        early = program.with_outputs(step.value.name)
        if fails(early):
            program = early
            break
    changed = True
    while changed:
        changed = False
        for step in reversed(program.steps[:-1]):
            fewer = program.with_input(step.value.name)
            if len(fewer.steps) < len(program.steps) and fails(fewer):
                program, changed = fewer, True
                break
    return program


def report(program: Program, reason: str, **options: Any) -> str:
    """What to print of a program that fails: why, and the smallest part that does, to run."""
    small = shrunk(program, **options)
    return f"program {program.seed}: {reason}\n\nsmaller, {fails(small, **options)}:\n\n{small.script}"
