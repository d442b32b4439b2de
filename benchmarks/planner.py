"""The planner against this machine: rates are measured on one model, and data-parallel steps of others are predicted.

    python -m benchmarks.planner [--rounds 60] [--clock wall] [--output planner.json]

Two ranks train GPTs of several sizes by SGD. Of the first size, the step of a rank by itself gives the operations that
a rank reaches, and all-reduces of two sizes give latency and bandwidth of the links; nothing else is fitted. All
programs run in alternation, and minima are compared, since other work on the machine only ever adds time. Where others
use all cores, `--clock cpu` compares seconds of CPU time in place of those of the wall clock: ranks that wait
sleep, and what they copy they copy themselves, so that on idle cores both are the same but for waiting.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import tessera as ts
from benchmarks.environment import describe
from tessera.frontend.pytree import flatten, unflatten
from tessera.planner.cluster import Cluster, Device, Efficiency
from tessera.planner.simulate import simulate
from tessera.planner.step_costs import StepCosts
from tessera.planner.traced_model import trace_model
from tessera.planner.training_plan import TrainingPlan
from tessera.types.topology import Link, Topology

RANKS = 2
SIZES = (1 << 12, 1 << 18)
"""Elements of the all-reduces that the link is measured with."""
CASES: dict[str, tuple[dict[str, int], int]] = {
    "reference": ({"width": 128, "depth": 2, "heads": 4, "length": 64}, 4),
    "deeper": ({"width": 128, "depth": 4, "heads": 4, "length": 64}, 4),
    "wider": ({"width": 192, "depth": 2, "heads": 4, "length": 64}, 4),
    "longer": ({"width": 128, "depth": 2, "heads": 4, "length": 128}, 2),
    "more rows": ({"width": 128, "depth": 2, "heads": 4, "length": 64}, 8),
}
"""Sizes of models, and sequences of a rank."""


def config_of(name: str) -> Any:
    """The configuration of a case."""
    sizes: dict[str, Any] = CASES[name][0]
    return ts.nn.GPTConfig(vocabulary=512, **sizes)


def update(model: Any, gradients: Any) -> Any:
    """One step of SGD."""
    parameters, form = flatten(model)
    return unflatten(form, [p - 0.01 * g for p, g in zip(parameters, flatten(gradients)[0], strict=True)])


def loss_of(model: Any, tokens: Any, targets: Any) -> Any:
    """What is trained."""
    return model.loss(tokens, targets)


@ts.jit
def step_alone(model: Any, tokens: Any, targets: Any) -> Any:
    """A step of one rank that exchanges nothing."""
    loss, gradients = ts.value_and_grad(loss_of)(model, tokens, targets)
    return loss, update(model, gradients)


@ts.jit
def step_together(model: Any, tokens: Any, targets: Any) -> Any:
    """A step whose gradients are means over all ranks."""
    loss, gradients = ts.value_and_grad(loss_of)(model, tokens, targets)
    leaves, form = flatten(gradients)
    means = [ts.dist.all_reduce(one, axis="dp", op="mean") for one in leaves]
    return loss, update(model, unflatten(form, means))


@ts.jit
def reduce_alone(x: Any) -> Any:
    """One all-reduce."""
    return ts.dist.all_reduce(x, axis="dp")


def run_rank(rounds: int, clock: str) -> dict[str, float]:
    """What one rank measures: the least seconds of each program, all of them in alternation."""
    programs: dict[str, Any] = {}
    for name, (_, batch) in CASES.items():
        config = config_of(name)
        model = ts.nn.GPT.init(ts.random.key(0), config)
        tokens = ts.array(np.random.default_rng(ts.dist.rank()).integers(0, 512, (batch, config.length)))
        programs[f"{name} alone"] = (step_alone, (model, tokens, tokens))
        programs[f"{name} together"] = (step_together, (model, tokens, tokens))
    for size in SIZES:
        programs[f"reduce {size}"] = (reduce_alone, (ts.ones((size,)),))
    now = time.process_time if clock == "cpu" else time.perf_counter
    least = dict.fromkeys(programs, float("inf"))
    with ts.dist.mesh(dp=ts.dist.world_size()):
        ready = ts.ones((1,))
        for number in range(rounds + 2):
            for name, (function, arguments) in programs.items():
                np.asarray(reduce_alone(ready))  # ranks begin together
                start = now()
                result: Any = function(*arguments)
                np.asarray(result[0] if name.startswith(tuple(CASES)) else result)
                if number >= 2:
                    least[name] = min(least[name], now() - start)
    return least


def describe_machine(measured: dict[str, float]) -> Cluster:
    """The cluster of this machine's ranks: what the reference reaches, and what links take."""
    small, large = (measured[f"reduce {size}"] * 1e9 for size in SIZES)
    bandwidth = 4 * (SIZES[1] - SIZES[0]) / max(large - small, 1.0)
    latency = max(small - 4 * SIZES[0] / bandwidth, 0.0) / 2
    link = Link(bandwidth, latency)
    device = Device("rank", 8e9, 10.0, (("f32", 1.0),), overlaps=False)
    guess = Cluster("this machine", device, Topology(1, RANKS, link, link), Efficiency(1.0, 1.0, 1.0, 1.0, 1.0))
    model = trace_model(config_of("reference"))
    plan = plan_of("reference", 1)
    costs = StepCosts(plan, model, replace(guess, device=replace(device, flops=(("f32", 1e12),))))
    # Bytes at the memory's bandwidth take what they take; the time that is left is that of the operations.
    held = [layer for stage in model.stages(1) for layer in stage]
    moved = sum(costs.layer(layer, kind).kernels for layer in held for kind in "FB") + costs.optimizer(held)
    flops = sum(
        (layer.matmul * (1 + layer.backward) + layer.attention * (1 + layer.attention_backward)) * plan.microbatch
        for layer in held
    )
    left = measured["reference alone"] * 1e9 - moved
    return replace(guess, device=replace(device, flops=(("f32", flops / max(left, 1.0)),)))


def plan_of(name: str, ranks: int) -> TrainingPlan:
    """Data parallel by SGD in f32, without any sharding of parameters."""
    batch = CASES[name][1]
    return TrainingPlan(
        dp=ranks, batch=batch * ranks, microbatch=batch, zero=0, param_bytes=4, grad_bytes=4, optimizer_bytes=0
    )


def compare(rounds: int, clock: str = "wall") -> dict[str, Any]:
    """Measured and predicted seconds of each case, and their deviation."""
    found = ts.dist.run(run_rank, ranks=RANKS, args=(rounds, clock), timeout=300)
    measured = {name: max(one[name] for one in found) for name in found[0]}
    cluster = describe_machine(measured)
    rows: dict[str, Any] = {}
    for name in CASES:
        step = simulate(plan_of(name, RANKS), trace_model(config_of(name)), cluster)
        together = measured[f"{name} together"]
        rows[name] = {
            "measured": together,
            "predicted": step.time / 1e9,
            "deviation": step.time / 1e9 / together - 1,
            "alone": measured[f"{name} alone"],
            "exposed": step.exposed,
        }
    link = cluster.topology.inside
    rates = {"gflops": cluster.device.peak("f32"), "bandwidth": link.bandwidth, "latency": link.latency}
    return {"ranks": RANKS, "clock": clock, "rates": rates, "cases": rows}


def main() -> None:
    """Print the comparison, and write it where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--output", default="")
    options = parser.parse_args()
    found = compare(options.rounds, options.clock)
    rates = found["rates"]
    print(
        f"a rank: {rates['gflops']:.1f} Gflop/s; links: {rates['bandwidth']:.2f} GB/s, {rates['latency'] / 1e3:.1f} us"
    )
    for name, row in found["cases"].items():
        print(f"{name:14} measured {row['measured'] * 1e3:8.2f} ms, predicted {row['predicted'] * 1e3:8.2f} ms, "
              f"{row['deviation']:+.1%} (alone {row['alone'] * 1e3:.2f} ms)")  # fmt: skip
    if options.output:
        found["environment"] = describe()
        Path(options.output).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
