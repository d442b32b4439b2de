"""A GPT whose heads and hidden features are divided over ranks (Megatron-LM), with the sequence between layers.

Run it with `python examples/tensor_parallel.py`, which starts the ranks itself.
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


def train(steps: int, width: int, sequence: bool) -> tuple[list[float], list[int]]:
    """What one rank does: its losses, and the shape of its part of the first projection."""
    sizes = {"vocabulary": 32, "length": 16, "width": width, "depth": 1, "heads": 4, "kv_heads": 2}
    model = nn.GPT.init(ts.random.key(0), nn.GPTConfig.llama(**sizes))
    optimizer = ts.optim.adamw(1e-2)
    with dist.mesh(tp=dist.world_size()):
        recipe = dist.recipe(model, tensor="tp", sequence=sequence)
        step = ts.train.make_step(loss, optimizer, recipe=recipe)
        state = ts.train.State.init(model, optimizer, recipe=recipe)
        part = list(state.params.blocks[0].attention.qkv.weight.shape)
        losses: list[float] = []
        for number in range(steps):
            state, metrics = step(state, batch(number, 8, 16))
            losses.append(float(metrics["loss"]))
    return losses, part


def main(ranks: int = 2, steps: int = 20, width: int = 32) -> None:
    """One rank, and then several with parts of each layer, who have the same losses up to the order of sums."""
    alone, whole = train(steps, width, False)
    found = dist.run(train, ranks=ranks, args=(steps, width, True))
    for losses, part in found:
        np.testing.assert_allclose(losses, alone, rtol=1e-3)
        assert part == [whole[0], whole[1] // ranks]
    print(f"loss {alone[0]:.3f} -> {alone[-1]:.3f} on 1 and on {ranks} ranks")
    print(f"the projection of a block is {whole} on one rank, and {found[0][1]} on each of {ranks}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=20)
    main(**vars(parser.parse_args()))
