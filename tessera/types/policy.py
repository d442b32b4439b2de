"""Numerics policies: how values are stored, computed, summed and rounded, as values that can be joined and compared."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from functools import lru_cache
from operator import attrgetter
from typing import Any

from tessera.diagnostics.codes import PolicyError
from tessera.types.dtype import BLOCK_FORMATS, BlockFormat, DType, bf16, f8e4m3, f32, find_dtype, nvfp4
from tessera.types.frozen import frozen


@frozen
class ComputeMode:
    """A mode of arithmetic on a stored type that is no storage type itself; `tf32` is the only one."""

    name: str
    storage: DType

    def __str__(self) -> str:
        return self.name

    __repr__ = __str__


tf32 = ComputeMode("tf32", f32)
"""f32 operands rounded to 10 mantissa bits before a multiplication: a mode of `f32`, written `f32 @ compute(tf32)`."""


@frozen
class Scaling:
    """Where the scales of a quantized tensor stand: one for each index of `axes`, or one for each `block`."""

    axes: tuple[int, ...] = ()
    block: tuple[int, ...] = ()

    def __str__(self) -> str:
        if self.block:
            return f"tile_scaled({', '.join(map(str, self.block))})"
        return f"scaled({', '.join(map(str, self.axes))})"

    __repr__ = __str__


_CHOICES = {
    "rounding": ("", "nearest_even", "toward_zero", "stochastic"),
    "saturation": ("", "saturate", "wrap"),
    "denormals": ("", "keep", "flush"),
}


_PUBLIC_NAMES = {"accumulate": "accum"}
_WORDS = {
    "rounding": {
        "nearest_even": "round_nearest_even",
        "toward_zero": "round_toward_zero",
        "stochastic": "stochastic_round",
    },
    "denormals": {"keep": "keep_denormals", "flush": "flush_denormals"},
}


def _check_kinds(policy: Policy) -> None:
    """Raise for a field of another kind than it has; dtypes of other libraries become ours."""
    kinds: tuple[tuple[str, Any, str], ...] = (
        ("storage", DType | BlockFormat, "a dtype such as bf16, or nvfp4"),
        ("compute", ComputeMode | DType, "a mode such as tf32 or a dtype"),
        ("accumulate", DType, "a dtype such as f32"),
    )
    for name, kind, wanted in kinds:
        given = getattr(policy, name)
        if not isinstance(given, kind) and (dtype := find_dtype(given)) is not None:
            object.__setattr__(policy, name, given := dtype)
        if given is not None and not isinstance(given, kind):
            raise PolicyError(f"`{_PUBLIC_NAMES.get(name, name)}` takes {wanted}, got {given!r}", fix=f"write {wanted}")
    factor: Any = policy.loss_scale
    if factor is not None and (isinstance(factor, bool) or not isinstance(factor, int | float)):
        raise PolicyError(f"`loss_scale` takes a number, got {factor!r}", fix="write `loss_scale(1024.0)`")
    if factor is not None and not factor > 0:
        raise PolicyError(f"`loss_scale` takes a positive factor, got {factor!r}", fix="write `loss_scale(1024.0)`")


def _check_policy(given: Any) -> None:
    if not isinstance(given, Policy):
        raise PolicyError(f"this is no policy: {given!r}", fix="write one, such as `Training()` or `accum(f32)`")


def _check_type(dtype: DType, policy: Policy) -> None:
    """Raise where a policy asks for what values of a type do not have."""
    total = policy.accumulate
    if total is not None and (total.is_float != dtype.is_float or total.bits < dtype.bits):
        raise PolicyError(f"`{dtype}` cannot accumulate in `{total}`: the accumulator must be as wide and of its kind")
    if isinstance(policy.compute, ComputeMode) and policy.compute.storage is not dtype:
        raise PolicyError(f"`{policy.compute}` is a compute mode of `{policy.compute.storage}`, not of `{dtype}`")
    if policy.rounding == "stochastic" and not dtype.is_float:
        raise PolicyError(f"`{dtype}` has no rounding to make stochastic")
    if policy.rounding in ("stochastic", "toward_zero") and dtype.is_float and dtype.compute is dtype:
        raise PolicyError(f"`{dtype}` is computed in {dtype}, and has nothing left to round")
    if policy.saturation == "wrap" and dtype.is_float:
        raise PolicyError(f"`{dtype}` is a float, which does not wrap", fix="use `saturate`")
    if policy.denormals == "flush" and not dtype.is_float:
        raise PolicyError(f"`{dtype}` has no denormals to flush")


@frozen
class Policy:
    """How values are stored, computed, accumulated and rounded; a field left at its default sets nothing.

    `storage` is what operands of contractions are stored as, and results of all other arithmetic; `compute` what
    contractions are computed in; `accumulate` their accumulator and that of reductions. `rounding` is nearest_even,
    toward_zero or stochastic, `saturation` saturate or wrap, `denormals` keep or flush. Equal policies have equal
    hashes in every process.

    >>> bf16 @ accum(f32) @ saturate
    bf16 @ accum(f32) @ saturate
    """

    storage: DType | BlockFormat | None = None
    compute: ComputeMode | DType | None = None
    accumulate: DType | None = None
    rounding: str = ""
    saturation: str = ""
    denormals: str = ""
    loss_scale: float | None = None
    scales: Scaling | None = None

    def __post_init__(self) -> None:
        _check_kinds(self)
        for name, known in _CHOICES.items():
            given = getattr(self, name)
            if not isinstance(given, str) or given not in known:
                shown = ", ".join(repr(one) for one in known if one)
                raise PolicyError(f"a policy has no {name} {given!r}", fix=f"`{name}` is one of {shown}")
        if isinstance(self.storage, DType):
            _check_type(self.storage, self)

    def __bool__(self) -> bool:
        return self != SILENT

    def __hash__(self) -> int:
        return _stable_hash(_values_of(self))

    @property
    def accum(self) -> DType | None:
        """What sums are kept in."""
        return self.accumulate

    @property
    def changes_values(self) -> bool:
        """Whether it asks for more than an accumulator: something that rounds otherwise, or elsewhere."""
        return _changes_values(self)

    @property
    def rounds_otherwise(self) -> bool:
        """Whether a value that does not fit becomes another than by the plain rounding."""
        return (
            self.rounding in ("toward_zero", "stochastic") or self.saturation == "saturate" or self.denormals == "flush"
        )

    @property
    def only_saturates(self) -> bool:
        """Whether a value that does not fit becomes the nearest that does, and all others round plainly."""
        is_plain = self.rounding not in ("toward_zero", "stochastic") and self.denormals != "flush"
        return self.saturation == "saturate" and is_plain

    def joined(self, other: Policy) -> Policy:
        """Both policies as one; raises PolicyError when they set one field differently."""
        _check_policy(other)
        changes = _fields_set(other)
        for name, theirs in changes.items():
            ours = getattr(self, name)
            if ours != getattr(SILENT, name) and ours != theirs:
                raise PolicyError(f"`{_PUBLIC_NAMES.get(name, name)}` is set twice, to `{ours}` and `{theirs}`")
        return replace(self, **changes)

    def overridden(self, inner: Policy) -> Policy:
        """This policy overridden by `inner`, field by field, as nested scopes are."""
        _check_policy(inner)
        if not self or not inner:
            return inner or self
        return _override(self, inner)

    @property
    def entries(self) -> dict[str, Any]:
        """What it says, by field, as plain values: what IR carries as an attribute."""
        return {name: _PLAIN.get(name, lambda value: value)(value) for name, value in _fields_set(self).items()}

    @staticmethod
    def of(entries: Any) -> Policy:
        """The policy of such entries; raises PolicyError where they are none."""
        if not isinstance(entries, dict):
            raise PolicyError(f"a policy is {{storage = bf16, accumulate = f32, ...}}, got {entries!r}")
        given: dict[str, Any] = dict(entries)  # pyright: ignore[reportUnknownArgumentType]
        # Every op of a program carries one of few policies. Of numbers that are equal the type counts too.
        plain = {name: value for name, value in given.items() if isinstance(value, str | int | float | DType)}
        key: Any = tuple((name, value.__class__, value) for name, value in plain.items())
        found = _KNOWN.get(key) if len(plain) == len(given) else None
        if found is None:
            found = Policy._read(given)
            if len(plain) == len(given) and len(_KNOWN) < _KNOWN_LIMIT:
                _KNOWN[key] = found
        return found

    @staticmethod
    def _read(given: Mapping[str, Any]) -> Policy:
        known = [field.name for field in fields(Policy)]
        unknown = [name for name in given if name not in known]
        if unknown:
            raise PolicyError(f"a policy has no field `{unknown[0]}`", fix=f"its fields are {', '.join(known)}")
        return Policy(**{name: _READ.get(name, lambda value: value)(value) for name, value in given.items()})

    def __str__(self) -> str:
        parts = [f"storage({self.storage})"] if self.storage else []
        parts += [f"compute({self.compute})"] if self.compute else []
        parts += [f"accum({self.accumulate})"] if self.accumulate else []
        parts += [_WORDS["rounding"][self.rounding]] if self.rounding else []
        parts += [self.saturation] if self.saturation else []
        parts += [_WORDS["denormals"][self.denormals]] if self.denormals else []
        parts += [f"loss_scale({_shortest(self.loss_scale)})"] if self.loss_scale is not None else []
        parts += [str(self.scales)] if self.scales is not None else []
        return " @ ".join(parts)

    def __repr__(self) -> str:
        return str(self) or "Policy()"


def _by_name(value: Any, names: Mapping[str, Any]) -> Any:
    return names.get(value, value) if isinstance(value, str) else value


def _scaling(value: Any) -> Any:
    return Scaling(**{name: tuple(sizes) for name, sizes in value.items()}) if isinstance(value, dict) else value  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]


_PLAIN: dict[str, Callable[[Any], Any]] = {
    "storage": lambda value: value if isinstance(value, DType) else value.name,
    "compute": lambda value: value if isinstance(value, DType) else value.name,
    "scales": lambda value: {"block": value.block} if value.block else {"axes": value.axes},
}
"""Fields whose values no attribute holds: formats and modes go by their names."""
_READ: dict[str, Callable[[Any], Any]] = {
    "storage": lambda value: _by_name(value, BLOCK_FORMATS),
    "compute": lambda value: _by_name(value, {tf32.name: tf32}),
    "scales": _scaling,
}

_KNOWN: dict[Any, Policy] = {}
_KNOWN_LIMIT = 256

SILENT = Policy()
"""The policy that says nothing."""
NEAREST = Policy(rounding="nearest_even")

# A trace asks the same of few policies at every op, so that answers are kept.

_values_of = attrgetter(*(field.name for field in fields(Policy)))


@lru_cache(maxsize=1 << 8)
def _stable_hash(values: tuple[Any, ...]) -> int:
    # Python's own hash of a text differs from process to process.
    return int.from_bytes(hashlib.sha256(str(Policy(*values)).encode()).digest()[:8], "little", signed=True)


@lru_cache(maxsize=1 << 8)
def _changes_values(policy: Policy) -> bool:
    return _drop_neutral(policy) not in (SILENT, NEAREST)


@lru_cache(maxsize=1 << 8)
def _override(outer: Policy, inner: Policy) -> Policy:
    return replace(outer, **_fields_set(inner))


def _drop_neutral(policy: Policy) -> Policy:
    """The policy without what changes no value that is there already."""
    return replace(
        policy, accumulate=None, loss_scale=None, scales=None, denormals=policy.denormals.replace("keep", "")
    )


def _fields_set(policy: Policy) -> dict[str, Any]:
    names = [field.name for field in fields(policy)]
    return {name: getattr(policy, name) for name in names if getattr(policy, name) != getattr(SILENT, name)}


def _shortest(number: float) -> str:
    return str(int(number)) if float(number).is_integer() else repr(number)


def accum(dtype: Any) -> Policy:
    """Accumulate this type in `dtype`."""
    return Policy(accumulate=dtype)


def compute(mode: ComputeMode | DType) -> Policy:
    """Compute contractions of this type in `mode`."""
    return Policy(compute=mode)


def storage(format: DType | BlockFormat) -> Policy:
    """Values are kept as `format`."""
    return Policy(storage=format)


def loss_scale(factor: float) -> Policy:
    """Gradients of this type are multiplied by `factor` while they are stored."""
    if factor is None:  # pyright: ignore[reportUnnecessaryComparison]
        raise PolicyError("`loss_scale` takes a number, got None", fix="write `loss_scale(1024.0)`")
    made = Policy(loss_scale=factor)
    return replace(made, loss_scale=float(factor))


def scaled(*axes: int) -> Policy:
    """Values of this type have a scale for each index of these axes; without any, one for all."""
    return Policy(scales=Scaling(axes=_sizes("scaled", axes, 0)))


def tile_scaled(*block: int) -> Policy:
    """Values of this type have a scale for each block of so many elements along each axis."""
    return Policy(scales=Scaling(block=_sizes("tile_scaled", block, 1)))


def _sizes(name: str, given: tuple[Any, ...], least: int) -> tuple[int, ...]:
    for one in given:
        if isinstance(one, bool) or not isinstance(one, int) or one < least:
            raise PolicyError(f"`{name}` takes integers from {least}, got {one!r}", fix=f"write `{name}({least})`")
    return given


stochastic_round = Policy(rounding="stochastic")
"""Rounding to this type is random, up or down in proportion to the distance."""

round_toward_zero = Policy(rounding="toward_zero")
"""Rounding to this type drops what does not fit."""

round_nearest_even = NEAREST
"""Rounding to this type goes to the nearest value, and to the even one between two: what is done if nothing is said."""

saturate = Policy(saturation="saturate")
"""A value outside the range of this type becomes its largest or smallest finite one."""

wrap = Policy(saturation="wrap")
"""A value outside the range of this integer type is taken modulo 2 to its bits."""

flush_denormals = Policy(denormals="flush")
"""Numbers too small for a full mantissa become zero, with their sign, as operands and as results."""

keep_denormals = Policy(denormals="keep")
"""Numbers too small for a full mantissa are kept: what is done if nothing is said."""


def Training(storage: DType = bf16, accumulate: DType = f32) -> Policy:  # noqa: N802 - a policy by its name
    """Values in 16 bits, accumulators in 32: for training with master weights kept elsewhere."""
    return Policy(storage=storage, accumulate=accumulate)


def Inference(storage: DType = f8e4m3, compute: DType = bf16) -> Policy:  # noqa: N802 - a policy by its name
    """Operands of contractions in 8 bits, saturating; everything else in 16 bits, accumulators in 32."""
    return Policy(storage=storage, compute=compute, accumulate=f32, saturation="saturate")


def NVFP4(accum: DType = f32) -> Policy:  # noqa: N802 - a policy by its name
    """Operands of contractions in blocks of 16 4-bit numbers with 8-bit scales; accumulators in f16 or f32."""
    if getattr(accum, "name", "") not in ("f16", "f32"):
        raise PolicyError(f"`NVFP4` sums in f16 or f32, not {accum}", fix="write `NVFP4(accum=f32)`")
    return Policy(storage=nvfp4, compute=bf16, accumulate=accum, saturation="saturate")


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

    Raises PolicyError when the policy contradicts the type or another policy.
    """
    if (total := find_dtype(policy)) is not None:
        policy = accum(total)
    if not isinstance(policy, Policy):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise PolicyError(
            f"`{base} @ {policy!r}` is no policy",
            fix="use accum, compute, stochastic_round, round_toward_zero, saturate, wrap, flush_denormals, loss_scale",
        )
    start = base if isinstance(base, PolicyType) else PolicyType(base, SILENT)
    joined = PolicyType(start.dtype, start.policy.joined(policy))
    if joined.policy.storage is not None and joined.policy.storage is not joined.dtype:
        raise PolicyError(f"`{joined.dtype}` is stored as itself, not as `{joined.policy.storage}`")
    _check_type(joined.dtype, joined.policy)
    return joined
