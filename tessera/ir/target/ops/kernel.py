"""Kernels, the programs of a task, loops: what a kernel may ask of the machine is checked here."""

from __future__ import annotations

from tessera.ir.base.op import SpecOp
from tessera.ir.base.spec import Attribute, OpSpec
from tessera.ir.base.types import INDEX, BufferAttr, IndexAttr

MAX_ARGUMENTS = 1024
LANES = (4, 8, 16)
MAX_SCRATCH = 1 << 31
"""Bytes of scratch one thread may be asked for where the size is static."""


def _check_kernel(op: SpecOp) -> None:
    block = op.regions[0].block
    if len(block.args) > MAX_ARGUMENTS:
        op.fail(f"a kernel takes at most {MAX_ARGUMENTS} buffers, got {len(block.args)}")
    for argument in block.args:
        if not isinstance(argument.type, BufferAttr):
            op.fail(f"argument {argument.index} of `@{op.value('symbol')}` is {argument.type}, not a buffer")
    if op.value("lanes") not in LANES:
        op.fail(f"`lanes` is one of {list(LANES)}, got {op.value('lanes')}")
    if op.value("lanes") == 16 and "avx512f" not in op.value("features"):
        op.fail("16 lanes need the feature avx512f", "lower for a machine with avx512f, or with 8 lanes")
    if op.value("lanes") == 8 and "avx2" not in op.value("features"):
        op.fail("8 lanes need the feature avx2", "lower for a machine with avx2")
    if any(not 0 <= place < len(block.args) for place in op.value("writes")):
        op.fail(f"`writes` names arguments 0..{len(block.args) - 1}, got {list(op.value('writes'))}")
    scratch = op.value("scratch").value
    if scratch is not None and not 0 <= scratch <= MAX_SCRATCH:
        op.fail(f"a thread has at most {MAX_SCRATCH} bytes of scratch, got {scratch}")
    free = op.value("scratch").symbols - set(op.value("symbols"))
    if free:
        op.fail(f"the size of scratch uses {sorted(free)}, which the kernel is not given")


def _check_loop(op: SpecOp) -> None:
    if op.value("step") <= 0:
        op.fail(f"`step` must be positive, got {op.value('step')}")
    carried = [value.type for value in op.operands[2:]]
    if [argument.type for argument in op.regions[0].block.args] != [INDEX, *carried]:
        op.fail("the body of a loop takes its index and what it carries")
    if [result.type for result in op.results] != carried:
        op.fail("a loop gives what it carries")


def _check_programs(op: SpecOp) -> None:
    if [argument.type for argument in op.regions[0].block.args] != [INDEX] * len(op.value("grid")):
        op.fail(f"a program takes {len(op.value('grid'))} indices, one per axis of the grid")


def _check_launch(op: SpecOp) -> None:
    wanted, given = op.value("types"), [value.type for value in op.operands]
    texts = [str(type) for type in given]
    if list(wanted) != texts:
        op.fail(f"`@{op.value('kernel')}` takes ({', '.join(wanted)}), got ({', '.join(texts)})")
    if len(op.value("sizes")) != op.value("arity"):
        op.fail(f"`@{op.value('kernel')}` takes {op.value('arity')} sizes, got {len(op.value('sizes'))}")


def _check_index(op: SpecOp) -> None:
    if len(op.operands) != len(op.value("names")) or any(not isinstance(v.type, IndexAttr) for v in op.operands):
        op.fail("`ttarget.index` takes one index for each name")


def _carrying(name: str, summary: str) -> OpSpec:
    """An op with a body that takes an index and carries blocks."""
    return OpSpec(
        name=name,
        summary=summary,
        operands=("low", "high", "carried*"),
        results=("carried*",),
        attributes=(
            Attribute("step", "int", doc="the step, positive"),
            Attribute("is_partial", "bool", False, "whether a last part of a step is a turn too"),
        ),
        regions=("body",),
        effects=frozenset(["memory"]),
        verify=_check_loop,
    )


SPECS = (
    OpSpec(
        name="ttarget.kernel",
        summary="The code of a task, a run of programs; `scratch` is bytes for a thread, `lanes` f32 of a register.",
        results=(),
        attributes=(
            Attribute("symbol", "symbol", doc="the kernel's name"),
            Attribute("symbols", "strs", doc="the sizes it is given at a call"),
            Attribute("writes", "ints", doc="the arguments it writes"),
            Attribute("lanes", "int", doc="f32 lanes of a vector register"),
            Attribute("features", "strs", doc="what the machine must have"),
            Attribute("scratch", "dim", doc="bytes of scratch for a thread"),
        ),
        regions=("body",),
        form="function",
        verify=_check_kernel,
    ),
    OpSpec(name="ttarget.return", summary="The end of a kernel.", results=(), is_terminator=True),
    OpSpec(
        name="ttarget.launch",
        summary="A call of a kernel from the host: buffers of the kernel's types, then sizes.",
        operands=("buffers*",),
        results=(),
        attributes=(
            Attribute("kernel", "symbol", doc="the kernel"),
            Attribute("types", "strs", doc="the types of its arguments"),
            Attribute("arity", "int", doc="how many sizes it takes"),
            Attribute("sizes", "dims", doc="the sizes it is given"),
        ),
        effects=frozenset(["memory"]),
        verify=_check_launch,
    ),
    OpSpec(
        name="ttarget.programs",
        summary="This task's share of the grid, program after program.",
        results=(),
        attributes=(Attribute("grid", "dims", doc="programs along each axis"),),
        regions=("body",),
        effects=frozenset(["memory"]),
        verify=_check_programs,
    ),
    OpSpec(
        name="ttarget.index",
        summary="An expression over indices and sizes, in 64 bits.",
        operands=("at*",),
        results=("index",),
        attributes=(
            Attribute("names", "strs", doc="the name of each operand"),
            Attribute("expr", "dim", doc="over the names and the sizes"),
        ),
        verify=_check_index,
    ),
    _carrying("ttarget.loop", "Whole steps from `low` while they fit below `high`."),
    _carrying(
        "ttarget.tail",
        "The part of a step that is left below `high`, if any: the body runs once or not at all.",
    ),
    OpSpec(name="ttarget.yield", summary="The end of a body.", operands=("values*",), results=(), is_terminator=True),
)
