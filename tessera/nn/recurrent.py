"""Recurrent layers: cells of RNN, LSTM and GRU as PyTorch defines them, and the loop over a sequence."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tessera.api.control import scan
from tessera.api.eager import Tensor
from tessera.api.randomness import split
from tessera.diagnostics.codes import ArgumentError
from tessera.frontend.functions import public as ops
from tessera.frontend.functions.operands import rank_of
from tessera.nn import initializers
from tessera.nn.layers import check_last, check_sizes
from tessera.nn.module import Module
from tessera.types.dtype import f32


class Cell(Module):
    """What recurrent cells share: weights [in, gates * hidden] and [hidden, gates * hidden], and a bias for each.

    `project` is the share of the inputs, which does not depend on the state and is done for a whole sequence; `step`
    takes that of one position and a state, and gives the next state and the result.
    """

    input_weight: Tensor
    state_weight: Tensor
    input_bias: Tensor
    state_bias: Tensor

    torch_axes = {"input_weight": (1, 0), "state_weight": (1, 0)}

    @classmethod
    def init(cls, key: Any, inputs: int, hidden: int, *, dtype: Any = f32) -> Any:
        """Weights and biases uniform within `1 / sqrt(hidden)`, as in PyTorch."""
        check_sizes(cls.__name__, inputs=inputs, hidden=hidden)
        bound, wide = 1.0 / math.sqrt(hidden), cls.gates() * hidden
        shapes = ((inputs, wide), (hidden, wide), (wide,), (wide,))
        drawn = [
            initializers.uniform(own, shape, bound, dtype=dtype)
            for own, shape in zip(split(key, 4), shapes, strict=True)
        ]
        return cls(*drawn)

    @staticmethod
    def gates() -> int:
        """How many vectors of the size of the state a step computes."""
        return 1

    @property
    def hidden(self) -> int:
        """The size of the state."""
        return self.state_weight.shape[0]

    def state(self, batch: Any) -> Any:
        """The state before a sequence: zeros."""
        return ops.zeros((batch, self.hidden), self.state_weight.dtype)

    def project(self, x: Any) -> Any:
        """The share of the inputs in the gates, for `x` [..., inputs]."""
        check_last(type(self).__name__, x, self.input_weight.shape[0], "inputs")
        return x @ self.input_weight + self.input_bias

    def step(self, state: Any, projected: Any) -> tuple[Any, Any]:
        """The next state, and the result of this position."""
        raise ArgumentError(f"`{type(self).__name__}` has no `step`", fix="define it: it gives (state, result)")

    def __call__(self, x: Any, state: Any = None) -> tuple[Any, Any]:
        """The next state and the result for `x` [batch, inputs]; without a state, of the first position."""
        return self.step(self.state(x.shape[0]) if state is None else state, self.project(x))


class RNNCell(Cell):
    """`h' = tanh(x W + b + h U + c)`.

    >>> cell = ts.nn.RNNCell.init(ts.random.key(0), 3, 4)
    >>> state, y = cell(ts.ones((2, 3)))
    >>> y.shape
    (2, 4)
    """

    activation: Callable[..., Any] = ops.tanh

    def step(self, state: Any, projected: Any) -> tuple[Any, Any]:
        """The next state, which is the result too."""
        made = self.activation(projected + state @ self.state_weight + self.state_bias)
        return made, made


class LSTMCell(Cell):
    """Long short-term memory: the state is a pair of the result and what is remembered; gates are i, f, g, o.

    >>> cell = ts.nn.LSTMCell.init(ts.random.key(0), 3, 4)
    >>> (h, c), y = cell(ts.ones((2, 3)))
    >>> c.shape
    (2, 4)
    """

    @staticmethod
    def gates() -> int:
        """Input, forget, candidate and output."""
        return 4

    def state(self, batch: Any) -> Any:
        """Zeros, for the result and for what is remembered."""
        return super().state(batch), super().state(batch)

    def step(self, state: Any, projected: Any) -> tuple[Any, Any]:
        """The next pair, and its result."""
        result, memory = state
        gates = projected + result @ self.state_weight + self.state_bias
        taken, kept, candidate, given = ops.split(gates, 4, axis=-1)
        memory = ops.sigmoid(kept) * memory + ops.sigmoid(taken) * ops.tanh(candidate)
        result = ops.sigmoid(given) * ops.tanh(memory)
        return (result, memory), result


class GRUCell(Cell):
    """Gated recurrent unit, with the reset gate after the product with the state, as in PyTorch; gates are r, z, n.

    >>> cell = ts.nn.GRUCell.init(ts.random.key(0), 3, 4)
    >>> state, y = cell(ts.ones((2, 3)))
    >>> y.shape
    (2, 4)
    """

    @staticmethod
    def gates() -> int:
        """Reset, update and candidate."""
        return 3

    def step(self, state: Any, projected: Any) -> tuple[Any, Any]:
        """The next state, which is the result too."""
        reset, update, candidate = ops.split(projected, 3, axis=-1)
        of_reset, of_update, of_candidate = ops.split(state @ self.state_weight + self.state_bias, 3, axis=-1)
        update = ops.sigmoid(update + of_update)
        candidate = ops.tanh(candidate + ops.sigmoid(reset + of_reset) * of_candidate)
        made = candidate + update * (state - candidate)
        return made, made


class Recurrent(Module):
    """A cell run over sequences [batch, length, inputs] by `scan`: results [batch, length, hidden] and the last state.

    The inputs of all positions are projected in one contraction. `reverse` walks from the end. The body is compiled
    once, whatever the length.

    >>> layer = ts.nn.Recurrent(ts.nn.LSTMCell.init(ts.random.key(0), 3, 4))
    >>> y, state = layer(ts.ones((2, 7, 3)))
    >>> y.shape
    (2, 7, 4)
    """

    cell: Cell
    reverse: bool = False

    def __call__(self, x: Any, state: Any = None) -> tuple[Any, Any]:
        if rank_of(x) != 3:
            raise ArgumentError(
                f"`Recurrent` takes sequences [batch, length, inputs], got {list(x.shape)}",
                fix="write `x[None]` for one sequence",
            )
        first = self.cell.state(x.shape[0]) if state is None else state
        projected = ops.swapaxes(self.cell.project(x), 0, 1)
        last, made = scan(self.cell.step, first, projected, reverse=self.reverse)
        return ops.swapaxes(made, 0, 1), last
