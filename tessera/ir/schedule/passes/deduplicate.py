"""Give equal groups one body, whatever their values and sizes are called."""

from __future__ import annotations

from typing import Any

from xdsl.dialects.builtin import ModuleOp

from tessera.ir.base.passes import Pass
from tessera.ir.base.tape import tape_key
from tessera.ir.base.verify import symbol_table
from tessera.ir.schedule.bodies import canonicalize, files_of, name_of
from tessera.ir.schedule.plan import body_of, function_of, fusions_in, overwritten_arguments, tape_in
from tessera.types.dim import Dim


class Deduplicate(Pass):
    """Rename the sizes of each body to `s0`, `s1`, ... and keep one of those that are then equal.

    Before: `tsched.fuse @group1(%x)` and `tsched.fuse @group3(%y)` with bodies that differ in the names of sizes.
    After: both name one body, each with `sizes` that say what its sizes are there. Kernels are made once per body.
    A size `N` with the guard `N % 16 == 0` is `16*s0` in the body, with `s0` being `N // 16` there.
    """

    def run(self, module: ModuleOp) -> None:
        functions = symbol_table(module)
        kept: dict[str, tuple[str, ...]] = {}
        known: dict[Any, tuple[str, tuple[tuple[str, Dim], ...]]] = {}
        """Names and sizes of bodies: layers repeat, and with the names of their sizes too."""
        for fuse in fusions_in(module):
            function = body_of(fuse, functions)
            tape = tape_in(function)
            about = fuse.kind, tuple(fuse.axes), overwritten_arguments(fuse)
            key = None if (own := tape_key(tape)) is None else (*about, own)
            if key is None or key not in known:
                canonical, sizes = canonicalize(tape)
                name, files = name_of(canonical, *about), files_of(canonical)
                while kept.get(name, files) != files:
                    name += "_"
                if name not in kept:
                    kept[name] = files
                    module.body.block.insert_op_before(function_of(canonical, name, canonical.guards), function)
                known[key] = name, tuple(sizes.items())
            fuse.body, fuse.sizes = known[key]
            function.detach()  # and not erased, op by op: nothing else refers to it
