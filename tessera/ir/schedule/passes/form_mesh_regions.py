"""Form mesh regions: the scopes of mesh axes that ops of a plan name become regions around those ops."""

from __future__ import annotations

import re

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue

from tessera.ir.base.build import region_of
from tessera.ir.base.dialect_of import make
from tessera.ir.base.op import SpecOp, plain
from tessera.ir.base.passes import Pass, refuse
from tessera.ir.base.tape import MESH, REGION
from tessera.ir.base.types import attribute_of
from tessera.ir.schedule.dialect import DIALECT
from tessera.ir.schedule.ops.mesh import declared_mesh
from tessera.ir.schedule.plan import programs_in

_ANNOTATIONS = ("tsched.tile", "tsched.layout", "tsched.collective")
_SCOPE = re.compile(r"\w+=[1-9]\d{0,8}")
_ANYWHERE = ("tsched.constant", "tsched.alias")
"""Ops that compute nothing: they stay in a region where both neighbours are of it."""


class FormMeshRegions(Pass):
    """Put ops that stand in scopes of mesh axes into `tsched.mesh.region`s, one within the other as the scopes are.

    Before: `%a = tsched.fuse @f(%x) {tessera.region = "data=4"}` in a module with `tessera.mesh = {data = 4}`. After:
    `%a = tsched.mesh.region(axis = "data", size = 4) { ... }` with the group and its choices, which yields what is read
    outside, in a module with `mesh = {data = 4}`. Ops keep their order. In no pipeline of passes: a plan that is
    written down has regions (`fn.schedule()`), and what runs is one rank's program.
    """

    is_lowering = True

    def run(self, module: ModuleOp) -> None:
        for program in programs_in(module):
            mesh = program.attributes.pop(MESH, None)
            if mesh is not None:
                program.set_value("mesh", plain(mesh))
            _wrap(program.regions[0].block, 0)
            for op in program.walk():
                op.attributes.pop(REGION, None)


def _wrap(block: Block, depth: int) -> None:
    """Make regions of the axes at a depth of scopes, and those below it inside of them."""
    run: list[Operation] = []
    axis = ""
    for op in [*block.ops, None]:
        own = _axis_at(op, depth) if op is not None else ""
        if own is None or (run and own == axis):
            if run and op is not None:
                run.append(op)
            continue
        _close(run, axis, depth)
        run, axis = ([op], own) if op is not None and own else ([], "")
        if op is not None and not own:
            for region in op.regions:
                _wrap(region.block, len(_scopes(op)))


def _scopes(op: Operation) -> list[str]:
    found = [one for one in region_of(op).split("/") if one]
    for scope in found:
        if not _SCOPE.fullmatch(scope):
            refuse(op, f"`{REGION}` has scopes such as `data=4`, an axis with its ranks, got {scope!r}")
    return found


def _axis_at(op: Operation, depth: int) -> str | None:
    """The scope of an op at a depth, empty where it is in none; None for one that stands anywhere."""
    if op.name in _ANYWHERE:
        return None
    if op.name in _ANNOTATIONS and isinstance(owner := op.operands[0].owner, Operation):
        return _axis_at(owner, depth)
    scopes = _scopes(op)
    return scopes[depth] if len(scopes) > depth else ""


def _close(run: list[Operation], axis: str, depth: int) -> None:
    """Move a run of ops into a region of their axis, behind which others read what it yields."""
    while run and run[-1].name in _ANYWHERE:
        run.pop()
    if not run:
        return
    around, inside = run[0].parent, Block()
    assert around is not None
    anchor = run[-1].next_op
    for op in run:
        op.detach()
        inside.add_op(op)
    _wrap(inside, depth + 1)
    results = [result for op in inside.ops for result in op.results if _is_read_outside(result, inside)]
    name, _, size = axis.partition("=")
    inside.add_op(make(DIALECT["yield"], results))
    values = {"axis": name, "size": int(size)}
    types = [result.type for result in results]
    region = make(DIALECT["tsched.mesh.region"], (), values, types=types, regions=[inside])
    region.location = run[0].location
    if anchor is None:
        around.add_op(region)
    else:
        around.insert_op_before(region, anchor)
    for old, new in zip(results, region.results, strict=True):
        _replace_outside(old, new, inside)


def _is_within(op: Operation, block: Block) -> bool:
    at: Operation | None = op
    while at is not None and at.parent is not block:
        at = at.parent_op()
    return at is not None


def _is_read_outside(value: SSAValue, block: Block) -> bool:
    return any(not _is_within(use.operation, block) for use in value.uses)


def _replace_outside(old: SSAValue, new: SSAValue, block: Block) -> None:
    for use in list(old.uses):
        if not _is_within(use.operation, block):
            use.operation.operands[use.index] = new


def inline_regions(program: SpecOp) -> None:
    """Put the ops of mesh regions where the regions stand; each says in which scopes it was."""
    for op in [one for one in program.walk() if one.name == DIALECT["tsched.mesh.region"].name]:
        assert isinstance(op, SpecOp)
        axis, block = op.value("axis"), op.regions[0].block
        scope = f"{axis}={op.value('size') or (declared_mesh(op) or {}).get(axis, 0)}"
        last = block.last_op
        assert last is not None
        assert op.parent is not None
        yielded = list(last.operands)
        for inner in list(block.ops):
            inner.detach()
            if inner is last:
                inner.erase()
                continue
            _mark(inner, scope)
            op.parent.insert_op_before(inner, op)
        for result, value in zip(op.results, yielded, strict=True):
            result.replace_all_uses_with(value)
        op.detach()
        op.erase()


def _mark(op: Operation, scope: str) -> None:
    for one in op.walk():
        known = region_of(one)
        if one.name not in (*_ANNOTATIONS, *_ANYWHERE):
            one.attributes[REGION] = attribute_of("str", f"{known}/{scope}" if known else scope)
