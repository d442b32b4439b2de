"""From a tape to code that runs: results, one compile for all sizes, guards, overrides, and what the report says."""

# Functions of traced values are written as lambdas, whose parameters cannot be annotated.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tessera import ops
from tessera.api.control import fori_loop
from tessera.backends.reference.compile import run_tape
from tessera.compiler.compile import compile_tape, lower, lower_tape
from tessera.compiler.options import Options
from tessera.diagnostics.codes import GuardError, OverrideError, ScheduleError
from tessera.ir.base import dispatch
from tessera.ir.base.tape import Guard, Tape
from tessera.ir.target.architectures import architectures, machine_of
from tessera.runtime.executable import Executable
from tessera.runtime.launch import LoadedExecutable
from tessera.types.dim import Dim
from tests.schedule.programs import assert_close, inputs_for, tensor, trace
from tests.schedule.test_meaning import FLOWS


def outputs_of(loaded: LoadedExecutable, arrays: list[Any]) -> list[Any]:
    made = loaded(*arrays)
    return [np.asarray(one) for one in (made if isinstance(made, tuple) else (made,))]  # pyright: ignore[reportUnknownVariableType]


def spine() -> Tape:
    def program(x: Any, w: Any, b: Any) -> Any:
        return ops.softmax(ops.gelu(x @ w + b))

    return trace(program, tensor("M K"), tensor("K N"), tensor("N"))


def test_one_executable_serves_all_sizes() -> None:
    tape = spine()
    loaded = LoadedExecutable(compile_tape(tape, Options()))
    for m, k, n in ((5, 7, 11), (64, 128, 96), (1, 1, 1), (0, 3, 4), (33, 100, 67), (1, 512, 130)):
        arrays = inputs_for(tape, {"M": m, "K": k, "N": n})
        assert_close(outputs_of(loaded, arrays), run_tape(tape, arrays))


def test_an_executable_reads_back_and_still_runs() -> None:
    tape = spine()
    loaded = LoadedExecutable(Executable.from_bytes(compile_tape(tape, Options()).to_bytes()))
    arrays = inputs_for(tape, {"M": 9, "K": 17, "N": 33})
    assert_close(outputs_of(loaded, arrays), run_tape(tape, arrays))


def test_fusion_changes_no_result() -> None:
    tape = spine()
    arrays = inputs_for(tape, {"M": 9, "K": 17, "N": 33})
    fused, alone = (
        outputs_of(LoadedExecutable(compile_tape(tape, Options(fusion=on))), arrays) for on in (True, False)
    )
    np.testing.assert_array_equal(fused[0], alone[0])


@pytest.mark.parametrize("function", FLOWS, ids=lambda function: function.__name__[1:])
def test_control_flow_runs_natively(function: Any) -> None:
    tape = trace(function, tensor("A B"))
    loaded = LoadedExecutable(compile_tape(tape, Options()))
    for a, b in ((3, 5), (1, 1), (2, 33)):
        arrays = inputs_for(tape, {"A": a, "B": b})
        assert_close(outputs_of(loaded, arrays), run_tape(tape, arrays))


def test_results_that_are_inputs_views_and_one_value_twice() -> None:
    def program(x: Any) -> Any:
        y = x + 1.0
        return x, x.reshape(-1), ops.transpose(x), y, y.reshape(-1), y

    tape = trace(program, tensor("A B"))
    arrays = inputs_for(tape, {"A": 4, "B": 6})
    assert_close(outputs_of(LoadedExecutable(compile_tape(tape, Options())), arrays), run_tape(tape, arrays))


def test_sizes_may_be_called_as_coordinates_are() -> None:
    def program(x: Any, y: Any) -> Any:
        return fori_loop(0, 2, lambda i, s: s + ops.softmax(ops.transpose(x) @ y), ops.transpose(x) @ y)

    tape = trace(program, tensor("d1 d0"), tensor("d1 m0"))
    loaded = LoadedExecutable(compile_tape(tape, Options()))
    arrays = inputs_for(tape, {"d0": 3, "d1": 5, "m0": 7})
    assert_close(outputs_of(loaded, arrays), run_tape(tape, arrays))


def test_a_broken_guard_is_named() -> None:
    tape = trace(lambda x, y: x.reshape(-1) + y, tensor("A B"), tensor("C"))
    if not tape.guards:
        tape.guards.append(Guard(Dim.symbol("C"), Dim.of("A*B"), "as many elements"))
    loaded = LoadedExecutable(compile_tape(tape, Options()))
    x, y = np.ones((2, 3), np.float32), np.ones(6, np.float32)
    np.testing.assert_array_equal(outputs_of(loaded, [x, y])[0], 2)
    with pytest.raises(GuardError, match="must agree"):
        loaded(x, np.ones(7, np.float32))


def test_choices_can_be_fixed_and_are_reported_with_their_source() -> None:
    options = Options.of(overrides={"contraction.block": (32, 64, 64), "fusion.row": False})
    report = compile_tape(spine(), options).metadata["report"]
    assert any("contraction.block" in line and "(32, 64, 64) (override)" in line for line in report["choices"])
    assert any("fusion.row" in line and "False (override)" in line for line in report["choices"])
    assert report["flops"] == "2*K*M*N + 29*M*N + 6*M + 2"
    with pytest.raises(OverrideError, match=r"`tile\.q` is not a choice of this program"):
        compile_tape(spine(), Options.of(overrides={"tile.q": 1}))
    with pytest.raises(OverrideError, match="cannot be"):
        compile_tape(spine(), Options.of(overrides={"contraction.block": (1, 2, 3)}))


def test_every_level_has_a_text() -> None:
    texts = lower_tape(spine(), Options())
    assert "tgraph.matmul" in texts["graph"]
    assert "tsched.fuse" in texts["schedule"]
    assert "tsched.call" in texts["schedule"]
    assert "ttile.dot" in texts["tile"]
    assert "ttarget.gemm" in texts["target"]
    assert "define i64 @tessera_entry" in texts["llvm"]


def test_temporaries_share_memory() -> None:
    def program(x: Any) -> Any:
        for _ in range(6):
            x = ops.softmax(x, axis=0)
            x = ops.softmax(x, axis=1)
        return x

    lowering = lower(trace(program, tensor("A B")), Options())
    assert str(lowering.program.value("workspace")) == "128*((4*A*B + 63) floordiv 64)"


def test_a_collective_of_nobody_knows_how_many_ranks_is_refused() -> None:
    def program(x: Any) -> Any:
        return dispatch.apply("all_reduce", [x], {"axis": "dp", "size": (Dim.symbol("R"),)})

    with pytest.raises(ScheduleError, match="has R ranks, a number that is not known while compiling"):
        compile_tape(trace(program, tensor("A B")), Options())


def test_a_backend_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(OverrideError, match=r"there is no backend `abacus`") as found:
        compile_tape(spine(), Options.of(backend="abacus"))
    assert "cpu, cuda" in str(found.value)


@pytest.mark.parametrize("features", [("x86-64-v3",), ("x86-64-v3", "avx"), ("x86-64",)])
def test_a_level_stands_for_its_features(features: tuple[str, ...]) -> None:
    """One feature less would be code for the level below: FMAs in software."""
    made = Options.of(features=features).features
    assert made is not None
    (level,) = (name for name in features if name.startswith("x86"))
    assert machine_of(frozenset(made), architectures()["x86_64"]).name == level


def test_names_of_features_are_no_text() -> None:
    with pytest.raises(OverrideError, match="`features` are names") as caught:
        Options.of(features="x86-64-v3")
    assert 'features=("x86-64-v3",)' in str(caught.value)
