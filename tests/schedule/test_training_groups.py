"""What groups of a training step in mixed precision read and write: no wide copies, no partial weight gradients."""

# Traced functions have no types to give here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false
from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np

import tessera as ts
from tessera.compiler.compile import schedule_tape
from tessera.compiler.options import Options
from tessera.frontend.pytree import flatten
from tessera.ir.base.op import plain
from tessera.ir.base.text import print_module
from tessera.ir.graph.passes.rematerialize import KEPT, REMATERIALIZED
from tessera.ir.schedule.plan import programs_in

OPTIONS = Options.of(backend="cuda", features=("sm_90a",))
RNG = np.random.default_rng(5)


def drawn(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def schedule(function: Any, *arrays: Any, policy: Any = None) -> tuple[str, dict[str, list[str]]]:
    """The host program of a function on a GPU, and what it says of residuals."""
    jitted: Any = ts.jit(function) if policy is None else ts.jit(function, policy=policy)
    module = schedule_tape(jitted.trace(*arrays).tape, OPTIONS)
    (program,) = programs_in(module)
    found = {name: program.attributes.get(name) for name in (KEPT, REMATERIALIZED)}
    residuals = {name: list(plain(value)) for name, value in found.items() if value is not None}
    text = next(part for part in re.split(r"\n(?=  \S)", print_module(module)) if "tsched.module" in part)
    return text, residuals


def kernels_in(text: str) -> list[str]:
    return re.findall(r"tsched\.call @(\w+)", text)


def flat(made: tuple[Any, list[Any]]) -> list[Any]:
    return [made[0], *made[1]]


def leaves(tree: Any) -> list[Any]:
    return [np.asarray(one) for one in flatten(tree)[0]]


def test_weights_have_one_gradient_for_all_batches() -> None:
    x, w = drawn(2, 5, 8), drawn(8, 4)
    graph = ts.jit(ts.grad(lambda w, x: ((x @ w) * (x @ w)).sum())).lower(w, x).graph
    assert "tensor<[8, 10], f32>, !tgraph.tensor<[10, 4], f32>" in graph
    assert "[2, 8, 4]" not in graph


def test_the_gradient_of_weights_is_rounded_once() -> None:
    """As if all rows were one batch."""
    x, w, given = drawn(3, 40, 16), drawn(16, 8), drawn(3, 40, 8)

    def pull(x: Any, w: Any, given: Any) -> Any:
        out, back = ts.vjp(lambda w: x @ w, w)
        return back(given.cast(out.dtype))[0]

    run = ts.jit(pull, policy=ts.Training())
    joined = run(x.reshape(1, 120, 16), w, given.reshape(1, 120, 8))
    assert np.asarray(run(x, w, given)).tobytes() == np.asarray(joined).tobytes()


def test_cross_entropy_and_its_gradient_are_one_pass_over_the_logits() -> None:
    logits, labels = drawn(4, 8, 512).astype(ml_dtypes.bfloat16), RNG.integers(0, 512, (4, 8))

    def loss(x: Any, labels: Any) -> Any:
        return ts.ops.cross_entropy(x.cast(ts.f32), labels)

    text, _ = schedule(ts.value_and_grad(loss), logits, labels)
    assert len(re.findall(r"tsched\.call @\w+\(.*%x\b", text)) == 1
    made = re.findall(r"tsched\.alloc .*<\[4, 8, 512\], (\w+)>", text)
    assert made == ["bf16"]  # the gradient, and nothing else


def test_narrow_values_are_kept_and_not_their_wide_copies() -> None:
    def loss(w: Any, x: Any) -> Any:
        hidden = ts.ops.layernorm(x @ w[0], w[1], w[2])
        return (hidden @ w[0]).cast(ts.f32).sum()

    x, w = drawn(4, 64, 128), (drawn(128, 128), drawn(128), drawn(128))
    _, residuals = schedule(ts.grad(loss), w, x, policy=ts.Training())
    wide = [line for line in residuals[KEPT] if line.split()[0] == "cast"]
    assert not wide, wide


def test_weights_are_rounded_once_also_where_they_are_transposed() -> None:
    def loss(w: Any, x: Any) -> Any:
        return ts.ops.square((x @ w.T).cast(ts.f32)).sum()

    _, residuals = schedule(ts.grad(loss, (0, 1)), drawn(96, 128), drawn(4, 64, 128), policy=ts.Training())
    again = [line for line in residuals.get(REMATERIALIZED, ()) if "[96, 128] bf16" in line]
    assert not again, again


def test_the_derivative_of_an_activation_is_computed_in_the_epilogue() -> None:
    def loss(w: Any, x: Any) -> Any:
        hidden = ts.ops.gelu(x @ w[0] + w[2], approximate="tanh")
        return ts.ops.square((hidden @ w[1]).cast(ts.f32)).sum()

    w = (drawn(128, 256), drawn(256, 128), drawn(256))
    text, _ = schedule(ts.grad(loss), w, drawn(4, 64, 128), policy=ts.Training())
    names = [name for name in kernels_in(text) if "sigmoid" in name]
    assert names
    assert all(name.startswith("matmul") for name in names), names


def norm_step(dtype: Any) -> tuple[Any, list[Any]]:
    """The gradients of a norm between two matmuls, by all its operands."""

    def loss(w: Any, x: Any) -> Any:
        rows = ts.ops.layernorm(x @ w[0], w[1], w[2])
        return ts.ops.square((rows @ w[0]).cast(ts.f32)).sum()

    return ts.grad(loss, argnums=(0, 1)), [(drawn(128, 128), drawn(128), drawn(128)), drawn(4, 64, 128).astype(dtype)]


def test_rows_and_columns_of_a_norm_compute_what_both_need() -> None:
    text, _ = schedule(*flat(norm_step(np.float32)), policy=ts.Training())
    # Between the matmuls: sums along columns, and rows in one kernel; nothing of f32 as large as a batch is written.
    wide = re.findall(r"tsched\.alloc .*buffer<\[4, 64, 128\], f32>", text)
    assert len(wide) <= 1, "the gradient of the argument"
    columns = [name for name in kernels_in(text) if name.endswith("_runs0") or "cast_sum_sub_mul" in name]
    rows = [name for name in kernels_in(text) if name.startswith("cast_sub_mul_neg_sum")]
    assert columns
    assert len(rows) == 1


def test_what_is_computed_twice_has_the_same_bits() -> None:
    function, arrays = norm_step(np.float32)
    fused, apart = (ts.jit(function, policy=ts.Training(), fusion=one) for one in (True, False))
    for one, other in zip(leaves(fused(*arrays)), leaves(apart(*arrays)), strict=True):
        assert one.tobytes() == other.tobytes()


def test_an_update_stays_out_of_the_epilogue_of_a_gpu() -> None:
    def step(w: Any, m: Any, v: Any, x: Any) -> Any:
        gradient = ts.grad(lambda w: ts.ops.square((x @ w).cast(ts.f32)).sum())(w)
        m, v = m * 0.9 + gradient * 0.1, v * 0.9 + gradient * gradient * 0.1
        return w - m / (ts.ops.sqrt(v) + 1e-8), m, v

    w = drawn(64, 128)
    text, _ = schedule(step, w, w, w, drawn(256, 64), policy=ts.Training())
    assert [name for name in kernels_in(text) if "sqrt" in name]
    assert not [name for name in kernels_in(text) if name.startswith("matmul") and "sqrt" in name]


def test_a_promise_is_kept_beside_many_results() -> None:
    def step(x: Any, w: Any, b: Any, m: Any, v: Any) -> Any:
        y = ts.ops.epilogue.chain([ts.ops.epilogue.bias(b), ts.ops.epilogue.act("relu")])(x @ w)
        m, v = m * 0.9 + y, v * 0.9 + y * y
        return y, m, v, y - m

    arrays = [one.astype(ml_dtypes.bfloat16) for one in (drawn(256, 64), drawn(64, 128), drawn(128))]
    text, _ = schedule(step, *arrays, *[drawn(256, 128).astype(ml_dtypes.bfloat16)] * 2)
    first, *others = kernels_in(text)
    assert first.startswith("matmul_add_relu_fused")
    assert others


def test_what_a_group_rematerializes_for_itself_is_computed_once() -> None:
    """The backward pass of softmax computes its exponentials again, and is one group with the forward pass."""

    def pull(x: Any, g: Any) -> Any:
        return ts.vjp(ts.ops.softmax, x)[1](g)

    rows = np.broadcast_to(np.zeros((), ml_dtypes.bfloat16), (64, 4096))
    (name,) = kernels_in(schedule(pull, rows, rows)[0])
    module = schedule_tape(ts.jit(pull).trace(rows, rows).tape, OPTIONS)
    kernel = print_module(module).partition(f"ttile.kernel @{name}")[2]
    # Four tiles of a leaf.
    assert kernel.count('fn = "exp"') == 4


def test_equal_results_of_a_group_are_stored_each() -> None:
    x = drawn(3, 5)
    first, second = leaves(ts.jit(lambda x: (x.sum(axis=1), x.sum(axis=1)))(x))
    assert first.tobytes() == second.tobytes()
