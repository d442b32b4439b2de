"""Attention to the filled part of a cache on tensor cores: copies end where a number in memory says."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera.backends.nvptx.host import STATE
from tessera.backends.nvptx.mma.fit import choose_units
from tessera.backends.nvptx.tensor_cores import GPUS
from tessera.compiler.compile import compile_tape, lower
from tessera.compiler.options import Options
from tessera.ir.base.dialect_of import load_dialects
from tessera.ir.base.op import OpError, SpecOp
from tessera.ir.base.text import parse_module
from tessera.ir.base.types import BufferAttr
from tessera.ir.base.verify import verify
from tessera.ir.target.machine_code import compile_texts
from tessera.ir.tile.typed_ops import ElementwiseOp
from tessera.runtime.devices.cuda.assembler import assemble, assembler
from tessera.runtime.devices.cuda.metrics import TensorMaps
from tessera.runtime.loader import link
from tests.backends.nvptx.matrices import BACKEND, text_of, tile_kernels_of
from tests.backends.nvptx.test_matrix_host import numbers
from tests.graph.eager import reference
from tests.oracles.nvptx_simulator import Order, simulate

Shapes = Sequence[Sequence[int]]
PREFILL: Shapes = [(2, 2, 130, 64), (2, 2, 300, 64), (2, 2, 300, 64)]
DECODE: Shapes = [(1, 8, 1, 64), (1, 2, 4100, 64), (1, 2, 4100, 64)]


def attend(q: Any, k: Any, v: Any, length: Any) -> Any:
    return ts.ops.attention(q, ts.KVCache(k, v, length))


def attend_causal(q: Any, k: Any, v: Any, length: Any) -> Any:
    return ts.ops.attention(q, ts.KVCache(k, v, length), causal=True)


def kernels_of(function: Any, shapes: Shapes, machine: str = "sm_90a", dtype: Any = ml_dtypes.bfloat16) -> list[SpecOp]:
    arrays = [*(np.zeros(shape, dtype) for shape in shapes), np.array(1)]
    options = Options.of(backend="cuda", features=(machine,))
    jitted: Any = ts.jit(function)
    return list(lower(jitted.trace(*arrays).tape, options).kernels)


def matrix_of(function: Any, shapes: Shapes, **given: Any) -> SpecOp:
    found = BACKEND.matrix(kernels_of(function, shapes, **given)[0])
    assert found is not None
    return found


def fill_cache(shapes: Shapes, length: int) -> list[Any]:
    """Queries, and a cache with NaN where nothing is filled in yet."""
    rng = np.random.default_rng(abs(length))
    q, k, v = (rng.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in shapes)
    k[:, :, max(length, 0) :], v[:, :, max(length, 0) :] = np.nan, np.nan
    return [q, k, v, np.array(length)]


def run(made: SpecOp, given: Sequence[Any], *outs: Any) -> list[Any]:
    buffers: list[Any] = [*given, *outs]
    for at, argument in enumerate(made.regions[0].block.args):
        assert isinstance(argument.type, BufferAttr)
        buffers[at] = buffers[at].reshape([dim.value or 0 for dim in argument.type.shape])
    simulate(made, buffers, {}, Order((0,)))
    return buffers[len(given) :]


def assert_parts(found: Sequence[Any], wanted: Sequence[Any], length: int) -> None:
    """Accumulators, maxima and sums: weights are rounded to bf16 for the first, and summed unrounded for the last.

    Parts beyond the length are left as they were.
    """
    end = -(-length // 512)
    assert all(np.isnan(part[:, :, end:]).all() for part in found)
    found, wanted = ([part[:, :, :end] for part in parts] for parts in (found, wanted))
    np.testing.assert_allclose(found[0], wanted[0], rtol=0.05, atol=0.5)
    np.testing.assert_array_equal(found[1], wanted[1])
    np.testing.assert_allclose(found[2], wanted[2], rtol=1e-4)


@pytest.mark.parametrize("length", [-3, 1, 128, 200])
def test_what_is_beyond_the_length_does_not_enter(length: int) -> None:
    given = fill_cache(PREFILL, length)
    for function, is_causal in ((attend, False), (attend_causal, True)):
        wanted: Any = reference("cached_attention", *given, causal=is_causal)
        (found,) = run(matrix_of(function, PREFILL), given, np.full(wanted.shape, np.nan, wanted.dtype))
        found = found.reshape(wanted.shape).astype(np.float32)
        np.testing.assert_allclose(found, wanted.astype(np.float32), rtol=0.05, atol=0.02)


@pytest.mark.parametrize("length", [0, 2050, 4100])
def test_parts_beyond_the_length_are_not_touched(length: int) -> None:
    given = fill_cache(DECODE, length)
    wanted: Any = reference("attention_parts", *given, keys=512, scale=None)
    found = run(matrix_of(attend, DECODE), given, *(np.full_like(part, np.nan) for part in wanted))
    assert_parts([part.reshape(one.shape) for part, one in zip(found, wanted, strict=True)], wanted, length)


def test_a_cache_of_free_capacity_is_taken_in_parts() -> None:
    @ts.jit
    def decode(q: ts.Tensor["B", 8, 1, 64, ts.bf16], cache: ts.KVCache["B", 2, "S_max", 64, ts.bf16]) -> Any:
        return ts.ops.attention(q, cache)

    given = fill_cache(DECODE, 2050)
    tape = decode.trace(given[0], ts.KVCache(*given[1:])).tape
    options = Options.of(backend="cuda", features=("sm_90a",))
    parts, _ = tile_kernels_of(tape, options)
    made = BACKEND.matrix(parts)
    assert made is not None
    wanted: Any = reference("attention_parts", *given, keys=512, scale=None)
    found = [np.full_like(part, np.nan) for part in wanted]
    assert made.value("symbols") == ("s0", "s1")
    simulate(made, [*given, *found], {"s0": 1, "s1": 4100})
    assert_parts(found, wanted, 2050)


def test_other_machines_read_no_more_than_there_is_by_threads() -> None:
    for machine in ("sm_80", "sm_100a"):
        (kernel,) = kernels_of(attend, PREFILL, machine)
        assert choose_units(kernel, GPUS[machine]).units is None


@pytest.mark.skipif(assembler() is None, reason="there is no ptxas here")
@pytest.mark.parametrize(
    ("function", "shapes"),
    [(attend, DECODE), (attend_causal, PREFILL), (attend_causal, [(1, 4, 512, 128), *[(1, 4, 1024, 128)] * 2])],
)
def test_copies_with_an_end_assemble(function: Any, shapes: Shapes) -> None:
    made = matrix_of(function, shapes, dtype=np.float16)
    (ptx,) = compile_texts([BACKEND.code(made).text], BACKEND.code_target)
    assert ptx.count(b".tensor.5d.shared::cluster.global") >= 2
    assert assemble(ptx, "sm_90a").startswith(b"\x7fELF")


@pytest.mark.skipif(assembler() is None, reason="there is no ptxas here")
@pytest.mark.parametrize(("head", "ctas"), [(64, 2), (128, 1)])
def test_ctas_of_one_warpgroup_share_a_multiprocessor(head: int, ctas: int) -> None:
    """Where half of its shared memory holds their stages: half of its registers, and twice as many are launched."""
    made = matrix_of(attend, [(1, 8, 1, head), *[(1, 2, 2048, head)] * 2])
    code = BACKEND.code(made)
    assert code.resident == ctas * GPUS["sm_90a"].blocks
    (ptx,) = compile_texts([code.text], BACKEND.code_target)
    assert f".minnctapersm {ctas}".encode() in ptx
    assert (made.value("registers") == (40, 216)) == (ctas == 2)
    assert ctas * (code.shared + 1024) <= 228 << 10
    assert assemble(ptx, "sm_90a").startswith(b"\x7fELF")


def test_the_map_of_a_cache_begins_before_it_and_counts_from_its_end() -> None:
    """A row is at the sum of where a copy ends and how far before that it is; the second dim says where it ends."""
    jitted: Any = ts.jit(attend)
    arrays = [*(np.zeros(shape, ml_dtypes.bfloat16) for shape in PREFILL), np.array(1)]
    made = compile_tape(jitted.trace(*arrays).tape, Options.of(backend="cuda", features=("sm_90a",)))
    maps: list[tuple[int, list[int], list[int], list[int]]] = []

    def encode(*args: int) -> int:
        rank = args[2] & 0xFFFFFFFF
        box = list((ctypes.c_uint32 * rank).from_address(args[6]))
        maps.append((args[3], numbers(args[4], rank), numbers(args[5], rank - 1), box))
        return 0

    call = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 12)
    own = {"encode": call(encode), "launch": call(lambda *_: 0)}
    words = [ctypes.cast(own[name], ctypes.c_void_p).value if name in own else 0 for name in STATE]
    area = TensorMaps(made.metadata["maps"])
    words[STATE.index("maps")] = area.address
    called = len(made.metadata["called"])
    state = (ctypes.c_void_p * (len(words) + called))(*words, *[1] * called)
    code = link([made.objects[0]], {})
    entry = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_void_p] * 5)(code.address("tessera_entry"))
    at = [0x100000 * number for number in range(1, 7)]
    assert entry((ctypes.c_void_p * 4)(*at[:4]), (ctypes.c_void_p * 1)(at[4]), None, at[5], state) == 0
    _, heads, keys, head = PREFILL[1]
    row = 2 * head
    dims, strides = [head, keys, keys + 1, heads, 2], [row, row, keys * row, heads * keys * row]
    for start in at[1:3]:
        assert (start - keys * row, dims, strides, [head, 128, 1, 1, 1]) in maps


def test_b_operands_that_end_early_are_not_multicast() -> None:
    """Eight waves and more are for pairs, unless what they would share is cut."""

    def upper(x: Any, w: Any) -> Any:
        return ts.ops.matmul(x, w[:192])

    def whole(x: Any, w: Any) -> Any:
        return ts.ops.matmul(x, w)

    x, w = np.zeros((8192, 192), ml_dtypes.bfloat16), np.zeros((300, 16384), ml_dtypes.bfloat16)
    for function, right, is_pair in ((upper, w, False), (whole, w[:192], True)):
        jitted: Any = ts.jit(function)
        tape = jitted.trace(x, right).tape
        (kernel,) = lower(tape, Options.of(backend="cuda", features=("sm_90a",))).kernels
        made = BACKEND.matrix(kernel)
        assert made is not None
        assert made.value("multicast") == is_pair


WRONG = {
    "the dim along memory": ("cut = 2", "cut = 3", "copies end early along an outer dim"),
    "no dim": ("cut = 2", "cut = -2", "copies end early along an outer dim"),
    "an end that nobody asks for": (", cut = 2", "", "is found by as many indices, got 5"),
}


@pytest.mark.parametrize("name", list(WRONG))
def test_ends_that_do_not_fit_are_refused(name: str) -> None:
    old, new, message = WRONG[name]
    text = text_of(matrix_of(attend, PREFILL))
    assert old in text
    load_dialects()
    with pytest.raises(OpError, match=message):
        verify(parse_module(text.replace(old, new)))


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16])
def test_rows_of_parts_have_one_quotient_wherever_they_are_joined(dtype: Any) -> None:
    """A reciprocal of each row, rounded to f32: no approximate one, nor a division for each element."""
    whole = matrix_of(attend, [(64, 8, 64, 64), *[(64, 8, 2048, 64)] * 2], dtype=dtype)
    (ptx,) = compile_texts([BACKEND.code(whole).text], BACKEND.code_target)
    assert b"rcp.approx" not in ptx
    # A thread has two rows.
    assert ptx.count(b"rcp.rn.f32") == 2
    assert b"div.rn.f32" not in ptx
    _, join = kernels_of(attend, DECODE)
    names = [op.fn for op in join.walk() if isinstance(op, ElementwiseOp)]
    assert names[-2:] == ["div", "mul"]


@pytest.mark.parametrize("length", [1, 77, 300])
def test_single_queries_to_a_cache_of_one_part_are_rows_of_their_group(length: int) -> None:
    shapes = [(2, 8, 1, 64), (2, 2, 300, 64), (2, 2, 300, 64)]
    given = fill_cache(shapes, length)
    made = matrix_of(attend, shapes)
    assert [dim.value for dim in made.value("grid")] == [2, 2, 1]
    wanted: Any = reference("cached_attention", *given, causal=False)
    (found,) = run(made, given, np.full(wanted.shape, np.nan, ml_dtypes.bfloat16))
    found = found.reshape(wanted.shape).astype(np.float32)
    np.testing.assert_allclose(found, wanted.astype(np.float32), rtol=0.05, atol=0.02)
