"""Normalization layers: LayerNorm, RMSNorm, GroupNorm, and BatchNorm with its running statistics."""

from __future__ import annotations

from typing import Any

from tessera.api.eager import Tensor, ones, zeros
from tessera.diagnostics.codes import ArgumentError, ShapeError
from tessera.frontend.functions import public as ops
from tessera.frontend.functions.operands import as_tensor, rank_of
from tessera.nn.layers import check_last, check_sizes
from tessera.nn.module import Module, buffer
from tessera.types.dtype import f32, i64


class LayerNorm(Module):
    """The last axis with mean 0 and variance 1, times `weight`, plus `bias`.

    >>> ts.nn.LayerNorm.init(2)(ts.array([[1.0, 3.0]])).shape
    (1, 2)
    """

    weight: Tensor | None
    bias: Tensor | None = None
    eps: float = 1e-5

    @classmethod
    def init(
        cls, features: int, *, eps: float = 1e-5, weight: bool = True, bias: bool = True, dtype: Any = f32
    ) -> LayerNorm:
        """Weights of one and biases of zero; `weight` and `bias` say whether there are any."""
        check_sizes("LayerNorm", features=features)
        scale = ones((features,), dtype=dtype) if weight else None
        return cls(scale, zeros((features,), dtype=dtype) if bias else None, eps)

    def __call__(self, x: Any) -> Any:
        if self.weight is not None:
            check_last("LayerNorm", x, self.weight.shape[0], "features")
        return ops.layernorm(x, self.weight, self.bias, eps=self.eps)


class RMSNorm(Module):
    """The last axis over its root mean square, times `weight`.

    >>> ts.nn.RMSNorm.init(2)(ts.array([[3.0, 4.0]])).shape
    (1, 2)
    """

    weight: Tensor | None
    eps: float = 1e-5

    @classmethod
    def init(cls, features: int, *, eps: float = 1e-5, weight: bool = True, dtype: Any = f32) -> RMSNorm:
        """Weights of one; `weight` says whether there are any."""
        check_sizes("RMSNorm", features=features)
        return cls(ones((features,), dtype=dtype) if weight else None, eps)

    def __call__(self, x: Any) -> Any:
        if self.weight is not None:
            check_last("RMSNorm", x, self.weight.shape[0], "features")
        return ops.rmsnorm(x, self.weight, eps=self.eps)


class GroupNorm(Module):
    """Groups of channels of [batch, channels, ...] with mean 0 and variance 1, times `weight`, plus `bias`.

    With as many groups as channels it is instance normalization.

    >>> ts.nn.GroupNorm.init(2, 8)(ts.ones((1, 8, 5, 5))).shape
    (1, 8, 5, 5)
    """

    weight: Tensor
    bias: Tensor
    groups: int
    eps: float = 1e-5

    @classmethod
    def init(cls, groups: int, channels: int, *, eps: float = 1e-5, dtype: Any = f32) -> GroupNorm:
        """Weights of one and biases of zero, for each channel."""
        check_sizes("GroupNorm", groups=groups, channels=channels)
        if channels % groups:
            raise ArgumentError(
                f"`GroupNorm` takes channels in groups of equal size, got {channels} in {groups} groups",
                fix="make `channels` a multiple of `groups`",
            )
        return cls(ones((channels,), dtype=dtype), zeros((channels,), dtype=dtype), groups, eps)

    def __call__(self, x: Any) -> Any:
        channels = _check_channels("GroupNorm", x, self.weight)
        shape = x.shape
        grouped = x.reshape(shape[0], self.groups, -1)
        tail = (1,) * (rank_of(x) - 2)
        made = ops.layernorm(grouped, eps=self.eps).reshape(shape)
        return made * self.weight.reshape(channels, *tail) + self.bias.reshape(channels, *tail)


class BatchNorm(Module):
    """Channels of [batch, channels, ...] with mean 0 and variance 1 over the batch and all positions.

    In training, `train` normalizes by the statistics of the batch, and gives the layer with its running statistics
    updated; called as a function, the layer normalizes by those. They are buffers (`split_buffers`).

    >>> layer = ts.nn.BatchNorm.init(3)
    >>> y, layer = layer.train(ts.random.normal(ts.random.key(0), (8, 3, 4, 4)))
    >>> layer(y).shape
    (8, 3, 4, 4)
    """

    weight: Tensor
    bias: Tensor
    mean: Tensor = buffer()
    var: Tensor = buffer()
    eps: float = 1e-5
    momentum: float = 0.1

    @classmethod
    def init(cls, channels: int, *, eps: float = 1e-5, momentum: float = 0.1, dtype: Any = f32) -> BatchNorm:
        """Weights and variances of one, biases and means of zero; statistics are kept in f32 at least."""
        check_sizes("BatchNorm", channels=channels)
        kept = dtype if getattr(dtype, "bits", 32) > 32 else f32
        statistics = zeros((channels,), dtype=kept), ones((channels,), dtype=kept)
        return cls(ones((channels,), dtype=dtype), zeros((channels,), dtype=dtype), *statistics, eps, momentum)

    def __call__(self, x: Any) -> Any:
        _check_channels("BatchNorm", x, self.weight)
        return self._normalize(x, self.mean, self.var)

    def train(self, x: Any) -> tuple[Any, BatchNorm]:
        """`x` normalized by its own statistics, and the layer with running ones that have moved toward them."""
        channels = _check_channels("BatchNorm", x, self.weight)
        # Positions first, then the batch: rows and columns, which are simpler kernels than all of these axes together.
        wide = ops.astype(x, self.mean.dtype).reshape(x.shape[0], channels, -1)
        count = ops.astype(as_tensor(wide.shape[0] * wide.shape[2], i64), self.var.dtype)
        mean = wide.sum(axis=2).sum(axis=0) / count
        var = ops.square(wide - mean.reshape(channels, 1)).sum(axis=2).sum(axis=0) / count
        # PyTorch's running variance is that of a sample, with one less in the denominator.
        unbiased = var * (count / ops.maximum(count - 1.0, 1.0))
        return self._normalize(x, mean, var), self.replace(
            mean=self.mean + (mean - self.mean) * self.momentum, var=self.var + (unbiased - self.var) * self.momentum
        )

    def _normalize(self, x: Any, mean: Any, var: Any) -> Any:
        tail = (1,) * (rank_of(x) - 2)
        scale = self.weight * ops.rsqrt(var + self.eps)
        shift = self.bias - mean * scale
        made = x * scale.reshape(-1, *tail) + shift.reshape(-1, *tail)
        return ops.cast_like(made, x)


def _check_channels(layer: str, x: Any, weight: Any) -> Any:
    channels = weight.shape[0]
    if rank_of(x) < 2:
        raise ShapeError(f"`{layer}` takes a tensor [batch, channels, ...], got {list(x.shape)}")
    held = x.shape[1]
    if isinstance(held, int) and isinstance(channels, int) and held != channels:
        raise ShapeError(
            f"`{layer}` has {channels} channels, and `x.shape[1] = {held}`: {list(x.shape)}",
            fix="channels are the second axis, after the batch",
        )
    return channels
