"""`python -m benchmarks.ddp`: data parallel training of a GPT on two ranks against PyTorch's DDP over gloo.

Both run in the same processes, a thread for each rank, round after round in turn, so that whatever else the machine
does falls on both. Losses of the first steps are compared before anything is timed.
"""

from __future__ import annotations

import importlib
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console

import tessera as ts
from benchmarks.environment import ROOT, describe
from benchmarks.training_models import TorchTrainer, build_model, draw_parameters, loss_of, make_optimizer, torch_model
from tessera import dist

FILE = ROOT / "benchmarks" / "results" / "ddp.json"
CHECKED = 3
"""Steps whose losses are compared."""
ITEMS, LENGTH = 8, 128
"""Sequences of a batch, of all ranks together, and their tokens."""
TARGET = 1.1
"""How many times as fast as DDP a step is to be."""
CONFIG = ts.nn.GPTConfig(vocabulary=512, length=LENGTH, width=128, depth=4, heads=4)


def draw_batch() -> tuple[Any, Any]:
    """The whole batch, the same on all ranks."""
    tokens = np.random.default_rng(1).integers(0, CONFIG.vocabulary, (ITEMS, LENGTH + 1))
    return np.ascontiguousarray(tokens[:, :-1]), np.ascontiguousarray(tokens[:, 1:])


def make_ours() -> Callable[[], Any]:
    """A step of this rank by a recipe; gives the loss of the whole batch."""
    model = build_model(CONFIG, draw_parameters(CONFIG))
    recipe = dist.recipe(model, data="dp")
    step = ts.train.make_step(loss_of, make_optimizer(), recipe=recipe)
    state = ts.train.State.init(model, make_optimizer(), recipe=recipe)
    batch = tuple(ts.array(one) for one in draw_batch())

    def run() -> Any:
        nonlocal state
        state, metrics = step(state, batch)
        return metrics["loss"]

    return run


def make_theirs(torch: Any) -> Callable[[], Any]:
    """A step of this rank by DDP; gives the loss of its part of the batch."""
    module = torch_model(torch, CONFIG, draw_parameters(CONFIG), "cpu")
    wrapped = torch.nn.parallel.DistributedDataParallel(module)
    trainer = TorchTrainer(torch, wrapped, compiled=False, device="cpu")
    own = slice(dist.rank() * ITEMS // dist.world_size(), (dist.rank() + 1) * ITEMS // dist.world_size())
    batch = [torch.tensor(one[own], dtype=torch.int64) for one in draw_batch()]
    return lambda: trainer.step(*batch)


def measure(rounds: int, steps: int, meeting: str) -> dict[str, Any]:
    """What one rank sees: seconds of a step in each round of both, and their first losses."""
    torch: Any = importlib.import_module("torch")
    torch.set_num_threads(1)
    group: Any = importlib.import_module("torch.distributed")
    group.init_process_group("gloo", init_method=f"file://{meeting}", rank=dist.rank(), world_size=dist.world_size())
    with dist.mesh(dp=dist.world_size()):
        runs = {"tessera": make_ours(), "torch DDP": make_theirs(torch)}
        losses = {name: [float(run()) for _ in range(CHECKED)] for name, run in runs.items()}
        seconds: dict[str, list[float]] = {name: [] for name in runs}
        for _ in range(rounds):
            for name, run in runs.items():
                group.barrier()
                start = time.perf_counter()
                float([run() for _ in range(steps)][-1])
                seconds[name].append((time.perf_counter() - start) / steps)
    group.destroy_process_group()
    return {"losses": losses, "seconds": seconds}


def check(found: list[dict[str, Any]]) -> float:
    """How far losses differ; ArithmeticError if by more than rounding."""
    ours: list[float] = found[0]["losses"]["tessera"]
    theirs: Any = np.mean([one["losses"]["torch DDP"] for one in found], axis=0)
    error = max(abs(float(one) - float(other)) for one, other in zip(ours, theirs, strict=True))
    if not error <= 2e-3 * max(map(abs, ours)):
        raise ArithmeticError(f"DDP has the losses {theirs}, and tessera {ours}")
    return error


def main(
    ranks: Annotated[int, typer.Option(help="processes, of one thread each")] = 2,
    rounds: Annotated[int, typer.Option(help="rounds in which both take turns")] = 10,
    steps: Annotated[int, typer.Option(help="steps of a round")] = 3,
    save: Annotated[bool, typer.Option(help="write results/ddp.json")] = False,
) -> None:
    """Time both, and print tokens of all ranks per second."""
    console = Console()
    os.environ.setdefault("TESSERA_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as folder:
        found: list[dict[str, Any]] = dist.run(measure, ranks=ranks, args=(rounds, steps, f"{folder}/meeting"))
    error, tokens = check(found), ITEMS * LENGTH
    # A step is over when its slowest rank is.
    slowest = {
        name: [max(one) for one in zip(*(rank["seconds"][name] for rank in found), strict=True)]
        for name in found[0]["seconds"]
    }
    medians = {name: statistics.median(values) for name, values in slowest.items()}
    ratio = medians["torch DDP"] / medians["tessera"]
    for name, seconds in medians.items():
        times = f"{1e3 * seconds:6.1f} ms (fastest {1e3 * min(slowest[name]):.1f})"
        console.print(f"{name:10} {tokens / seconds:8.0f} tokens/s  {times}")
    console.print(f"{ratio:.2f} times as fast as DDP (wanted {TARGET}); losses differ by {error:.1e}")
    if save:
        facts = {"machine": describe(), "ranks": ranks, "seconds": slowest, "ratio": ratio, "loss error": error}
        FILE.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
