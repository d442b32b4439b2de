"""Makes a profile of tuned plans that is shipped with the package: measured here, for machines of this instruction set.

    python -m benchmarks.tuned_profile [--backend cpu|nvptx] [--budget S] [--only NAMES] [--out FOLDER]

Each program below is tuned as `fn.autotune` does it, in a database of its own. A plan that was accepted is measured
twice more, in as many rounds as decided, and must be accepted both times; else the safe plan is what is written. Groups
have their plans where the same rule accepts them. What is written is `<arch>.json`, for the instruction set
(`cpu-avx512`) or the GPU (`sm_90a`), without drivers and versions: a plan that does not fit there any more does not
compile, and the safe plan takes its place. `programs.txt` beside it has the names of programs with other plans than the
safe one, by which a first call knows whether to look. Nobody edits either.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import tessera as ts
from tessera import ops
from tessera.api.program_tuning import compiled_options
from tessera.api.stored_plans import program_signature
from tessera.api.workload import ProgramWorkload
from tessera.compiler.space import space_of
from tessera.ir.base.arrays import numpy_dtype
from tessera.tuner.acceptance import judge
from tessera.tuner.database import default_database
from tessera.tuner.exchange import read_entries, write_entries
from tessera.tuner.profiles import family_of
from tessera.tuner.protocol import DeviceEviction, InProcess, Protocol, join
from tessera.tuner.records import Entry, Plan, Trial
from tessera.types.dtype import parse_dtype

Case = tuple[str, Callable[..., Any], str, Sequence[tuple[int, ...]]]
FOLDER = Path(__file__).parents[1] / "tessera" / "tuner" / "profiles"
CONFIRMATIONS = 2
ROUNDS = 20
"""Rounds of each confirmation: those by which a program decides."""
MOST_SAMPLES = 10
"""Runs of a trial that are written down: as many as the rule needs."""
PREFIX = "program_"


def matmul(x: Any, w: Any) -> Any:
    """A product."""
    return x @ w


def linear(x: Any, w: Any, b: Any) -> Any:
    """A layer with its bias and activation."""
    return ops.gelu(x @ w + b)


def norm(x: Any, scale: Any, shift: Any) -> Any:
    """Rows to mean 0 and variance 1."""
    return ops.layernorm(x, scale, shift)


def rms(x: Any, scale: Any) -> Any:
    """Rows to mean square 1."""
    return ops.rmsnorm(x, scale)


def attend(q: Any, k: Any, v: Any) -> Any:
    """Attention."""
    return ops.attention(q, k, v)


def add(x: Any, y: Any) -> Any:
    """An elementwise group of two operands."""
    return ops.relu(x + y)


def polynomial(x: Any) -> Any:
    """An elementwise group with functions that take long."""
    return ops.tanh(x) * ops.sigmoid(x) + ops.exp(-x * x)


def mlp(x: Any, up: Any, down: Any) -> Any:
    """Two products with an activation between them."""
    return ops.gelu(x @ up) @ down


def scores(q: Any, k: Any) -> Any:
    """A product with the rows of its second operand, and their softmax."""
    return ops.softmax(q @ k.T)


def sum_columns(x: Any) -> Any:
    """A reduction of columns."""
    return ops.sum(x, axis=0)


def variance(x: Any) -> Any:
    """Two reductions of rows."""
    return ops.var(x, axis=-1)


def softmax(x: Any) -> Any:
    """The softmax of rows."""
    return ops.softmax(x)


def running(x: Any) -> Any:
    """Running sums of rows."""
    return ops.cumsum(x, axis=-1)


def cases(backend: str) -> list[Case]:
    """Programs that many users have, with a name, a function, a dtype, and shapes."""
    dtype, sizes = ("f32", (384, 768, 1536)) if backend == "cpu" else ("bf16", (1536, 3072, 6144))
    small, large = sizes[0], sizes[1]
    wide, rows = 4 * large, 2 * small
    found: list[Case] = [(f"matmul {n}", matmul, dtype, ((n, n), (n, n))) for n in sizes]
    found += [("batched", matmul, dtype, ((24, small, 64), (24, 64, small)))]
    found += [(f"linear {n}", linear, dtype, ((small, n), (n, 4 * n), (4 * n,))) for n in (small, large)]
    found += [(f"mlp {n}", mlp, dtype, ((small, n), (n, 4 * n), (4 * n, n))) for n in (small, large)]
    found += [(f"scores {n}", scores, dtype, ((n, 64), (n, 64))) for n in (small, large)]
    found += [("attention", attend, dtype, ((2, 12, small, 64),) * 3)]
    found += [(f"softmax {n}", softmax, dtype, ((rows, n),)) for n in (small, wide)]
    found += [(f"layernorm {n}", norm, dtype, ((rows, n), (n,), (n,))) for n in (large, wide)]
    found += [(f"rmsnorm {n}", rms, dtype, ((rows, n), (n,))) for n in (large, wide)]
    found += [("variance", variance, dtype, ((rows, large),)), ("cumsum", running, dtype, ((rows, large),))]
    found += [(f"columns {n}", sum_columns, dtype, ((n, n),)) for n in (small, large)]
    found += [(f"relu {n}", add, dtype, ((n, n), (n, n))) for n in (small, large)]
    found += [(f"tanh {n}", polynomial, dtype, ((n, n),)) for n in (small, large)]
    return found


def tensors_of(case: Case, backend: str) -> list[Any]:
    """The arguments of a case, where its program runs."""
    rng, dtype = np.random.default_rng(0), parse_dtype(case[2])
    arrays = [rng.uniform(-1, 1, shape).astype(np.float32).astype(numpy_dtype(dtype)) for shape in case[3]]
    made = [ts.array(array, case[2]) for array in arrays]
    if backend == "cpu":
        return made
    from tessera.runtime.devices.cuda.tensor import CudaTensor  # noqa: PLC0415 - for a GPU alone

    return [CudaTensor.of(one) for one in made]


def tune(case: Case, backend: str, budget: float) -> str:
    """Tune one program, and see that what was accepted is accepted again; what came of it, in words."""
    step, given = ts.jit(case[1]), tensors_of(case, backend)
    found = step.autotune(*given, budget=budget, retune=True)
    if not found.accepted:
        return f"safe: {found.decision.reason if found.decision is not None else 'nothing is faster'}"
    here, made, tensors = step.prepare(*given)
    options, database = compiled_options(here, made), default_database()
    eviction = None if backend == "cpu" else DeviceEviction()
    with InProcess(ProgramWorkload(space_of(made.traced.tape, options), tensors, eviction), Protocol()) as measurer:
        trials = [measurer.measure(found.plan, ROUNDS) for _ in range(CONFIRMATIONS)]
        decisions = [judge(trial, measurer.safe_bits) for trial in trials]
    whole = trials[0]
    for trial in trials[1:]:
        whole = join(whole, trial)
    refused = next((one.reason for one in decisions if not one.accepted), "")
    plan = Plan() if refused else found.plan
    signature = program_signature(made.traced.tape, options)
    database.remove(signature)
    database.store(signature, plan, [whole])
    return f"safe again: {refused}" if refused else f"{plan}: {' and '.join(f'{one.gain:+.1%}' for one in decisions)}"


def write(folder: Path) -> tuple[int, int]:
    """The database as a profile; how many entries there are, and how many with other plans than the safe one."""

    def short(trial: Trial) -> Trial:
        samples, baseline = trial.samples[:MOST_SAMPLES], trial.baseline[:MOST_SAMPLES]
        kept = replace(trial, samples=tuple(map(round, samples)), baseline=tuple(map(round, baseline)))
        return replace(kept, predicted=None, bits=trial.bits[:16], reason=trial.reason[:80])

    entries: list[Entry] = []
    for entry in default_database().entries():
        measured = [trial for trial in entry.trials if trial.samples] or list(entry.trials[:1])
        own = [trial for trial in measured if trial.plan == entry.plan] or measured[:1]
        is_safe = not entry.plan.choices or not own or not judge(own[-1], own[-1].bits).accepted
        signature = replace(entry.signature, arch=family_of(entry.signature.arch), runtime="")
        if own:
            plan = Plan() if is_safe else entry.plan
            entries.append(Entry(signature, plan, (short(own[-1]),), "profile", float(round(entry.stored))))
    arch = entries[0].signature.arch
    write_entries(folder / f"{arch}.json", entries)
    written = [entry for entry in entries if entry.plan.choices]
    names = {entry.signature.op_kind for entry in written if entry.signature.op_kind.startswith(PREFIX)}
    listed = folder / "programs.txt"
    others = _names_of_others(folder, f"{arch}.json")
    listed.write_text("".join(f"{name}\n" for name in sorted(names | others)), encoding="utf-8")
    return len(entries), len(written)


def _names_of_others(folder: Path, own: str) -> set[str]:
    """Programs that other profiles of the folder have plans for."""
    files = [path for path in sorted(folder.glob("*.json")) if path.name != own]
    found = [entry for path in files for entry in read_entries(path) if entry.plan.choices]
    return {entry.signature.op_kind for entry in found if entry.signature.op_kind.startswith(PREFIX)}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", choices=("cpu", "nvptx"), default="cpu")
    parser.add_argument("--budget", type=float, default=6.0, help="seconds of each program")
    parser.add_argument("--only", default="", help="names of programs, as they begin, with commas between")
    parser.add_argument("--out", type=Path, default=FOLDER)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TESSERA_CACHE_DIR"] = folder
        wanted = [name for name in asked.only.split(",") if name] or [""]
        for case in cases(asked.backend):
            if any(case[0].startswith(name) for name in wanted):
                print(f"{case[0]}: {tune(case, asked.backend, asked.budget)}", flush=True)
        count, others = write(asked.out)
    print(f"{count} entries, {others} with other plans than the safe one, in {asked.out}", file=sys.stderr)


if __name__ == "__main__":
    main()
