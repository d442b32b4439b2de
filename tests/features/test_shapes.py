"""Shapes: dynamic dims, inference, errors with path, rule, value and place, guards, and misses that say why."""

# Traced functions are lambdas here, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import ops
from tessera.diagnostics.codes import BroadcastError, GuardError, SpecializationError
from tessera.diagnostics.error import TesseraError
from tessera.ir.base.interpret import bind_dims
from tessera.ir.base.text import parse_module
from tessera.ir.base.verify import verify
from tests.errors import test_programs as errors
from tests.graph.eager import RuleError, reference, registry
from tests.tile.test_clean_suite import tape_of

F32 = np.float32
GOLDEN = Path(__file__).with_name("shape_errors.md")


def ones(*shape: int) -> Any:
    return np.ones(shape, F32)


def test_S1_one_trace_serves_every_batch() -> None:
    traces: list[int] = []

    @ts.jit
    def f(x: ts.Tensor["B", 5, ts.f32]) -> Any:
        traces.append(1)
        return ops.softmax(x * 1.625)

    for batch in (1, 7, 64):
        x = np.random.default_rng(batch).standard_normal((batch, 5)).astype(F32)
        power = np.exp(x * 1.625)
        np.testing.assert_allclose(np.asarray(f(x)), power / power.sum(1, keepdims=True), rtol=1e-5)
    assert (len(traces), f.cache_info().compiles) == (1, 1)


def test_S1_1_a_static_anchor_is_a_number_in_the_code() -> None:
    @ts.jit
    def f(x: ts.Tensor["S", 128, ts.f32], w: ts.Tensor[128, 16, ts.f32]) -> Any:
        return ops.rmsnorm_safe(x) @ w

    for size in (1, 2, 17, 40, 100):
        assert f(ones(size, 128), ones(128, 16)).shape == (size, 16)
    assert f.cache_info().misses == 1
    lowered = f.lower(ones(3, 128), ones(128, 16))
    assert "!tgraph.tensor<[S, 128], f32>" in lowered.graph
    for text in (lowered.schedule, lowered.tile):
        assert re.search(r"buffer<\[(S|s\d+), 128\], f32>", text)
    assert re.search(r"k = 128\b", lowered.target)
    assert not re.search(r"k = 128\b", ts.jit(f.function, dynamic=True).lower(ones(3, 128), ones(128, 16)).schedule)


def golden() -> list[errors.Wrong]:
    whole = GOLDEN.read_text(encoding="utf-8")
    found = [errors.Wrong(GOLDEN, m["name"], m["program"], m["text"]) for m in errors.SECTION.finditer(whole)]
    assert len(found) == whole.count("\n## ")
    return found


def ill_shaped() -> list[errors.Wrong]:
    """Wrong programs whose fault is a shape, each message once."""
    shapes = ("T0101", "T0103", "T0106", "T0205", "T0702")
    others = [wrong for wrong in errors.programs() if wrong.file.stem in shapes or "dims" in wrong.text.splitlines()[0]]
    return list({wrong.text.splitlines()[0]: wrong for wrong in (*golden(), *others)}.values())


def test_S2_sixty_ill_shaped_programs_are_refused_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(*_: Any) -> Any:
        raise AssertionError("a program got as far as the compiler")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tessera.api.jit.load", load)
    found = [w for w in ill_shaped() if w.program.count("\nf(") < 2]  # one that calls twice is right the first time
    assert len(found) >= 60
    for wrong in found:
        with pytest.raises(TesseraError) as caught:
            errors.run(wrong.program, tmp_path)
        assert str(caught.value).splitlines()[0] == wrong.text.splitlines()[0]


@pytest.mark.parametrize("op", [spec.short_name for spec in registry() if spec.samples])
def test_S2_1_inferred_shapes_are_the_executed_ones(op: str) -> None:
    spec = registry()[op]
    for sample in spec.samples[:4]:
        try:
            tape = tape_of(spec, sample, is_free=True)
        except RuleError:
            tape = tape_of(spec, sample, is_free=False)  # a dim that must be a number
        arrays = [np.asarray(array) for array in sample.make(np.random.default_rng(0))]
        sizes = bind_dims([tape.types[value] for value in tape.inputs], arrays)
        with np.errstate(all="ignore"):
            executed = reference(op, *arrays, **sample.attributes)
        given = [executed] if hasattr(executed, "dtype") else list(executed)
        for value, array in zip(tape.outputs, given, strict=True):
            type = tape.types[value]
            assert re.fullmatch(r"\[.*\] \w+", str(type))
            assert tuple(dim.evaluate(sizes) for dim in type.shape) == array.shape, f"{op}: {type} and {array.shape}"


def test_S2_2_a_wrong_broadcast_is_refused_when_types_are_checked() -> None:
    reached: list[str] = []

    @ts.jit
    def f(x: ts.Tensor["B", 6, ts.f32], y: ts.Tensor["B", 4, ts.f32]) -> Any:
        reached.append("before")
        z = x + y
        reached.append("after")
        return z

    with pytest.raises(BroadcastError, match=r"`x\.shape\[1\] = 6` and `y\.shape\[1\] = 4` differ"):
        f(ones(2, 6), ones(2, 4))
    assert reached == [], "nothing of the function has run"
    assert f.cache_info().size == 0
    left, right = "!tgraph.tensor<[B, 6], f32>", "!tgraph.tensor<[B, 4], f32>"
    text = f"""tgraph.func @f(%x: {left}, %y: {right}) -> {left} {{
      %0 = tgraph.add %x, %y : ({left}, {right}) -> {left}
      tgraph.return %0 : ({left}) -> ()
    }}"""
    with pytest.raises(Exception, match=r"`x\.shape\[1\] = 6` and `y\.shape\[1\] = 4` differ"):
        verify(parse_module(text))


def test_S3_3_equalities_are_derived_and_conflicts_show_both_sources() -> None:
    @ts.jit
    def f(x: ts.Tensor["M", "K", ts.f32], w: ts.Tensor["P", "N", ts.f32]) -> Any:
        return x @ w

    assert re.search(r"guard: (K == P|P == K) \(", str(f.explain(ones(2, 3), ones(3, 4))))
    with pytest.raises(GuardError) as caught:
        f(ones(2, 3), ones(5, 4))
    notes = "\n".join(caught.value.notes)
    assert "`K` is 3 from `x.shape[1]`" in notes
    assert "`P` is 5 from `w.shape[0]`" in notes


def test_S5_what_cannot_be_proven_is_checked_at_each_call() -> None:
    @ts.jit
    def f(x: ts.Tensor["B", "S", ts.f32], y: ts.Tensor["C", ts.f32]) -> Any:
        return x + y

    f(ones(2, 3), ones(3))
    bound, f._binder = f._binder, None  # pyright: ignore[reportAttributeAccessIssue,reportPrivateUsage]
    np.testing.assert_array_equal(f(ones(4, 5), ones(5)), 2)  # guards are part of the native call
    f._binder = bound  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(GuardError) as caught:
        f(ones(2, 3), ones(4))
    assert caught.value.notes[0] == "rule: `add` broadcasts `x.shape[1] = S` with `y.shape[0] = C`"
    assert caught.value.span is not None
    assert caught.value.span.source_line.strip() == "return x + y"


@pytest.mark.parametrize("wrong", golden(), ids=lambda wrong: wrong.name)
def test_S6_a_shape_error_shows_path_rule_value_and_place(
    wrong: errors.Wrong, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, update: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TesseraError) as caught:
        errors.run(wrong.program, tmp_path)
    if update:
        whole = GOLDEN.read_text(encoding="utf-8")
        before = f"## {wrong.name}\n\n```python\n{wrong.program}```\n\n```text\n"
        changed = whole.replace(f"{before}{wrong.text}```", f"{before}{caught.value}\n```")
        GOLDEN.write_text(changed, encoding="utf-8")
        return
    assert f"{caught.value}\n" == wrong.text
    assert re.search(r"`\w+(\[\d\])?\.shape\[\d\]", wrong.text), "no path"
    assert re.search(r"\d+", wrong.text.splitlines()[0]), "no value"
    assert re.search(r"--> model\.py:\d+:\d+\n", wrong.text), "no place"
    assert re.search(r"differ|must|out of range|cannot cut|needs|both are", wrong.text), "no rule"


def test_S6_there_are_twenty() -> None:
    assert len(golden()) >= 20


def test_S8_hits_and_misses_are_counted_and_a_miss_says_why() -> None:
    f = ts.jit(lambda x: x * 2.125)
    for size in (3, 3, 4, 3):
        f(ones(2, size))
    info = f.cache_info()
    assert (info.hits, info.misses, info.size) == (2, 2, 2)
    assert "`x.shape[1]` changed from 3 to 4" in f.explain_recompile()


def test_S8_1_a_free_dim_is_never_taken_for_a_number() -> None:
    def branch(x: ts.Tensor["B", ts.f32]) -> Any:
        return x if x.shape[0] == 1 else x * 2

    def number(x: ts.Tensor["B", ts.f32]) -> Any:
        return x * int(x.shape[0])

    def loop(x: ts.Tensor["B", ts.f32]) -> Any:
        return sum(x[i] for i in range(x.shape[0]))

    def fixed(x: ts.Tensor["B", ts.f32]) -> Any:
        return x + ops.zeros((7,))

    for function in (branch, number, loop, fixed):
        with pytest.raises(SpecializationError, match=r"\bB\b"):
            ts.jit(function)(ones(7))

    @ts.jit
    def f(x: ts.Tensor["B", "S", ts.f32], y: ts.Tensor["S", ts.f32]) -> Any:
        return (x + y).sum(axis=1)

    for batch, size in ((1, 1), (0, 3), (3, 0), (1, 4), (5, 1)):
        np.testing.assert_array_equal(f(ones(batch, size), ones(size)), np.full(batch, 2 * size, F32))
    assert f.cache_info().misses == 1
