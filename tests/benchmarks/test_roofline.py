"""The roofline audit: rates and bounds, its grid of cases, rows of kernels, and what `explain` says of shares."""

from __future__ import annotations

import json
import shutil
from argparse import Namespace
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from benchmarks import gpu_rates, roofline
from benchmarks import rates as cpu_rates
from benchmarks import roofline_causes as causes
from benchmarks.gpu_record import RESULTS
from benchmarks.roofline_cases import TARGETS, USUAL, Case, cases, cost_of, public, sizes_for
from tessera.compiler.compile import compile_tape
from tessera.ir.graph.ops.attention import causal_mask
from tessera.ir.graph.samples import sample_dtype
from tessera.runtime.devices.cuda.assembler import assemble, assembler
from tessera.tuner import device_probe
from tessera.types.dtype import BY_NAME
from tessera.types.rates import TABLE, Rates, Work, bound, describe_share, limits, predict, rate_at, read_table, work_in
from tests.numerics.families import forms_of

MACHINE = Rates(
    units=4,
    curve=((1 << 10, 400.0), (1 << 20, 100.0), (1 << 30, 10.0)),
    unit_curve=((1 << 10, 100.0), (1 << 20, 25.0), (1 << 30, 5.0)),
    flops=(("f32", 800.0), ("f64", 400.0)),
    launch=50.0,
    latency=100.0,
    chain=1.0,
)


def test_a_rate_lies_between_those_of_the_footprints_around_it() -> None:
    assert rate_at(MACHINE.curve, 1) == 400.0
    assert rate_at(MACHINE.curve, 1 << 15) == pytest.approx(250.0)
    assert rate_at(MACHINE.curve, 1 << 40) == 10.0


def test_the_roofline_is_the_larger_of_two_bounds() -> None:
    assert bound(Work(0, 1 << 30), MACHINE) == (pytest.approx((1 << 30) / 10), "memory")
    assert bound(Work(8e12, 1 << 30), MACHINE) == (pytest.approx(1e10), "compute")
    assert bound(Work(8e12, 1 << 30, "f64"), MACHINE) == (pytest.approx(2e10), "compute")


def test_fewer_blocks_than_units_are_a_cause_and_more_are_none() -> None:
    work = Work(0, 1 << 30, blocks=1)
    assert limits(work, MACHINE)["too few blocks"] == pytest.approx((1 << 30) / 5)
    assert limits(Work(0, 1 << 30, blocks=4), MACHINE)["too few blocks"] == 0
    time, cause = predict(work, MACHINE)
    assert (time, cause) == (pytest.approx((1 << 30) / 5 + 50), "too few blocks")
    assert "50 % of the roofline: too few blocks" in describe_share(work, MACHINE)


def test_a_kernel_that_does_nothing_is_bound_by_its_launch() -> None:
    assert predict(Work(1, 4), MACHINE)[1] == "launch"


def test_multiplications_and_additions_apart_take_twice_the_time_of_contractions() -> None:
    assert limits(Work(8e6, 4), MACHINE)["multiply and add apart"] == pytest.approx(2e4)
    assert limits(Work(8e6, 4, is_contraction=True), MACHINE)["multiply and add apart"] == 0


def test_a_machine_of_fewer_units_has_their_share() -> None:
    one = MACHINE.on(1)
    assert one.curve == ((1 << 10, 100.0), (1 << 20, 25.0), (1 << 30, 5.0))
    assert dict(one.flops) == {"f32": 200.0, "f64": 100.0}
    assert Rates.from_json(json.loads(json.dumps(MACHINE.as_json()))) == MACHINE


def test_the_model_reads_what_was_recorded() -> None:
    record = json.loads((RESULTS / "rates-cpu.json").read_text(encoding="utf-8"))
    table = json.loads(TABLE.read_text(encoding="utf-8"))
    assert table["cpu"].pop("machine") == cpu_rates.machine_of(record["hardware"])
    assert table["cpu"] == cpu_rates.rates_of(record["rows"]).as_json()
    file = RESULTS / "gpu-rates.json"
    if file.exists():
        record = json.loads(file.read_text(encoding="utf-8"))
        model, found = table[record["hardware"]["architecture"]], gpu_rates.rates_of(record).as_json()
        # What a launch takes is that of replays, where the record's is held up by the host.
        assert model.pop("launch") <= found.pop("launch")
        assert model.pop("machine") == cpu_rates.machine_of(record["hardware"])
        assert model == found
    for rates in read_table().values():
        assert all(low[1] >= high[1] for low, high in zip(rates.curve, rates.curve[1:], strict=False))
        assert rates.curve[-1][1] > 1
        assert dict(rates.flops)["f32"] > 10


def test_figures_are_adopted_by_the_name_of_a_machine(tmp_path: Path) -> None:
    file = tmp_path / "rates.json"
    file.write_text("{}")
    cpu_rates.adopt("this", MACHINE, file)
    assert json.loads(file.read_text()) == {"this": MACHINE.as_json()}


def test_loops_of_the_cpu_move_and_compute_what_they_say() -> None:
    memory = cpu_rates.Memory.of(1 << 20)
    with ThreadPoolExecutor(2) as pool:
        assert cpu_rates.flops(memory, "float", 1, pool) > 1.5 * cpu_rates.flops(memory, "double", 1, pool)
        memory.arrays[1][:], memory.arrays[2][:] = 5.0, 2.0
        cpu_rates.loop_of("triad")(*memory.parts(64, 1)[0], 64, 1)
        np.testing.assert_array_equal(memory.arrays[0][:65], [11.0] * 64 + [1.0])
        cpu_rates.loop_of("read")(*memory.parts(64, 1)[0], 64, 1)
        assert memory.arrays[0][0] == 320.0
        cpu_rates.loop_of("copy")(*memory.parts(64, 2)[1], 32, 1)
        np.testing.assert_array_equal(memory.arrays[0][32:64], [5.0] * 32)
        assert cpu_rates.latency(memory, 1 << 20, pool) > cpu_rates.latency(memory, 1 << 13, pool) > 0.1


@pytest.mark.skipif(assembler() is None, reason="there is no `ptxas` here")
@pytest.mark.parametrize("name", device_probe.TEXTS)
def test_micro_kernels_of_a_gpu_assemble(name: str) -> None:
    assert assemble(device_probe.TEXTS[name]().encode(), "sm_90a")


def test_every_public_op_has_a_case_that_fills_what_is_allowed() -> None:
    """But `linspace`, whose length only Python sees."""
    large: list[str] = []
    without: list[str] = []
    for spec in public():
        dtype = BY_NAME[sample_dtype(spec)]
        forms = [form for form in forms_of(spec, dtype) if form.sizes[-1] and not form.is_fixed]
        sizes = sizes_for(spec, dtype, forms[0], TARGETS[USUAL]) if forms else None
        if sizes is None:
            without.append(spec.short_name)
            continue
        cost = cost_of(spec, dtype, forms[0], sizes)
        assert cost is not None
        assert cost[0] <= TARGETS[USUAL]
        large += [spec.short_name] * (cost[0] >= TARGETS[USUAL] / 4)
    assert without == ["linspace"]
    assert len(large) >= 0.9 * len(public())


def test_the_usual_case_of_every_op_comes_first() -> None:
    found = cases(["exp", "softmax", "sum"], [USUAL])
    assert {case.spec.short_name for case in found[:3]} == {"exp", "softmax", "sum"}
    for case in found[:3]:
        assert (case.is_symbolic, case.is_transposed, case.style, case.dtype) == (False, False, "balanced", ts.f32)
    assert any(case.is_symbolic for case in found)
    assert any(case.is_transposed for case in found)
    assert any(case.dtype is ts.bf16 for case in found)


@pytest.mark.parametrize("style", ["balanced", "wide", "tall", "odd"])
def test_sizes_fill_what_is_allowed(style: str) -> None:
    (spec,) = [spec for spec in public() if spec.short_name == "softmax"]
    form = forms_of(spec, ts.f32)[0]
    sizes = sizes_for(spec, ts.f32, form, 1 << 24, style)
    assert sizes is not None
    assert (1 << 22) < 8 * sizes["A"] * sizes["B"] <= 1 << 24
    ratio = sizes["B"] / sizes["A"]
    assert {"balanced": 0.5 < ratio < 2, "odd": sizes["A"] % 2 == 1, "wide": ratio > 64, "tall": ratio < 1 / 64}[style]


@cache
def chosen(*names: str) -> list[Case]:
    """Small cases of some ops."""
    return cases(names, ["tiny"])


def test_every_kernel_of_a_case_is_a_row_with_a_share() -> None:
    found = {(case.spec.short_name, case.is_symbolic, case.is_transposed): case for case in chosen("softmax", "take")}
    for key in (("softmax", True, False), ("softmax", False, True), ("take", False, False)):
        rows = list(roofline.rows_on_cpu(found[key], MACHINE))
        assert rows
        for row in rows:
            assert row.nanoseconds > 0
            assert row.bytes > 0
            assert row.share == pytest.approx(row.bound / row.nanoseconds)
            assert bool(row.cause) == (row.share < roofline.HALF)


def test_a_case_that_fails_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(case: Case, rates: Rates) -> Any:
        raise ValueError(f"no {case.spec.short_name}\nnever")

    monkeypatch.setattr(roofline, "rows_on_cpu", fail)
    lines: list[str] = []
    rows = roofline.audit(chosen("exp")[:2], "cpu", MACHINE, 60.0, lines.append)
    assert [row.error for row in rows] == ["ValueError: no exp"] * 2
    assert roofline.summary_of(rows)["errors"] == 2
    assert len(lines) == 2


def test_what_is_slow_is_measured_again_and_the_better_time_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([1e12, 1e9, 2e12])

    def measure(case: Case, rates: Rates) -> Any:
        yield roofline.judge(roofline.Row(case.name, "exp"), Work(0, 1 << 30), rates, next(times))

    monkeypatch.setattr(roofline, "rows_on_cpu", measure)
    lines: list[str] = []
    (one,) = roofline.audit(chosen("exp")[:1], "cpu", MACHINE, 60.0, lines.append)
    assert one.nanoseconds == 1e9
    assert len(lines) == 1


def test_a_cause_is_a_limit_that_takes_half_of_the_time() -> None:
    row = roofline.Row("case", "op")
    work = Work(0, 1 << 30, blocks=1)
    assert roofline.judge(row, work, MACHINE, (1 << 30) / 4).cause == "too few blocks"
    assert roofline.judge(row, work, MACHINE, (1 << 30) * 3.0).cause.startswith(roofline.NOT_EXPLAINED)
    assert roofline.judge(row, work, MACHINE, (1 << 30) / 9).cause == ""
    assert row.is_slow is False


SCALAR_LOOP = """f:
\tmovq\t8(%rsp), %rax
.LBB0_1:
\tvmovss\t(%rsi,%rax,4), %xmm0
\tvdivss\t(%rdi,%rax,4), %xmm0, %xmm0
\tvmovss\t%xmm0, (%rdx,%rax,4)
\tincq\t%rax
\tcmpq\t%rax, %rcx
\tjne\t.LBB0_1
\tretq"""
VECTOR_LOOP = """.LBB0_2:
.LBB0_3:
\tvmovups\t(%rsi,%rax,4), %zmm0
\tvfmadd231ps\t64(%rsp), %zmm0, %zmm1
\tvbroadcastss\t(%rdi), %zmm2
\tvcvtps2ph\t$4, %zmm1, (%rdx,%rax,2)
\tjl\t.LBB0_3
\tjl\t.LBB0_2"""


def lines_of(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines()]


def test_a_loop_of_machine_code_says_what_it_touches_and_what_takes_its_cycles() -> None:
    (lines,) = causes.loops_in(lines_of(SCALAR_LOOP))
    loop = causes.read_loop(lines)
    assert (loop.instructions, loop.loads, loop.stores, loop.bytes, loop.stored) == (6, 2, 1, 12, 4)
    assert not loop.is_vector
    assert loop.cycles() == (3.0, "divisions and gathers")
    (lines,) = causes.loops_in(lines_of(VECTOR_LOOP))
    loop = causes.read_loop(lines)
    assert loop.is_vector
    assert (loop.loads, loop.stores, loop.bytes, loop.stored, loop.flops) == (2, 1, 64 + 4 + 32, 32, 32)


@pytest.mark.skipif(shutil.which("llvm-mca") is None, reason="there is no `llvm-mca` here")
def test_a_simulation_knows_that_sums_wait_for_each_other() -> None:
    cycles, name = causes.simulate("\tvaddss (%rsi), %xmm0, %xmm0\n") or (0.0, "")
    assert cycles > 2
    assert name == "instructions that wait for each other"


def test_the_loop_of_a_slow_kernel_is_found_in_its_machine_code() -> None:
    """A kernel that divides takes so long as its dividers do, and not as memory does."""

    @ts.jit
    def divide(x: Any, y: Any) -> Any:
        return x // y

    x = np.ones((512, 512), np.float32)
    divide(x, x)
    ((names, _, work),) = roofline.works_of(divide, {})
    assert (work.bytes, work.written) == (3 << 20, 1 << 20)
    (found,) = causes.cpu_limits(divide, names, work, MACHINE, 1e6).items()
    assert "cycles for" in found[0]
    assert 0 < found[1] <= 1.5e6
    assert causes.cpu_limits(divide, names, work, MACHINE, 1e-3) == {}


PTX_LOOP = """.version 8.0
$L_1:
\tld.global.nc.v4.b32 {%r1, %r2, %r3, %r4}, [%rd1];
\tadd.f32 %f1, %f1, %f2;
\t@%p1 st.global.b16 [%rd2], %rs1;
\t@%p2 bra $L_1;"""


def test_a_loop_of_ptx_says_what_a_thread_loads_and_stores() -> None:
    (lines,) = causes.loops_in(lines_of(PTX_LOOP), causes.PTX_JUMP)
    loop = causes.read_ptx_loop(lines)
    assert (loop.instructions, loop.loads, loop.bytes) == (4, 16, 18)


def test_limits_of_a_gpu_come_of_its_ptx_and_occupancy() -> None:
    """A program that is compiled for a GPU need not run there to be looked at."""

    def scale(x: Any) -> Any:
        return x * 2.0

    function = ts.jit(scale, backend="cuda", features=("sm_90a",))
    made = compile_tape(function.trace(np.ones((4096, 1024), np.float32)).tape, function.options)
    (values,) = made.metadata["work"]
    work = work_in(values)
    assert work is not None
    assert work.bytes == 8 << 22
    found = causes.executable_limits(made, work, replace(MACHINE, units=132))
    assert {name.split(":")[0] for name in found} >= {"instructions", "latency of L2"}
    assert all(value > 0 for value in found.values())


def test_the_command_writes_what_it_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def known(device: str, threads: int, say: Any) -> Rates:
        return MACHINE

    monkeypatch.setattr(roofline, "measured_rates", known)
    file = tmp_path / "found.json"
    roofline.main(["--ops", "neg", "--targets", "small", "--seconds", "1", "--every", "--out", str(file)])
    record = json.loads(file.read_text())
    assert record["summary"]["rows"] == len(record["rows"]) > 0
    assert Rates.from_json(record["rates"]) == MACHINE
    assert {row["op"] for row in record["rows"]} == {"neg"}


def test_parts_together_have_every_case_once(tmp_path: Path) -> None:
    (tmp_path / "rates.json").write_text(json.dumps(MACHINE.as_json()), encoding="utf-8")
    wanted, found = chosen("neg")[:5], list[str]()
    for at in range(2):
        out = tmp_path / f"{at}.json"
        asked = Namespace(device="cpu", jobs=2, part=f"{at}/{tmp_path}", seconds=60.0, out=out)
        roofline.audit_part(asked, wanted, list[str]().append)
        found += [row["case"] for row in json.loads(out.read_text(encoding="utf-8"))]
    assert sorted(found) == sorted(case.name for case in wanted)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--targets", "bogus"], "--targets has no `bogus`; there are tiny, small, medium, large, huge"),
        (["--ops", "add,nosuch"], "--ops has no `nosuch`; there are abs, "),
        (["--ops", "add"], "give --out FILE"),
        (["--targets", "tiny"], "give --out FILE"),
        (["--seconds", "5"], "give --out FILE"),
        (["--jobs", "2"], "a CPU is measured by one process"),
    ],
)
def test_the_command_refuses_at_once_what_it_has_not_and_a_part_for_the_record(
    arguments: list[str], reason: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: Any) -> Rates:
        raise AssertionError("it measured")

    monkeypatch.setattr(roofline, "measured_rates", fail)
    with pytest.raises(SystemExit) as ended:
        roofline.main(arguments)
    assert ended.value.code == 2
    assert reason in capsys.readouterr().err


def test_explain_says_the_share_of_the_roofline() -> None:
    @ts.jit
    def scale(x: Any) -> Any:
        return x * 2.0

    x = np.ones((1024, 512), np.float32)
    scale(x)
    report = scale.explain(x).report
    (line,) = report["roofline"]
    assert "memory bounds it by" in line
    assert "4.19 MB" in line
    assert "; at least " in line
    assert "at most 100 % of the roofline" in line
    assert report["rates"].startswith("as measured on Intel(R) Xeon(R)")


def test_explain_uses_the_sizes_of_its_arguments_and_says_nothing_without() -> None:
    @ts.jit
    def scale(y: ts.Tensor["K", ts.f32], x: ts.Tensor["M", "N", ts.f32]) -> Any:
        return x * ts.ops.sum(y)

    y, x = np.ones(8, np.float32), np.ones((1024, 512), np.float32)
    scale(y, x)
    assert "4.19 MB" in scale.explain(y, x).report["roofline"][-1]
    assert "2.1 MB" in scale.explain(y, x[:512]).report["roofline"][-1]
    (page,) = scale.explain().specializations
    assert "kernels" in page.report
    assert "roofline" not in page.report


Function: TypeAlias = Callable[[Any], Any] | Callable[[Any, Any], Any]


def roofline_of(function: Function, *arrays: Any) -> list[str]:
    """What `explain` says of the kernels of a call."""
    made = ts.jit(function)
    made(*arrays)
    return made.explain(*arrays).report.get("roofline", [])


def test_no_share_is_said_of_what_the_model_does_not_see() -> None:
    x, at = np.ones((64, 256), np.float32), np.zeros(8, np.int32)
    for (line,) in (roofline_of(ts.ops.sort, x), roofline_of(lambda x: ts.ops.cumsum(x, axis=-1), x)):
        assert line.endswith("; no share predicted: its loops are not modeled")
    *_, line = roofline_of(lambda x, at: ts.ops.take(x, at, axis=0), x, at)
    assert "what it moves depends on values" in line
    *_, line = roofline_of(lambda x: ts.fori_loop(0, 3, lambda i, x: x * 2.0, x), x)
    assert line.endswith("; no share predicted: its loops are not modeled")
    (line,) = roofline_of(lambda x: x @ x, np.ones((64, 64), np.int32))
    assert line.endswith("; no share predicted: no rate of int was measured")
    assert roofline_of(lambda x: x * 2.0, np.ones((0, 4), np.float32)) == []


def work_on_gpu(function: Function, *arrays: Any) -> list[dict[str, Any]]:
    """What the groups of a program do on a GPU that need not be here."""
    made = ts.jit(function, backend="cuda", features=("sm_90a",))
    return compile_tape(made.trace(*arrays).tape, made.options).metadata["work"]


def test_the_rate_of_tensor_cores_is_that_of_kernels_that_have_them() -> None:
    kinds = {ml_dtypes.bfloat16: "bf16", np.float32: "f32", np.int8: "i8", np.float64: "f64"}
    ones = [np.ones((256, 256), dtype) for dtype in kinds]
    for one, kind in zip(ones, kinds.values(), strict=True):
        *_, values = work_on_gpu(lambda x: x @ x, one)  # behind what writes an operand of bytes along K
        assert values["dtype"] == kind
    # A weight of one byte is computed where tensor cores multiply it.
    (values,) = work_on_gpu(lambda x, y: x @ ts.ops.cast(y, ts.bf16), ones[0], ones[2])
    assert values["dtype"] == "bf16"
    assert bound(Work(1e15, 4, "int"), MACHINE) == (pytest.approx(4 / 400), "memory")


@pytest.mark.parametrize(("queries", "keys"), [(64, 64), (16, 64), (64, 16), (1, 64)])
def test_a_causal_mask_leaves_out_what_nobody_computes(queries: int, keys: int) -> None:
    q, k = np.ones((1, 2, queries, 8), np.float32), np.ones((1, 2, keys, 8), np.float32)
    (whole,) = work_on_gpu(lambda q, k: ts.ops.attention(q, k, k), q, k)
    (half,) = work_on_gpu(lambda q, k: ts.ops.attention(q, k, k, causal=True), q, k)
    seen = int(np.isfinite(causal_mask(queries, keys)).sum())
    assert int(half["flops"]) * queries * keys == int(whole["flops"]) * seen


def test_what_a_cache_takes_depends_on_its_fill() -> None:
    (case, *_) = chosen("cached_attention")
    program, arrays = case.program(), case.arrays()
    assert arrays[-1] == arrays[1].shape[2] == case.sizes["T"]
    program(*arrays)
    lines = program.explain(*arrays).report["roofline"]
    assert any("the fill of a cache" in line for line in lines)
    assert all("at most 1" not in line for line in lines)
