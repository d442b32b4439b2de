"""Ops that say what derivatives keep: a checkpointed body, names of its values, and barriers to optimization.

`checkpoint` is its body in all that it computes; its derivative keeps what `policy` says, and rematerializes the rest
(`ir/graph/derivatives/control.py`). A policy is plain values, its name and its arguments: `("dots_saveable",)`,
`("save_only_these_names", "scores")`. The names are JAX's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np

from tessera.diagnostics.error import find_nearest
from tessera.ir.base.arrays import Array
from tessera.ir.base.index_maps import coordinates
from tessera.ir.base.interval import SAME
from tessera.ir.base.spec import Attribute, Attributes, InferContext, OpSpec, Sample
from tessera.ir.base.tape import Record, Tape
from tessera.ir.graph import ops
from tessera.ir.graph.building import Types, moving_cost
from tessera.ir.graph.ops.control import Body, check_body, region_op
from tessera.ir.graph.ops.movement import STORED, view
from tessera.ir.graph.samples import moving_sample
from tessera.ir.tile.facets import View

# Policies: which values of a body derivatives keep.

Saves = Callable[[OpSpec, Record, Tape, tuple[str, ...]], bool]
"""Whether a policy with some arguments keeps the results of a record."""


def is_dot(spec: OpSpec, record: Record, tape: Tape, names: tuple[str, ...]) -> bool:
    """Matmuls, convolutions and whatever else multiplies and sums."""
    return ops.policy_of(spec).role == "contract"


def is_dot_without_batch(spec: OpSpec, record: Record, tape: Tape, names: tuple[str, ...]) -> bool:
    """Those in which one operand, a weight, is the same for the whole batch."""
    ranks = [tape.types[operand].rank for operand in record.operands[:2]]
    has_batch = bool(record.attributes.get("lhs_batch")) or all(rank > 2 for rank in ranks)
    return is_dot(spec, record, tape, names) and not has_batch


def _is_named(record: Record) -> bool:
    return record.op == "tgraph.checkpoint_name"


POLICIES: dict[str, Saves] = {
    "nothing_saveable": lambda spec, record, tape, names: False,
    "everything_saveable": lambda spec, record, tape, names: True,
    "dots_saveable": is_dot,
    "dots_with_no_batch_dims_saveable": is_dot_without_batch,
    "save_only_these_names": lambda spec, record, tape, names: (
        _is_named(record) and record.attributes["label"] in names
    ),
    "save_any_names_but_these": lambda spec, record, tape, names: (
        _is_named(record) and record.attributes["label"] not in names
    ),
}


def check_policy(policy: Any) -> str:
    """What is wrong with a policy; empty where nothing is."""
    entries = cast("tuple[Any, ...]", policy) if isinstance(policy, tuple) else ()
    if not entries or not all(isinstance(one, str) for one in entries):
        return f"a policy is a tuple of its name and the names it takes, got {policy!r}"
    name = str(entries[0])
    if name not in POLICIES:
        near = find_nearest(name, POLICIES)
        return f"there is no policy `{name}`" + (f"; did you mean `{near[0]}`?" if near else "")
    return ""


def is_saved(policy: tuple[str, ...], record: Record, tape: Tape) -> bool:
    """Whether a policy keeps the results of a record of a tape."""
    name, *names = policy
    return POLICIES[name](ops.REGISTRY[record.op], record, tape, tuple(names))


# The ops.


def _infer_checkpoint(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    wrong = check_policy(attributes["policy"])
    if wrong:
        raise ctx.fail(f"`checkpoint`: {wrong}")
    return check_body(ctx, "checkpoint", "the body", attributes["body"], types)


def checkpoint_reference(*operands: Array, body: Body, policy: Any = None) -> tuple[Array, ...]:
    """The body."""
    return tuple(body(*operands))


CHECKPOINT = region_op(
    "checkpoint",
    "The results of a body, of which derivatives keep what a policy says and rematerialize the rest.",
    (
        Attribute("body", "tape"),
        Attribute("policy", "any", ("nothing_saveable",), "the name of a policy, and its arguments"),
    ),
    _infer_checkpoint,
    checkpoint_reference,
)


def _infer_first(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    return list(types[:1])


def _barrier_reference(x: Array, *after: Array) -> Array:
    return np.array(x)


def _after_sample(shape: tuple[int, ...], name: str) -> Sample:
    return Sample(name, lambda rng: (rng.normal(size=shape), rng.normal(size=(2,)).astype(np.float32)))


def _waiting(name: str, summary: str, jvp: str, transpose: str | None) -> OpSpec:
    """The declaration of a view that waits for other values."""
    return OpSpec(
        name=f"tgraph.{name}",
        summary=summary,
        operands=("x", "after*"),
        infer=_infer_first,
        reference=_barrier_reference,
        samples=(moving_sample((3, 4), "matrix"), moving_sample((), "scalar"), _after_sample((5,), "after another")),
        dtypes=STORED,
        cost=moving_cost,
        lower=View(lambda x, outs, attributes: [coordinates(x.rank)], waits=True),
        interval=SAME,
        jvp=jvp,
        transpose=transpose,
        batch="movement:optimization_barrier",
    )


BARRIER = _waiting(
    "optimization_barrier",
    "The same elements once the values `after` are computed; nothing is merged with or moved before it.",
    "first",
    "control:barrier_transpose",
)
SAVED = _waiting(
    "saved_value",
    "A value as the backward part needs it once the values `after` are computed: kept until then, or rematerialized.",
    "control:same_jvp",
    None,
)


def _name_reference(x: Array, *, label: str) -> Array:
    return np.array(x)


NAME = view(
    "checkpoint_name",
    "The same elements, under a name that policies of `checkpoint` know.",
    attributes=(Attribute("label", "str", doc="the name"),),
    infer=_infer_first,
    reference=_name_reference,
    maps=lambda x, outs, attributes: [coordinates(x.rank)],
    simplify=lambda simplifier, operands, attributes: operands[0],
    samples=(moving_sample((3, 4), "matrix", label="a"), moving_sample((), "scalar", label="b")),
    jvp="control:same_jvp",
)

SPECS: tuple[OpSpec, ...] = (CHECKPOINT, BARRIER, SAVED, NAME)
