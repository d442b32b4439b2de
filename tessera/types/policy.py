"""Numerics policies: what `bf16 @ accum(f32) @ stochastic_round` says beyond the storage type."""

from __future__ import annotations

from dataclasses import fields, replace

from tessera.diagnostics.codes import AnnotationError
from tessera.types.dtype import DType, f32
from tessera.types.frozen import frozen


@frozen
class ComputeMode:
    """A way to do arithmetic on a stored type that is no storage type itself; `tf32` is the only one."""

    name: str
    storage: DType

    def __str__(self) -> str:
        return self.name

    __repr__ = __str__


tf32 = ComputeMode("tf32", f32)
"""f32 operands rounded to 10 mantissa bits before a multiplication: a mode of `f32`, written `f32 @ compute(tf32)`."""


@frozen
class Policy:
    """How values of a type are computed; a field left at its default says nothing.

    >>> bf16 @ accum(f32) @ saturate
    bf16 @ accum(f32) @ saturate
    """

    compute: ComputeMode | DType | None = None
    accum: DType | None = None
    stochastic_round: bool = False
    saturate: bool = False
    loss_scale: float | None = None

    def __bool__(self) -> bool:
        return self != SILENT

    def joined(self, other: Policy) -> Policy:
        """Both policies as one; raises AnnotationError when they set one field differently."""
        changes: dict[str, object] = {}
        for field in fields(other):
            theirs, default = getattr(other, field.name), getattr(SILENT, field.name)
            ours = getattr(self, field.name)
            if theirs == default:
                continue
            if ours != default and ours != theirs:
                raise AnnotationError(f"`{field.name}` is set twice, to `{ours}` and `{theirs}`")
            changes[field.name] = theirs
        return replace(self, **changes)  # pyright: ignore[reportArgumentType]

    def __str__(self) -> str:
        parts = [f"compute({self.compute})"] if self.compute else []
        parts += [f"accum({self.accum})"] if self.accum else []
        parts += ["stochastic_round"] if self.stochastic_round else []
        parts += ["saturate"] if self.saturate else []
        parts += [f"loss_scale({_shortest(self.loss_scale)})"] if self.loss_scale is not None else []
        return " @ ".join(parts)

    __repr__ = __str__


SILENT = Policy()
"""The policy that says nothing."""


def _shortest(number: float) -> str:
    return str(int(number)) if number.is_integer() else repr(number)


def accum(dtype: DType) -> Policy:
    """Sums of this type are kept in `dtype`."""
    if not isinstance(dtype, DType):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise AnnotationError(f"`accum` takes a dtype such as f32, got {dtype!r}")
    return Policy(accum=dtype)


def compute(mode: ComputeMode | DType) -> Policy:
    """Products of this type are computed in `mode`."""
    if not isinstance(mode, ComputeMode | DType):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise AnnotationError(f"`compute` takes a mode such as tf32 or a dtype, got {mode!r}")
    return Policy(compute=mode)


def loss_scale(factor: float) -> Policy:
    """Gradients of this type are multiplied by `factor` while they are stored."""
    if isinstance(factor, bool) or not isinstance(factor, int | float):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise AnnotationError(f"`loss_scale` takes a number, got {factor!r}")
    if not factor > 0:
        raise AnnotationError(f"`loss_scale` takes a positive factor, got {factor!r}")
    return Policy(loss_scale=float(factor))


stochastic_round = Policy(stochastic_round=True)
"""Rounding to this type is random, up or down in proportion to the distance."""

saturate = Policy(saturate=True)
"""A value outside the range of this type becomes its largest or smallest finite one."""


@frozen
class PolicyType:
    """An element type with a numerics policy: what `dtype @ policy` makes."""

    dtype: DType
    policy: Policy

    def __matmul__(self, other: Policy | DType) -> PolicyType:
        return attach(self, other)

    def __str__(self) -> str:
        return f"{self.dtype} @ {self.policy}" if self.policy else str(self.dtype)

    __repr__ = __str__


def attach(base: DType | PolicyType, policy: Policy | DType) -> PolicyType:
    """`base @ policy`; a bare dtype on the right is short for `accum(dtype)`.

    Raises AnnotationError when the policy contradicts the type or another policy.
    """
    if isinstance(policy, DType):
        policy = accum(policy)
    if not isinstance(policy, Policy):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise AnnotationError(
            f"`{base} @ {policy!r}` is no policy: use accum, compute, stochastic_round, saturate, loss_scale"
        )
    start = base if isinstance(base, PolicyType) else PolicyType(base, SILENT)
    joined = PolicyType(start.dtype, start.policy.joined(policy))
    _check(joined)
    return joined


def _check(made: PolicyType) -> None:
    dtype, policy = made.dtype, made.policy
    if policy.accum is not None and (policy.accum.kind != dtype.kind or policy.accum.bits < dtype.bits):
        raise AnnotationError(
            f"`{dtype}` cannot accumulate in `{policy.accum}`: the accumulator must be as wide and alike"
        )
    if isinstance(policy.compute, ComputeMode) and policy.compute.storage is not dtype:
        raise AnnotationError(f"`{policy.compute}` is a way to compute `{policy.compute.storage}`, not `{dtype}`")
    if policy.stochastic_round and not dtype.is_float:
        raise AnnotationError(f"`{dtype}` has no rounding to make stochastic")
