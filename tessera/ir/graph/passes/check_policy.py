"""Check that functions keep the numerics policy that they carry, and change nothing; a failure is the program's."""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, SSAValue

from tessera.diagnostics.codes import PolicyError
from tessera.ir.base.effects import ops_inside
from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Pass
from tessera.ir.base.policies import POLICY, policies_of
from tessera.ir.base.types import TensorAttr
from tessera.ir.base.verify import symbols_in
from tessera.ir.graph.ops import policy_of
from tessera.ir.graph.policy_casts import is_integer
from tessera.ir.graph.typed_ops import FuncOp, ReturnOp
from tessera.ir.tile.facets import View
from tessera.types import dtype as dt
from tessera.types.dtype import BLOCK_FORMATS, BlockFormat, DType
from tessera.types.policy import SILENT, ComputeMode, Policy
from tessera.types.promotion import holds

_WIDE = frozenset({dt.i32, dt.i64, dt.u64})
"""Integers that narrower ones are computed in before they are clamped to their range."""


class CheckPolicy(Pass):
    """Check that ops compute, accumulate and round as `tessera.numerics.policy` of their function, or their own, says.

    Sums are in the accumulator; factors of contractions are in the storage dtype; narrowed values and results of the
    function are rounded explicitly; integers that saturate are computed in a wider dtype. Before and after are the same
    text. Ops on f64 are not checked, nor results of integers, as no policy changes them.
    """

    def run(self, module: ModuleOp) -> None:
        for function in symbols_in(module):
            if isinstance(function, FuncOp) and _has_policy(function):
                own = policies_of(function)
                _check_block(function.regions[0].block, own[0] if own else SILENT)


def _has_policy(function: SpecOp) -> bool:
    return POLICY in function.attributes or any(POLICY in op.attributes for op in ops_inside(function))


def _check_block(block: Block, outer: Policy) -> None:
    for op in (op for op in block.ops if isinstance(op, SpecOp)):
        own = policies_of(op)
        policy = own[0] if own else outer
        if isinstance(op, ReturnOp):
            _check_returned(op, outer)
        elif policy:
            _check_op(op, policy)
        for region in op.regions:
            _check_block(region.block, policy)


def _check_op(op: SpecOp, policy: Policy) -> None:
    dtypes = [_dtype(value) for value in (*op.operands, *op.results)]
    if dt.f64 in dtypes or not dtypes:
        return
    rule = policy_of(op.spec)
    if policy.accumulate is not None and dtypes[0].is_float:
        total: DType | None = op.value("accumulate") if "accumulate" in op.kinds else None
        if total is not None and total is not policy.accumulate:
            raise _contradiction(op, policy, f"sums in {total}")
    if rule.role == "convert" and policy.rounds_otherwise and _narrows(*dtypes):
        raise _contradiction(op, policy, f"makes {dtypes[1]} of {dtypes[0]} by plain rounding")
    if rule.role == "contract":
        _check_factors(op, policy)
    if policy.saturation == "saturate" and rule.saturates and is_integer(dtypes[0]) and dtypes[0] not in _WIDE:
        raise _contradiction(op, policy, f"of {dtypes[0]} wraps")


def _check_factors(op: SpecOp, policy: Policy) -> None:
    for number, value in enumerate(op.operands):
        if not _dtype(value).is_float or not policy_of(op.spec).is_factor(number):
            continue
        formats = set(_formats(value))
        for what, wanted in (("stored as", policy.storage), ("computed in", policy.compute)):
            if wanted is None or _is_satisfied(wanted, formats):
                continue
            raise _contradiction(
                op, policy, f"takes operand {number} in {_dtype(value)}, which was never {what} {wanted}"
            )


def _is_satisfied(wanted: DType | BlockFormat | ComputeMode, formats: set[str]) -> bool:
    """Whether one of the formats that a value went through loses all that the wanted one loses."""
    if wanted.name in formats:
        return True
    if isinstance(wanted, ComputeMode):
        # Narrower than f32 already, and by more than the mode drops.
        return any(name in BLOCK_FORMATS or dt.BY_NAME.get(name, dt.f32).bits < 32 for name in formats)
    return isinstance(wanted, DType) and any(name in dt.BY_NAME and holds(wanted, dt.BY_NAME[name]) for name in formats)


def _formats(value: SSAValue) -> Iterator[str]:
    """The formats of a value and of what it was converted from, seen through ops that only move elements."""
    while True:
        yield _dtype(value).name
        op = value.owner
        if not isinstance(op, SpecOp) or not op.operands:
            return
        if "format" in op.kinds:
            yield op.value("format")
        elif op.spec.short_name != "cast" and not isinstance(op.spec.lower, View) and not _is_scaled(op):
            return
        value = op.operands[0]


def _is_scaled(op: SpecOp) -> bool:
    """Whether an op multiplies by the one scale of a tensor."""
    return op.spec.short_name == "mul" and isinstance(op.operands[1].type, TensorAttr) and not op.operands[1].type.shape


def _check_returned(end: SpecOp, outer: Policy) -> None:
    for number, value in enumerate(end.operands):
        op = value.owner
        while isinstance(op, SpecOp) and isinstance(op.spec.lower, View):
            value = op.operands[0]
            op = value.owner
        if not isinstance(op, SpecOp) or not policy_of(op.spec).is_arithmetic or _dtype(value) is not dt.f32:
            continue
        own = policies_of(op)
        policy = own[0] if own else outer
        kept = policy.compute if isinstance(policy.compute, DType) else policy.storage
        is_kept = policy.storage is not None and isinstance(kept, DType) and not holds(kept, dt.f32)
        dtypes = [_dtype(operand) for operand in op.operands]
        if is_kept and dt.f64 not in dtypes and any(dtype.is_float for dtype in dtypes):
            raise _contradiction(op, policy, f"leaves as result {number} in f32, and was never stored as {kept}")


def _narrows(source: DType, target: DType) -> bool:
    return source.is_float and target.is_float and not holds(target, source)


def _dtype(value: SSAValue) -> DType:
    assert isinstance(value.type, TensorAttr)
    return value.type.data.dtype


def _contradiction(op: SpecOp, policy: Policy, what: str) -> PolicyError:
    return PolicyError(
        f"`{op.name}` {what}, and its policy is `{policy}`",
        span=op.span,
        fix=f'have the conversions made: ask for them with `numerics.policy = "{policy}"` instead of `{POLICY}`',
    )
