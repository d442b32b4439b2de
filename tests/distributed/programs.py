"""What the tests of recipes train: a small GPT, on the ranks of a mesh or alone."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np

import tessera as ts
from tessera import dist

DATA = np.random.default_rng(0).integers(0, 32, (8, 8, 9))
OPTIMIZER = ts.optim.chain(ts.optim.clip_by_global_norm(0.5), ts.optim.adamw(1e-2, eps=1e-4))


def config(**choices: Any) -> ts.nn.GPTConfig:
    """The smallest GPT that every recipe can divide."""
    sizes: dict[str, Any] = {"vocabulary": 32, "length": 8, "width": 16, "depth": 2, "heads": 4, "hidden": 32}
    sizes |= {"tied": False, **choices}
    return ts.nn.GPTConfig(**sizes)


def llama(**choices: Any) -> ts.nn.GPTConfig:
    """The same with the choices of Llama."""
    return config(norm="rmsnorm", mlp="swiglu", position="rotary", bias=False, kv_heads=2, **choices)


def batch(step: int) -> dict[str, Any]:
    tokens = DATA[step % len(DATA)]
    return {"x": np.ascontiguousarray(tokens[:, :-1]), "y": np.ascontiguousarray(tokens[:, 1:])}


def loss(model: Any, batch: Any) -> Any:
    return model.loss(batch["x"], batch["y"])


def train(of: Any, choices: dict[str, Any] | None, steps: int, **options: Any) -> dict[str, Any]:
    """Losses and norms of gradients at each step, and the whole parameters at the end, as ranks of a recipe train."""
    model = ts.nn.GPT.init(ts.random.key(0), of)
    recipe = None if choices is None else dist.recipe(model, **choices)
    step = ts.train.make_step(loss, OPTIMIZER, recipe=recipe, grad_norm=True, **options)
    state = ts.train.State.init(model, OPTIMIZER, recipe=recipe)
    bytes_of_state = sum(leaf.nbytes for leaf in leaves(state.opt_state))
    losses, norms, first = list[float](), list[float](), list[Any]()
    for number in range(steps):
        state, metrics = step(state, batch(number))
        if number == 0:
            first = leaves(state.params if recipe is None else recipe.gather(state.params))
            first = [np.array(leaf) for leaf in first]
        losses.append(float(metrics["loss"]))
        norms.append(float(metrics["grad_norm"]))
    whole = state.params if recipe is None else recipe.gather(state.params)
    return {
        "losses": np.array(losses),
        "norms": np.array(norms),
        "params": [np.asarray(leaf) for leaf in leaves(whole)],
        "first params": first,
        "state bytes": bytes_of_state,
        "param bytes": sum(leaf.nbytes for leaf in leaves(state.params)),
        "most kept": getattr(step, "most_kept", None),
    }


def leaves(tree: Any) -> list[Any]:
    return [leaf for leaf in ts.nn.state_dict(tree).values() if hasattr(leaf, "nbytes")]


def train_and_save(folder: str, choices: dict[str, Any], of: Any, axes: dict[str, int], start: str | None) -> Any:
    """Two steps from a checkpoint or from the beginning, and another checkpoint: what a rank of `axes` does."""
    with dist.mesh(**axes):
        model = ts.nn.GPT.init(ts.random.key(0), of)
        recipe = dist.recipe(model, **choices)
        state = ts.train.State.init(model, OPTIMIZER, recipe=recipe)
        if start is not None:
            state = ts.train.restore(start, state, recipe=recipe)
        step = ts.train.make_step(loss, OPTIMIZER, recipe=recipe)
        seen: list[float] = []
        for _ in range(2):
            state, metrics = step(state, batch(int(state.step)))
            seen.append(float(metrics["loss"]))
        ts.train.save(folder, state, {"ranks": dist.world_size()}, recipe=recipe)
    return seen


def gathered_weights(depth: int) -> tuple[int, list[tuple[int, int]]]:
    """Steps of the program of an FSDP step, and from when to when whole projections of blocks are in memory."""
    with dist.mesh(dp=dist.world_size()):
        model = ts.nn.GPT.init(ts.random.key(0), config(depth=depth))
        recipe = dist.recipe(model, zero=3)
        step = ts.train.make_step(loss, OPTIMIZER, recipe=recipe)
        memory = step.profile(ts.train.State.init(model, OPTIMIZER, recipe=recipe), batch(0)).memory
    held = [one for one in memory.tensors if one.shape == (16, 48) and one.name.startswith("collective_start")]
    return memory.steps, [(one.first_step, one.last_step) for one in held]


def train_recipes(cases: list[tuple[Any, dict[str, Any], dict[str, int]]], steps: int) -> list[tuple[list[float], str]]:
    """The losses of each recipe on the ranks of its mesh, and a digest of the bits of the parameters at its end."""
    found: list[tuple[list[float], str]] = []
    for of, choices, axes in cases:
        with dist.mesh(**axes):
            run = train(of, choices, steps)
        bits = hashlib.sha256(b"".join(one.tobytes() for one in (run["losses"], *run["params"])))
        found.append((run["losses"].tolist(), bits.hexdigest()))
    return found


def train_on(folder: str, steps: int) -> str:
    """A data parallel run from the last checkpoint in a folder, one more after each step; a digest of its end."""
    world, place, saved = dist.world_size(), Path(folder), Path(folder) / "state"
    (place / f"rank-{dist.rank()}").write_text(str(os.getpid()))
    with dist.mesh(dp=world):
        model = ts.nn.GPT.init(ts.random.key(0), config(depth=1))
        recipe = dist.recipe(model, shards=world, zero=1)
        state = ts.train.State.init(model, OPTIMIZER, recipe=recipe)
        if saved.exists():
            state = ts.train.restore(str(saved), state, recipe=recipe)
        step = ts.train.make_step(loss, OPTIMIZER, recipe=recipe)
        while int(state.step) < steps:
            state, _ = step(state, batch(int(state.step)))
            ts.train.save(str(saved), state, recipe=recipe)
            (place / f"step-{dist.rank()}").write_text(str(int(state.step)))
        whole = leaves(recipe.gather(state.params))
    return hashlib.sha256(b"".join(np.asarray(one).tobytes() for one in whole)).hexdigest()
