"""Precision that follows the numbers: loss scales that skip and adapt, and policies that switch by what is seen."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tessera.api.eager import install as _install
from tessera.diagnostics.codes import DTypeError, PolicyError
from tessera.frontend import pytree
from tessera.frontend.arguments import check_bool, check_callables, check_int, check_sequence
from tessera.frontend.concrete import Tracer
from tessera.frontend.functions.contraction import dequantize, matmul, scale_of
from tessera.frontend.functions.contraction import quantize as quantized_values
from tessera.frontend.functions.elementwise import abs as magnitude
from tessera.frontend.functions.elementwise import div, where
from tessera.frontend.functions.operands import as_tensor, cast, dtype_of, rank_of
from tessera.frontend.functions.reduction import max as largest
from tessera.frontend.functions.reduction import min as smallest
from tessera.frontend.pytree import as_tuple, flatten, unflatten
from tessera.types.annotation import TensorAnnotation, annotation_of, parse_policy
from tessera.types.dim import Dim
from tessera.types.dtype import FORMATS, f32, i32, parse_dtype
from tessera.types.frozen import frozen
from tessera.types.policy import Policy

# `Quantized`: narrow values with their scales, as one typed value that functions take, multiply and dequantize.

_install()


class Quantized:
    """Values of a narrow dtype, and the scales that make numbers of them: `values * scale`.

    Scales broadcast to the values, or there is one for each `block` of them. As a type it is written
    `Quantized["K", "N", i8 @ scaled(1)]`, or `Tensor` in front: a scale for each index of axis 1.

    >>> q = ts.quantize(ts.array([[0.5, -2.0], [0.25, 1.0]]), ts.i8, axis=1)
    >>> q.values
    Tensor([2, 2] i8, [[127, -127],
                       [64, 64]])
    """

    __slots__ = ("block", "scale", "values")
    __array_ufunc__ = None  # NumPy then leaves `array @ q` to `q.__rmatmul__`
    has_matmul = True
    """Tensors leave `x @ q` to it too."""

    def __init__(self, values: Any, scale: Any, block: Sequence[int] = ()) -> None:
        self.values, self.scale = values, scale
        self.block = tuple(
            [check_int("Quantized", "block", size) for size in check_sequence("Quantized", "block", block)]
        )

    def __class_getitem__(cls, items: Any) -> TensorAnnotation:
        return annotation_of(items, "Quantized")

    @staticmethod
    def field_annotations(annotation: TensorAnnotation) -> list[TensorAnnotation | None]:
        """What values and scales are declared to be by `Tensor["K", "N", i8 @ scaled(1)]`."""
        scales = annotation.policy.scales
        values = TensorAnnotation(annotation.dims, annotation.dtype)
        if scales is None:
            return [values, None]
        if scales.block:
            dims = tuple(dim // own for dim, own in zip(annotation.dims, scales.block, strict=True))
        else:
            one = Dim.constant(1)
            dims = tuple(dim if axis in scales.axes else one for axis, dim in enumerate(annotation.dims))
        return [values, TensorAnnotation(dims, f32)]

    @property
    def shape(self) -> tuple[Any, ...]:
        return self.values.shape

    @property
    def dtype(self) -> Any:
        """The dtype of the values."""
        return dtype_of(self.values)

    def dequantize(self, dtype: Any = f32) -> Any:
        """The numbers, as floats."""
        return dequantize(self.values, self.scale, dtype=dtype, block=self.block)

    def __matmul__(self, other: Any) -> Any:
        if not isinstance(other, Quantized):
            return matmul(self.dequantize(), other)
        return _matmul(self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return matmul(other, self.dequantize())

    def __repr__(self) -> str:
        dims = ", ".join(f'"{size}"' if not isinstance(size, int) else str(size) for size in self.shape)
        kind = f"tile_scaled({', '.join(map(str, self.block))})" if self.block else f"scaled{_axes(self)}"
        return f"Quantized[{dims}, {self.dtype} @ {kind}]"


def _axes(q: Quantized) -> str:
    rank = rank_of(q.values)
    shape = (1,) * (rank - rank_of(q.scale)) + tuple(q.scale.shape)
    return f"({', '.join(str(axis) for axis, size in enumerate(shape) if size != 1)})"


def _matmul(a: Quantized, b: Quantized) -> Any:
    """Integers are multiplied and summed as such where no scale changes along the sum; else floats are."""
    along = (a.scale.shape[-1:] or (1,))[0], (b.scale.shape[-2:-1] or (1,))[0]
    is_whole = a.dtype.is_integer and b.dtype.is_integer and not a.block and not b.block
    if not is_whole or not all(isinstance(size, int) and size == 1 for size in along):
        return matmul(a.dequantize(), b.dequantize())
    total = matmul(a.values, b.values, dtype=i32, accumulate=i32)
    return dequantize(total, a.scale * b.scale)


def quantize(
    x: Any,
    dtype: Any,
    *,
    axis: Any = None,
    block: Sequence[int] = (),
    scale: Any = None,
    rounding: str = "nearest_even",
) -> Quantized:
    """`x` in a narrow dtype with a scale for each index of `axis`, for each `block`, or one for all.

    Without `scale` the largest of each part goes to the largest of the dtype. Nothing is beyond the ends.
    """
    target = parse_dtype(dtype)
    if not target.is_integer and target.bits != 8:
        raise DTypeError(f"`quantize` makes i8, i4, u8 or a float8, not {target}", fix="cast to a wider float instead")
    chosen = scale_of(x, target, axis=axis, block=block) if scale is None else scale
    return Quantized(
        quantized_values(x, chosen, target, block=as_tuple(block), rounding=rounding), chosen, as_tuple(block)
    )


def _split(q: Quantized) -> tuple[tuple[Any, ...], tuple[int, ...]]:
    return (q.values, q.scale), q.block


pytree.register(
    Quantized,
    _split,
    lambda block, children: Quantized(children[0], children[1], as_tuple(block)),
    fields=("values", "scale"),
)


@frozen
class ScaleStep:
    """What one step of a loss scaler saw and did."""

    step: int
    scale: float
    is_finite: bool


class LossScaler:
    """Dynamic loss scaling: a factor on the loss that keeps small gradients representable and shrinks on overflow.

    A step whose gradients are not all finite is skipped and the scale is multiplied by `backoff`; after `interval` good
    steps in a row it is multiplied by `growth`. `history` holds every step.

    >>> scaler = ts.LossScaler(scale=8.0, interval=2)
    >>> [scaler.update(found) for found in (True, True, False)], scaler.scale
    ([True, True, False], 8.0)
    """

    def __init__(
        self,
        policy: Policy | None = None,
        *,
        scale: float = 2.0**16,
        growth: float = 2.0,
        backoff: float = 0.5,
        interval: int = 2000,
        largest: float = 2.0**24,
        least: float = 2.0**-14,
    ) -> None:
        if policy is not None and not isinstance(policy, Policy):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise PolicyError(
                f"a loss scaler takes a Policy, got {policy!r}", fix="write `LossScaler(loss_scale(1024.0))`"
            )
        start = policy.loss_scale if policy is not None and policy.loss_scale is not None else scale
        check_numbers("a loss scaler", scale=start)
        check_scale("a loss scaler", start, 1, growth, backoff, interval, largest, least)
        self.scale, self.growth, self.backoff = float(start), growth, backoff
        self.interval, self.largest, self.least = interval, largest, least
        self.good_steps = 0
        self.history: list[ScaleStep] = []

    @property
    def settings(self) -> ScaleSettings:
        """How the scale adapts."""
        return self.growth, self.backoff, self.interval, self.largest, self.least

    def scaled(self, loss: Any) -> Any:
        """The loss, or the gradient that goes into the backward pass, times the scale."""
        return (loss if isinstance(loss, int | float) else as_tensor(loss)) * self.scale

    def unscaled(self, gradients: Any) -> Any:
        """A tree of gradients in f32, without the scale."""
        leaves, form = flatten(gradients)
        return unflatten(form, [div(cast(as_tensor(leaf), f32), self.scale) for leaf in leaves])

    def step(self, gradients: Any, update: Callable[[Any], Any]) -> bool:
        """Call `update` with the gradients without the scale, unless one is not finite; then skip, and back off."""
        check_callables("LossScaler.step", update=update)
        _check_values("LossScaler.step", gradients)
        clear = self.unscaled(gradients)
        leaves = [leaf for leaf in flatten(clear)[0] if leaf.size]
        is_finite = all(math.isfinite(float(largest(magnitude(leaf)).item())) for leaf in leaves)
        if is_finite:
            update(clear)
        return self.update(is_finite)

    def update(self, is_finite: bool) -> bool:
        """Note a step and adapt; gives back whether it was good."""
        is_finite = check_bool("LossScaler.update", "is_finite", is_finite)
        self.history.append(ScaleStep(len(self.history), self.scale, is_finite))
        given, settings = (self.scale, self.good_steps), self.settings
        self.scale, self.good_steps = adapt_scale(settings, given, is_finite, lambda c, a, b: a if c else b)
        return is_finite

    def __repr__(self) -> str:
        skipped = sum(not one.is_finite for one in self.history)
        return f"LossScaler(scale={self.scale:g}, {len(self.history)} steps, {skipped} skipped)"


ScaleSettings = tuple[float, float, int, float, float]
"""What a loss scale grows and shrinks by, after how many good steps it grows, and the most and the least it is."""


def adapt_scale(
    settings: ScaleSettings,
    state: tuple[Any, Any],
    is_finite: Any,
    choose: Callable[[Any, Any, Any], Any],
) -> tuple[Any, Any]:
    """A scale and the good steps in a row, of numbers or of tensors, after one more step.

    `choose(condition, one, other)` is the one where the condition holds.
    """
    growth, backoff, interval, largest, least = settings
    scale, count = state[0], state[1] + 1
    grown, shrunk = scale * growth, scale * backoff
    is_due = count >= interval
    good = choose(is_due, choose(grown < largest, grown, largest), scale)
    return (
        choose(is_finite, good, choose(shrunk > least, shrunk, least)),
        choose(is_finite, choose(is_due, 0, count), 0),
    )


def check_scale(
    what: str,
    start: float | None,
    fewest: int,
    growth: float,
    backoff: float,
    interval: int,
    largest: float,
    least: float,
) -> None:
    """Raises PolicyError (T0107) unless a scale, where it is known before a program runs, and its settings are sound.

    `fewest` is the least `interval`; a scale that stays as it is, with 0, needs no more than to be finite.
    """
    check_numbers(what, growth=growth, backoff=backoff, interval=interval, largest=largest, least=least)
    rules = [
        ("growth", growth, growth > 1.0, "above 1"),
        ("backoff", backoff, 0.0 < backoff < 1.0, "between 0 and 1"),
        ("interval", interval, interval >= fewest, f"of at least {fewest}"),
        ("interval", interval, float(interval).is_integer() and interval < 2**31, "that is whole, and below 2**31"),
        ("largest", largest, largest <= FORMATS["f32"].largest, "that is finite in f32"),
        ("least", least, 0.0 < least <= largest, "above 0, and not above `largest`"),
        ("least", least, not 0.0 < least < 2.0**-126, "that is a normal number of f32"),
    ]
    if start is not None and not start > 0.0:
        rules.append(("scale", start, False, "above 0"))
    elif start is not None and not interval:
        rules.append(("scale", start, start <= FORMATS["f32"].largest, "that is finite in f32"))
    elif start is not None:
        within = f"from `least`, {least:g}, to `largest`, {largest:g}"
        rules.append(("scale", start, least <= start <= largest, within))
    check_rules(what, rules)


def check_numbers(what: str, **given: Any) -> None:
    """Raises for what cannot even be compared."""
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise PolicyError(f"{what} takes `{name}` as a number, got {value!r}", fix=f"change `{name}`")


def check_rules(what: str, rules: Sequence[tuple[str, Any, bool, str]]) -> None:
    """Raises for numbers that break a rule: each with its name, its value, whether it holds, and what it must be."""
    wrong = [(name, f"`{name}` {rule}, got {value!r}") for name, value, holds, rule in rules if not holds]
    if wrong:
        raise PolicyError(
            f"{what} takes {', and '.join(reason for _, reason in wrong)}",
            fix=f"change {' and '.join(f'`{name}`' for name, _ in wrong)}",
        )


def _check_values(what: str, tensors: Any) -> None:
    """Raises where a decision is wanted from tensors that have no values yet."""
    if any(isinstance(leaf, Tracer) for leaf in flatten(tensors)[0]):
        raise PolicyError(
            f"`{what}` decides by values, which tensors of a traced function do not have",
            fix="call it outside of `jit`, with what the function returns",
        )


@frozen
class Switch:
    """One change of policy: at which step, why, and from what to what."""

    step: int
    reason: str
    before: Policy
    after: Policy

    def __str__(self) -> str:
        return f"step {self.step}: {self.before} -> {self.after} ({self.reason})"

    @property
    def fields(self) -> dict[str, Any]:
        """Numbers and texts alone, to be kept in a file; `Switch.of` reads them."""
        return {"step": self.step, "reason": self.reason, "before": str(self.before), "after": str(self.after)}

    @staticmethod
    def of(fields: Mapping[str, Any]) -> Switch:
        """The switch of such fields; raises PolicyError where one is missing."""
        missing = [name for name in ("step", "reason", "before", "after") if name not in fields]
        if missing:
            raise PolicyError(
                f"a switch has no `{missing[0]}`, got {sorted(fields)}", fix="keep all of `Switch.fields`"
            )
        return Switch(
            int(fields["step"]), fields["reason"], parse_policy(fields["before"]), parse_policy(fields["after"])
        )


class AdaptivePrecision:
    """Chooses a policy by what it sees: the range of tensors, or the scale of gradients.

    `observe` takes tensors or numbers once a step; where the largest magnitude is above `above`, or the smallest but
    zero below `below`, the policy is `wide` from then on, and `narrow` again after `patience` quiet steps. Every
    switch is in `log`; what `replay()` gives makes the same choices without looking.

    >>> adaptive = ts.AdaptivePrecision(ts.Training(), ts.Policy(storage=ts.f32), above=1000.0)
    >>> adaptive.observe(ts.array([1.0, 2000.0]))
    storage(f32)
    >>> print(adaptive.log[0])
    step 0: storage(bf16) @ accum(f32) -> storage(f32) (largest 2000 above 1000)
    """

    def __init__(
        self,
        narrow: Policy,
        wide: Policy,
        *,
        above: float = float("inf"),
        below: float = 0.0,
        patience: int = 10,
        replay: Iterable[Switch] | None = None,
    ) -> None:
        for name, given in (("narrow", narrow), ("wide", wide)):
            if not isinstance(given, Policy):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise PolicyError(
                    f"`{name}` is a Policy, got {given!r}", fix="write `AdaptivePrecision(Training(), ...)`"
                )
        check_numbers("adaptive precision", above=above, below=below, patience=patience)
        rules = (
            ("above", above, above > 0, "above 0"),
            ("below", below, 0 <= below < above, "from 0, and less than `above`"),
            ("patience", patience, patience >= 1, "of at least 1"),
        )
        check_rules("adaptive precision", rules)
        self.narrow, self.wide, self.above, self.below, self.patience = narrow, wide, above, below, patience
        self.policy, self.steps, self.quiet = narrow, 0, 0
        self.log: list[Switch] = []
        self._replayed = None if replay is None else {switch.step: switch for switch in replay}

    def replay(self) -> AdaptivePrecision:
        """A new one that makes the switches of this one's log, whatever it is shown."""
        return AdaptivePrecision(
            self.narrow, self.wide, above=self.above, below=self.below, patience=self.patience, replay=self.log
        )

    def __repr__(self) -> str:
        return f"AdaptivePrecision({self.policy}, {self.steps} steps, {len(self.log)} switches)"

    def observe(self, *seen: Any) -> Policy:
        """Look at tensors or numbers of a step; the policy of the next one."""
        _check_values("AdaptivePrecision.observe", seen)
        if self._replayed is not None:
            switch = self._replayed.get(self.steps)
            if switch is not None:
                self._switch(switch.after, switch.reason)
        else:
            self._decide(self._reason(seen))
        self.steps += 1
        return self.policy

    def _decide(self, reason: str) -> None:
        if reason and self.policy == self.wide:
            self.quiet = 0
        elif reason:
            self._switch(self.wide, reason)
        elif self.policy == self.wide:
            self.quiet += 1
            if self.quiet >= self.patience:
                self._switch(self.narrow, f"{self.patience} quiet steps")

    def _switch(self, after: Policy, reason: str) -> None:
        self.log.append(Switch(self.steps, reason, self.policy, after))
        self.policy, self.quiet = after, 0

    def _reason(self, seen: Sequence[Any]) -> str:
        for one in seen:
            for least, most in _magnitudes(one):
                if not math.isfinite(most):
                    return f"a value is {most:g}"
                if most > self.above:
                    return f"largest {most:.6g} above {self.above:.6g}"
                if 0 < least < self.below:
                    return f"least {least:.6g} below {self.below:.6g}"
        return ""


def _magnitudes(seen: Any) -> list[tuple[float, float]]:
    """The least magnitude that is not zero and the largest, of each tensor or number."""
    if isinstance(seen, int | float):
        return [(abs(seen), abs(seen))]
    found: list[tuple[float, float]] = []
    for leaf in flatten(seen)[0]:
        size = magnitude(cast(as_tensor(leaf), f32))
        if size.size:
            found.append((float(smallest(where(size == 0.0, float("inf"), size)).item()), float(largest(size).item())))
    return found
