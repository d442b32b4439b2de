"""Make a `tsched.func` of each group that a plan materializes: the group by itself, with what was chosen for it."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, SSAValue

from tessera.ir.base.dialect_of import make
from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Pass, refuse
from tessera.ir.base.verify import symbol_table
from tessera.ir.schedule.plan import programs_in
from tessera.ir.schedule.typed_ops import CollectiveOp, FuseOp, LayoutOp, MaterializeOp, TileOp
from tessera.types.frozen import frozen


@frozen
class MaterializeGroups(Pass):
    """Add a function for each `tsched.materialize`, behind the program.

    Before: `%a = tsched.fuse @k(%x)`, `tsched.tile %a chosen = 32`, `%f = tsched.materialize %a : !tsched.func`. After:
    the same, and `tsched.func @k_func(%x) {...}` with the group, its tiles, its collective and the layouts of what it
    reads. In no pipeline: a compiler makes kernels of groups where they are.
    """

    def run(self, module: ModuleOp) -> None:
        taken = set(symbol_table(module))
        for program in list(programs_in(module)):
            for op in [op for op in program.walk() if isinstance(op, MaterializeOp)]:
                group = op.operands[0].owner
                if not isinstance(group, FuseOp):
                    refuse(
                        op, "`tsched.materialize` takes a result of a group, and this is none", "name a `tsched.fuse`"
                    )
                name = _free_name(f"{group.body}_func", taken)
                module.body.block.insert_op_after(_function_of(group, name), program)


def _free_name(wanted: str, taken: set[str]) -> str:
    name, number = wanted, 1
    while name in taken:
        name, number = f"{wanted}_{number}", number + 1
    taken.add(name)
    return name


def _function_of(group: FuseOp, name: str) -> SpecOp:
    """A function of one group; its arguments are the operands, each once."""
    operands = list(dict.fromkeys(group.operands))
    block = Block(arg_types=[value.type for value in operands])
    mapper: dict[SSAValue, SSAValue] = dict(zip(operands, block.args, strict=True))
    for value, argument in zip(operands, block.args, strict=True):
        argument.name_hint = value.name_hint
    copies = [use.operation for value in operands for use in value.uses if isinstance(use.operation, LayoutOp)]
    about = [use.operation for value in group.results for use in value.uses]
    chosen = sorted((op for op in about if isinstance(op, TileOp | CollectiveOp)), key=_position)
    for op in (*copies, group, *chosen):
        block.add_op(op.clone(mapper))
    block.add_op(make("tsched.return", [mapper[result] for result in group.results], types=()))
    return make("tsched.func", values={"symbol": name}, types=(), regions=[block])


def _position(op: SpecOp) -> int:
    """The number of an op in its block: uses of a value come in no order."""
    assert op.parent is not None
    return list(op.parent.ops).index(op)
