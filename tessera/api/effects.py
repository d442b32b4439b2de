"""Effects in the hands of users: scopes that suspend them, functions whose runs are alike, and inference on text."""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeVar, overload

from tessera.diagnostics.codes import DeterminismError, EffectError
from tessera.diagnostics.error import user_span
from tessera.frontend import scopes as scopes
from tessera.frontend.arguments import check_bool, check_callables, check_string
from tessera.frontend.trace import PROMISES
from tessera.ir.base import dispatch
from tessera.types.effect import KINDS, Effects, effects_in_text
from tessera.types.policy import SILENT

F = TypeVar("F", bound=Callable[..., Any])


@contextmanager
def suspend(*effects: str, defer: bool = False) -> Generator[None]:
    """Within it, code has none of these effects: what only has them is left out, or with `defer` done at the end.

    In a jitted function this is settled when it is traced. Around calls of jitted functions, where only `io` can be
    suspended, the functions stay as they are and their prints and callbacks do not run.

    Raises: EffectError (T0108) for an op that has such an effect and gives what other ops need.

    >>> @ts.jit
    ... def f(x: ts.Tensor["N", ts.f32]):
    ...     with ts.effects.suspend("io"):
    ...         ts.debug_print("x = {}", x)
    ...     return x + x
    >>> f(ts.ones(2)), f.effects
    (Tensor([2] f32, [2, 2]), {})
    """
    named = _parse(effects)
    check_bool("suspend", "defer", defer)
    if scopes.active_trace() is not None:
        with scopes.enter_scope(scopes.Suspension(named, defer=defer)):
            yield
        return
    if named != {"io"}:
        raise EffectError(
            f"outside of a jitted function only `io` can be suspended, not `{named}`",
            fix='write `with effects.suspend("io"):`, or move the scope into the function',
        )
    from tessera.runtime.callback import suspended_io  # noqa: PLC0415 - loads the runtime

    with suspended_io(keep=defer):
        yield


def _parse(effects: tuple[str, ...]) -> Effects:
    if not effects:
        raise EffectError("`suspend` takes at least one effect", fix=f"effects are {', '.join(KINDS)}")
    try:
        return Effects(effects)
    except EffectError as error:
        raise EffectError(error.message, fix='name them one by one, as in `suspend("io", "random")`') from None


@overload
def deterministic(function: F, /, *, seed: int | None = None) -> F: ...


@overload
def deterministic(function: None = None, /, *, seed: int | None = None) -> Callable[[F], F]: ...


def deterministic(function: Any = None, /, *, seed: int | None = None) -> Any:
    """All runs of a function must be the same: an op whose runs may differ is an error, unless it is wrapped.

    Draws without a seed and reductions in any order are such ops. `seed` is what `effects.seeded()` inside starts from.
    It may stand above or below `jit`, and on functions that jitted ones call.

    Raises: DeterminismError (T0208), when the function is traced or run, at the op.

    >>> @ts.jit
    ... @ts.deterministic(seed=7)
    ... def noise(x: ts.Tensor["N", ts.f32]):
    ...     with ts.effects.seeded():
    ...         return x + ts.random.uniform(ts.random.key(), x.shape)
    >>> noise(ts.zeros(3)).tolist() == noise(ts.zeros(3)).tolist()
    True
    """
    _check_seed(seed, "write `@deterministic(seed=0)`")
    declared = user_span()

    def decorate(target: Any) -> Any:
        check_callables("deterministic", function=target)
        rebuild = getattr(target, "with_function", None)
        if rebuild is not None:  # a jitted function: what it wraps is what has to keep the promise
            return rebuild(decorate(target.function))
        name = getattr(target, "__name__", type(target).__name__)

        @functools.wraps(target)
        def keeping(*args: Any, **kwargs: Any) -> Any:
            with scopes.enter_scope(scopes.Deterministic(name, seed, declared)), _promise_scope():
                return target(*args, **kwargs)

        promised = {"tessera.deterministic": True if seed is None else {"seed": seed}}
        setattr(keeping, PROMISES, {**getattr(target, PROMISES, {}), **promised})
        return keeping

    return decorate if function is None else decorate(function)


def _promise_scope() -> AbstractContextManager[None]:
    """Where ops run eagerly, what lets jitted functions see that a promise holds where they are called."""
    if dispatch.active() is not None:
        return nullcontext()
    from tessera.frontend.scopes import PolicyScope, static_bits  # noqa: PLC0415 - few functions have any

    return dispatch.record_on(PolicyScope(SILENT, static_bits()))


def _check_seed(seed: Any, fix: str) -> None:
    if seed is not None and (type(seed) is not int or not 0 <= seed < 1 << 64):
        raise DeterminismError(f"a seed is an int from 0 to 2^64 - 1, got {seed!r}", fix=fix)


def seeded(seed: int | None = None) -> AbstractContextManager[None]:
    """Within it, `random.key()` makes its keys from a seed: this one, or that of the deterministic function around.

    Each call site gets another key, the same in every run; functions of another name get others.

    Raises: DeterminismError (T0208) where there is no seed.
    """
    _check_seed(seed, "write `effects.seeded(0)`")
    around = scopes.find(scopes.Deterministic)
    start, name = (seed, "") if around is None else (around.seed if seed is None else seed, around.name)
    if start is None:
        raise DeterminismError(
            "`seeded` has no seed, and no deterministic function around it gives one",
            fix="write `effects.seeded(0)`, or `@deterministic(seed=0)` on the function",
        )
    return scopes.enter_scope(scopes.Seeded(start, name))


def ordered() -> AbstractContextManager[None]:
    """Within it, ops that may work in any order (`scatter_add(..., ordered=False)`) keep the one of their indices."""
    return scopes.enter_scope(scopes.Ordered())


def infer(text: str) -> dict[str, Effects]:
    """The effects of every function of an IR text, of any level; an op that is not ours has every effect.

    >>> ts.effects.infer('tgraph.func @f(%x: !tgraph.tensor<[4], f32>) {\\n  %0 = other.op %x\\n}')
    {'f': {random, io, memory, state, collective}}
    """
    from tessera.ir.base.dialect_of import installed_dialects, load_dialects  # noqa: PLC0415 - loads the compiler

    check_string("infer", "text", text)
    load_dialects()
    table = {spec.name: spec.effects for registry in installed_dialects().values() for spec in registry}
    return effects_in_text(text, table)
