"""`custom_vjp` and `custom_jvp`: functions whose derivatives are given, and not made of what they compute."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from tessera.api.custom_rules import Rule, Rules, call_with_rules
from tessera.diagnostics.codes import ArgumentError, DifferentiationError
from tessera.diagnostics.frames import guard_class
from tessera.frontend.arguments import check_callables
from tessera.frontend.pytree import as_tuple


@guard_class
class CustomFunction:
    """A function with derivatives of its own: `defvjp` gives those of reverse mode, `defjvp` those of forward mode.

    It may have both. With the second alone reverse mode is made of it; with the first alone forward mode is an error.
    Rules take all arguments by position, with the defaults of those that a call leaves out (of an op, whose defaults
    are settings, what a call passes).
    """

    def __init__(self, name: str, function: Callable[..., Any], nondiff_argnums: int | Sequence[int] = ()) -> None:
        check_callables(name, function=function)
        functools.update_wrapper(self, function)
        self.function, self._made_by = function, name
        self.name = str(getattr(function, "__name__", type(function).__name__))
        self.static = _check_numbers(name, nondiff_argnums)
        self.vjp: Callable[..., Any] | None = None
        self.backward: Callable[..., Any] | None = None
        self.jvp: Callable[..., Any] | None = None

    def defvjp(self, forward: Callable[..., Any], backward: Callable[..., Any]) -> None:
        """Give the function its derivative for reverse mode.

        `forward` takes the arguments and returns the result and residuals, in any form. `backward` takes the residuals
        and the cotangents of the result (None for what is not of floats), after the arguments of `nondiff_argnums`,
        and returns a tuple with a cotangent for each other argument: of its form, shapes and dtypes, or None for zero.
        """
        check_callables("defvjp", forward=forward, backward=backward)
        self.vjp, self.backward = forward, backward

    def defjvp(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Give the function its derivative for forward mode, from which reverse mode is made where it has no other.

        `rule` takes the arguments of `nondiff_argnums`, a tuple of the others and one of their tangents (None for what
        is not of floats), and returns the result and its tangents, which are linear in the tangents it takes.
        """
        check_callables("defjvp", rule=rule)
        self.jvp = rule
        return rule

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        given = self._arrange(args, kwargs)
        static = [number % len(given) for number in self.static]
        others = [at for at in range(len(given)) if at not in static]
        fixed = [given[at] for at in static]

        def fill(function: Callable[..., Any]) -> Callable[..., Any]:
            def call(*chosen: Any) -> Any:
                values = list(given)
                for at, value in zip(others, chosen, strict=True):
                    values[at] = value
                return function(*values)

            return call

        names = _parameter_names(self.function, len(given))
        rules = Rules(
            self.name,
            tuple(names[at] for at in others),
            self.vjp and Rule(fill(self.vjp), self.vjp),
            self.backward and Rule(functools.partial(self.backward, *fixed), self.backward),
            self.jvp and Rule(functools.partial(self.jvp, *fixed), self.jvp),
        )
        return call_with_rules(fill(self.function), rules, [given[at] for at in others])

    def _arrange(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Sequence[Any]:
        """All arguments by position, where the function has rules; raises where it has none."""
        if self.vjp is None and self.jvp is None:
            define = "defvjp(forward, backward)" if self._made_by == "custom_vjp" else "defjvp(rule)"
            raise DifferentiationError(
                f"`{self.name}` is a `{self._made_by}` function without a rule",
                fix=f"call `{self.name}.{define}` first",
            )
        found = self._bind(args, kwargs)
        missing = [number for number in self.static if not -len(found) <= number < len(found)]
        if missing:
            raise ArgumentError(
                f"`{self._made_by}` has `nondiff_argnums` {missing[0]}, and `{self.name}` is called with {len(found)} "
                "arguments"
            )
        return found

    def _bind(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Sequence[Any]:
        """All arguments by position, with the defaults of those that were not passed."""
        # The defaults of an op are its settings, and its rules are for the tensors that it is given.
        if not kwargs and str(getattr(self.function, "__module__", "")).startswith("tessera."):
            return args
        try:
            bound = inspect.signature(self.function).bind(*args, **kwargs)
        except (TypeError, ValueError):
            if kwargs:
                raise
            return args  # the call itself says what is wrong, and one of Python's own does not say what it takes
        bound.apply_defaults()
        named = [name for name in bound.kwargs if name in kwargs]
        if named:
            raise ArgumentError(
                f"`{self.name}` takes {', '.join(f'`{name}`' for name in named)} by keyword alone, and "
                f"arguments of a `{self._made_by}` function have positions",
                fix="let the parameter be one of position too",
            )
        return bound.args

    def __get__(self, instance: Any, owner: type[Any] | None = None) -> Any:
        """As a method, the instance is the first argument."""
        return self if instance is None else functools.partial(self, instance)

    def __repr__(self) -> str:
        return f"<{self._made_by} function {self.name}>"


def _parameter_names(function: Callable[..., Any], count: int) -> list[str]:
    """What the positional arguments of a call are called."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:
        parameters = ()  # one of Python's own does not say what it takes
    names = [one.name for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    return [*names[:count], *(f"argument {at}" for at in range(len(names), count))]


def _check_numbers(name: str, numbers: Any) -> tuple[int, ...]:
    found = as_tuple(numbers)
    for number in found:
        if isinstance(number, bool) or not isinstance(number, int):
            raise ArgumentError(f"`{name}` takes `nondiff_argnums` as an int or a tuple of ints, got {numbers!r}")
    return found


def custom_vjp(function: Callable[..., Any], nondiff_argnums: int | Sequence[int] = ()) -> CustomFunction:
    """A function whose derivative in reverse mode is given by `defvjp(forward, backward)`.

    Arguments of `nondiff_argnums` are passed to `backward` first, as they are: functions, strings and the like.

    >>> @ts.custom_vjp
    ... def log1pexp(x):
    ...     return ts.ops.log(1.0 + ts.ops.exp(x))
    >>> log1pexp.defvjp(lambda x: (log1pexp(x), x), lambda x, g: (g * (1.0 - 1.0 / (1.0 + ts.ops.exp(x))),))
    >>> ts.grad(log1pexp)(ts.array(100.0))
    Tensor([] f32, 1)
    """
    return function if isinstance(function, CustomFunction) else CustomFunction("custom_vjp", function, nondiff_argnums)


def custom_jvp(function: Callable[..., Any], nondiff_argnums: int | Sequence[int] = ()) -> CustomFunction:
    """A function whose derivative in forward mode is given by `defjvp(rule)`; reverse mode is made of it.

    >>> @ts.custom_jvp
    ... def cube(x):
    ...     return x * x * x
    >>> @cube.defjvp
    ... def cube_jvp(primals, tangents):
    ...     (x,), (t,) = primals, tangents
    ...     return cube(x), 3.0 * x * x * t
    >>> ts.grad(cube)(ts.array(2.0)), ts.jvp(cube, (ts.array(2.0),), (ts.array(1.0),))[1]
    (Tensor([] f32, 12), Tensor([] f32, 12))
    """
    return function if isinstance(function, CustomFunction) else CustomFunction("custom_jvp", function, nondiff_argnums)
