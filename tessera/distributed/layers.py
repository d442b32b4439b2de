"""Layers of which each rank has a part: tensor parallel attention and feed-forward layers.

A rule says of a class of modules how its parameters are cut, and makes the layer that runs on the part of one rank. The
first projection is cut by columns and the second by rows (Megatron-LM), so that there is one sum over ranks for both.
With sequence parallelism what lies between such layers is cut along the sequence: the sum becomes a reduce-scatter, and
the copy before it a gather, of the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tessera.diagnostics.codes import ArgumentError
from tessera.distributed.exchanges import (
    enter_split,
    gather_along,
    key_of_part,
    leave_split,
    scatter_sum,
    size_of,
)
from tessera.distributed.placement import Cut
from tessera.frontend.functions.operands import is_tensor
from tessera.nn.attention import Attention
from tessera.nn.feed_forward import MLP, SwiGLU
from tessera.nn.layers import Linear
from tessera.nn.module import Module
from tessera.types.frozen import frozen

SEQUENCE = 1
"""The dim of activations [batch, length, width] that sequence parallelism cuts."""


@frozen
class Rule:
    """How modules of a class are split: the cuts of their parameters by name, and the layer of one rank."""

    cuts: Callable[[Any, str], Mapping[str, Cut]]
    layer: Callable[[Any, str, bool], Any]


RULES: dict[type[Any], Rule] = {}
"""The rule of each class that tensor parallelism splits; parameters of all others are whole on every rank."""


def split_rule(
    kind: type[Any], cuts: Callable[[Any, str], Mapping[str, Cut]], layer: Callable[[Any, str, bool], Any]
) -> None:
    """Say how tensor parallelism splits modules of a class of one's own.

    `cuts(module, axis)` gives the cuts of its parameters by their names in it; `layer(module, axis, sequence)` makes,
    of the module with this rank's parameters, what is called in its place: it takes what all ranks have and gives the
    sum over them (`enter_split`, `leave_split`), or with `sequence` parts along dim 1.

    >>> class Wide(ts.nn.Module):
    ...     weight: ts.Tensor
    ...
    ...     def __call__(self, x):
    ...         return x @ self.weight @ self.weight.T
    >>> def layer(module, axis, sequence):
    ...     return lambda x: ts.dist.leave_split(module(ts.dist.enter_split(x, axis)), axis)
    >>> ts.dist.split_rule(Wide, lambda module, axis: {"weight": ts.dist.Cut(axis, 1)}, layer)
    """
    if not (isinstance(kind, type) and issubclass(kind, Module)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ArgumentError(
            f"`split_rule` takes a class of modules, got {kind!r}", fix="write `split_rule(MyLayer, ...)`"
        )
    RULES[kind] = Rule(cuts, layer)


def enter_layer(x: Any, axis: str, sequence: bool) -> Any:
    """The input of a split layer: what all ranks have, or the whole sequence of which each has a part."""
    return gather_along(x, axis, SEQUENCE) if sequence else enter_split(x, axis)


def leave_layer(x: Any, axis: str, sequence: bool) -> Any:
    """The output of a split layer: the sum over ranks, or this rank's part of it along the sequence."""
    return scatter_sum(x, axis, SEQUENCE) if sequence else leave_split(x, axis)


def share(parameter: Any, axis: str, sequence: bool) -> Any:
    """A parameter that all ranks have: where each uses it for its part of the sequence, its gradients are summed."""
    return enter_split(parameter, axis) if sequence and is_tensor(parameter) else parameter


def add_bias(x: Any, bias: Any, axis: str, sequence: bool) -> Any:
    """The bias of a layer that is cut by rows, which counts once."""
    return x if bias is None else x + share(bias, axis, sequence)


# Attention: a rank has some of the heads.


class SplitAttention(Attention):
    """Attention of this rank's heads; the result is the sum over ranks."""

    bias: Any = None
    axis: str = ""
    sequence: bool = False

    def __call__(self, x: Any, *, cache: Any = None, mask: Any = None, angles: Any = None, key: Any = None) -> Any:
        if cache is not None:
            raise ArgumentError(
                "tensor parallel attention has no cache of keys", fix="gather the parameters, and generate on one rank"
            )
        own = key_of_part(key, self.axis)  # weights of other heads are dropped otherwise
        mixed = super().__call__(enter_layer(x, self.axis, self.sequence), mask=mask, angles=angles, key=own)
        return add_bias(leave_layer(mixed, self.axis, self.sequence), self.bias, self.axis, self.sequence)


def _cut_attention(layer: Attention, axis: str) -> dict[str, Cut]:
    size = layer.head_dim
    sections = (layer.heads * size, layer.kv_heads * size, layer.kv_heads * size)
    return {"qkv.weight": Cut(axis, 1, sections), "qkv.bias": Cut(axis, 0, sections), "out.weight": Cut(axis, 0)}


def _split_attention(layer: Attention, axis: str, sequence: bool) -> SplitAttention:
    count = size_of(axis)
    return SplitAttention(
        layer.qkv,
        Linear(layer.out.weight),
        layer.heads // count,
        layer.kv_heads // count,
        layer.causal,
        layer.rotary,
        layer.dropout,
        layer.out.bias,
        axis,
        sequence,
    )


# Feed-forward layers: a rank has some of the hidden features.


class SplitMLP(MLP):
    """An MLP of this rank's hidden features; the result is the sum over ranks."""

    bias: Any = None
    axis: str = ""
    sequence: bool = False

    def __call__(self, x: Any) -> Any:
        made = super().__call__(enter_layer(x, self.axis, self.sequence))
        return add_bias(leave_layer(made, self.axis, self.sequence), self.bias, self.axis, self.sequence)


class SplitSwiGLU(SwiGLU):
    """A SwiGLU of this rank's hidden features; the result is the sum over ranks."""

    bias: Any = None
    axis: str = ""
    sequence: bool = False

    def __call__(self, x: Any) -> Any:
        made = super().__call__(enter_layer(x, self.axis, self.sequence))
        return add_bias(leave_layer(made, self.axis, self.sequence), self.bias, self.axis, self.sequence)


def _columns(name: str, axis: str) -> dict[str, Cut]:
    return {f"{name}.weight": Cut(axis, 1), f"{name}.bias": Cut(axis, 0)}


def _cut_mlp(_: MLP, axis: str) -> dict[str, Cut]:
    return {**_columns("up", axis), "down.weight": Cut(axis, 0)}


def _split_mlp(layer: MLP, axis: str, sequence: bool) -> SplitMLP:
    return SplitMLP(layer.up, Linear(layer.down.weight), layer.activation, layer.down.bias, axis, sequence)


def _cut_swiglu(_: SwiGLU, axis: str) -> dict[str, Cut]:
    return {**_columns("gate", axis), **_columns("up", axis), "down.weight": Cut(axis, 0)}


def _split_swiglu(layer: SwiGLU, axis: str, sequence: bool) -> SplitSwiGLU:
    return SplitSwiGLU(layer.gate, layer.up, Linear(layer.down.weight), layer.down.bias, axis, sequence)


split_rule(Attention, _cut_attention, _split_attention)
split_rule(MLP, _cut_mlp, _split_mlp)
split_rule(SwiGLU, _cut_swiglu, _split_swiglu)
