"""Feed-forward layers of transformers: MLP, SwiGLU, and a mixture of experts that run as one ragged contraction."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Self

from tessera.api.autodiff import stop_gradient
from tessera.api.eager import Tensor, zeros
from tessera.api.randomness import split
from tessera.diagnostics.codes import ArgumentError
from tessera.frontend.arguments import check_number
from tessera.frontend.functions import public as ops
from tessera.nn import initializers
from tessera.nn.layers import Initializer, Linear, check_last, check_sizes
from tessera.nn.module import Module, buffer
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

    With `bias_rate` the load is balanced without that loss, as in DeepSeek-V3: each expert has a bias that is added to
    its probability where experts are chosen, and nowhere else. `train(x)` gives the result and the layer with its
    biases raised by the rate where an expert had less than the mean load, and lowered where it had more. Biases are a
    buffer (`split_buffers`) and have no gradient.

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
    bias: Tensor | None = buffer(default=None)
    rate: float = 0.0

    @classmethod
    def init(
        cls,
        key: Any,
        width: int,
        hidden: int,
        *,
        experts: int,
        top: int = 2,
        bias_rate: float | None = None,
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
        if bias_rate is not None and not 0 < check_number("MoE", "bias_rate", bias_rate) < 1:
            raise ArgumentError(
                f"`MoE` moves biases by `bias_rate` between 0 and 1 a step, got {bias_rate!r}", fix="write 1e-3"
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
            None if bias_rate is None else zeros((experts,)),
            bias_rate or 0.0,
        )

    def __call__(self, x: Any) -> tuple[Any, Any]:
        return self._run(x)[0]

    def train(self, x: Any) -> tuple[tuple[Any, Any], Self]:
        """The result of a call, and the layer with biases that even out the loads of this call.

        Raises ArgumentError (T0202) for a layer without biases.

        >>> layer = ts.nn.MoE.init(ts.random.key(0), 8, 16, experts=4, top=1, bias_rate=0.01)
        >>> (y, _), layer = layer.train(ts.random.normal(ts.random.key(1), (12, 8)))
        >>> y.shape, layer.bias.shape
        ((12, 8), (4,))
        """
        self._check_bias()
        found, loads = self._run(x)
        return found, self.update_bias(loads)

    def update_bias(self, loads: Any) -> Self:
        """The layer with its biases moved by `rate` towards equal `loads`, the tokens of each expert."""
        bias = self._check_bias()
        loads = stop_gradient(ops.cast_like(loads, bias))
        return self.replace(bias=bias + self.rate * ops.sign(loads.mean() - loads))

    def _check_bias(self) -> Tensor:
        if self.bias is None:
            raise ArgumentError("this `MoE` has no biases", fix="make it with `MoE.init(..., bias_rate=1e-3)`")
        return self.bias

    def _route(self, tokens: Any) -> tuple[Any, Any, Any]:
        """The probabilities of all experts for each token, the weights of those that it goes to, and their numbers."""
        # Probabilities decide by differences: in 16 bits near ones would tie.
        scores = self.router(tokens)
        probabilities = ops.softmax(ops.astype(scores, scores.dtype.compute))
        if self.bias is None:
            weights, chosen = ops.topk(probabilities, self.top)
        else:
            ranked = stop_gradient(probabilities + ops.cast_like(self.bias, probabilities))
            chosen = ops.topk(ranked, self.top)[1]
            weights = ops.take_along_axis(probabilities, chosen, axis=-1)
        return probabilities, weights / weights.sum(axis=-1, keepdims=True), chosen

    def _run(self, x: Any) -> tuple[tuple[Any, Any], Any]:
        """The result, and how many tokens each expert had."""
        check_last("MoE", x, self.gate.shape[1], "features")
        experts, width = self.gate.shape[0], self.gate.shape[1]
        tokens = x.reshape(-1, width)
        probabilities, weights, chosen = self._route(tokens)
        assigned = chosen.reshape(-1)
        sizes = (ops.expand_dims(assigned, 1) == ops.iota((1, experts), 1)).astype(i64).sum(axis=0)
        mixed = self._run_experts(tokens, assigned, sizes)
        mixed = mixed.reshape(-1, self.top, width) * ops.cast_like(ops.expand_dims(weights, -1), mixed)
        balance = balance_loss(probabilities.mean(axis=0), sizes, probabilities.shape[0] * self.top)
        return (mixed.sum(axis=1).reshape(x.shape), balance), sizes

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
