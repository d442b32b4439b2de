"""Factor rules: which dims of an op's operands and results belong together, so that they may be sharded together.

A rule gives every dim a list of factors, the outermost first, as an einsum gives labels: a matmul is
`[m, k], [k, n] -> [m, n]`, and a reshape of `[6]` to `[2, 3]` is `[a b] -> [a, b]`. A factor that results lack is
reduced: where it is sharded, each rank has a term of the result. A dim without factors must be whole on every rank (a
scanned axis, the axis of a sort); so must a factor that is not the outermost of its dim, since a part of the dim is
then no part of the factor. Sizes that attributes state (`shape`, `stop`) become those of a part, and no other attribute
changes: segments of a contraction stay those of the whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from tessera.ir.base.spec import Attributes, OpSpec
from tessera.types.dim import Dim
from tessera.types.frozen import frozen
from tessera.types.shape import TensorType

Factors: TypeAlias = tuple[tuple[int, ...], ...]
"""The factors of each dim of one tensor, the outermost first."""

REDUCTIONS = ("sum", "prod", "max", "min")
"""What terms of a result on several ranks may be combined by: what collectives reduce with."""


@frozen
class FactorRule:
    """Factors by number for each operand and result, their sizes, and how the reduced ones are combined.

    `linear` are sets of operands: where those of a set are terms of a sum on each rank and all others are whole,
    results are terms of theirs. Operands that are `ignored` are read nowhere, and may be as they are. `weight` orders
    propagation: 0 for ops that move elements or take one at a time, 1 for contractions and reductions.
    """

    operands: tuple[Factors, ...]
    results: tuple[Factors, ...]
    sizes: tuple[Dim, ...]
    reduced: tuple[tuple[int, str], ...] = ()
    linear: tuple[frozenset[int], ...] = ()
    weight: int = 0
    ignored: frozenset[int] = frozenset()

    @property
    def reductions(self) -> dict[int, str]:
        return dict(self.reduced)

    def tensors(self) -> tuple[Factors, ...]:
        """Those of the operands, then those of the results."""
        return (*self.operands, *self.results)

    def can_shard(self, factor: int, parts: int = 1) -> bool:
        """Whether a factor may be cut into equal parts: it is the outermost of each dim that it belongs to."""
        size = self.sizes[factor].value
        if size is None or parts < 1 or size % parts or size == 0:
            return False
        if factor not in self.reductions and any(factor not in _flatten(own) for own in self.results):
            return False
        return all(dim[0] == factor for own in self.tensors() for dim in own if factor in dim)

    def axis_of(self, tensor: Factors, factor: int) -> int | None:
        """The dim of a tensor that is cut where the factor is; None for a tensor without it."""
        return next((axis for axis, dim in enumerate(tensor) if dim and dim[0] == factor), None)

    def factor_at(self, tensor: Factors, axis: int) -> int | None:
        """The factor that is cut where a dim of a tensor is; None where the dim must be whole."""
        return tensor[axis][0] if axis < len(tensor) and tensor[axis] else None

    def __str__(self) -> str:
        left, right = (", ".join(map(_text, own)) for own in (self.operands, self.results))
        reduced = "".join(f" {kind} {_letter(factor)}" for factor, kind in self.reduced)
        return f"{left} -> {right}{reduced}".strip()


def _flatten(own: Factors) -> list[int]:
    return [factor for dim in own for factor in dim]


def _letter(factor: int) -> str:
    return chr(ord("a") + factor) if factor < 26 else f"f{factor}"


def _text(own: Factors) -> str:
    return "[" + ", ".join(" ".join(map(_letter, dim)) or "_" for dim in own) + "]"


class RuleBuilder:
    """Collects factors while a rule is made."""

    def __init__(self) -> None:
        self.sizes: list[Dim] = []

    def new(self, size: Dim) -> int:
        """A factor of a size."""
        self.sizes.append(size)
        return len(self.sizes) - 1

    def dims_of(self, type: TensorType, whole: Sequence[int] = ()) -> Factors:
        """A factor of its own for each dim of a tensor, but for those that must be `whole`."""
        return tuple(
            () if axis in whole or dim.value in (0, 1) else (self.new(dim),) for axis, dim in enumerate(type.shape)
        )

    def finish(self, operands: Sequence[Factors], results: Sequence[Factors], **more: Any) -> FactorRule:
        """The rule of these factors; `check_rule` says whether it fits its op."""
        return FactorRule(tuple(operands), tuple(results), tuple(self.sizes), **more)


def check_rule(spec: OpSpec, rule: FactorRule, operands: Sequence[TensorType], results: Sequence[TensorType]) -> None:
    """Raises TypeError where a rule does not fit its op: ours to repair. Every rule that is asked for is checked."""
    sides = (("operand", rule.operands, operands), ("result", rule.results, results))
    for side, own, types in sides:
        if len(own) != len(types):
            raise TypeError(f"the factor rule of `{spec.name}` has {len(own)} {side}s, and the op {len(types)}")
        for at, (factors, type) in enumerate(zip(own, types, strict=True)):
            _check_tensor(spec, f"{side} {at}", factors, type, rule.sizes)
    for factor, kind in rule.reduced:
        if kind not in REDUCTIONS or any(factor in _flatten(one) for one in rule.results):
            raise TypeError(f"the factor rule of `{spec.name}` reduces factor {factor} by {kind}, and a result has it")


def _check_tensor(spec: OpSpec, what: str, factors: Factors, type: TensorType, sizes: Sequence[Dim]) -> None:
    if len(factors) != type.rank:
        raise TypeError(f"the factor rule of `{spec.name}` has {len(factors)} dims for {what}, which is {type}")
    flat = _flatten(factors)
    if len(set(flat)) != len(flat):
        raise TypeError(f"the factor rule of `{spec.name}` has a factor twice in {what}: {_text(factors)}")
    for axis, dim in enumerate(factors):
        product = Dim.constant(1)
        for factor in dim:
            product = product * sizes[factor]
        if dim and product != type.shape[axis] and (product - type.shape[axis]).value is not None:
            raise TypeError(f"the factor rule of `{spec.name}` has {product} for dim {axis} of {what}, which is {type}")


# One rank's op: what its attributes are when some of its dims are cut.

_OF_RESULT, _OF_OPERAND = ("shape",), ("stop",)
"""Attributes that state sizes of the result, and of the first operand."""


def local_attributes(
    spec: OpSpec,
    attributes: Attributes,
    wholes: Mapping[str, TensorType | None],
    parts: Mapping[str, TensorType | None],
) -> dict[str, Any]:
    """The attributes of an op on parts of its tensors; both have the first `operand` and the first `result`."""
    made = dict(attributes)
    for names, side in ((_OF_RESULT, "result"), (_OF_OPERAND, "operand")):
        whole, part = wholes[side], parts[side]
        if whole is None or part is None:
            continue
        for name in names:
            if name not in made or spec.attribute(name).kind != "dims" or len(made[name]) != whole.rank:
                continue
            dims: Sequence[Dim] = made[name]
            made[name] = tuple(
                own if before == after else after
                for own, before, after in zip(dims, whole.shape, part.shape, strict=True)
            )
    return made


def cut_type(type: TensorType, factors: Factors, cut: Mapping[int, int]) -> TensorType:
    """The type of a part: `cut` says into how many parts factors are cut."""
    shape: list[Dim] = []
    for axis, dim in enumerate(type.shape):
        parts = 1
        for factor in factors[axis]:
            parts *= cut.get(factor, 1)
        shape.append(dim if parts == 1 else Dim.constant((dim.value or 0) // parts))
    return type.with_shape(shape)
