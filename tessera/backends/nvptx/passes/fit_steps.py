"""Walk sums of dots in steps that tensor cores take, whatever the K of a schedule's block is."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, OpResult, SSAValue
from xdsl.rewriter import Rewriter

from tessera.backends.nvptx.tensor_cores import K_BYTES, PROMOTED_K, SPAN, WGMMA_FORMS
from tessera.ir.base.dialect_of import make
from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Pass
from tessera.ir.base.types import BufferAttr, TileAttr
from tessera.ir.tile.indexing import size_expr
from tessera.ir.tile.typed_ops import DotOp, ForOp, KernelOp, LoadOp, TransposeOp
from tessera.types.dim import Dim
from tessera.types.dtype import DType
from tessera.types.frozen import frozen

_PASSED = ("ttile.cast", "ttile.transpose")
_CHOSEN = {"ttile.for": ("stages", "form"), "ttile.load": ("space", "box", "swizzle"), "ttile.dot": ("unit",)}
"""What an op has where somebody has chosen how it is carried out, and which is then kept."""


@frozen
class FitSteps(Pass):
    """Give loops that only add up dots steps that tensor cores take, with sums of the same dots in each.

    Before: a loop over all of k in steps of 64 with `ttile.dot` of 8-bit floats, or of 24 with one of bf16. After: the
    same in steps of 128, after which 8-bit floats are added up outside of tensor cores, and of 32, which is the next
    multiple of an instruction's. What a last step has too much of is beyond the end of k, and zero. With `shallow` no
    step is deeper than a line of shared memory: of more bytes two may not fit. A step that is taken as it
    is stays, and so does that of a loop which does anything else in each step, or says how it is copied.
    """

    shallow: bool = False

    def run(self, module: ModuleOp) -> None:
        for op in module.ops:
            if isinstance(op, KernelOp):
                fit_steps(op, self.shallow)


@frozen
class _Load:
    """A load of a loop that goes along k: which dim of its tile that is, and its name."""

    op: LoadOp
    axis: int

    @property
    def name(self) -> str:
        return self.op.axes[self.axis]

    @property
    def dtype(self) -> DType:
        tile = self.op.results[0].type
        assert isinstance(tile, TileAttr)
        return tile.dtype


def unfit_loops(kernel: SpecOp, shallow: bool = False) -> list[ForOp]:
    """The loops of a kernel that have steps which tensor cores do not take, and can have others."""
    loops = [op for op in kernel.walk() if isinstance(op, ForOp)]
    return [loop for loop in loops if fit_step(loop, shallow) != loop.step]


def fit_steps(kernel: SpecOp, shallow: bool = False) -> None:
    """Do it to one kernel."""
    for loop in unfit_loops(kernel, shallow):
        _walk_in(loop, fit_step(loop, shallow))


def fit_step(loop: ForOp, shallow: bool = False) -> int:
    """The step that a loop has on tensor cores: its own, where they take it or the loop is no sum of dots."""
    step, loads = loop.step, _summed_loads(loop)
    dtypes = {load.dtype for load in loads}
    if len(dtypes) != 1 or (form := WGMMA_FORMS.get(dtype := dtypes.pop())) is None:
        return step
    if shallow and step * dtype.bytes > SPAN:
        return SPAN // dtype.bytes
    if form.is_promoted:
        return step if step % PROMOTED_K == 0 else PROMOTED_K
    return -(-step * dtype.bytes // K_BYTES) * K_BYTES // dtype.bytes


def _summed_loads(loop: ForOp) -> list[_Load]:
    """What a loop loads, if it does nothing but add up dots over all of a dim; else nothing."""
    source = loop.body.block
    index, *carried = source.args
    ops = [op for op in source.ops if isinstance(op, SpecOp)]
    dots = [op for op in ops if isinstance(op, DotOp)]
    last = ops[-1]
    is_sum = len(dots) == len(carried) and all(
        dot.acc is acc and dot.result is given and len(list(dot.result.uses)) == 1
        for dot, acc, given in zip(dots, carried, last.operands, strict=False)
    )
    if not dots or not is_sum or any(_is_chosen(op) for op in (loop, *ops)):
        return []
    found = [_operand_load(value, 1 - at, loop) for dot in dots for at, value in enumerate((dot.lhs, dot.rhs))]
    loads = [load for load in found if load is not None]
    parts = {part for load in loads for part in _chain(load.op, source)}
    others = [op for op in ops if op not in parts and op not in (*dots, last) and op.name != "ttile.index"]
    users = {use.operation for use in index.uses}
    is_known = len(loads) == len(found) and not others and users <= {load.op for load in loads}
    return list({load.op: load for load in loads}.values()) if is_known else []


def _is_chosen(op: SpecOp) -> bool:
    return any(op.value(name) for name in _CHOSEN.get(op.name, ()))


def _chain(load: SpecOp, source: Block) -> list[SpecOp]:
    """A load, and the ops of a block that only transpose or convert it."""
    found = [load]
    for op in source.ops:
        if isinstance(op, SpecOp) and op.name in _PASSED and any(op.operands[0] in one.results for one in found):
            found.append(op)
    return found


def _operand_load(value: SSAValue, summed: int, loop: ForOp) -> _Load | None:
    """The load that an operand of a dot is, transposed or converted, if it goes along all of its dim with the loop."""
    while isinstance(value, OpResult) and isinstance(value.op, SpecOp) and value.op.name in _PASSED:
        summed = 1 - summed if value.op.name == "ttile.transpose" else summed
        value = value.op.operands[0]
    op = value.owner
    if not isinstance(op, LoadOp) or op.parent is not loop.body.block:
        return None
    load = _Load(op, summed)
    return load if _goes_along(load, loop) else None


def _goes_along(load: _Load, loop: ForOp) -> bool:
    """Whether the steps of a loop are those of a load along a dim, from its beginning to its end."""
    op, name = load.op, load.name
    buffer, tile = op.buffer.type, op.result.type
    assert isinstance(buffer, BufferAttr)
    assert isinstance(tile, TileAttr)
    if len(op.at) != len(op.coords) or op.pad or op.windows or tile.data.rank != 2:
        return False
    dims = [dim for dim, expr in enumerate(op.map) if name in expr.symbols]
    if len(dims) != 1 or op.map[dims[0]] != Dim.symbol(name):
        return False
    end, bound = buffer.shape[dims[0]], op.bounds[load.axis]
    # Where another axis goes along too, a deeper step would leave out what lies beside its first part.
    walked = [at for at, index in zip(op.coords, op.at, strict=True) if index is loop.body.block.args[0]]
    is_whole = size_expr(loop.low) == Dim.constant(0) and size_expr(loop.high) == end
    is_step = tile.shape[load.axis].value == loop.step and bound in (end, Dim.constant(-1))
    return is_whole and is_step and walked == [name]


def _walk_in(loop: ForOp, step: int) -> None:
    """The loop in other steps: what is loaded, and made of that on the way to a dot, is as deep as they are."""
    source = loop.body.block
    for load in _summed_loads(loop):
        axes: dict[SSAValue, int] = {load.op.results[0]: load.axis}
        for op in _chain(load.op, source):
            given = axes[op.results[0]] if op is load.op else axes[op.operands[0]]
            axis = 1 - given if isinstance(op, TransposeOp) else given
            made = _deeper(op, axis, step, load)
            axes[made.results[0]] = axis
    loop.step = step


def _deeper(op: SpecOp, axis: int, step: int, load: _Load) -> SpecOp:
    """An op in the place of another, whose result is as deep as a step along an axis."""
    tile = op.results[0].type
    assert isinstance(tile, TileAttr)
    shape = list(tile.shape)
    shape[axis] = Dim.constant(step)
    values = op.values()
    if op is load.op:
        buffer, bounds = op.operands[0].type, list(values["bounds"])
        assert isinstance(buffer, BufferAttr)
        # Steps that divide k never reach its end, and those that take their place may.
        bounds[axis] = next(buffer.shape[d] for d, expr in enumerate(values["map"]) if load.name in expr.symbols)
        values["bounds"] = tuple(bounds)
    type = TileAttr.of(tile.data.with_shape(shape))
    made = make(op.spec, list(op.operands), values, types=[type], span=op.span)
    Rewriter.replace_op(op, made)
    return made
