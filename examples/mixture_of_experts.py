"""A GPT whose experts are divided over ranks: tokens travel to them and back, in 8 bits and up to a capacity.

Run it with `python examples/mixture_of_experts.py`, which starts the ranks itself.
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


def counted_loss(model: nn.GPT, batch: dict[str, Any]) -> Any:
    """The loss, and how many assignments of tokens to experts were dropped."""
    with dist.dropped_tokens() as dropped:
        value = model.loss(batch["x"], batch["y"])
    return value, {"dropped": dropped.total()}


def train(steps: int, width: int, choices: dict[str, Any]) -> tuple[list[float], float]:
    """What one rank does: its losses, and what was dropped at the last step, as a mean over ranks."""
    sizes: dict[str, Any] = {"vocabulary": 32, "length": 16, "width": width, "hidden": width, "depth": 1, "heads": 4}
    config = nn.GPTConfig(mlp="moe", experts=4, top_experts=2, **sizes)
    model = nn.GPT.init(ts.random.key(0), config)
    optimizer = ts.optim.adamw(1e-2)
    with dist.mesh(ep=dist.world_size()):
        recipe = dist.recipe(model, expert="ep", **choices)
        step = ts.train.make_step(counted_loss, optimizer, has_aux=True, recipe=recipe)
        state = ts.train.State.init(model, optimizer, recipe=recipe)
        losses, dropped = list[float](), 0.0
        for number in range(steps):
            state, metrics = step(state, batch(number, 8, 16))
            losses.append(float(metrics["loss"]))
            dropped = float(metrics["dropped"])
    return losses, dropped


def main(ranks: int = 2, steps: int = 20, width: int = 16) -> None:
    """All experts on one rank, then divided without dropping, and then cheaper: 8 bits, and even shares at most."""
    alone, _ = train(steps, width, {})
    for losses, dropped in dist.run(train, ranks=ranks, args=(steps, width, {})):
        np.testing.assert_allclose(losses, alone, rtol=1e-3)
        assert dropped == 0
    cheap = {"capacity": 1.0, "wire": "f8e4m3"}
    ((losses, dropped), *_) = dist.run(train, ranks=ranks, args=(steps, width, cheap))
    assert abs(losses[-1] - alone[-1]) < 0.5
    print(f"loss {alone[0]:.3f} -> {alone[-1]:.3f} on 1 and on {ranks} ranks")
    print(f"in 8 bits with a capacity of 1.0: {losses[-1]:.3f}, {dropped:g} assignments dropped on each rank")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=20)
    main(**vars(parser.parse_args()))
