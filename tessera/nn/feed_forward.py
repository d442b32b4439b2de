"""Feed-forward layers of transformers: MLP, SwiGLU, and a mixture of experts that run as one ragged contraction."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tessera.api.eager import Tensor
from tessera.api.randomness import split
from tessera.diagnostics.codes import ArgumentError
from tessera.frontend.functions import public as ops
from tessera.nn import initializers
from tessera.nn.layers import Initializer, Linear, check_last, check_sizes
from tessera.nn.module import Module
from tessera.types.dtype import f32, i64


def gelu_tanh(x: Any) -> Any:
    """GELU by the hyperbolic tangent, which GPT-2 was trained with.

    >>> ts.nn.gelu_tanh(ts.array([0.0]))
    Tensor([1] f32, [0])
    """
    return ops.gelu(x, approximate="tanh")


def _projections(
    keys: Any, sizes: tuple[int, int], up_init: Initializer | None, down_init: Initializer | None, **options: Any
) -> list[Linear]:
    """A projection for each key, up to the second size, and for the last key one back down."""
    *up, down = keys
    made = [Linear.init(key, *sizes, weight_init=up_init, **options) for key in up]
    return [*made, Linear.init(down, *reversed(sizes), weight_init=down_init or up_init, **options)]


class MLP(Module):
    """Two projections with a function between them, on the last axis.

    >>> ts.nn.MLP.init(ts.random.key(0), 4, 16)(ts.ones((3, 4))).shape
    (3, 4)
    """

    up: Linear
    down: Linear
    activation: Callable[..., Any] = gelu_tanh

    @classmethod
    def init(
        cls,
        key: Any,
        width: int,
        hidden: int,
        *,
        activation: Callable[..., Any] = gelu_tanh,
        bias: bool = True,
        weight_init: Initializer | None = None,
        down_init: Initializer | None = None,
        dtype: Any = f32,
    ) -> MLP:
        """From `width` to `hidden` features and back."""
        up, down = _projections(split(key), (width, hidden), weight_init, down_init, bias=bias, dtype=dtype)
        return cls(up, down, activation)

    def __call__(self, x: Any) -> Any:
        return self.down(self.activation(self.up(x)))


class SwiGLU(Module):
    """`down(silu(gate(x)) * up(x))` on the last axis, the feed-forward layer of Llama.

    >>> ts.nn.SwiGLU.init(ts.random.key(0), 4, 16)(ts.ones((3, 4))).shape
    (3, 4)
    """

    gate: Linear
    up: Linear
    down: Linear

    @classmethod
    def init(
        cls,
        key: Any,
        width: int,
        hidden: int,
        *,
        bias: bool = False,
        weight_init: Initializer | None = None,
        down_init: Initializer | None = None,
        dtype: Any = f32,
    ) -> SwiGLU:
        """From `width` to `hidden` features and back."""
        gate, up, down = _projections(split(key, 3), (width, hidden), weight_init, down_init, bias=bias, dtype=dtype)
        return cls(gate, up, down)

    def __call__(self, x: Any) -> Any:
        return self.down(ops.silu(self.gate(x)) * self.up(x))


class MoE(Module):
    """SwiGLU experts, of which each token goes to the `top` that its router scores highest.

    Tokens are sorted by expert, so that each projection is one contraction over ragged groups; no token is dropped,
    whatever the load of an expert. The result is a pair: the sum of the experts' results by their normalized
    probabilities, and a loss that is 1 where all experts have equal load, to be added to that of training.

    >>> layer = ts.nn.MoE.init(ts.random.key(0), 8, 16, experts=4, top=2)
    >>> y, balance = layer(ts.random.normal(ts.random.key(1), (3, 5, 8)))
    >>> y.shape, balance.shape
    ((3, 5, 8), ())
    """

    router: Linear
    gate: Tensor
    up: Tensor
    down: Tensor
    top: int

    @classmethod
    def init(
        cls,
        key: Any,
        width: int,
        hidden: int,
        *,
        experts: int,
        top: int = 2,
        weight_init: Initializer | None = None,
        down_init: Initializer | None = None,
        dtype: Any = f32,
    ) -> MoE:
        """Weights of experts as those of `Linear` are, each expert by itself."""
        check_sizes("MoE", width=width, hidden=hidden, experts=experts, top=top)
        if top > experts:
            raise ArgumentError(
                f"`MoE` gives a token to {top} of {experts} experts", fix="make `top` at most `experts`"
            )
        keys = split(key, 4)

        def weights(own: Any, inputs: int, outputs: int, init: Initializer | None) -> Any:
            shape = (experts, inputs, outputs)
            if init is not None:
                return init(own, shape, dtype=dtype)
            return initializers.uniform(own, shape, 1.0 / math.sqrt(inputs), dtype=dtype)

        return cls(
            Linear.init(keys[0], width, experts, bias=False, weight_init=weight_init, dtype=dtype),
            weights(keys[1], width, hidden, weight_init),
            weights(keys[2], width, hidden, weight_init),
            weights(keys[3], hidden, width, down_init or weight_init),
            top,
        )

    def __call__(self, x: Any) -> tuple[Any, Any]:
        check_last("MoE", x, self.gate.shape[1], "features")
        experts, width = self.gate.shape[0], self.gate.shape[1]
        tokens = x.reshape(-1, width)
        # Probabilities decide by differences: in 16 bits near ones would tie.
        scores = self.router(tokens)
        probabilities = ops.softmax(ops.astype(scores, scores.dtype.compute))
        weights, chosen = ops.topk(probabilities, self.top)
        weights = weights / weights.sum(axis=-1, keepdims=True)
        assigned = chosen.reshape(-1)
        sizes = (ops.expand_dims(assigned, 1) == ops.iota((1, experts), 1)).astype(i64).sum(axis=0)
        mixed = self._run_experts(tokens, assigned, sizes)
        mixed = mixed.reshape(-1, self.top, width) * ops.cast_like(ops.expand_dims(weights, -1), mixed)
        return mixed.sum(axis=1).reshape(x.shape), balance_loss(
            probabilities.mean(axis=0), sizes, probabilities.shape[0] * self.top
        )

    def _run_experts(self, tokens: Any, assigned: Any, sizes: Any) -> Any:
        """What the expert `assigned[i]` gives for the token `i // top`, for each `i`."""
        order = ops.argsort(assigned)
        rows = ops.take(tokens, order // self.top)
        hidden = ops.silu(ops.ragged_dot(rows, self.gate, sizes)) * ops.ragged_dot(rows, self.up, sizes)
        return ops.take(ops.ragged_dot(hidden, self.down, sizes), ops.argsort(order))


def balance_loss(mean: Any, sizes: Any, count: Any) -> Any:
    """Experts times the sum over them of their share of `count` assignments and their mean probability."""
    share = ops.cast_like(sizes, mean) / count
    return (share * mean).sum() * mean.shape[0]
