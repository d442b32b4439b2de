"""A GPT trained by data parallel ranks: the losses have the bits of one rank, and states are divided (ZeRO).

Run it with `python examples/data_parallel.py`, which starts the ranks itself.
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


def train(steps: int, width: int, zero: int) -> tuple[list[float], int]:
    """What one rank does: its losses, and the bytes of its optimizer's state."""
    model = nn.GPT.init(ts.random.key(0), nn.GPTConfig(vocabulary=32, length=16, width=width, depth=1, heads=4))
    optimizer = ts.optim.chain(ts.optim.clip_by_global_norm(1.0), ts.optim.adamw(1e-2))
    with dist.mesh(dp=dist.world_size()):
        recipe = dist.recipe(model, data="dp", shards=4, zero=zero)
        step = ts.train.make_step(loss, optimizer, recipe=recipe)
        state = ts.train.State.init(model, optimizer, recipe=recipe)
        held = sum(leaf.nbytes for leaf in nn.state_dict(state.opt_state).values() if isinstance(leaf, ts.Tensor))
        losses: list[float] = []
        for number in range(steps):
            state, metrics = step(state, batch(number, 8, 16))
            losses.append(float(metrics["loss"]))
    return losses, held


def main(ranks: int = 2, steps: int = 20, width: int = 32) -> None:
    """One rank, and then several, who come to the same bits with a part of the state each."""
    alone, whole = train(steps, width, 0)
    found = dist.run(train, ranks=ranks, args=(steps, width, 1))
    for losses, held in found:
        assert losses == alone, "a bit depends on the number of ranks"
        assert held < whole / ranks + 64
    print(f"loss {alone[0]:.3f} -> {alone[-1]:.3f} on 1 and on {ranks} ranks, bit for bit")
    print(f"the optimizer's state takes {whole} bytes on one rank, and {found[0][1]} on each of {ranks}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=20)
    main(**vars(parser.parse_args()))
