"""A GPT in stages on ranks: microbatches pass through them in the order of 1F1B, or interleaved.

Run it with `python examples/pipeline_parallel.py`, which starts the ranks itself.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import tessera as ts
from tessera import dist, nn


def batch(step: int, items: int, length: int) -> dict[str, Any]:
    """The whole batch of a step, the same on all ranks: tokens that count up, each followed by the next."""
    start = np.random.default_rng(step).integers(0, 32, (items, 1))
    tokens = (start + np.arange(length + 1)) % 32
    return {"x": np.ascontiguousarray(tokens[:, :-1]), "y": np.ascontiguousarray(tokens[:, 1:])}


def loss(model: nn.GPT, batch: dict[str, Any]) -> Any:
    """Written for the whole model, whatever is divided."""
    return model.loss(batch["x"], batch["y"])


def train(steps: int, width: int, choices: dict[str, Any]) -> tuple[list[float], int]:
    """What one rank does: its losses, and how many inputs of microbatches it keeps at a time."""
    config = nn.GPTConfig(vocabulary=32, length=16, width=width, depth=4, heads=4, tied=False)
    model = nn.GPT.init(ts.random.key(0), config)
    optimizer = ts.optim.chain(ts.optim.clip_by_global_norm(1.0), ts.optim.adamw(1e-2))
    with dist.mesh(pp=dist.world_size()):
        recipe = dist.recipe(model, pipeline="pp", microbatches=4, **choices)
        step = ts.train.make_step(loss, optimizer, recipe=recipe)
        state = ts.train.State.init(model, optimizer, recipe=recipe)
        losses: list[float] = []
        for number in range(steps):
            state, metrics = step(state, batch(number, 8, 16))
            losses.append(float(metrics["loss"]))
    return losses, step.most_kept


def main(ranks: int = 2, steps: int = 20, width: int = 16) -> None:
    """One rank, and then a stage on each of several, or two."""
    alone, _ = train(steps, width, {})
    for choices in ({"schedule": "1f1b"}, {"schedule": "interleaved", "chunks": 2}):
        found = dist.run(train, ranks=ranks, args=(steps, width, choices))
        for losses, _ in found:
            np.testing.assert_allclose(losses, alone, rtol=1e-3)
        kept = ", ".join(str(most) for _, most in found)
        print(f"{choices['schedule']}: loss {alone[0]:.3f} -> {found[0][0][-1]:.3f}; inputs kept by each rank: {kept}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=20)
    main(**vars(parser.parse_args()))
