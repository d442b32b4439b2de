"""One rank's program from a program for whole tensors: local shapes, and the collectives that it needs."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp

from tessera.diagnostics.codes import ShardingError
from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Pass
from tessera.ir.base.tape import Tape
from tessera.ir.graph.dialect import transform_functions
from tessera.ir.graph.sharding.partition import partition_tape
from tessera.types.frozen import frozen
from tessera.types.sharding import Sharding


@frozen
class Partition(Pass):
    """Partition functions over the axes of a mesh, given how arguments and results are sharded.

    Before: `%y = tgraph.matmul %x, %w` of `[8, 16]` and `[16, 4]`, with `graph-partition{mesh = ["tp=2"],
    arguments = ["[{}, {tp}]", "[{tp}, {}]"]}`. After: a matmul of `[8, 8]` and `[8, 4]`, and an `all_reduce` over `tp`.
    A sharding that is left out, or empty, is what follows from the others. Composite ops are decomposed before.
    """

    mesh: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    function: str = ""

    def run(self, module: ModuleOp) -> None:
        mesh = dict(_read_axis(one) for one in self.mesh)

        def change(function: SpecOp, tape: Tape) -> dict[str, Tape]:
            for what, own, count in (
                ("arguments", self.arguments, len(tape.inputs)),
                ("results", self.results, len(tape.outputs)),
            ):
                if len(own) > count:
                    raise ShardingError(
                        f"there are shardings of {len(own)} {what}, and `@{function.value('symbol')}` has {count}",
                        span=function.span,
                    )
            inputs, outputs = (
                [Sharding.parse(one) if one else None for one in own] for own in (self.arguments, self.results)
            )
            return {str(function.value("symbol")): partition_tape(tape, mesh, inputs, outputs)[0]}

        transform_functions(module, self.function, change)


def _read_axis(text: str) -> tuple[str, int]:
    name, _, size = text.partition("=")
    if not name.isidentifier() or not size.isdigit() or int(size) < 1:
        raise ShardingError(f"an axis of a mesh is written as `dp=2`, got `{text}`", span=None)
    return name, int(size)
