"""A GPT whose sequence is divided over ranks: keys and values go round a ring, and no rank has all of them.

Run it with `python examples/long_context.py`, which starts the ranks itself.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import tessera as ts
from tessera import dist, nn, ops


def batch(step: int, items: int, length: int) -> dict[str, Any]:
    """The whole batch of a step, the same on all ranks: tokens that count up, each followed by the next."""
    start = np.random.default_rng(step).integers(0, 32, (items, 1))
    tokens = (start + np.arange(length + 1)) % 32
    return {"x": np.ascontiguousarray(tokens[:, :-1]), "y": np.ascontiguousarray(tokens[:, 1:])}


def loss(model: nn.GPT, batch: dict[str, Any]) -> Any:
    """Written for the whole model, whatever is divided."""
    return model.loss(batch["x"], batch["y"])


def train(steps: int, length: int, zero: int) -> list[float]:
    """What one rank does with its part of every sequence."""
    sizes = {"vocabulary": 32, "length": length, "width": 16, "depth": 1, "heads": 4, "kv_heads": 2}
    model = nn.GPT.init(ts.random.key(0), nn.GPTConfig.llama(**sizes))
    optimizer = ts.optim.adamw(1e-2)
    with dist.mesh(sp=dist.world_size()):
        recipe = dist.recipe(model, context="sp", zero=zero)
        step = ts.train.make_step(loss, optimizer, recipe=recipe)
        state = ts.train.State.init(model, optimizer, recipe=recipe)
        losses: list[float] = []
        for number in range(steps):
            state, metrics = step(state, batch(number, 4, length))
            losses.append(float(metrics["loss"]))
    return losses


def combine(left: Any, right: Any) -> Any:
    """Two steps of `h = a * h + b` as one."""
    return left[0] * right[0], left[1] * right[0] + right[1]


def recurrence(length: int) -> Any:
    """A linear recurrence over a sequence of which each rank has a part, as state-space models have it."""
    a, b = ops.cos(ts.arange(length) * 0.1), ops.sin(ts.arange(length) * 0.3)

    def scan(a: Any, b: Any) -> Any:
        return dist.sharded_scan(combine, (a, b), "sp")[1]

    with dist.mesh(sp=dist.world_size()):
        return np.asarray(dist.shard_map(scan, dist.P("sp"), dist.P("sp"))(a, b))


def main(ranks: int = 2, steps: int = 20, length: int = 32) -> None:
    """One rank with whole sequences, and then several with parts."""
    alone = train(steps, length, 0)
    for losses in dist.run(train, ranks=ranks, args=(steps, length, 0)):
        np.testing.assert_allclose(losses, alone, rtol=1e-3)
    for found in dist.run(recurrence, ranks=ranks, args=(length,)):
        np.testing.assert_allclose(found, recurrence(length), rtol=1e-4, atol=1e-5)
    tokens = f"{length} tokens on 1 rank, and {length // ranks} on each of {ranks}"
    print(f"loss {alone[0]:.3f} -> {alone[-1]:.3f} with {tokens}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=20)
    main(**vars(parser.parse_args()))
