"""`@function`: a jitted function that also knows its own source; and transforms of functions that compose."""

from __future__ import annotations

import functools
import inspect
import textwrap
from collections.abc import Callable
from typing import Any, overload

from tessera.api.jit import Jit, jit
from tessera.diagnostics.codes import ArgumentError
from tessera.frontend.arguments import check_callables


class Function(Jit):
    """A jitted function with its source: `.source`, `.options`, `.profile()` and `.autotune()`."""

    def __init__(self, made: Jit) -> None:
        """Of a jitted function, under all of its settings."""
        if not isinstance(made, Jit):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ArgumentError(
                f"`Function` takes a jitted function, got {type(made).__name__}", fix="write `ts.function(f)`"
            )
        super().__init__(
            made.function,
            static_argnames=[parameter.name for parameter in made.parameters if parameter.static],
            dynamic=made.dynamic,
            options=made.options,
            constraints=made.constraints,
            policy=made.policy,
            donate=made.donate,
            is_here=made.is_here,
        )
        self.source = source_of(made.function)
        """The text of the function, decorators included; empty where there is none, as of one typed at a prompt."""


def source_of(function: Callable[..., Any]) -> str:
    """The source of a function, as far to the left as it goes; empty where Python does not have it."""
    try:
        return textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):
        return ""


@overload
def function(target: Callable[..., Any], /, **settings: Any) -> Function: ...


@overload
def function(target: None = None, /, **settings: Any) -> Callable[[Callable[..., Any]], Function]: ...


def function(target: Callable[..., Any] | None = None, /, **settings: Any) -> Any:
    """Compile a function as `jit` does, and keep its source and the options that it is compiled with.

    `settings` are those of `jit`.

    >>> f = ts.function(lambda x: x * 2, fusion=False)
    >>> f(ts.ones(3)), f.options.fusion
    (Tensor([3] f32, [2, 2, 2]), False)
    """

    def decorate(given: Callable[..., Any]) -> Function:
        return Function(jit(given, **settings))

    return decorate if target is None else decorate(target)


class Transform:
    """A transform of functions: `@transform` alone, or composed with others by `@`, as in `@jit @ autodiff`."""

    def __init__(self, transform: Callable[[Callable[..., Any]], Any]) -> None:
        functools.update_wrapper(self, transform)
        self._transform = transform

    def __call__(self, function: Callable[..., Any], /) -> Any:
        check_callables(self._transform.__name__, function=function)
        return self._transform(function)

    def __matmul__(self, other: Callable[[Callable[..., Any]], Any]) -> Transform:
        return Transform(lambda function: self(other(function)))

    def __rmatmul__(self, other: Callable[[Any], Any]) -> Transform:
        return Transform(lambda function: other(self(function)))
