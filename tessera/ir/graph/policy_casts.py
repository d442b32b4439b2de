"""Ops under a numerics policy: the conversions around each, every one an op that says how it rounds.

What a policy does depends on the op's `policy` facet (`PolicyRule`), never on its name: it keeps the op, rounds its
results, or stores and accumulates the factors of a contraction as the policy says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial, reduce
from typing import Any, Protocol, TypeAlias, runtime_checkable

from tessera.diagnostics.codes import PolicyError
from tessera.diagnostics.error import HERE, Span
from tessera.ir.base.spec import Attributes, Builder, OpSpec, PolicyRule
from tessera.ir.graph.building import accumulator, cast, constant
from tessera.ir.graph.ops import REGISTRY, policy_of
from tessera.ir.graph.ops.quantize import tensor_scale
from tessera.ir.graph.ops.random import element_index, key_parts
from tessera.ir.tile.facets import Contraction, Pointwise, Reduction
from tessera.types import dtype as dt
from tessera.types.dim import Dim
from tessera.types.dtype import FORMATS, BlockFormat, DType
from tessera.types.frozen import frozen
from tessera.types.policy import ComputeMode, Policy
from tessera.types.promotion import holds, integer_range, promote_all
from tessera.types.shape import Shape, TensorType

Bits: TypeAlias = Callable[[Builder, tuple[Dim, ...]], Any]
"""32 random bits for each element of a shape."""


@runtime_checkable
class Checking(Protocol):
    """A builder at the user's line, which can run the rule of an op that it does not build."""

    def check(self, name: str, operands: Sequence[Any], attributes: Attributes) -> None: ...


@lru_cache(maxsize=1 << 8)
def needs_work(policy: Policy) -> bool:
    """Whether a policy changes more than the accumulators of contractions and sums."""
    total = policy.accumulate
    return policy.changes_values or (total is not None and total.is_float and total.bits != 32)


def is_composite(spec: OpSpec) -> bool:
    """Whether an op is made of several others, and rounds once, at their end."""
    return policy_of(spec).role == "round" and not isinstance(spec.lower, Pointwise | Reduction)


@frozen
class OpUnderPolicy:
    """One op, to be built under a policy."""

    b: Builder
    op: str
    attributes: Attributes
    policy: Policy
    bits: Bits
    span: Span | None = HERE
    is_stored: Callable[[Any], bool] | None = None
    """For an op of a derivative, whose results have the dtypes of their values: whether a factor was stored before."""

    def apply(self, operands: Sequence[Any]) -> Any:
        """The op's result, or all of them, with the conversions that the policy asks for."""
        rule, dtypes = self.rule, [self.b.type_of(value).dtype for value in operands]
        if rule.role == "convert":
            return self._cast(operands[0])
        if self.policy.saturation == "saturate" and can_saturate(rule, dtypes):
            return _saturate(self.b, self.op, operands)
        floats = [dtype for dtype in dtypes if dtype.is_float]
        if not floats or dt.f64 in floats or not rule.is_arithmetic:
            return self.b.emit(self.op, *operands, **self.attributes)
        if self.policy.denormals == "flush":
            operands = [self._flush(value) for value in operands]
        return self._contract(operands) if rule.role == "contract" else self._round(operands)

    @property
    def rule(self) -> PolicyRule:
        return policy_of(REGISTRY[self.op])

    def fail(self, message: str, fix: str = "") -> PolicyError:
        return PolicyError(message, span=self.span, notes=(f"the policy is `{self.policy}`",), fix=fix or None)

    # Conversions.

    def narrow(self, value: Any, dtype: DType) -> Any:
        """A float in another dtype, rounded as the policy says where the dtype is narrower."""
        source = self.b.type_of(value).dtype
        if dtype is not source and holds(dtype, source):
            return cast(self.b, value, dtype)
        if dtype is source and not (self.policy.saturation or self._flushes):
            return value
        return self._round_to(value, dtype.name, self.policy.rounding or "nearest_even")

    @property
    def _flushes(self) -> bool:
        return self.policy.denormals == "flush"

    def _round_to(self, value: Any, format: str, rounding: str) -> Any:
        kind = FORMATS[format]
        conversion = {
            "format": format,
            "saturation": "" if kind.is_float and self.policy.saturation == "wrap" else self.policy.saturation,
            "denormals": "flush" if kind.is_float and self._flushes else "keep",
        }
        if rounding == "stochastic" and format != "f32":
            return self.b.emit("round_stochastic", value, self.bits(self.b, self.b.type_of(value).shape), **conversion)
        return self.b.emit("round_to", value, rounding=rounding.replace("stochastic", "nearest_even"), **conversion)

    def _flush(self, value: Any) -> Any:
        dtype = self.b.type_of(value).dtype
        if not dtype.is_float:
            return value
        return self.b.emit("round_to", value, format=dtype.name, denormals="flush")

    def _cast(self, value: Any) -> Any:
        source, target = self.b.type_of(value).dtype, self.attributes["dtype"]
        is_stated = self.policy.rounding or self.policy.saturation or self._flushes
        if self.policy.saturation == "saturate" and is_integer(source) and is_integer(target):
            return _clamp(self.b, value, target)
        if (
            not is_stated
            or not source.is_float
            or source is dt.f64
            or target.name not in FORMATS
            or holds(target, source)
        ):
            return self.b.emit("cast", value, dtype=target)
        # A cast to an integer truncates where the policy does not say how it rounds.
        return self._round_to(value, target.name, self.policy.rounding or _own_rounding(target))

    # Ops.

    def _result(self, natural: DType) -> DType:
        """The dtype of a result: what the policy computes in or stores, else the op's own."""
        policy = self.policy
        if policy.storage is None or not natural.is_float or self.is_stored is not None:
            return natural
        if isinstance(policy.compute, DType):
            return policy.compute
        return policy.storage if isinstance(policy.storage, DType) else natural

    def _round(self, operands: Sequence[Any]) -> Any:
        """The op in f32, and its float results rounded."""
        policy, b = self.policy, self.b
        types = [b.type_of(value) for value in operands]
        attributes = dict(self.attributes)
        has_accumulator = is_summing(attributes)
        if has_accumulator and attributes["accumulate"] is None and types[0].dtype.is_float:
            attributes["accumulate"] = policy.accumulate
        if is_composite(REGISTRY[self.op]) and policy.accumulate not in (None, dt.f32) and not has_accumulator:
            return self._accumulate_composite(operands, policy.accumulate)
        if not policy.changes_values:
            return b.emit(self.op, *operands, **attributes)
        wide = [cast(b, value, dt.f32) if b.type_of(value).dtype.is_float else value for value in operands]
        narrow = promote_all([type.dtype for type in types if type.dtype.is_float]) or dt.f32
        found = b.emit(self.op, *wide, **attributes)
        several: tuple[Any, ...] = found if isinstance(found, tuple) else (found,)  # pyright: ignore[reportUnknownVariableType]
        made = tuple(self.narrow(one, self._result(narrow)) if self._is_float(one) else one for one in several)
        return made if isinstance(found, tuple) else made[0]

    def _accumulate_composite(self, operands: Sequence[Any], total: DType) -> Any:
        """A composite op, each of its sums in the accumulator that is asked for."""
        b, decompose = self.b, REGISTRY[self.op].decompose
        if decompose is None:
            raise self.fail(
                f"`{self.op}` keeps its sums in f32, not in {total}", "put it in `with policy(accumulate=f32):`"
            )
        floats = [b.type_of(value).dtype for value in operands if self._is_float(value)]
        wide = [cast(b, value, dt.f32) if self._is_float(value) else value for value in operands]
        found = decompose(AccumulatingBuilder(b, total), wide, self.attributes)
        return self.narrow(found, self._result(promote_all(floats) or dt.f32))

    def _contract(self, operands: Sequence[Any]) -> Any:
        """A contraction of factors as the policy stores them, in its accumulator."""
        policy, b = self.policy, self.b
        types = [b.type_of(value) for value in operands]
        natural = self.attributes.get("dtype") or promote_all([type.dtype for type in types if type.dtype.is_float])
        if natural is None:
            return b.emit(self.op, *operands, **self.attributes)  # its own rule says which dtypes do not match
        self._check_floats(natural)
        result = self._result(natural)
        total = self.attributes.get("accumulate") or policy.accumulate
        if isinstance(policy.storage, BlockFormat) or (self.rule.by_parts and total not in (None, dt.f32)):
            return self._round_contraction(self._contract_blocks(operands, total), result)
        kept = [self._store(value) if self._is_factor(value, at) else value for at, value in enumerate(operands)]
        if total is not None and self._lacks_accumulator(total):
            return self._round_contraction(self._accumulate(kept, total), result)
        attributes = dict(self.attributes)
        if total is not None and "accumulate" in attributes:
            attributes["accumulate"] = total
        if not policy.changes_values:
            return b.emit(self.op, *kept, **attributes)
        return self._round_contraction(self._compute(kept, total), result)

    def _lacks_accumulator(self, total: DType) -> bool:
        """Whether the kernel of a contraction cannot sum in a dtype: none can in a narrow one, few in another."""
        return total.bits < 32 or ("accumulate" not in self.attributes and total is not dt.f32)

    def _check_floats(self, natural: DType) -> None:
        for dtype, message, fix in (
            (self.policy.compute, "`{}` of {} cannot be computed in {}", "compute in a float"),
            (self.policy.storage, "operands of `{}` of {} cannot be stored as {}", "store a float"),
        ):
            if isinstance(dtype, DType) and not dtype.is_float:
                message = message.format(self.op, natural, dtype)
                raise self.fail(f"{message}, which is no float", f"{fix}, or `quantize` its operands")

    def _compute(self, kept: Sequence[Any], total: DType | None) -> Any:
        """The contraction of operands as they are stored, in f32."""
        b, attributes = self.b, dict(self.attributes)
        if "accumulate" in attributes:
            attributes["accumulate"] = total
        if "dtype" not in attributes:
            wide = kept if self._rounds_itself(kept) else [cast(b, v, dt.f32) if self._is_float(v) else v for v in kept]
            return b.emit(self.op, *wide, **attributes)
        attributes["dtype"] = dt.f64 if total is dt.f64 else dt.f32
        made = b.emit(self.op, *kept, **attributes)
        return cast(b, made, dt.f32) if total is dt.f64 else made

    def _rounds_itself(self, kept: Sequence[Any]) -> bool:
        """Whether an op of operands as they are stored computes in f32 and rounds as the policy says, once, by itself.

        So it has the kernels of its dtype: those of f32 have no tensor cores.
        """
        policy = self.policy
        factors = {self.b.type_of(value).dtype for at, value in enumerate(kept) if self._is_factor(value, at)}
        is_plain = policy.rounding in ("", "nearest_even") and not policy.saturation and not self._flushes
        return is_plain and len(factors) == 1 and self._result(*factors) in factors

    def _round_contraction(self, made: Any, result: DType) -> Any:
        if not isinstance(made, tuple):
            return self.narrow(made, result)
        several: tuple[Any, ...] = made  # pyright: ignore[reportUnknownVariableType]
        # Other results stay in f32, whatever the policy stores; a rounding to f32 says so, and no check misses one.
        wide = [self.b.type_of(one).dtype is dt.f32 for one in several[1:]]
        others = [
            self.b.emit("round_to", one, format="f32") if is_wide else one
            for one, is_wide in zip(several[1:], wide, strict=True)
        ]
        return (self.narrow(several[0], result), *others)

    def _contract_blocks(self, operands: Sequence[Any], total: DType | None) -> Any:
        """A contraction of operands that are stored in blocks; of two factors, their scales are put on last."""
        b = self.b
        if self.rule.by_parts:
            decompose = REGISTRY[self.op].decompose
            assert decompose is not None
            return decompose(_PolicyBuilder(self), operands, self.attributes)
        is_narrow = total is not None and total.bits < 32
        parts = [self._split_blocks(value, at) for at, value in enumerate(operands)]
        if self.rule.factors is not None or is_narrow:
            kept = [value if scale is None else b.emit("mul", cast(b, value, dt.f32), scale) for value, scale in parts]
            if is_narrow:
                assert total is not None
                return self._accumulate(kept, total)
            compute = self.policy.compute
            if isinstance(compute, DType):
                kept = [self.narrow(v, compute) if self._is_factor(v, at) else v for at, v in enumerate(kept)]
            if total is not None and self._lacks_accumulator(total):
                return self._accumulate(kept, total)
            return self._compute(kept, total)
        made = self._compute([value for value, _ in parts], total)
        scales = [scale for _, scale in parts if scale is not None]  # integers are factors as they are, and have none
        return b.emit("mul", made, reduce(partial(b.emit, "mul"), scales))

    def _split_blocks(self, value: Any, at: int) -> tuple[Any, Any]:
        """An operand divided by the scale of its tensor and rounded in blocks; and that scale."""
        b, policy = self.b, self.policy
        assert isinstance(policy.storage, BlockFormat)
        if not self._is_factor(value, at):
            return value, None
        wide, axis = cast(b, value, dt.f32), self._block_axis(b.type_of(value), at)
        # A format and its scales are no part of what is differentiated: storing a value counts as the identity.
        scale = b.emit("stop_gradient", tensor_scale(b, wide, policy.storage.name))
        kept = b.emit("round_blocks", b.emit("div", wide, scale), format=policy.storage.name, axis=axis)
        # The product of a number and a scale of its block has few enough bits for any dtype that computes.
        exact = isinstance(policy.compute, DType) and policy.compute is not dt.f32
        return (self._round_to(kept, str(policy.compute), "nearest_even") if exact else kept), scale

    def _is_factor(self, value: Any, at: int) -> bool:
        """Whether an operand is a float that is multiplied."""
        return self._is_float(value) and self.rule.is_factor(at)

    def _is_float(self, value: Any) -> bool:
        return self.b.type_of(value).dtype.is_float

    def _store(self, value: Any) -> Any:
        """A factor: as it is stored, then as it is computed with."""
        policy = self.policy
        if self.is_stored is not None and self.is_stored(value):
            return value
        if isinstance(policy.storage, DType) and not holds(policy.storage, self.b.type_of(value).dtype):
            value = self.narrow(value, policy.storage)
        source = self.b.type_of(value).dtype
        if isinstance(policy.compute, ComputeMode):
            return (
                self._round_to(value, policy.compute.name, policy.rounding or "nearest_even")
                if (source is policy.compute.storage)
                else value
            )
        if policy.compute is None or policy.compute is source:
            return value
        return self.narrow(value, policy.compute)

    def _block_axis(self, type: TensorType, at: int) -> int:
        """The axis that is split into blocks of a storage format: one that the contraction sums over."""
        storage, rule = self.policy.storage, self.rule
        assert isinstance(storage, BlockFormat)
        found = rule.block_axis(type, at, self.attributes, storage) if rule.block_axis is not None else None
        if isinstance(found, int):
            return found
        raise self.fail(
            *found
            or (
                f"`{self.op}` has no axis to split into blocks of {storage}",
                "write it as `matmul`, or use a policy that stores a dtype here",
            )
        )

    def _accumulate(self, operands: Sequence[Any], total: DType) -> Any:
        """A contraction in an accumulator that its kernel does not have: its terms in f32, summed by that recipe."""
        b, accumulate = self.b, self.rule.accumulate
        if isinstance(b, Checking):
            b.check(self.op, operands, {**self.attributes, **dict.fromkeys(self.attributes.keys() & {"accumulate"})})
        assert accumulate is not None, f"`{self.op}` has no `accumulate` in its policy facet"
        return accumulate(b, operands, self.attributes, total, AccumulatingBuilder(b, total).emit)


@frozen
class AccumulatingBuilder:
    """Builds the decomposition of a composite op, each of its sums in an accumulator that is asked for."""

    b: Builder
    total: DType
    keeps_parts = True
    """What it builds is the program that derivatives are taken of, part by part."""

    def emit(self, name: str, *operands: Any, **attributes: Any) -> Any:
        spec = REGISTRY[name]
        if is_summing(spec.with_defaults(attributes)) and policy_of(spec).role != "contract":
            is_float = self.type_of(operands[0]).dtype.is_float
            attributes = {"accumulate": self.total if is_float else None, **attributes}
        elif is_composite(spec) and spec.decompose is not None:
            return spec.decompose(self, operands, spec.with_defaults(attributes))
        return self.b.emit(name, *operands, **attributes)

    def type_of(self, value: Any) -> TensorType:
        return self.b.type_of(value)


@frozen
class _PolicyBuilder:
    """Builds the decomposition of an op, each part under the policy of the whole."""

    whole: OpUnderPolicy

    def emit(self, name: str, *operands: Any, **attributes: Any) -> Any:
        whole = self.whole
        full = REGISTRY[name].complete(attributes, [self.type_of(one) for one in operands])
        return OpUnderPolicy(whole.b, name, full, whole.policy, whole.bits, whole.span).apply(operands)

    def type_of(self, value: Any) -> TensorType:
        return self.whole.b.type_of(value)


def _own_rounding(target: DType) -> str:
    return "nearest_even" if target.is_float else "toward_zero"


STREAM = 0x726F << 32
"""Streams of static keys for rounding: no sampler has one of them, and few bits make it an exact float."""


def static_bits(seed: int = 0, first: int = 0) -> Bits:
    """Random bits under a key that is part of the program: the seed, and the number of the rounding after `first`."""
    count = first

    def bits(b: Builder, shape: tuple[Dim, ...]) -> Any:
        nonlocal count
        count += 1
        return _draw_bits(b, shape, constant(b, seed, dt.u64), constant(b, STREAM | count, dt.u64))

    return bits


def keyed_bits(key: Any) -> Bits:
    """Random bits under a key, u64[2], that is a value of the program; each rounding has a branch of its own."""
    count = 0

    def bits(b: Builder, shape: tuple[Dim, ...]) -> Any:
        nonlocal count
        count += 1
        own = b.emit("fold_key", key, constant(b, STREAM | count, dt.u64))
        return _draw_bits(b, shape, *key_parts(b, own))

    return bits


def _draw_bits(b: Builder, shape: Shape, key: Any, stream: Any) -> Any:
    return cast(b, b.emit("philox", element_index(b, shape), key, stream), dt.u32)


def is_summing(attributes: Attributes) -> bool:
    """Whether an op with these attributes adds or multiplies, and so has an accumulator to state."""
    chooses = any(attributes.get(name) in ("max", "min", "set") for name in ("kind", "mode", "reduce"))
    return "accumulate" in attributes and not chooses


def default_accumulator(op: str, types: Sequence[TensorType], result: TensorType) -> DType:
    """What an op that sums keeps its sums in where it does not say."""
    if isinstance(REGISTRY[op].lower, Reduction):
        return accumulator(types[0].dtype)
    if policy_of(REGISTRY[op]).role != "contract" and not isinstance(REGISTRY[op].lower, Contraction):
        return result.dtype.compute  # sums in the order of their elements: in the dtype of the result
    dtypes = [type.dtype for type in types]
    if any(dtype.is_float for dtype in dtypes):
        return dt.f64 if dt.f64 in (*dtypes, result.dtype) else dt.f32
    whole = result.dtype if is_integer(result.dtype) else promote_all(dtypes)
    return whole if whole is not None and whole.bits >= 32 else dt.i32


# Integers under a policy that saturates: what does not fit stops at the ends of the range instead of wrapping.


def is_integer(dtype: DType) -> bool:
    """Whether values are integers, and not bools."""
    return not dtype.is_float and not dtype.is_bool


def can_saturate(rule: PolicyRule, dtypes: Sequence[DType]) -> bool:
    """Whether an op has a saturating form: integer arithmetic of up to 32 bits, which 64 hold."""
    return rule.saturates and all(is_integer(dtype) and dtype.bits <= 32 for dtype in dtypes)


def _clamp(b: Builder, value: Any, target: DType) -> Any:
    """Integers as those of another dtype, each the nearest one that it has."""
    source = b.type_of(value).dtype
    (low, high), (least, most) = integer_range(source), integer_range(target)
    if least > low:
        value = b.emit("maximum", value, constant(b, least, source))
    if most < high:
        value = b.emit("minimum", value, constant(b, most, source))
    return cast(b, value, target)


def _saturate(b: Builder, op: str, operands: Sequence[Any]) -> Any:
    """An op in a dtype wide enough for its result, clamped to the range of its own."""
    own = b.type_of(operands[0]).dtype
    wide = dt.i32 if own.bits <= 8 else dt.u64 if own is dt.u32 and op == "mul" else dt.i64
    return _clamp(b, b.emit(op, *(cast(b, operand, wide) for operand in operands)), own)
