"""What a numerics policy makes of an op: the conversions around it, each an op that says how it rounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

from tessera.diagnostics.codes import PolicyError
from tessera.diagnostics.error import HERE
from tessera.diagnostics.span import Span
from tessera.ir.base.spec import Attributes, Builder, OpSpec
from tessera.ir.graph.building import cast, constant, size
from tessera.ir.graph.ops import REGISTRY
from tessera.ir.graph.ops.quantize import tensor_scale
from tessera.ir.graph.ops.reduce import accumulator
from tessera.ir.graph.policy_integers import held, is_integer, saturated, saturates
from tessera.ir.graph.policy_sums import attended, convolved, matrix_product, paired_product
from tessera.ir.tile.facets import Contraction, Pointwise, Reduction
from tessera.types import dtype as dt
from tessera.types.dim import Dim, product
from tessera.types.dtype import DType
from tessera.types.frozen import frozen
from tessera.types.number_format import BLOCK_FORMATS, FORMATS, BlockFormat
from tessera.types.policy import ComputeMode, Policy
from tessera.types.promotion import holds, promote_all
from tessera.types.tensor_type import TensorType

Bits: TypeAlias = Callable[[Builder, tuple[Dim, ...]], Any]
"""32 random bits for each element of a shape."""

PRODUCTS = frozenset(
    {"matmul", "dot_general", "conv1d", "conv2d", "einsum", "attention", "attention_with_lse", "cached_attention"}
)
"""Ops whose operands are multiplied and summed: a policy keeps those as it stores values."""
ATTENTION = frozenset({"attention", "attention_with_lse", "cached_attention"})
COMPOSITES = frozenset(
    {"softmax", "softmax_safe", "log_softmax", "logsumexp", "logsumexp_safe", "layernorm_safe", "rmsnorm_safe"}
    | {"mean", "var", "std", "norm", "cumulative", "cumsum", "cumprod", "cross_entropy", "rotary", "residual"}
    | {"avg_pool", "dropout", "scatter_add"}
)
"""Ops of several steps that round once, at their end."""
CHOOSING = frozenset({"where", "cast", "bitcast", "round_to", "round_stochastic", "philox", "max", "min"})
"""Ops that look pointwise or like a fold and change no value but as they say themselves."""


@runtime_checkable
class Checking(Protocol):
    """A builder at the user's line, which can run the rule of an op that it does not build."""

    def check(self, name: str, operands: Sequence[Any], attributes: Attributes) -> None: ...


def is_arithmetic(spec: OpSpec) -> bool:
    """Whether an op gives values that were not among its operands, and so has something to round."""
    if spec.short_name in PRODUCTS or spec.short_name in COMPOSITES:
        return True
    return isinstance(spec.lower, Pointwise | Reduction) and spec.short_name not in CHOOSING and bool(spec.operands)


@frozen
class Work:
    """One op under a policy."""

    b: Builder
    op: str
    attributes: Attributes
    policy: Policy
    bits: Bits
    span: Span | None = HERE

    def apply(self, operands: Sequence[Any]) -> Any:
        """The op's result, or all of them, by way of what the policy asks for."""
        spec, types = REGISTRY[self.op], [self.b.type_of(value) for value in operands]
        if self.op == "cast":
            return self._cast(operands[0])
        floats = [type.dtype for type in types if type.dtype.is_float]
        if self.policy.saturation == "saturate" and operands and saturates(self.op, [type.dtype for type in types]):
            return saturated(self.b, self.op, operands)
        if not floats or dt.f64 in floats or not is_arithmetic(spec):
            return self.b.emit(self.op, *operands, **self.attributes)
        if self.policy.denormals == "flush":
            operands = [self._flushed(value) for value in operands]
        if self.op in PRODUCTS:
            return self._product(operands)
        return self._rounded(operands)

    def fail(self, message: str, fix: str = "") -> PolicyError:
        return PolicyError(message, span=self.span, notes=(f"the policy is `{self.policy}`",), fix=fix or None)

    # Conversions.

    def narrowed(self, value: Any, dtype: DType) -> Any:
        """A float in another dtype, rounded as the policy says where the dtype is narrower."""
        source = self.b.type_of(value).dtype
        if dtype is not source and holds(dtype, source):
            return cast(self.b, value, dtype)
        if dtype is source and (dtype is not dt.f32 or not (self.policy.saturation or self._flushes)):
            return value
        return self._rounded_to(value, dtype.name, self.policy.rounding or "nearest_even")

    @property
    def _flushes(self) -> bool:
        return self.policy.denormals == "flush"

    def _rounded_to(self, value: Any, format: str, rounding: str) -> Any:
        kind = FORMATS[format]
        way = {
            "format": format,
            "saturation": "" if kind.is_float and self.policy.saturation == "wrap" else self.policy.saturation,
            "denormals": "flush" if kind.is_float and self._flushes else "keep",
        }
        if rounding == "stochastic" and format != "f32":
            return self.b.emit("round_stochastic", value, self.bits(self.b, self.b.type_of(value).shape), **way)
        return self.b.emit("round_to", value, rounding=rounding.replace("stochastic", "nearest_even"), **way)

    def _flushed(self, value: Any) -> Any:
        dtype = self.b.type_of(value).dtype
        if not dtype.is_float:
            return value
        return self.b.emit("round_to", value, format=dtype.name, denormals="flush")

    def _cast(self, value: Any) -> Any:
        source, target = self.b.type_of(value).dtype, self.attributes["dtype"]
        says = self.policy.rounding or self.policy.saturation or self._flushes
        if self.policy.saturation == "saturate" and is_integer(source) and is_integer(target):
            return held(self.b, value, target)
        if not says or not source.is_float or source is dt.f64 or target.name not in FORMATS or holds(target, source):
            return self.b.emit("cast", value, dtype=target)
        # A cast to an integer that nobody speaks of cuts.
        return self._rounded_to(value, target.name, self.policy.rounding or _own_rounding(target))

    # Ops.

    def _result(self, natural: DType) -> DType:
        """The dtype of a result: what a scope computes in or stores, else the op's own."""
        policy = self.policy
        if policy.storage is None or not natural.is_float:
            return natural
        if isinstance(policy.compute, DType):
            return policy.compute
        return policy.storage if isinstance(policy.storage, DType) else natural

    def _rounded(self, operands: Sequence[Any]) -> Any:
        """The op in f32, and its float results rounded."""
        policy, b = self.policy, self.b
        types = [b.type_of(value) for value in operands]
        attributes = dict(self.attributes)
        states = is_summing(attributes)
        if states and attributes["accumulate"] is None and types[0].dtype.is_float:
            attributes["accumulate"] = policy.accumulate
        if self.op == "mean" and policy.accumulate not in (None, dt.f32):
            return self._mean(operands[0])
        if self.op in COMPOSITES and policy.accumulate not in (None, dt.f32) and not states:
            return self._composite(operands, policy.accumulate)
        if not policy.changes_values:
            return b.emit(self.op, *operands, **attributes)
        wide = [cast(b, value, dt.f32) if b.type_of(value).dtype.is_float else value for value in operands]
        narrow = promote_all([type.dtype for type in types if type.dtype.is_float]) or dt.f32
        found = b.emit(self.op, *wide, **attributes)
        if not isinstance(found, tuple):
            return self.narrowed(found, self._result(narrow)) if self._is_float(found) else found
        several: tuple[Any, ...] = found  # pyright: ignore[reportUnknownVariableType]
        return tuple(self.narrowed(one, self._result(narrow)) if self._is_float(one) else one for one in several)

    def _composite(self, operands: Sequence[Any], total: DType) -> Any:
        """An op of several steps, each of its sums in the accumulator that is asked for."""
        b, decompose = self.b, REGISTRY[self.op].decompose
        if decompose is None:
            raise self.fail(
                f"`{self.op}` keeps its sums in f32, not in {total}", "put it in `with policy(accumulate=f32):`"
            )
        floats = [b.type_of(value).dtype for value in operands if self._is_float(value)]
        wide = [cast(b, value, dt.f32) if self._is_float(value) else value for value in operands]
        found = decompose(Summing(b, total), wide, self.attributes)
        return self.narrowed(found, self._result(promote_all(floats) or dt.f32))

    def _mean(self, value: Any) -> Any:
        """A mean by way of its sum, which has an accumulator to state."""
        axes: tuple[int, ...] = tuple(self.attributes["axes"])
        b = self.b
        kind = b.type_of(value)
        keepdims = self.attributes["keepdims"]
        total = b.emit("sum", cast(b, value, dt.f32), axes=axes, keepdims=keepdims, accumulate=self.policy.accumulate)
        count = size(b, product(kind.shape[axis] for axis in axes), dt.f32)
        return self.narrowed(b.emit("div", total, count), self._result(kind.dtype))

    def _product(self, operands: Sequence[Any]) -> Any:
        policy, b = self.policy, self.b
        types = [b.type_of(value) for value in operands]
        natural = self.attributes.get("dtype") or promote_all([type.dtype for type in types if type.dtype.is_float])
        if natural is None:
            return b.emit(self.op, *operands, **self.attributes)  # its own rule says what does not meet
        self._check_floats(natural)
        result = self._result(natural)
        total = self.attributes.get("accumulate") or policy.accumulate
        if isinstance(policy.storage, BlockFormat) or (self.op == "einsum" and total not in (None, dt.f32)):
            return self._rounded_product(self._blocks(operands, total), result)
        kept = [self._kept(value) if self._is_factor(value, at) else value for at, value in enumerate(operands)]
        if total is not None and (total.bits < 32 or (self.op in ATTENTION and total is not dt.f32)):
            return self._rounded_product(self._summed(kept, total), result)
        attributes = dict(self.attributes)
        if total is not None and "accumulate" in attributes:
            attributes["accumulate"] = total
        if not policy.changes_values:
            return b.emit(self.op, *kept, **attributes)
        return self._rounded_product(self._computed(kept, total), result)

    def _check_floats(self, natural: DType) -> None:
        compute, storage = self.policy.compute, self.policy.storage
        if isinstance(compute, DType) and not compute.is_float:
            raise self.fail(
                f"`{self.op}` of {natural} cannot be computed in {compute}, which is no float",
                "compute in a float, or `quantize` its operands",
            )
        if isinstance(storage, DType) and not storage.is_float:
            raise self.fail(
                f"operands of `{self.op}` of {natural} cannot be kept as {storage}, which is no float",
                "store a float, or `quantize` its operands",
            )

    def _computed(self, kept: Sequence[Any], total: DType | None) -> Any:
        """The product of operands as they are kept, in f32."""
        b, attributes = self.b, dict(self.attributes)
        if "accumulate" in attributes:
            attributes["accumulate"] = total
        if "dtype" not in attributes:
            return b.emit(self.op, *[cast(b, v, dt.f32) if self._is_float(v) else v for v in kept], **attributes)
        attributes["dtype"] = dt.f64 if total is dt.f64 else dt.f32
        made = b.emit(self.op, *kept, **attributes)
        return cast(b, made, dt.f32) if total is dt.f64 else made

    def _rounded_product(self, made: Any, result: DType) -> Any:
        if not isinstance(made, tuple):
            return self.narrowed(made, result)
        several: tuple[Any, ...] = made  # pyright: ignore[reportUnknownVariableType]
        # What comes beside the product is kept in f32, whatever is stored: said so, it is no result left unrounded.
        rest = [self.b.emit("round_to", one, format="f32") for one in several[1:]]
        return (self.narrowed(several[0], result), *rest)

    def _blocks(self, operands: Sequence[Any], total: DType | None) -> Any:
        """A product of operands that are kept in blocks; the scales of whole tensors are put on where they can be."""
        b = self.b
        if self.op == "einsum":
            return self._einsum(operands)
        is_narrow = total is not None and total.bits < 32
        if self.op in ATTENTION or is_narrow:
            parts = [self._in_blocks(value, at) for at, value in enumerate(operands)]
            kept = [value if scale is None else b.emit("mul", cast(b, value, dt.f32), scale) for value, scale in parts]
            if is_narrow:
                assert total is not None
                return self._summed(kept, total)
            compute = self.policy.compute
            if isinstance(compute, DType):
                kept = [self.narrowed(v, compute) if self._is_factor(v, at) else v for at, v in enumerate(kept)]
            if self.op in ATTENTION and total not in (None, dt.f32):
                return self._summed(kept, total)
            return self._computed(kept, total)
        (left, one), (right, other) = (self._in_blocks(value, at) for at, value in enumerate(operands))
        made = self._computed([left, right], total)
        return b.emit("mul", made, b.emit("mul", one, other))

    def _in_blocks(self, value: Any, at: int) -> tuple[Any, Any]:
        """An operand divided by the scale of its tensor, in blocks, as it is computed with; and that scale."""
        b, policy = self.b, self.policy
        assert isinstance(policy.storage, BlockFormat)
        if not self._is_factor(value, at):
            return value, None
        wide, axis = cast(b, value, dt.f32), self._summed_axis(b.type_of(value), at)
        scale = tensor_scale(b, wide, policy.storage.name)
        kept = b.emit("round_blocks", b.emit("div", wide, scale), format=policy.storage.name, axis=axis)
        # The product of a number and a scale of its block has few enough bits for any dtype that computes.
        exact = isinstance(policy.compute, DType) and policy.compute is not dt.f32
        return (self._rounded_to(kept, str(policy.compute), "nearest_even") if exact else kept), scale

    def _einsum(self, operands: Sequence[Any]) -> Any:
        """The products and sums that an equation stands for, each under the policy."""
        decompose = REGISTRY["einsum"].decompose
        assert decompose is not None
        return decompose(_Under(self), operands, self.attributes)

    def _is_factor(self, value: Any, at: int) -> bool:
        """Whether an operand is a float that is multiplied; a mask is added, and its infinities must stay."""
        return self._is_float(value) and not (self.op in ATTENTION and at > 2)

    def _is_float(self, value: Any) -> bool:
        return self.b.type_of(value).dtype.is_float

    def _kept(self, value: Any) -> Any:
        """An operand of a product: as it is stored, then as it is computed with."""
        policy = self.policy
        if isinstance(policy.storage, DType) and not holds(policy.storage, self.b.type_of(value).dtype):
            value = self.narrowed(value, policy.storage)
        source = self.b.type_of(value).dtype
        if isinstance(policy.compute, ComputeMode):
            return (
                self._rounded_to(value, policy.compute.name, policy.rounding or "nearest_even")
                if (source is policy.compute.storage)
                else value
            )
        if policy.compute is None or policy.compute is source:
            return value
        return self.narrowed(value, policy.compute)

    def _summed_axis(self, type: TensorType, at: int) -> int:
        """The axis that blocks of a storage format are cut along: one that the product sums over."""
        if self.op == "matmul" and at < 2:
            return type.rank - 1 if at == 0 or type.rank == 1 else type.rank - 2
        axes = self.attributes.get(("lhs_contract", "rhs_contract")[min(at, 1)], ())
        if self.op == "dot_general" and axes:
            return axes[-1] % type.rank
        if self.op in ("conv1d", "conv2d"):
            return self._channels(type, at)
        if self.op in ATTENTION:
            return type.rank - 2 if at == 2 else type.rank - 1  # heads of queries and keys, keys of values
        raise self.fail(
            f"`{self.op}` has no axis to cut into blocks of {self.policy.storage}",
            "write it as `matmul`, or use a policy that stores a dtype here",
        )

    def _channels(self, type: TensorType, at: int) -> int:
        """The channels of a convolution, which blocks must not cross groups of."""
        groups, size = int(self.attributes["groups"]), BLOCK_FORMATS[str(self.policy.storage)].block
        channels = type.shape[1] if at else type.shape[1] // groups
        if groups > 1 and (channels % size).value != 0:
            raise self.fail(
                f"`{self.op}` has groups of {channels} channels, and blocks of {self.policy.storage} have {size}",
                "use groups of whole blocks, or a policy that stores a dtype here",
            )
        return 1

    def _summed(self, operands: Sequence[Any], total: DType) -> Any:
        """A product in an accumulator that its kernel does not have: its terms in f32, summed by that recipe."""
        b = self.b
        if isinstance(b, Checking):
            b.check(self.op, operands, {**self.attributes, **dict.fromkeys(self.attributes.keys() & {"accumulate"})})
        if self.op in ATTENTION:
            return attended(b, self.op, operands, self.attributes, total, Summing(b, total).emit)
        left, right = operands[:2]
        if self.op == "dot_general":
            return paired_product(b, left, right, self.attributes, total)
        if self.op in ("conv1d", "conv2d"):
            return convolved(b, left, right, self.attributes, total)
        return matrix_product(b, left, right, total)


@frozen
class Summing:
    """Builds what a composite op stands for, each of its sums in an accumulator that is asked for."""

    b: Builder
    total: DType

    def emit(self, name: str, *operands: Any, **attributes: Any) -> Any:
        spec = REGISTRY[name]
        if is_summing(spec.with_defaults(attributes)) and name not in PRODUCTS:
            is_float = self.type_of(operands[0]).dtype.is_float
            attributes = {"accumulate": self.total if is_float else None, **attributes}
        elif name in COMPOSITES and spec.decompose is not None:
            return spec.decompose(self, operands, spec.with_defaults(attributes))
        return self.b.emit(name, *operands, **attributes)

    def type_of(self, value: Any) -> TensorType:
        return self.b.type_of(value)


@frozen
class _Under:
    """Builds what an op stands for, each part under the policy of the whole."""

    work: Work

    def emit(self, name: str, *operands: Any, **attributes: Any) -> Any:
        whole, full = self.work, REGISTRY[name].with_defaults(attributes)
        return Work(whole.b, name, full, whole.policy, whole.bits, whole.span).apply(operands)

    def type_of(self, value: Any) -> TensorType:
        return self.work.b.type_of(value)


def _own_rounding(target: DType) -> str:
    return "nearest_even" if target.is_float else "toward_zero"


STREAM = 0x726F << 32
"""Streams of static keys for rounding: no site of a sampler has one of them, and few bits make it exact as a float."""


def static_bits(seed: int = 0) -> Bits:
    """Random bits under a key that is part of the program: the seed, and the number of the rounding."""
    count = 0

    def bits(b: Builder, shape: tuple[Dim, ...]) -> Any:
        nonlocal count
        count += 1
        return drawn_bits(b, shape, constant(b, seed, dt.u64), constant(b, STREAM | count, dt.u64))

    return bits


def keyed_bits(key: Any) -> Bits:
    """Random bits under a key, u64[2], that is a value of the program; each rounding has a branch of its own."""
    count = 0

    def bits(b: Builder, shape: tuple[Dim, ...]) -> Any:
        nonlocal count
        count += 1
        own = b.emit("fold_key", key, constant(b, STREAM | count, dt.u64))
        first, second = (
            b.emit("reshape", b.emit("slice", own, start=(Dim.of(at),), stop=(Dim.of(at + 1),), step=(1,)), shape=())
            for at in (0, 1)
        )
        return drawn_bits(b, shape, first, second)

    return bits


def drawn_bits(b: Builder, shape: tuple[Dim, ...], key: Any, stream: Any) -> Any:
    """One word of u32 for each element, by its index in row-major order."""
    count = TensorType(shape, dt.u64).size
    index = b.emit("reshape", b.emit("iota", shape=(count,), axis=0, dtype=dt.u64), shape=shape)
    return b.emit("cast", b.emit("philox", index, key, stream), dtype=dt.u32)


def is_summing(attributes: Attributes) -> bool:
    """Whether an op adds up, or multiplies, and so has an accumulator to state: not every kind of a fold does."""
    chooses = attributes.get("kind") in ("max", "min") or attributes.get("mode") == "set"
    return "accumulate" in attributes and not chooses


def stated_accumulator(op: str, types: Sequence[TensorType], result: TensorType) -> DType:
    """What an op that sums keeps its sums in where it does not say."""
    if isinstance(REGISTRY[op].lower, Reduction):
        return accumulator(types[0].dtype)
    if op not in PRODUCTS and not isinstance(REGISTRY[op].lower, Contraction):
        return result.dtype.compute  # folds in the order of their elements: in what they give
    dtypes = [type.dtype for type in (*types, result)]
    if any(dtype.is_float for dtype in dtypes):
        return dt.f64 if dt.f64 in dtypes else dt.f32
    return result.dtype if result.dtype.bits >= 32 else dt.i32
