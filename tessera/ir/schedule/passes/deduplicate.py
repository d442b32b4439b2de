"""Give equal groups one body, whatever their values and sizes are called."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp

from tessera.ir.base.passes import Pass
from tessera.ir.base.verify import symbol_table
from tessera.ir.schedule.bodies import canonicalize, files_of, name_of
from tessera.ir.schedule.plan import body_of, function_of, fusions_in, overwritten_arguments, tape_in


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
            function = body_of(fuse, functions)
            tape, sizes = canonicalize(tape_in(function))
            name, files = name_of(tape, fuse.kind, tuple(fuse.axes), overwritten_arguments(fuse)), files_of(tape)
            while kept.get(name, files) != files:
                name += "_"
            fuse.body = name
            fuse.sizes = tuple(sizes.items())
            if name not in kept:
                kept[name] = files
                module.body.block.insert_op_before(function_of(tape, name, tape.guards), function)
            function.detach()
            function.erase()
