"""Offloaded activations on the device: less memory there, more on the host, and the same bits."""

# Traced functions have no types to give here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import ops
from tessera.frontend.pytree import flatten
from tessera.runtime.devices.cuda.driver import is_available
from tessera.runtime.devices.cuda.memory import POOL, PinnedMemory
from tessera.runtime.devices.cuda.race_check import race_check
from tessera.runtime.devices.cuda.streams import capture
from tessera.runtime.timeline import Launch

pytestmark = [
    pytest.mark.device("sm_80"),
    pytest.mark.skipif(not is_available(), reason="there is no NVIDIA GPU here"),
]

RNG = np.random.default_rng(3)
WIDTH, ROWS, LAYERS = 512, 4096, 8
W = (RNG.standard_normal((WIDTH, WIDTH)) / 24).astype(np.float32)
X = RNG.standard_normal((ROWS, WIDTH)).astype(np.float32)


def net(w: Any, x: Any) -> Any:
    for _ in range(LAYERS):
        x = x + ops.gelu(ops.layernorm(x, w[0], w[1]) @ w) @ w
    return (x * x).mean()


def step(w: Any, x: Any) -> Any:
    """One step of training: the loss and its gradients."""
    return ts.value_and_grad(net, (0, 1))(w, x)


def bits_of(result: Any) -> list[bytes]:
    return [np.asarray(leaf.cpu()).tobytes() for leaf in flatten(result)[0]]


def shown(function: Any, name: str, *args: Any) -> int:
    """A number of bytes that an explanation shows."""
    lines = [line.strip().partition(": ") for line in str(function.explain(*args)).splitlines()]
    return next((int(text.split()[0]) for key, _, text in lines if key == name), 0)


def milliseconds(function: Any, *args: Any) -> float:
    """The time of a step, of several one after the other."""
    ts.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(5):
        function(*args)
    ts.cuda.synchronize()
    return (time.perf_counter() - start) / 5 * 1e3


def measure(function: Any, *args: Any) -> tuple[list[bytes], int, int]:
    """The bits of a step, and the bytes that it took of the device and of pinned host memory."""
    POOL.trim()
    device, pinned = POOL.reserved, PinnedMemory.held
    result = function(*args)
    ts.cuda.synchronize()
    found = POOL.reserved - device, PinnedMemory.held - pinned
    return bits_of(result), *found


@pytest.mark.parametrize("dtype", [ts.f32, ts.bf16])
def test_peak_memory_falls_host_bytes_rise_and_the_loss_is_the_same(dtype: Any) -> None:
    w, x = (ts.cuda.array(array).cast(dtype) for array in (W, X))
    plain = ts.jit(step, backend="cuda")
    bits, used, pinned = measure(plain, w, x)
    assert pinned == 0
    size = shown(plain, "workspace", w, x)
    less = ts.jit(step, backend="cuda", memory=size // 2, offload=True)
    same, used_less, pinned = measure(less, w, x)
    print(f"{dtype}: {used} bytes of the device, {used_less} where {pinned} are offloaded")
    assert same == bits
    assert used_less <= used - size // 2 + (4 << 20)  # blocks are whole megabytes
    assert pinned == shown(less, "host memory", w, x) >= size // 4
    for _ in range(4):
        assert bits_of(less(w, x)) == bits
    print(f"{milliseconds(plain, w, x):.2f} ms a step, {milliseconds(less, w, x):.2f} ms where values are offloaded")


def test_streams_threads_and_captures_have_the_same_bits() -> None:
    w, x = ts.cuda.array(W), ts.cuda.array(X)
    plain = ts.jit(step, backend="cuda")
    bits = bits_of(plain(w, x))
    less = ts.jit(step, backend="cuda", memory=shown(plain, "workspace", w, x) // 2, offload=True)
    assert bits_of(less(w, x)) == bits
    found: list[list[bytes]] = []

    def run() -> None:
        found.extend(bits_of(less(w, x)) for _ in range(4))

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [bits] * 12
    with ts.graph.stream("aside"):
        assert bits_of(less(w, x)) == bits
    with capture() as recording:
        result = less(w, x)
    for _ in range(3):
        recording.replay()
        less(w, x)
    ts.cuda.synchronize()
    assert bits_of(result) == bits


def test_nothing_races_and_what_is_dropped_is_freed() -> None:
    w, x = ts.cuda.array(W), ts.cuda.array(X)
    plain = ts.jit(step, backend="cuda")
    bits, before = bits_of(plain(w, x)), PinnedMemory.held
    less = ts.jit(step, backend="cuda", memory=shown(plain, "workspace", w, x) // 2, offload=True)
    with race_check() as log:
        assert bits_of(less(w, x)) == bits
    assert any(isinstance(entry, Launch) and entry.name == "a copy from the host" for entry in log)
    assert PinnedMemory.held > before
