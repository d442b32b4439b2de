"""Check the numerics of Graph IR and change nothing: every sum has an accumulator, and none narrows by itself."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp

from tessera.diagnostics.codes import GraphVerifyError
from tessera.ir.base.build import tensor_value
from tessera.ir.base.effects import ops_inside
from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Pass
from tessera.ir.base.policies import policies_of
from tessera.ir.base.verify import symbols_in
from tessera.ir.graph.passes.apply_policy import ASKED
from tessera.ir.graph.policy_casts import is_summing
from tessera.types.annotation import parse_policy
from tessera.types.dtype import DType
from tessera.types.promotion import holds


class CheckNumerics(Pass):
    """Check that ops that sum state an accumulator, themselves or by a policy, and that none narrows its own result.

    Before and after are the same text.
    """

    def run(self, module: ModuleOp) -> None:
        for function in symbols_in(module):
            found = function.attributes.get(ASKED)
            asked = [] if found is None else [parse_policy(getattr(found, "data", ""))]
            inherited = next((one.accumulate for one in (*asked, *policies_of(function)) if one.accumulate), None)
            for op in (op for op in ops_inside(function) if isinstance(op, SpecOp)):
                if is_summing(op.values()):
                    _check(op, inherited)


def _check(op: SpecOp, inherited: DType | None) -> None:
    total: DType | None = op.value("accumulate") or inherited
    if total is None:
        raise GraphVerifyError(
            f"`{op.name}` does not state its accumulator, and no policy does",
            span=op.span,
            notes=(f"its result is {tensor_value(op.results[0])}",),
            fix="write `{accumulate = f32}`, or give the function a `numerics.policy` with `accum(f32)`",
        )
    wanted: DType | None = op.values().get("dtype")
    if wanted is None:
        return
    dtypes = [tensor_value(value).dtype for value in op.operands]
    for narrow in (dtype for dtype in dtypes if dtype.is_float and not holds(wanted, dtype)):
        raise GraphVerifyError(
            f"`{op.name}` narrows {narrow} to {wanted} without a cast that says how it rounds",
            span=op.span,
            fix=f'leave `dtype` out and add `tgraph.round_to %result {{format = "{wanted}"}}`',
        )
