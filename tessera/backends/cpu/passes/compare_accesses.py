"""Check that a lowered kernel accesses the memory that its tile kernel does, no more and no less.

This is translation validation of `cpu-lower-kernels`: a verifier sees what an op says of itself, and nothing that is
wrong with an offset, a bound or a window that could have been meant. The two kernels are compared access by access, as
expressions over the same names (see `check_accesses`), so that what is found holds for all sizes.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import replace

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, OpResult, SSAValue

from tessera.backends.cpu.lower import goes_by_rows
from tessera.backends.cpu.match_contraction import match_contraction
from tessera.backends.cpu.passes.check_accesses import Accesses, TargetSite, accesses_of
from tessera.ir.base.index_maps import linear, simplify
from tessera.ir.base.op import OpError, SpecOp
from tessera.ir.base.passes import Pass, refusal
from tessera.ir.base.types import BufferAttr
from tessera.ir.target import typed_ops as ttarget
from tessera.ir.target.limits import is_multiple
from tessera.ir.tile.sites import Site, Variable, is_in_bounds, sites_of
from tessera.ir.tile.typed_ops import KernelOp
from tessera.types.dim import Dim, minimum
from tessera.types.frozen import frozen

ZERO = Dim.constant(0)
KINDS = {"store": ("ttile.store",), "fetch": ("ttile.fetch", "ttile.load"), "out": ("ttile.load", "ttile.store")}
"""Ops of Tile IR that an access comes from, where that is not a load: one number is fetched, a dot adds in place."""


def compare_accesses(tile: SpecOp, target: SpecOp, *, has_loops: bool = False) -> None:
    """Raises OpError at the first access of `target` that `tile` does not have, and for one of `tile` that is missing.

    Two accesses are the same when they touch the same element of the same argument (or, where tiles stay in registers,
    of the same part of scratch) for the same indices in grid, loops and tile, in the same way, within the same windows
    and bounds. A bound may be left out where the tile is proven to end before it. Loops have the same bounds and steps,
    and a tail unless whole steps come out even. What is computed between accesses is not looked at. `has_loops` says
    that the tile kernel goes over parts of its tiles in loops of its own.
    """
    _Comparison(tile, target, has_loops).run()


@frozen
class CompareAccesses(Pass):
    """Compare each `ttarget.kernel` with the `ttile.kernel` of its name, in modules beside; both stay as they are.

    Before and after: `builtin.module {ttile.kernel @k ...}` and `builtin.module {ttarget.kernel @k ...}`. A compilation
    with `TESSERA_VERIFY=1`, or a debug build, compares while it lowers, when both are at hand.
    """

    has_loops: bool = False

    def run(self, module: ModuleOp) -> None:
        tiles = {op.value("symbol"): op for op in module.walk() if isinstance(op, KernelOp)}
        for op in module.walk():
            if isinstance(op, ttarget.KernelOp) and op.symbol in tiles:
                try:
                    compare_accesses(tiles[op.symbol], op, has_loops=self.has_loops)
                except OpError as error:
                    raise refusal(error.op, error.message, "compare it with what `cpu-lower-kernels` makes") from error


@frozen
class _Wanted:
    """An access of the tile kernel."""

    site: Site
    index: Dim


class _Comparison:
    def __init__(self, tile: SpecOp, target: SpecOp, has_loops: bool) -> None:
        self.tile, self.target = tile, target
        self.match = match_contraction(tile)
        self.is_product = self.match is not None
        self.has_blocks = goes_by_rows(tile) and not has_loops
        self.found: Accesses = accesses_of(target, self.has_blocks)
        self.wanted = [_Wanted(site, linear(site.indices, site.shape)) for site in sites_of(tile)]
        panels = {op.operands[3] for op in target.walk() if op.name == "ttarget.block_dot"}
        self.scratches = (_scratches(tile, "ttile.scratch", ()), _scratches(target, "ttarget.scratch", panels))

    def run(self) -> None:
        self._compare_frame()
        if not self.is_product:
            self._compare_loops()
        seen: dict[SpecOp, set[int]] = {}
        self._compare_dots()
        for site in self.found.sites:
            if self.has_blocks and site.site.argument is None and self._is_own_row(site):
                continue
            matches = [at for at, wanted in enumerate(self.wanted) if self._is_same(site, wanted)]
            if not matches:
                site.op.fail(f"a {site.part} at `{site.index}` is no access of the tile kernel")
            if not any(self._has_bounds(site, self.wanted[at]) for at in matches):
                site.op.fail(f"a {site.part} at `{site.index}` is not cut where the tile kernel cuts it")
            around = site.op.parent_op()
            assert isinstance(around, SpecOp)
            seen.setdefault(around, set()).update(matches)
        self._compare_tails(seen)
        for at, wanted in enumerate(self.wanted):
            if not any(at in part for part in seen.values()):
                raise OpError(self.target, f"the tile kernel touches `{wanted.index}`, and nothing here does")

    def _compare_tails(self, seen: Mapping[SpecOp, set[int]]) -> None:
        """A tail touches what the whole steps do."""
        nothing: set[int] = set()
        for loop in self.found.loops:
            tail = loop.op.next_op
            if not isinstance(tail, SpecOp) or tail.name != "ttarget.tail":
                continue
            if seen.get(loop.op, nothing) != seen.get(tail, nothing):
                tail.fail("a tail does not touch what the whole steps before it do")

    def _compare_frame(self) -> None:
        for name in ("symbol", "symbols", "writes"):
            if self.tile.value(name) != self.target.value(name):
                self.target.fail(
                    f"`{name}` is {self.target.value(name)}, and the tile kernel has {self.tile.value(name)}"
                )
        first = self.target.regions[0].block.first_op
        grid = first.value("grid") if isinstance(first, SpecOp) and first.name == "ttarget.programs" else None
        if self.is_product:
            assert isinstance(first, SpecOp)
            grid = (*first.value("batch"), *self.tile.value("grid")[-2:])
        if grid != self.tile.value("grid"):
            self.target.fail(f"the grid is {grid}, and the tile kernel has {self.tile.value('grid')}")

    def _compare_dots(self) -> None:
        """Products of blocks begin with zero where the tile kernel's do, and go as far down as loops over rows."""
        dots = [op for op in self.tile.walk() if op.name == "ttile.dot"]
        products = [op for op in self.target.walk() if isinstance(op, SpecOp) and op.name == "ttarget.block_dot"]
        variables = [variable for site in self.found.sites for variable in site.site.variables]
        heights = {variable.high for variable in variables if variable.name == "%e0"}
        for variable in variables:
            is_row = self.has_blocks and variable.name == "%e0" and variable.kind == "loop"
            if is_row and (variable.low, variable.step) != (ZERO, 1):
                self.target.fail(f"a loop over rows begins at {variable.low} and goes by {variable.step}")
        for dot, found in zip(dots, products, strict=not self.is_product):
            if found.value("is_fresh") != _is_zero(dot.operands[2]):
                found.fail("a product adds to what is there where the tile kernel starts from zero, or the other way")
        for site in self.found.sites if self.has_blocks else ():
            rows = [variable.high for variable in site.site.variables if variable.name == "%_row"]
            if rows and rows[0] not in heights:
                site.op.fail(f"a product has {rows[0]} rows, and the loops over rows go to {sorted(map(str, heights))}")

    def _is_own_row(self, site: TargetSite) -> bool:
        """Whether an access to scratch is a row, or a dot, of a whole block, in its memory order."""
        buffer, op = site.buffer.type, site.op
        assert isinstance(buffer, BufferAttr)
        places = {"lhs": ("%_row", "%_inner_k"), "out": ("%_row", "%_col")}.get(site.part, ("%e0", "%e1"))
        at = [Dim.symbol(name) for name in places[: len(buffer.shape)]]
        if len(at) != len(buffer.shape) or site.index != linear(at, buffer.shape):
            return False
        if op.name == "ttarget.block_dot":
            return True
        if op.value("guarded") or op.value("windows"):
            return False
        return not op.value("pad") if site.part == "load" else op.value("mode") == "set"

    def _compare_loops(self) -> None:
        """Every loop as in the tile kernel; a tail, or all iterations in one loop, unless whole steps come out even."""
        loops = {loop.name: loop for wanted in self.wanted for loop in wanted.site.variables if loop.kind == "loop"}
        for loop in self.found.loops:
            wanted = loops.get(f"%l{loop.number}")
            if wanted is not None and (loop.low, loop.high, loop.step) != (wanted.low, wanted.high, wanted.step):
                loop.op.fail(
                    f"a loop goes from {loop.low} to {loop.high} by {loop.step}, "
                    f"and the tile kernel's from {wanted.low} to {wanted.high} by {wanted.step}"
                )
            is_whole = loop.op.name == "ttarget.tail" or loop.op.value("is_partial")
            after = loop.op.next_op
            has_tail = after is not None and after.name == "ttarget.tail"
            if not is_whole and not has_tail and not is_multiple(loop.high - loop.low, loop.step):
                loop.op.fail(f"steps of {loop.step} from {loop.low} to {loop.high} leave a part over that is not run")

    def _buffer(self, buffer: SSAValue, argument: int | None, is_tile: bool) -> tuple[str, int]:
        if argument is not None:
            return "argument", argument
        if self.has_blocks:
            return "scratch", 0  # blocks have homes there too, so numbers say nothing
        return "scratch", self.scratches[0 if is_tile else 1].get(buffer, -1)

    def _is_same(self, site: TargetSite, wanted: _Wanted) -> bool:
        tile = wanted.site
        if tile.op.name not in KINDS.get(site.part, ("ttile.load",)):
            return False
        if self._buffer(site.buffer, site.site.argument, False) != self._buffer(tile.buffer, tile.argument, True):
            return False
        if site.op.name in ("ttarget.gemm", "ttarget.block_dot"):
            return self._is_operand(site, wanted)
        for name in ("pad", "mode"):
            if name in site.op.kinds and site.op.value(name) != tile.op.value(name):
                return False
        here, there = self._place(site.site, site.index), self._place(tile, wanted.index)
        numbers = _numbers_of(site)
        here = tuple(dim.substitute(numbers) for dim in here)
        if site.part == "fetch" and tile.op.name == "ttile.load":
            return here == there
        if self.has_blocks and len(site.site.axes) == len(tile.axes) == 1:
            here = tuple(dim.substitute({"%e1": Dim.symbol("%e0")}) for dim in here)  # a line, the same in all rows
        return here == there and self._has_size(site.site, tile)

    def _place(self, site: Site, index: Dim) -> tuple[Dim, ...]:
        """Index and windows, with what rows and columns of a product start at left away."""
        count = len(self.tile.value("grid"))
        starts = {f"%p{axis}": ZERO for axis in (count - 2, count - 1)} if self.is_product else {}
        gone = {**starts, "%row": ZERO, "%col": ZERO, "%l1": ZERO} if self.is_product else {}
        dims = (index, *(part for window in site.windows for part in window))
        return tuple(simplify(dim.substitute(gone)) for dim in dims)

    def _has_size(self, here: Site, there: Site) -> bool:
        """Whether blocks have the sizes of tiles; rows of a block, and registers of accumulators, have their own."""
        if self.is_product:
            return len(here.axes) == len(there.axes)
        skipped = len(there.axes) - len(here.axes)
        sizes = [axis.element.high for axis in there.axes][skipped:]
        fewest = int(self.has_blocks and len(there.axes) > 1)
        most = int(self.has_blocks and bool(there.axes))
        return fewest <= skipped <= most and sizes == [axis.element.high for axis in here.axes]

    def _has_bounds(self, site: TargetSite, wanted: _Wanted) -> bool:
        if site.op.name in ("ttarget.gemm", "ttarget.block_dot") or site.part == "fetch":
            return True
        here, there = site.site.axes, wanted.site.axes
        skipped = len(there) - len(here)
        if skipped and there[0].bound is not None and not self._ends_inside(site, there[0].start, there[0].bound):
            return False
        for number, (own, other) in enumerate(zip(here, there[skipped:], strict=True)):
            if own.bound == other.bound or (self.is_product and number == 0 and own.bound is None):
                continue
            if own.bound is not None or other.bound is None:
                return False
            if not is_in_bounds(at_coordinate(site.site, number, other.bound), 0):
                return False
        return True

    def _ends_inside(self, site: TargetSite, start: Dim, bound: Dim) -> bool:
        """Whether the loop over rows stops at the bound."""
        rows = next(variable for variable in site.site.variables if variable.name == "%e0")
        return rows.high - 1 == _below(start, bound, rows)

    def _is_operand(self, site: TargetSite, wanted: _Wanted) -> bool:
        """Whether a side of a product is what the tile kernel loads for it, as far as it goes."""
        tile, op = wanted.site, site.op
        if op.name == "ttarget.gemm":
            # Along K a segment ends with its length, or with the operand: what the tile kernel reads beyond is zero.
            names = ("m", "k") if site.part == "lhs" else ("k", "n")
            is_same = all(op.value(name) == getattr(self.match, name) for name in names)
            return is_same and self._place(site.site, site.index) == self._place(tile, wanted.index)
        reach = {variable.name: variable.high for variable in site.site.variables}
        own = {"lhs": ("%_row", "%_inner_k"), "out": ("%_row", "%_col")}.get(site.part, ("%_inner_k", "%_col"))
        for names in (own, own[::-1]):
            places = {f"%e{number}": Dim.symbol(name) for number, name in enumerate(names)}
            cut = [
                axis.element.high if axis.bound is None else minimum(axis.element.high, axis.bound - axis.start)
                for axis in tile.axes
            ]
            if wanted.index.substitute(places) == site.index and [reach.get(name) for name in names] == cut:
                return True
        return False


def _numbers_of(site: TargetSite) -> dict[str, Dim]:
    """Index tiles of a tile kernel by the names of what is fetched here: an index that is one number for all elements.

    Lowering calls the coordinate of such a tile `_t0` where the tile is `t0`.
    """
    found: dict[str, Dim] = {}
    names = site.op.value("coords") if "coords" in site.op.kinds else ()
    for name, value in zip(names, site.coordinates, strict=False):
        if name[:2] == "_t" and name[2:].isdigit() and (value.symbol_name or "").startswith("%f"):
            found[str(value)] = Dim.symbol(f"%{name[1:]}")
    return found


def _is_zero(value: SSAValue) -> bool:
    op = value.op if isinstance(value, OpResult) else None
    return isinstance(op, SpecOp) and op.name == "ttile.constant" and not op.value("value")


def _below(start: Dim, bound: Dim, rows: Variable) -> Dim:
    """The last row of a block that starts at `start` and is cut at the bound."""
    height = next((dim for dim in _parts(rows.high) if dim.value is not None), rows.high)
    return minimum(height, bound - start) - 1


def _parts(dim: Dim) -> Iterable[Dim]:
    if len(dim.terms) == 1 and len(dim.terms[0][0]) == 1 and dim.terms[0][0][0].kind == "min":
        return dim.terms[0][0][0].args
    return (dim,)


def _scratches(kernel: SpecOp, name: str, panels: Container[SSAValue]) -> dict[SSAValue, int]:
    """The numbers of scratch buffers, a tail's those of its loop; dots pack operands into some that no tile has."""
    found: dict[SSAValue, int] = {}

    def number(block: Block, first: int) -> int:
        before = first
        for op in block.ops:
            if op.name == name and op.results[0] not in panels:
                found[op.results[0]] = first
                first += 1
            for region in op.regions:
                start = before if op.name == "ttarget.tail" else first
                before, first = start, max(first, number(region.block, start))
        return first

    number(kernel.regions[0].block, 0)
    return found


def at_coordinate(site: Site, axis: int, bound: Dim) -> Site:
    """The site that would touch a buffer of `bound` elements at the coordinate of an axis, unguarded there."""
    axes = list(site.axes)
    axes[axis] = replace(axes[axis], bound=None)
    return replace(site, shape=(bound,), indices=(axes[axis].dim,), axes=tuple(axes), windows=(), gathered=())
