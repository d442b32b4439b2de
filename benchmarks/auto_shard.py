"""Chosen shardings against naive ones: modelled and measured time of a training step of an MLP on two ranks.

    python -m benchmarks.auto_shard [--rounds 20] [--clock wall] [--output auto_shard.json]

`ts.dist.auto_shard` chooses, `ts.dist.partition` makes the program of a rank for the choice and for data parallel, and
both run in alternation. Minima are compared; with `--clock cpu` those of CPU time, for machines whose cores others use.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

import tessera as ts
from benchmarks.environment import describe
from tessera.types.rates import rates_of

RANKS, AXIS = 2, "r"
CASES = {"few rows": (32, 512, 2048), "many rows": (2048, 128, 256)}
"""Rows of a batch, width and hidden units."""


def loss_of(up: Any, down: Any, x: Any) -> Any:
    """What is trained: a layer and the mean of its squares."""
    made = ts.ops.relu(x @ up) @ down
    return (made * made).mean()


def step(up: Any, down: Any, x: Any) -> Any:
    """The loss, and the gradients of both weights."""
    return ts.value_and_grad(loss_of, argnums=(0, 1))(up, down, x)


def arguments_of(rows: int, width: int, hidden: int) -> tuple[Any, Any, Any]:
    """The same on all ranks."""
    rng = np.random.default_rng(0)
    shapes = ((width, hidden), (hidden, width), (rows, width))
    up, down, x = (ts.array((rng.standard_normal(shape) / 16).astype(np.float32)) for shape in shapes)
    return up, down, x


def plans_of(sizes: tuple[int, int, int]) -> dict[str, Any]:
    """The chosen shardings of the arguments and what the model says of them, and those of data parallel."""
    arguments = arguments_of(*sizes)
    whole = rates_of("cpu")
    assert whole is not None, "CPUs were measured"
    like = {1: "up", 2: "down"}
    found = ts.dist.auto_shard(step, {AXIS: RANKS}, *arguments, outputs=like, batch="x", rates=whole.on(1))
    chosen = tuple(str(found.inputs[name]) for name in ("up", "down", "x"))
    naive = ("[{}, {}]", "[{}, {}]", f"[{{{AXIS}}}, {{}}]")
    return {
        "chosen": {"inputs": chosen, "modelled": found.time / 1e9},
        "data parallel": {"inputs": naive, "modelled": found.naive["data parallel"] / 1e9},
    }


def run_rank(cases: dict[str, dict[str, Any]], rounds: int, clock: str) -> dict[str, Any]:
    """What one rank measures: the least seconds of each plan, and the loss that it gives."""
    now = time.process_time if clock == "cpu" else time.perf_counter
    found: dict[str, Any] = {}
    with ts.dist.mesh(**{AXIS: RANKS}):
        programs: dict[str, Any] = {}
        for case, plans in cases.items():
            for name, plan in plans.items():
                up, down, x = plan["inputs"]
                function = ts.dist.partition(step, (up, down, x), ("[]", (up, down)))
                parts = [
                    ts.dist.shard_of(one, own)
                    for one, own in zip(arguments_of(*CASES[case]), plan["inputs"], strict=True)
                ]
                programs[f"{case}: {name}"] = (function, parts)
        for number in range(rounds + 2):
            for name, (function, parts) in programs.items():
                start = now()
                loss, gradients = function(*parts)
                value = float(np.asarray(loss))
                np.asarray(gradients[0])
                taken = now() - start
                if number >= 2:
                    least = min(found.get(name, (float("inf"), 0.0))[0], taken)
                    found[name] = (least, value)
    return found


def compare(rounds: int, clock: str = "wall") -> dict[str, Any]:
    """Modelled and measured seconds of each plan of each case."""
    cases = {case: plans_of(sizes) for case, sizes in CASES.items()}
    ranks = ts.dist.run(run_rank, ranks=RANKS, args=(cases, rounds, clock), timeout=300)
    for case, plans in cases.items():
        losses = {one[f"{case}: {name}"][1] for one in ranks for name in plans}
        assert max(losses) - min(losses) <= 1e-5 * max(losses), f"plans of {case} disagree: {losses}"
        for name, plan in plans.items():
            plan["measured"] = max(one[f"{case}: {name}"][0] for one in ranks)
    return {"ranks": RANKS, "clock": clock, "cases": cases}


def main() -> None:
    """Print the comparison, and write it where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--output", default="")
    options = parser.parse_args()
    found = compare(options.rounds, options.clock)
    for case, plans in found["cases"].items():
        for name, plan in plans.items():
            times = ", ".join(f"{what} {plan[what] * 1e3:8.3f} ms" for what in ("modelled", "measured"))
            print(f"{case:10} {name:14} {times}: {', '.join(plan['inputs'])}")
    if options.output:
        found["environment"] = describe()
        Path(options.output).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
