"""What is fused with what: the groups of programs whose best form is known."""

# Functions of traced values are written as lambdas, whose parameters cannot be annotated.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tessera import ops
from tessera.ir.base.compilation import StaticChooser
from tessera.ir.base.verify import symbol_table
from tessera.ir.schedule.kinds import KernelKind, all_kinds, kernel_kinds
from tessera.ir.schedule.plan import fusions_in
from tessera.types.dtype import bf16, f32
from tessera.types.shape import TensorType
from tests.schedule.programs import run_schedule, simplify, tensor, trace


def groups(function: Callable[..., Any], *types: TensorType, **options: Any) -> list[str]:
    """The kind of each group, and how many results it has."""
    module = run_schedule(simplify(trace(function, *types)), steps=1, **options)
    return [f"{fuse.value('kind')} {len(fuse.results)}" for fuse in fusions_in(module)]


def test_a_kind_of_kernels_that_emits_none_fails_where_it_is_made() -> None:
    class Silent(KernelKind):
        name = "silent"

    with pytest.raises(TypeError, match=r"Silent.*emit"):
        Silent()  # pyright: ignore[reportAbstractUsage]
    assert {*all_kinds()} - {*kernel_kinds()} == {"flow"}


X, Y, V = tensor("M N"), tensor("M N"), tensor("N")


def test_bias_and_gelu_join_their_contraction_and_softmax_is_one_row_group() -> None:
    def program(x: Any, w: Any, b: Any) -> Any:
        return ops.softmax(ops.gelu(x @ w + b))

    assert groups(program, tensor("M 64"), tensor("64 N"), V) == ["contraction 1", "row 1"]


@pytest.mark.parametrize("axis", [0, 1])
def test_softmax_is_one_group_along_any_axis(axis: int) -> None:
    assert groups(lambda x: ops.softmax(x, axis=axis), X) == ["row 1"]


def test_normalizations_are_one_group_each() -> None:
    assert groups(lambda x, w, b: ops.layernorm(x, w, b), tensor("B S D"), tensor("D"), tensor("D")) == ["row 1"]
    assert groups(lambda x, w: ops.rmsnorm(x, w), tensor("B S D"), tensor("D")) == ["row 1"]
    assert groups(lambda x, w: ops.rmsnorm(x, w), tensor("B S D", "bf16"), tensor("D", "bf16")) == ["row 1"]
    assert groups(lambda x: ops.log_softmax(x), X) == ["row 1"]
    assert groups(lambda x: ops.var(x, axis=1), X) == ["row 1"]


def test_a_residual_and_its_norm_are_one_group_with_two_results() -> None:
    def program(x: Any, y: Any, w: Any) -> Any:
        h = x + y
        return ops.rmsnorm(h, w), h

    assert groups(program, X, Y, V) == ["row 2"]


def test_a_norm_stays_out_of_the_matmul_before_it() -> None:
    def program(x: Any, w: Any, r: Any, g: Any) -> Any:
        h = r + x @ w
        return h, ops.rmsnorm(h, g)

    assert groups(program, tensor("M 64"), tensor("64 N"), X, V) == ["contraction 1", "row 1"]


def test_a_gated_unit_is_two_contractions() -> None:
    def program(x: Any, w: Any, u: Any) -> Any:
        return ops.silu(x @ w) * (x @ u)

    assert groups(program, tensor("M 64"), tensor("64 N"), tensor("64 N")) == [
        "contraction 1",
        "contraction 1",
    ]


def test_chains_and_their_branches_are_one_map() -> None:
    def program(x: Any, y: Any, v: Any) -> Any:
        a = ops.tanh(x) + v
        return ops.exp(a) * ops.sin(y) - ops.cos(a)

    assert groups(program, X, Y, V) == ["map 1"]


def test_masks_made_from_coordinates_cost_no_group() -> None:
    assert groups(lambda x: ops.softmax(ops.where(ops.tril(x) == x, x, -1e9)), X) == ["row 1"]


def test_conversions_go_with_the_contraction() -> None:
    def program(x: Any, w: Any) -> Any:
        return (x.cast(f32) @ w.cast(f32)).cast(bf16)

    assert groups(program, tensor("M 64", "bf16"), tensor("64 N", "bf16")) == ["contraction 1"]


def test_views_are_read_through() -> None:
    def program(x: Any, w: Any) -> Any:
        return (ops.transpose(x) @ ops.transpose(w)).reshape(-1)

    assert groups(program, tensor("64 M"), tensor("N 64")) == ["contraction 1"]


def test_cheap_values_of_other_shapes_are_computed_where_they_are_read() -> None:
    assert groups(lambda x, v: x * (v * 2.0 + 1.0), X, V) == ["map 1"]
    assert groups(lambda x, v: x * ops.exp(v), X, V) == ["map 1", "map 1"]
    assert groups(lambda x: ops.transpose(ops.exp(x)) + 1.0, X) == ["map 1"]


def test_what_is_gathered_from_is_in_memory() -> None:
    def program(x: Any, i: Any) -> Any:
        return ops.take(ops.exp(x), i, axis=0) * 2.0

    # What makes an index legal is a group of its own, as each is used for a whole row.
    assert groups(program, X, tensor("K", "i64")) == ["map 1", "map 1", "map 1"]


def test_a_reduction_of_everything_takes_only_what_is_its_own() -> None:
    assert groups(lambda x, y: ops.mean(ops.square(x - y)), X, Y) == ["row 1"]
    assert groups(lambda x: ops.softmax(x), tensor("N")) == ["row 1"]

    def program(x: Any) -> Any:
        y = ops.gelu(x)
        return y, ops.sum(y)

    # One program reduces all of it, and would compute all of it in one thread.
    assert groups(program, X) == ["map 1", "row 1"]


def test_heads_are_read_without_a_copy() -> None:
    def program(x: Any, q: Any, k: Any, v: Any) -> Any:
        def heads(t: Any) -> Any:
            return ops.transpose(t.reshape(t.shape[0], t.shape[1], 2, 8), (0, 2, 1, 3))

        return ops.attention(heads(x @ q), heads(x @ k), heads(x @ v))

    types = tensor("B S 16"), *(tensor("16 16") for _ in range(3))
    assert groups(program, *types) == ["contraction 1"] * 3 + ["library 1"]
    # Keys that are contiguous in another dim are copied: strided rows would be read slowly.
    transposed = groups(
        lambda q, k: ops.attention(q, ops.transpose(k, (0, 1, 3, 2)), q), tensor("B 2 S 8"), tensor("B 2 8 S")
    )
    assert transposed == ["map 1", "library 1"]


def test_a_dim_of_one_more_or_less_is_no_copy() -> None:
    """The same memory in another shape, wherever the dim stands: what makes it writes it once."""

    def program(q: Any) -> Any:
        out = ops.attention(q, q, q)
        return out.reshape(1, *out.shape), out.reshape(*out.shape[:2], 1, *out.shape[2:])

    assert groups(program, tensor("B 2 S 8")) == ["library 1"]


def test_fusion_can_be_switched_off_as_a_whole_and_for_a_kind() -> None:
    def program(x: Any, w: Any, b: Any) -> Any:
        return ops.relu(x @ w + b)

    types = tensor("M 64"), tensor("64 N"), V
    assert groups(program, *types, fusion=False) == ["contraction 1", "map 1", "map 1"]
    chooser = StaticChooser({"fusion.contraction": False})
    assert groups(program, *types, chooser=chooser) == ["contraction 1", "map 1"]
    assert {choice.source for key, choice in chooser.asked.items() if "contraction" in key} == {"override"}


def test_every_group_says_what_it_costs() -> None:
    module = run_schedule(simplify(trace(lambda x, w: ops.relu(x @ w), tensor("M 64"), tensor("64 N"))), steps=1)
    (fuse,) = fusions_in(module)
    assert str(fuse.value("flops")) == "129*M*N"
    assert str(fuse.value("bytes")) == "4*M*N + 256*M + 256*N"


def test_equal_layers_share_their_kernels() -> None:
    def program(x: Any, *weights: Any) -> Any:
        for first, second in zip(weights[::2], weights[1::2], strict=True):
            x = x + ops.gelu(ops.rmsnorm(x, first) @ second)
        return x

    types = [tensor("B S 16"), *(tensor(dims) for _ in range(6) for dims in ("16", "16 16"))]
    module = run_schedule(simplify(trace(program, *types)), steps=3)
    names = [fuse.value("body") for fuse in fusions_in(module)]
    assert len(names) == 12
    assert len(set(names)) == 2
    bodies = [op for op in symbol_table(module).values() if op.name == "tgraph.func"]
    assert len(bodies) == 2
