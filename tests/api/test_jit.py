"""`jit`: signatures, specializations, captured tensors, trees in and out, and what it says about itself."""

# Traced functions are lambdas here, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

import tessera as ts
from tessera.diagnostics.codes import BroadcastError, GuardError, RankError, ShapeError, TracingError
from tessera.ir.base.tape import tape_text

F32 = np.float32


def zeros(*shape: int) -> Any:
    return np.zeros(shape, F32)


def test_one_trace_serves_all_sizes_of_a_free_dim() -> None:
    @ts.jit(backend="reference")
    def f(x: ts.Tensor["B", 4, ts.f32]) -> Any:
        return x * 2 + 1

    for batch in (1, 7, 64, 0):
        np.testing.assert_array_equal(f(np.ones((batch, 4), F32)), np.full((batch, 4), 3, F32))
    info = f.cache_info()
    assert (info.compiles, info.misses, info.hits, info.size) == (1, 1, 3, 1)


def test_sizes_of_unannotated_arguments_are_static() -> None:
    @ts.jit(backend="reference")
    def f(x: Any) -> Any:
        return x.sum() if x.shape[0] > 2 else x * 2

    assert f(np.ones(3, F32)).shape == ()
    assert f(np.ones(2, F32)).shape == (2,)
    assert f.cache_info().compiles == 2
    assert f.explain_recompile().splitlines() == [
        "`f` was specialized again because",
        "  `x.shape[0]` changed from 3 to 2",
        '    = help: annotate `x: ts.Tensor["B", ts.f32]` to serve all sizes with one compilation',
    ]


def test_dynamic_frees_all_dims() -> None:
    @ts.jit(dynamic=True, backend="reference")
    def f(x: Any, y: Any) -> Any:
        return x @ y

    for m, k, n in ((1, 2, 3), (4, 0, 5), (2, 1, 1)):
        assert f(zeros(m, k), zeros(k, n)).shape == (m, n)
    assert f.cache_info().compiles == 1
    with pytest.raises(GuardError, match="must be equal"):
        f(zeros(2, 3), zeros(4, 5))


def test_a_failed_guard_says_what_where_and_why() -> None:
    @ts.jit(backend="reference")
    def f(x: ts.Tensor["B", "S", ts.f32], y: ts.Tensor["C", ts.f32]) -> Any:
        return x + y

    f(zeros(2, 3), zeros(3))
    with pytest.raises(GuardError) as caught:
        f(zeros(2, 3), zeros(4))
    assert caught.value.message == "`S` is 3 and `C` is 4, but they must be equal"
    assert caught.value.notes == (
        "rule: `add` broadcasts `x.shape[1] = S` with `y.shape[0] = C`",
        "`C` is 4 from `y.shape[0]`",
        "`S` is 3 from `x.shape[1]`",
    )
    assert caught.value.span is not None
    assert caught.value.span.source_line.strip() == "return x + y"


def test_a_number_is_part_of_the_program_whatever_was_called_before() -> None:
    @ts.jit(backend="reference")
    def row(x: Any, i: Any) -> Any:
        return x[i]

    x = zeros(4, 3)
    for _ in range(2):
        row(x, np.array(1))
        with pytest.raises(ShapeError, match="index 9 is out of range"):
            row(x, 9)
        row(x, 2)
    assert row.cache_info().misses == 2


def test_a_size_that_is_no_multiple_is_told_the_nearest_that_are() -> None:
    @ts.jit(backend="reference")
    def rows(x: ts.Tensor["N", ts.f32]) -> Any:
        return x.reshape(4, -1)

    assert rows(np.ones(8, np.float32)).shape == (4, 2)
    for size, said in ((7, "pad it to 8, or cut it to 4"), (3, "pad it to 4\n")):
        with pytest.raises(GuardError) as caught:
            rows(np.ones(size, np.float32))
        assert caught.value.message == f"`N` is {size}, but it must be a multiple of 4"
        assert f"give `x.shape[0]` a multiple of 4: {said}" in f"{caught.value}\n"


def test_dtypes_and_static_values_are_their_own_specializations() -> None:
    @ts.jit(backend="reference")
    def f(x: ts.Tensor["N"], *, times: int = 2) -> Any:
        return x * times

    for dtype in (np.float32, np.float16, np.float64):
        assert np.asarray(f(np.ones(2, dtype))).dtype == dtype
    assert f.cache_info().compiles == 3
    f(np.ones(2, F32), times=3)
    assert "`times` changed from 2 to 3" in f.explain_recompile()
    assert f.cache_info().compiles == 4
    # Equal values of different types trace differently, so they are different keys.
    for other in (3.0, True):
        f(np.ones(2, F32), times=other)  # pyright: ignore[reportArgumentType]
    assert f.cache_info().compiles == 6


def test_a_declared_scalar_takes_numbers_without_a_new_specialization() -> None:
    @ts.jit(backend="reference")
    def f(x: ts.Tensor["N", ts.f32], rate: ts.Tensor[ts.f32]) -> Any:
        return x * rate

    assert [float(np.asarray(f(np.ones(1, F32), rate))[0]) for rate in (0.5, 2.0, 3)] == [0.5, 2.0, 3.0]
    assert f.cache_info().compiles == 1


def test_static_argnames_and_control_flow_in_python() -> None:
    @ts.jit(static_argnames="count", backend="reference")
    def f(x: ts.Tensor["N", ts.f32], count: int) -> Any:
        for step in range(count):
            x = x + step
        return x

    assert np.asarray(f(zeros(1), 4)).tolist() == [6.0]
    assert np.asarray(f(zeros(1), count=2)).tolist() == [1.0]


class Pair(NamedTuple):
    """A tree."""

    left: Any
    right: Any


@dataclass
class Weights:
    """A tree."""

    w: Any
    b: Any


def test_trees_go_in_and_out() -> None:
    @ts.jit(backend="reference")
    def f(params: dict[str, Any], xs: list[Any]) -> Any:
        layer = params["layer"]
        y = xs[0] @ layer.w + layer.b
        return {"out": Pair(y, [y.T, None]), "params": params, "count": len(xs)}

    weights = Weights(np.eye(3, dtype=F32), np.ones(3, F32))
    out = f({"layer": weights}, [np.ones((2, 3), F32)])
    assert set(out) == {"out", "params", "count"}
    assert out["count"] == 1
    assert isinstance(out["out"], Pair)
    assert out["out"].left.shape == (2, 3)
    assert out["out"].right[0].shape == (3, 2)
    assert out["out"].right[1] is None
    assert isinstance(out["params"]["layer"], Weights)
    np.testing.assert_array_equal(out["params"]["layer"].w, weights.w)
    assert f.trace({"layer": weights}, [zeros(2, 3)]).tape.names == [
        "params['layer'].w",
        "params['layer'].b",
        "xs[0]",
    ]


SCALE = np.full((2,), 3.0, F32)
HELD = {"deep": [np.full((2,), 5.0, F32)]}


def test_captured_tensors_are_inputs_read_at_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    local = np.full((2,), 7.0, F32)

    @ts.jit(backend="reference")
    def f(x: ts.Tensor["N", ts.f32]) -> Any:
        return x * SCALE + HELD["deep"][0] + local

    assert np.asarray(f(np.ones(2, F32))).tolist() == [15.0, 15.0]
    assert len(f.specializations[0].traced.lifted) == 3
    local[:] = 0.0  # in place
    assert np.asarray(f(np.ones(2, F32))).tolist() == [8.0, 8.0]
    monkeypatch.setitem(HELD, "deep", [np.full((2,), 1.0, F32)])  # another tensor under the same name
    assert np.asarray(f(np.ones(2, F32))).tolist() == [4.0, 4.0]
    assert f.cache_info().compiles == 1


def test_a_captured_tensor_of_a_shape_that_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    @ts.jit(backend="reference")
    def f(x: Any) -> Any:
        return x + HELD["deep"][0]

    f(zeros(2))
    monkeypatch.setitem(HELD, "deep", [zeros(3)])
    with pytest.raises(BroadcastError):
        f(zeros(2))


def test_methods_take_their_instance() -> None:
    class Model:
        """Holds a weight."""

        def __init__(self) -> None:
            self.w = np.full((2,), 2.0, F32)

        @ts.jit(backend="reference")
        def forward(self, x: Any) -> Any:
            return x * self.w

        __hash__ = object.__hash__

    model = Model()
    assert np.asarray(model.forward(np.ones(2, F32))).tolist() == [2.0, 2.0]
    model.w = np.full((2,), 4.0, F32)
    assert np.asarray(model.forward(np.ones(2, F32))).tolist() == [4.0, 4.0]


def test_a_jitted_function_inside_another_is_part_of_it() -> None:
    inner = ts.jit(lambda x: x * 2, backend="reference")

    @ts.jit(backend="reference")
    def outer(x: ts.Tensor["N", ts.f32]) -> Any:
        return inner(x) + 1

    assert np.asarray(outer(np.ones(2, F32))).tolist() == [3.0, 3.0]
    assert inner.cache_info().misses == 0


def test_an_argument_returned_as_it_is() -> None:
    f = ts.jit(lambda x, y: (y, x, x), backend="reference")
    out = f(np.ones(2, F32), zeros(3))
    assert [item.shape for item in out] == [(3,), (2,), (2,)]


def test_a_failed_trace_leaves_no_trace_open() -> None:
    f = ts.jit(lambda x: x @ x, backend="reference")
    with pytest.raises(ShapeError):
        f(zeros(2, 3))
    with pytest.raises(ShapeError):
        f(zeros(2, 3))
    assert f.cache_info().size == 0


def test_repr_shows_dims_dtypes_and_effects() -> None:
    @ts.jit(backend="reference")
    def f(x: ts.Tensor["B", 4, ts.f32], key: ts.Tensor[2, ts.u64]) -> ts.Tensor["B", 4, ts.f32]:
        return ts.random.dropout(x, key, 0.5)

    assert repr(f) == 'jit f(x: Tensor["B", 4, f32], key: Tensor[2, u64]) -> Tensor["B", 4, f32]'
    f(zeros(3, 4), np.zeros(2, np.uint64))
    assert repr(f).splitlines() == [
        'jit f(x: Tensor["B", 4, f32], key: Tensor[2, u64]) -> Tensor["B", 4, f32] effects {random}',
        "  (x: [B, 4] f32, key: [2] u64) -> ([B, 4] f32) random",
    ]
    assert f.effects == {"random"}


def test_a_declared_dim_may_equal_the_size_of_a_weight() -> None:
    w = np.ones((4, 3), F32)

    @ts.jit(backend="reference")
    def f(x: ts.Tensor["B", "D", ts.f32]) -> Any:
        return x @ w

    assert f(zeros(2, 4)).shape == (2, 3)
    assert tape_text(f.trace(zeros(2, 4)).tape).startswith("tape 1 (%0: [B, 4] f32, %1: [4, 3] f32)")
    with pytest.raises(GuardError, match="`D` is 5, but it must be 4"):
        f(zeros(2, 5))


def test_tapes_are_the_same_in_every_process_and_for_every_size() -> None:
    @ts.jit
    def f(x: ts.Tensor["B", ts.f32]) -> Any:
        return ts.ops.softmax(x * 0.1)

    assert (
        tape_text(f.trace(zeros(3)).tape)
        == tape_text(f.trace(zeros(5)).tape)
        == (
            "tape 1 (%0: [B] f32)\n"
            "%1: [] f32 = tgraph.full() {dtype=f32, shape=(), value=0x1.999999999999ap-4}\n"
            "%2: [B] f32 = tgraph.mul(%0, %1) {}\n"
            "%3: [B] f32 = tgraph.softmax(%2) {axis=0}\n"
            "return %3"
        )
    )


def test_an_unknown_backend_is_refused() -> None:
    f = ts.jit(lambda x: x, backend="abacus")
    with pytest.raises(ts.TesseraError, match="no backend `abacus`") as found:
        f(zeros(2))
    assert "cpu, cuda, reference" in found.value.render()


def test_collectives_are_typed_and_run_where_their_ranks_are() -> None:
    f = ts.jit(lambda x: ts.dist.all_reduce(ts.dist.all_gather(x, axis="dp"), axis="dp", op="sum"))
    with pytest.raises(TracingError, match="no such axis"):
        f(zeros(2))
    with ts.dist.mesh(dp=4):
        tape = f.trace(zeros(2)).tape
        assert str(tape.types[tape.outputs[0]]) == "[8] f32"
        assert tape.records[-1].attributes["axis"] == "dp"
        with pytest.raises(RankError, match=r"over 4 ranks cannot run: mesh\(dp=4\) has 4 ranks, and this process is"):
            f(zeros(2))
