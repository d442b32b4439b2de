"""What partitioning works on: a tape whose composite ops are decomposed and whose bodies are inlined.

Means and variances divide by sizes, and a decomposition knows those of the whole; after partitioning it would not.
"""

from __future__ import annotations

from tessera.ir.base.op import SpecOp
from tessera.ir.base.tape import Tape
from tessera.ir.graph.dialect import from_tape, to_tape
from tessera.ir.graph.passes.canonicalize import Canonicalize
from tessera.ir.graph.passes.decompose import Decompose
from tessera.ir.graph.passes.eliminate_common import EliminateCommon
from tessera.ir.graph.passes.fold_constants import FoldConstants
from tessera.ir.graph.passes.inline_checkpoints import InlineCheckpoints
from tessera.ir.graph.passes.inline_custom import InlineCustom
from tessera.ir.graph.passes.resolve_placeholders import ResolvePlaceholders

PASSES = (
    # As in the pipeline of the stage, up to where every op has a lowering.
    ResolvePlaceholders,
    InlineCustom,
    InlineCheckpoints,
    Canonicalize,
    EliminateCommon,
    Decompose,
    Canonicalize,
    FoldConstants,
    EliminateCommon,
)


def lower_composites(tape: Tape) -> Tape:
    """A tape of ops that have a lowering, control flow and effects alone; it computes the same."""
    module = from_tape(tape)
    for make in PASSES:
        make().run(module)
    (function,) = [op for op in module.ops if isinstance(op, SpecOp)]
    made = to_tape(function)
    made.promises, made.functions, made.guards = dict(tape.promises), tape.functions, list(tape.guards)
    return made
