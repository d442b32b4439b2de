"""Programs on a GPU: control flow, streams, captures, tensors of other libraries, and the bits of the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.diagnostics.codes import DeviceError, RuntimeArgumentError
from tessera.runtime.devices.cuda.driver import is_available
from tests.device.poison import poisoned

pytestmark = pytest.mark.skipif(not is_available(), reason="there is no NVIDIA GPU here")

RNG = np.random.default_rng(5)


def both(function: Any, *arrays: Any) -> tuple[list[bytes], list[bytes]]:
    """The bits of a function's results on the CPU and on a GPU."""
    with poisoned():
        there: Any = ts.jit(function, backend="cuda")(*arrays)
    here: Any = ts.jit(function)(*arrays)
    pairs: Any = (here, there) if isinstance(here, tuple) else ((here,), (there,))
    first, second = ([np.asarray(part).tobytes() for part in result] for result in pairs)
    return first, second


def on_device(function: Callable[[Any], Any]) -> Any:
    """A function of one tensor, for the GPU."""
    return ts.jit(function, backend="cuda")


ROWS: dict[str, Callable[[Any], Any]] = {
    "sum": lambda x: x.sum(axis=1),
    "mean": lambda x: x.mean(axis=0),
    "softmax": lambda x: ts.ops.softmax(x, axis=-1),
    "logsumexp": lambda x: ts.ops.logsumexp(x, axis=1),
    "layernorm": lambda x: ts.ops.layernorm(x),
    "rmsnorm": lambda x: ts.ops.rmsnorm(x),
    "exp": lambda x: ts.ops.exp(x * 30.0),
    "gelu": lambda x: ts.ops.gelu(x) + ts.ops.silu(x) * ts.ops.tanh(x),
    "trigonometry": lambda x: ts.ops.sin(x * 40.0) + ts.ops.cos(x) * ts.ops.log(abs(x) + 0.5),
    "cumsum": lambda x: ts.ops.cumsum(x, axis=1),
}


@pytest.mark.parametrize("shape", [(3, 5), (7, 97), (64, 1000), (33, 4096)])
@pytest.mark.parametrize("name", ROWS)
def test_bits_are_those_of_the_cpu(name: str, shape: tuple[int, int]) -> None:
    here, there = both(ROWS[name], RNG.standard_normal(shape).astype(np.float32))
    assert here == there


def rectified(x: Any, y: Any) -> Any:
    return ts.ops.relu(x @ y)


def test_dots_in_f32_have_the_bits_of_the_cpu() -> None:
    a, b = (RNG.standard_normal(shape).astype(np.float32) for shape in ((70, 130), (130, 90)))
    here, there = both(rectified, a, b)
    assert here == there


def halved(value: Any) -> Any:
    return value // 2


def grown(value: Any) -> Any:
    return 3 * value + 1


def added(total: Any, row: Any) -> tuple[Any, Any]:
    return total + row, total * row


def test_control_flow() -> None:
    def collatz(n: ts.Tensor[ts.i64]) -> Any:
        def step(pair: Any) -> Any:
            value, count = pair
            return ts.cond(value % 2 == 0, halved, grown, value), count + 1

        def goes_on(pair: Any) -> Any:
            return pair[0] > 1

        return ts.while_loop(goes_on, step, (n, n * 0))[1]

    assert int(ts.jit(collatz, backend="cuda")(ts.array(27)).item()) == 111

    def running(x: Any) -> Any:
        return ts.scan(added, x[0] * 0.0, x)

    x = RNG.standard_normal((9, 13)).astype(np.float32)
    here, there = both(running, x)
    assert here == there


def test_a_free_dim_is_served_by_one_compilation() -> None:
    @ts.jit(backend="cuda")
    def scale(x: ts.Tensor["N", ts.f32]) -> Any:
        return x * 2.0

    for size in (1, 31, 4096, 100003):
        x = RNG.standard_normal(size).astype(np.float32)
        np.testing.assert_array_equal(np.asarray(scale(x)), x * 2)
    assert scale.cache_info().compiles <= 1


def test_tensors_stay_on_the_device_and_memory_is_used_again() -> None:
    function = on_device(lambda a: a + 1.0)
    x = ts.cuda.array(np.zeros((256, 256), np.float32))
    for _ in range(5):
        x = function(x)
    reserved = ts.cuda.POOL.reserved
    for _ in range(50):
        x = function(x)
    assert ts.cuda.POOL.reserved == reserved
    assert x.tolist()[3][7] == 55.0


def test_streams_wait_for_each_other() -> None:
    function = on_device(lambda a: a * 2.0 + 1.0)
    x = ts.cuda.array(np.ones((4096, 1024), np.float32))
    first, second = ts.cuda.Stream(), ts.cuda.Stream()
    with ts.cuda.stream(first):
        y = function(x)
        for _ in range(20):
            y = function(y)
    with ts.cuda.stream(second):
        z = function(y)
    expected = np.ones((4096, 1024), np.float32)
    for _ in range(22):
        expected = expected * 2 + 1
    np.testing.assert_array_equal(np.asarray(z), expected)


def test_a_capture_runs_again_on_new_elements() -> None:
    function = on_device(lambda a: ts.ops.softmax(a * 3.0, axis=-1) @ a.T)
    values = [RNG.standard_normal((64, 128)).astype(np.float32) for _ in range(2)]
    x = ts.cuda.array(values[0])
    function(x)
    with ts.cuda.capture() as graph:
        y = function(x)
    for value in values:
        ts.cuda.write(x, value)
        graph.replay()
        np.testing.assert_array_equal(np.asarray(y), np.asarray(function(ts.cuda.array(value))))


def test_a_way_that_depends_on_values_cannot_be_recorded() -> None:
    function = on_device(lambda a: ts.cond(a.sum() > 0, grown, halved, a))
    x = ts.cuda.array(np.ones(4, np.float32))
    function(x)
    with pytest.raises(DeviceError, match="captured"), ts.cuda.capture():
        function(x)


def product(a: Any, b: Any) -> Any:
    return a * b


def test_other_libraries_share_memory() -> None:
    torch = pytest.importorskip("torch")
    function = ts.jit(product, backend="cuda")
    a = torch.randn(128, 96, device="cuda").to(torch.bfloat16)
    given = ts.cuda.array(a)
    assert given.address == a.data_ptr()
    back = torch.from_dlpack(function(given, given))
    assert torch.equal(back, a * a)
    plain = ts.cuda.array(np.arange(6, dtype=np.float32))
    seen = torch.as_tensor(plain, device="cuda")
    assert seen.data_ptr() == plain.address
    seen += 1
    assert plain.tolist() == [1, 2, 3, 4, 5, 6]


def test_a_tensor_that_begins_anywhere_is_copied() -> None:
    torch = pytest.importorskip("torch")
    function = on_device(lambda a: a + 1)
    whole = torch.arange(1001, device="cuda", dtype=torch.float32)
    assert torch.equal(torch.from_dlpack(function(ts.cuda.array(whole[1:]))), whole[1:] + 1)


def test_wrong_arguments_are_explained() -> None:
    function = on_device(lambda a: a + 1)
    x = ts.cuda.array(np.zeros((2, 3), np.float32))
    function(x)
    with pytest.raises(RuntimeArgumentError, match="expected 1 arguments"):
        function.specializations[0].loaded.run([x, x])


def normalized(x: Any) -> Any:
    return ts.ops.layernorm(x)


def squared(x: Any) -> Any:
    return x @ ts.ops.full((64, 48), 0.125, ts.f32)


def attended(q: Any) -> Any:
    return ts.ops.attention(q, q, q)


@pytest.mark.parametrize(
    ("function", "shape"),
    [(normalized, (300,)), (squared, (64,)), (attended, (4, 40, 32))],
    ids=["norm", "matmul", "attention"],
)
def test_a_row_alone_is_the_row_of_its_batch(function: Any, shape: tuple[int, ...]) -> None:
    batch = RNG.standard_normal((64, *shape)).astype(np.float32)
    jitted = on_device(function)
    alone, together = (np.asarray(jitted(batch[:count])) for count in (1, 64))
    assert alone.tobytes() == together[:1].tobytes()


def test_the_hardwares_exponential_is_close_and_keeps_the_corners() -> None:
    x = np.concatenate([np.linspace(-100, 88, 4001), [np.inf, -np.inf, np.nan, 0.0, 100.0]]).astype(np.float32)
    function = ts.jit(ts.ops.exp, backend="cuda", overrides={"math.exp": "hardware"})
    found, expected = np.asarray(function(x)).astype(np.float64), np.exp(x.astype(np.float64))
    normal = (expected > 2.0**-125) & (expected < 3e38)
    assert (abs(found[normal] - expected[normal]) <= 4 * 2.0**-23 * expected[normal]).all()
    assert found[-5] == found[-1] == np.inf
    assert found[-4] == 0
    assert np.isnan(found[-3])
    assert found[-2] == 1
