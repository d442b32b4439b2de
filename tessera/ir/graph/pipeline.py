"""The passes of the graph stage in order, each with the reason for its position, and the exit verifier."""

from __future__ import annotations

from collections.abc import Sequence

from tessera.ir.base.compilation import Chooser
from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Pass
from tessera.ir.base.verify import Legality
from tessera.ir.graph.dialect import STRUCTURE
from tessera.ir.graph.passes.apply_policy import ApplyPolicy
from tessera.ir.graph.passes.canonicalize import Canonicalize
from tessera.ir.graph.passes.check_effects import CheckEffects
from tessera.ir.graph.passes.check_placement import CheckPlacement
from tessera.ir.graph.passes.check_policy import CheckPolicy
from tessera.ir.graph.passes.choose_segments import ChooseSegments
from tessera.ir.graph.passes.chunk_collective_matmuls import ChunkCollectiveMatmuls
from tessera.ir.graph.passes.chunk_contractions import LIMIT, ChunkContractions
from tessera.ir.graph.passes.decompose import Decompose
from tessera.ir.graph.passes.eliminate_common import EliminateCommon
from tessera.ir.graph.passes.fold_constants import FoldConstants
from tessera.ir.graph.passes.inline_checkpoints import InlineCheckpoints
from tessera.ir.graph.passes.inline_custom import InlineCustom
from tessera.ir.graph.passes.keep_score_gradients import KeepScoreGradients
from tessera.ir.graph.passes.merge_collectives import MergeCollectives
from tessera.ir.graph.passes.recognize_attention import RecognizeAttention
from tessera.ir.graph.passes.reduce_transposed import ReduceTransposed
from tessera.ir.graph.passes.rematerialize import BYTES, Rematerialize
from tessera.ir.graph.passes.resolve_placeholders import ResolvePlaceholders
from tessera.ir.graph.passes.split_collectives import SplitCollectives
from tessera.ir.graph.passes.split_contractions import SplitContractions
from tessera.ir.graph.passes.state_accumulators import StateAccumulators
from tessera.ir.graph.passes.unfold_windows import UnfoldWindows
from tessera.ir.graph.policy_casts import is_summing
from tessera.ir.graph.typed_ops import AxisIndexOp
from tessera.types.machine import MatrixInstruction

_STRUCTURE = frozenset(spec.name for spec in STRUCTURE)


def _refusal(op: SpecOp) -> str | None:
    spec = op.spec
    if "accumulate" in op.kinds and is_summing(op.values()) and op.value("accumulate") is None:
        return "it does not state its accumulator"
    if isinstance(op, AxisIndexOp) and op.size[0].value != 1:
        return None  # the host program knows which rank it is
    if spec.lower is not None or op.name in _STRUCTURE or spec.region_names or not spec.is_pure:
        return None
    return "it has no lowering: no `lower` facet, and `decompose` did not rewrite it"


EXIT = Legality("graph", frozenset(["tgraph"]), _refusal)
"""Every op that leaves has a lowering, is control flow, or has an effect that the host program carries out; ops that
sum state their accumulator."""


def pipeline(
    *, checks: bool = False, level: int = BYTES, joining: int = 0, limit: int = LIMIT, kept: int = 0, fast: bool = False
) -> Sequence[Pass]:
    """From traced ops to ops that can be scheduled; with `checks`, indices are checked before they are used.

    `level` is how much of a forward part the backward part may rematerialize; `joining` is how many blocks a machine
    computes at a time that joins segments of K in its kernels, 0 for one that does not. Products of more than `limit`
    bytes are computed in chunks where they can be; `kept` is how many bytes gradients of scores may have. With `fast`,
    rewrites may round otherwise than the ops they replace.
    """
    return (
        # First: what an op means is known once its attributes are values, and all others match on them.
        ResolvePlaceholders(),
        # Derivatives are taken by now, and all others see the ops of the function alone.
        InlineCustom(),
        # Before anything else changes, so that an error shows the program as it was written.
        CheckEffects(),
        CheckPolicy(),
        CheckPlacement(),
        # Once all checks have seen the program as it was written: bodies are ops like those around them from here on.
        InlineCheckpoints(),
        # While ops are as the user wrote them: a policy applies to a softmax, not to the sums inside it.
        ApplyPolicy(),
        # Before the passes that match ops, so that they see one form of each; tracing leaves casts to the same dtype
        # and the like.
        Canonicalize(),
        # Before decomposition, while a repeated composite op is still one op to compare.
        EliminateCommon(),
        # While a softmax is one op, and after common ops are one, so that each value has all its readers.
        RecognizeAttention(rewrite=fast),
        # After it every op has a lowering: composite ops without a kernel of their own are decomposed.
        Decompose(checks=checks),
        # Decompositions are written for the general case: most of their scalars are constants, which fold here.
        Canonicalize(),
        FoldConstants(),
        # After constants are folded, so that only real computation keeps two collectives apart.
        MergeCollectives(),
        # After merging, which would join what is split here; `with_chunks` brings who says how many there are.
        ChunkCollectiveMatmuls(),
        # After merging, so that one exchange is split and not several; the reductions are ordinary ops from here on.
        SplitCollectives(),
        # After all ops have their lowering, which says what they cost, and before what is rematerialized is dead code.
        Rematerialize(level),
        # After it, as a gradient that would have kept a product is then among what the product is needed for.
        ChunkContractions(limit),
        # Residuals kept views of the forward part and of the backward part apart.
        Canonicalize(),
        # Last: decompositions of neighbours share parts (the maximum of two softmaxes of one value).
        EliminateCommon(),
        # After it, when all readers of a transposed tensor are known: reductions alone read its source.
        ReduceTransposed(),
        # After what works on whole gradients of attention, and before accumulators, as it makes a matmul.
        KeepScoreGradients(kept),
        # After every pass that may make a sum: later stages read the accumulator and need not know the default.
        StateAccumulators(),
        # After it, as a chain has the accumulator of its contraction; `with_unfolded` switches it on.
        UnfoldWindows(applies=False),
        # After all of them: partial results are in the accumulator, and until here a contraction is one op.
        SplitContractions(joining),
    )


def with_unfolded(passes: Sequence[Pass], best: MatrixInstruction) -> Sequence[Pass]:
    """A pipeline for a machine that multiplies whole tiles of matrices."""
    unfold = UnfoldWindows(" ".join(best.along_k), copies=" ".join(map(str, best.windows)))
    return tuple(unfold if isinstance(one, UnfoldWindows) else one for one in passes)


def with_chunks(passes: Sequence[Pass], chooser: Chooser) -> Sequence[Pass]:
    """A pipeline that asks in how many chunks contractions go with the collectives beside them."""
    return tuple(ChunkCollectiveMatmuls(chooser) if isinstance(one, ChunkCollectiveMatmuls) else one for one in passes)


def with_segments(passes: Sequence[Pass], chooser: Chooser, *, fast: bool) -> Sequence[Pass]:
    """A pipeline that asks how long segments of K are: before the last pass, which splits contractions by that."""
    return (*passes[:-1], ChooseSegments(chooser, fast), passes[-1])
