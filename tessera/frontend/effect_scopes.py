"""Scopes that limit the effects of traced code: suspension, determinism, seeds, order."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any
from weakref import WeakKeyDictionary
from zlib import crc32

from tessera.diagnostics.codes import DeterminismError, EffectError
from tessera.diagnostics.error import Fix
from tessera.diagnostics.span import Span, user_span
from tessera.ir.base import dispatch
from tessera.ir.base.spec import Nondeterminism, OpSpec
from tessera.types.effect import Effects


def active_trace() -> Any:
    """The active trace, or None: a policy scope outside of any trace runs ops eagerly."""
    found = dispatch.active()
    return None if getattr(found, "is_scope", False) else found


class Scope:
    """A scope, and the trace in which it was entered, if any."""

    def __init__(self) -> None:
        self.trace: Any = active_trace()
        self.span = user_span()

    def leave(self) -> None:
        """What to do when the scope ends without an error."""


class Suspension(Scope):
    """Effects that are suspended: an op without results is left out, or deferred to the end of the scope."""

    def __init__(self, effects: Effects, *, defer: bool) -> None:
        super().__init__()
        self.effects, self.defer = effects, defer
        self.deferred: list[Callable[[], None]] = []

    def leave(self) -> None:
        for record in self.deferred:
            record()


class Deterministic(Scope):
    """All runs of a function must agree; `seed` is for draws without a key."""

    def __init__(self, name: str, seed: int | None, declared: Span | None) -> None:
        super().__init__()
        self.name, self.seed, self.declared = name, seed, declared


class Seeded(Scope):
    """Keys without a seed are derived from this seed, a new one at each use."""

    def __init__(self, seed: int, name: str) -> None:
        super().__init__()
        self.seed, self._stream, self._count = seed, crc32(name.encode()), 0

    def next_words(self) -> list[int]:
        """The two words of the next key: the seed, and the function's stream with a count of uses."""
        self._count += 1
        return [self.seed & (1 << 64) - 1, self._stream << 32 | self._count]


class Ordered(Scope):
    """Ops that may reorder their work keep the written order."""


_SCOPES: ContextVar[tuple[Scope, ...]] = ContextVar("effect_scopes", default=())


@contextmanager
def enter_scope(scope: Scope) -> Generator[None]:
    """Within it, a scope is active."""
    token = _SCOPES.set((*_SCOPES.get(), scope))
    try:
        yield
    finally:
        _SCOPES.reset(token)
    scope.leave()


def scopes_here() -> list[Scope]:
    """The active scopes, innermost first: those entered in the active trace.

    A program is traced once and called from many scopes, so a scope around a call does not apply inside it.
    """
    traces: list[Any] = [active_trace()]
    while getattr(traces[-1], "parent", None) is not None:
        traces.append(traces[-1].parent)
    return [scope for scope in reversed(_SCOPES.get()) if any(scope.trace is trace for trace in traces)]


def find(kind: type[Any]) -> Any:
    """The innermost scope of a kind, or None."""
    return next((scope for scope in scopes_here() if isinstance(scope, kind)), None)


_PROMISED: WeakKeyDictionary[Any, dict[tuple[str, int | None], Any]] = WeakKeyDictionary()
"""Jitted functions specialized for deterministic callers, by name and seed of the caller."""


def keep_promise(jitted: Any) -> Any:
    """The jitted function under the promise of its deterministic caller; itself, where there is none."""
    around = find(Deterministic)
    if around is None:
        return jitted
    made, function = _PROMISED.setdefault(jitted, {}), jitted.function
    if (around.name, around.seed) not in made:
        name, seed, declared = around.name, around.seed, around.declared

        @wraps(function)
        def keeping(*args: Any, **kwargs: Any) -> Any:
            with enter_scope(Deterministic(name, seed, declared)):
                return function(*args, **kwargs)

        promise = f"`{name}`, which is deterministic" + ("" if seed is None else f" with seed {seed}")
        made[name, seed] = jitted.within(keeping, promise)
    return made[around.name, around.seed]


def settle_order(spec: OpSpec, attributes: dict[str, Any]) -> None:
    """Within `ordered`, make an op that may reorder its work keep the written order."""
    if attributes.get("ordered") is False and find(Ordered) is not None:
        attributes["ordered"] = True


def check_repeatable(spec: OpSpec, attributes: dict[str, Any], span: Span | None) -> None:
    """Raises DeterminismError (T0208) for an op whose runs may differ, in a function whose runs may not."""
    if spec.nondeterminism is None:
        return
    scope = find(Deterministic)
    found = spec.nondeterminism(attributes)
    if scope is not None and found is not None:
        name = {"fresh_key": "random.key"}.get(spec.short_name, spec.short_name)
        raise DeterminismError(
            f"runs of `{name}` may differ, and `{scope.name}` is deterministic: {found.why}",
            span=span,
            notes=(f"`{scope.name}` is declared deterministic at {scope.declared}",) if scope.declared else (),
            fix=_fix(span, found),
        )


def _fix(span: Span | None, found: Nondeterminism) -> Fix | str:
    """The fix as an edit of the call, where it is on one source line that matches the pattern."""
    if span is None or span.end_line > span.line or not found.pattern:
        return found.fix
    source = span.source_line[span.column - 1 : span.end_column - 1]
    changed = re.sub(found.pattern, found.replacement, source, count=1)
    return Fix(span, changed, found.fix) if source and changed != source else found.fix


def is_suspended(spec: OpSpec, own: frozenset[str], span: Span | None, gives: bool, record: Callable[[], None]) -> bool:
    """Whether an op is suspended here: dropped, or deferred until `record` is called at the end of the scope.

    Raises EffectError (T0108) for an op with results, which later ops may use.
    """
    for scope in scopes_here():
        if not isinstance(scope, Suspension):
            continue
        effects = Effects(own).meet(scope.effects)
        if not effects:
            continue
        if gives:
            raise EffectError(
                f"`{spec.short_name}` has effect `{effects}`, which is suspended here",
                span=span,
                notes=(f"suspended at {scope.span}",) if scope.span else (),
                fix="move it out of `effects.suspend`: it has results, so it cannot be left out",
            )
        if scope.defer:
            scope.deferred.append(record)
        return True
    return False
