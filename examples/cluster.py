"""One training script for a laptop and for a cluster: whoever starts it decides how many ranks there are.

    python examples/cluster.py --steps 4
    tessera run --ranks 2 examples/cluster.py --steps 8
    mpiexec -n 4 python examples/cluster.py --mesh dp=2,tp=2 --steps 12

Each run goes on from the checkpoint of the last one, on whatever mesh that was.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

import tessera as ts
from tessera import dist, nn


def batch(step: int, items: int = 8, length: int = 16) -> dict[str, Any]:
    """The whole batch of a step, the same on all ranks: tokens that count up, each followed by the next."""
    start = np.random.default_rng(step).integers(0, 32, (items, 1))
    tokens = (start + np.arange(length + 1)) % 32
    return {"x": np.ascontiguousarray(tokens[:, :-1]), "y": np.ascontiguousarray(tokens[:, 1:])}


def loss(model: nn.GPT, batch: dict[str, Any]) -> Any:
    """Written for the whole model, whatever is divided."""
    return model.loss(batch["x"], batch["y"])


def read_mesh(text: str) -> dict[str, int]:
    """`dp=2,tp=2` as sizes of axes; without a text, all ranks are data parallel."""
    if not text:
        return {"dp": dist.world_size(), "tp": 1}
    return {"dp": 1, "tp": 1} | {name: int(size) for name, _, size in (one.partition("=") for one in text.split(","))}


def main(mesh: str = "", steps: int = 4, width: int = 32, folder: str = "build/cluster") -> list[float]:
    """Train until a number of steps is reached, and save; the losses of the steps that this run took."""
    model = nn.GPT.init(ts.random.key(0), nn.GPTConfig(vocabulary=32, length=16, width=width, depth=2, heads=4))
    optimizer = ts.optim.chain(ts.optim.clip_by_global_norm(1.0), ts.optim.adamw(1e-2))
    checkpoint = Path(folder) / "state"
    losses: list[float] = []
    with dist.mesh(**read_mesh(mesh)) as around:
        recipe = dist.recipe(model, data="dp", tensor="tp", zero=1)
        step = ts.train.make_step(loss, optimizer, recipe=recipe)
        state = ts.train.State.init(model, optimizer, recipe=recipe)
        if checkpoint.exists():
            state = ts.train.restore(checkpoint, state, recipe=recipe)
        first = int(state.step)
        for number in range(first, steps):
            state, metrics = step(state, batch(number))
            losses.append(float(metrics["loss"]))
        checkpoint.parent.mkdir(parents=True, exist_ok=True)
        ts.train.save(checkpoint, state, recipe=recipe)
    if dist.rank() == 0:
        shown = f"loss {losses[0]:.3f} -> {losses[-1]:.3f}" if losses else "nothing left to do"
        print(f"{around}: steps {first} to {steps}, {shown}", flush=True)
    return losses


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mesh", default="", help="axes and sizes, dp=2,tp=2; all ranks data parallel by default")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--folder", default="build/cluster", help="where the checkpoint is")
    main(**vars(parser.parse_args()))
