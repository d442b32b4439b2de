"""Verifiers: one walk that checks each op, dominance and block ends; exit rules of stages; checks of kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue

from tessera.ir.base.dialect_of import is_isolated
from tessera.ir.base.infer import Guards
from tessera.ir.base.op import OpError, SpecOp, check_form, check_meaning
from tessera.ir.base.spec import Attribute
from tessera.ir.base.types import INDEX, BufferAttr, IndexAttr, ValueAttr
from tessera.types.frozen import frozen

# What may leave a stage: the exit check of its ops, with the reason for a refusal.


@frozen
class Legality:
    """The exit rule of one stage: dialects whose ops may leave it, and a closer look at each op.

    `refusal(op)` gives the reason why an op may not leave, or None.
    """

    stage: str
    dialects: frozenset[str]
    refusal: Callable[[SpecOp], str | None] | None = None

    def check(self, module: Operation) -> None:
        """Raises `OpError` at the first op that may not leave."""
        for op in module.walk():
            if isinstance(op, ModuleOp):
                continue
            if op.name.split(".", 1)[0] not in self.dialects:
                raise OpError(op, f"`{op.name}` may not leave {self.stage}: only ops of {self._listed} may")
            reason = self.refusal(op) if self.refusal is not None and isinstance(op, SpecOp) else None
            if reason is not None:
                raise OpError(op, f"`{op.name}` may not leave {self.stage}: {reason}")

    @property
    def _listed(self) -> str:
        return ", ".join(sorted(self.dialects))


# What kernels and loops of every level have in common: attributes, and checks of arguments, grids and steps.

SYMBOL = Attribute("symbol", "symbol", doc="the kernel's name")
SYMBOLS = Attribute("symbols", "strs", doc="the sizes passed at a call")
GRID = Attribute("grid", "dims", doc="programs along each axis")
WRITES = Attribute("writes", "ints", doc="the arguments it writes")
KERNEL = (SYMBOL, SYMBOLS, GRID, WRITES)
"""What a kernel of a grid of programs says about itself."""
STEP = Attribute("step", "int", doc="the step, positive")


def check_arguments(op: SpecOp) -> None:
    """Arguments are buffers, and those written are among them."""
    block = op.regions[0].block
    for argument in block.args:
        if not isinstance(argument.type, BufferAttr):
            op.fail(f"argument {argument.index} of `@{op.value('symbol')}` is {argument.type}, not a buffer")
    if any(not 0 <= index < len(block.args) for index in op.value("writes")):
        op.fail(f"`writes` names arguments 0..{len(block.args) - 1}, got {list(op.value('writes'))}")


def check_grid(op: SpecOp) -> None:
    """The grid of a kernel uses declared sizes only."""
    known = set(op.value("symbols"))
    for dim in op.value("grid"):
        if not dim.symbols <= known:
            op.fail(f"the grid uses {sorted(dim.symbols - known)}, and the kernel's sizes are {sorted(known)}")


def check_step(op: SpecOp) -> None:
    """Raises unless a loop makes progress."""
    if op.value("step") <= 0:
        op.fail(f"`step` must be positive, got {op.value('step')}")


def check_loop(op: SpecOp) -> None:
    """A loop runs from an index to an index, and its body takes, and yields, what it carries."""
    check_step(op)
    if any(not isinstance(value.type, IndexAttr) for value in op.operands[:2]):
        op.fail(f"`{op.name}` runs from an index to an index, got {[str(v.type) for v in op.operands[:2]]}")
    block, carried = op.regions[0].block, [value.type for value in op.operands[2:]]
    check_carried(op, carried)
    if [argument.type for argument in block.args] != [INDEX, *carried]:
        op.fail("the body of a loop takes its index and what it carries")
    if [result.type for result in op.results] != carried:
        op.fail("a loop gives what it carries")
    last = block.last_op
    if last is None or not last.name.endswith(".yield") or [value.type for value in last.operands] != carried:
        op.fail("the body of a loop yields what it carries")


def check_carried(op: SpecOp, types: Iterable[object]) -> None:
    """Raises where a loop would carry memory: who writes an argument of a kernel is found by what it is called."""
    for type in types:
        if isinstance(type, BufferAttr):
            op.fail(f"`{op.name}` carries {type}, and memory is used by its name, inside of a loop as outside")


def around(op: Operation, *names: str) -> SpecOp | None:
    """The innermost op of one of these names that encloses an op, or is it; None where there is none."""
    at: Operation | None = op
    while at is not None and at.name not in names:
        at = at.parent_op()
    return at if isinstance(at, SpecOp) else None


def parts_in(op: Operation, *names: str) -> list[SpecOp]:
    """The ops of some names in an op, or at any depth below it, in order."""
    return [part for part in op.walk() if isinstance(part, SpecOp) and part.name in names]


def verify(root: Operation) -> None:
    """Raises `OpError` at the first op that breaks a rule.

    Beyond each op's own check: a value is used after it is defined, in its block or below, and not across an op that
    is isolated; a region has one block, which ends in a terminator unless its op is a module.
    """
    _verify_op(root, set(), Guards())


def _verify_op(op: Operation, visible: set[SSAValue], guards: Guards) -> None:
    for index, operand in enumerate(op.operand_values if isinstance(op, SpecOp) else op.operands):
        if operand not in visible:
            raise OpError(op, f"operand {index} of `{op.name}` is used before, or outside of where, it is defined")
    if isinstance(op, SpecOp):
        check_form(op)
        if op.regions:
            _verify_regions(op, visible, guards)
        check_meaning(op, guards)
    elif isinstance(op, ModuleOp):
        outer = op.parent_op()
        if isinstance(outer, SpecOp):
            raise OpError(op, f"a module stands by itself or in another, not in a `{outer.name}`")
        _check_blocks(op)
        for part in op.ops:
            # Functions look at each other: what they say of themselves is right before any looks.
            if isinstance(part, SpecOp):
                check_form(part)
                _check_blocks(part)
        check_symbols(op)
        _verify_regions(op, visible, guards)
    else:
        raise OpError(op, f"`{op.name}` is an op of no dialect of ours")


def _verify_regions(op: Operation, visible: set[SSAValue], guards: Guards) -> None:
    found = op.properties.get("guards")
    inner = Guards(found.data) if isinstance(found, ValueAttr) and found.data else guards
    hides = not isinstance(op, SpecOp) or is_isolated(op.spec)
    _check_blocks(op)
    for region in op.regions:
        _verify_block(op, region.block, set() if hides else visible, inner)


def _check_blocks(op: Operation) -> None:
    for region in op.regions:
        if len(region.blocks) != 1:
            raise OpError(op, f"a region of `{op.name}` has {len(region.blocks)} blocks, not one")


def _verify_block(parent: Operation, block: Block, visible: set[SSAValue], guards: Guards) -> None:
    added: list[SSAValue] = list(block.args)
    visible.update(added)
    last = block.last_op
    for op in block.ops:
        _verify_op(op, visible, guards)
        visible.update(op.results)
        added.extend(op.results)
        if isinstance(op, SpecOp) and op.spec.is_terminator and op is not last:
            raise OpError(op, f"`{op.name}` ends a block, but is not the last op of one")
    if isinstance(parent, SpecOp) and not (isinstance(last, SpecOp) and last.spec.is_terminator):
        raise OpError(parent, f"the block of `{parent.name}` does not end in a terminator")
    visible.difference_update(added)


def check_symbols(module: ModuleOp) -> None:
    """Raises `OpError` where two functions of a module have one name."""
    seen: set[str] = set()
    for op in symbols_in(module):
        symbol = op.properties.get("symbol", op.defaults.get("symbol"))
        name = symbol.data if isinstance(symbol, ValueAttr) else None
        if not isinstance(name, str):
            continue  # the check of the op's own form says what is missing
        if name in seen:
            raise OpError(op, f"`@{name}` is defined twice")
        seen.add(name)


def symbols_in(module: ModuleOp) -> Iterable[SpecOp]:
    """The functions of a module."""
    return (op for op in module.ops if isinstance(op, SpecOp) and op.spec.form == "function")


def symbol_table(module: ModuleOp) -> dict[str, SpecOp]:
    """The functions of a module by name: a dict, since xDSL's own look-up walks the module each time."""
    return {op.value("symbol"): op for op in symbols_in(module)}
