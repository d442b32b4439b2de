"""`stdlib.fused_adam`, and steps of optimizers as programs: their bits, their kernels, and memory that they reuse."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false
from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.backends.nvptx.compile import NvptxBackend
from tessera.backends.nvptx.tensor_cores import GPUS
from tessera.compiler.compile import lower
from tessera.compiler.options import Options
from tessera.diagnostics.codes import DonatedError, PytreeError
from tessera.ir.target.machine_code import compile_texts
from tessera.stdlib.optimizers import bias_correction

SHAPES: dict[str, tuple[int, ...]] = {"w": (33, 70), "b": (70,), "v": (33, 70), "g": (5,), "n": ()}
Tree = dict[str, Any]
Array = np.ndarray[Any, Any]


def arrays(seed: int, *, least: float | None = None) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    made = {name: np.asarray(rng.normal(size=shape), np.float32) for name, shape in SHAPES.items()}
    return made if least is None else {name: np.abs(value) + np.float32(least) for name, value in made.items()}


def own(tree: dict[str, Array]) -> Tree:
    """Tensors in memory of ours, which may be donated."""
    return {name: ts.array(value) + 0.0 for name, value in tree.items()}


def reference(params: Tree, gradients: Tree, mu: Tree, nu: Tree, count: int) -> list[Tree]:
    """The formulas of the docstring in NumPy, one operation at a time in f32."""
    b1, b2, eps, decay, rate = (np.float32(number) for number in (0.9, 0.95, 1e-8, 0.1, 0.01))
    c1, c2 = (np.asarray(bias_correction(b, count, ts.f32)) for b in (0.9, 0.95))
    made: list[Tree] = [{}, {}, {}]
    for name, p in params.items():
        g = gradients[name]
        m = b1 * mu[name] + np.float32(1 - 0.9) * g
        v = b2 * nu[name] + np.float32(1 - 0.95) * (g * g)
        made[0][name] = p - rate * ((m * c1) / (np.sqrt(v * c2) + eps) + decay * p)
        made[1][name], made[2][name] = m, v
    return made


def adam(params: Tree, gradients: Tree, mu: Tree, nu: Tree, count: Any) -> Any:
    return ts.stdlib.fused_adam(params, gradients, mu, nu, count, 0.01, b2=0.95, weight_decay=0.1)


@pytest.mark.parametrize("is_donated", [True, False], ids=["donated", "kept"])
def test_it_equals_the_formulas_bit_for_bit(is_donated: bool) -> None:
    step = ts.jit(adam, donate={"params", "mu", "nu"} if is_donated else ())
    state = wanted = [arrays(1), arrays(2), arrays(3, least=0.1)]
    state = [own(tree) for tree in state]
    for count in range(1, 4):
        gradients = arrays(count + 10)
        wanted = reference(wanted[0], gradients, wanted[1], wanted[2], count)
        state = list(step(state[0], own(gradients), state[1], state[2], ts.array(count)))
        for found, right in zip(state, wanted, strict=True):
            for name, value in right.items():
                assert np.asarray(found[name]).tobytes() == value.tobytes(), name


def launches(step: Any) -> list[str]:
    """The kernels that a call launches, in order; calls that are one launch count once."""
    program = str(step.lower().schedule).rpartition("tsched.module @main")[2]
    calls = [line for line in program.splitlines() if "tsched.call " in line]
    numbers = [re.search(r"launch = (\d+)", line) for line in calls]
    names = [line.split("@")[1].partition("(")[0] for line in calls]
    every = zip(names, numbers, strict=True)
    return list(dict.fromkeys(f"{name} {at if one is None else one[0]}" for at, (name, one) in enumerate(every)))


OPTIMIZERS = {
    "sgd": (ts.optim.sgd(0.1, momentum=0.9), ts.f32, 1),
    "adamw": (ts.optim.adamw(0.01, mask=ts.optim.matrices), ts.f32, 1),
    "lion": (ts.optim.lion(0.01, weight_decay=0.1), ts.f32, 1),
    "master": (ts.optim.with_master(ts.optim.adamw(0.01)), ts.bf16, 1),
    # The sum of the squares of a gradient is a pass of its own.
    "clipped": (ts.optim.chain(ts.optim.clip_by_global_norm(1.0), ts.optim.adamw(0.01)), ts.f32, 2),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_update_of_a_tensor_is_one_kernel_in_place(name: str) -> None:
    optimizer, dtype, kernels = OPTIMIZERS[name]

    def update(params: Tree, state: Any, gradients: Tree) -> Any:
        updates, state = optimizer.update(gradients, state, params)
        return ts.optim.apply_updates(params, updates), state

    step, plain = ts.jit(update, donate={"params", "state"}), ts.jit(update)
    params = {key: value.cast(dtype) for key, value in own(arrays(1)).items() if value.shape}
    gradients = {key: value.cast(dtype) for key, value in own(arrays(2)).items() if value.shape}
    given = {key: value + 0 for key, value in params.items()}
    places = {key: value.address for key, value in given.items()}
    state, other = optimizer.init(given), optimizer.init(params)
    for _ in range(3):
        given, state = step(given, state, gradients)
        params, other = plain(params, other, gradients)
    # One for each tensor, and one for the scalars of a step: its count and corrections.
    assert len(launches(step)) <= kernels * len(params) + 1
    assert {key: value.address for key, value in given.items()} == places
    for key, value in params.items():
        assert value.tolist() == given[key].tolist()


@pytest.mark.parametrize("is_donated", [True, False], ids=["donated", "kept"])
def test_the_update_of_a_tree_is_a_few_launches(is_donated: bool) -> None:
    """One for tensors whose sizes are multiples of 16, one for others, and one for the corrections of a step."""
    step = ts.jit(adam, donate={"params", "mu", "nu"} if is_donated else ())
    shapes = [(16 * rows, width) for rows in range(1, 6) for width in (1, 8)] + [(5,), (3, 7), (1,), (9, 9)]
    trees = [{str(at): ts.ones(shape) for at, shape in enumerate(shapes)} for _ in range(4)]
    step(*trees, ts.array(1))
    assert len(launches(step)) == 3


@pytest.mark.parametrize(("rows", "inner", "width"), [(5, 33, 70), (64, 8, 32), (700, 17, 131), (1, 1, 1), (0, 3, 5)])
def test_updates_fused_into_products_are_in_place(rows: int, inner: int, width: int) -> None:
    """Blocks at the edges too: each element is updated once, and all of them have the bits of new memory."""
    optimizer = ts.optim.adamw(0.01, weight_decay=0.1)

    def update(params: Any, state: Any, x: Any, y: Any) -> Any:
        gradients = ts.grad(lambda params: (ts.ops.tanh(x @ params) * y).sum())(params)
        updates, state = optimizer.update(gradients, state, params)
        return ts.optim.apply_updates(params, updates), state

    rng = np.random.default_rng(rows)
    start, x, y = (
        np.asarray(rng.normal(size=shape), np.float32) for shape in ((inner, width), (rows, inner), (rows, width))
    )
    step, plain = ts.jit(update, donate={"params", "state"}), ts.jit(update)
    given, kept = ts.array(start) + 0.0, ts.array(start)
    state, other, where = optimizer.init(given), optimizer.init(kept), given.address
    for _ in range(3):
        given, state = step(given, state, x, y)
        kept, other = plain(kept, other, x, y)
    assert given.address == where
    assert np.asarray(given).tobytes() == np.asarray(kept).tobytes()
    assert np.asarray(state.nu).tobytes() == np.asarray(other.nu).tobytes()
    assert any("matmul" in name and "sqrt" in name for name in launches(step)) or rows > 512 or not rows


def test_what_was_donated_is_consumed() -> None:
    step = ts.jit(adam, donate={"params", "mu", "nu"})
    params, mu, nu = own(arrays(1)), own(arrays(2)), own(arrays(3, least=0.1))
    step(params, own(arrays(4)), mu, nu, ts.array(1))
    with pytest.raises(DonatedError):
        params["w"].tolist()


def test_trees_of_another_form_are_refused() -> None:
    with pytest.raises(PytreeError, match="`fused_adam` takes `gradients` in the form of the parameters"):
        adam(own(arrays(1)), {"w": ts.ones((2,))}, own(arrays(2)), own(arrays(3)), 1)


def test_a_step_under_a_policy_keeps_its_state_in_f32() -> None:
    optimizer = ts.optim.adamw(1e-3)

    @ts.jit(policy=ts.Training())
    def step(params: Any, state: Any, x: Any) -> Any:
        gradients = ts.grad(lambda params: (x @ params).sum())(params)
        updates, state = optimizer.update(gradients, state, params)
        return ts.optim.apply_updates(params, updates), state

    params = ts.array(arrays(1)["w"])
    new, state = step(params, optimizer.init(params), ts.ones((2, 33)))
    assert {new.dtype, state.mu.dtype, state.nu.dtype} == {ts.f32}
    # The gradient is 2 everywhere, and so the first step is the rate, plus the decay.
    wanted = np.asarray(params) - 1e-3 * (1 + 1e-2 * np.asarray(params))
    np.testing.assert_allclose(np.asarray(new), wanted, rtol=0, atol=4 * float(np.finfo(np.float32).eps))


def test_a_gpu_does_not_read_as_constant_what_it_writes_over() -> None:
    """Loads of constants (`ld.global.nc`) may be moved behind a store; gradients alone are such here."""
    step = ts.jit(adam, donate={"params", "mu", "nu"})
    one = {"w": ts.ones((64, 128))}
    lowering = lower(step.trace(one, one, one, one, ts.array(1)).tape, Options.of(backend="cuda", features=("sm_90a",)))
    texts = compile_texts(lowering.texts, NvptxBackend(GPUS["sm_90a"]).code_target)
    (ptx,) = [text.decode() for text in texts if b"sqrt" in text]
    loads, constants = (len(re.findall(rf"ld\.global\.{kind}v4", ptx)) for kind in ("", r"nc\."))
    assert (loads, constants) == (3 * constants, constants)
    assert constants > 0
    assert loads == len(re.findall(r"st\.global\.v4", ptx))
