"""Stages of a GPT: which blocks each rank of a pipeline has, and the model that runs a stage inside of any loss.

A loss is written for the whole model. On each stage it is called with a model that begins with what arrived, and stops
where the next stage goes on: the last stage alone comes to the scores, and to the loss.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tessera.diagnostics.codes import ArgumentError
from tessera.distributed.placement import as_own, gather_objects
from tessera.frontend.functions.operands import as_tensor
from tessera.frontend.pytree import Tree, flatten, leaf_names, unflatten
from tessera.nn.transformer import GPT
from tessera.types.dtype import i64
from tessera.types.frozen import frozen


class ReachedEndError(Exception):
    """Unwinds a loss where the stage ends; never leaves `run_stage`."""

    def __init__(self, value: Any) -> None:
        super().__init__("the end of a stage")
        self.value = value


def blocks_of_stage(depth: int, stages: int, at: int) -> range:
    """The blocks of one of `stages`, which have as many, or one more at the end of the first ones."""
    least, more = divmod(depth, stages)
    first = at * least + min(at, more)
    return range(first, first + least + (at < more))


def check_model(model: Any, stages: int) -> None:
    """Raise ArgumentError (T0202) for a model that has no such stages."""
    if type(model) is not GPT:
        raise ArgumentError(
            f"a pipeline takes an `nn.GPT`, got {type(model).__name__}",
            fix="pipeline other functions with `ts.dist.pipeline(stages)`",
        )
    if model.config.depth < stages:
        raise ArgumentError(
            f"a pipeline of {stages} stages takes as many blocks, and the model has {model.config.depth}"
        )
    if model.head is None:
        raise ArgumentError(
            "the first and the last stage of a pipeline are on different ranks, and the model ties their weights",
            fix="make it with a head of its own: `GPTConfig(tied=False)`",
        )
    if model.config.mlp == "moe" or model.config.dropout:
        what = "a mixture of experts" if model.config.mlp == "moe" else f"dropout of {model.config.dropout}"
        raise ArgumentError(
            f"stages of a pipeline pass on activations alone, and the model has {what}",
            fix='train it with `expert="ep"`' if model.config.mlp == "moe" else "train it with `dropout=0.0`",
        )


def take_stages(model: GPT, owned: list[int], stages: int) -> GPT:
    """The model with the parameters of some stages alone; None is in place of all others, and names stay."""
    kept = {number for at in owned for number in blocks_of_stage(model.config.depth, stages, at)}
    blocks: Any = tuple(block if number in kept else None for number, block in enumerate(model.blocks))
    is_first, is_last = 0 in owned, stages - 1 in owned
    none: Any = None
    return model.replace(
        tokens=model.tokens if is_first else none,
        positions=model.positions if is_first else none,
        blocks=blocks,
        norm=model.norm if is_last else none,
        head=model.head if is_last else none,
    )


class StageGPT(GPT):
    """A GPT that begins with what arrived from the stage before, and stops at the end of its own."""

    arrived: Any = None
    at: int = 0
    stages: int = 1

    def _features(self, tokens: Any, caches: Any, key: Any) -> tuple[Any, tuple[Any, ...], list[Any]]:
        length = tokens.shape[1]
        x = self.arrived
        if self.at == 0:
            x = self.tokens(tokens)
            x = x if self.positions is None else x + self.positions.weight[:length]
        own = blocks_of_stage(self.config.depth, self.stages, self.at)
        start = as_tensor(0, i64)
        angles = self.blocks[own[0]].attention.angles(length, start, dtype=x.dtype.compute)
        for number in own:
            x, _, _ = self.blocks[number](x, angles=angles)
        if self.at < self.stages - 1:
            raise ReachedEndError(x)
        return self.norm(x), (), []


def run_stage(loss: Any, model: GPT, batch: Any, arrived: Any, at: int, stages: int) -> Any:
    """What a stage gives: activations, or from the last one the loss."""
    fields = (model.tokens, model.positions, model.blocks, model.norm, model.head, model.config)
    try:
        made = loss(StageGPT(*fields, arrived, at, stages), batch)
    except ReachedEndError as end:
        return end.value
    if at < stages - 1:
        raise ArgumentError(
            "the loss of a pipeline calls the model, and this one came to its end without",
            fix="write `def loss(model, batch): return model.loss(batch[0], batch[1])`",
        )
    return made


@frozen
class Whole:
    """The model that a recipe divides, as a whole: its form and names, and the stages that this rank has of it."""

    form: Tree
    names: tuple[str, ...]
    owned: tuple[int, ...] = ()
    stages: int = 1
    width: int = 0
    dtype: Any = None

    @staticmethod
    def of(model: Any, stages: int = 1, owned: tuple[int, ...] = ()) -> Whole:
        """The whole of a model, of which this rank has the stages `owned`, where it is one of a pipeline."""
        form = flatten(model)[1]
        if not owned:
            return Whole(form, tuple(leaf_names(form)))
        check_model(model, stages)
        dtype = np.asarray(model.tokens.weight).dtype
        return Whole(form, tuple(leaf_names(form)), owned, stages, model.config.width, dtype)

    def stages_of(self, model: Any) -> Any:
        """The parts of a whole model that this rank's stages have."""
        return take_stages(model, list(self.owned), self.stages)

    def join(self, stage: Any) -> Any:
        """The whole model of the parameters of all ranks' stages; all ranks call it."""
        leaves, form = flatten(stage)
        own = {name: np.asarray(leaf) for name, leaf in zip(leaf_names(form), leaves, strict=True)}
        held: dict[str, Any] = {}
        for other in gather_objects(own, "parameters of stages"):
            held |= other
        return unflatten(self.form, [as_own(held[name]) for name in self.names])
