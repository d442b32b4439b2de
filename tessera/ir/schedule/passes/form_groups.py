"""Form fusion groups: a function of Graph IR becomes a plan whose groups name their bodies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block

from tessera.ir.base.compilation import Chooser, StaticChooser
from tessera.ir.base.dialect_of import make
from tessera.ir.base.effects import keep_promises
from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Pass
from tessera.ir.base.policies import policy_over
from tessera.ir.base.types import TensorAttr
from tessera.ir.schedule.bodies import with_gathers, with_safe_sizes
from tessera.ir.schedule.dialect import DIALECT
from tessera.ir.schedule.fusion import RULES
from tessera.ir.schedule.grouping import FusionRule, forbid_fusion
from tessera.ir.schedule.oriented_operands import Orientation
from tessera.ir.schedule.own_producers import with_own_producers
from tessera.ir.schedule.plan import tape_in
from tessera.ir.schedule.plan_builder import PlanBuilder
from tessera.types.frozen import frozen
from tessera.types.machine import AUTOMATIC, Machine, MatrixInstruction


@frozen
class FormGroups(Pass):
    """Replace each function by a `tsched.module` of fusion groups.

    Before: `tgraph.func @main` with `matmul`, `add`, `gelu`. After: `tsched.fuse @group0(%x, %w, %b)` in a
    `tsched.module @main`, and `tgraph.func @group0` with the three ops. With `fusion = false` every op is a group.
    On machines with matrix instructions contractions copy whole tiles, each along single dims of memory. On GPUs each
    element of a padded tensor is read where it is wanted, under a mask; CPUs copy boxes, which are long runs.
    """

    fusion: bool = True
    chooser: Chooser = field(default_factory=StaticChooser)
    machine: Machine = field(default_factory=lambda: Machine("generic"))
    rules: Sequence[type[FusionRule]] = RULES

    def run(self, module: ModuleOp) -> None:
        rules = [rule for rule in self.rules if rule.applies(self.machine)]
        builder = PlanBuilder(self._ask if self.fusion else forbid_fusion, rules, bool(self.machine.instructions))
        builder.computes = self._is_best(lambda best: best.computes)
        for function in [op for op in module.ops if op.name == "tgraph.func"]:
            assert isinstance(function, SpecOp)
            self._replace(module, function, builder)

    def _is_best(self, can: Callable[[MatrixInstruction], bool]) -> bool:
        """Whether matmuls are on the machine's best instruction, and that can do something."""
        best = next(iter(self.machine.instructions), None)
        if best is None or not can(best):
            return False
        chosen = self.chooser.choose("matrix.instruction", self.machine.matrix_choices, {"machine": self.machine}).value
        return chosen in (AUTOMATIC, best.name)

    def _replace(self, module: ModuleOp, function: SpecOp, builder: PlanBuilder) -> None:
        source = function.regions[0].block
        tape = with_safe_sizes(tape_in(function))
        tape = with_gathers(tape) if self.machine.is_gpu else tape
        tape = with_own_producers(tape) if self.fusion else tape
        policy = policy_over(function)
        builder.rounded = policy if self._is_best(lambda best: bool(best.rounds)) else None
        is_oriented = self._is_best(lambda best: bool(best.along_k))
        along_k = frozenset(self.machine.instructions[0].along_k) if is_oriented else frozenset[str]()
        builder.orientation = Orientation(along_k, policy) if is_oriented else None
        builder.guards = tape.guards
        guards = tuple((guard.left, guard.right, guard.what) for guard in tape.guards)
        block = Block(arg_types=[TensorAttr.of(tape.types[value]) for value in tape.inputs])
        for argument, old in zip(block.args, source.args, strict=True):
            argument.name_hint = old.name_hint
        results = builder.fill(block, tape, block.args)
        block.add_op(make(DIALECT["return"], results))
        values = {"symbol": function.value("symbol"), "names": function.value("names"), "guards": guards}
        plan = make(DIALECT["module"], values=values, types=(), regions=[block], span=function.span)
        keep_promises(function, plan)
        body = module.body.block
        for one in (plan, *builder.take_functions()):
            body.insert_op_before(one, function)
        function.detach()  # and not erased, op by op: nothing else refers to it

    def _ask(self, knob: str, name: str) -> bool:
        return self.chooser.choose(f"{knob}@{name}", (True, False), {}).value
