"""Give equal groups one body, whatever their values and sizes are called."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp

from tessera.ir.base.build import block_of, tape_of
from tessera.ir.base.dialect_of import make
from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Pass
from tessera.ir.base.tape import Guard, Tape
from tessera.ir.base.verify import symbol_table
from tessera.ir.schedule.bodies import canonicalize, files_of, name_of
from tessera.ir.schedule.plan import fusions_in


class Deduplicate(Pass):
    """Rename the sizes of each body to `s0`, `s1`, ... and keep one of those that are then equal.

    Before: `tsched.fuse @group1(%x)` and `tsched.fuse @group3(%y)` with bodies that differ in the names of sizes.
    After: both name one body, each with `sizes` that say what its sizes are there. Kernels are made once per body.
    A size `N` with the guard `N % 16 == 0` is `16*s0` in the body, with `s0` being `N // 16` there.
    """

    def run(self, module: ModuleOp) -> None:
        functions = symbol_table(module)
        kept: dict[str, tuple[str, ...]] = {}
        for fuse in fusions_in(module):
            function = functions[fuse.body]
            tape, sizes = canonicalize(_body_tape(function))
            name, files = name_of(tape, fuse.kind, tuple(fuse.axes)), files_of(tape)
            while kept.get(name, files) != files:
                name += "_"
            fuse.body = name
            fuse.sizes = tuple(sizes.items())
            if name not in kept:
                kept[name] = files
                module.body.block.insert_op_before(_function(tape, name), function)
            function.detach()
            function.erase()


def _body_tape(function: SpecOp) -> Tape:
    tape = tape_of(function.regions[0].block)
    tape.guards = [Guard(left, right, what) for left, right, what in function.value("guards")]
    return tape


def _function(tape: Tape, name: str) -> SpecOp:
    values = {
        "symbol": name,
        "names": tuple(tape.names),
        "guards": tuple((guard.left, guard.right, guard.what) for guard in tape.guards),
    }
    return make("tgraph.func", values=values, types=(), regions=[block_of(tape, "tgraph.return")])
