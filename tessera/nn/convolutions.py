"""Convolutions along one, two and three axes, and their transposes, as layers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Self

from tessera.api.eager import Tensor
from tessera.api.randomness import split
from tessera.diagnostics.codes import ArgumentError
from tessera.frontend.functions import public as ops
from tessera.nn import initializers
from tessera.nn.layers import check_sizes
from tessera.nn.module import Module
from tessera.types.dtype import f32


class Convolution(Module):
    """What convolutions share: a weight [out, in / groups, taps...], a bias for each channel, and how windows lie.

    With `channels_last` images and results have their channels behind the spatial axes; weights are the same.
    """

    weight: Tensor
    bias: Tensor | None = None
    stride: Any = 1
    padding: Any = 0
    dilation: Any = 1
    groups: int = 1
    channels_last: bool = False

    op: ClassVar[str] = "conv1d"
    """The op that it is a layer of; its number is that of the axes that a window moves along."""

    @classmethod
    def init(
        cls,
        key: Any,
        inputs: int,
        outputs: int,
        taps: int | Sequence[int],
        *,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        channels_last: bool = False,
        bias: bool = True,
        dtype: Any = f32,
    ) -> Self:
        """Weights uniform within one over the root of the inputs of each output, as in PyTorch."""
        window = cls._check(inputs, outputs, taps, groups)
        each = inputs // groups
        bound = 1.0 / math.sqrt(each * math.prod(window))
        parts = _draw(key, (outputs, each, *window), outputs if bias else 0, bound, dtype)
        return cls(*parts, stride, padding, dilation, groups, channels_last)

    @classmethod
    def _check(cls, inputs: int, outputs: int, taps: int | Sequence[int], groups: int) -> tuple[int, ...]:
        """The size of the window along each axis; raises where it, or numbers of channels, cannot be."""
        dims = _dims(cls.op)
        window = tuple(taps) if isinstance(taps, Sequence) else (taps,) * dims
        if len(window) != dims:
            raise ArgumentError(
                f"`{cls.__name__}` takes `taps` along {dims} axes, got {list(window)}", fix="write one integer"
            )
        check_sizes(cls.__name__, inputs=inputs, outputs=outputs, groups=groups)
        for size in window:
            check_sizes(cls.__name__, taps=size)
        if inputs % groups or outputs % groups:
            raise ArgumentError(
                f"`{cls.__name__}` takes channels in {groups} groups of equal size, got {inputs} inputs and {outputs} "
                "outputs",
                fix="make both multiples of `groups`",
            )
        return window

    def __call__(self, x: Any) -> Any:
        made = getattr(ops, self.op)(x, self.weight, **self._options())
        if self.bias is None:
            return made
        return made + (self.bias if self.channels_last else self.bias.reshape(-1, *[1] * _dims(self.op)))

    def _options(self) -> dict[str, Any]:
        names = ("stride", "padding", "dilation", "groups", "channels_last")
        return {name: getattr(self, name) for name in names}


def _dims(op: str) -> int:
    """The axes that the window of an op moves along."""
    return int(op.rstrip("d")[-1])


def _draw(key: Any, shape: Sequence[int], outputs: int, bound: float, dtype: Any) -> tuple[Any, Any]:
    """A weight and, for so many outputs, a bias; none for 0."""
    keys = split(key)
    weight = initializers.uniform(keys[0], tuple(shape), bound, dtype=dtype)
    return weight, initializers.uniform(keys[1], (outputs,), bound, dtype=dtype) if outputs else None


class Conv1d(Convolution):
    """Convolution of [batch, channels, size] with `weight` [out, in / groups, taps], plus a bias for each channel.

    >>> layer = ts.nn.Conv1d.init(ts.random.key(0), 4, 8, 3, padding="same")
    >>> layer(ts.ones((2, 4, 10))).shape
    (2, 8, 10)
    """


class Conv2d(Convolution):
    """Convolution of [batch, channels, height, width] with `weight` [out, in / groups, taps, taps], plus a bias.

    >>> layer = ts.nn.Conv2d.init(ts.random.key(0), 3, 8, 3, stride=2, padding=1)
    >>> layer(ts.ones((2, 3, 8, 8))).shape
    (2, 8, 4, 4)
    >>> layer = ts.nn.Conv2d.init(ts.random.key(0), 3, 8, 3, padding=1, channels_last=True)
    >>> layer(ts.ones((2, 8, 8, 3))).shape
    (2, 8, 8, 8)
    """

    op = "conv2d"


class Conv3d(Convolution):
    """Convolution of [batch, channels, depth, height, width] with `weight` [out, in / groups, taps...], plus a bias.

    >>> layer = ts.nn.Conv3d.init(ts.random.key(0), 3, 8, (1, 3, 3), padding="same")
    >>> layer(ts.ones((2, 3, 4, 5, 6))).shape
    (2, 8, 4, 5, 6)
    """

    op = "conv3d"


class TransposedConvolution(Convolution):
    """What transposed convolutions share: a weight [in, out / groups, taps...], and elements added at the end."""

    output_padding: Any = 0

    op = "conv_transpose1d"

    @classmethod
    def init(
        cls,
        key: Any,
        inputs: int,
        outputs: int,
        taps: int | Sequence[int],
        *,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        channels_last: bool = False,
        bias: bool = True,
        dtype: Any = f32,
        output_padding: Any = 0,
    ) -> Self:
        """Weights uniform within one over the root of the outputs of each group times the window, as in PyTorch."""
        window = cls._check(inputs, outputs, taps, groups)
        each = outputs // groups
        bound = 1.0 / math.sqrt(each * math.prod(window))
        parts = _draw(key, (inputs, each, *window), outputs if bias else 0, bound, dtype)
        return cls(*parts, stride, padding, dilation, groups, channels_last, output_padding)

    def _options(self) -> dict[str, Any]:
        return {**super()._options(), "output_padding": self.output_padding}


class ConvTranspose1d(TransposedConvolution):
    """Transposed convolution of [batch, channels, size] with `weight` [in, out / groups, taps], plus a bias.

    >>> layer = ts.nn.ConvTranspose1d.init(ts.random.key(0), 4, 8, 3, stride=2)
    >>> layer(ts.ones((2, 4, 10))).shape
    (2, 8, 21)
    """


class ConvTranspose2d(TransposedConvolution):
    """Transposed convolution of [batch, channels, height, width] with `weight` [in, out / groups, taps, taps].

    >>> layer = ts.nn.ConvTranspose2d.init(ts.random.key(0), 4, 8, 2, stride=2)
    >>> layer(ts.ones((2, 4, 5, 6))).shape
    (2, 8, 10, 12)
    """

    op = "conv_transpose2d"


class ConvTranspose3d(TransposedConvolution):
    """Transposed convolution of [batch, channels, depth, height, width] with `weight` [in, out / groups, taps...].

    >>> layer = ts.nn.ConvTranspose3d.init(ts.random.key(0), 2, 3, 2, stride=(1, 2, 2))
    >>> layer(ts.ones((1, 2, 3, 4, 5))).shape
    (1, 3, 4, 8, 10)
    """

    op = "conv_transpose3d"
