"""What an `nn` model costs, counted from its Graph IR: traced with shapes alone, so that no weight is allocated.

A model that a function makes is traced too: what it would draw is recorded, not drawn. Its loss and the gradient of it
are traced with one, two and three of its equal blocks; what a block adds is the difference, and has to be the same from
one to two as from two to three. Operations are those of the ops' cost facets; activations are the `saved_value`s of
the gradient; bytes are those of values that an op other than a pointwise one, or several ops, read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from math import prod
from typing import Any, cast

import numpy as np

from tessera.api.autodiff import value_and_grad
from tessera.api.jit import Jit, jit
from tessera.api.randomness import key as make_key
from tessera.diagnostics.codes import ScheduleError
from tessera.frontend.functions.operands import dtype_of, is_tensor
from tessera.frontend.pytree import flatten
from tessera.ir.base.arrays import numpy_dtype
from tessera.ir.base.tape import Record, Tape
from tessera.ir.graph import dialect
from tessera.ir.schedule.costs import flops_of
from tessera.ir.schedule.emit.evaluate import spec_of
from tessera.ir.tile.facets import Contraction, Pointwise, View
from tessera.nn.attention import Attention
from tessera.nn.feed_forward import MLP, MoE, SwiGLU
from tessera.nn.module import Module
from tessera.nn.transformer import GPT, GPTConfig
from tessera.planner.model_cost import ELEMENT, LayerCost, ModelCost
from tessera.types.frozen import frozen
from tessera.types.shape import TensorType

assert dialect is not None, "ops of Graph IR are declared where their dialect is imported"
_TRACED = (1, 2, 3)
"""Blocks of the models that are traced; the third shows that each adds as much."""


@frozen
class Counts:
    """Operations and bytes of a tape."""

    matmul: float = 0.0
    attention: float = 0.0
    moved: float = 0.0
    kept: float = 0.0

    def minus(self, other: Counts) -> Counts:
        return Counts(*(one - two for one, two in zip(self.values, other.values, strict=True)))

    @property
    def values(self) -> tuple[float, float, float, float]:
        return self.matmul, self.attention, self.moved, self.kept


def trace_model(found: Any, *, sequence: int = 0, name: str = "model") -> ModelCost:
    """The costs of a model, of a `GPTConfig`, or of a function without arguments that makes a model.

    `sequence` is how many tokens a sequence has, `config.length` of a GPT where it is 0. The model has a method
    `loss(tokens, targets)`, and a tuple of equal blocks.
    Raises ScheduleError (T0401) where it is none of these.
    """
    model = abstract_model(found)
    if not callable(getattr(model, "loss", None)):
        raise ScheduleError(
            f"`{name}` is of type {type(model).__name__}, which has no `loss(tokens, targets)`",
            span=None,
            fix="name an `nn` model with such a method, a function that makes one, or a `GPTConfig`",
        )
    length = sequence or getattr(getattr(model, "config", None), "length", 0)
    if not length:
        raise ScheduleError(
            f"nothing says how long sequences of `{name}` are", span=None, fix="write `--sequence 2048`"
        )
    field, blocks = _blocks_of(model, name)
    counted = [_count_training(model.replace(**{field: blocks[:count]}), length) for count in _TRACED[: len(blocks)]]
    return _assemble(model, name, length, blocks, counted)


def abstract_model(found: Any) -> Any:
    """A model whose tensors have shapes and dtypes, and share one zero of memory."""
    if isinstance(found, GPTConfig):
        config = found

        def make(key: Any) -> Any:
            return GPT.init(key, config)

        return _trace_init(make, make_key(0))
    if isinstance(found, Module):
        return _with_leaves(found)
    if callable(found):
        function = cast("Jit | Callable[[], Any]", found)
        return _trace_init(function.function if isinstance(function, Jit) else function)
    return found


def _trace_init(function: Callable[..., Any], *arguments: Any) -> Any:
    traced = jit(function).trace(*arguments)
    return traced.result([_zeros(traced.tape.types[value]) for value in traced.tape.outputs])


def _with_leaves(model: Module) -> Any:
    traced = jit(lambda: model).trace()
    return traced.result([_zeros(traced.tape.types[value]) for value in traced.tape.outputs])


def _zeros(type: TensorType) -> Any:
    """An array of a type with all strides 0."""
    return np.broadcast_to(np.zeros((), numpy_dtype(type.dtype)), tuple(dim.value or 0 for dim in type.shape))


def _blocks_of(model: Any, name: str) -> tuple[str, tuple[Any, ...]]:
    """The field with the equal blocks of a model, and those."""
    found: list[tuple[int, str, tuple[Any, ...]]] = []
    fields = cast("dict[str, Any]", model.__dict__)
    for field, value in fields.items():
        parts = tuple(cast("list[Any]", value)) if isinstance(value, tuple | list) else ()
        if parts and all(isinstance(one, Module) for one in parts) and len({_form(one) for one in parts}) == 1:
            found.append((len(parts), field, parts))
    if not found:
        raise ScheduleError(
            f"`{name}` has no tuple of equal blocks, which is what stages of a pipeline are made of",
            span=None,
            fix="let the model have a field such as `blocks: tuple[Block, ...]`",
        )
    _, field, parts = max(found, key=lambda one: one[0])
    return field, parts


def _form(block: Any) -> tuple[Any, ...]:
    leaves, tree = flatten(block)
    return str(tree), tuple((tuple(one.shape), str(dtype_of(one))) for one in leaves if is_tensor(one))


def _count_training(model: Any, length: int) -> tuple[Counts, Counts]:
    """What a loss costs, and the loss with its gradient."""
    tokens = np.broadcast_to(np.zeros((), np.int64), (1, length))

    def loss(model: Any, tokens: Any, targets: Any) -> Any:
        return model.loss(tokens, targets)

    forward = jit(loss).trace(model, tokens, tokens).tape
    both = jit(value_and_grad(loss)).trace(model, tokens, tokens).tape
    return count_tape(forward), count_tape(both)


def count_tape(tape: Tape) -> Counts:
    """Operations and bytes of all records of a tape; raises ScheduleError (T0401) at a loop."""
    readers: dict[int, list[Record]] = {}
    for record in tape.records:
        for operand in record.operands:
            readers.setdefault(operand, []).append(record)
    matmul = attention = moved = 0.0
    for record in tape.records:
        if record.bodies:
            raise ScheduleError(
                f"`{record.op}` has a body, and how often it runs is not counted", span=record.span, fix="unroll it"
            )
        lower, flops = spec_of(record).lower, float(flops_of(tape, record).value or 0)
        if "attention" in record.op:
            attention += flops
        elif isinstance(lower, Contraction):
            matmul += flops
        elif not isinstance(lower, View) and record.op != "tgraph.saved_value":
            moved += _bytes_moved(tape, record, readers)
    return Counts(matmul, attention, moved, sum(_find_kept(tape)))


def _bytes_moved(tape: Tape, record: Record, readers: Mapping[int, list[Record]]) -> float:
    """Bytes that a pass over an op's values moves: what one pointwise op alone reads is never written."""
    written = [value for value in record.results if not _is_fused(readers.get(value, []))]
    read = [value for value in dict.fromkeys(record.operands) if not _is_fused(readers[value])]
    return sum(float(tape.types[value].bytes.value or 0) for value in (*read, *written))


def _is_fused(readers: list[Record]) -> bool:
    return len(readers) == 1 and isinstance(spec_of(readers[0]).lower, Pointwise)


def _find_kept(tape: Tape) -> Iterator[float]:
    """Bytes of each activation that is kept, once, whatever its shape is where it is read."""
    made = {value: record for record in tape.records for value in record.results}
    seen: set[int] = set(tape.inputs)
    for record in tape.records:
        if record.op != "tgraph.saved_value":
            continue
        value = record.operands[0]
        while value in made and isinstance(spec_of(made[value]).lower, View):
            value = made[value].operands[0]
        if value not in seen:
            seen.add(value)
            yield float(tape.types[value].bytes.value or 0)


# From counts to layers.


def _assemble(
    model: Any, name: str, length: int, blocks: tuple[Any, ...], counted: list[tuple[Counts, Counts]]
) -> ModelCost:
    added = [tuple(map(Counts.minus, after, before)) for before, after in pairwise(counted)] or [counted[0]]
    forward, both = added[-1]
    if not _are_near(added[0][1], both):
        raise ScheduleError(
            f"blocks of `{name}` differ in cost: {added[0][1].values} and {both.values}",
            span=None,
            fix="let all blocks do the same",
        )
    rest_forward, rest_both = counted[0][0].minus(forward), counted[0][1].minus(both)
    inside = {id(leaf) for block in blocks for leaf in flatten(block)[0]}
    outside = [leaf for leaf in flatten(model)[0] if is_tensor(leaf) and id(leaf) not in inside]
    tables = [leaf for leaf in outside if _is_table(model, leaf)]
    widths = {leaf.shape[-1] for leaf in tables}
    dtype = _dtype_of(flatten(blocks[0])[0])
    boundary = float(ELEMENT[dtype] * length * (max(widths) if widths else _widest(blocks[0])))
    embedding = LayerCost("embedding", _size(tables), moved_whole=2 * boundary, regions=1)
    block = _layer("block", blocks[0], forward, both, boundary, length, dtype)
    head = _layer("head", None, rest_forward, rest_both, boundary, length, dtype)
    head = replace(head, parameters=_size(outside) - _size(tables))
    attention = next((one for one in _modules(blocks[0]) if isinstance(one, Attention)), None)
    mixture = next((one for one in _modules(blocks[0]) if isinstance(one, MoE)), None)
    splits, experts = attention.heads if attention else 0, mixture.gate.shape[0] if mixture else 0
    return ModelCost(name, length, len(blocks), embedding, block, head, boundary, dtype, splits, experts)


def _layer(name: str, block: Any, forward: Counts, both: Counts, boundary: float, length: int, dtype: str) -> LayerCost:
    backward = both.minus(forward)
    modules = list(_modules(block)) if block is not None else []
    regions = sum(isinstance(one, Attention | MLP | SwiGLU | MoE) for one in modules) if modules else 1
    # What enters a region, and its norm, is whole on every tensor-parallel rank.
    whole = min(both.kept, 2 * regions * boundary)
    experts = [leaf for one in modules if isinstance(one, MoE) for leaf in (one.gate, one.up, one.down)]
    top = next((one.top for one in modules if isinstance(one, MoE)), 0)
    keys = sum(2 * one.kv_heads * (boundary / one.heads) for one in modules if isinstance(one, Attention))
    return LayerCost(
        name,
        _size(flatten(block)[0]) if block is not None else 0,
        matmul=forward.matmul,
        attention=forward.attention,
        moved=forward.moved,
        kept=both.kept - whole,
        kept_whole=whole,
        input=boundary,
        regions=regions,
        keys=float(keys),
        exchanged=boundary * top,
        expert_parameters=_size(experts),
        backward=backward.matmul / forward.matmul if forward.matmul else 2.0,
        attention_backward=backward.attention / forward.attention if forward.attention else 2.5,
    )


def _are_near(first: Counts, second: Counts) -> bool:
    """Whether two blocks cost the same; bytes may differ by what several blocks share, as angles of rotations."""
    pairs = zip(first.values, second.values, strict=True)
    return all(abs(one - two) <= 0.01 * max(abs(one), abs(two)) for one, two in pairs)


def _modules(module: Any) -> Iterator[Any]:
    """A module and all within it."""
    if isinstance(module, Module):
        yield module
        for value in vars(module).values():
            yield from _modules(value)
    elif isinstance(module, tuple | list):
        for value in cast("tuple[Any, ...]", module):
            yield from _modules(value)


def _is_table(model: Any, leaf: Any) -> bool:
    return any(type(one).__name__ == "Embedding" and one.weight is leaf for one in _modules(model))


def _widest(block: Any) -> int:
    return max(leaf.shape[-1] for leaf in flatten(block)[0] if len(leaf.shape) == 1)


def _size(leaves: Any) -> int:
    return sum(prod(leaf.shape) for leaf in leaves if is_tensor(leaf))


def _dtype_of(leaves: Any) -> str:
    name = str(dtype_of(next(leaf for leaf in leaves if is_tensor(leaf))))
    if name not in ELEMENT:
        raise ScheduleError(f"parameters are of {name}", span=None, fix=f"plan for one of {', '.join(ELEMENT)}")
    return name
