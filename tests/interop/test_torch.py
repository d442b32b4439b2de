"""Jitted functions with tensors of PyTorch, on the CPU and on a GPU, where these are there."""

from __future__ import annotations

import importlib.util
import sys
from types import SimpleNamespace
from typing import Any

import pytest

import tessera as ts
from tessera.diagnostics.codes import ArgumentError
from tessera.interop.torch import wrap
from tessera.runtime.devices.cuda.driver import is_available

HAS_TORCH = importlib.util.find_spec("torch") is not None
needs_torch = pytest.mark.skipif(not HAS_TORCH, reason="there is no PyTorch here")
WHERE = [
    pytest.param(("cpu", "cpu"), id="cpu"),
    pytest.param(
        ("cuda", "cuda"), id="cuda", marks=pytest.mark.skipif(not is_available(), reason="there is no NVIDIA GPU here")
    ),
]


def blend(x: Any, w: Any) -> Any:
    return ts.ops.tanh(x @ w)


def blend_backward(x: Any, w: Any, y: Any, gradient: Any) -> Any:
    inner = gradient * (1.0 - y * y)
    return inner @ ts.ops.transpose(w), ts.ops.transpose(x) @ inner


def same(x: Any) -> Any:
    return x + 0.0, x.sum(axis=0)


@needs_torch
@pytest.mark.parametrize("where", WHERE)
def test_tensors_go_in_and_come_out_without_copies(where: tuple[str, str]) -> None:
    torch: Any = pytest.importorskip("torch")
    device, backend = where
    function = ts.jit(same, backend=backend)
    seen: list[Any] = []

    def look(x: Any) -> Any:
        seen.append(x)
        made = function(x)
        seen.extend(made)
        return made

    x = torch.randn(64, 48, device=device)
    whole, total = wrap(look)(x)
    assert (whole.device.type, total.shape) == (device, (48,))
    assert [one.address for one in seen] == [one.data_ptr() for one in (x, whole, total)]
    assert torch.equal(whole, x)
    torch.testing.assert_close(total, x.sum(0))
    transposed = wrap(look)(x.T)[0]
    assert torch.equal(transposed, x.T)


@needs_torch
@pytest.mark.parametrize("where", WHERE)
def test_gradients_flow_through_a_declared_derivative(where: tuple[str, str]) -> None:
    torch: Any = pytest.importorskip("torch")
    device, backend = where
    function = wrap(ts.jit(blend, backend=backend), ts.jit(blend_backward, backend=backend))
    x, w = (torch.randn(*shape, device=device, requires_grad=True) for shape in ((32, 16), (16, 24)))
    first, second = (one.detach().clone().requires_grad_() for one in (x, w))
    made, wanted = function(x * 2.0, w), torch.tanh((first * 2.0) @ second)
    torch.testing.assert_close(made, wanted)
    for one in (made, wanted):
        (one * one).sum().backward()
    torch.testing.assert_close(x.grad, first.grad, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(w.grad, second.grad, rtol=1e-4, atol=1e-4)


@needs_torch
@pytest.mark.parametrize("where", WHERE)
def test_streams_of_both_libraries_are_in_order(where: tuple[str, str]) -> None:
    torch: Any = pytest.importorskip("torch")
    device, backend = where
    if device != "cuda":
        pytest.skip("a CPU has no streams")
    function = wrap(ts.jit(same, backend=backend))
    x, side = torch.zeros(1 << 22, 4, device=device), torch.cuda.Stream()
    for iteration in range(5):
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(8):
                x += 1.0
            made, _ = function(x)
            found = made * 1.0
        side.synchronize()
        assert bool((found == 8.0 * (iteration + 1)).all())


@needs_torch
def test_what_has_no_gradient_gets_none_and_wrong_counts_are_told() -> None:
    torch: Any = pytest.importorskip("torch")

    def rescale(x: Any, by: Any) -> Any:
        return x * by

    def back(x: Any, by: Any, y: Any, gradient: Any) -> Any:
        return gradient * by, None

    x = torch.randn(8, requires_grad=True)
    by = torch.randn(8)
    wrap(ts.jit(rescale), ts.jit(back))(x, by).sum().backward()
    torch.testing.assert_close(x.grad, by)
    wrong = wrap(ts.jit(rescale), ts.jit(lambda x, by, y, g: (g,)))(x, by)  # pyright: ignore[reportUnknownLambdaType,reportUnknownArgumentType]
    with pytest.raises(ArgumentError, match="a gradient for each argument: 2, got 1"):
        wrong.sum().backward()


@pytest.mark.parametrize("given", [(3,), (blend, "x")])
def test_what_is_no_function_is_refused(given: tuple[Any, ...]) -> None:
    with pytest.raises(ArgumentError, match="`wrap` takes jitted functions"):
        wrap(*given)


def test_without_pytorch_a_call_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    for function in (wrap(ts.jit(same)), wrap(ts.jit(blend), ts.jit(blend_backward))):
        with pytest.raises(ArgumentError, match="PyTorch is not installed here") as caught:
            function(ts.ones((2, 2)))
        assert "pip install torch" in str(caught.value)


class Theirs:
    """A tensor of a library that has what is asked of PyTorch's."""

    is_cuda = False

    def __init__(self, own: Any) -> None:
        self.own = own

    def detach(self) -> Theirs:
        return self

    def contiguous(self) -> Theirs:
        return self

    def __dlpack__(self, **options: Any) -> Any:
        return self.own.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.own.__dlpack_device__()


def test_memory_is_shared_and_results_are_tensors_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    library = SimpleNamespace(Tensor=Theirs, from_dlpack=lambda one: Theirs(one))  # pyright: ignore[reportUnknownLambdaType,reportUnknownArgumentType]
    monkeypatch.setitem(sys.modules, "torch", library)  # pyright: ignore[reportArgumentType]
    x, seen = ts.ones((4, 2)), list[Any]()

    def look(given: Any) -> Any:
        seen.append(given)
        return ts.jit(same)(given)

    whole, total = wrap(look)(Theirs(x))
    assert seen[0].address == x.address
    assert whole.own.tolist() == x.tolist()
    assert total.own.tolist() == [4.0, 4.0]
    one = wrap(lambda x: x * 2.0)(Theirs(x))  # pyright: ignore[reportUnknownLambdaType,reportUnknownArgumentType]
    assert one.own.tolist() == [[2.0, 2.0]] * 4
    with pytest.raises(ArgumentError, match="gives a tensor or a tuple of them, got dict"):
        wrap(ts.jit(lambda x: {"y": x}))(Theirs(x))  # pyright: ignore[reportUnknownLambdaType,reportUnknownArgumentType]
