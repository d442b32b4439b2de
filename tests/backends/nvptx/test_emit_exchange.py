"""Reductions of tiles over threads, run on numbers: one tree for any shape, any threads, any neighbours."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.backends.nvptx import emit_exchange, emit_rows
from tessera.backends.nvptx.layout import Layout, Threads, Tile
from tessera.ir.target.llvm.instructions import Value
from tessera.types.dtype import bool_, f32

WARP = 32


class Numbers:
    """Arithmetic of all threads together: a value is an array with a number for each."""

    def __init__(self, threads: int) -> None:
        self.lanes = np.arange(threads)

    def add(self, a: Any, b: Any) -> Any:
        return a + b

    def mul(self, a: Any, b: Any) -> Any:
        return a * b

    def udiv(self, a: Any, b: Any) -> Any:
        return a // b

    def urem(self, a: Any, b: Any) -> Any:
        return a % b

    def smin(self, a: Any, b: Any) -> Any:
        return np.minimum(a, b)

    def index(self, a: Any) -> Any:
        return a

    def icmp(self, kind: str, a: Any, b: Any) -> Any:
        compare = {"slt": np.less, "ne": np.not_equal, "eq": np.equal}[kind]
        return np.broadcast_to(compare(a, b), self.lanes.shape)

    def op(self, name: str, a: Any, b: Any) -> Any:
        known: dict[str, Any] = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
        return known[name](*(int(one.text) if isinstance(one, Value) else one for one in (a, b)))

    def cast(self, name: str, a: Any, type: str) -> Any:
        return a

    def const_i(self, value: int) -> int:
        return value

    def select(self, mask: Any, a: Any, b: Any) -> Any:
        return np.choose(mask, [b, a])


class Machine:
    """The threads of one program, and what an emitter asks of them."""

    def __init__(self, threads: int) -> None:
        self.f: Any = Numbers(threads)
        self.thread = self.f.lanes
        self.matrix_rows = None

    def at(self, layout: Layout) -> Any:
        return Threads(self.f, self.f.lanes, layout)

    def registers(self, tile: Tile) -> Any:
        return tile.registers

    def distribute(self, array: Any, layout: Layout) -> Tile:
        """An array over the threads; registers beyond its end hold NaN."""
        flat = np.append(array.reshape(-1), np.float32(np.nan))
        base = np.broadcast_to(self.at(layout).base, self.f.lanes.shape)
        places = [np.minimum(base + layout.start(register), layout.size) for register in range(layout.registers)]
        registers: list[Any] = [flat[place] for place in places]
        return Tile(layout, f32, registers)

    def gathered(self, tile: Tile) -> Any:
        """The array that a tile is: of those who have an element the first says."""
        layout = tile.layout
        owners = slice(0, min(layout.size, len(self.f.lanes)) if layout.is_repeated else None, None)
        owners = slice(0, None, layout.replicas) if layout.replicas else owners
        flat = np.full(layout.size + 1, np.nan, np.float32)
        base = np.broadcast_to(self.at(layout).base, self.f.lanes.shape)
        for register, values in enumerate(tile.registers):
            place = np.minimum(base + layout.start(register), layout.size)
            flat[place[owners]] = np.broadcast_to(values, self.f.lanes.shape)[owners]
        return flat[:-1]

    def patch_emitter(self, patch: pytest.MonkeyPatch) -> None:
        """Have shuffles and shared memory done here."""
        threads = len(self.f.lanes)

        def shuffle(f: Any, value: Any, way: str, lanes: int) -> Any:
            warps = np.broadcast_to(value, (threads,)).reshape(-1, min(WARP, threads))
            if way == "idx":
                places = np.broadcast_to(lanes, (threads,)).reshape(warps.shape)
                return np.take_along_axis(warps, places % warps.shape[1], 1).reshape(-1)
            if way == "bfly":
                return warps[:, np.arange(warps.shape[1]) ^ lanes].reshape(-1)
            # Beyond the end of a warp a lane gets something, on which nothing may depend.
            return np.concatenate([warps[:, lanes:], np.full((len(warps), lanes), np.nan, warps.dtype)], 1).reshape(-1)

        def share_tiles(_: Any, tiles: list[Tile]) -> list[Any]:
            return [self.gathered(tile) for tile in tiles]

        def read(_: Any, start: Any, place: Any, dtype: Any) -> Any:
            return start[place]

        for fake in (shuffle, share_tiles, read):
            patch.setattr(emit_exchange, fake.__name__, fake)


class SharedNumbers(Numbers):
    """The same with shared memory, of which nothing is read that was not written before the last wait."""

    def __init__(self, threads: int) -> None:
        super().__init__(threads)
        self.active = np.ones(threads, bool)
        self.memory, self.written = np.full(2**16, np.nan, np.float32), np.full(2**16, np.nan, np.float32)

    def gep(self, base: Any, index: Any, element: str) -> Any:
        return base + index

    def store(self, value: Any, address: Any, align: int = 4) -> None:
        parts: Any = np.reshape(value, (-1, len(self.lanes)))
        for at, part in enumerate(parts):
            places = np.broadcast_to(address + at, self.lanes.shape)[self.active]
            assert len(set(places)) == len(places), "two threads write one element"
            self.written[places] = np.broadcast_to(part, self.lanes.shape)[self.active]

    def load(self, address: Any, type: str, align: int = 4) -> Any:
        count = align // 4 if type != "float" else 1
        found = [self.memory[np.broadcast_to(address + at, self.lanes.shape)] for at in range(count)]
        assert not np.isnan(found).any(), "nobody wrote it before the last wait"
        return found if type != "float" else found[0]

    def if_(self, mask: Any, then: Any) -> None:
        before, self.active = self.active, mask
        then()
        self.active = before


class SharedMachine(Machine):
    """The same, whose threads exchange by addresses."""

    def __init__(self, threads: int) -> None:
        super().__init__(threads)
        self.f: Any = SharedNumbers(threads)

    def exchange(self, count: int) -> int:
        return 0

    def wait(self) -> None:
        self.f.memory, self.f.written = self.f.written, np.full_like(self.f.written, np.nan)

    def patch_emitter(self, patch: pytest.MonkeyPatch) -> None:
        super().patch_emitter(patch)
        patch.setattr(emit_rows, "shuffle", emit_exchange.shuffle)

        def pack(f: Any, parts: Any) -> list[Any]:
            return list(parts)

        def unpack(f: Any, whole: Any, element: str, count: int) -> Any:
            return whole

        for fake in (pack, unpack):
            patch.setattr(emit_rows.values, fake.__name__, fake)


def normal(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def tree(array: Any, axis: int) -> Any:
    """The sum by halving, as the interpreter has it."""
    array = np.moveaxis(array, axis, 0)
    while len(array) > 1:
        half = 1 << (len(array) - 1).bit_length() - 1
        array = np.concatenate([array[: len(array) - half] + array[half:], array[len(array) - half : half]])
    return array[0]


def reduced(array: Any, axis: int, threads: int, widest: int, patch: pytest.MonkeyPatch) -> Any:
    machine: Any = Machine(threads)
    layout = Layout(array.shape, threads, widest)
    out = Layout((*array.shape[:axis], *array.shape[axis + 1 :]), threads, widest)

    def join(a: Any, b: Any) -> Any:
        return [a[0] + b[0]]

    machine.patch_emitter(patch)
    source: Any = machine.distribute(array, layout)
    (registers,) = emit_exchange._reduce(machine, [source], axis, out, join)  # pyright: ignore[reportPrivateUsage]
    return machine.gathered(Tile(out, f32, registers)).reshape(out.shape)


@given(st.sampled_from([32, 64, 128, 256]), st.integers(1, 9), st.sampled_from([1, 2, 4]), st.booleans())
def test_min_and_max_of_a_row_are_those_of_all(threads: int, groups: int, vector: int, is_largest: bool) -> None:
    machine: Any = Machine(threads)
    array = normal(1, threads * vector * groups)
    layout = Layout(array.shape, threads, vector)
    source: Any = machine.distribute(array, layout)
    take = np.maximum if is_largest else np.minimum

    def minmax(f: Any, name: str, dtype: Any, given: Any, narrow: Any) -> Any:
        assert name == ("max" if is_largest else "min")
        return take.reduce(np.broadcast_arrays(machine.f.lanes * 0.0, *given)[1:]).astype(np.float32)

    def join(a: Any, b: Any) -> Any:
        return [take(a[0], b[0])]

    if not emit_rows.is_whole_row(source, 1):
        assert threads == WARP
        assert layout.registers == 1
        return
    with pytest.MonkeyPatch.context() as patch:
        machine.patch_emitter(patch)
        patch.setattr(emit_exchange.values, "minmax", minmax)
        name = "max" if is_largest else "min"
        found = emit_exchange._minmax(machine, source, name, join)  # pyright: ignore[reportPrivateUsage]
    assert (np.broadcast_to(found, (threads,)) == take.reduce(array[0])).all()


SHAPES = st.one_of(
    st.tuples(st.integers(1, 300)),
    st.tuples(st.sampled_from([256, 512, 1000, 1024, 2048, 3000, 4096])),
    st.tuples(st.integers(1, 9), st.integers(1, 300)),
    st.tuples(st.sampled_from([4, 16, 64]), st.sampled_from([16, 96, 128, 192, 229, 256])),
)


@given(SHAPES, st.data(), st.sampled_from([32, 64, 128, 256]), st.sampled_from([1, 2, 4, 8]))
def test_reductions_are_the_tree_of_the_recipe(shape: Any, data: Any, threads: int, widest: int) -> None:
    axis = data.draw(st.integers(0, len(shape) - 1))
    array = normal(*shape)
    with pytest.MonkeyPatch.context() as patch, np.errstate(invalid="ignore"):
        found = reduced(array, axis, threads, widest, patch)
    np.testing.assert_array_equal(found, tree(array, axis))


@pytest.mark.parametrize("is_free", [False, True])
@pytest.mark.parametrize("threads", [32, 64, 256])
@pytest.mark.parametrize("widest", [1, 2, 4])
@pytest.mark.parametrize("columns", [8, 32, 64, 128, 256])
def test_rows_that_lanes_share_are_reduced_by_halves(columns: int, widest: int, threads: int, is_free: bool) -> None:
    """By the tree, or in any order: of some rows for each thread, in one warp or in two."""
    taken = set[int]()
    for rows in (1, 2, 8, 16, 24, 32, 64):
        layout, out = Layout((rows, columns), threads, widest), Layout((rows,), threads, widest)
        taken.add(emit_rows.lanes_of(layout, 1))
        if not emit_rows.takes(layout, 1, f32):
            continue
        machine: Any = SharedMachine(threads)
        array = normal(rows, columns)
        with pytest.MonkeyPatch.context() as patch:
            machine.patch_emitter(patch)
            join: Any = np.maximum if is_free else np.add
            reduction = emit_rows.RowReduction(machine, machine.distribute(array, layout), join)
            registers = reduction.in_any_order(out) if is_free else reduction.in_order(out)
        found = machine.gathered(Tile(out, f32, registers))
        np.testing.assert_array_equal(found, array.max(1) if is_free else tree(array, 1))
    lanes = columns // widest
    if columns >= 32 and lanes <= min(2 * WARP, threads):
        assert max(taken) == lanes


def test_rows_that_lanes_do_not_share_evenly_are_reduced_otherwise() -> None:
    for shape, axis in (((16, 96), 1), ((64, 128), 0), ((12, 256), 1), ((4096,), 0), ((1, 256), 1), ((32, 512), 1)):
        assert not emit_rows.takes(Layout(shape, 256, 4), axis, f32)
    assert not emit_rows.takes(Layout((64, 128), 256, 4), 1, bool_)
    assert emit_rows.takes(Layout((64, 128), 256, 4), 1, f32)


SLICED = [(2, 8), (8, 16), (64, 16), (32, 32), (16, 64), (8, 128), (4, 256), (128, 8), (64, 4), (256, 2)]


@pytest.mark.parametrize("kind", ["sum", "max", "any join"])
@pytest.mark.parametrize("threads", [32, 64, 128])
@pytest.mark.parametrize("widest", [1, 4, 8])
@pytest.mark.parametrize("shape", SLICED)
def test_threads_that_have_a_row_between_them_all_have_its_total(
    shape: tuple[int, int], widest: int, threads: int, kind: str
) -> None:
    """By the tree, by shuffles alone: nothing goes through shared memory, and nobody is left without it."""
    rows, columns = shape
    layout = Layout(shape, threads, widest)
    replicas = emit_rows._threads_of_row(layout)  # pyright: ignore[reportPrivateUsage]
    if not replicas:
        is_cut = layout.size % layout.group or layout.group % columns
        assert is_cut or columns // layout.vector > WARP
        return
    out, machine, array = Layout((rows,), threads, widest, replicas=replicas), SharedMachine(threads), normal(*shape)
    join: Any = np.maximum if kind == "max" else np.add
    fake: Any = machine
    with pytest.MonkeyPatch.context() as patch, np.errstate(invalid="ignore"):
        machine.patch_emitter(patch)
        patch.setattr(machine, "wait", lambda: pytest.fail("a thread waits for another warp"))
        source: Any = machine.distribute(array, layout)
        if emit_rows.takes(layout, 1, f32, least=1) and kind != "any join":
            reduction = emit_rows.RowReduction(fake, source, join)
            registers: Any = reduction.in_any_order(out) if kind == "max" else reduction.in_order(out)
        else:
            reduce = emit_exchange._reduce  # pyright: ignore[reportPrivateUsage]
            (registers,) = reduce(fake, [source], 1, out, lambda a, b: [join(a[0], b[0])])
    wanted = array.max(1) if kind == "max" else tree(array, 1)
    assert len(registers) == out.registers
    own = np.arange(threads) // replicas
    for register, value in enumerate(registers):
        np.testing.assert_array_equal(value, wanted[own + out.start(register)])


def test_a_slice_has_one_owner_of_each_element() -> None:
    machine: Any = SharedMachine(64)
    at = machine.at(Layout((32,), 64, 4, replicas=4))
    assert [int(place) for place in at.base[:9]] == [0, 0, 0, 0, 1, 1, 1, 1, 2]
    assert at.layout.registers == 2
    assert int(np.sum(at.is_owner(1))) == 16
