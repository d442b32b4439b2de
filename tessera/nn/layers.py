"""Layers without memory: Linear, Embedding, dropout, and a sequence of layers."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from functools import cache
from typing import Any

from tessera.api.eager import Tensor, zeros
from tessera.api.randomness import dropout, split
from tessera.diagnostics.codes import ArgumentError, PolicyError, ShapeError
from tessera.frontend.arguments import check_number
from tessera.frontend.functions import public as ops
from tessera.frontend.functions.operands import is_tensor, rank_of
from tessera.frontend.pytree import is_sequence
from tessera.frontend.scopes import policy as enter_policy
from tessera.nn import initializers
from tessera.nn.module import Module
from tessera.types.dtype import f32
from tessera.types.policy import Policy

Initializer = Callable[..., Any]


class Linear(Module):
    """`x @ weight + bias` on the last axis, with `weight` [in, out].

    >>> layer = ts.nn.Linear.init(ts.random.key(0), 3, 2)
    >>> layer(ts.ones((5, 3))).shape
    (5, 2)
    """

    weight: Tensor
    bias: Tensor | None = None

    torch_axes = {"weight": (1, 0)}

    @classmethod
    def init(
        cls,
        key: Any,
        inputs: int,
        outputs: int,
        *,
        bias: bool = True,
        weight_init: Initializer | None = None,
        dtype: Any = f32,
    ) -> Linear:
        """Weights uniform within `1 / sqrt(inputs)`, as in PyTorch, or by `weight_init(key, shape, dtype=...)`."""
        check_sizes("Linear", inputs=inputs, outputs=outputs)
        keys, bound = split(key), 1.0 / math.sqrt(max(inputs, 1))
        if weight_init is None:
            weight = initializers.uniform(keys[0], (inputs, outputs), bound, dtype=dtype)
            return cls(weight, initializers.uniform(keys[1], (outputs,), bound, dtype=dtype) if bias else None)
        weight = weight_init(keys[0], (inputs, outputs), dtype=dtype)
        return cls(weight, zeros((outputs,), dtype=dtype) if bias else None)

    def __call__(self, x: Any) -> Any:
        check_last("Linear", x, self.weight.shape[0], "inputs")
        made = x @ self.weight
        return made if self.bias is None else made + self.bias


class Embedding(Module):
    """Rows of `weight` [entries, features] by integer; `attend` gives the scores of all rows, as tied weights do.

    >>> table = ts.nn.Embedding.init(ts.random.key(0), 10, 4)
    >>> table(ts.array([[1, 2, 3]])).shape
    (1, 3, 4)
    >>> table.attend(ts.ones((2, 4))).shape
    (2, 10)
    """

    weight: Tensor

    @classmethod
    def init(cls, key: Any, entries: int, features: int, *, std: float = 1.0, dtype: Any = f32) -> Embedding:
        """Rows of normal numbers."""
        check_sizes("Embedding", entries=entries, features=features)
        return cls(initializers.normal(key, (entries, features), std, dtype=dtype))

    def __call__(self, indices: Any) -> Any:
        return ops.embedding(self.weight, indices)

    def attend(self, x: Any) -> Any:
        """The dot product of `x` [..., features] with each row."""
        check_last("Embedding.attend", x, self.weight.shape[1], "features")
        return x @ self.weight.T


class Dropout(Module):
    """A share `rate` of elements set to zero and the others scaled up to keep the mean; without a key, `x` as it is.

    >>> layer = ts.nn.Dropout(0.5)
    >>> layer(ts.ones((4,)))
    Tensor([4] f32, [1, 1, 1, 1])
    >>> set(layer(ts.ones((100,)), key=ts.random.key(0)).tolist()) == {0.0, 2.0}
    True
    """

    rate: float = 0.5

    def __post_init__(self) -> None:
        rate = check_number("Dropout", "rate", self.rate)
        if not 0.0 <= rate < 1.0:
            raise ArgumentError(
                f"`Dropout` takes `rate` from 0 up to but not 1, got {rate}", fix="write `Dropout(0.1)`"
            )

    def __call__(self, x: Any, *, key: Any = None) -> Any:
        return x if key is None or not self.rate else dropout(x, key, self.rate)


class Sequential(Module):
    """Layers one after the other; modules whose call has a parameter `key`, as that of dropout, get one each of a key.

    >>> key = ts.random.key(0)
    >>> model = ts.nn.Sequential.of(ts.nn.Linear.init(key, 4, 8), ts.ops.relu, ts.nn.Linear.init(key, 8, 2))
    >>> model(ts.ones((3, 4))).shape
    (3, 2)
    """

    layers: tuple[Any, ...]

    def __post_init__(self) -> None:
        if not is_sequence(self.layers):
            raise ArgumentError(
                f"`Sequential` holds a tuple of layers, got {self.layers!r}",
                fix="write `Sequential.of(first, second)`",
            )

    @classmethod
    def of(cls, *layers: Any) -> Sequential:
        """A sequence of modules and functions of one tensor."""
        wrong = next((one for one in layers if not callable(one)), None)
        if wrong is not None:
            raise ArgumentError(f"`Sequential` takes modules and functions, got {wrong!r}", fix="leave it out")
        return cls(tuple(one if isinstance(one, Module) else Function(one) for one in layers))

    def __call__(self, x: Any, *, key: Any = None) -> Any:
        keys = (None,) * len(self.layers) if key is None else split(key, len(self.layers))
        for layer, own in zip(self.layers, keys, strict=True):
            x = layer(x, key=own) if takes_key(layer) else layer(x)
        return x


def takes_key(layer: Any) -> bool:
    """Whether the call of a module has a parameter `key`."""
    return takes_key(layer.module) if isinstance(layer, UnderPolicy) else _has_key(layer.__class__)


@cache
def _has_key(owner: type[Any]) -> bool:
    return "key" in inspect.signature(owner.__call__).parameters


class Function(Module):
    """A function as a module without parameters.

    >>> ts.nn.Function(ts.ops.relu)(ts.array([-1.0, 1.0]))
    Tensor([2] f32, [0, 1])
    """

    function: Callable[..., Any]

    def __call__(self, x: Any) -> Any:
        return self.function(x)


class UnderPolicy(Module):
    """A module whose ops run under a numerics policy, which `with_policy` makes."""

    module: Any
    policy: Policy

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with enter_policy(self.policy):
            return self.module(*args, **kwargs)


def with_policy(module: Any, policy: Policy) -> UnderPolicy:
    """The module with its ops under a numerics policy: mixed precision for a part of a model.

    Parameters stay in their dtype, which is that of their gradients too. `ts.policy(...)` around a call does the same
    for all that it calls.

    >>> layer = ts.nn.Linear.init(ts.random.key(0), 3, 2)
    >>> ts.nn.with_policy(layer, ts.Training())(ts.ones((1, 3))).dtype
    bf16
    """
    if not isinstance(policy, Policy):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise PolicyError(f"`with_policy` takes a policy, got {policy!r}", fix="write one, such as `ts.Training()`")
    return UnderPolicy(module, policy)


def check_sizes(layer: str, **sizes: Any) -> None:
    """Refuse sizes of a layer that are no integers from 1."""
    for name, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise ArgumentError(
                f"`{layer}` takes `{name}` as an integer from 1, got {size!r}", fix=f"write `{name}=64`"
            )


def check_last(layer: str, x: Any, size: Any, what: str) -> None:
    """Refuse a tensor whose last axis has another static size than a layer takes."""
    if not is_tensor(x) or not rank_of(x):
        raise ShapeError(f"`{layer}` takes a tensor [..., {what}], got {x!r}", fix=f"give it {size} {what}")
    last = x.shape[-1]
    if isinstance(last, int) and isinstance(size, int) and last != size:
        raise ShapeError(
            f"`{layer}` has {size} {what}, and `x.shape[-1] = {last}`: {list(x.shape)}",
            fix=f"give it a tensor [..., {size}], or make the layer with {last} {what}",
        )
