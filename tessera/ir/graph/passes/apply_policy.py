"""Make what a numerics policy asks for explicit: conversions that say how they round, accumulators that are stated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, SSAValue

from tessera.diagnostics.codes import GraphVerifyError
from tessera.ir.base.build import Build
from tessera.ir.base.op import SpecOp, plain, rule_attributes
from tessera.ir.base.passes import Pass
from tessera.ir.base.policies import POLICY, carried_policy, declare_policies
from tessera.ir.base.types import attribute_of
from tessera.ir.graph.policy_casts import Bits, OpUnderPolicy, static_bits
from tessera.ir.graph.typed_ops import ReturnOp
from tessera.types.annotation import parse_policy
from tessera.types.policy import SILENT, Policy

ASKED = "numerics.policy"
"""The attribute by which a text asks for a policy; an op's own comes before its function's."""


class ApplyPolicy(Pass):
    """Apply the policies that functions and ops ask for in `numerics.policy`; they then carry them as applied.

    Before: `%0 = tgraph.add %x, %y : (bf16, bf16) -> bf16` in a function with `numerics.policy = "saturate"`.
    After: casts to f32, the sum in f32, `tgraph.round_to %1 {format = "bf16", saturation = "saturate"}`, in a function
    with `tessera.numerics.policy = {saturation = "saturate"}`.
    """

    def run(self, module: ModuleOp) -> None:
        for function in module.ops:
            if isinstance(function, SpecOp) and function.spec.form == "function":
                _apply(function)


def _policy_of(op: SpecOp) -> Policy:
    found = op.attributes.get(ASKED)
    return SILENT if found is None else parse_policy(plain(found))


def _apply(function: SpecOp) -> None:
    outer = _policy_of(function)
    blocks = [block for part in function.walk() for region in part.regions for block in region.blocks]
    asked = any(ASKED in op.attributes for block in blocks for op in block.ops)
    if not outer and not asked:
        return
    function.attributes.pop(ASKED, None)
    if outer:
        declare_policies(function, (outer,))
    bits = static_bits()
    for block in blocks:
        _apply_block(block, outer, bits)


def _apply_block(block: Block, outer: Policy, bits: Bits) -> None:
    changed: dict[SSAValue, SSAValue] = {}
    for op in list(block.ops):
        assert isinstance(op, SpecOp)
        operands = [changed.get(value, value) for value in op.operands]
        policy = outer.overridden(_policy_of(op))
        op.attributes.pop(ASKED, None)
        is_new = any(new.type != old.type for new, old in zip(operands, op.operands, strict=True))
        if op.spec.is_terminator or op.regions:
            if is_new and (op.regions or not isinstance(op, ReturnOp)):
                raise GraphVerifyError(
                    f"a policy changes the dtypes of the operands of `{op.name}`, which it cannot pass on",
                    span=op.span,
                    fix="name the policy on the ops before it, or cast back",
                )
            op.operands = operands
            continue
        if not policy and not is_new:
            op.operands = operands
            continue
        made = _build_under(op, operands, policy, bits, policy if policy != outer else SILENT)
        changed.update(zip(op.results, made, strict=True))
        for old, new in zip(op.results, made, strict=True):
            new.name_hint = new.name_hint or old.name_hint
    for op in reversed(list(block.ops)):
        if any(result in changed for result in op.results):
            for result in op.results:
                result.replace_all_uses_with(changed[result])
            op.detach()
            op.erase()


def _build_under(op: SpecOp, operands: Sequence[SSAValue], policy: Policy, bits: Bits, own: Policy) -> tuple[Any, ...]:
    assert op.parent is not None
    promises = {POLICY: attribute_of("any", own.entries)} if own else carried_policy(op)
    build = Build(op.parent, op, op.span, op.dialect_name(), promises)
    work = OpUnderPolicy(build, op.spec.short_name, rule_attributes(op), policy, bits, op.span)
    found = work.apply(operands)
    return (*found,) if isinstance(found, tuple) else (found,)  # pyright: ignore[reportUnknownVariableType]
