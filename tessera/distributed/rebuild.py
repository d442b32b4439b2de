"""The model that a rank runs: its parts gathered where they are whole in use, and layers split as the recipe says.

States keep the tree of the model as it is written, with parts of its tensors, so that names in checkpoints do not know
of ranks. Where a step is traced, the layers of that tree are replaced by those that run on parts.
"""

from __future__ import annotations

from typing import Any

from tessera.api.checkpoint import checkpoint
from tessera.distributed import context, experts
from tessera.distributed.exchanges import gather_weight, join_along, key_of_part, take_along
from tessera.distributed.layers import RULES, SEQUENCE, share
from tessera.frontend.pytree import flatten, node_of, unflatten
from tessera.nn.feed_forward import MoE
from tessera.nn.module import Module
from tessera.nn.transformer import GPT, Block


def rebuild(recipe: Any, params: Any, batch: Any = None) -> Any:
    """The model that this rank runs for its shard of a batch, of its parts of the parameters."""
    length = None if recipe.config.context is None else context.length_of(batch)
    return _Rebuilder(recipe, 0, is_top=True, length=length).tree(params)


class GatheredBlock(Module):
    """A block whose parameters are gathered when it runs and again for its backward pass; in between it has parts."""

    parts: Block
    recipe: Any
    first: int
    length: int | None

    @property
    def attention(self) -> Any:
        """Attention in the sizes that this rank runs it in, of which models ask for angles."""
        own, config, sizes = self.parts.attention, self.recipe.config, self.recipe.mesh.sizes
        if config.context is not None and sizes.get(config.context, 1) > 1:
            own = context.split(own, config.context, None)
        count = sizes.get(config.tensor or "", 1)
        return own.replace(heads=own.heads // count, kv_heads=own.kv_heads // count)

    def __call__(self, x: Any, *, cache: Any = None, angles: Any = None, key: Any = None) -> tuple[Any, Any, Any]:
        def run(parts: Any, x: Any, angles: Any, key: Any) -> Any:
            block = _Rebuilder(self.recipe, self.first, is_top=False, length=self.length).tree(parts)
            return block(x, cache=None, angles=angles, key=key)

        return checkpoint(run)(self.parts, x, angles, key)


class _Rebuilder:
    """A walk over a tree in the order of its leaves, whose number says which cuts are theirs."""

    def __init__(self, recipe: Any, first: int, *, is_top: bool, length: int | None) -> None:
        self.recipe, self.at, self.is_top, self.length = recipe, first, is_top, length

    def tree(self, value: Any) -> Any:
        kind: type[Any] = value.__class__
        if value is None:  # another stage of a pipeline has it
            return None
        if isinstance(value, Block) and self.is_top and self.recipe.config.zero == 3:
            first, self.at = self.at, self.at + len(flatten(value)[0])
            return GatheredBlock(value, self.recipe, first, self.length)
        if flatten(value)[1].is_leaf:
            self.at += 1
            return self._whole(value, self.at - 1)
        children, data = node_of(kind).split(value)
        made = node_of(kind).join(kind, data, [self.tree(child) for child in children])
        return self._split(made) if isinstance(made, Module) else made

    def _whole(self, part: Any, at: int) -> Any:
        cut, config = self.recipe.layout.states[at], self.recipe.config
        if cut is None or config.zero != 3:
            return part
        return gather_weight(part, cut.axis, cut.dim, canonical=config.shards is not None)

    def _split(self, module: Module) -> Any:
        """The layer that runs on a rank's part of a module."""
        config, sizes = self.recipe.config, self.recipe.mesh.sizes
        if isinstance(module, MoE):
            return experts.split(module, config) if sizes.get(config.expert or "", 1) > 1 else module
        is_split = sizes.get(config.tensor or "", 1) > 1
        if config.context is not None and sizes.get(config.context, 1) > 1:
            module = context.split(module, config.context, self.length)
        rule = RULES.get(type(module))
        if rule is not None and is_split:
            return rule.layer(module, config.tensor, config.sequence)
        if config.sequence and is_split:
            module = self._cut_sequence(module)
        return module

    def _cut_sequence(self, module: Module) -> Module:
        axis = self.recipe.config.tensor
        if isinstance(module, Block):
            return share_norms(module, axis)
        if isinstance(module, GPT):
            last = len(module.blocks) - 1
            blocks = [
                SequenceBlock(block, axis, number == 0, number == last) for number, block in enumerate(module.blocks)
            ]
            return module.replace(blocks=tuple(blocks))
        return module


# Blocks: between the first and the last one, sequence parallel ranks have parts of the sequence.


class SequenceBlock(Module):
    """A block on parts of the sequence; what enters the first one and leaves the last one is whole."""

    block: Any
    axis: str
    is_first: bool
    is_last: bool

    @property
    def attention(self) -> Any:
        """The attention of the block, of which models ask for angles."""
        return self.block.attention

    def __call__(self, x: Any, *, key: Any = None, **options: Any) -> tuple[Any, Any, Any]:
        options["key"] = key_of_part(key, self.axis)  # dropout of other positions is another
        x = take_along(x, self.axis, SEQUENCE) if self.is_first else x
        made, cache, balance = self.block(x, **options)
        return join_along(made, self.axis, SEQUENCE) if self.is_last else made, cache, balance


def share_norms(block: Block, axis: str) -> Block:
    """A block whose norms run on parts of the sequence."""

    def share_norm(norm: Any) -> Any:
        leaves, form = flatten(norm)
        return unflatten(form, [share(leaf, axis, True) for leaf in leaves])

    return block.replace(norm1=share_norm(block.norm1), norm2=share_norm(block.norm2))
