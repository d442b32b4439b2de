"""What `explain` says of a program: its groups and kernels, what was chosen by whom, flops, bytes and memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

from xdsl.ir import BlockArgument, Operation, SSAValue

from tessera.ir.base.compilation import NUMERIC, Choice, StaticChooser, knob_class
from tessera.ir.base.op import SpecOp, plain
from tessera.ir.base.policies import policy_text
from tessera.ir.base.tape import PLANNED, RECOGNIZED
from tessera.ir.base.types import ShapedAttr, ValueAttr
from tessera.ir.graph.passes.chunk_contractions import CHUNKED
from tessera.ir.graph.passes.rematerialize import KEPT, REMATERIALIZED
from tessera.ir.schedule.plan import PLAN
from tessera.ir.schedule.typed_ops import (
    AliasOp,
    AllocOp,
    CallbackOp,
    CallOp,
    CollectiveStartOp,
    CopyOp,
    ForOp,
    IfOp,
    ModuleOp,
    WhileOp,
)
from tessera.ir.target.program import Code
from tessera.ir.target.typed_ops import LoadOp
from tessera.ir.tile.typed_ops import DotOp, FetchOp, KernelOp
from tessera.ir.tile.typed_ops import ForOp as TileForOp
from tessera.ir.tile.typed_ops import LoadOp as TileLoadOp
from tessera.ir.tile.typed_ops import StoreOp as TileStoreOp
from tessera.types.dim import Dim, product

# What `explain` says of prefetched tensors: which kernel reads each, and by what it is moved where.

ENGINES = {
    "ttarget.tensor_map": "by the TMA",
    "ttarget.copy_async": "by asynchronous copies (cp.async)",
    "ttarget.gemm": "packed into the caches block by block, as without `prefetch`",
}
"""What a machine moves an argument with, by the op that says so."""
LOADS = "by its own loads, straight into registers, as without `prefetch`"


def movements_of(program: ModuleOp, targets: Sequence[SpecOp]) -> list[str]:
    """A line for each argument of a kernel that a program prefetches."""
    lines: dict[str, None] = {}
    for call in program.walk():
        if not isinstance(call, CallOp):
            continue
        for index, operand in enumerate(call.operands):
            alias = operand.owner
            if isinstance(alias, AliasOp) and alias.space:
                lines[_line(program, call, index, alias, targets)] = None
    return list(lines)


def _line(program: ModuleOp, call: CallOp, index: int, alias: AliasOp, targets: Sequence[SpecOp]) -> str:
    type = alias.result.type
    assert isinstance(type, ShapedAttr)
    name, how = call.kernel, _engine(call.kernel, index, targets)
    where = f" at {alias.span.label}" if alias.span is not None else ""
    shape = f"[{', '.join(map(str, type.shape))}] {type.dtype}"
    text = f"{_name_of(program, alias.operands[0])} {shape} to {alias.space} for {name}, beside compute: {how}"
    return text + where


def _name_of(program: ModuleOp, value: SSAValue) -> str:
    """An argument by its name; what the program computes by what it is."""
    while isinstance(value.owner, AliasOp):
        value = value.owner.operands[0]
    if isinstance(value, BlockArgument) and value.block is program.regions[0].block:
        return f"`{program.names[value.index]}`"
    return "a value"


def _engine(name: str, index: int, targets: Sequence[SpecOp]) -> str:
    """What moves an argument of a kernel; a kernel may have several forms, of which the first that moves it tells."""
    for kernel in _forms_of(name, targets):
        for op in kernel.walk():
            read = [value for value in op.operands if isinstance(value, BlockArgument) and value.index == index]
            if not any(value.block is kernel.regions[0].block for value in read):
                continue
            if op.name in ENGINES:
                return ENGINES[op.name] + _stages(op)
            if isinstance(op, LoadOp) and op.prefetch:
                return f"by prefetch instructions, {op.prefetch} bytes ahead of its loads"
    return LOADS


def _forms_of(name: str, targets: Sequence[SpecOp]) -> list[SpecOp]:
    """A kernel as Target IR: what is called so, and what stands in for it in some or all launches."""
    return [one for one in targets if one.value("symbol") == name or one.value("symbol").startswith(f"{name}__")]


def _stages(op: Operation) -> str:
    """How far before its use a block is copied; `prefetch` asks for two buffers, and more are the machine's own."""
    copies = [use.operation for result in op.results for use in result.uses] if op.results else [op]
    tiles = (value.owner for copy in copies for value in copy.operands)
    found = [tile.value("stages") for tile in tiles if isinstance(tile, SpecOp) and tile.name == "ttarget.shared_tile"]
    if not found:
        return ""
    more = ", as without `prefetch`" if max(found) > 2 else ""
    return f", in {max(found)} buffers, blocks ahead of their use{more}"


def _find_choices(program: ModuleOp, chooser: StaticChooser, kernels: Container[str]) -> Mapping[str, Choice]:
    """What was chosen: by the chooser, and by a plan where the program has one."""
    planned = program.attributes.get(PLANNED)
    if not isinstance(planned, ValueAttr):
        return chooser.asked
    # The compiler's own groups were formed too, to compare the plan with: what was chosen for them is in no code.
    blocks = "contraction.block@"
    left = {
        key: choice
        for key, choice in chooser.asked.items()
        if not key.startswith("fusion.") and (not key.startswith(blocks) or key.removeprefix(blocks) in kernels)
    }
    said: Sequence[str] = planned.data
    return {**left, **{key: Choice(value, PLAN) for key, value in zip(said[::2], said[1::2], strict=True)}}


def _numeric_choices(asked: Mapping[str, Choice]) -> dict[str, list[str]]:
    """Choices that somebody made and that give other bits, with the reason why they do."""
    numeric = [(key, choice) for key, choice in asked.items() if knob_class(key) == "numeric"]
    made = [(key, choice) for key, choice in numeric if choice.source != "default"]
    lines = [f"{key} is {choice.value} ({choice.source}): {NUMERIC[key.partition('@')[0]]}" for key, choice in made]
    return {"changes bits": lines} if lines else {}


def _list_recognized(program: ModuleOp) -> dict[str, list[str]]:
    """What was recognized in a program, and what became of it."""
    found = program.attributes.get(RECOGNIZED)
    return {"recognized": list(found.data)} if isinstance(found, ValueAttr) else {}


def report_of(program: ModuleOp, kernels: Sequence[KernelOp], chooser: StaticChooser, code: Code) -> dict[str, Any]:
    """Plain values only: the report travels in the executable."""
    calls = [op for op in program.walk() if isinstance(op, CallOp)]
    sizes: dict[str, dict[tuple[Dim, ...], None]] = {}
    for call in calls:
        sizes.setdefault(call.kernel, {})[tuple(call.sizes)] = None
    movements = movements_of(program, code.targets)
    asked = _find_choices(program, chooser, {kernel.symbol for kernel in kernels})
    return {
        **_list_recognized(program),
        "groups": [_group_line(call) for call in calls if call.part == 0],
        "kernels": [_kernel_line(kernel, sizes.get(kernel.symbol, ())) for kernel in kernels],
        **({"steps": steps} if (steps := _steps(program)) else {}),
        **_list_saved(program),
        **code.facts(),
        **({"movements": movements} if movements else {}),
        "choices": _choices(asked),
        **_numeric_choices(asked),
        "numerics": _numerics(kernels, code.approximations()),
        **_policies(kernels),
        "flops": str(program.flops),
        "bytes": str(program.bytes),
        "workspace": f"{program.workspace} bytes",
        **({"host memory": f"{program.offloaded} bytes"} if program.offloaded is not None else {}),
    }


def work_of(program: ModuleOp, kernels: Sequence[KernelOp], targets: Sequence[SpecOp]) -> list[dict[str, Any]]:
    """What each group does, as plain values with dims as text: what rooflines are computed from.

    A group of several kernels has its cost at the first; `blocks` is the grid of that one. `unseen` is what keeps the
    model from a share: `values` on which depends what is read, or `loops` whose iterations wait for each other.
    """
    known = {kernel.symbol: kernel for kernel in kernels}
    # A program of many layers calls each kernel many times: what is true of a kernel is looked for once.
    has_dots = {name: any(isinstance(op, DotOp) for op in kernel.walk()) for name, kernel in known.items()}
    reads_indices = {name: _reads_indices(kernel) for name, kernel in known.items()}
    multiplied: dict[str, str] = {}
    found: list[dict[str, Any]] = []
    for call in program.walk():
        if not isinstance(call, CallOp):
            continue
        if call.part != 0 or (found and _is_for_other_rows(call)):
            if found and call.kernel not in found[-1]["kernels"]:
                found[-1]["kernels"].append(call.kernel)
            continue
        kernel = known.get(call.kernel)
        if call.kernel not in multiplied:
            multiplied[call.kernel] = _multiplied_dtype(_forms_of(call.kernel, targets))
        found.append(
            {
                "kernels": [call.kernel],
                "kind": kernel.kind if kernel is not None else "",
                "dtype": multiplied[call.kernel] or _computed_dtype(call),
                "has_dots": has_dots.get(call.kernel, False),
                "unseen": "values" if reads_indices.get(call.kernel) else _unseen_in(call, kernel),
                "blocks": str(product(_sizes(kernel, call))) if kernel is not None else "",
                "flops": str(call.flops),
                "bytes": str(call.bytes),
                "written": str(_bytes_written(kernel, call)),
            }
        )
    return found


def _is_for_other_rows(call: CallOp) -> bool:
    """Whether a call is in a branch for few rows, and does what the one for many before it would do."""
    block = call.parent
    around = block.parent_op() if block is not None else None
    while isinstance(around, IfOp) and around.size is not None:
        usual = [op for op in around.regions[0].walk() if isinstance(op, CallOp)]
        if call not in usual and len(usual) == 1 and (usual[0].flops, usual[0].bytes) == (call.flops, call.bytes):
            return True
        around = around.parent_op()
    return False


def _bytes_written(kernel: KernelOp | None, call: CallOp) -> Dim:
    """Bytes of the buffers that a kernel writes."""
    places: Sequence[int] = kernel.writes if kernel is not None else ()
    types = [call.operands[place].type for place in places]
    return sum((one.data.bytes for one in types if isinstance(one, ShapedAttr)), Dim.constant(0))


def _sizes(kernel: KernelOp, call: CallOp) -> list[Dim]:
    names: Sequence[str] = kernel.symbols or ()
    given = dict(zip(names, call.sizes, strict=True)) if len(call.sizes) == len(names) else {}
    return [dim.substitute(given) for dim in kernel.grid]


def _multiplied_dtype(forms: Sequence[SpecOp]) -> str:
    """The dtype of the factors of a kernel on tensor cores; nothing for any other."""
    taken = [value.type for form in forms for op in form.walk() if "mma" in op.name for value in op.operands]
    found = [one.dtype for one in taken if isinstance(one, ShapedAttr)]
    if not found:
        return ""
    narrow = min(found, key=lambda one: one.bits)  # accumulators are as wide as factors, or wider
    return "tf32" if narrow.name == "f32" else narrow.name


def _computed_dtype(call: CallOp) -> str:
    """What arithmetic of a kernel is done in that is not on tensor cores: f32 or f64.

    Integers have no measured rate, and neither has what tensor cores make of f32.
    """
    types = [value.type for value in call.operands]
    floats = {one.dtype.name for one in types if isinstance(one, ShapedAttr) and one.dtype.is_float}
    return "f64" if "f64" in floats else "f32" if floats else "int"


def _reads_indices(kernel: KernelOp) -> bool:
    """Whether values decide which elements a kernel reads, or how many."""
    for op in kernel.walk():
        bounds = (op.low, op.high) if isinstance(op, TileForOp) else ()
        if any(map(_is_read, op.at if isinstance(op, TileLoadOp | TileStoreOp) else bounds)):
            return True
    return False


def _unseen_in(call: CallOp, kernel: KernelOp | None) -> str:
    """What a model of bytes and flops does not see of a call whose indices no values decide."""
    is_alone = isinstance(call.parent_op(), ModuleOp)
    return "" if is_alone and kernel is not None and kernel.kind != "library" else "loops"


def _is_read(value: SSAValue) -> bool:
    """Whether an index comes of memory, and not of sizes and ids of blocks alone."""
    left, seen = [value.owner], set[int]()
    while left:
        owner = left.pop()
        if isinstance(owner, TileLoadOp | FetchOp):
            return True
        if isinstance(owner, Operation) and id(owner) not in seen:
            seen.add(id(owner))
            left += [operand.owner for operand in owner.operands]
    return False


def _list_saved(program: ModuleOp) -> dict[str, list[str]]:
    """What a backward part is given by its forward part, what it rematerializes, and what is computed in chunks."""
    found = {name: program.attributes.get(name) for name in (KEPT, REMATERIALIZED, CHUNKED)}
    return {name.removeprefix("tessera."): list(plain(value)) for name, value in found.items() if value is not None}


def _numerics(kernels: Sequence[KernelOp], approximations: Mapping[str, Sequence[str]]) -> str:
    """Whether results are those of the reference, or of fast math, or of functions that the machine has itself."""
    found = [kernel.attributes.get("numerics.fused") for kernel in kernels]
    count = sum(plain(attribute) for attribute in found if attribute is not None)
    parts = [f"fast math: {count} adds fused with their multiplies"] if count else ["reproducible"]
    by_machine = sorted({text for texts in approximations.values() for text in texts})
    if by_machine:
        parts.append(f"the machine's own {', '.join(by_machine)}")
    return "; ".join(parts)


def _policies(kernels: Sequence[KernelOp]) -> dict[str, list[str]]:
    """The policies that kernels keep, where any does."""
    texts = [(kernel.symbol, policy_text(kernel)) for kernel in kernels]
    listed = [f"{name}: {text}" for name, text in texts if text]
    return {"policies": listed} if listed else {}


def _choices(asked: Mapping[str, Choice]) -> list[str]:
    """Every choice and who made it; fusions that nobody asked to be otherwise are counted, as there are many."""
    lines: list[str] = []
    plain = 0
    for key, choice in sorted(asked.items()):
        if key.startswith("fusion.") and choice.source == "default":
            plain += 1
        else:
            lines.append(f"{key} = {choice.value} ({choice.source})")
    groups = "1 group" if plain == 1 else f"{plain} groups"
    return [*lines, f"fusion at {groups} = True (default)"] if plain else lines


def _group_line(call: CallOp) -> str:
    where = f" at {call.span.label}" if call.span is not None else ""
    return f"{call.kernel}: {call.flops} flops, {call.bytes} bytes{where}"


def _steps(program: ModuleOp) -> list[str]:
    """What a program does beside its groups, and what each costs by the static model."""
    names = {CopyOp: "copy", CallbackOp: "callback", IfOp: "branch", WhileOp: "loop", ForOp: "loop"}
    lines: list[str] = []
    for op in program.walk():
        if isinstance(op, CollectiveStartOp):
            name = f"{op.call} of {op.ranks} ranks over `{op.axis}`"
        elif isinstance(op, CopyOp | CallbackOp | IfOp | WhileOp | ForOp):
            name = names[type(op)] if not isinstance(op, CopyOp) else _name_copy(op)
            name += f" of {op.trips} iterations" if isinstance(op, WhileOp | ForOp) else ""
        else:
            continue
        lines.append(
            f"{name}: {op.flops} flops, {op.bytes} bytes{f' at {op.span.label}' if op.span is not None else ''}"
        )
    return lines


def _name_copy(op: CopyOp) -> str:
    """A copy, which may be to or from host memory."""
    type, source, target = op.source.type, op.source.owner, op.target.owner
    assert isinstance(type, ShapedAttr)
    what = f"[{', '.join(map(str, type.shape))}] {type.dtype}"
    if isinstance(target, AllocOp) and target.space:
        return f"offload of {what}"
    return f"prefetch of {what}" if isinstance(source, AllocOp) and source.space else "copy"


def _kernel_line(kernel: KernelOp, given: Iterable[Sequence[Dim]]) -> str:
    return f"{kernel.symbol}: {kernel.kind}, grid {_grid(kernel, given)}"


def _grid(kernel: KernelOp, given: Iterable[Sequence[Dim]]) -> str:
    """The grid in sizes of the program, once for each that calls of the kernel give it."""
    names: Sequence[str] = kernel.symbols or ()
    grids = [
        [dim.substitute(dict(zip(names, sizes, strict=True))) for dim in kernel.grid]
        for sizes in given
        if len(sizes) == len(names)
    ]
    texts = [f"[{', '.join(map(str, grid))}]" for grid in grids or [kernel.grid]]
    return " and ".join(dict.fromkeys(texts))


# How a program computes, as far as its bits depend on it and not on recipes that all programs share.

Arithmetic = dict[str, int]
"""How a program computes, by what is said of it: the calls of which that is true, or 1 where a number says nothing."""


def arithmetic_of(program: SpecOp, kernels: Sequence[KernelOp], code: Code) -> Arithmetic:
    """What decides the bits of a program beside the recipes that all programs share.

    Dots are counted by what adds them up, in calls: fusion never changes how many there are. Functions are only named,
    as one may be computed where each of its readers reads it.
    """
    found: Counter[str] = Counter()
    known = {kernel.symbol: _units_of(kernel) for kernel in kernels if not kernel.variant_of}
    for op in program.walk():
        # Of branches by the number of rows one runs.
        if isinstance(op, CallOp) and not _is_for_other_rows(op):
            found.update(known.get(op.kernel, ()))
    own = {text for texts in code.approximations().values() for text in texts}
    # Which multiplies are fused depends on the ops of a kernel, which its name comes of.
    fused = [(kernel.symbol, kernel.attributes.get("numerics.fused")) for kernel in kernels]
    own |= {f"multiplies fused with adds in `{name}`" for name, one in fused if one is not None and plain(one)}
    return {**dict(sorted(found.items())), **dict.fromkeys(sorted(own), 1)}


def _units_of(kernel: KernelOp) -> tuple[str, ...]:
    """The units that add up dots of floats in a kernel; those of integers are exact on all."""
    types = ((op.unit, getattr(op.results[0].type, "dtype", None)) for op in kernel.walk() if isinstance(op, DotOp))
    return tuple(sorted({f"sums by {unit or 'multiply-adds'}" for unit, dtype in types if dtype and dtype.is_float}))


def differences(safe: Mapping[str, int], other: Mapping[str, int]) -> str:
    """In what two programs compute differently; empty where they do not."""
    names = [name for name in {**safe, **other} if safe.get(name, 0) != other.get(name, 0)]
    return "; ".join(f"{name}: {other.get(name, 0)} instead of {safe.get(name, 0)}" for name in names)
