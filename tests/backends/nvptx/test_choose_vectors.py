"""How many neighbours a thread has, and how far accesses are known to be aligned: at every limit of the choice."""

from __future__ import annotations

import pytest

from tessera.backends.nvptx.access_groups import group_of
from tessera.backends.nvptx.layout import Layout
from tessera.backends.nvptx.passes.choose_vectors import ChooseVectors
from tessera.diagnostics.codes import TargetVerifyError
from tessera.ir.base.dialect_of import load_dialects
from tessera.ir.base.text import parse_module
from tessera.ir.target.typed_ops import KernelOp, LoadOp, StoreOp

INDEX = "!ttile.index"


def access(name: str, tile: str, **changes: str) -> str:
    """A load or a store of the row of a program."""
    values = {"coords": '["p", "i"]', "axes": '["i"]', "offset": "1024*p + i", "pattern": '"contiguous"', "align": "4"}
    listed = ", ".join(f"{key} = {value}" for key, value in {**values, **changes}.items())
    buffer = "!ttile.buffer<[64, 1024], DTYPE>"
    if name == "store":
        return f"ttarget.store {tile}, %1, %p, %z {{{listed}}} : (BLOCK, {buffer}, {INDEX}, {INDEX}) -> ()"
    return f"{tile} = ttarget.load %0, %p, %z {{{listed}}} : ({buffer}, {INDEX}, {INDEX}) -> BLOCK"


def kernel(
    *body: str, size: int = 32, dtype: str = "f32", threads: int = 32, align: int = 16, more: str = ""
) -> KernelOp:
    """A kernel of rows of `size`, after the pass."""
    machine = 'lanes = 32, features = ["sm_80"]' if threads else 'lanes = 8, features = ["avx2"]'
    ops = "\n    ".join(body or (access("load", "%v"), access("store", "%v")))
    text = f"""
ttarget.kernel @k(%0: !ttile.buffer<[64, 1024], {dtype}>, %1: !ttile.buffer<[64, 1024], {dtype}>) attributes {{
    symbols = [], writes = [1], {machine}, scratch = 0, threads = {threads}, align = {align}{more}}} {{
  ttarget.programs {{grid = [64]}} ({{
  ^bb0(%p: {INDEX}):
    %z = ttarget.index {{names = [], expr = 0}} : () -> {INDEX}
    {ops}
    ttarget.yield
  }})
  ttarget.return
}}"""
    load_dialects()
    module = parse_module(text.replace("BLOCK", f"!ttarget.vector<[{size}], DTYPE>").replace("DTYPE", dtype))
    ChooseVectors().run(module)
    (found,) = module.ops
    assert isinstance(found, KernelOp)
    return found


def alignments(found: KernelOp) -> list[int]:
    return [op.align for op in found.walk() if isinstance(op, LoadOp | StoreOp)]


@pytest.mark.parametrize(
    ("dtype", "align", "wanted"),
    [
        ("f32", 16, 4),
        ("f32", 8, 2),
        ("f32", 4, 1),
        ("f32", 0, 1),
        ("f64", 16, 2),
        ("bf16", 16, 8),
        ("i8", 16, 16),
        ("i8", 8, 8),
    ],
)
def test_a_thread_has_what_one_access_moves(dtype: str, align: int, wanted: int) -> None:
    """16 bytes where rows begin at multiples of that."""
    width = {"f64": 8, "f32": 4, "bf16": 2, "i8": 1}[dtype]
    found = kernel(dtype=dtype, align=align)
    assert found.vector == wanted
    assert alignments(found) == [max(width, align)] * 2


@pytest.mark.parametrize(
    ("offset", "align", "vector"),
    [
        ("1024*p + i", 16, 4),
        ("1022*p + i", 8, 2),
        ("1023*p + i", 4, 1),
        ("1024*p + i + 2", 8, 2),
        ("i", 16, 4),
        ("1032*p + i", 16, 4),
    ],
)
def test_accesses_are_aligned_as_their_offsets_are(offset: str, align: int, vector: int) -> None:
    found = kernel(access("load", "%v"), access("store", "%v", offset=offset))
    assert alignments(found) == [16, align]
    assert found.vector == vector
    # What is loaded element by element is stored in vectors all the same.
    assert kernel(access("load", "%v", offset=offset), access("store", "%v")).vector == 4


def test_single_elements_and_strides_ask_for_no_neighbours() -> None:
    """What no thread moves with its neighbours does not say how many there are."""
    strided = access("load", "%v", offset="3*p + 2*i", pattern='"strided"')
    assert kernel(strided, access("store", "%v")).vector == 4
    one = access("load", "%s", axes="[]", offset="3*p").replace("BLOCK", "!ttarget.vector<[], DTYPE>")
    assert kernel(one, access("load", "%v"), access("store", "%v")).vector == 4
    assert kernel(one).vector == 8


@pytest.mark.parametrize(
    ("bound", "more", "vector"),
    [
        ("1000", "", 4),
        ("1002", "", 2),
        ("1001", "", 1),
        ("8*p", "", 4),
        ("p", "", 1),
        ("i", "", 1),
        ("1000", ", windows = [i, 500]", 4),
        ("1000", ", windows = [i + -2, 500]", 2),
        ("1000", ", windows = [2*i, 500]", 1),
        ("1000", ", windows = [p, 7]", 4),
    ],
)
def test_neighbours_that_a_bound_does_not_cut_apart_share_a_mask(bound: str, more: str, vector: int) -> None:
    guards = f'["i"], bounds = [{bound}]{more}'
    found = kernel(access("load", "%v", guarded=guards), access("store", "%v", guarded=guards))
    assert found.vector == vector
    load = next(op for op in found.walk() if isinstance(op, LoadOp))
    assert group_of(load, Layout((32,), 8, 4), 4, 0) == vector
    assert alignments(found) == [16, 16]


def test_a_store_limits_as_a_load_does() -> None:
    assert kernel(access("load", "%v"), access("store", "%v", offset="1022*p + i")).vector == 2


@pytest.mark.parametrize("most", [1, 2, 4, 8, 16])
def test_no_more_than_the_author_asks_for(most: int) -> None:
    assert kernel(more=f", nvptx.most_neighbours = {most}").vector == min(most, 4)


@pytest.mark.parametrize("most", [0, 3, 5, 9, 17, 32])
def test_what_the_author_asks_for_is_a_power_of_two(most: int) -> None:
    with pytest.raises(TargetVerifyError, match=f"neighbours of a thread are a power of two up to 16, got {most}"):
        kernel(more=f", nvptx.most_neighbours = {most}")


def test_kernels_without_threads_are_left_alone() -> None:
    found = kernel(threads=0, align=16, more=", nvptx.most_neighbours = 3")
    assert found.vector == 1
    assert alignments(found) == [4, 4]


def test_kernels_of_other_kinds_are_left_alone() -> None:
    load_dialects()
    text = """ttile.kernel @t() attributes {symbols = [], grid = [1], writes = []} {
  ttile.return
}"""
    module = parse_module(text)
    before = str(module)
    ChooseVectors().run(module)
    assert str(module) == before


def reduced(size: int, threads: int, dtype: str = "f32", kind: str = "reduce", shape: str = "") -> int:
    """The vector of a kernel that reduces a row."""
    block = f"!ttarget.vector<[{shape or size}], {dtype}>"
    left = f"!ttarget.vector<[{shape.split(', ')[0] if shape else ''}], {dtype}>"
    axis = 1 if shape else 0
    if kind == "reduce":
        op = f'%r = ttarget.reduce %v {{kind = "sum", axis = {axis}}} : ({block}) -> {left}'
    else:
        places, place = block.replace(dtype, "i64"), left.replace(dtype, "i64")
        op = f"%a = ttarget.constant {{value = 0}} : () -> {places}\n"
        op += f'%r = ttarget.arg_reduce %v, %a {{kind = "argmax", axis = {axis}}} : ({block}, {places}) -> {place}'
    first = access("load", "%v") if not shape else f"%v = ttarget.constant {{value = 0}} : () -> {block}"
    return kernel(first, op, size=size, dtype=dtype, threads=threads).vector


@pytest.mark.parametrize(
    ("size", "threads", "dtype", "wanted"),
    [
        (512, 128, "f32", 1),
        (511, 128, "f32", 4),
        (256, 64, "f32", 1),
        (255, 64, "f32", 4),
        (1024, 32, "f32", 4),
        (512, 128, "bf16", 2),
        (512, 128, "i8", 4),
        (512, 128, "f64", 1),
    ],
)
def test_rows_that_warps_reduce_have_4_bytes_of_neighbours(size: int, threads: int, dtype: str, wanted: int) -> None:
    """From four elements of a thread on, where there are several warps: what is no neighbour joins without exchange."""
    assert reduced(size, threads, dtype) == wanted


def test_only_whole_rows_are_reduced_so() -> None:
    assert reduced(512, 128, shape="2, 512") == 8
    assert reduced(512, 128, shape="1, 512") == 1
    assert reduced(512, 128, kind="argreduce") == 1
