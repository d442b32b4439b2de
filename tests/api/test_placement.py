"""Where ops run: scopes of devices around calls and inside jitted functions, on a machine that has none but its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import KTile, Tensor, f32, kernel, tile
from tessera.diagnostics.codes import ArgumentError, DeviceError, TracingError
from tessera.ir.base.text import parse_module, print_module
from tessera.ir.graph.dialect import from_tape
from tessera.ir.graph.pipeline import pipeline
from tessera.runtime.devices.cuda.driver import is_available
from tessera.types.device import DEVICE

WITHOUT = pytest.mark.skipif(is_available(), reason="this machine has a GPU")


@kernel
def double(x: KTile["N", f32]) -> Any:
    """Twice the tensor."""
    T = tile.context()
    return tile.load(x, T.n) * 2.0


@ts.jit
def on_gpu(x: Tensor["N", f32]) -> Any:
    """A function that says where it runs."""
    with ts.device(ts.gpu[0]):
        return x * 2.0 + 1.0


@ts.jit
def same(x: Any) -> Any:
    return x


@ts.jit
def twice(x: Any) -> Any:
    return x + x


@ts.jit
def more(x: Any) -> Any:
    return x * 1.5


def test_the_program_says_where_it_runs() -> None:
    x = np.ones(4, np.float32)
    assert 'tessera.device = "gpu:0"' in on_gpu.lower(x).graph
    assert "ptx_kernel" in on_gpu.lower(x).llvm
    assert '"backend":"cuda"' in on_gpu.explain(x).options


@ts.jit
def partly(x: Tensor["M", "N", f32], n: Tensor[ts.i64]) -> Any:
    """Ops in a scope, in a body in it, in a function called in it, and outside of any."""
    y = ts.ops.exp(x)
    with ts.device(ts.gpu[0]):
        y = ts.ops.softmax(y)
        y = ts.fori_loop(0, n, lambda i, state: ts.ops.tanh(state), y)
        y = more(y)
    return ts.ops.sqrt(y)


def test_ops_in_a_scope_say_where_they_are_placed() -> None:
    x = np.ones((4, 3), np.float32)
    placed = {record.op: record.device for record in partly.trace(x, np.int64(2)).tape.records}
    assert placed["tgraph.exp"] == placed["tgraph.sqrt"] == ""
    assert {placed[name] for name in ("tgraph.softmax", "tgraph.while", "tgraph.mul") if name in placed} == {"gpu:0"}
    graph = partly.lower(x, np.int64(2)).graph
    for line in graph.splitlines():
        if "tgraph.tanh" in line or "tgraph.softmax" in line:
            assert 'tessera.device = "gpu:0"' in line
        if "tgraph.sqrt" in line:
            assert "tessera.device" not in line
    assert "tgraph.tanh" in graph


def test_what_an_op_is_decomposed_to_stays_where_it_is_placed() -> None:
    @ts.jit
    def program(x: Tensor["M", 8, f32]) -> Any:
        with ts.device(ts.cpu):
            y = ts.ops.layernorm(x)
        return y * 2.0

    module = from_tape(program.trace(np.ones((2, 8), np.float32)).tape)
    for one in pipeline():
        one.run(module)
    placed = [op.name for op in module.walk() if op.name != "tgraph.func" and DEVICE in op.attributes]
    assert len(placed) > 3
    assert "tgraph.layernorm_safe" not in placed


def test_a_placed_program_survives_its_text() -> None:
    module = from_tape(on_gpu.trace(np.ones(4, np.float32)).tape)
    text = print_module(module)
    records = on_gpu.trace(np.ones(4, np.float32)).tape.records
    assert text.count('tessera.device = "gpu:0"') == 1 + len(records) > 2
    assert print_module(parse_module(text)) == text


@WITHOUT
def test_a_device_that_is_not_there_is_refused_with_what_to_write() -> None:
    x = np.ones(4, np.float32)
    for work in (lambda: ts.array([1.0]) * 2.0, lambda: double(x), lambda: same(x)):
        with pytest.raises(DeviceError) as raised, ts.device(ts.gpu[1]):
            work()
        assert "there is no gpu[1] here" in raised.value.message
        assert "device(gpu[1], otherwise=cpu)" in str(raised.value)
    with pytest.raises(DeviceError):
        on_gpu(x)
    with pytest.raises(DeviceError):
        partly(np.ones((4, 3), np.float32), np.int64(2))


@WITHOUT
def test_a_scope_goes_where_it_says_otherwise() -> None:
    x = np.arange(4, dtype=np.float32)
    with ts.device(ts.gpu[0], otherwise=ts.cpu) as place:
        assert place == ts.cpu
        found = [ts.array(x) * 2.0, double(x), twice(x)]
    for one in found:
        np.testing.assert_array_equal(np.asarray(one), x * 2)

    @ts.jit
    def program(x: Tensor["N", f32]) -> Any:
        with ts.device(ts.gpu, otherwise=ts.cpu):
            return x * 2.0

    np.testing.assert_array_equal(np.asarray(program(x)), x * 2)
    assert program.lower(x).graph.count('tessera.device = "cpu:0"') > 1


def test_scopes_of_devices_and_of_policies_are_nested() -> None:
    x = ts.array([1.0, 2.0])
    with ts.policy(ts.Training()), ts.device(ts.cpu):
        assert (x * 1.5).dtype is ts.bf16
        assert more(x).dtype is ts.bf16
    with ts.device(ts.cpu), ts.policy(ts.Training()):
        assert (x * 1.5).dtype is ts.bf16
    assert (x * 1.5).dtype is f32


def test_a_function_runs_on_one_device() -> None:
    @ts.jit
    def program(x: Tensor["N", f32]) -> Any:
        with ts.device(ts.cpu):
            y = x * 2.0
        with ts.device(ts.gpu[0]):
            return y + 1.0

    with pytest.raises(TracingError, match="placed on cpu and on gpu\\[0\\]") as raised:
        program(np.ones(3, np.float32))
    assert raised.value.span is not None


def test_what_is_no_device_is_refused() -> None:
    with pytest.raises(ArgumentError, match="`device` takes"), ts.device("cuda"):  # pyright: ignore[reportArgumentType]
        pass
    with pytest.raises(ArgumentError, match="from 0 on"):
        ts.gpu[-1]  # pyright: ignore[reportUnusedExpression]
    assert repr(ts.gpu[3]) == "gpu[3]"
    assert repr(ts.gpu) == "gpu"


def test_a_prefetched_cache_is_an_op_of_the_program_and_changes_no_result() -> None:
    def attend(q: Any, cache: Any, *, prefetched: bool) -> Any:
        with ts.device(ts.cpu), ts.prefetch(cache, into="smem", overlap="compute") as near:
            return ts.ops.attention(q, *((near.K, near.V) if prefetched else (cache.K, cache.V)))

    rng = np.random.default_rng(0)
    k, v, q = (ts.array(rng.normal(size=(1, 2, rows, 8)).astype(np.float32)) for rows in (5, 5, 3))
    cache = ts.KVCache.empty(1, 2, 5, 8).append(k, v)
    program = ts.jit(attend)
    wanted = np.asarray(ts.ops.attention(q, k, v))
    for prefetched in (True, False):
        np.testing.assert_array_equal(np.asarray(program(q, cache, prefetched=prefetched)), wanted)
        assert "kv_prefetch" in program.lower(q, cache, prefetched=prefetched).tape
    assert "state(cache)" in str(program.effects)
    for wrong in ({"into": "tape"}, {"overlap": "sleep"}):
        with pytest.raises(ArgumentError, match=r"`(into|overlap)` is"), ts.prefetch(cache, **wrong):
            pass


def test_a_backend_that_a_function_names_comes_first() -> None:
    named = ts.jit(twice.function, backend="reference")
    with ts.device(ts.cpu):
        np.testing.assert_array_equal(np.asarray(named(np.ones(2, np.float32))), [2, 2])


@pytest.mark.parametrize("otherwise", ["cpu", 3])
def test_where_to_go_otherwise_is_a_device_too(otherwise: Any) -> None:
    said = f"`otherwise` takes `gpu\\[n\\]` or `cpu`, got {otherwise!r}"
    with pytest.raises(ArgumentError, match=said), ts.device(ts.cpu, otherwise=otherwise):
        pass


def test_a_list_names_no_memory() -> None:
    into: Any = ["smem"]
    cache = ts.KVCache.empty(1, 1, 4, 8)
    with pytest.raises(ArgumentError, match="`into` is one of smem, shared, got"), ts.prefetch(cache, into=into):
        pass
