"""The passes of the graph room, in order, each with the reason for its place, and its last door."""

from __future__ import annotations

from collections.abc import Sequence

from tessera.ir.base.legality import Legality
from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Pass
from tessera.ir.graph.dialect import STRUCTURE
from tessera.ir.graph.passes.apply_policy import ApplyPolicy
from tessera.ir.graph.passes.canonicalize import Canonicalize
from tessera.ir.graph.passes.check_effects import CheckEffects
from tessera.ir.graph.passes.check_policy import CheckPolicy
from tessera.ir.graph.passes.decompose import Decompose
from tessera.ir.graph.passes.eliminate_common import EliminateCommon
from tessera.ir.graph.passes.fold_constants import FoldConstants
from tessera.ir.graph.passes.merge_collectives import MergeCollectives
from tessera.ir.graph.passes.split_collectives import SplitCollectives
from tessera.ir.graph.passes.state_accumulators import StateAccumulators
from tessera.ir.graph.policy_casts import is_summing

_STRUCTURE = frozenset(spec.name for spec in STRUCTURE)


def _refusal(op: SpecOp) -> str | None:
    spec = op.spec
    if "accumulate" in op.kinds and is_summing(op.values()) and op.value("accumulate") is None:
        return "it does not say what it sums in"
    if op.name == "tgraph.axis_index" and op.value("size")[0].value != 1:
        return None  # the host program knows which rank it is
    if spec.lower is not None or op.name in _STRUCTURE or spec.region_names or not spec.is_pure:
        return None
    return "it has no way down: no `lower` facet, and `decompose` did not rewrite it"


DOOR = Legality("graph", frozenset(["tgraph"]), _refusal)
"""Every op that leaves has a way down, is control flow, or has an effect that the host program carries out; sums say
what they sum in."""


def pipeline(*, checks: bool = False) -> Sequence[Pass]:
    """From what was traced to what can be scheduled; with `checks`, indices are looked at before they are used."""
    return (
        # Before anything changes, so that what is refused is shown as it was written.
        CheckEffects(),
        CheckPolicy(),
        # While ops are as the user wrote them: a policy speaks of a softmax, not of the sums inside it.
        ApplyPolicy(),
        # First of the others, so that they meet one form of each thing; tracing leaves casts to the same dtype and the
        # like.
        Canonicalize(),
        # Before decomposition, while a repeated composite op is still one op to compare.
        EliminateCommon(),
        # After it nothing is left without a way down; all that is composite and not fused as a whole is taken apart.
        Decompose(checks=checks),
        # Decompositions are written for the general case: most of the scalars they make fold here.
        Canonicalize(),
        FoldConstants(),
        # Once all that can be computed is, what still stands between two collectives is really between them.
        MergeCollectives(),
        # Merged ones are taken apart together; what folds them is computed like everything else from here on.
        SplitCollectives(),
        # Last: decompositions of neighbours share parts (the maximum of two softmaxes of one value).
        EliminateCommon(),
        # After all that may make a sum: what leaves says what it sums in, so that no later room has to know the rule.
        StateAccumulators(),
    )
