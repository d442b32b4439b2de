"""`f.profile()`: kernels by the lines they are of, every byte of memory by its tensor, the roofline, and its files."""

# Traced functions are lambdas here, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
from __future__ import annotations

import csv
import ctypes
import dataclasses
import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import tessera as ts
from tessera import ops
from tessera.compiler.program_plan import KernelCall, match_launches, name_at
from tessera.diagnostics.codes import OverrideError, RuntimeArgumentError
from tessera.diagnostics.error import Span
from tessera.profile.charts import Axis
from tessera.profile.memory import UNUSED, MemoryTimeline
from tessera.profile.result import Profile
from tessera.profile.roofline import COLUMNS
from tessera.profile.trace import read_stacks, slices_in

F32 = np.float32


def block(x: Any, w: Any, v: Any) -> Any:
    hidden = ops.gelu(x @ w)
    return ops.softmax(hidden @ v) @ v.T


def loss(w: Any, v: Any, x: Any) -> Any:
    return (block(x, w, v) ** 2.0).sum()


@ts.jit
def step(w: Any, v: Any, x: Any) -> Any:
    value, (dw, dv) = ts.value_and_grad(loss, (0, 1))(w, v, x)
    return {"loss": value, "w": w - 0.1 * dw, "v": v - 0.1 * dv}


def arrays() -> list[Any]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape).astype(F32) for shape in ((48, 96), (96, 40), (64, 48))]


@pytest.fixture(scope="module")
def found() -> Profile:
    return step.profile(*arrays())


def test_every_launch_of_the_plan_ran_once_and_names_its_lines(found: Profile) -> None:
    assert [event.call for event in found.kernels] == list(found.plan.calls)
    starts = [event.start for event in found.kernels]
    assert starts == sorted(starts)
    assert starts[0] > 0
    assert found.kernels[-1].end <= found.duration
    assert sum(event.time for event in found.kernels) == found.kernel_time
    lines = {event.line for event in found.kernels}
    assert any(re.search(r"test_profile\.py:\d+:\d+$", line) for line in lines), lines
    assert any(line.endswith(", backward") for line in lines), lines
    texts = {source.text for event in found.kernels if event.call for source in event.call.sources}
    assert {"x @ w", "ops.gelu(x @ w)", "hidden @ v"} <= texts
    assert min(found.times) == found.duration


def planned_bytes(profile: Profile, function: Any) -> int:
    """The workspace that native code asks for: what the planner's numbers became."""
    (made,) = function.specializations
    ask = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(made.loaded.symbols["tessera_workspace"])
    sizes = list(profile.sizes.values())
    return ask((ctypes.c_int64 * max(1, len(sizes)))(*sizes))


def check_memory(memory: MemoryTimeline) -> None:
    """Every byte is attributed once at every step, and no two tensors share one."""
    for at in range(1, memory.steps + 1):
        end = 0
        for offset, size, _ in memory.attribute(at):
            assert offset == end
            assert size > 0
            end = offset + size
        assert end == memory.workspace
        used = sum(size for _, size, name in memory.attribute(at) if name != UNUSED)
        assert used == memory.use_at(at)


def test_the_peak_is_the_planners_and_every_byte_has_a_name(found: Profile) -> None:
    memory = found.memory
    assert memory.peak == memory.workspace == memory.high_water(memory.steps) == planned_bytes(found, step) > 0
    check_memory(memory)
    names = [one.name for one in memory.tensors]
    assert len(set(names)) == len(names)
    assert [one.name for one in memory.tensors if one.kind == "argument"] == ["w", "v", "x"]
    results = {one.name: one.shape for one in memory.tensors if one.kind == "result"}
    assert results == {"result['loss']": (), "result['w']": (48, 96), "result['v']": (96, 40)}
    hidden = next(one for one in memory.temporaries if one.name == "hidden")
    assert (hidden.shape, hidden.bytes, hidden.reserved) == ((64, 96), 64 * 96 * 4, 64 * 96 * 4)
    assert 0 <= hidden.start < hidden.end <= found.duration
    assert json.loads(memory.to_json())["peak"] == memory.peak


def test_memory_of_symbolic_sizes_is_that_of_the_call() -> None:
    @ts.jit
    def symbolic(x: ts.Tensor["B", "K", ts.f32]) -> Any:
        centered = x - x.mean(axis=0)
        return ops.softmax(centered, axis=0).sum(axis=1)

    for batch in (3, 50):
        profile = symbolic.profile(np.ones((batch, 33), F32))
        assert profile.sizes == {"B": batch, "K": 33}
        assert profile.memory.peak == profile.memory.workspace == planned_bytes(profile, symbolic) > 0
        check_memory(profile.memory)
    assert symbolic.cache_info().misses == 1


def test_the_trace_has_one_slice_for_each_kernel_with_the_source_of_its_ops(found: Profile) -> None:
    trace = json.loads(json.dumps(found.trace, allow_nan=False))
    slices = slices_in(trace)
    assert [one["name"] for one in slices] == [event.name for event in found.kernels]
    for one, event in zip(slices, found.kernels, strict=True):
        assert one["ts"] * 1000 == pytest.approx(event.start)
        assert one["dur"] * 1000 == pytest.approx(event.time)
        assert one["args"]["line"] == event.line
        assert event.call is not None
        assert len(one["args"]["ops"]) == len(event.call.sources) > 0
    (call,) = slices_in(trace, "call")
    assert call["dur"] * 1000 == pytest.approx(found.duration)
    threads = {one["tid"]: one["args"]["name"] for one in trace["traceEvents"] if one["name"] == "thread_name"}
    assert all(threads[one["tid"]].startswith("kernels, thread ") for one in slices)
    used = [one["args"]["bytes in use"] for one in trace["traceEvents"] if one["ph"] == "C"]
    assert min(used) == 0 == used[-1]
    assert 0 < max(used) <= found.memory.workspace


def test_the_roofline_adds_up_and_is_a_table_with_hints(found: Profile) -> None:
    rows = list(csv.DictReader(io.StringIO(found.roofline_csv)))
    assert tuple(rows[0]) == COLUMNS
    assert sum(int(row["launches"]) for row in rows) == len([one for one in found.plan.calls if one.part == 0])
    assert sum(int(row["nanoseconds"]) for row in rows) == pytest.approx(found.kernel_time, abs=len(rows))
    assert all(row["hint"] and row["bound_by"] in ("memory", "compute") for row in rows)
    (matmul,) = [row for row in found.roofline if "x @ w" in str([one.text for one in sources_of(found, row.kernel)])][
        :1
    ]
    assert matmul.flops >= 2 * 64 * 48 * 96
    assert matmul.share == pytest.approx(matmul.bound / matmul.time)
    assert [row.time for row in found.roofline] == sorted((row.time for row in found.roofline), reverse=True)


def sources_of(profile: Profile, kernel: str) -> tuple[Any, ...]:
    call = next(event.call for event in profile.kernels if event.call is not None and event.name in kernel)
    return call.sources


def test_stacks_hold_all_of_the_time(found: Profile) -> None:
    root = read_stacks(found.stacks)
    (whole,) = root.children.values()
    assert whole.time == found.duration
    assert {"forward", "backward", "host (dispatch and gaps)"} == set(whole.children)
    assert found.flame_graph.startswith("<svg")
    assert found.flame_graph.count("<g>") > 8


def test_printed_it_is_a_table_of_the_longest_kernels(found: Profile) -> None:
    text = str(found)
    assert "of bound" in text
    assert "workspace at its fullest" in text
    assert "hidden" in text
    assert repr(found) == text


def test_saved_it_is_a_folder_of_files(found: Profile, tmp_path: Path) -> None:
    report = found.save(tmp_path / "a" / "b")
    names = ["flame.svg", "memory.json", "report.html", "roofline.csv", "stacks.txt", "trace.json"]
    assert sorted(file.name for file in report.parent.iterdir()) == names
    assert json.loads((report.parent / "trace.json").read_text())["otherData"]["function"] == "step"


def test_loops_and_branches_are_matched_by_what_ran() -> None:
    @ts.jit
    def looped(x: Any, w: Any) -> Any:
        def body(_: Any, carried: Any) -> Any:
            return ops.tanh(carried @ w)

        y = ts.fori_loop(0, 5, body, x)
        return ts.cond(y.sum() > 1e9, lambda y: ops.exp(y @ w), lambda y: ops.softmax(y @ w.T), y)

    x, w = np.ones((8, 8), F32), np.full((8, 8), 0.1, F32)
    profile = looped.profile(x, w)
    calls = [event.call for event in profile.kernels]
    assert None not in calls
    counts: dict[int, int] = {}
    for call in calls:
        assert call is not None
        counts[call.step] = counts.get(call.step, 0) + 1
    assert 5 in counts.values()
    texts = {source.text for call in calls if call is not None for source in call.sources}
    assert "y @ w.T" in texts
    assert "y @ w" not in texts


def test_rows_name_the_first_argument_that_a_kernel_is_given() -> None:
    def layer(params: Any, x: Any) -> Any:
        return ops.softmax(x @ params["w"]) @ params["v"]

    @ts.jit
    def outer(params: Any, x: Any) -> Any:
        for one in params:
            x = layer(one, x)
        return x

    params = [{"w": np.ones((8, 16), F32), "v": np.ones((16, 8), F32)} for _ in range(2)]
    profile = outer.profile(params, np.ones((4, 8), F32))
    found = {row.argument: row.launches for row in profile.roofline}
    assert found == {"": 2, "x and params[*]['w']": 2, "params[*]['v']": 2}
    arguments = [event.call.arguments for event in profile.kernels if event.call is not None]
    assert ("params[1]['v']",) in arguments


@pytest.mark.parametrize(
    ("line", "text", "name"),
    [
        ("    hidden = x @ w  # wide", "x @ w", "hidden"),
        ("    y: Any = x @ w", "x @ w", "y"),
        ("    y = x @ w + b", "x @ w", "x @ w"),
        ("    return ts.ops.gelu(x)", "ts.ops.gelu(x)", "gelu(x)"),
        ("    loss = model(x)", "model(x)", "matmul with up.weight"),
        ("    a = b", "", "matmul"),
    ],
)
def test_a_tensor_has_the_name_that_the_source_gives_it(line: str, text: str, name: str, tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text(line + "\n")
    column = line.index(text) + 1
    span = Span(str(file), 1, column, 1, column + len(text))
    assert name_at(span, "matmul", ["up.weight"]) == name
    assert name_at(span.with_role("backward"), "matmul", ["up.weight"]) == f"{name} (backward)"


def test_a_kernel_of_another_program_is_no_launch_of_the_plan(found: Profile) -> None:
    names = [event.name for event in found.kernels]
    calls: list[KernelCall | None] = match_launches(found.plan, ["another", *names[:2], "another", *names[2:]], {})
    assert [at for at, call in enumerate(calls) if call is None] == [0, 3]
    variant = match_launches(found.plan, [f"{names[0]}__wide", *names[1:]], {})
    assert variant[0] == found.plan.calls[0]


def test_donated_arguments_stay_usable_and_effects_happen_once() -> None:
    printed: list[float] = []

    @ts.jit(donate="state")
    def update(state: Any, x: Any) -> Any:
        return {"a": state["a"] + x}

    state = {"a": ts.ones((4, 4))}
    assert len(update.profile(state, ts.ones((4, 4))).times) > 1
    assert update(state, ts.ones((4, 4)))["a"].tolist() == [[2.0] * 4] * 4

    @ts.jit
    def speaks(x: Any) -> Any:
        ts.io_callback(lambda value: printed.append(value.item()), x.sum())
        return x * 2.0

    assert len(speaks.profile(ts.ones((4,))).times) == 1
    assert printed == [4.0]


def test_calls_that_nobody_profiles_take_the_path_they_took() -> None:
    @ts.jit
    def f(x: Any) -> Any:
        return ops.exp(x @ x)

    x = ts.ones((8, 8))
    f(x)
    before = f._fast  # pyright: ignore[reportPrivateUsage]
    f.profile(x)
    assert f._fast is before  # pyright: ignore[reportPrivateUsage]
    from tessera.runtime.tensor import native

    assert not ctypes.c_void_p.from_address(native().code.address("tessera_timeline")).value


def test_kernels_have_profiles_and_what_has_none_says_so(found: Profile) -> None:
    from examples.softmax import by_hand

    profile = by_hand.profile(np.ones((4, 16), F32))
    assert len(profile.kernels) == 1
    with pytest.raises(OverrideError, match="interprets programs"):
        ts.jit(lambda x: x + 1.0, backend="reference").profile(ts.ones((2,)))
    with pytest.raises(RuntimeArgumentError, match="no kernel of `step` is called `nothing`"):
        found.lowering("nothing")


def test_axes_have_round_numbers() -> None:
    assert Axis(0, 10, 0, 100).ticks() == [0, 2, 4, 6, 8, 10]
    assert Axis(0.02, 1500, 0, 100, is_log=True).ticks() == [0.1, 1, 10, 100, 1000]
    assert Axis(1, 100, 0, 100, is_log=True).at(10) == pytest.approx(50)


def test_a_profile_says_whose_rates_bound_it(found: Profile) -> None:
    assert "; this one was not measured" in str(found)
    own = dataclasses.replace(found, is_machine_measured=True)
    assert "bounds by rates as measured on this machine\n" in str(own)


def test_lines_and_hints_are_below_a_narrow_table(found: Profile) -> None:
    wide, narrow = ("\n".join(_lines(found, width)) for width in (132, 80))
    assert "hint" in wide
    assert "hint" not in narrow
    table = narrow[narrow.index("kernel  ") :]
    for number, row in enumerate(found.roofline, 1):
        (line,) = (one for one in table.splitlines() if one.startswith(f"{number}. test_profile"))
        assert re.match(rf"{number}\. test_profile\.py:\d+", line), line
        assert row.hint.split()[0] in line


def _lines(profile: Profile, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    return ["".join(part.text for part in line).rstrip() for line in console.render_lines(profile)]
